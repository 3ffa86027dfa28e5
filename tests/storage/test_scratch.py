"""Scratch arrays: they return what was written, and notice damage."""

import os

import numpy as np
import pytest

from scalable_gpe.errors import DamageError
from scalable_gpe.storage.backends import open_backend
from scalable_gpe.storage.zarr_store import ZarrStore


@pytest.fixture
def store(tmp_path):
    store = ZarrStore(tmp_path / "run.zarr")
    store.lock()
    yield store
    store.unlock()


@pytest.mark.parametrize("harm", ["shorter", "flipped"])
def test_damage_of_a_scratch_table_is_noticed(store, tmp_path, harm):
    table = store.scratch_table("work/a", (5,), np.float32, 8)
    table.write(0, np.arange(5))
    file = tmp_path / "run.zarr/work/a/0"
    content = bytearray(file.read_bytes())
    content[7] ^= 1 if harm == "flipped" else 0
    file.write_bytes(content[:-1] if harm == "shorter" else content)
    with pytest.raises(DamageError, match="work/a"):
        table.read(0, 5)


def test_runs_of_a_file_are_read_alone(store, tmp_path, monkeypatch):
    values = np.random.default_rng(0).standard_normal((5000, 2))
    table = store.scratch_table("work/a", values.shape, np.float64, 4096)
    table.write(0, values[:4096])
    table.write(4096, values[4096:])
    for start, stop in [(0, 5000), (0, 1024), (1000, 1030), (2048, 4096), (4000, 4100), (4096, 5000), (4999, 5000)]:
        np.testing.assert_array_equal(table.read(start, stop), values[start:stop])
    file = tmp_path / "run.zarr/work/a/0"
    content = bytearray(file.read_bytes())
    content[1500 * 16] ^= 1  # in the second run
    file.write_bytes(content)
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
