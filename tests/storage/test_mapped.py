"""Arrays in unnamed files: they are arrays, they leave memory when they are too large, and nothing stays on disk."""

import gc
import mmap
import os
import resource
import sys
import threading

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.errors import StoreError
from scalable_gpe.execution.context import local_context
from scalable_gpe.execution.memory_plan import MemoryPlan, block_sizes
from scalable_gpe.graph import points, search
from scalable_gpe.graph.points import distinct_rows
from scalable_gpe.storage import mapped as module
from scalable_gpe.storage.mapped import (
    MappedArrays,
    MappedBytes,
    inverse_order,
    mapped,
    number_leaders,
    pieces,
    take_rows,
)

MOST = 8 * 2**20
KEPT = MappedBytes(MOST, 2**40)  # pages are dropped after tasks alone


@pytest.fixture
def arrays():
    return MappedArrays()


def in_memory():
    return module._resident().files


def test_an_array_holds_what_is_written_after_its_pages_have_left_memory(arrays, tmp_path):
    values = arrays.empty(str(tmp_path), (2**23,), np.float64, KEPT)
    before = in_memory()
    most = 0
    for start in range(0, len(values), 2**17):
        values[start : start + 2**17] = np.arange(start, start + 2**17)
        arrays.trim()
        most = max(most, in_memory() - before)
    assert most <= 2 * MOST < values.nbytes // 2
    assert all((values[s : s + 2**17] == np.arange(s, s + 2**17)).all() for s in range(0, len(values), 2**17))


def test_pages_fill_what_is_free_below_a_ceiling_and_leave_when_other_memory_needs_it(arrays, tmp_path):
    most = MappedBytes(MOST, MOST)
    values = arrays.empty(str(tmp_path), (2**23,), np.float64, most)
    before, free = in_memory(), 4 * MOST
    arrays.may_fill(module._resident().total + MOST + free)  # of which tasks may add MOST
    for start in range(0, len(values), 2**16):
        values[start : start + 2**16] = 1
        arrays.trim()
        assert in_memory() - before <= free + MOST
    assert max_held(arrays, values, before) > 2 * MOST
    others = np.ones(free // 8)  # the same room, used otherwise
    arrays.trim()
    assert in_memory() - before <= MOST and others[-1] == 1
    arrays.may_fill(None)
    assert max_held(arrays, values, before) <= 2 * MOST


def max_held(arrays, values, before):
    """The most bytes of an array that were in memory while it was read piece by piece."""
    most = 0
    for start in range(0, len(values), 2**16):
        values[start : start + 2**16].sum()
        arrays.trim()
        most = max(most, in_memory() - before)
    return most


def test_the_beginning_of_each_array_stays(arrays, tmp_path):
    values = arrays.empty(str(tmp_path), (2**22,), np.float64, KEPT)
    before = in_memory()
    values[:] = 1.0
    assert in_memory() - before > 3 * MOST
    arrays.trim()
    assert 0.5 * MOST <= in_memory() - before <= MOST


def test_no_file_is_left(arrays, tmp_path):
    values = arrays.empty(str(tmp_path), (1000, 3), np.float32, KEPT)
    assert values.shape == (1000, 3) and not values.any() and os.listdir(tmp_path) == []
    n_files = len(os.listdir("/proc/self/fd"))
    del values
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < n_files


def test_a_full_disk_is_an_error_before_any_work(arrays, tmp_path):
    with pytest.raises(StoreError, match=r"need a file of .* GB .*(No space|too large).*raise memory_limit"):
        arrays.empty(str(tmp_path), (2**50,), np.float64, KEPT)


def test_the_inverse_of_an_order():
    order = np.random.default_rng(0).permutation(2**18 + 77)
    np.testing.assert_array_equal(inverse_order(order)[order], np.arange(len(order)))
    assert [stop - start for start, stop in pieces(len(order))] == [2**18, 77]


def test_the_inverse_of_a_long_order_does_not_fill_the_memory(tmp_path, monkeypatch):
    """Rows in random order: each piece of them would touch every page of the inverse."""

    def empty(shape, dtype):
        return mapped.empty(str(tmp_path), shape, dtype, MappedBytes(4 * 10**6, 2**40))

    monkeypatch.setattr(module, "_SCATTERED", 2**19)
    n_rows = 2**22 + 5
    order = empty((n_rows,), np.int32)
    order[:] = np.random.default_rng(0).permutation(n_rows).astype(np.int32)
    mapped.trim()
    held = []
    trim = mapped.trim
    monkeypatch.setattr(mapped, "trim", lambda: held.append(in_memory()) or trim())
    before = in_memory()
    inverse = inverse_order(order, empty)
    assert max(held) - before < 12 * 10**6
    for start, stop in pieces(n_rows):
        np.testing.assert_array_equal(inverse[order[start:stop]], np.arange(start, stop))


def test_groups_are_numbered_by_their_leaders():
    """More rows than one step takes."""
    rng = np.random.default_rng(0)
    leader = np.arange(2**18 + 1000, dtype=np.int32)
    leader[1:] = np.where(rng.random(len(leader) - 1) < 0.5, leader[1:], 0)
    group, n_groups = number_leaders(leader)
    leaders, expected = np.unique(leader, return_inverse=True)
    assert n_groups == len(leaders)
    np.testing.assert_array_equal(group, expected)


def test_rows_in_any_order():
    values, rows = np.random.default_rng(1).random((5000, 3)), np.random.default_rng(2).integers(0, 5000, 40_000)
    np.testing.assert_array_equal(module._take_ascending(values, rows), values[rows])


def test_rows_of_a_matrix_of_numbers(arrays, monkeypatch, tmp_path):
    """The same whether the array is small beside the pages that may be in memory, or larger than them."""
    monkeypatch.setattr(module, "mapped", arrays)
    rows = np.random.default_rng(2).integers(0, 5000, (300, 7))
    for most in (2**30, 1000):
        values = arrays.empty(str(tmp_path), (5000,), np.float32, MappedBytes(most, most))
        values[:] = np.random.default_rng(1).random(5000)
        assert arrays.are_filled_by(values) == (most == 1000)
        np.testing.assert_array_equal(take_rows(values, rows), values[rows])


def test_rows_that_are_far_apart_do_not_fill_the_memory(tmp_path, monkeypatch):
    """The system maps 64 kB around each row that it finds in its cache: 4,096 rows would bring 256 MB."""
    values = mapped.empty(str(tmp_path), (2**22, 16), np.float32, KEPT)
    for start, stop in pieces(len(values)):
        values[start:stop] = np.arange(start, stop)[:, None]
    held = []
    trim = mapped.trim
    monkeypatch.setattr(mapped, "trim", lambda: held.append(in_memory()) or trim())
    rows = np.random.default_rng(0).permutation(np.arange(0, len(values), 1024, dtype=np.int32))
    before = in_memory()
    np.testing.assert_array_equal(module._take_ascending(values, rows), np.repeat(rows[:, None], 16, axis=1))
    assert max(held) - before < 80 * 10**6


def test_a_row_brings_few_pages_under_a_tight_limit(arrays, tmp_path):
    """Linux may join pages of a file, and then map 2 MB for one row."""
    values = arrays.empty(str(tmp_path), (2**24,), np.float32, MappedBytes(MOST, 150 * 10**6))
    values[:] = 1.0
    arrays.trim()
    before = in_memory()
    assert values[:: 2**19].sum() == 32
    assert in_memory() - before <= 32 * 2**17


@pytest.mark.skipif(sys.platform != "linux", reason="other systems map pages one by one")
def test_rows_that_will_change_are_mapped_once(arrays, tmp_path):
    """Pages that are read before they are changed would be mapped twice, the second time one by one."""

    def faults(change):
        found.madvise(mmap.MADV_DONTNEED)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        if change:
            arrays.will_change(values[: 2**21])
        values[: 2**21] += 1.0
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    values = arrays.empty(str(tmp_path), (2**22,), np.float32, MappedBytes(MOST, 150 * 10**6))
    (found,) = arrays._maps
    alone, together = faults(change=False), faults(change=True)
    np.testing.assert_array_equal(values[: 2**21], 2.0)
    assert together < 0.97 * alone or alone < 2000  # fewer: this file system maps pages for writing at once
    arrays.will_change(np.zeros(10))  # in memory: nothing to do


@pytest.mark.skipif(sys.platform != "linux", reason="other systems map pages one by one")
def test_what_a_task_is_changing_stays_when_another_one_ends(arrays, tmp_path):
    """Until its own end."""

    def task():
        arrays.will_change(values[2**20 : 2 * 2**20])
        changing.set()
        ended.wait()
        arrays.trim()

    values = arrays.empty(str(tmp_path), (2**24,), np.float32, MappedBytes(2**20, 150 * 10**6))
    arrays.trim()
    before = in_memory()
    changing, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=task)
    thread.start()
    changing.wait()
    values[2**23 : 2**23 + 2**21] = 1.0
    arrays.trim()
    assert 2**22 <= in_memory() - before < 2**22 + 2**21
    ended.set()
    thread.join()
    assert in_memory() - before < 2**21
    assert values[: 2**23].sum() == 0 and values.sum() == 2**21


def test_arrays_of_any_use_are_zeros(arrays, tmp_path):
    assert arrays.empty(str(tmp_path), (0, 4), np.int32, KEPT).shape == (0, 4)
    for how in ({}, {"in_order": True}, {"reserved": False}):
        values = arrays.empty(str(tmp_path), (100_003,), np.int64, MappedBytes(MOST, 150 * 10**6), **how)
        assert len(values) == 100_003 and not values.any()


def run(X, store=None, **options):
    result = gpe.embed(X, n_neighbors=8, n_components=6, progress=False, store=store, **options)
    return np.asarray(result.points[:]), result


CASES = [
    ("cells", "bistochastic", {"power": "all"}),
    ("cells", "symmetric", {"power": 20}),
    ("brute", "symmetric", {"power": 12, "n_sketch": 24}),
    ("kdtree", "bistochastic", {"power": 12, "epsilon": "local"}),
]


@pytest.mark.parametrize(("method", "normalization", "options"), CASES)
def test_the_same_bytes_as_in_memory(tmp_path, monkeypatch, method, normalization, options):
    """Rows that repeat, isolated rows, several components: every vector of all rows is mapped."""
    rng = np.random.default_rng(3)
    X = np.concatenate([gpe.datasets.torus(900), gpe.datasets.torus(500) + 20, 100 + 50 * rng.random((7, 4))])
    X[rng.integers(0, 1400, 60)] = X[rng.integers(0, 1400, 60)]
    options = {**options, "normalization": normalization, "method": method}
    monkeypatch.setattr(search, "_ARRANGED_ROWS", 500)
    in_memory, _ = run(X, **options)
    with block_sizes(maps_arrays=True, block_rows=256):
        from_files, result = run(X, store=tmp_path / "run", **options)
        assert len(mapped._maps) > 5
    assert from_files.tobytes() == in_memory.tobytes()
    with block_sizes(maps_arrays=True, block_rows=256):
        again, resumed = run(X, store=tmp_path / "run", **options)
    assert again.tobytes() == in_memory.tobytes() and resumed.report["epsilon"] == result.report["epsilon"]


@pytest.mark.parametrize("n_buckets", [1, 3, 16])
def test_duplicates_are_the_same_in_any_number_of_buckets(monkeypatch, n_buckets):
    monkeypatch.setattr(MemoryPlan, "compared_buckets", lambda plan, n_rows: n_buckets)
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, (400, 2), np.uint64)[rng.integers(0, 400, 5000)]
    hashes[::7, 1] += np.uint64(1)  # the first hash alone does not tell rows apart
    found = distinct_rows(hashes, local_context(5000))
    _, first, group = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.first, np.sort(first))
    np.testing.assert_array_equal(found.first[found.group], first[group.ravel()])
    assert distinct_rows(np.unique(hashes, axis=0), local_context(5000)) is None


def test_hashes_of_a_bucket_do_not_fill_the_memory(tmp_path, monkeypatch):
    """They are spread over all 64 MB of the hashes."""
    hashes = mapped.empty(str(tmp_path), (2**22, 2), np.uint64, KEPT)
    for start, stop in pieces(len(hashes)):
        hashes[start:stop] = np.random.default_rng(start).integers(0, 2**64, (stop - start, 2), np.uint64)
    held, repeats = [], points._repeats
    monkeypatch.setattr(points, "_repeats", lambda *given: held.append(in_memory()) or repeats(*given))
    monkeypatch.setattr(MemoryPlan, "compared_buckets", lambda plan, n_rows: 4)
    before = in_memory()
    assert distinct_rows(hashes, local_context(len(hashes))) is None
    assert len(held) == 4 and max(held) - before <= MOST


@pytest.mark.parametrize("n_features", [1, 3, 8])
def test_a_tree_over_arranged_rows_finds_the_same_neighbours(monkeypatch, n_features):
    X = np.random.default_rng(n_features).random((3000, n_features)).astype(np.float32)
    truth = gpe.neighbor_graph(X, 7, method="brute")
    monkeypatch.setattr(search, "_ARRANGED_ROWS", 1000)
    found = gpe.neighbor_graph(X, 7, method="kdtree")
    np.testing.assert_array_equal(found.indices, truth.indices)
    np.testing.assert_array_equal(found.distances, truth.distances)
    rows = search.by_grid_cell(X, np.empty)
    np.testing.assert_array_equal(np.sort(rows), np.arange(3000))
