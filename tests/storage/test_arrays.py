"""Tables, ragged blocks and scratch tables: what is written is read, in any ranges; damage is found."""

import os

import numpy as np
import pytest

from scalable_gpe.errors import DamageError
from scalable_gpe.storage.backends import open_backend
from scalable_gpe.storage.zarr_store import ZarrStore


@pytest.fixture
def store(tmp_path):
    return ZarrStore(tmp_path / "store.zarr")


@pytest.mark.parametrize(
    ("shape", "shard_rows"), [((10_000, 3), 8192), ((10_000,), 4096), ((4096, 5), 4096), ((20_000, 2), 16_384)]
)
def test_a_table_returns_what_was_written(store, shape, shard_rows):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = store.table("table", shape, np.float32, shard_rows)
    for start in range(0, shape[0], shard_rows):
        made.write(start, values[start : start + shard_rows])
    table = store.open_table("table")
    for start, stop in ((0, shape[0]), (5, 4095), (4095, 4097), (shard_rows - 1, shape[0]), (7, 7)):
        np.testing.assert_array_equal(table.read(start, stop), values[start:stop])
    rows = np.array([shape[0] - 1, 0, 17, 4095, 17])
    np.testing.assert_array_equal(table.take(rows), values[rows])
    assert len(table.take(rows[:0])) == 0


def test_a_block_returns_what_was_written(store):
    values = np.random.default_rng(0).integers(0, 2**31, 1_500_000).astype(np.int32)  # several chunks
    ragged = store.ragged("ragged", 2, 3_000_000, np.int32)
    ragged.write(1, values)
    np.testing.assert_array_equal(ragged.read(1, len(values)), values)
    assert store.backend.length("ragged/c/1/0") < 1.4 * values.nbytes  # chunks of padding are not stored


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_damage_is_found(store, dtype):
    table = store.table("table", (10_000, 3), dtype, 8192)
    table.write(0, np.ones((8192, 3), dtype))
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


def test_a_damaged_shard_is_written_again_as_a_whole_alone(store):
    values, ragged = np.ones((8192, 3), np.float32), store.ragged("ragged", 1, 3_000_000, np.int32)
    table = store.table("table", values.shape, np.float32, 8192)
    table.write(0, values)
    ragged.write(0, np.arange(9, dtype=np.int32))
    for key in ("table/c/0/0", "ragged/c/0/0"):
        store.backend.write(key, bytes(store.backend.length(key)))
    assert not table.has(0) and not ragged.has(0)
    with pytest.raises(DamageError, match="table"):
        table.write(0, values[:, :1])
    table.write(0, values)
    ragged.write(0, np.arange(9, dtype=np.int32))
    np.testing.assert_array_equal(table.read(0, 8192), values)
    np.testing.assert_array_equal(ragged.read(0, 9), np.arange(9))


def test_a_missing_block_is_found(store):
    with pytest.raises(DamageError, match="missing"):
        store.ragged("ragged", 2, 30, np.int32).read(1, 5)


@pytest.mark.parametrize("harm", ["shorter", "flipped"])
def test_damage_of_a_scratch_table_is_noticed(store, harm):
    table = store.scratch_table("work/a", (5,), np.float32, 8)
    table.write(0, np.arange(5))
    content = bytearray(store.backend.read("work/a/0"))
    content[7] ^= 1 if harm == "flipped" else 0
    store.backend.write("work/a/0", content[:-1] if harm == "shorter" else content)
    with pytest.raises(DamageError, match="work/a"):
        table.read(0, 5)


def test_runs_of_a_file_are_read_alone(store):
    values = np.random.default_rng(0).standard_normal((5000, 2))
    table = store.scratch_table("work/a", values.shape, np.float64, 4096)
    table.write(0, values[:4096])
    table.write(4096, values[4096:])
    for start, stop in [(0, 5000), (0, 1024), (1000, 1030), (2048, 4096), (4000, 4100), (4096, 5000), (4999, 5000)]:
        np.testing.assert_array_equal(table.read(start, stop), values[start:stop])
    content = bytearray(store.backend.read("work/a/0"))
    content[1500 * 16] ^= 1  # in the second run
    store.backend.write("work/a/0", content)
    np.testing.assert_array_equal(table.read(2048, 4096), values[2048:4096])
    with pytest.raises(DamageError, match="work/a"):
        table.read(1024, 1025)


def test_a_partial_file_may_vanish_while_a_folder_is_flushed(tmp_path, monkeypatch):
    """A task that runs twice gives it its name at that moment; any other file must be there."""
    backend, gone = open_backend(tmp_path), "0.abc.partial"
    monkeypatch.setattr(os, "walk", lambda folder: iter([(str(folder), [], [gone])]))
    (tmp_path / "work").mkdir()
    backend.flush("work")
    gone = "0"
    with pytest.raises(FileNotFoundError):
        backend.flush("work")
