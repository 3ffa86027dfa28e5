"""The two-level solver as a matrix: aggregates, the coarse matrix, the cycle, its interval, the solution."""

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

import scalable_gpe as gpe
from scalable_gpe.execution.panels import Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.aggregates import _aggregate_range, aggregate_matrix, row_ranges
from scalable_gpe.multilevel.coarse import Acceleration, coarse_solver
from scalable_gpe.multilevel.cycle import CoarseBasis, Cycle
from scalable_gpe.multilevel.solver import HeatSolver, SolveState, measure_plan
from scalable_gpe.storage.mapped import empty_in_lines

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")


def heat_of(normalization: str = "bistochastic", duplicates: bool = False) -> HeatKernel:
    X = gpe.datasets.torus(400, random_state=3)
    if duplicates:
        X[100:140] = X[7]
    return gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 12)), normalization)


def dense_parts(heat: HeatKernel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K, the scales of a step, and A between distinct points, in storage order."""
    edges = heat.kernel.edges
    K = np.zeros((edges.n_points, edges.n_points))
    for number, columns, values in edges.rows(np.arange(edges.n_points)):
        K[number, columns] = values
    root = np.sqrt(np.asarray(heat.step_scale[:]))
    return K, root, root[:, None] * K * root


def solution(heat: HeatKernel, basis: CoarseBasis, plan, B: np.ndarray) -> np.ndarray:
    """S B for the symmetric matrix S that the solver stands for."""
    root = np.sqrt(np.asarray(heat.step_scale[:]))[:, None]
    panels = Panels(heat.context)
    return HeatSolver(basis, plan, panels).solve(lambda: panels.of(root * B), SolveState(0), {})[0].whole() / root


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("duplicates", [False, True])
def test_the_coarse_matrix_and_its_basis(normalization, duplicates):
    heat = heat_of(normalization, duplicates)
    basis = CoarseBasis.of(heat, Panels(heat.context))
    labels, top = basis.aggregates.labels.whole(), basis.top.whole()
    assert (labels >= 0).all() and len(np.unique(labels)) == basis.aggregates.count
    Z = np.zeros((len(labels), basis.aggregates.count))
    Z[np.arange(len(labels)), labels] = top
    _, _, A = dense_parts(heat)
    np.testing.assert_allclose(basis.product.toarray(), Z.T @ A @ Z, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(basis.mass, np.diag(Z.T @ Z), rtol=1e-9)
    values, vectors = np.linalg.eigh(A)
    assert values[-1] == pytest.approx(1, abs=1e-6)
    assert abs(vectors[:, -1] @ top) == pytest.approx(np.linalg.norm(top), rel=1e-5)


def test_each_round_joins_aggregates_that_are_neighbours():
    """Of a surface: after each round there are fewer, and every one is a connected piece."""
    K = gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.torus(3000, random_state=3), 16)).to_scipy().tocsr()
    inside = csr_array((K.data.astype(np.float64), K.indices, K.indptr), shape=K.shape)
    inside.setdiag(0)
    before = 3000
    for n_rounds in (1, 2, 3, 4):
        labels, count = _aggregate_range(inside, inside.sum(axis=1), np.zeros(3000), n_rounds)
        rows, columns = inside.nonzero()
        same = labels[rows] == labels[columns]
        pieces = csr_array((np.ones(same.sum()), (rows[same], columns[same])), shape=inside.shape)
        assert connected_components(pieces)[0] == count == len(np.unique(labels))
        assert count < before
        before = count
    assert count < 3000 / 20


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("horizon", [2, 4096])
def test_a_solution_is_one_symmetric_map_near_the_inverse(normalization, horizon):
    heat, rng = heat_of(normalization), np.random.default_rng(0)
    basis = CoarseBasis.of(heat, Panels(heat.context))
    plan = measure_plan(basis, horizon, 1e-2)
    _, _, A = dense_parts(heat)
    S = solution(heat, basis, plan, np.eye(len(A)))
    np.testing.assert_allclose(S, S.T, atol=1e-9 * np.abs(S).max())
    B = rng.standard_normal((len(A), 3))
    np.testing.assert_allclose(solution(heat, basis, plan, B), S @ B, atol=1e-9 * np.abs(S).max())
    top = basis.top.whole() / np.linalg.norm(basis.top.whole())
    left = B - np.outer(top, top @ B)
    exact = np.linalg.solve(np.eye(len(A)) - (1 - 1 / horizon) * A, left)
    found = S @ left - np.outer(top, top @ (S @ left))
    assert np.linalg.norm(A @ (found - exact)) < 2e-2 * np.linalg.norm(A @ exact)


@pytest.mark.parametrize("horizon", [1, 2, 64, 10**6])
def test_the_interval_is_that_of_the_spectrum_of_a_cycle(horizon):
    heat = heat_of(duplicates=True)
    basis, panels = CoarseBasis.of(heat, Panels(heat.context)), Panels(heat.context)
    plan, c = measure_plan(basis, horizon, 1e-2), 1 - 1 / horizon
    _, root, A = dense_parts(heat)
    cycle = Cycle(basis, c, panels, "test")
    right = panels.of(root[:, None] * np.eye(len(A)))
    C = cycle.apply(None, right, panels.new(A.shape, np.float64)).whole() / root[:, None]
    top = basis.top.whole() / np.linalg.norm(basis.top.whole())
    rest = np.linalg.qr(np.eye(len(A)) - np.outer(top, top))[0][:, :-1]
    M = np.eye(len(A)) - c * A
    values = np.sort(np.linalg.eigvals(rest.T @ C @ M @ rest).real)
    assert values[-1] <= plan.high < 1.3 * values[-1]
    assert values[0] / 2 < plan.low < 1.3 * values[0]


def test_a_system_that_is_solved_at_once_needs_no_more_cycles():
    """Directions that have converged leave only rounding, which must not be taken for slow modes."""
    heat = heat_of()
    plan = measure_plan(CoarseBasis.of(heat, Panels(heat.context)), 1, 1e-4)
    assert plan.n_cycles <= 10 and plan.warning is None


def test_aggregates_begin_with_strong_neighbours_only():
    """Pairs of rows, coupled ten times as much as with the next pair: no aggregate holds a half of two pairs."""
    n = 40
    strong = np.tile([1.0, 0.1], n // 2)[:-1]
    matrix = csr_array(diags_array([strong, strong], offsets=[-1, 1], shape=(n, n)))
    labels, count = aggregate_matrix(matrix, np.zeros(n))
    assert (labels[::2] == labels[1::2]).all() and count == n // 2


def groups_and_stray() -> csr_array:
    """Two groups of five rows, and before them a row that is coupled weakly, but equally, with all."""
    matrix = np.zeros((11, 11))
    for group in (slice(1, 6), slice(6, 11)):
        matrix[group, group] = 0.2
    matrix[0, 1:] = matrix[1:, 0] = 1e-3
    np.fill_diagonal(matrix, 0)
    return csr_array(matrix)


def test_a_stray_row_joins_one_group_and_not_two_groups_with_each_other():
    labels, count = aggregate_matrix(groups_and_stray(), np.zeros(11))
    assert count == 2 and len(set(labels[1:6])) == len(set(labels[6:])) == 1 and labels[1] != labels[6]


def test_groups_almost_apart_are_not_joined():
    """Nor rows whose neighbours are all in other ranges: there, couplings with these are far below `least`."""
    matrix = groups_and_stray()
    for n_rounds in (1, 2, 3):
        labels, _ = _aggregate_range(matrix, matrix.sum(axis=1), np.zeros(11), n_rounds)
        assert labels[1] != labels[6]
    elsewhere = np.zeros(11)
    elsewhere[0] = 0.1
    labels, _ = aggregate_matrix(matrix, elsewhere)
    assert labels[0] == -1


def test_stray_rows_do_not_slow_the_cycles():
    """One row in ten far from all others: aggregates of the shape with stray rows took 54 cycles."""
    rng = np.random.default_rng(13)
    X = np.asarray(gpe.datasets.branches(20_000, random_state=0))
    heat = gpe.heat_kernel(
        gpe.gaussian_kernel(gpe.neighbor_graph(np.vstack([X, rng.uniform(-15, 15, (2000, 30))]), 32))
    )
    basis = CoarseBasis.of(heat, Panels(heat.context))
    assert measure_plan(basis, 4096, 1e-2).n_cycles <= 20


@pytest.mark.parametrize("size", [50, 2000])
def test_the_coarse_solver_on_levels(size):
    """A path of aggregates, almost singular, by its inverse and by levels."""
    beside = np.full(size - 1, -1.0)
    matrix = csr_array(diags_array([beside, np.full(size, 2.0), beside], offsets=[-1, 0, 1]) + 1e-3 * np.eye(size))
    solver = coarse_solver(matrix)
    right = np.random.default_rng(0).standard_normal((size, 5))
    assert (solver.n_levels > 1) == (size > 50)
    exact, found = np.linalg.solve(matrix.toarray(), right), solver.solve(right)
    energy = np.sqrt(np.sum((found - exact) * (matrix @ (found - exact))) / np.sum(exact * (matrix @ exact)))
    assert energy < 0.3
    np.testing.assert_array_equal(solver.solve(right[:, :1]), found[:, :1])  # columns do not depend on each other


def test_fixed_coefficients_reach_the_contraction_they_state():
    values = np.linspace(0.1, 1.05, 400)
    for low in (0.1, 0.05):
        acceleration, error, before = Acceleration(low, 1.05), np.ones(400), np.ones(400)
        for count, (a, b, c) in enumerate(acceleration.steps(12), 1):
            before, error = error, a * (1 - values) * error + b * error + c * before
            r = acceleration.contraction
            assert np.abs(error).max() <= 2 * r**count / (1 + r ** (2 * count)) * 1.0001


def test_ranges_do_not_depend_on_blocks():
    assert row_ranges(40_000) == [(0, 16_384), (16_384, 32_768), (32_768, 40_000)]


@pytest.mark.parametrize(("shape", "dtype"), [((1000, 32), np.float32), ((7,), np.float64), ((0, 3), np.int32)])
def test_arrays_begin_at_cache_lines(shape, dtype):
    made = empty_in_lines(shape, dtype)
    assert made.shape == shape and made.dtype == dtype and made.flags.c_contiguous and made.flags.writeable
    assert made.size == 0 or made.ctypes.data % 64 == 0
