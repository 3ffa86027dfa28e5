"""Two thousand faults of every kind, in every array, at every moment: repaired or named, and never a wrong number."""

import errno
import inspect
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from fsspec.implementations import local
from zarr.storage import LocalStore

import scalable_gpe as gpe
from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.storage import backends
from scalable_gpe.storage.zarr_store import ZarrStore

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
# sums of powers, single powers, and the principal axes of a wide sketch; local length scales
RUN = {"power": [20, "all"], "horizon": 32, "n_components": 2, "n_sketch": 4, "epsilon": "local", "n_neighbors": 8}
ROWS = 330
CHUNKS = ("flip", "truncate", "empty", "delete", "swap", "duplicate")  # damage of one chunk
METADATA = ("dtype", "flip metadata", "delete metadata")  # damage of the zarr.json of an array
COMMIT = ("flip commit", "fact", "truncate commit")  # damage of the zarr.json of a result
AT_REST, EACH_UNDER_WAY, DEAD_WORKERS = 1480, 80, 40  # faults of the slow tests
UNDER_WAY = ("ENOSPC", "EIO", "EIO in reads", "EINTR", "short", "slow")


def points():
    X = gpe.datasets.torus(ROWS, random_state=2)
    X[30:40] = X[3]
    return X


def embed(store=None, **changes):
    with block_sizes(block_rows=128, panel_columns=3, resident_bytes=0, save_seconds=0.0):
        return gpe.embed(points(), store=store, **{"progress": False, **RUN, **changes})


@pytest.fixture(autouse=True, scope="module")
def no_fsync():
    """Most of the time of small runs, and for power cuts only: a process that ends loses nothing it has written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def chunks(store):
    """The bytes of every chunk."""
    return {name: (Path(store) / name).read_bytes() for name in backends.open_backend(store).files() if "/c/" in name}


class Sound:
    """A finished run, what it holds, and where it puts new points."""

    def __init__(self, store):
        events = []
        result = embed(store, progress=lambda *event: events.append(event))
        self.moments = {"events": len(events)}  # of one run
        for name, calls in (("writes", WRITES), ("reads", READS)):
            with pytest.MonkeyPatch.context() as patch:
                done = fail(patch, calls, 0, np.inf)
                embed(store.with_name(name))
            self.moments[name] = done[0]
        self.store, self.chunks = store, chunks(store)
        self.points = {power: np.array(values[:]) for power, values in result.points.items()}
        self.new = result.transform(points()[:7] + 0.01)
        described = {file.parent: json.loads(file.read_bytes()) for file in sorted(store.rglob("zarr.json"))}
        self.arrays = [self._name(file) for file, one in described.items() if one["node_type"] == "array"]
        self.results = [self._name(file) for file, one in described.items() if one.get("attributes", {}).get("record")]

    def moment(self, of, share):
        """The number of an event, a write or a read, after that share of a run; how many come depends on time."""
        return 2 + int(0.75 * share * (self.moments[of] - 2))

    def _name(self, file):
        return file.relative_to(self.store).as_posix()

    def several_chunks(self):
        """Arrays of which two chunks differ."""
        return [one for one in self.arrays if len({self.chunks[file] for file in self.files(one)}) > 1]

    def files(self, array):
        return [name for name in self.chunks if name.startswith(f"{array}/c/")]

    def copy(self, to):
        """A copy that shares its files: both the library and `change` replace files instead of writing into them."""
        shutil.copytree(self.store, to, copy_function=os.link)
        return to

    def check(self, result):
        for power, values in self.points.items():
            np.testing.assert_array_equal(result.points[power][:], values)
        for power, values in result.transform(points()[:7] + 0.01).items():
            np.testing.assert_array_equal(values, self.new[power])


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    sound = Sound(tmp_path_factory.mktemp("sound") / "run.zarr")
    yield sound
    assert chunks(sound.store) == sound.chunks  # no test has written to it


# --- damage at rest -------------------------------------------------------------------------------


def change(file, content):
    file.unlink()
    if content is not None:
        file.write_bytes(content)


def flipped(content, rng):
    content = bytearray(content)
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    return bytes(content)


def damage(store, name, kind, seed):
    """Damage one chunk, or the metadata, of an array or of a result; return the file."""
    rng = np.random.default_rng(seed)
    if kind in CHUNKS:
        found = sorted(file for file in (store / name / "c").rglob("*") if file.is_file())
        file = found[rng.integers(len(found))]
    else:
        file = store / name / "zarr.json"
    content = file.read_bytes()
    if kind.startswith("flip"):
        change(file, flipped(content, rng))
    elif kind.startswith("truncate"):
        change(file, content[: rng.integers(1, len(content))])
    elif kind == "empty":
        change(file, b"")
    elif kind.startswith("delete"):
        change(file, None)
    elif kind in ("swap", "duplicate"):
        other = next(one for one in found if one.read_bytes() != content)
        change(file, other.read_bytes())
        if kind == "swap":
            change(other, content)
    else:
        described = json.loads(content)
        if kind == "dtype":
            described["data_type"] = {"float32": "int32", "int32": "float32"}.get(described["data_type"], "float32")
        else:
            described["attributes"]["record"]["epsilon"] = 0.123
        change(file, json.dumps(described).encode())
    return file


def use(store):
    """Embed and place new points; if that meets damage, do as the error says: run embed again."""
    for _ in range(4):
        result = embed(store)
        try:
            result.transform(points()[:7] + 0.01)
        except DamageError:
            continue
        return result
    raise AssertionError("embed did not repair the damage")


def at_rest(sound, count):
    """The first `count` faults of all names and kinds, in an order that mixes them."""
    several = sound.several_chunks()
    faults = [(array, kind) for array in sound.arrays for kind in (*CHUNKS, *METADATA)]
    faults = [one for one in faults if one[1] not in ("swap", "duplicate") or one[0] in several]
    faults += [(result, kind) for result in sound.results for kind in COMMIT]
    random.Random(0).shuffle(faults)
    return [(*faults[number % len(faults)], number) for number in range(count)]


def check_at_rest(sound, tmp_path, name, kind, seed):
    copy = sound.copy(tmp_path / f"{seed}.zarr")
    damage(copy, name, kind, seed)
    found = ZarrStore(copy, read_only=True).verify()
    # a commit that is gone, or has no record any more, is one of an unfinished result
    assert name in [one.array for one in found] or kind in ("flip commit", "truncate commit")
    if seed % 2:  # half of them find the damage when it is read, half with verify
        for one in found:
            ZarrStore(copy).repair(one.array, one.part)
    sound.check(use(copy))
    if seed % 2:
        assert ZarrStore(copy, read_only=True).verify() == []
        assert chunks(copy) == sound.chunks
    assert not (copy / ".damaged").exists()
    shutil.rmtree(copy)


def test_a_sound_store_verifies(sound):
    assert ZarrStore(sound.store, read_only=True).verify() == []


def test_damage_at_rest_is_named_and_repaired(sound, tmp_path):
    faults = at_rest(sound, 5000)
    for kind in (*CHUNKS, *METADATA, *COMMIT):
        check_at_rest(sound, tmp_path, *next(one for one in faults if one[1] == kind))


def test_a_commit_that_zarr_cannot_read_is_written_again(sound, tmp_path):
    """A key that zarr does not know is no commit, and no reason to fail when there is a new one."""
    for number, name in enumerate(sound.results):
        copy = sound.copy(tmp_path / f"{number}.zarr")
        file = copy / name / "zarr.json"
        content = file.read_bytes()
        change(file, content.replace(b'"attributes"', b'"attribupes"'))
        assert file.read_bytes() != content
        sound.check(use(copy))
        shutil.rmtree(copy)


@pytest.mark.parametrize("array", ["points", "distances", "sigma", "columns", "axes"])
def test_transform_names_the_damage_and_embed_repairs_it(sound, tmp_path, array):
    copy = sound.copy(tmp_path / "run.zarr")
    name = next(one for one in sound.arrays if one.endswith(f"/{array}"))
    for number in range(len(sound.files(name))):
        file = copy / sound.files(name)[number]
        change(file, flipped(file.read_bytes()[:-4], np.random.default_rng(number)) + file.read_bytes()[-4:])
    with pytest.raises(DamageError, match="Run embed again") as caught:
        gpe.open(copy).transform(points()[:7])
    assert caught.value.array == name
    sound.check(embed(copy))
    assert chunks(copy) == sound.chunks and not (copy / ".damaged").exists()


def test_notes_that_are_wrong_do_no_harm(sound, tmp_path):
    copy = sound.copy(tmp_path / "run.zarr")
    array, gone = sound.arrays[0], sound.arrays[-1]
    damage(copy, gone, "truncate metadata", 1)
    (copy / ".damaged").write_text("\n".join([array, gone, "graph", "no/such/array", "\ufffd"]))
    sound.check(embed(copy))
    assert chunks(copy) == sound.chunks and not (copy / ".damaged").exists()
    (copy / ".damaged").write_text("../other")
    sound.check(embed(copy))


def test_damage_of_a_store_that_cannot_be_written_to_is_named(sound, tmp_path, monkeypatch):
    copy = sound.copy(tmp_path / "run.zarr")
    damage(copy, next(one for one in sound.arrays if one.endswith("/points")), "empty", 0)

    def refuse(self, key, *pieces):
        raise PermissionError(errno.EACCES, "injected")

    monkeypatch.setattr(backends.LocalBackend, "write", refuse)
    with pytest.raises(DamageError, match="points"):
        gpe.open(copy).transform(points()[:7])


def test_a_swapped_chunk_is_noticed_before_a_stage_uses_it(sound, tmp_path):
    """A resumed run opens the graph, and must not make a kernel from lists in another order."""
    copy = sound.copy(tmp_path / "run.zarr")
    for group in ("kernel", "heat", "sketch", "embedding", "runs"):
        shutil.rmtree(copy / group)
    array = next(one for one in sound.several_chunks() if one.endswith("edges/lengths"))
    damage(copy, array, "swap", 1)
    with pytest.raises(DamageError, match="is not the one that was written"):
        ZarrStore(copy, read_only=True).read(array.partition("/edges")[0], dict)
    sound.check(embed(copy))


def test_a_changed_commit_is_noticed(sound, tmp_path):
    copy = sound.copy(tmp_path / "run.zarr")
    kernel = next(one for one in sound.results if one.startswith("kernel/"))
    damage(copy, kernel, "fact", 0)
    assert any("kernel" in name for name, *_ in ZarrStore(copy, read_only=True).verify())
    sound.check(embed(copy))


def inodes(store):
    return {file: file.stat().st_ino for file in sorted(store.rglob("*")) if "c" in file.parts and file.is_file()}


@pytest.mark.parametrize(
    ("where", "name", "number", "error"),
    [
        (LocalStore, "get", 1, RuntimeError("can't start new thread")),
        (LocalStore, "get", 13, RuntimeError("can't start new thread")),
        (zarr, "open_array", 1, TypeError("an incompatible zarr")),
        (zarr, "open_array", 13, TypeError("an incompatible zarr")),
        (zarr.Array, "get_basic_selection", 1, ValueError("an incompatible numpy")),
    ],
)
def test_an_error_of_zarr_is_no_damage(sound, tmp_path, monkeypatch, where, name, number, error):
    """One error, at one moment: it reaches the user, no result loses its commit, and no chunk is written again."""
    copy = sound.copy(tmp_path / "run.zarr")
    before, call, count = inodes(copy), getattr(where, name), [0]

    def failing(*arguments, **keywords):
        count[0] += 1
        if count[0] == number:
            raise error
        return call(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, failing)
        with pytest.raises(type(error), match=str(error)):
            embed(copy)
    assert inodes(copy) == before and ZarrStore(copy, read_only=True).verify() == []
    assert all(ZarrStore(copy, read_only=True)._commit(one) is not None for one in sound.results)


def test_words_in_the_path_of_a_store_decide_nothing(sound, tmp_path):
    """Errors hold the path of the store: a missing chunk is one chunk, whatever the path says."""
    copy = sound.copy(tmp_path / "my zarr.json files" / "chunk c" / "0 its numbers cannot be right.zarr")
    array = next(one for one in sound.several_chunks() if one.endswith("edges/lengths"))
    gone = copy / sound.files(array)[1]
    gone.unlink()
    before = inodes(copy / array)
    sound.check(embed(copy))
    after = inodes(copy / array)
    assert after.keys() - before.keys() == {gone} and before.items() <= after.items()


def test_info_verify_reports_and_repair_repairs(sound, tmp_path, capsys):
    from scalable_gpe.cli import main

    copy = sound.copy(tmp_path / "run.zarr")
    np.save(tmp_path / "points.npy", points())
    assert main(["info", "--verify", str(copy)]) == 0
    array = next(name for name in sound.arrays if name.endswith("points"))
    file = damage(copy, array, "flip", 3)
    with pytest.raises(DamageError):  # which notes it: info must still list it
        gpe.open(copy).transform(points()[:7])
    capsys.readouterr()
    before = inodes(copy)
    assert main(["info", "--verify", str(copy)]) == 1
    printed, chunk = capsys.readouterr(), f"{array}: chunk {file.relative_to(copy / array).as_posix()}"
    assert f"{chunk} is damaged\n" in printed.out and "1 damaged chunk in" in printed.err
    assert main(["repair", str(copy)]) == 1
    printed = capsys.readouterr()
    assert f"{chunk} is damaged (left)\n" in printed.out
    assert "1 damaged chunk left" in printed.err and "Pass the points as --input" in printed.err
    np.testing.assert_array_equal(gpe.open(copy).at("all")[:], sound.points["all"])
    assert inodes(copy) == before and ZarrStore(copy).noted_damage() == [array]
    with block_sizes(block_rows=128, panel_columns=3, resident_bytes=0, save_seconds=0.0):
        assert main(["repair", str(copy), "--input", str(tmp_path / "points.npy")]) == 0
    assert f"{chunk} was damaged: repaired\n" in capsys.readouterr().out
    sound.check(gpe.open(copy))
    assert chunks(copy) == sound.chunks
    assert main(["info", "--verify", str(copy)]) == 0 and main(["repair", str(copy)]) == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("with_points", [False, True])
def test_repair_computes_what_it_can(sound, tmp_path, with_points):
    """Every array at a time; without the points only what is not the graph, and the rest stays readable."""
    for number, array in enumerate(sound.arrays):
        copy = sound.copy(tmp_path / f"{number}.zarr")
        damage(copy, array, "flip" if number % 2 else "dtype", number)
        with block_sizes(block_rows=128, panel_columns=3, resident_bytes=0, save_seconds=0.0):
            found = gpe.repair(copy, points() if with_points else None, progress=False)
        assert {one.array for one in found.damage} == {array}
        if not with_points and array.startswith("graph/"):
            assert found.left == found.damage
            assert (copy / ".damaged").read_text() == array
        else:
            assert found.left == [] and not (copy / ".damaged").exists()
            sound.check(gpe.open(copy))
            assert chunks(copy) == sound.chunks
        shutil.rmtree(copy)


def test_repair_refuses_other_points_before_anything_is_removed(sound, tmp_path):
    copy, other = sound.copy(tmp_path / "run.zarr"), points()
    damage(copy, next(one for one in sound.arrays if one.endswith("/points")), "flip", 1)
    before = inodes(copy)
    other[7] += 1e-3
    for X in (other, other[:-1]):
        with pytest.raises(StoreError, match="X does not hold the points"):
            gpe.repair(copy, X, progress=False)
    assert inodes(copy) == before
    np.testing.assert_array_equal(gpe.open(copy).at("all")[:], sound.points["all"])
    with pytest.raises(FileNotFoundError):
        gpe.repair(tmp_path / "none.zarr")
    assert not (tmp_path / "none.zarr").exists()


def test_a_damaged_root_is_named(sound, tmp_path):
    for number, kind in enumerate(("truncate commit", "delete metadata")):
        copy = sound.copy(tmp_path / f"{number}.zarr")
        damage(copy, "", kind, 1)
        with pytest.raises(StoreError, match=r"made by scalable_gpe|other contents"):
            embed(copy)


# --- faults while a run is under way --------------------------------------------------------------


WRITES = ((LocalStore, "set"), (os, "replace"))  # by zarr, and by the library itself
READS = ((LocalStore, "get"), (local, "open"))


def fail(monkeypatch, calls, number, after):
    """From some moment on the disk fails, at every read or every write; return how many there were."""
    count = [0]

    def counted():
        count[0] += 1
        if count[0] > after:
            raise OSError(number, "injected")

    def failing(call):
        def plain(*arguments, **keywords):
            counted()
            return call(*arguments, **keywords)

        async def later(*arguments, **keywords):
            return await plain(*arguments, **keywords)

        return later if inspect.iscoroutinefunction(call) else plain

    for where, name in calls:
        monkeypatch.setattr(where, name, failing(getattr(where, name, open)), raising=False)
    return count


def be_short(monkeypatch, seed):
    """Files that read and write fewer bytes than they are asked to, as the system may."""
    rng = random.Random(seed)

    class Short(io.FileIO):
        def write(self, buffer):
            return super().write(memoryview(buffer)[: rng.randint(1, max(1, len(buffer)))])

    def short_open(path, mode, buffering=-1):
        raw = Short(path, mode.replace("b", ""))
        return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)

    for module in (backends, local):
        monkeypatch.setattr(module, "open", short_open, raising=False)


def be_slow(monkeypatch, seed):
    """Writes take so long, some longer than others, that threads overtake each other."""
    rng, write, write_file = random.Random(seed), LocalStore.set, backends.LocalBackend.write

    async def slow(self, key, value):
        time.sleep(rng.random() / 300)
        await write(self, key, value)

    def slow_write(self, *arguments, **keywords):
        time.sleep(rng.random() / 300)
        write_file(self, *arguments, **keywords)

    monkeypatch.setattr(LocalStore, "set", slow)
    monkeypatch.setattr(backends.LocalBackend, "write", slow_write)


class Interrupted:
    """Signals every millisecond, so that system calls end with EINTR."""

    def __enter__(self):
        self._before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def check_under_way(sound, tmp_path, monkeypatch, kind, seed):
    """A run that meets a fault ends with the same bytes, or with an error that names it; then it resumes to them."""
    store, share = tmp_path / f"{kind}-{seed}.zarr", seed / EACH_UNDER_WAY
    failing = kind in ("ENOSPC", "EIO", "EIO in reads")
    with monkeypatch.context() as patch:
        if kind in ("ENOSPC", "EIO"):
            fail(patch, WRITES, getattr(errno, kind), sound.moment("writes", share))
        elif kind == "EIO in reads":
            fail(patch, READS, errno.EIO, sound.moment("reads", share))
        elif kind == "short":
            be_short(patch, seed)
        elif kind == "slow":
            be_slow(patch, seed)
        if failing:
            with pytest.raises(StoreError, match="run the same call again"):
                embed(store)
        elif kind == "EINTR":
            with Interrupted():
                embed(store)
        else:
            embed(store)
    sound.check(embed(store))
    assert chunks(store) == sound.chunks
    shutil.rmtree(store)


@pytest.mark.some(5)
@pytest.mark.parametrize("kind", UNDER_WAY)
def test_a_fault_while_a_run_is_under_way(sound, tmp_path, monkeypatch, kind):
    for seed in (6, 60):
        check_under_way(sound, tmp_path, monkeypatch, kind, seed)


def test_a_second_process_is_refused(sound, tmp_path):
    """The lock is a real one: another process that holds the store."""
    copy = sound.copy(tmp_path / "run.zarr")
    code = (
        "import sys; from scalable_gpe.storage.zarr_store import ZarrStore\n"
        "store = ZarrStore(sys.argv[1]); store.lock(); print('held', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(copy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="in use by another process"):
            embed(copy)
        holder.kill()
    sound.check(embed(copy))


# --- two thousand of them ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", range(7))
def test_faults_at_rest(sound, tmp_path, part):
    for fault in at_rest(sound, AT_REST)[part::7]:
        check_at_rest(sound, tmp_path, *fault)


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNDER_WAY)
def test_faults_of_each_kind_under_way(sound, tmp_path, monkeypatch, kind):
    for seed in range(EACH_UNDER_WAY):
        check_under_way(sound, tmp_path, monkeypatch, kind, seed)


@pytest.mark.slow
def test_workers_that_die(sound, tmp_path):
    """Each is killed at another moment of a run on a cluster of two."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    kind = {"processes": True, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 2**31}
    forever = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})  # else it gives up on killed workers
    ended = []

    def kill(event):
        seen = []

        def progress(stage, done, total):
            seen.append(stage)
            alive = {nanny.pid for nanny in cluster.workers.values() if nanny.pid} - set(ended)
            if len(seen) >= event and len(ended) < number + 1 and alive:
                ended.append(alive.pop())
                os.kill(ended[-1], signal.SIGKILL)

        return progress

    with forever, distributed.LocalCluster(n_workers=2, **kind) as cluster, distributed.Client(cluster) as client:
        for number in range(DEAD_WORKERS):
            store = tmp_path / f"{number}.zarr"
            embed(store, client=client, progress=kill(sound.moment("events", 0.7 * number / DEAD_WORKERS)))
            assert len(ended) == number + 1
            assert chunks(store) == sound.chunks
    sound.check(embed(store))
