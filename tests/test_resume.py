"""A run that is killed and started again gives the same bytes as an uninterrupted one.

Kills are real: SIGKILL of a process, at a progress event, at an operation on a file of the store, or after some time.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

import scalable_gpe as gpe
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.storage.backends import open_backend
from scalable_gpe.storage.zarr_store import ZarrStore

KINDS = ("powers", "wide")
SINGLE = {"powers": 80, "wide": 80}  # kills of a run in one process
IN_S3, ON_A_CLUSTER = 20, 20


class Runs:
    """A process that forks one process for each run."""

    def __init__(self):
        command = [sys.executable, str(Path(__file__).with_name("killed_run.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == {"ready": True}

    def _read(self):
        return json.loads(self.process.stdout.readline())

    def __call__(self, store, kind, **request):
        """Run, and return exit code, stages of the events and number of file operations."""
        self.process.stdin.write(json.dumps({"store": str(store), "run": kind, **request}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


class Reference:
    """An uninterrupted run: the bytes of its chunks, its events, its file operations, its seconds."""

    def __init__(self, runs, store, kind):
        began = time.monotonic()
        done = runs(store, kind)
        self.seconds = time.monotonic() - began
        assert done["code"] == 0
        self.kind, self.arrays = kind, arrays(store)
        self.stages, self.n_files = done["stages"], done["n_files"]

    @property
    def boundaries(self):
        """Events with which a stage begins, and the ones before them."""
        begins = [number for number in range(1, len(self.stages)) if self.stages[number] != self.stages[number - 1]]
        return sorted({max(2, event) for number in begins for event in (number, number + 1)})

    def moments(self, count, seed):
        """Moments to kill at: all boundaries of stages, then in turn file operations and times, at random."""
        rng, moments = random.Random(seed), [{"kill": {"event": event}} for event in self.boundaries]
        while len(moments) < count:
            moments.append({"kill": {"file": rng.randint(2, self.n_files - 1)}})
            if len(moments) % 4 == 0:
                moments.append({"seconds": rng.uniform(0.05, self.seconds)})
        assert len(moments) <= count + 1, "more boundaries than kills"
        return moments[:count]


@pytest.fixture(scope="module")
def references(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    return {kind: Reference(runs, folder / f"{kind}.zarr", kind) for kind in (*KINDS, "small")}


def arrays(store, options=None):
    """The bytes of every chunk, and the names of all files but the lock."""
    backend = open_backend(str(store), options)
    names = [name for name in backend.files() if name != ".lock"]
    return {name: backend.read(name) if "/c/" in name else b"" for name in names}


def assert_killed(killed, moment, reference):
    """A run may end before the moment: seconds pass unevenly, and how often the state is saved depends on them."""
    late = "seconds" in moment or moment["kill"].get("file", 0) > 0.7 * reference.n_files
    assert killed["code"] == -signal.SIGKILL or (late and killed["code"] == 0)


def check(runs, reference, store, moment, **where):
    """Kill a run, resume it, and compare; return the stages of the second run."""
    killed = runs(store, reference.kind, **moment, **where)
    assert_killed(killed, moment, reference)
    resumed = runs(store, reference.kind, **where)
    assert resumed["code"] == 0
    assert arrays(store, where.get("options")) == reference.arrays
    return resumed["stages"]


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [pytest.param(0.1, marks=pytest.mark.slow), 0.9])
def test_killed_at_an_event_the_bytes_are_the_same(tmp_path, runs, references, kind, share):
    reference = references[kind]
    event = max(2, int(share * len(reference.stages)))
    stages = check(runs, reference, tmp_path / "run.zarr", {"kill": {"event": event}})
    finished = reference.stages[: event - 1]
    if "kernel" in finished:  # the graph was committed before the kernel began
        assert not {"points", "lists", "edges", "recall"} & set(stages)
    if "sketch" in finished:
        assert "heat" not in stages


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_killed_twice_and_from_outside(tmp_path, runs, references, kind):
    reference, store = references[kind], tmp_path / "run.zarr"
    assert runs(store, kind, kill={"file": reference.n_files // 3})["code"] == -signal.SIGKILL
    check(runs, reference, store, {"seconds": reference.seconds / 3})


def test_the_seconds_of_finished_stages_count_in_the_run_that_resumes(tmp_path):
    def interrupt(stage, done, total):
        if stage == "lists":
            time.sleep(1)
        if stage == "sketch":
            raise KeyboardInterrupt

    X, options = gpe.datasets.torus(300), {"n_components": 8, "power": 4, "store": tmp_path / "run.zarr"}
    with pytest.raises(KeyboardInterrupt):
        gpe.embed(X, progress=interrupt, **options)
    began = time.monotonic()
    resumed = gpe.embed(X, **options).report
    assert resumed["stage_seconds"]["graph"] >= 1 and resumed["total_seconds"] > time.monotonic() - began
    began = time.monotonic()
    other = gpe.embed(X, **options | {"power": 8})  # its graph was there
    assert other.report["stage_seconds"]["graph"] <= time.monotonic() - began


def test_leftovers_of_a_kill_are_removed(tmp_path, runs, references):
    reference, store = references["powers"], tmp_path / "run.zarr"
    runs(store, "powers", kill={"event": len(reference.stages) // 2})
    (store / "graph" / "0.0123456789.partial").write_bytes(b"half a chunk")
    assert runs(store, "powers")["code"] == 0
    assert arrays(store) == reference.arrays
    assert not [name for name in arrays(store) if name.endswith(".partial") or "/saved/" in name or "/search/" in name]


def test_groups_are_written_before_what_they_hold(tmp_path, monkeypatch):
    """zarr writes an array and the groups above it at the same time: a kill would leave an array without a group."""
    store, created = ZarrStore(tmp_path / "run.zarr"), zarr.Group.create_array

    def create(self, name, **options):
        assert store.backend.files("a") == ["a/b/zarr.json", "a/zarr.json"]
        return created(self, name, **options)

    monkeypatch.setattr(zarr.Group, "create_array", create)
    store.table("a/b/c", (10, 2), np.float32)


def test_a_run_opens_while_another_one_is_not_finished(tmp_path):
    """The other one has saved its state, which a reader must leave alone."""
    X, store = gpe.datasets.torus(300), tmp_path / "run.zarr"
    options = {"power": 40, "store": store, "progress": False}

    def stop(stage, done, total):
        if stage == "sketch" and done == total - 3:
            raise KeyboardInterrupt

    with block_sizes(save_seconds=0.0, resident_bytes=0):
        first = gpe.embed(X, n_components=8, **options)
        with pytest.raises(KeyboardInterrupt):
            gpe.embed(X, n_components=12, **(options | {"progress": stop}))
    assert any("/saved/" in name for name in arrays(store))
    np.testing.assert_array_equal(gpe.open(store).points[:], first.points[:])


def test_a_group_that_a_kill_left_out_is_made_again(tmp_path):
    X, store = gpe.datasets.torus(300), tmp_path / "run.zarr"
    for _ in range(2):
        gpe.embed(X, n_components=8, power=4, store=store, progress=False)
        assert (store / "runs" / "zarr.json").exists()
        (store / "runs" / "zarr.json").unlink()


# --- two hundred of them ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind in KINDS for number in range(SINGLE[kind])])
def test_killed_at_any_moment(tmp_path, runs, references, kind, number):
    reference = references[kind]
    moment = reference.moments(SINGLE[kind], seed=len(kind))[number]
    check(runs, reference, tmp_path / "run.zarr", moment)


def elsewhere(reference, count, seed):
    """Moments where file operations cannot be counted: events spread over the run, and times."""
    rng = random.Random(seed)
    events = [round(2 + (len(reference.stages) - 2) * one / count) for one in range(count)]
    return [{"kill": {"event": one}} if one % 3 else {"seconds": rng.uniform(0.1, 3)} for one in events]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(IN_S3))
def test_killed_in_an_object_store(runs, references, s3_options, number):
    reference = references["small"]
    moment = elsewhere(reference, IN_S3, seed=1)[number]
    check(runs, reference, f"s3://bucket/killed-{number}.zarr", moment, options=s3_options)


@pytest.fixture(scope="module")
def client():
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    kind = {"processes": True, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 2**31}
    forever = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})  # else it gives up on killed workers
    with (
        forever,
        distributed.LocalCluster(n_workers=2, **kind) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ON_A_CLUSTER))
def test_killed_on_a_cluster(tmp_path, runs, references, client, number):
    """The process that calls embed is killed, every second time a worker too; the cluster serves the next call."""
    reference, store = references[KINDS[number % 2]], tmp_path / "run.zarr"
    moment = elsewhere(reference, ON_A_CLUSTER, seed=2)[number]
    assert_killed(runs(store, reference.kind, scheduler=client.scheduler.address, **moment), moment, reference)
    if number % 2:
        os.kill(next(nanny.pid for nanny in client.cluster.workers.values() if nanny.pid), signal.SIGKILL)
    wait_until_idle(client)
    assert runs(store, reference.kind, scheduler=client.scheduler.address)["code"] == 0
    assert arrays(store) == reference.arrays


def wait_until_idle(client):
    """Helpers of a dead writer do not see the lock: the next writer must wait for them."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if client.run_on_scheduler(lambda dask_scheduler: not dask_scheduler.tasks):
            return
        time.sleep(0.05)
    raise AssertionError("the tasks of a dead client were not forgotten")
