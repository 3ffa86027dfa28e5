"""Panels that a worker keeps."""

from dataclasses import dataclass

import numpy as np
import pytest

from scalable_gpe.execution import panels as panels_module
from scalable_gpe.execution.context import make_context
from scalable_gpe.execution.panels import CachedPanel, Panels, StoredPanel, cached_panels
from scalable_gpe.execution.process import process
from scalable_gpe.execution.resources import ProblemSize
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.zarr_store import ZarrStore

SHAPE = (10, 3)


@dataclass(frozen=True)
class Step:
    number: int


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Three panels in a process that keeps what it writes: of ones, twos and threes."""
    monkeypatch.setattr(process, "keeps_panels", True)
    cached_panels.clear()
    store = ZarrStore(tmp_path / "run.zarr")
    store.lock()
    made = [StoredPanel(store.scratch_table(f"work/{number}", SHAPE, np.float64, 4)) for number in (1, 2, 3)]
    for number, panel in enumerate(made, 1):
        panel.put(0, np.full(SHAPE, float(number)))
    yield made
    store.unlock()
    cached_panels.clear()


def test_memory_that_is_in_use_is_not_changed(made):
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


def test_a_process_keeps_few_panels(made):
    cached_panels.clear()
    for panel in made:
        panel.whole()
    assert len(cached_panels._panels) == 2


def test_a_worker_reads_the_runs_that_its_rows_are_in_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "keeps_panels", True)
    cached_panels.clear()
    store = ZarrStore(tmp_path / "run.zarr")
    store.lock()
    monkeypatch.setattr(store.backend, "request_bytes", 0)
    values = np.random.default_rng(0).standard_normal((20_000, 3)).astype(np.float32)
    table = store.scratch_table("work/a", values.shape, np.float32, 8192)
    for start in range(0, 20_000, 8192):
        table.write(start, values[start : start + 8192])
    panel, before = StoredPanel(table), CachedPanel.bytes_read
    touched = np.array([5, 1030, 9000, 19_999], np.int32)
    np.testing.assert_array_equal(panel.whole(touched)[touched], values[touched])
    rows = 3 * 1024 + 20_000 % 1024
    assert CachedPanel.bytes_read - before == rows * 12
    panel.whole(touched.copy())
    assert CachedPanel.bytes_read - before == rows * 12  # they are present
    np.testing.assert_array_equal(panel.whole(), values)
    assert CachedPanel.bytes_read - before == values.nbytes
    store.unlock()
    cached_panels.clear()


def test_runs_that_one_task_could_not_read_are_read_by_the_next_one(made, monkeypatch):
    panel, real, failed = made[0], type(made[0].table).read_into, []

    def read_into(table, start, out):
        if not failed:
            failed.append(start)
            raise OSError("gone")
        real(table, start, out)

    cached_panels.clear()
    monkeypatch.setattr(type(panel.table), "read_into", read_into)
    with pytest.raises(OSError, match="gone"):
        panel.whole()
    np.testing.assert_array_equal(panel.whole(), np.full(SHAPE, 1.0))


def test_saves_that_take_long_are_rare(tmp_path, monkeypatch):
    """The next one comes after twenty times as long as the last one took: a second."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    def slow_commit(*arguments):
        clock.now += 1.0
        commit(*arguments)

    clock, store = Clock(), ZarrStore(tmp_path / "run.zarr")
    commit = store.commit
    monkeypatch.setattr(panels_module, "time", clock)
    monkeypatch.setattr(store, "commit", slow_commit)
    store.lock()
    panels = Panels(make_context(store, Workers(), ProblemSize(1000)), "saved", seconds=0.0)
    panel = panels.of(np.zeros((1000, 8)))
    panels.offer(Step(1), {"panel": panel})
    clock.now += 19.9  # more than a tenth of the time worked
    panels.offer(Step(2), {"panel": panel})
    assert panels.load(Step, lambda step: True)[0] == Step(1)
    clock.now += 0.2
    panels.offer(Step(3), {"panel": panel})
    assert panels.load(Step, lambda step: True)[0] == Step(3)
    store.unlock()
