"""An embedding is a function of data, parameters and random_state: not of how and where it is computed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.execution.memory_plan import block_sizes

RELAXED = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
OPTIONS = {"n_neighbors": 9, "n_components": 7, "power": (3, 20), "progress": False}


def points_with_repeats(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    X = gpe.datasets.torus(n_rows, random_state=seed).astype(np.float32)
    X[rng.integers(0, n_rows, 20)] = X[rng.integers(0, n_rows, 20)]
    return X


X = points_with_repeats()


def bytes_of(points):
    if isinstance(points, dict):
        return {power: np.asarray(values[:]).tobytes() for power, values in points.items()}
    return np.asarray(points[:]).tobytes()


@pytest.fixture(scope="module")
def expected():
    return {
        (normalization, precision): bytes_of(
            gpe.embed(X, normalization=normalization, precision=precision, n_jobs=1, **OPTIONS).points
        )
        for normalization in ("bistochastic", "symmetric")
        for precision in ("single", "double")
    }


@RELAXED
@given(
    block_rows=st.sampled_from([9, 64, 299, 1000]),
    panel_columns=st.integers(1, 8),
    n_jobs=st.sampled_from([1, 2, 4]),
    memory_limit=st.sampled_from([None, "450MB", "2GB"]),
    stored=st.booleans(),
    normalization=st.sampled_from(["bistochastic", "symmetric"]),
    precision=st.sampled_from(["single", "double"]),
)
def test_block_sizes_threads_memory_and_store(
    expected, tmp_path_factory, block_rows, panel_columns, n_jobs, memory_limit, stored, normalization, precision
):
    store = tmp_path_factory.mktemp("same") / "run" if stored else None
    with block_sizes(block_rows=block_rows, panel_columns=panel_columns):
        result = gpe.embed(
            X,
            normalization=normalization,
            precision=precision,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            store=store,
            **OPTIONS,
        )
        assert bytes_of(result.points) == expected[normalization, precision]


def test_blocks_of_one_row(expected):
    with block_sizes(block_rows=1):
        assert bytes_of(gpe.embed(X, **OPTIONS).points) == expected["bistochastic", "single"]


def test_memory_limit_alone(expected):
    """Panels of one column: the limit leaves no room for more besides this process."""
    result = gpe.embed(X, memory_limit="400MB", **OPTIONS)
    assert bytes_of(result.points) == expected["bistochastic", "single"]


@RELAXED
@given(
    first=st.integers(1, 40),
    then=st.integers(1, 40),
    panel=st.sampled_from([None, 5, 16]),
    stored=st.booleans(),
    axes=st.sampled_from(["principal", "sketch"]),
    sketch=st.sampled_from(["gaussian", "bernoulli"]),
)
def test_more_columns_later(tmp_path_factory, first, then, panel, stored, axes, sketch):
    """Columns are added to the stored ones; fewer columns are the first of them (up to the factor 1 / sqrt(k))."""
    axes = axes if stored else "sketch"
    options = {"n_neighbors": 6, "power": 12, "epsilon": 0.3, "sketch": sketch}
    with block_sizes(block_rows=128, panel_columns=panel):
        fresh = bytes_of(gpe.embed(X, n_components=then, axes=axes, **options).points)
        if stored:
            store = tmp_path_factory.mktemp("columns") / "run"
            gpe.embed(X, n_components=first, axes=axes, store=store, **options)
            later = gpe.embed(X, n_components=then, axes=axes, store=store, **options).points
        else:
            heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 6), 0.3))
            gpe.gp_embedding(heat, first, 12, sketch=sketch)
            later = gpe.gp_embedding(heat, then, 12, sketch=sketch)
    assert bytes_of(later) == fresh


@pytest.mark.parametrize("order", [(64, (64, 8, 30)), ((8, 30), 64), ((64, 30, 8), 30)])
def test_more_powers_later(tmp_path, order):
    fresh = bytes_of(gpe.embed(X, n_neighbors=6, n_components=5, power=order[1]).points)
    gpe.embed(X, n_neighbors=6, n_components=5, power=order[0], store=tmp_path / "run")
    later = gpe.embed(X, n_neighbors=6, n_components=5, power=order[1], store=tmp_path / "run")
    assert bytes_of(later.points) == fresh


def test_columns_and_powers_in_any_order(tmp_path):
    """16 columns of one power, then 40 of two: the missing columns differ from power to power."""
    store = tmp_path / "run"
    for k, power in ((16, 64), (40, (64, 9)), (20, (9, 30, 64))):
        fresh = gpe.embed(X, n_neighbors=6, n_components=k, power=power)
        stored = gpe.embed(X, n_neighbors=6, n_components=k, power=power, store=store)
        assert bytes_of(stored.points) == bytes_of(fresh.points)


def grid(side=14, dimension=3):
    axes = np.meshgrid(*[np.arange(side)] * dimension)
    return np.stack(axes, axis=-1).reshape(-1, dimension).astype(np.float32)


def cloud():
    return gpe.datasets.patches(3000, n_features=20, random_state=1).astype(np.float32)


@pytest.mark.parametrize("method", ["kdtree", "brute", "cells"])
@pytest.mark.parametrize("points", [grid, cloud])
def test_the_graph_does_not_depend_on_threads(method, points):
    """Also if hundreds of neighbours are equally far, and a list can hold only some of them."""
    graphs = [gpe.neighbor_graph(points(), 10, method=method, n_jobs=n_jobs) for n_jobs in (1, 2, 4)]
    for graph in graphs[1:]:
        assert graph.indices.tobytes() == graphs[0].indices.tobytes()
        assert graph.distances.tobytes() == graphs[0].distances.tobytes()
        assert graph.recall == graphs[0].recall
        kernels = [gpe.gaussian_kernel(one) for one in (graph, graphs[0])]
        assert len({kernel.lost_mass for kernel in kernels}) == len({kernel.missing_weight for kernel in kernels}) == 1


@pytest.mark.parametrize("method", ["kdtree", "brute", "cells"])
def test_the_graph_does_not_depend_on_the_store_or_blocks(method, tmp_path):
    options = {"n_neighbors": 10, "method": method}
    held = gpe.neighbor_graph(cloud(), **options)
    with block_sizes(block_rows=700):
        stored = gpe.neighbor_graph(cloud(), store=tmp_path / "graph", memory_limit="500MB", **options)
        assert stored.indices.tobytes() == held.indices.tobytes()
        assert stored.distances.tobytes() == held.distances.tobytes()
    for left, right in zip(vars(held.scan.nearest).values(), vars(stored.scan.nearest).values(), strict=True):
        assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_searches_that_find_the_same_lists_agree(normalization):
    """Storage orders differ: the matrix has the same bytes, sums over all rows agree up to rounding."""
    options = {"n_neighbors": 8, "n_components": 5, "power": (5, 64), "normalization": normalization}
    results = [gpe.embed(X, method=method, **options) for method in ("brute", "kdtree", "cells")]
    assert all((result.graph.indices == results[0].graph.indices).all() for result in results)
    orders = [tuple(result.graph.storage_order.user_row) for result in results]
    assert len(set(orders)) == 3
    assert len({result.heat.scale.tobytes() for result in results}) == 1
    V = np.random.default_rng(0).standard_normal((len(X), 3))
    assert len({(result.heat @ V).tobytes() for result in results}) == 1
    for other in results[1:]:
        for p, points in results[0].points.items():
            np.testing.assert_allclose(other.points[p], points, rtol=0, atol=1e-6 * np.abs(points).max())


def test_precomputed_neighbors_with_and_without_points():
    graph = gpe.neighbor_graph(cloud(), 8)
    precomputed = (graph.indices, graph.distances)
    options = {"neighbors": precomputed, "epsilon": "auto", "power": (4, 64), "n_components": 6}
    without = gpe.embed(**options)
    beside = gpe.embed(cloud(), **options)
    searched = gpe.embed(cloud(), n_neighbors=8, epsilon="auto", power=(4, 64), n_components=6)
    assert bytes_of(without.points) == bytes_of(beside.points)
    assert bytes_of(without.points) == bytes_of(searched.points)
    assert without.report["recall"] is None and without.report["lost_mass"] is None
    assert beside.report["recall"] == 1.0 and beside.report["lost_mass"] > 0


def test_two_random_states_differ_and_one_repeats():
    first, again, other = (gpe.embed(X, random_state=seed, **OPTIONS).points[20] for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert np.abs(first - other).max() > 0.01 * np.abs(first).max()


@pytest.mark.parametrize("c", [2.0**-10, 0.5, 4.0, 2.0**12])
@pytest.mark.parametrize("epsilon", [0.2, "auto", "bgh"])
def test_scaling_points_by_c_and_epsilon_by_c_squared_changes_nothing(c, epsilon):
    """A power of two scales float32 exactly, so even the bytes agree."""
    scaled = epsilon if isinstance(epsilon, str) else epsilon * c**2
    one = gpe.embed(X, epsilon=epsilon, **OPTIONS)
    other = gpe.embed(X * np.float32(c), epsilon=scaled, **OPTIONS)
    if epsilon == "auto":  # bisection ends with another last digit
        assert other.report["epsilon"] == pytest.approx(c**2 * one.report["epsilon"], rel=1e-9)
        for power in one.points:
            np.testing.assert_allclose(one.points[power], other.points[power], atol=1e-5)
    else:
        assert other.report["epsilon"] == c**2 * one.report["epsilon"]
        assert bytes_of(other.points) == bytes_of(one.points)


def test_any_other_scale_to_tolerance():
    one = gpe.embed(X, epsilon=0.2, precision="double", **OPTIONS).points[20]
    other = gpe.embed(3.7 * X.astype(float), epsilon=0.2 * 3.7**2, precision="double", **OPTIONS).points[20]
    np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(one).max())


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_permuting_points_with_the_rows_of_the_sketch_permutes_the_embedding(normalization, monkeypatch):
    """Row i of G belongs to row i: with the rows of both permuted, the embedding's rows are."""
    from scalable_gpe.sketch.random_matrix import Sketch

    order = np.random.default_rng(0).permutation(len(X))
    options = {**OPTIONS, "normalization": normalization, "precision": "double"}
    one = gpe.embed(X, **options).points
    entries = Sketch.entries
    monkeypatch.setattr(Sketch, "entries", lambda self, rows, columns: entries(self, order[rows], columns))
    other = gpe.embed(X[order], **options).points
    for power, values in one.items():
        np.testing.assert_allclose(other[power], values[order], atol=2e-6 * np.abs(values).max())


def test_permuting_against_the_dense_formula():
    """Without permuting G, a permuted input has the distances of the same data under another G."""
    order = np.random.default_rng(0).permutation(200)
    points = X[:200]
    n_others = len(np.unique(points, axis=0)) - 1
    result = gpe.embed(
        points[order], n_neighbors=n_others, epsilon=0.5, power=3, n_components=4, precision="double", axes="sketch"
    )
    Y = exact.gp_embedding(exact.heat_kernel(points[order].astype(float), 0.5), gpe.sketch_matrix(200, 4), 3)
    Y -= Y.mean(axis=0)
    assert np.linalg.norm(result.points - Y) < 1e-5 * np.linalg.norm(Y)


def test_fewer_columns_than_a_store_holds_then_more(tmp_path):
    """16, then 8, then 24 columns in one store: each has the bytes of a fresh run, and nothing else is computed."""
    options = {"n_neighbors": 9, "power": 16, "progress": False}
    for k, n_panels in ((16, 1), (8, 1), (24, 2)):
        stored = gpe.embed(X, n_components=k, store=tmp_path / "run.zarr", **options)
        fresh = gpe.embed(X, n_components=k, **options)
        assert bytes_of(stored.points) == bytes_of(fresh.points)
        assert stored.report["n_panels"] == n_panels
        assert stored.transform(X[:5] + 1e-3).tobytes() == fresh.transform(X[:5] + 1e-3).tobytes()
    assert gpe.open(tmp_path / "run.zarr").points.shape == (300, 24)
