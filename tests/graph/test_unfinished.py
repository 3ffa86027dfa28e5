"""An unfinished graph is resumed only for the same rows and the same libraries."""

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.spatial import cKDTree

import scalable_gpe as gpe
from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.execution.context import local_context
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.process import versions
from scalable_gpe.graph.cells import _check_order
from scalable_gpe.graph.stored_graph import GraphInput
from scalable_gpe.storage.zarr_store import ZarrStore

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
LISTS = "graph/*/indices/c/**/*"
N_ROWS = 3000
OPTIONS = {"n_neighbors": 6, "n_components": 3, "power": 3, "progress": False}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((N_ROWS, 3)).astype(np.float32)


def changed(X):
    """The same rows where the fingerprint samples, others elsewhere."""
    other = X.copy()
    sampled = np.linspace(0, N_ROWS - 1, 1024).astype(int)
    rows = np.setdiff1d(np.arange(N_ROWS), np.concatenate([sampled, sampled + 1]))[:500]
    other[rows] += 1
    return other


def interrupted(X, store, at="edges", **more):
    def interrupt(stage, done, total):
        if stage == at and done >= total / 2:
            raise KeyboardInterrupt

    with block_sizes(block_rows=1024), pytest.raises(KeyboardInterrupt):
        gpe.embed(X, store=store, **{**OPTIONS, "progress": interrupt}, **more)


def embedded(X, **more):
    with block_sizes(block_rows=1024):
        return np.asarray(gpe.embed(X, **OPTIONS, **more).points[:])


def neighbors_of(X):
    graph = gpe.neighbor_graph(X, 6)
    return graph.indices, graph.distances


def written(store, pattern):
    """When each file was written."""
    return {file: file.stat().st_mtime_ns for file in store.glob(pattern) if file.is_file()}


def damage_lists(store):
    """Change one byte of a chunk of the stored lists, and let the store find it."""
    chunk = next(iter(written(store, LISTS)))
    data = bytearray(chunk.read_bytes())
    data[10] ^= 1
    chunk.write_bytes(data)
    for one in ZarrStore(store).verify():
        ZarrStore(store).repair(one.array, one.part)


def pretend_another_scipy(store):
    """Let the store say that its unfinished graph was made with another scipy."""
    arrays = ZarrStore(store)
    (key,) = arrays.names("inputs")
    known = arrays.peek(f"inputs/{key}", GraphInput)
    assert known.versions == versions()
    arrays.commit(f"inputs/{key}", replace(known, versions={**known.versions, "scipy": "0.1"}))


@pytest.mark.parametrize("method", ["kdtree", "cells"])
def test_rows_that_changed_before_a_resumed_search_count(X, tmp_path, method):
    interrupted(X, tmp_path / "s.zarr", method=method)
    other = changed(X)
    resumed = embedded(other, store=tmp_path / "s.zarr", method=method)
    np.testing.assert_array_equal(resumed, embedded(other, method=method))


def test_rows_that_changed_before_precomputed_lists_are_resumed_count(X, tmp_path):
    """The points are copied for `transform` and for the recall."""
    lists, other = neighbors_of(X), changed(X)
    interrupted(X, tmp_path / "s.zarr", neighbors=lists)
    resumed = gpe.embed(other, neighbors=lists, store=tmp_path / "s.zarr", **OPTIONS)
    points = resumed.graph.points.read(0, N_ROWS)
    np.testing.assert_array_equal(points, other[resumed.graph.storage_order.user_row])
    assert resumed.report["recall"] < 1


def test_other_rows_with_precomputed_lists_are_refused(X, tmp_path):
    lists = neighbors_of(X)
    embedded(X, neighbors=lists, store=tmp_path / "s.zarr")
    with pytest.raises(StoreError, match="another input"):
        embedded(changed(X), neighbors=lists, store=tmp_path / "s.zarr")


def test_the_same_rows_resume(X, tmp_path):
    """The lists are not searched again."""
    interrupted(X, tmp_path / "s.zarr")
    before = written(tmp_path / "s.zarr", LISTS)
    embedded(X, store=tmp_path / "s.zarr")
    assert before and written(tmp_path / "s.zarr", LISTS) == before


def test_a_graph_begun_with_other_libraries_starts_over(X, tmp_path):
    """Another version may order the points otherwise, and old lists would then name other rows."""
    interrupted(X, tmp_path / "s.zarr")
    pretend_another_scipy(tmp_path / "s.zarr")
    before = written(tmp_path / "s.zarr", LISTS)
    np.testing.assert_array_equal(embedded(X, store=tmp_path / "s.zarr"), embedded(X))
    after = written(tmp_path / "s.zarr", LISTS)
    assert after.keys() == before.keys() and all(after[file] != before[file] for file in before)


def test_an_unfinished_graph_starts_over_and_other_results_stay(X, tmp_path):
    """Nothing can have been made from a graph that was never complete."""
    store = tmp_path / "s.zarr"
    gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 8, store=store)))
    before = written(store, "*/*/zarr.json")
    interrupted(X, store)
    other = changed(X)
    np.testing.assert_array_equal(embedded(other, store=store), embedded(other))
    assert len(before) == 4
    assert before.items() <= written(store, "*/*/zarr.json").items()


def test_a_damaged_graph_is_not_repaired_from_other_rows(X, tmp_path):
    """The kernel of the old rows would be found by its name."""
    embedded(X, store=tmp_path / "s.zarr")
    damage_lists(tmp_path / "s.zarr")
    with pytest.raises(StoreError, match="another input"):
        embedded(changed(X), store=tmp_path / "s.zarr")
    np.testing.assert_array_equal(embedded(X, store=tmp_path / "s.zarr"), embedded(X))


def test_a_damaged_graph_of_a_store_that_does_not_say_from_which_rows(X, tmp_path):
    """Stores of earlier releases."""
    store = tmp_path / "s.zarr"
    embedded(X, store=store)
    damage_lists(store)
    shutil.rmtree(store / "inputs")
    with pytest.raises(StoreError, match="cannot be repaired"):
        embedded(changed(X), store=store)


def test_a_graph_is_not_repaired_with_other_libraries(X, tmp_path):
    """The kernel is stored in the order of the old graph."""
    store = tmp_path / "s.zarr"
    embedded(X, store=store)
    pretend_another_scipy(store)
    damage_lists(store)
    with pytest.raises(StoreError, match="other versions of libraries"):
        embedded(X, store=store)
    np.testing.assert_array_equal(embedded(X, store=store, resume=False), embedded(X))


# --- the storage order ----------------------------------------------------------------------------


def another_build(monkeypatch):
    """Let scipy's trees order points otherwise, as another build of the library may."""
    monkeypatch.setattr("scipy.spatial.cKDTree", partial(cKDTree, leafsize=3))


@pytest.mark.parametrize("at", ["lists", "edges"])
def test_a_graph_begun_in_another_order_starts_over(X, tmp_path, monkeypatch, at):
    interrupted(X, tmp_path / "s.zarr", at)
    another_build(monkeypatch)
    resumed = embedded(X, store=tmp_path / "s.zarr")
    monkeypatch.undo()
    np.testing.assert_array_equal(resumed, embedded(X))


@pytest.mark.some(1)
@pytest.mark.parametrize("table", ["order-0", "distances-0", "done"])
def test_killed_while_a_finished_search_is_removed(tmp_path, monkeypatch, table):
    """Whatever is removed first, nothing that is gone is taken for finished."""
    with block_sizes(n_parts=3):
        check_killed_while_a_search_is_removed(tmp_path, monkeypatch, table)


def check_killed_while_a_search_is_removed(tmp_path, monkeypatch, table):
    rows = np.random.default_rng(1).standard_normal((N_ROWS, 10)).astype(np.float32)
    expected, store = embedded(rows, method="cells"), tmp_path / "run.zarr"
    remove = shutil.rmtree

    def killed(folder, **given):
        if str(folder).endswith("search"):
            remove(folder / table, ignore_errors=True)
            raise KeyboardInterrupt
        remove(folder, **given)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with block_sizes(block_rows=1024), pytest.raises(KeyboardInterrupt):
            gpe.embed(rows, store=store, method="cells", **OPTIONS)
    assert not list(store.glob(f"graph/*/search/{table}"))
    np.testing.assert_array_equal(embedded(rows, store=store, method="cells"), expected)


@pytest.mark.parametrize(("begun", "allowed"), [(3, 2), (2, 3)])
def test_a_search_resumes_in_its_parts_while_they_fit(tmp_path, begun, allowed):
    """Another limit may allow larger parts: the parts stay; or smaller ones only: the search starts over."""
    rows = np.random.default_rng(1).standard_normal((N_ROWS, 10)).astype(np.float32)
    store = tmp_path / "run.zarr"
    with block_sizes(n_parts=begun):
        interrupted(rows, store, "lists", method="cells")
    with block_sizes(n_parts=allowed, block_rows=1024):
        resumed = gpe.embed(rows, store=store, method="cells", **OPTIONS)
    with block_sizes(n_parts=max(begun, allowed), block_rows=1024):
        fresh = gpe.embed(rows, method="cells", **OPTIONS)
    assert resumed.report["n_parts"] == fresh.report["n_parts"] == 3
    np.testing.assert_array_equal(resumed.points[:], fresh.points[:])
    with block_sizes(n_parts=1):  # a finished graph is used whatever its parts
        graph = gpe.neighbor_graph(rows, 6, method="cells", store=store)
    assert graph.metadata.n_parts == 3


def test_an_order_that_lacks_rows_is_damage():
    context = local_context(4)
    with pytest.raises(DamageError, match="order-0"):
        _check_order(np.array([0, 2, 2, 3], np.int32), context, "order-0")
    with pytest.raises(DamageError):
        _check_order(np.array([0, 1, 4, 3], np.int32), context, "order-0")
    _check_order(np.array([3, 1, 0, 2], np.int32), context, "order-0")
