"""A run on a dask cluster: the same bytes as a single process, little traffic, and dead workers only cost time.

The workers are real processes of this host; the object store is a real S3 server on loopback.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import dask
import dask.array
import numpy as np
import pytest
import zarr

import scalable_gpe as gpe
from scalable_gpe.errors import DamageError, GPEError, GPEWarning, MemoryLimitError
from scalable_gpe.execution import cluster as engine
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.panels import Panels
from scalable_gpe.execution.resources import measure_resources
from scalable_gpe.storage.backends import open_backend

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
# a k-d tree: workers that search by brute force import scikit-learn, for a second each
HOW = {"n_neighbors": 6, "n_components": 3, "power": 3, "normalization": "symmetric", "method": "kdtree"}
HOW["progress"] = False
MEMORY = 2**31


@pytest.fixture(scope="module")
def local():
    kind = {"processes": True, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": MEMORY}
    forever = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})  # else it gives up on killed workers
    with forever, distributed.LocalCluster(n_workers=1, **kind) as local:
        yield local


@pytest.fixture(scope="module")
def client(local):
    """A client that is active only where a test activates it."""
    with distributed.Client(local, set_as_default=False) as client:
        yield client


def have(client, n_workers):
    client.cluster.scale(n_workers)
    deadline = time.monotonic() + 180
    while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(client.scheduler_info(n_workers=-1)["workers"]) == n_workers


@pytest.fixture(scope="module")
def torus():
    X = gpe.datasets.torus(2100, random_state=0).astype(np.float32)
    X[2090:] = X[:10]
    return X


@pytest.fixture(scope="module")
def expected(torus, tmp_path_factory):
    """What a single process writes."""
    store = tmp_path_factory.mktemp("single") / "run.zarr"
    gpe.embed(torus, store=store, **HOW)
    return store


def chunks(path, options=None):
    """The bytes of every chunk of every array, and the names of all other files."""
    backend = open_backend(path, options)
    return {name: backend.read(name) if "/c/" in name else b"" for name in backend.files() if name != ".lock"}


# --- where the loops run --------------------------------------------------------------------------


def persisted(X, client):
    with client.as_current():
        return dask.array.from_array(X, chunks=(700, 3)).persist()


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("is_dask", "given", "hosts", "cluster"),
    [
        (False, None, "one", None),
        (False, None, "several", "1 workers, 1 threads"),
        (False, False, "several", None),
        (True, None, "one", None),
        (True, None, "several", "1 workers, 1 threads"),
        (True, False, "several", None),
        (False, "client", "one", "1 workers, 1 threads"),
    ],
)
def test_a_cluster_is_used_where_it_pays(
    client, torus, expected, tmp_path, monkeypatch, is_dask, given, hosts, cluster
):
    """An active client alone does not capture small rows in memory; the report says where the loops ran, and why."""
    have(client, 1)
    if hosts == "several":
        monkeypatch.setattr(engine, "_LEAST_ROWS", 2000)
        monkeypatch.setattr(engine.Cluster, "is_local", False)
    X = persisted(torus, client) if is_dask else torus
    with client.as_current():
        result = gpe.embed(X, client=client if given == "client" else given, store=tmp_path / "run.zarr", **HOW)
    assert result.report["cluster"] == cluster
    assert result.report["reasons"]["cluster"]
    assert (result.points[:] == gpe.open(expected).points[:]).all()


def test_graphs_and_estimators_take_a_client(client, torus):
    from sklearn.base import clone

    plain = gpe.neighbor_graph(torus, 6, method="kdtree")
    with client.as_current():
        assert gpe.neighbor_graph(torus, 6, method="kdtree", store=None).context.workers.placement.cluster is None
    graph = gpe.neighbor_graph(torus, 6, method="kdtree", client=client)
    assert graph.context.workers.placement.cluster is not None
    assert (graph.indices == plain.indices).all()
    model = clone(gpe.GaussianProcessEmbedding(3, power=3, n_neighbors=6, method="kdtree", client=client))
    assert model.fit(torus).report_["cluster"] is not None and model.client is client


def test_what_is_no_client_is_refused_before_any_work(local, torus, tmp_path):
    with distributed.Client(local, set_as_default=False) as closed:
        pass
    for call in (gpe.embed, gpe.neighbor_graph):
        for wrong, error in ((True, TypeError), ("tcp://127.0.0.1:8786", TypeError), (closed, ValueError)):
            with pytest.raises(error, match="client must be"):
                call(torus, client=wrong, store=tmp_path / "run.zarr")
    assert not list(tmp_path.iterdir())


# --- the same bytes -------------------------------------------------------------------------------


def patches():
    X = gpe.datasets.patches(3000, 12, dimension=3, random_state=5)
    X[40:60] = X[7]
    return X


CASES = {
    "k-d tree, double": (
        1,
        "zarr",
        lambda: gpe.datasets.torus(9000, random_state=1),
        {
            "n_neighbors": 7,
            "n_components": 3,
            "power": 5,
            "precision": "double",
            "epsilon": "global",
            "method": "kdtree",
        },
        {"block_rows": 4096},
    ),
    "cells, parts and panels": (
        2,
        "memory",
        patches,
        {"n_neighbors": 8, "n_components": 6, "power": [2, 12], "method": "cells", "recall": 0.9, "tol": 1e-2}
        | {"sample_weight": np.linspace(0.5, 3, 3000)},
        {"panel_columns": 4, "save_seconds": 0.0},
    ),
    "brute force, local": (
        3,
        "memory",
        lambda: gpe.datasets.torus(2100, random_state=2),
        {
            "n_neighbors": 8,
            "n_components": 2,
            "n_sketch": 5,
            "power": [3, "all"],
            "horizon": 16,
            "method": "brute",
            "normalization": "symmetric",
            "epsilon": "local",
        },
        {"resident_bytes": 0},
    ),
    "mapped arrays, scaled columns": (
        2,
        "zarr",
        lambda: np.where(np.arange(3000)[:, None] % 700 == 5, np.nan, patches() * np.arange(1, 13)),
        {"n_neighbors": 8, "n_components": 6, "power": [2, 12], "method": "cells", "recall": 0.9}
        | {"scale": "robust", "missing": "drop"},
        {"maps_arrays": True, "block_rows": 512},
    ),
}


SLOW_CASES = {"brute force, local"}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "case", [case if case not in SLOW_CASES else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_same_bytes(client, tmp_path, monkeypatch, case):
    monkeypatch.setattr("scalable_gpe.io.rows._BYTES_AT_ONCE", 2**16)  # several pieces of the pass over columns
    n_workers, kind, make, how, cut = CASES[case]
    X = make()
    if kind == "zarr":
        array = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(700, X.shape[1]), dtype=X.dtype)
        array[:] = X
        X = array
    with block_sizes(n_parts=3, **cut):
        gpe.embed(X, store=tmp_path / "one.zarr", progress=False, **how)
        have(client, n_workers)
        with client.as_current():
            gpe.embed(X, client=client, store=tmp_path / "many.zarr", progress=False, **how)
    one, many = chunks(tmp_path / "one.zarr"), chunks(tmp_path / "many.zarr")
    assert many.keys() == one.keys()
    assert not [name for name in one if many[name] != one[name]]


def test_a_relative_store_is_that_of_the_caller(client, tmp_path, monkeypatch):
    have(client, 1)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    before = client.run(os.getcwd).values()
    client.run(os.chdir, str(tmp_path / "theirs"))
    try:
        result = gpe.embed(gpe.datasets.torus(300), client=client, store="run.zarr", **HOW)
    finally:
        client.run(os.chdir, next(iter(before)))
    assert os.listdir(tmp_path / "theirs") == [] and os.listdir(tmp_path / "ours") == ["run.zarr"]
    np.testing.assert_array_equal(result.points[:], gpe.embed(gpe.datasets.torus(300), **HOW).points)


@pytest.mark.slow
def test_same_bytes_in_s3(client, s3_options, torus, expected):
    have(client, 2)
    url, source = "s3://bucket/cluster.zarr", "s3://bucket/torus.zarr"
    array = zarr.create_array(source, shape=torus.shape, chunks=(700, 3), dtype="f4", storage_options=s3_options)
    array[:] = torus
    with client.as_current():
        gpe.embed(source, client=client, store=url, storage_options=s3_options, **HOW)
    assert chunks(url, s3_options) == chunks(expected)


# --- what goes over the network -------------------------------------------------------------------


class Watch(distributed.SchedulerPlugin):
    """Records which tasks ran where, and how large their results are."""

    def __init__(self, scheduler):
        self.scheduler, self.tasks = scheduler, []

    def transition(self, key, start, finish, *args, **kwargs):
        if finish == "memory":
            self.tasks.append((key, kwargs["worker"], self.scheduler.tasks[key].nbytes))


@pytest.fixture
def watch(local):
    watch = Watch(local.scheduler)
    local.scheduler.add_plugin(watch, name="watch")
    yield watch
    local.scheduler.remove_plugin("watch")


@pytest.fixture
def messages(monkeypatch):
    """Bytes of each message that the scheduler, which is in this process, sends or receives."""
    from distributed.comm import tcp

    sizes, to_frames, from_frames = [], tcp.to_frames, tcp.from_frames

    async def to(*args, **kwargs):
        frames = await to_frames(*args, **kwargs)
        sizes.append(sum(memoryview(frame).nbytes for frame in frames))
        return frames

    async def of(frames, *args, **kwargs):
        sizes.append(sum(memoryview(frame).nbytes for frame in frames))
        return await from_frames(frames, *args, **kwargs)

    monkeypatch.setattr(tcp, "to_frames", to)
    monkeypatch.setattr(tcp, "from_frames", of)
    return sizes


def test_small_messages_readable_names_and_every_worker_works(client, watch, messages, tmp_path):
    have(client, 2)
    X = gpe.datasets.patches(9000, 40, random_state=0)  # 1.4 MB: no message holds the points, or the graph
    with block_sizes(block_rows=1024), client.as_current():
        result = gpe.embed(X, client=client, store=tmp_path / "run.zarr", **{**HOW, "normalization": "bistochastic"})
    assert messages and max(messages) < 200_000
    assert max(nbytes for *_, nbytes in watch.tasks) < 50_000
    assert len({worker for _, worker, _ in watch.tasks}) == 2
    names = [key.rsplit("-", 2)[0] for key, *_ in watch.tasks]
    assert {"hash_rows", "unite", "weigh", "sinkhorn_step", "product"} <= set(names)
    assert all(name.isidentifier() for name in names)
    # a sweep is one task for each block
    n_blocks = result.kernel.edges.n_blocks
    assert n_blocks == 9
    assert names.count("sinkhorn_step") == n_blocks * result.report["sweeps"]["heat"]


@pytest.mark.parametrize("in_file", [True, False])
def test_a_finished_run_is_found_without_a_copy_or_a_pass_of_the_caller(client, watch, tmp_path, monkeypatch, in_file):
    """Workers read a file that they reach; rows in memory are hashed where they are, and not copied to the store."""
    from scalable_gpe.io.sources import Source
    from scalable_gpe.storage.zarr_store import ZarrStore

    have(client, 1)
    X, n_read, made = gpe.datasets.torus(20_000, random_state=0), [0], []

    def read(source, at, real=Source.rows):
        rows = real(source, at)
        n_read[0] += len(rows)
        return rows

    if in_file:
        np.save(tmp_path / "X.npy", X)
        X = tmp_path / "X.npy"
        monkeypatch.setattr(Source, "rows", read)
    gpe.embed(X, client=client, store=tmp_path / "run.zarr", **HOW)
    watch.tasks.clear()
    n_read[0] = 0
    table = ZarrStore.table
    monkeypatch.setattr(ZarrStore, "table", lambda *given, **how: made.append(given[1]) or table(*given, **how))
    gpe.embed(X, client=client, store=tmp_path / "run.zarr", **HOW)
    names = [key.rsplit("-", 2)[0] for key, *_ in watch.tasks]
    assert not made
    assert n_read[0] <= 4096  # samples
    assert set(names) == ({"spread_columns", "hash_rows"} if in_file else set())


@pytest.mark.slow
def test_bytes_of_a_sweep_do_not_grow_with_the_rows(client, watch, messages, tmp_path):
    """For the same number of blocks; the median over sweeps, because workers send heartbeats now and then."""
    have(client, 2)
    spent = {}
    for rows in (1024, 2048):
        after, X = [], gpe.datasets.torus(4 * rows, random_state=0)

        def count(stage, *_, after=after):
            if stage == "sketch":
                after.append(sum(messages))

        how = {**HOW, "n_components": 32, "power": 6, "progress": count}
        watch.tasks.clear()
        with block_sizes(block_rows=rows), client.as_current():
            report = gpe.embed(X, client=client, store=tmp_path / f"{rows}.zarr", **how).report
        spent[rows] = np.median(np.diff(after))
        swept = [key for key, *_ in watch.tasks if key.startswith(("product-", "recurrence_step-"))]
        assert len(swept) == 4 * report["sweeps"]["sketch"] == 24
    assert 1000 < spent[1024] < 60_000  # a panel has 512 KiB, then 1 MiB
    assert spent[2048] < 1.2 * spent[1024]


# --- with and without a store ---------------------------------------------------------------------


def test_without_a_store_workers_of_this_host_share_a_temporary_one(client, torus, expected, capsys):
    have(client, 2)
    single = gpe.open(expected)
    with client.as_current():
        quiet = gpe.embed(torus, client=client, **HOW)
        assert capsys.readouterr().err == ""
        result = gpe.embed(torus, client=client, **{**HOW, "progress": None})
        audit = gpe.audit(result, n_exact=4)
    assert (quiet.points[:] == single.points[:]).all()
    printed = capsys.readouterr().err
    assert printed.count("scalable_gpe:") == 1
    assert "running on the dask cluster (2 workers, 2 threads), store " in printed
    store = printed.strip().rpartition("store ")[2]
    assert chunks(store) == chunks(expected)
    assert (result.points[:] == single.points[:]).all()
    assert str(audit) == str(gpe.audit(single, n_exact=4))


@pytest.mark.parametrize("method", ["spreading", "harmonic", "poisson"])
def test_labels_spread_on_the_workers(client, torus, tmp_path, method):
    have(client, 1)
    labels = np.where(np.arange(len(torus)) < 30, np.arange(len(torus)) % 3, -1)
    plain = gpe.embed(torus, **HOW).propagate(labels, method=method, tol=1e-3)
    with block_sizes(block_rows=1024), client.as_current():
        result = gpe.embed(torus, client=client, store=tmp_path / "run.zarr", **HOW)
        found = result.propagate(labels, method=method, tol=1e-3)
    np.testing.assert_array_equal(found.probabilities[:], plain.probabilities)
    assert (found.iterations, found.residual) == (plain.iterations, plain.residual)


def test_estimate_is_that_of_a_worker(client, torus):
    here = gpe.estimate(*torus.shape, n_neighbors=6)["smallest_limit"]
    with client.as_current():
        least = gpe.estimate(*torus.shape, client=client, n_neighbors=6, n_components=3, power=3)["smallest_limit"]
        with pytest.raises(ValueError, match=f"at least {least / 1e6:.0f} MB"):
            gpe.embed(torus, client=client, memory_limit=least - 10**6, **HOW)
    assert least > here


def test_panels_that_are_no_longer_needed_are_retired(torus, client, tmp_path, monkeypatch):
    """Workers keep as many panels as are live: when the columns of the sketch are complete, none is."""
    have(client, 2)
    left = []

    def spy(panels, real=Panels.clear):
        if "/saved/" in panels._name:
            left.append(panels.n_live)
        real(panels)

    monkeypatch.setattr(Panels, "clear", spy)
    with client.as_current():
        how = {**HOW, "power": [2, 3, 40, "all"], "horizon": 64}
        gpe.embed(torus, client=client, store=tmp_path / "run.zarr", **how)
    assert left and not any(left)


def test_workers_on_other_hosts_need_a_store(client, torus, monkeypatch):
    info = client.scheduler_info(n_workers=-1)["workers"]
    elsewhere = {name: {**metadata, "host": "198.51.100.7"} for name, metadata in info.items()}
    monkeypatch.setattr(engine.Cluster, "_info", lambda self: elsewhere)
    with client.as_current():
        with pytest.raises(ValueError, match=r"run on other hosts.*Pass store="):
            gpe.embed(torus, client=client, **HOW)
        report = gpe.embed(persisted(torus, client), **HOW).report
    assert report["cluster"] is None and "without store" in report["reasons"]["cluster"]


def test_the_memory_of_the_workers_counts(client, torus, monkeypatch, tmp_path):
    assert engine.Cluster(client).worker_memory() == MEMORY
    assert measure_resources(None, engine.Cluster(client), None).limit == int(0.7 * MEMORY)
    info = client.scheduler_info(n_workers=-1)["workers"]
    small = {name: {**metadata, "memory_limit": 200 * 10**6} for name, metadata in info.items()}
    monkeypatch.setattr(engine.Cluster, "_info", lambda self: small)
    for limit in ("900MB", None):  # dask would pause such workers, and the run would wait
        with pytest.raises(MemoryLimitError, match=r"of which a run takes 0\.7; .* has 200 MB") as caught:
            gpe.embed(torus, client=client, store=tmp_path / "run.zarr", memory_limit=limit, **HOW)
    assert not list(tmp_path.iterdir())
    enough = int(re.search(r"at least (\d+) MB", str(caught.value))[1]) * 10**6
    for memory, expected in ((enough, contextlib.nullcontext()), (enough - 10**7, pytest.raises(MemoryLimitError))):
        small = {name: {**metadata, "memory_limit": memory} for name, metadata in info.items()}
        with expected:
            gpe.embed(torus, client=client, store=tmp_path / "run.zarr", **HOW)


def test_a_limit_above_that_of_the_workers_warns(client, torus):
    with pytest.warns(GPEWarning, match=r"memory_limit is 3000 MB, but the smallest worker may hold 2147 MB"):
        report = gpe.embed(torus, client=client, memory_limit="3GB", **HOW).report
    assert "Pass 1503 MB or less" in report["warnings"][0]


def embed_inside(X):
    distributed.get_worker()
    result = gpe.embed(X, **HOW)
    return type(result.heat.context.workers).__name__, result.points


def test_inside_a_task_threads_do_the_work(client, torus, expected):
    kind, points = client.submit(embed_inside, torus).result(timeout=300)
    assert kind == "Workers"
    assert (points == gpe.open(expected).points[:]).all()


def test_the_peak_of_the_workers_is_reported(client, torus, expected, monkeypatch):
    caller = os.getpid()
    monkeypatch.setattr("scalable_gpe.report.peak_memory", lambda: 1 if os.getpid() == caller else 2)
    report = gpe.embed(torus, client=client, **HOW).report
    assert report["peak_memory"] == 2
    assert "the workers" in report["reasons"]["peak_memory"]
    assert "peak_memory" not in gpe.open(expected).report["reasons"]


def test_results_live_on_without_the_client(local, torus, expected):
    single = gpe.open(expected)
    with distributed.Client(local, set_as_default=False) as client, client.as_current():
        result = gpe.embed(torus, client=client, **HOW)
    V = np.random.default_rng(0).standard_normal((len(torus), 2))
    assert (result.heat @ V == single.heat @ V).all()
    assert (result.transform(torus[:40]) == result.points[:40]).all()
    assert str(gpe.audit(result, n_exact=4)) == str(gpe.audit(single, n_exact=4))


# --- damage and deaths ----------------------------------------------------------------------------


def flip(store, part):
    """Flip a bit of the first chunk of an array."""
    file = store / next(name for name in open_backend(store).files() if f"/{part}/c/" in name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)


def test_damage_between_stages_is_repaired(client, torus, tmp_path):
    have(client, 2)
    store, how, done = tmp_path / "run.zarr", {**HOW, "normalization": "bistochastic"}, []

    def damage(stage, *_):
        if stage == "heat" and not done:  # before its first sweep
            done.append(flip(store, "weights"))

    gpe.embed(torus, store=tmp_path / "one.zarr", **how)
    with client.as_current():
        gpe.embed(torus, client=client, store=store, **{**how, "progress": damage})
    assert done
    assert chunks(store) == chunks(tmp_path / "one.zarr")


def test_damage_reaches_the_caller(client, torus, tmp_path, monkeypatch):
    """A worker finds the damage; damage that keeps coming back ends the run."""
    have(client, 2)
    monkeypatch.setattr("scalable_gpe.runs._REPAIRS", 1)

    def damage(stage, done, total):
        if stage == "heat" and not done:
            flip(tmp_path / "run.zarr", "weights")

    how = {**HOW, "normalization": "bistochastic", "progress": damage}
    with client.as_current(), pytest.raises(DamageError, match=r"weights.*damaged.*Run embed again") as caught:
        gpe.embed(torus, client=client, store=tmp_path / "run.zarr", **how)
    assert caught.value.array.endswith("/weights")


def test_workers_that_die(client, torus, tmp_path):
    """One by SIGKILL, the other by a segmentation fault, during the scaling and during the sketch."""
    have(client, 2)
    how = {**HOW, "normalization": "bistochastic"}
    deaths = {("heat", 4): signal.SIGKILL, ("heat", 9): signal.SIGSEGV, ("sketch", 1): signal.SIGKILL}
    ended = []

    def kill(stage, done, total):
        alive = {nanny.pid for nanny in client.cluster.workers.values() if nanny.pid} - set(ended)
        if (stage, done) in deaths and alive:
            ended.append(alive.pop())
            os.kill(ended[-1], deaths[stage, done])

    gpe.embed(torus, store=tmp_path / "one.zarr", **how)
    with client.as_current():
        gpe.embed(torus, client=client, store=tmp_path / "many.zarr", **{**how, "progress": kill})
    assert len(ended) >= 2
    assert chunks(tmp_path / "many.zarr") == chunks(tmp_path / "one.zarr")


def nap(piece):
    time.sleep(0.3)
    return os.getpid(), piece


@pytest.mark.slow
def test_tasks_that_are_submitted_while_there_is_no_worker(client, monkeypatch):
    """They prefer the worker that died; dask would let them wait for it forever."""
    have(client, 1)
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.5)
    (pid,) = client.run(os.getpid).values()
    workers = engine.Cluster(client)
    killer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    killer.start()
    found = workers.map(nap, range(8))
    killer.join()
    assert [piece for _, piece in found] == list(range(8))
    assert {one for one, _ in found} != {pid}
    workers.close()


def test_neighbouring_pieces_have_one_worker(client, monkeypatch):
    workers, threads = engine.Cluster(client), {"a": 1, "b": 2, "c": 1}
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(client, "nthreads", lambda: threads)
    assert workers._worker_of_pieces(8) == ["a", "a", "b", "b", "b", "b", "c", "c"]
    assert workers._worker_of_pieces(2) == ["a", "b"]
    threads.clear()
    assert workers._worker_of_pieces(4) == []


@pytest.mark.some(1)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_tasks_hold_no_arrays(client, tmp_path, monkeypatch, caplog, normalization):
    """Vectors with one number per row are in the store, also what is removed from all scales."""
    monkeypatch.setattr(engine, "_MOST_BYTES", 15_000)
    X = gpe.datasets.torus(3000, random_state=3)
    how = {**HOW, "power": "all", "horizon": 8, "normalization": normalization}
    gpe.embed(X, store=tmp_path / "one.zarr", **how)
    with client.as_current(), caplog.at_level("DEBUG", "scalable_gpe"):
        gpe.embed(X, client=client, store=tmp_path / "many.zarr", **how)
        assert "arrays should be in the store" not in caplog.text
        engine._Task(X.sum, None)
    assert caplog.records[-1].levelname == "DEBUG" and "arrays should be in the store" in caplog.records[-1].message
    assert chunks(tmp_path / "many.zarr") == chunks(tmp_path / "one.zarr")


@pytest.fixture
def alone(tmp_path):
    """A scheduler and a worker, each in its own process."""
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    programs = [
        ["distributed.cli.dask_scheduler", "--port", "0"],
        ["distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--death-timeout", "300"],
    ]
    running = []
    try:
        for program in programs:
            command = [sys.executable, "-m", *program, *common]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path))
        yield file, running[0]
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_scheduler_that_dies(alone, client, torus, tmp_path):
    """During the scaling, whose panels are in the store: the next run resumes there."""
    file, scheduler = alone
    store, how, seen = tmp_path / "run.zarr", {**HOW, "normalization": "bistochastic"}, []

    def kill(stage, done, total):
        if stage == "heat" and done == 12:
            scheduler.kill()
            scheduler.wait()

    while not file.exists():
        time.sleep(0.05)
    with block_sizes(save_seconds=0.0):
        gpe.embed(torus, store=tmp_path / "one.zarr", **how)
        with distributed.Client(scheduler_file=str(file), timeout=60, set_as_default=False) as lost, lost.as_current():
            lost.wait_for_workers(1, timeout=300)
            with pytest.raises(GPEError, match=r"connection to the dask scheduler was lost.*Run the same line again"):
                gpe.embed(torus, client=lost, store=store, **{**how, "progress": kill})
    with client.as_current():
        how["progress"] = lambda stage, done, total: seen.append((stage, done))
        gpe.embed(torus, client=client, store=store, **how)
    assert not {stage for stage, _ in seen} & {"lists", "edges", "kernel"}
    assert ("heat", 3) not in seen and ("sketch", 1) in seen
    assert chunks(store) == chunks(tmp_path / "one.zarr")
