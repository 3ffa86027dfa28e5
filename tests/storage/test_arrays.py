"""Tables and ragged blocks in a store: what is written is read, in any ranges; damage is found."""

import numpy as np
import pytest

from scalable_gpe.errors import DamageError
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
