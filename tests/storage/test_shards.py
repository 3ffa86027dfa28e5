"""Files of zarr arrays that are read and written without zarr are those that zarr reads and writes."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import zarr

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.storage import backends
from scalable_gpe.storage.arrays import StoredTable
from scalable_gpe.storage.shards import file_format
from scalable_gpe.storage.zarr_store import ZarrStore


@dataclass(frozen=True)
class Facts:
    """An empty record."""


@pytest.fixture
def store(tmp_path):
    return ZarrStore(tmp_path / "store.zarr")


@pytest.mark.parametrize(
    ("shape", "shard_rows"), [((10_000, 3), 8192), ((10_000,), 4096), ((4096, 5), 4096), ((20_000, 2), 16_384)]
)
def test_zarr_reads_what_is_written_and_the_other_way_round(store, shape, shard_rows):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    ours, theirs = (store.table(name, shape, np.float32, shard_rows) for name in ("ours", "theirs"))
    assert ours._format is not None and theirs._format is not None
    for start in range(0, shape[0], shard_rows):
        ours.write(start, values[start : start + shard_rows])
        theirs.array[start : start + shard_rows] = values[start : start + shard_rows]
    for name in ("ours", "theirs"):
        by_zarr = zarr.open_array(f"{store.backend.path}/{name}", mode="r")
        np.testing.assert_array_equal(by_zarr[:], values)
        table = store.open_table(name)
        for start, stop in ((0, shape[0]), (5, 4095), (4095, 4097), (shard_rows - 1, shape[0]), (7, 7)):
            np.testing.assert_array_equal(table.read(start, stop), values[start:stop])
        rows = np.array([0, 17, 4095, shape[0] - 1])
        np.testing.assert_array_equal(table.take(rows), values[rows])


def test_blocks_are_those_of_zarr(store):
    longest = 3_000_000  # several chunks
    values = np.random.default_rng(0).integers(0, 2**31, 1_500_000).astype(np.int32)
    ours, theirs = (store.ragged(name, 2, longest, np.int32) for name in ("ours", "theirs"))
    ours.write(1, values)
    row = np.zeros((1, theirs.array.shape[1]), np.int32)
    row[0, 0], row[0, 1 : len(values) + 1] = 1, values
    theirs.array[1:2] = row
    for one in (ours, theirs):
        np.testing.assert_array_equal(one.read(1, len(values)), values)
        np.testing.assert_array_equal(one.array[1], row[0])
    key = "c/1/0"
    assert store.backend.read(f"ours/{key}") == store.backend.read(f"theirs/{key}")


def test_damage_is_found(store):
    table = store.table("table", (10_000, 3), np.float32, 8192)
    table.write(0, np.ones((8192, 3), np.float32))
    with pytest.raises(DamageError, match="missing"):
        table.read(8000, 9000)
    content = bytearray(store.backend.read("table/c/0/0"))
    for at in (100, len(content) - 30, len(content) - 2):  # a chunk, the index, the checksum of the index
        broken = content.copy()
        broken[at] ^= 1
        store.backend.write("table/c/0/0", broken)
        with pytest.raises(DamageError, match="table"):
            table.read(0, 10)
    store.backend.write("table/c/0/0", content[:1000])
    with pytest.raises(DamageError, match="table"):
        table.read(0, 10)


def test_another_layout_is_left_to_zarr(store):
    made = store.root.create_array(
        "other", shape=(10, 2), dtype="f4", chunks=(5, 2), shards=(10, 2), compressors=None, fill_value=0
    )
    made[:] = np.arange(20).reshape(10, 2)
    assert file_format(made) is None
    np.testing.assert_array_equal(StoredTable(store.handle, made).read(3, 5), [[6, 7], [8, 9]])


def test_a_failure_on_the_way_to_the_disk_fails_the_commit(store, monkeypatch):
    """The system tells of a write that failed only once: to the thread that sends files to the disk early."""
    told = []

    def fsync(file):
        if file.endswith("c/0/0") and not told:
            told.append(file)
            raise OSError(5, "Input/output error", file)

    monkeypatch.setattr(backends, "_fsync", fsync)
    store.table("result/table", (100, 3), np.float32).write(0, np.ones((100, 3), np.float32))
    with pytest.raises(StoreError, match="Input/output"):
        store.commit("result", Facts())
    assert told and store.read("result", Facts) is None


def test_another_process_leaves_flushing_to_the_one_that_commits(store):
    sent = pickle.loads(pickle.dumps(store.backend))
    sent.write("some", b"bytes", durable=True)
    assert not sent._early
