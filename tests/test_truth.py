"""Every figure of the report that has a dense truth, compared with it in one place.

The dense path is in float64 and begins with X. Of the library's results it takes only the neighbour lists, which are
checked first, because equal distances may be listed in any order. The normal suite runs a fixed part of the battery,
in which each data set meets two of the six pairs of normalisation and bandwidth; `slow` runs all of it.
"""

import warnings
from functools import cache, cached_property
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import GPEWarning

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SETS = {  # benchmarks/truth.py has them; the unit of X, and how far from 0 it is
    "branching": (1.0, 0.0),
    "breast cancer": (1e-3, 0.0),
    "digits": (1e4, 0.0),
    "Fashion-MNIST": (1.0, 0.0),
    "nested clusters": (1e-9, 1e-7),
    "noise": (1.0, 1e3),
    "outliers": (1e12, 0.0),
    "rings": (1.0, 1e5),
    "small clusters": (3.0, 0.0),
    "swiss roll": (1e-20, 0.0),
    "torus": (1e5, 1e8),
    "uneven clusters": (1.0, 0.0),
    "wine": (1e20, 0.0),
}
MOVED = (*product((1.0,), (1e4, 1e6, 1e8)), *product((1e-40, 1e-20, 1e20, 1e40), (0.0,)))
NORMALIZATIONS = ("bistochastic", "symmetric")
BANDWIDTHS = ("auto", "local", "bgh")
PAIRS = tuple(product(NORMALIZATIONS, BANDWIDTHS))
N_ROWS = 240  # all of them are compared with all others, for recall and lost mass
POWER, COMPONENTS = 64, 8
RANK, JOINED, ISOLATED = 7, 1e-12, 0.99
ROUNDED = {"two groups 1e5 apart": 0.02}  # what rounding to float32 may change, by design


# --- data -----------------------------------------------------------------------------------------


@cache
def rows_of(name):
    """Some rows of a data set, in its own unit."""
    if not BENCHMARKS.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        from labels import FASHION
        from truth import DATA, load

        assert set(DATA) == set(SETS)
        if name == "Fashion-MNIST" and not FASHION.exists():
            pytest.skip("the files of Fashion-MNIST are not there")
        X = load(name, 0.024 if name == "small clusters" else 0.08).X.astype(np.float64)
    return X[np.sort(np.random.default_rng(0).permutation(len(X))[:N_ROWS])]


def two_groups(distance):
    """Groups of unit spread, far apart."""
    X = np.random.default_rng(0).standard_normal((N_ROWS, 3))
    X[N_ROWS // 2 :, 0] += distance
    return X


def bridge():
    """Groups that one row connects, which hardly exchanges heat with them if all rows share epsilon."""
    X = two_groups(8.0)
    X[0] = 4.0, 0.0, 0.0
    return X


def repeats():
    """Rows with copies: one among others, one alone."""
    X = gpe.datasets.torus(N_ROWS, random_state=4).astype(np.float64)
    X[50:70] = X[3]
    X[100:130] = X[0] + 1000
    return X


OTHERS = {
    "two groups and a bridge": bridge,
    "two groups 1e5 apart": lambda: two_groups(1e5),
    "two groups 1e7 apart": lambda: two_groups(1e7),
    "seconds of two decades": lambda: (1.6e9 - 3.2e8 * (np.arange(N_ROWS) % 2) + np.arange(N_ROWS))[:, None],
    "integers above 2^53": lambda: 2**60 + np.random.default_rng(0).integers(0, 1000, (N_ROWS, 3)),
    "repeats": repeats,
}


# --- the dense path -------------------------------------------------------------------------------


class Dense:
    """Everything that is known of the rows X in float64, with some neighbour lists."""

    def __init__(self, X, indices, rule, normalization):
        X = np.asarray(X - X[0], np.float64)
        squares = cdist(X, X, "sqeuclidean")
        self.first, self.place = np.unique(np.argmax(squares == 0, axis=1), return_inverse=True)
        self.squares = squares[np.ix_(self.first, self.first)]  # of distinct rows
        self.listed, self.rule, self.normalization = self.place[indices[self.first]], rule, normalization

    @cached_property
    def lengths(self):
        """Distances to the listed points, nearest first."""
        return np.sqrt(np.sort(np.take_along_axis(self.squares, self.listed, axis=1), axis=1))

    @cached_property
    def nearest(self):
        """The true neighbours, as many as are listed."""
        return np.argsort(self.squares, axis=1, kind="stable")[:, 1 : self.listed.shape[1] + 1]

    @cached_property
    def shares(self):
        """Share of the true neighbours in each list; another point at the distance of the last is as good."""
        reach = np.sqrt(np.take_along_axis(self.squares, self.nearest[:, -1:], axis=1))
        return (self.lengths <= reach * (1 + 1e-5)).mean(axis=1)

    @cached_property
    def edges(self):
        """The union of the lists, each point with itself."""
        edges = np.eye(len(self.squares), dtype=bool)
        np.put_along_axis(edges, self.listed, True, axis=1)
        return edges | edges.T

    def _root(self, lengths):
        """Epsilon at which the median row has m/7 effective neighbours."""
        unit = np.median(lengths)

        def excess(log):
            return np.median(np.exp(-((lengths / unit) ** 2) / np.exp(log)).sum(axis=1)) - lengths.shape[1] / RANK

        return unit**2 * np.exp(brentq(excess, -60, 60, xtol=1e-13))

    @cached_property
    def sigma(self):
        """Length scales; None if all points share epsilon."""
        if self.rule == "auto":
            effective = np.exp(-(self.lengths**2) / self._root(self.lengths)).sum(axis=1)
            is_local = (effective < np.median(effective) / 5).mean() > 0.06
        else:
            is_local = self.rule == "local"
        own = self.lengths[:, RANK - 1]
        return np.sqrt(self._root(self.lengths / own[:, None])) * own if is_local else None

    @cached_property
    def epsilon(self):
        """The bandwidth that is shown."""
        if self.sigma is not None:
            return np.median(self.sigma) ** 2
        return self._steepest() if self.rule == "bgh" else self._root(self.lengths)

    def _steepest(self):
        """The power of two at which log(n + sum of weights) has grown most."""
        squares = self.lengths**2
        logs = np.arange(np.log2(squares.min()) - 6, np.log2(squares.max()) + 6).round()
        slopes = np.diff([np.log(len(squares) + np.exp(-squares / 2.0**log).sum()) for log in logs])
        return 2.0 ** logs[np.argmax(slopes) + 1]

    @cached_property
    def affinity(self):
        """The kernel of all pairs of points."""
        return np.exp(-self.squares / (self.epsilon if self.sigma is None else np.outer(self.sigma, self.sigma)))

    @cached_property
    def lost_mass(self):
        others = ~np.eye(len(self.edges), dtype=bool)
        return self.affinity[~self.edges].sum() / self.affinity[others].sum()

    @cached_property
    def missing_weight(self):
        """Weight of the true neighbours that the graph lacks; of lists that lack none, others may be as near."""
        weights, held = (np.take_along_axis(one, self.nearest, axis=1) for one in (self.affinity, self.edges))
        return (weights * ~held)[self.shares < 1].sum() / weights.sum()

    @cached_property
    def kernel(self):
        """K between rows."""
        return np.where(self.edges, self.affinity, 0)[np.ix_(self.place, self.place)]

    @cached_property
    def heat(self):
        if self.normalization == "symmetric":
            return exact.symmetric(self.kernel)
        return exact.bistochastic(self.kernel, 1e-12, max_iter=100_000)

    @cached_property
    def is_ordinary(self):
        """Rows that exchange heat with others."""
        return np.diag(self.heat) <= ISOLATED

    @cached_property
    def relaxation_time(self):
        """Time of the slowest mode on 1 % of the rows or more, and whether it is only a bound."""
        held = self._held(~self.is_ordinary, JOINED)
        for _ in range(6):
            if (~held).sum() < 2:
                return None
            times, shares, vectors = self._modes(held)
            on_many = [time for time, share in zip(times, shares, strict=True) if share >= 0.01]
            if on_many:
                return before_gap(on_many), False
            carried = (vectors**2 > 0.05 * (vectors**2).max(axis=0)).any(axis=1)
            before, held = held, self._held(held | carried, 1 / times[-1])
            if (held == before).all():
                break
        return times[-1], True

    def _held(self, held, least):
        """Some rows, and those of components of less than 1 % of the rows."""
        number = connected_components((self.kernel if least == JOINED else self.heat) >= least)[1]
        return held | (np.bincount(number) < 0.01 * len(number))[number]

    def _modes(self, held):
        """Times, shares and vectors of the slowest modes; heat that held rows would get stays where it is."""
        A = np.where(held | held[:, None], 0, self.heat)
        top = np.where(held, 0, self.top)
        A[np.diag_indices_from(A)] += np.where(held, -1, 1 - A @ top / np.where(held, 1, self.top))
        number = connected_components(self.kernel >= JOINED)[1]
        for one in np.unique(number[~held]):
            part = np.where(number == one, top, 0)
            A -= 2 * np.outer(part, part) / (part @ part)
        values, vectors = (
            part[..., ::-1][..., : min(16, max(1, ((~held).sum() - 1) // 3))] for part in np.linalg.eigh(A)
        )
        return 1 / np.maximum(1 - values, 1e-16), 1 / (len(A) * (vectors**4).sum(axis=0)), vectors

    @cached_property
    def top(self):
        """Unit eigenvector of eigenvalue 1: constant, or sqrt(v)."""
        q = self.kernel.sum(axis=1)
        v = (self.kernel / np.outer(q, q)).sum(axis=1) if self.normalization == "symmetric" else np.ones(len(q))
        return np.sqrt(v / v.sum())

    def embedding(self, power, report):
        """Y of one power, or of all scales."""
        G = gpe.sketch_matrix(len(self.heat), COMPONENTS)
        if power == "all" or self.normalization == "bistochastic":
            G = G - np.outer(self.top, self.top @ G)
        if power == "all":
            return all_scales(self.heat, G, report)
        return exact.gp_embedding(self.heat, G, power)


def all_scales(A, G, report):
    """The embedding of all scales: the only place that says which function of A it is."""
    return exact.gp_embedding(A, G, "all", report["horizon"], report["first_power"])


def before_gap(times):
    """The longest time before the first large gap."""
    times = sorted(times)
    for faster, slower in pairwise(times):
        if slower > 4096 and slower > 64 * faster:
            return faster
    return times[-1]


def parts(edges):
    return connected_components(edges)[0]


# --- the comparison -------------------------------------------------------------------------------


def close(report, key, expected, rel=0.0, abs=0.0):
    """Compare one figure, and collect what differs: one run shows all of it."""
    got = report[key]
    good = got is not None and got == pytest.approx(expected, rel=rel, abs=abs)
    return [] if good else [f"{key} {got} instead of {expected}"]


def wrong_figures(report, dense, slack=0.0):
    """Figures of the graph, the kernel and the heat kernel that are not true."""
    n_rows, n_points = len(dense.place), len(dense.first)
    return [
        *close(report, "n_rows", n_rows),
        *close(report, "n_distinct", n_points),
        *close(report, "n_duplicates", n_rows - n_points),
        *close(report, "recall", dense.shares.mean(), abs=max(1e-9, slack)),
        *close(report, "n_connected_components", parts(dense.edges)),
        *close(report, "nnz", dense.edges.sum(), rel=slack),
        *close(report, "epsilon", dense.epsilon, rel=max(1e-5, slack)),
        *close(report, "lost_mass", dense.lost_mass, rel=0.02, abs=1e-6),
        *close(report, "missing_weight", dense.missing_weight, rel=1e-3, abs=max(1e-6, slack)),
        *close(report, "n_kernel_components", parts(dense.kernel >= JOINED)),
        *close(report, "n_isolated", (~dense.is_ordinary).sum()),
        *wrong_scales(report, dense, slack),
        *wrong_times(report, dense),
        *([] if report["converged"] else ["not converged"]),
    ]


def wrong_scales(report, dense, slack):
    if dense.sigma is None or report["sigma"] is None:
        return [] if (dense.sigma is None) == (report["sigma"] is None) else ["length scales are local or not"]
    low, median, high = np.quantile(dense.sigma, (0.01, 0.5, 0.99))
    return [
        *close(report["sigma"], "median", median, rel=max(1e-5, slack)),
        *close(report["sigma"], "low", low, rel=0.02),
        *close(report["sigma"], "high", high, rel=0.02),
    ]


def wrong_times(report, dense):
    """The relaxation time, or the bound that the report says it is."""
    got, reason = report["relaxation_time"], report["reasons"].get("relaxation_time", "")
    true, is_bound = dense.relaxation_time or (None, False)
    good = true is None if got is None else true is not None and ("at most" in reason) == is_bound
    if good and got is not None:
        # held rows slow the others: where the search sees few modes, it holds more of them than the reference
        good = got >= true * 0.95 and (is_bound or got <= true * 1.15)
    found = [] if good else [f"relaxation_time {got} ({reason}) instead of {true}, bound {is_bound}"]
    return found


def stated_error(report, power):
    """The error that the report states: of the polynomial, or of the solver."""
    solver = report.get("solver_error")
    return solver if power == "all" and solver is not None else report["polynomial_error"][power]


def wrong_points(result, dense, slack):
    """Embeddings that are further from the dense ones than the report says; isolated rows are left out."""
    rows, found = dense.is_ordinary, []
    for power, points in result.points.items():
        if not rows.any():
            continue
        Y = dense.embedding(power, result.report)[rows]
        error = np.linalg.norm(points[rows] - Y) / np.linalg.norm(Y)
        if power == "all":  # what is stated is the error of distances
            ours, true = pdist(points[rows]), pdist(Y)
            apart = true > 1e-9 * true.max()
            error = np.sqrt(np.mean((ours[apart] / true[apart] - 1) ** 2))
        stated = stated_error(result.report, power)
        if not error <= 2 * stated + slack:
            found.append(f"power {power}: error {error:.2g}, stated {stated:.2g}")
    return found


def wrong(X, rule, normalization, neighbors=None, slack=0.0):
    """Compare a run with the dense truth; return all that is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPEWarning)
        result = gpe.embed(
            X,
            neighbors=neighbors,
            epsilon=rule,
            normalization=normalization,
            power=[POWER, "all"],
            n_components=COMPONENTS,
            axes="sketch",
            progress=False,
        )
    dense = Dense(X, result.graph.indices, rule, normalization)
    return wrong_figures(result.report, dense, slack) + wrong_points(result, dense, slack)


def part(names, pairs):
    """Each name with all pairs; those that the normal suite leaves out are marked slow."""
    cases = []
    for number, name in enumerate(names):
        usual = {pairs[number % len(pairs)], pairs[(number + len(pairs) // 2 + 1) % len(pairs)]}
        cases += [pytest.param(name, *one, marks=() if one in usual else pytest.mark.slow) for one in pairs]
    return cases


@pytest.mark.some(10)
@pytest.mark.parametrize(("name", "normalization", "rule"), part(SETS, PAIRS))
def test_the_battery(name, normalization, rule):
    unit, offset = SETS[name]
    found = wrong(rows_of(name) * unit + offset, rule, normalization)
    assert not found, "; ".join(found)


@pytest.mark.parametrize(("name", "normalization", "rule"), part(OTHERS, PAIRS))
def test_rows_that_float32_cannot_hold_and_repeats(name, normalization, rule):
    """They are right, or refused with the columns to change."""
    X = OTHERS[name]()
    try:
        found = wrong(X, rule, normalization, slack=ROUNDED.get(name, 0.0))
    except ValueError as refused:
        found = [] if "column" in str(refused) else [str(refused)]
    assert not found, "; ".join(found)


@pytest.mark.some(3)
@pytest.mark.parametrize(("name", "normalization", "rule"), part(("swiss roll", "uneven clusters"), PAIRS))
def test_offsets_and_units(name, normalization, rule):
    every = {move: wrong(rows_of(name) * move[0] + move[1], rule, normalization) for move in MOVED}
    found = [f"{move}: {'; '.join(found)}" for move, found in every.items() if found]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("name", "normalization", "rule"), part(("torus", "noise"), PAIRS))
def test_lists_that_lack_true_neighbors(name, normalization, rule):
    """Recall and missing weight, where they are not 1 and 0: every row has lost some of its neighbours."""
    X = rows_of(name)
    graph = gpe.neighbor_graph(X, 30)
    kept = np.sort(np.random.default_rng(1).permuted(np.tile(np.arange(30), (len(X), 1)), axis=1)[:, :20], axis=1)
    lists = [np.take_along_axis(one, kept, 1) for one in (graph.indices, graph.distances)]
    found = wrong(X, rule, normalization, lists)
    assert not found, "; ".join(found)
