"""Drawn data against the plain loops of naive.py: every type, order, unit, offset, repeat, component and rule.

Coordinates are whole numbers of a drawn unit, so that which rows are equal does not depend on rounding. The normal
suite draws the same examples in every run; `slow` draws many more, new ones each time.
"""

import math
import re
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import naive
import scalable_gpe as gpe

FEW = settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=2000, derandomize=False)
RULES = ("auto", "global", "local", "bgh")
RANK = 7
NOTHING = object()
TYPES = {  # smallest and largest exponent of the unit, and largest offset in units
    np.float16: (-24, 2, 0),
    np.float32: (-120, 100, 1000),
    np.float64: (-330, 330, 10**9),
    np.int8: (0, 0, 0),
    np.int32: (0, 15, 10**4),
    np.uint16: (0, 3, 0),
}


@dataclass(frozen=True)
class Data:
    """Rows as a user passes them, the unit of their differences, and the same rows in whole units."""

    X: np.ndarray
    unit: float
    whole: np.ndarray

    @property
    def first(self):
        """For each row the first row that equals it."""
        found = {}
        return [found.setdefault(tuple(row), i) for i, row in enumerate(self.whole.tolist())]


@st.composite
def data(draw, dtypes=tuple(TYPES), most=60):
    """Rows of up to three components, with repeats and rows far from all others."""
    dtype = draw(st.sampled_from(dtypes))
    low, high, far = TYPES[dtype]
    n, d = draw(st.integers(2, most)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([1, 3, 9]))
    whole = rng.integers(-spread, spread + 1, (n, d))
    gap = 30 if dtype == np.int8 else 300
    whole[:, 0] += gap * rng.integers(0, draw(st.integers(1, 3)), n)
    if draw(st.booleans()):
        whole[rng.integers(n), 0] = -3 * gap
    assume(len(np.unique(whole, axis=0)) > 1)
    whole -= whole.min(axis=0) if np.dtype(dtype).kind == "u" else 0
    unit = 2.0 ** draw(st.integers(low, high))
    if np.dtype(dtype).kind == "f" and dtype != np.float16:
        unit *= draw(st.sampled_from([1.0, 1 / 3, 1.7]))
    offset = draw(st.sampled_from([0, far, -far]))
    X = np.array((whole + offset) * unit, dtype=dtype, order=draw(st.sampled_from("CF")))
    return Data(X[:, ::-1] if draw(st.booleans()) else X, unit, whole)


@st.composite
def cases(draw, **options):
    """Data, and the parameters of an embedding; a number for epsilon is in squared units."""
    drawn = draw(data(**options))
    n_distinct = len(set(drawn.first))
    parameters = {
        "n_neighbors": draw(st.integers(1, n_distinct - 1)),
        "epsilon": draw(st.sampled_from(RULES) | st.floats(0.05, 500)),
        "normalization": draw(st.sampled_from(["bistochastic", "symmetric"])),
        "sketch": draw(st.sampled_from(["gaussian", "bernoulli"])),
        "power": draw(st.sampled_from([1, 2, 3, 7, 40])),
        "n_components": draw(st.integers(1, 3)),
        "random_state": draw(st.integers(0, 2**64 - 1)),
    }
    return drawn, parameters


def embed(drawn, parameters, X=None, unit=None):
    epsilon = parameters["epsilon"]
    unit = drawn.unit if unit is None else unit
    given = epsilon if isinstance(epsilon, str) else epsilon * unit**2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpe.errors.GPEWarning)
        X = drawn.X if X is None else None if X is NOTHING else X
        return gpe.embed(X, precision="double", **{**parameters, "epsilon": given})


# --- the pipeline, stage by stage -----------------------------------------------------------------


def check_pipeline(case):
    drawn, parameters = case
    result = embed(drawn, {**parameters, "axes": "sketch"})
    points = (drawn.X.astype(float) / drawn.unit).tolist()  # as the type of X holds them
    check_lists(result, points, drawn)
    lengths = [result.graph.distances[i] / drawn.unit for i in sorted(set(drawn.first))]
    epsilon = check_bandwidth(result, parameters["epsilon"], lengths, drawn)
    K = check_kernel(result, points, drawn, epsilon)
    A = check_heat(result, K)
    check_points(result, A, parameters)


def check_lists(result, points, drawn):
    """Distances are those of the nearest distinct rows; which of several equally near rows is listed is free."""
    first, size = drawn.first, max(math.dist(points[0], row) for row in points)
    assert result.report["recall"] == 1.0
    for i, (listed, lengths) in enumerate(zip(result.graph.indices.tolist(), result.graph.distances.tolist())):
        others = sorted(math.dist(points[i], points[j]) for j in set(first) - {first[i]})
        assert len(set(listed)) == len(listed) and first[i] not in listed and set(listed) <= set(first)
        for j, length, expected in zip(listed, lengths, others):
            assert abs(length / drawn.unit - expected) <= 1e-6 * size
            assert abs(math.dist(points[i], points[j]) - expected) <= 1e-6 * size


def effective(lengths, epsilon):
    """The rule of "global": effective neighbours of the median row, relative to its target."""
    shares = []
    for row in lengths:
        target = max(len(row) / 7, min(1.0, 0.9 * len(row)))
        shares.append(sum(math.exp(-(length**2) / epsilon) for length in row) / target)
    return float(np.median(shares))


def check_bandwidth(result, rule, lengths, drawn):
    """Return epsilon in squared units, or None with local length scales."""
    report = result.report
    epsilon = report["epsilon"] / drawn.unit**2
    if not isinstance(rule, str):
        assert epsilon == pytest.approx(rule, rel=1e-12)
        return epsilon
    if report["sigma"] is not None:
        assert rule in ("auto", "local")
        factor = report["sigma"]["factor"]
        own = [row[min(RANK, len(row)) - 1] for row in lengths]
        check_root([row / length for row, length in zip(lengths, own)], factor)
        sigma = np.array([math.sqrt(factor) * length for length in own])
        places = {row: place for place, row in enumerate(sorted(set(drawn.first)))}
        shown = result.kernel.sigma / drawn.unit
        np.testing.assert_allclose(shown, [sigma[places[row]] for row in drawn.first], rtol=1e-5)
        assert epsilon == pytest.approx(np.median(sigma) ** 2, rel=1e-5)
        return None
    if rule == "bgh":
        check_slope(lengths, epsilon)
    else:
        check_root(lengths, epsilon)
    return epsilon


def check_root(lengths, epsilon):
    """Epsilon is where the rule reaches 1, or the end of the interval that is searched if it never does."""
    squares = [length**2 for row in lengths for length in row]
    if epsilon < max(squares) * 99:
        assert effective(lengths, epsilon * (1 + 1e-6)) >= 1
    if epsilon > min(squares) / 99:
        assert effective(lengths, epsilon * (1 - 1e-6)) <= 1


def check_slope(lengths, epsilon):
    squares = np.array([length**2 for row in lengths for length in row])

    def slope(at):
        low, high = (math.log(len(lengths) + np.exp(-squares / e).sum()) for e in (at / 2, at))
        return high - low

    candidates = [epsilon * 2.0**step for step in range(-8, 9)]
    assert slope(epsilon) >= max(map(slope, candidates)) - 1e-6


def check_kernel(result, points, drawn, epsilon):
    """K on the union of the lists, spread to equal rows."""
    first, n = drawn.first, len(points)
    edges = {(i, i) for i in first}
    for i, listed in enumerate(result.graph.indices.tolist()):
        edges |= {(first[i], j) for j in listed} | {(j, first[i]) for j in listed}
    if epsilon is None:
        full = naive.local_affinity(points, (result.kernel.sigma / drawn.unit).tolist())
    else:
        full = naive.affinity(points, epsilon)
    K = [[full[i][j] if (first[i], first[j]) in edges else 0.0 for j in range(n)] for i in range(n)]
    shown = result.kernel.to_scipy().toarray()
    # coordinates are rounded to float32; exp(-r^2 / epsilon) has a slope of at most sqrt(2 / (e epsilon))
    narrowest = (result.kernel.sigma.min() / drawn.unit) ** 2 if epsilon is None else epsilon
    moved = 2**-23 * np.sqrt(2) * np.ptp(np.array(points, float), axis=0).max()
    np.testing.assert_allclose(shown, K, atol=1e-6 + moved * np.sqrt(2 / (np.e * narrowest)))
    return shown.astype(float).tolist()


def check_heat(result, K):
    """A = S K S: there is one S with positive entries that gives row sums of 1."""
    A = result.heat.to_scipy().toarray()
    if result.heat.normalization == "symmetric":
        np.testing.assert_allclose(A, naive.symmetric(K), rtol=1e-5, atol=1e-12)
    else:
        s = result.heat.scale
        assert result.report["converged"] and (s > 0).all()
        for i, row in enumerate(K):
            assert sum(s[i] * value * s[j] for j, value in enumerate(row)) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(A, np.array(K) * np.outer(s, s), rtol=1e-5)
    return A.tolist()


def check_points(result, A, parameters):
    n, k, seed = len(A), parameters["n_components"], parameters["random_state"]
    entry = naive.gaussian_entry if parameters["sketch"] == "gaussian" else naive.bernoulli_entry
    Y = [[entry(seed, i, c) / math.sqrt(k) for c in range(k)] for i in range(n)]
    size = np.linalg.norm(Y)
    if result.heat.is_centred:
        Y = (np.array(Y) - np.mean(Y, axis=0)).tolist()
    for _ in range(parameters["power"]):
        Y = naive.product(A, Y)
    assert result.points.dtype == np.float32 and np.isfinite(result.points).all()
    # weights are float32; a polynomial may add tol = 1e-4
    assert np.linalg.norm(result.points - Y) <= 2e-4 * np.linalg.norm(Y) + 1e-6 * size


# --- properties -----------------------------------------------------------------------------------


def check_units(case, exponent):
    """A power of two changes no byte of the points, and epsilon as it should."""
    drawn, parameters = case
    factor = 2.0**exponent
    usual = embed(drawn, parameters)
    other = embed(drawn, parameters, drawn.X * factor, drawn.unit * factor)
    assert other.points.tobytes() == usual.points.tobytes()
    assert other.report["epsilon"] == usual.report["epsilon"] * factor**2
    assert (other.graph.distances == usual.graph.distances * np.float64(factor)).all()


def check_new_rows(case):
    """Training rows get their own points, alone or together; rows beside them get points nearby."""
    drawn, parameters = case
    result = embed(drawn, parameters)
    again = result.transform(np.ascontiguousarray(drawn.X))
    assert again.tobytes() == result.points.tobytes()
    assert result.transform(drawn.X[-1:]).tobytes() == result.points[-1:].tobytes()
    between = (drawn.X[:1].astype(np.float64) + drawn.X[-1:]) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpe.errors.GPEWarning)
        assert np.isfinite(result.transform(between)).all()


def check_precomputed(case):
    """The lists of a graph give its distances and its kernel again."""
    drawn, parameters = case
    usual = embed(drawn, parameters)
    assume(len(set(drawn.first)) == len(drawn.X))
    lists = usual.graph.indices, usual.graph.distances
    one = embed(drawn, {**parameters, "neighbors": lists}, X=NOTHING)
    assert (one.graph.distances == usual.graph.distances).all()
    assert one.report["epsilon"] == usual.report["epsilon"]
    assert abs(one.kernel.to_scipy() - usual.kernel.to_scipy()).max() == 0


@st.composite
def mixtures(draw):
    """Rows of very different sizes, and a rule or a number of any size for epsilon."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    n, d = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    middle, span = draw(st.integers(-30, 30)), draw(st.sampled_from([0, 1, 5, 12, 30]))
    sizes = np.clip(middle + rng.integers(-span, span + 1, (n, 1)), -36, 36)
    X = rng.standard_normal((n, d)) * 10.0 ** sizes.astype(float)
    if draw(st.booleans()):
        X[rng.integers(n, size=n // 2)] *= 0.0
    epsilon = draw(st.sampled_from(RULES) | st.integers(-70, 70).map(lambda exponent: 10.0**exponent))
    return X.astype(dtype), epsilon


def check_mixture(case):
    """K is right up to the rounding of each row to float32, or the call is refused with advice."""
    X, epsilon = case
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gpe.errors.GPEWarning)
            result = gpe.embed(X, epsilon=epsilon, power=2, n_components=2)
    except ValueError as refused:
        if not re.search("Drop the rows with the largest values|nothing to embed|rounded to float32", str(refused)):
            raise
        return
    assert np.isfinite(result.points).all()
    kernel, offset = result.kernel, result.graph.metadata.offset
    exactly = X.astype(np.longdouble)
    sizes = np.abs(exactly - (0 if offset is None else np.array(offset))).max(axis=1)
    rounding = 1e-6 * (sizes[:, None] + sizes) * math.sqrt(X.shape[1])
    lengths = np.sqrt(((exactly[:, None] - exactly) ** 2).sum(axis=2))
    bandwidth = kernel.epsilon if kernel.sigma is None else np.outer(kernel.sigma, kernel.sigma).astype(np.longdouble)
    shown = kernel.to_scipy().toarray()
    assert (shown >= np.exp(-((lengths + rounding) ** 2) / bandwidth) - 1e-6).all()
    assert (shown <= np.exp(-(np.maximum(lengths - rounding, 0) ** 2) / bandwidth) + 1e-6).all()


small = cases(most=14)
wide = cases(dtypes=(np.float64,), most=20)


@FEW
@given(cases())
def test_the_pipeline(case):
    check_pipeline(case)


@FEW
@given(wide, st.integers(-40, 40))
def test_units(case, exponent):
    check_units(case, exponent)


@FEW
@given(small)
def test_new_rows(case):
    check_new_rows(case)


@FEW
@given(small)
def test_precomputed_lists(case):
    check_precomputed(case)


@FEW
@given(mixtures())
def test_values_of_very_different_sizes(case):
    check_mixture(case)


@pytest.mark.slow
@MANY
@given(cases())
def test_the_pipeline_many_times(case):
    check_pipeline(case)


@pytest.mark.slow
@MANY
@given(wide, st.integers(-40, 40))
def test_units_many_times(case, exponent):
    check_units(case, exponent)


@pytest.mark.slow
@MANY
@given(small)
def test_new_rows_many_times(case):
    check_new_rows(case)


@pytest.mark.slow
@MANY
@given(small)
def test_precomputed_lists_many_times(case):
    check_precomputed(case)


@pytest.mark.slow
@MANY
@given(mixtures())
def test_values_of_very_different_sizes_many_times(case):
    check_mixture(case)
