"""A second round compares rows near the borders of parts, and leaves all other lists as they are."""

import tracemalloc

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.execution import memory_plan, resources
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.graph import cells, parts


@pytest.fixture
def small_parts():
    with block_sizes(n_parts=5):
        yield


def found_share(graph, exact):
    return np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(graph.indices, exact.indices, strict=True)])


@pytest.mark.some(1)
@pytest.mark.parametrize("n_features", [8, 200])  # the second is searched in bytes
def test_rows_near_borders_find_their_neighbours(small_parts, monkeypatch, n_features):
    X = gpe.datasets.patches(6000, n_features, random_state=0)
    exact = gpe.neighbor_graph(X, 10, method="brute")
    kept = []

    def mend(*given):
        before = given[2].lists(
            order := parts.grow(given[0], *parts.root(len(given[0])), 10**6, 0, 1, given[-1].workers)[0]
        )
        result = parts.mend_borders(*given)
        kept.append((before, order, result))
        return result

    monkeypatch.setattr(cells, "mend_borders", mend)
    graphs = [gpe.neighbor_graph(X, 10, method="cells", recall=0.5, n_jobs=n_jobs) for n_jobs in (1, 2)]
    assert len(kept) == 10  # five parts, twice
    np.testing.assert_array_equal(graphs[0].indices, graphs[1].indices)
    np.testing.assert_array_equal(graphs[0].distances, graphs[1].distances)
    assert found_share(graphs[0], exact) > 0.93
    for (_, before), order, after in kept:  # lists only become better, and most stay as they are
        change = before[np.argsort(order)] - after.squares[np.argsort(after.order)]
        assert (change >= 0).all() and change.any()
        assert (change == 0).all(axis=1).mean() > 0.3


def test_a_poor_search_compares_all_rows_again(small_parts, monkeypatch):
    monkeypatch.setattr(cells, "mend_borders", lambda *_: pytest.fail("recall is too low for that"))
    gpe.neighbor_graph(gpe.datasets.patches(6000, 8, random_state=0), 10, method="cells", recall=1.0)


def test_a_round_near_borders_holds_what_the_plan_says(small_parts, monkeypatch):
    """When rows descend, there are the part's own rows, their lists and their samples, and little else."""
    held, descend = [], parts.descend

    def watched(X, *given):
        held.append(tracemalloc.get_traced_memory()[0] / len(X))
        descend(X, *given)

    def mend(*given):
        tracemalloc.start()
        monkeypatch.setattr(parts, "descend", watched)
        try:
            return parts.mend_borders(*given)
        finally:
            monkeypatch.setattr(parts, "descend", descend)
            tracemalloc.stop()

    monkeypatch.setattr(cells, "mend_borders", mend)
    # memory is traced for the whole process
    monkeypatch.setattr(memory_plan.MemoryPlan, "parts_at_once", lambda self: 1)
    gpe.neighbor_graph(gpe.datasets.patches(6000, 16, random_state=0), 16, method="cells", recall=0.5)
    samples = 8 * resources.most_sampled(16)
    assert len(held) == 5 and max(held) <= resources.part_row_bytes(16, 16) - 4 * 16 - samples


def test_a_round_over_all_rows_finds_what_the_last_parts_missed(monkeypatch):
    """Rows that were in one part may still be neighbours that were not found there: here it only looked into leaves."""
    monkeypatch.setattr(cells, "_MAX_ROUNDS", 2)
    X = np.random.default_rng(0).standard_normal((12_000, 16)).astype(np.float32)
    descend, n_calls = parts.descend, 0

    def only_in_the_second_round(*given):
        nonlocal n_calls
        n_calls += 1
        if n_calls > 2:
            descend(*given)

    monkeypatch.setattr(parts, "descend", only_in_the_second_round)
    with pytest.warns(gpe.errors.RecallWarning), block_sizes(n_parts=2):
        graph = gpe.neighbor_graph(X, 10, method="cells", recall=1.0)
    assert n_calls == 4 and graph.recall > 0.88


def test_borders_that_gain_little_are_followed_by_all_rows(small_parts, monkeypatch):
    rounds_made = []

    def mend(X, names, earlier, *_):
        rounds_made.append("borders")
        order = np.arange(len(X), dtype=np.int32)
        return parts.PartLists(order, *earlier.lists(order))

    def search(*given):
        rounds_made.append("all")
        return parts.search_part(*given)

    monkeypatch.setattr(cells, "mend_borders", mend)
    monkeypatch.setattr(cells, "search_part", search)
    graph = gpe.neighbor_graph(gpe.datasets.patches(6000, 8, random_state=0), 10, method="cells", recall=0.97)
    assert rounds_made[:15] == [*["all"] * 5, *["borders"] * 5, *["all"] * 5] and graph.recall > 0.97
