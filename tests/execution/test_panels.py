"""Panels that a worker keeps: their memory is used again, but never while a task has it."""

import numpy as np
import pytest

from scalable_gpe.execution import panels
from scalable_gpe.execution.panels import StoredPanel
from scalable_gpe.storage.zarr_store import ZarrStore

SHAPE = (10, 3)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Three panels in a process that keeps what it writes: of ones, twos and threes."""
    monkeypatch.setattr(panels, "_keeping", True)
    panels.forget_panels()
    store = ZarrStore(tmp_path / "run.zarr")
    store.lock()
    made = [StoredPanel(store.scratch_table(f"work/{number}", SHAPE, np.float64, 4)) for number in (1, 2, 3)]
    for number, panel in enumerate(made, 1):
        panel.put(0, np.full(SHAPE, float(number)))
    yield made
    store.unlock()
    panels.forget_panels()


def test_memory_that_a_task_has_is_left_alone(made):
    one, two, three = made
    whole, room = one.whole(), three.room(0, 10)
    room[:] = 7
    np.testing.assert_array_equal(two.whole(), np.full(SHAPE, 2.0))  # the process keeps two of them
    np.testing.assert_array_equal(one.whole(), np.full(SHAPE, 1.0))
    np.testing.assert_array_equal(two.rows(2, 9), np.full((7, 3), 2.0))
    np.testing.assert_array_equal(whole, np.full(SHAPE, 1.0))
    np.testing.assert_array_equal(room, np.full(SHAPE, 7.0))
    three.put(0, room)
    np.testing.assert_array_equal(three.whole(), np.full(SHAPE, 7.0))
    np.testing.assert_array_equal(three.table.read(0, 10), np.full(SHAPE, 7.0))


def test_memory_that_nobody_has_is_used_again(made):
    one, two, _ = made
    place = one.whole().ctypes.data
    assert two.whole().ctypes.data != place
    assert len(panels._panels) <= 2 + panels._OTHERS
    assert made[2].whole().ctypes.data == place


def test_shards_that_a_block_touches_are_found_once(monkeypatch):
    indices = np.array([0, 1, 9], np.int32)
    assert panels._touched(indices, 4, 3) == [0, 2]
    monkeypatch.setattr("scalable_gpe.loops.sparse.touched", None)
    assert panels._touched(indices, 4, 3) == [0, 2]
    with pytest.raises(TypeError):
        panels._touched(indices.copy(), 4, 3)
