"""A store and an input at URLs: the same bytes, the same errors, the same repairs as on disk.

The object store is a real S3 server (moto's) on loopback, reached through the network by s3fs.
"""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
import zarr

import scalable_gpe as gpe
from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.io.rows import open_rows
from scalable_gpe.storage import lock
from scalable_gpe.storage.backends import open_backend
from scalable_gpe.storage.zarr_store import ZarrStore

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
HOW = {"n_neighbors": 6, "n_components": 3, "power": 3, "progress": False}


@pytest.fixture(scope="module")
def options(s3_options):
    return s3_options


@pytest.fixture(scope="module")
def fs(options):
    return s3fs.S3FileSystem(**options, use_listings_cache=False)


@pytest.fixture(scope="module")
def X():
    X = gpe.datasets.torus(2000, random_state=0).astype(np.float32)
    X[1990:] = X[:10]
    return X


@pytest.fixture(scope="module")
def on_disk(X, tmp_path_factory):
    store = tmp_path_factory.mktemp("disk") / "run.zarr"
    gpe.embed(X, store=store, **HOW)
    return store


@pytest.fixture(scope="module")
def in_s3(X, options):
    """A run that was interrupted during a stage and resumed."""
    url = "s3://bucket/run.zarr"

    def interrupt(stage, done, total):
        if stage == "heat" and done >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpe.embed(X, store=url, storage_options=options, **{**HOW, "progress": interrupt})
    with pytest.raises(StoreError, match="an unfinished run"):
        gpe.open(url, storage_options=options)
    seen = set()
    how = {**HOW, "progress": lambda stage, *_: seen.add(stage)}
    gpe.embed(X, store=url, storage_options=options, **how)
    assert "sketch" in seen and not seen & {"lists", "edges", "kernel"}
    return url


def chunks(path, options=None):
    """The bytes of every chunk of every array."""
    backend = open_backend(path, options)
    return {name: backend.read(name) for name in backend.files() if "/c/" in name}


# --- the same bytes -------------------------------------------------------------------------------


def test_a_run_in_s3_has_the_bytes_of_one_on_disk(on_disk, in_s3, options):
    assert chunks(in_s3, options) == chunks(on_disk)
    names = open_backend(in_s3, options).files()
    assert [".lock", *names] == open_backend(on_disk).files()  # and no other lock, no leftovers


@pytest.mark.parametrize("kind", ["zarr", "npy"])
def test_input_in_s3(X, on_disk, options, fs, kind, tmp_path):
    url = f"s3://bucket/points.{kind}"
    if kind == "zarr":
        array = zarr.create_array(url, shape=X.shape, chunks=(300, 4), dtype=X.dtype, storage_options=options)
        array[:] = X
    else:
        np.save(tmp_path / "points.npy", X)
        fs.put(str(tmp_path / "points.npy"), url)
    gpe.embed(url, store=tmp_path / "run.zarr", storage_options=options, **HOW)
    assert chunks(tmp_path / "run.zarr") == chunks(on_disk)


def test_input_on_disk_and_a_file_url(X, on_disk, tmp_path):
    array = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(300, 4), dtype=X.dtype)
    array[:] = X
    gpe.embed(f"file://{tmp_path}/X.zarr", store=f"file://{tmp_path}/run.zarr", **HOW)
    assert chunks(tmp_path / "run.zarr") == chunks(on_disk)


def test_opened_from_s3(X, in_s3, on_disk, options):
    here, there = gpe.open(on_disk), gpe.open(in_s3, storage_options=options)
    assert (there.points[:] == here.points[:]).all()
    assert (there.transform(X[:50]) == here.transform(X[:50])).all()
    assert (there.points[:50] == there.transform(X[:50])).all()
    assert "secret" not in json.dumps([there.parameters, there.report])
    assert not any(b"secret" in open_backend(in_s3, options).read(name) for name in ("zarr.json",))


def test_an_estimator_in_memory(X):
    model = gpe.GaussianProcessEmbedding(3, power=3, n_neighbors=6, store="memory://model.zarr").fit(X[:500])
    again = gpe.GaussianProcessEmbedding(3, power=3, n_neighbors=6).fit(X[:500])
    assert (model.embedding_[:] == again.embedding_).all()


def test_the_command_line(in_s3, options, capsys):
    from scalable_gpe.cli import main

    text = json.dumps(options)
    assert main(["info", in_s3, "--json", "--storage-options", text]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["runs"][0]["finished"] and shown["bytes"]["embedding"] > 2000 * 3 * 4
    assert main(["info", in_s3, "--verify", "--storage-options", text]) == 0
    assert "every chunk reads back" in capsys.readouterr().out
    assert main(["info", in_s3, "--storage-options", "[1]"]) == 2
    assert "'[1]' is not a JSON object" in capsys.readouterr().err


# --- damage ---------------------------------------------------------------------------------------


def damage(backend, names):
    """Flip a bit in a chunk, and empty another."""
    flipped, empty = (next(name for name in names if f"/{part}/c/" in name) for part in ("weights", "distances"))
    broken = bytearray(backend.read(flipped))
    broken[len(broken) // 3] ^= 4
    backend.write(flipped, bytes(broken))
    backend.write(empty, b"")
    return {flipped, empty}


def test_damage_in_s3_is_named(in_s3, options):
    backend = open_backend(in_s3, options)
    sound = chunks(in_s3, options)
    try:
        damaged = damage(backend, sound)
        found = ZarrStore(in_s3, storage_options=options, read_only=True).verify()
        assert {f"{one.array}/{one.part}" for one in found} == damaged
        gone = next(name for name in sound if "/scale/c/" in name)
        backend.delete(gone)
        with pytest.raises(DamageError, match=f"chunk {gone.partition('/scale/')[2]} is missing"):
            gpe.open(in_s3, storage_options=options)
    finally:
        for name, value in sound.items():
            backend.write(name, value)


# --- what cannot be reached -----------------------------------------------------------------------


def test_failures_say_what_to_do(X, options, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    began = []
    how = {**HOW, "progress": lambda *_: began.append(1)}
    with pytest.raises(StoreError, match=r"'s3://nowhere/run.zarr': .*bucket does not exist.*check the URL"):
        gpe.embed(X, store="s3://nowhere/run.zarr", storage_options=options, **how)
    anonymous = {"endpoint_url": options["endpoint_url"]}
    with pytest.raises(StoreError, match="credentials"):
        gpe.embed(X, store="s3://bucket/none.zarr", storage_options=anonymous, **how)
    with pytest.raises(StoreError, match="credentials"):
        gpe.embed("s3://bucket/none.zarr", storage_options=anonymous, **how)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        gpe.open("s3://bucket/none.zarr", storage_options=options)
    for kind in ("zarr", "npy"):
        with pytest.raises(FileNotFoundError, match="there is no"):
            gpe.embed(f"s3://bucket/none.{kind}", storage_options=options, **how)
    with pytest.raises(ValueError, match="Protocol not known"):
        gpe.embed(X, store="nothing://bucket/run.zarr", **how)
    with pytest.raises(ValueError, match="storage_options is for URLs"):
        gpe.embed(X, store="run.zarr", storage_options=options, **how)
    with pytest.raises(TypeError, match="storage_options must be a dict"):
        gpe.embed(X, store="s3://bucket/run.zarr", storage_options="key", **how)
    assert not began


def test_a_server_that_disappears_is_not_damage(X, options, monkeypatch):
    """Refused during a run: the error says so, and the run resumes afterwards."""
    url, real, calls = "s3://bucket/away.zarr", s3fs.S3FileSystem._call_s3, [0]

    async def refuse(self, method, *arguments, **keywords):
        calls[0] += 1
        if calls[0] > 120:
            raise PermissionError("Access Denied")
        return await real(self, method, *arguments, **keywords)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", refuse)
    with pytest.raises(StoreError, match=r"Access Denied.*run the same call again") as caught:
        gpe.embed(X[:300], store=url, storage_options=options, **HOW)
    assert not isinstance(caught.value, DamageError)
    monkeypatch.undo()
    open_backend(url, options).delete("lock.0")  # its holder could not delete it either
    resumed = gpe.embed(X[:300], store=url, storage_options=options, **HOW)
    assert (resumed.points[:] == gpe.embed(X[:300], **HOW).points).all()


# --- the lock -------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Heartbeats follow each other soon; a holder that a busy machine stops for seconds is still alive."""
    monkeypatch.setattr(lock, "BEAT", 0.2)


@dataclass(frozen=True)
class Nothing:
    pass


def holder(url, options):
    """Another process that holds the lock until it is told to release it, or dies."""
    code = f"""
import sys
from scalable_gpe.storage import lock
from scalable_gpe.storage.zarr_store import ZarrStore
lock.BEAT = 0.2
store = ZarrStore({url!r}, storage_options={options!r})
store.lock()
print("held", flush=True)
sys.stdin.readline()
store.unlock()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_and_the_lock_of_a_dead_one_taken_over(options, quick, monkeypatch):
    url = "s3://bucket/locked.zarr"
    store = ZarrStore(url, storage_options=options)
    with holder(url, options) as other:
        with pytest.raises(StoreError, match=rf"in use by another process \(host .+, pid {other.pid}, since 20"):
            store.lock()
        other.communicate("let go\n")
    store.lock()
    store.unlock()
    with holder(url, options) as other:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    monkeypatch.setattr(lock, "STALE", 1.5)
    began = time.monotonic()
    store.lock()
    assert time.monotonic() - began > 1  # it was watched first
    assert store.backend.objects() == ["lock.1", "zarr.json"]
    store.unlock()
    assert store.backend.objects() == ["zarr.json"]


def test_of_many_only_one_gets_it(options, quick):
    url, held, refused = "s3://bucket/raced.zarr", [], []
    stores = [ZarrStore(url, storage_options=options) for _ in range(6)]

    def take(store):
        try:
            store.lock()
            held.append(store)
        except StoreError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 1 and len(refused) == 5
    assert all("in use by another process (host" in text for text in refused)
    held[0].unlock()


# --- other processes ------------------------------------------------------------------------------


def write_shard(job):
    table, ragged, number = job
    start = number * table.shard_rows
    table.write(start, np.full((min(table.shard_rows, 1000 - start), 3), number, np.float32))
    ragged.write(number, np.arange(number, dtype=np.int32))
    return os.getpid(), id(table), id(table.store), table.store.read_only


def open_table(table):
    return table.read(0, 3).tolist(), table.store.read_only


@pytest.fixture(scope="module")
def pool():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_tables_are_sent_by_name(where, tmp_path, options, pool):
    """A worker writes without the lock while the driver holds it; the same shard may be written twice."""
    url, given = (tmp_path / "sent.zarr", None) if where == "disk" else ("s3://bucket/sent.zarr", options)
    store = ZarrStore(url, storage_options=given)
    store.lock()
    table = store.table("graph/x/values", (1000, 3), np.float32, shard_rows=100)
    ragged = store.ragged("graph/x/blocks", 10, 2000, np.int32)
    assert len(pickle.dumps(store)) < 500 and len(pickle.dumps(table)) < 700
    seen = pool.map(write_shard, [(table, ragged, number) for number in [*range(10), *range(10)]], chunksize=1)
    assert len(seen) == 20 and not any(read_only for *_, read_only in seen)
    assert len({one[:3] for one in seen}) <= 2  # opened once in each process
    store.commit("graph/x", Nothing())
    store.unlock()
    values = table.read(0, 1000)
    assert (values == np.repeat(np.arange(10, dtype=np.float32), 100)[:, None]).all()
    assert [ragged.read(number, number).tolist() for number in range(10)] == [list(range(n)) for n in range(10)]
    assert store.verify() == []
    assert not [name for name in store.backend.files() if name.startswith("lock") or name.endswith("partial")]
    # without the lock it is sent for reading only
    assert pool.apply(open_table, (table,)) == ([[0.0] * 3] * 3, True)


def read_rows(rows):
    return rows.read(10, 90).tobytes() + rows.take(np.array([5, 1990, 7])).tobytes()


def test_input_is_sent_by_name(X, tmp_path, pool):
    np.save(tmp_path / "X.npy", X)
    rows = open_rows(tmp_path / "X.npy")
    assert len(pickle.dumps(rows)) < 1000
    assert pool.apply(read_rows, (rows,)) == X[10:90].tobytes() + X[[5, 1990, 7]].tobytes()
    part = open_rows(np.load(tmp_path / "X.npy", mmap_mode="r")[1000:])  # a slice does not know its offset in the file
    assert (pickle.loads(pickle.dumps(part)).read(0, 9) == X[1000:1009]).all()


def test_what_was_opened_is_not_written_to(on_disk):
    before = open_backend(on_disk).files()
    with pytest.raises(StoreError, match=r"opened for reading.*Pass store="):
        gpe.gp_embedding(gpe.open(on_disk).heat, 4, 7)
    assert open_backend(on_disk).files() == before


def test_a_table_that_was_made_anew_is_opened_anew():
    store = ZarrStore("memory://anew.zarr")
    for shape in ((50, 2), (70, 2)):
        table = store.table("graph/x/values", shape, np.float32)
        table.write(0, np.ones(shape, np.float32))
        sent = pickle.loads(pickle.dumps(table))
        assert sent.shape == shape and sent.read(0, shape[0]).sum() == 2 * shape[0]
        assert pickle.loads(pickle.dumps(table)) is sent


def test_an_array_is_opened_with_few_requests(in_s3, options, monkeypatch):
    store = ZarrStore(in_s3, storage_options=options, read_only=True)
    table = store.open_table("embedding/3")
    sent = pickle.dumps(table)
    calls, real = [], s3fs.S3FileSystem._call_s3

    async def count(self, method, *arguments, **keywords):
        calls.append((method, keywords.get("Key")))
        return await real(self, method, *arguments, **keywords)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", count)
    from scalable_gpe.storage import arrays as module

    module._opened.cache_clear()
    pickle.loads(sent)
    names = [key for _, key in calls if key != "run.zarr/zarr.json"]
    assert 1 <= len(names) <= 2 and set(names) == {"run.zarr/embedding/3/zarr.json"}
    calls.clear()
    pickle.loads(sent)
    assert not calls
