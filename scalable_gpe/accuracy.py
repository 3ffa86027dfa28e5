"""How exact is an embedding: measured on sampled rows, with error bars, in bounded memory at any size.

What an embedding states is |y_i - y_j| ~ |(A^p)_i - (A^p)_j|. For sampled rows i the right-hand side is computed: unit
vectors go through A^{2p} in double precision, and C_ij = (A^{2p})_ij gives d_ij^2 = C_ii + C_jj - 2 C_ij exactly.
Whatever separates the two sides is then seen: the sketch, the polynomial, rounding. Recall and lost mass say how far
the truncated kernel itself is from the dense one.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from scalable_gpe.embedding import Embedding
from scalable_gpe.engine import checks
from scalable_gpe.engine.cluster import on_cluster
from scalable_gpe.engine.panels import Panel, Panels
from scalable_gpe.engine.rows import Selected, open_rows
from scalable_gpe.engine.tables import ranges
from scalable_gpe.graph.scan import scan_blocks, scan_points
from scalable_gpe.heat.kernel import row_masses
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.polynomial import Plan, series
from scalable_gpe.sketch.powers import Carry, Sketch, start_panel

_DENSE_ROWS = 2000  # up to here the dense kernel is cheap enough to compare with
_TAIL = 1.2  # a tail is made by few rows: without this its interval covered 87 to 99 % where 95 % were meant
_N_LEVELS = 4096  # errors at which the distribution is looked at
_N_NEIGHBORS = 10  # of the trustworthiness
_N_COLUMNS = 4  # columns of G that are carried again in double precision
_CUT = 1e-15  # of the Chebyshev series, relative to a unit vector
_KEPT = 1e-6  # eigenvalues of C below this share of the largest are rounding


class Audit(dict[str, Any]):
    """What an audit measured: a dict that prints as a table and saves as JSON."""

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)

    __repr__ = __str__

    def lines(self) -> list[tuple[str, str]]:
        """Give the table as pairs of a name and a text."""
        return list(_lines(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the audit as JSON.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced.
        """
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self, file, indent=2)


def audit(
    embedding: Embedding, X: Any = None, *, n_probes: int = 1000, n_exact: int = 32, random_state: Any = 0
) -> Audit:
    r"""Measure how far an embedding can be trusted.

    The headline is the relative error of distances, :math:`|\,|y_i - y_j| / d_{ij} - 1|` with
    :math:`d_{ij} = |(A^p)_i - (A^p)_j|` the diffusion distance of the truncated kernel: its median and the bound that
    95 % of pairs keep, each with a 95 % interval. The sketch alone gives a relative standard deviation of
    :math:`\sqrt{2/k}/2`; more than that comes from the polynomial or from rounding, which are measured too.

    Parameters
    ----------
    embedding : Embedding
        Of `embed` or `open`.
    X : array-like, optional
        The points, where the embedding does not hold them (it was made from neighbours alone).
    n_probes : int
        Rows whose neighbours are searched exactly, for recall, lost mass and trustworthiness.
    n_exact : int
        Rows whose diffusion distances are computed exactly; all pairs of them are compared.
    random_state : int, None or numpy generator
        Seed of the samples.

    Returns
    -------
    Audit
        A dict: ``headline`` (text), ``recall`` and ``lost_mass`` (``value``, ``low``, ``high``), and under ``powers``
        for each power ``median_error`` and ``bound_95`` (``value``, ``low``, ``high``), ``sketch`` (what the sketch
        alone would give), ``law`` (against chi-square), ``rounding``, ``dense`` and ``trustworthiness``. What cannot
        be known is None, with the reason under ``reasons``.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(500), n_components=16, power=8)
    >>> report = gpe.audit(result, n_probes=50)
    >>> report["recall"]["value"], report["powers"][8]["median_error"]["value"] < 0.5
    (1.0, True)
    """
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed makes it; got {type(embedding).__name__}.")
    n_probes, n_exact = (
        checks.check_count(n_probes, "n_probes", minimum=2),
        checks.check_count(n_exact, "n_exact", minimum=3),
    )
    with on_cluster(embedding.graph.run):
        return _audit(embedding, X, n_probes, n_exact, checks.check_random_state(random_state))


def _audit(embedding: Embedding, X: Any, n_probes: int, n_exact: int, seed: int) -> Audit:
    began = time.perf_counter()
    points, n_rows = _points(embedding, X), embedding.graph.n_rows
    probes = _Probes(embedding, points, n_probes, seed) if points is not None else None
    exact = _ExactRows(embedding.heat, n_exact, seed)
    dense = _Dense(embedding, points, exact) if points is not None and n_rows <= _DENSE_ROWS else None
    reasons: dict[str, str] = {}
    if probes is None:
        reasons |= dict.fromkeys(("recall", "lost_mass", "trustworthiness", "dense"), "neighbors were given without X")
    elif dense is None:
        reasons["dense"] = f"the dense kernel is formed for up to {_DENSE_ROWS} rows"
    published = (
        embedding.points if isinstance(embedding.points, dict) else {embedding.report["power"]: embedding.points}
    )
    found = Audit(
        headline="",
        n_rows=n_rows,
        n_components=embedding.parameters["n_components"],
        n_probes=probes.n_probes if probes else 0,
        n_exact=exact.n_exact,
        recall=probes.recall() if probes else None,
        lost_mass=probes.lost_mass() if probes else None,
        powers={power: _power(embedding, power, values, exact, probes, dense) for power, values in published.items()},
        reasons=reasons,
        seconds=0.0,
    )
    found["headline"] = " ".join(_headline(found, power) for power in published)
    found["seconds"] = time.perf_counter() - began
    return found


def _points(embedding: Embedding, X: Any) -> Any:
    """Training points in storage order, or None."""
    graph = embedding.graph
    if graph.points is not None or X is None:
        return graph.points
    rows = open_rows(X, embedding.parameters["metric"])
    if rows.n_rows != graph.n_rows:
        raise ValueError(f"X must have the {graph.n_rows} rows of the embedding; got {rows.n_rows}. Pass the same X.")
    return Selected(rows, graph.numbering.user_row)


def _power(
    embedding: Embedding, power: int, values: Any, exact: "_ExactRows", probes: "_Probes | None", dense: "_Dense | None"
) -> dict[str, Any]:
    """Everything that belongs to one power."""
    covariance = exact.covariance(power)
    embedded = _take(values, exact.rows)
    k = embedding.parameters["n_components"]
    return {
        **_distance_errors(covariance, embedded, exact),
        "sketch": _sketch_alone(k),
        "law": _law(covariance, embedded, k),
        "rounding": _rounding(embedding, power, values),
        "dense": dense.compare(power, covariance) if dense else None,
        "trustworthiness": probes.trustworthiness(values) if probes else None,
    }


# --- exact diffusion distances --------------------------------------------------------------------


class _ExactRows:
    """Sampled rows of A^p, by way of the entries of A^{2p} between them."""

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int) -> None:
        self._heat = heat
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows, self.seed = len(self.rows), n_rows, seed
        self.points = heat.kernel.numbering.position[self.rows]

    def covariance(self, power: int) -> np.ndarray:
        """``C = (A^{2p})_ij`` of the sampled rows, without the constant direction where the embedding has none."""
        heat = self._heat
        columns = 8 * 4 * heat.kernel.edges.n_points
        width = int(np.clip(heat.run.spare_bytes() // 2 // columns, 1, self.n_exact))
        parts = []
        for first, stop in ranges(self.n_exact, width):
            panels = Panels(heat.run, heat.run.scratch())
            start = partial(self._units, self.points[first:stop], panels)
            carried = carry(heat, start, 2 * power, panels)
            parts.append(last_product(heat, carried, self.points))
            panels.clear()
        covariance = np.concatenate(parts, axis=1)
        return (covariance + covariance.T) / 2

    def _units(self, points: np.ndarray, panels: Panels) -> Panel:
        """``Z = S e_i``, one column for each point; centred with the embedding."""
        heat = self._heat
        panel = np.zeros((heat.kernel.edges.n_points, len(points)))
        if heat.is_centred:
            panel -= (heat.weights / self.n_rows)[:, None]
        panel[points, np.arange(len(points))] += 1
        return panels.of(panel * heat.scale_points[:, None])


def carry(heat: HeatKernel, start: Callable[[], Panel], power: int, panels: Panels) -> Panel:
    """``Z`` after power - 1 applications of A, in double precision; on [-1, 1], where no spectrum need be known."""
    coefficients = series(power - 1, -1.0) if power > 1 else np.zeros(0)
    tails = np.cumsum(np.abs(coefficients[::-1]))[::-1]
    kept = coefficients[: int((tails > _CUT).sum())]
    plan = Plan(power, -1.0, tuple(kept.tolist()), _CUT)
    if not 1 < plan.degree < power - 1:
        plan = Plan(power, -1.0, (), _CUT)
    with heat.run.workers.progress.stage("audit", plan.cost):
        return next(iter(Carry(heat, start, [plan], panels)))[1]


def last_product(heat: HeatKernel, carried: Panel, points: np.ndarray) -> np.ndarray:
    """``s (K Z)`` of some points only: rows of A times what was carried."""
    out = np.empty((len(points), carried.shape[1]))
    for number, columns, weights in heat.kernel.edges.rows(points):
        out[number] = heat.scale_points[points[number]] * (weights.astype(np.float64) @ carried.whole(columns)[columns])
    return out


def _distances(covariance: np.ndarray) -> np.ndarray:
    diagonal = np.diag(covariance)
    return np.sqrt(np.maximum(diagonal[:, None] + diagonal - 2 * covariance, 0))


def _distance_errors(covariance: np.ndarray, embedded: np.ndarray, exact: _ExactRows) -> dict[str, Any]:
    """Median relative error of distances, and the bound that 95 % of the pairs keep."""
    wide = embedded.astype(np.float64)
    truth = _distances(covariance)
    shown = np.linalg.norm(wide[:, None] - wide[None], axis=2)
    valid = (exact.points[:, None] != exact.points) & (truth > 0)
    if not valid.any():
        nothing = {"value": 0.0, "low": 0.0, "high": 0.0}
        return {"n_pairs": 0, "median_error": nothing, "bound_95": nothing}
    errors = np.abs(np.divide(shown, truth, out=np.ones_like(shown), where=valid) - 1)
    return {
        "n_pairs": int(valid.sum()) // 2,
        "median_error": _quantile(errors, valid, 0.5, 1.0),
        "bound_95": _quantile(errors, valid, 0.95, _TAIL),
    }


def _quantile(errors: np.ndarray, valid: np.ndarray, share: float, wider: float) -> dict[str, float]:
    """Quantile of a symmetric table of errors of pairs of sampled rows, with its 95 % interval.

    Pairs that share a row are not independent. The share F(t) of pairs with an error up to t is a U-statistic, whose
    variance is that of the shares of the single rows, 4 var / n; the interval holds the t at which the quantile's share
    is within the 95 % interval of F(t), taken on the logit scale, where F is closer to normal.
    """
    from scipy.stats import t as student

    held = valid.any(axis=1)
    errors, valid = errors[held][:, held], valid[held][:, held]
    levels = np.sort(errors[np.triu(valid)])
    levels = levels[np.unique(np.linspace(0, len(levels) - 1, min(len(levels), _N_LEVELS)).astype(np.int64))]
    rows = [
        np.searchsorted(np.sort(row[known]), levels, side="right") for row, known in zip(errors, valid, strict=True)
    ]
    counts, known = np.stack(rows), valid.sum(axis=1)
    n = len(known)
    reached = np.clip(counts.sum(axis=0) / known.sum(), 1e-3, 1 - 1e-3)
    variance = (counts / known[:, None]).var(axis=0, ddof=1) if n > 2 else np.full(len(levels), 0.25)
    spread = 2 * np.sqrt(variance * (n - 1) / (n * max(n - 2, 1))) / (reached * (1 - reached))
    logit, wanted = np.log(reached / (1 - reached)), np.log(share / (1 - share))
    reach = wider * student.ppf(0.975, n - 1) * spread
    low, high = (np.searchsorted(np.maximum.accumulate(logit + side * reach), wanted) for side in (1, -1))
    last = len(levels) - 1
    return {
        "value": float(np.quantile(errors[np.triu(valid)], share)),
        "low": float(levels[min(int(low), last)]),
        "high": float(levels[min(int(high), last)]),
    }


def _sketch_alone(k: int) -> dict[str, float]:
    """Relative error of distances when |y|^2 / d^2 is exactly chi-square(k) / k."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    def within(share: float) -> float:
        def missing(bound: float) -> float:
            low = max(0.0, 1 - bound)
            return float(chi2.cdf(k * (1 + bound) ** 2, k) - chi2.cdf(k * low**2, k)) - share

        return float(brentq(missing, 1e-9, 10.0))

    return {"standard_deviation": float(np.sqrt(2 / k) / 2), "median_error": within(0.5), "bound_95": within(0.95)}


def _law(covariance: np.ndarray, embedded: np.ndarray, k: int) -> dict[str, float]:
    """Squared ratios against chi-square(k)/k, and an exact test on what the covariance makes independent.

    The columns of the sketch are independent with covariance C / k, so C^(-1/2) Y sqrt(k) has independent standard
    entries: its sum of squares is chi-square, its entries are normal. The ratios themselves are not independent.
    """
    from scipy.stats import chi2, kstest

    above = np.triu_indices(len(covariance), 1)
    wide = embedded.astype(np.float64)
    truth = _distances(covariance)[above] ** 2
    shown = ((wide[above[0]] - wide[above[1]]) ** 2).sum(axis=1)
    ratios = shown[truth > 0] / truth[truth > 0]
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _KEPT * values[-1]
    white = (vectors[:, kept].T @ wide) * np.sqrt(k) / np.sqrt(values[kept])[:, None]
    below = float(chi2.cdf((white**2).sum(), white.size))
    return {
        "ratio_mean": float(ratios.mean()),
        "ratio_sd": float(ratios.std()),
        "expected_sd": float(np.sqrt(2 / k)),
        "ks_distance": float(kstest(ratios * k, chi2(k).cdf).statistic),
        "n_independent": int(white.size),
        "size_pvalue": 2 * min(below, 1 - below),
        "ks_pvalue": float(kstest(white.ravel(), "norm").pvalue),
    }


def _rounding(embedding: Embedding, power: int, values: Any) -> dict[str, float]:
    """Some columns of A^p G again, in double precision: what polynomial and rounding have done."""
    heat, parameters = embedding.heat, embedding.parameters
    k = parameters["n_components"]
    columns = np.unique(np.linspace(0, k - 1, min(_N_COLUMNS, k)).astype(np.int64))
    sketch = Sketch(parameters["sketch"], parameters["random_state"], "double")
    numbering, edges = heat.kernel.numbering, heat.kernel.edges
    error = size = 0.0
    for column in columns:
        one = np.array([column])
        panels = Panels(heat.run, heat.run.scratch())
        carried = carry(heat, lambda: start_panel(heat, sketch, one, panels)[0], power, panels)  # noqa: B023
        whole = _image(heat, carried, panels)
        panels.clear()
        for first, stop in ranges(numbering.n_rows, edges.block_rows):
            truth = whole[numbering.position[first:stop], 0]
            shown = np.asarray(values[first:stop, int(column)], dtype=np.float64) * np.sqrt(k)
            error += float(((shown - truth) ** 2).sum())
            size += float((truth**2).sum())
    measured = float(np.sqrt(error / size)) if size > 0 else 0.0
    promised = embedding.report["polynomial_error"]
    return {
        "measured": measured,
        "reported": float(promised[power] if isinstance(promised, dict) else promised),
        "n_columns": len(columns),
    }


def _image(heat: HeatKernel, carried: Panel, panels: Panels) -> np.ndarray:
    """``s (K Z)`` of all points: the last application of A."""
    from scalable_gpe.engine.kernels import sparse

    target = panels.new(carried.shape, carried.dtype)

    def multiply(block: int) -> None:
        first, indptr, indices, weights = heat.kernel.edges.block(block)
        stop = first + len(indptr) - 1
        out = target.room(first, stop)
        sparse.product(indptr, indices, weights, carried.whole(indices), heat.scale_points[first:stop], out)
        target.put(first, out)

    heat.run.workers.map(multiply, range(heat.kernel.edges.n_blocks), count=False)
    return target.rows(0, target.shape[0])


class _Dense:
    """Rows of the dense kernel's A^p at the same epsilon."""

    def __init__(self, embedding: Embedding, points: Any, exact: _ExactRows) -> None:
        self._embedding, self._points, self._exact = embedding, points, exact

    @cached_property
    def _operator(self) -> np.ndarray:
        from scalable_gpe import exact

        embedding, numbering = self._embedding, self._embedding.graph.numbering
        X = self._points.read(0, numbering.n_points)[numbering.position].astype(np.float64)
        kernel, normalization = embedding.kernel, embedding.heat.normalization
        if kernel.sigma is not None:
            K = exact.local_affinity(X, kernel.sigma)
            return exact.symmetric(K) if normalization == "symmetric" else exact.bistochastic(K)
        assert kernel.epsilon is not None
        return exact.heat_kernel(X, kernel.epsilon, normalization)

    def compare(self, power: int, covariance: np.ndarray) -> dict[str, float]:
        """Diffusion distances of the truncated kernel against those of the dense one."""
        rows, n_rows = self._exact.rows, self._exact.n_rows
        columns = np.zeros((n_rows, len(rows)))
        columns[rows, np.arange(len(rows))] = 1
        if self._embedding.heat.is_centred:
            columns -= 1 / n_rows
        for _ in range(power):
            columns = self._operator @ columns
        above = np.triu_indices(len(rows), 1)
        dense, sparse = _distances(columns.T @ columns)[above], _distances(covariance)[above]
        errors = np.abs(sparse[dense > 0] / dense[dense > 0] - 1)
        if not errors.size:
            return {"median": 0.0, "bound_95": 0.0, "max": 0.0}
        bound = float(np.quantile(errors, 0.95))
        return {"median": float(np.median(errors)), "bound_95": bound, "max": float(errors.max())}


# --- sampled rows against all rows ----------------------------------------------------------------


class _Probes:
    """Sampled points, scanned exactly against all points."""

    def __init__(self, embedding: Embedding, points: Any, n_probes: int, seed: int) -> None:
        from scalable_gpe.engine.kernels import probes as kernels

        self._graph, self._kernel, self._run = embedding.graph, embedding.kernel, embedding.graph.run
        self.points = points
        numbering = self._graph.numbering
        self.n_points = numbering.n_points
        drawn = np.random.default_rng([seed, 1]).choice(self.n_points, min(n_probes, self.n_points), replace=False)
        self.own = np.sort(numbering.by_user[drawn])
        self.n_probes = len(self.own)
        self._samples = points.take(self.own)
        squares, ids = self._empty(self._graph.n_neighbors)
        scan_points(
            points, self.own, self._samples, lambda *given: kernels.nearest_rows(*given), (squares, ids), self._run
        )
        self._nearest = squares

    def _embedded_blocks(self, values: Any) -> Any:
        """Embedded points, each distinct one once, with their storage numbers."""
        numbering = self._graph.numbering
        firsts = numbering.user_row[numbering.by_user]
        for start, stop in ranges(self.n_points, max(1024, min(65_536, 2**22 // values.shape[1]))):
            rows = firsts[start:stop]
            block = np.asarray(values[int(rows[0]) : int(rows[-1]) + 1])[rows - rows[0]]
            yield numbering.by_user[start:stop].astype(np.int64), np.ascontiguousarray(block)

    def _empty(self, n_keep: int) -> tuple[np.ndarray, np.ndarray]:
        """Room for the nearest rows of each probe: squared distances and numbers."""
        return np.full((self.n_probes, n_keep), np.inf, np.float32), np.full((self.n_probes, n_keep), -1, np.int64)

    def recall(self) -> dict[str, float]:
        """Share of true neighbours in the lists; a neighbour counts when it is no further than the true last one."""
        found = self._graph.list_distances.take(self.own).astype(np.float64)
        reach = np.sqrt(self._nearest[:, -1].astype(np.float64)) * (1 + 1e-5)
        shares = (found <= reach[:, None]).mean(axis=1)
        value = float(shares.mean())
        if self.n_probes == self.n_points:
            return {"value": value, "low": value, "high": value}
        # with no miss among n trials, 3 / n is the 95 % bound of the share of misses
        error = max(1.96 * float(shares.std(ddof=1)) / np.sqrt(self.n_probes), 3 / found.size)
        return _share(value, error)

    def lost_mass(self) -> dict[str, float]:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out; error of a ratio."""
        dense, kept = row_masses(self._kernel, self.points, self.own)
        if not dense.sum() > 0:
            return {"value": 0.0, "low": 0.0, "high": 0.0}
        share = kept.sum() / dense.sum()
        spread = float((kept - share * dense).std(ddof=1)) / dense.mean() / np.sqrt(self.n_probes)
        error = 1.96 * spread * np.sqrt(1 - self.n_probes / self.n_points)
        return _share(max(0.0, 1 - share), error)

    def trustworthiness(self, values: Any) -> dict[str, float] | None:
        """``1 - 2 / (m (2n - 3m - 1)) * mean sum (rank in X - m)`` over the m nearest in the embedding."""
        from scalable_gpe.engine.kernels import probes as kernels

        m = min(_N_NEIGHBORS, (self.n_points - 1) // 2)
        if m < 1:
            return None
        numbering = self._graph.numbering
        samples = _take(values, numbering.user_row[self.own])
        squares, near = self._empty(m)
        scan_blocks(self._embedded_blocks(values), self.own, samples, kernels.nearest_rows, (squares, near), self._run)
        unique, places = np.unique(near, return_inverse=True)
        others = self.points.take(unique)[places.reshape(near.shape)]
        limits = np.empty(near.shape, np.float32)
        kernels.pair_squares(self._samples, others, limits)
        limits.sort(axis=1)
        counts = np.zeros(near.shape, np.int64)
        scan_points(
            self.points,
            self.own,
            self._samples,
            lambda *given: kernels.count_closer(*given),
            (limits, counts),
            self._run,
        )
        ranks = np.cumsum(counts, axis=1) + 1
        penalty = np.maximum(ranks - m, 0).sum(axis=1)
        each = 1 - 2 * penalty / (m * (2 * self.n_points - 3 * m - 1))
        error = 1.96 * float(each.std(ddof=1)) * np.sqrt((1 - self.n_probes / self.n_points) / self.n_probes)
        return {**_share(each.mean(), error), "n_neighbors": m}


def _share(value: Any, error: Any) -> dict[str, float]:
    """A figure between 0 and 1 with its interval."""
    return {"value": float(value), "low": float(max(0.0, value - error)), "high": float(min(1.0, value + error))}


def _take(values: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of a numpy or zarr array by number."""
    if isinstance(values, np.ndarray):
        return values[rows]
    unique, places = np.unique(rows, return_inverse=True)
    return np.asarray(values.oindex[unique])[places]


# --- words ----------------------------------------------------------------------------------------


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _interval(figure: dict[str, float], write: Callable[[float], str] = _percent) -> str:
    return f"{write(figure['value'])} ({write(figure['low'])} to {write(figure['high'])})"


def _headline(found: Audit, power: int) -> str:
    one = found["powers"][power]
    alone = one["sketch"]
    return (
        f"Power {power}: relative error of distances: median {_interval(one['median_error'])}, 95 % of pairs within "
        f"{_interval(one['bound_95'])}; from the sketch alone: standard deviation "
        f"{_percent(alone['standard_deviation'])}, median {_percent(alone['median_error'])}, 95 % within "
        f"{_percent(alone['bound_95'])}."
    )


def _lines(found: Audit) -> Sequence[tuple[str, str]]:
    """The table, line by line."""
    lines = [("rows", f"{found['n_rows']} in {found['n_components']} dimensions")]
    for name, words in (("recall", "true neighbours found"), ("lost_mass", "of the dense kernel not in the lists")):
        reason = found["reasons"].get(name, "")
        lines.append((name.replace("_", " "), f"{_interval(found[name])} {words}" if found[name] else reason))
    for power, one in found["powers"].items():
        law, alone = one["law"], one["sketch"]
        lines += [
            (f"power {power}", f"{one['n_pairs']} pairs of {found['n_exact']} rows against exact diffusion distances"),
            ("  median error", f"{_interval(one['median_error'])}; the sketch alone {_percent(alone['median_error'])}"),
            ("  95 % within", f"{_interval(one['bound_95'])}; the sketch alone {_percent(alone['bound_95'])}"),
            (
                "  squared ratio",
                f"mean {law['ratio_mean']:.3f}, sd {law['ratio_sd']:.3f}; chi-square: 1 and {law['expected_sd']:.3f}",
            ),
            ("  law of the sketch", f"p = {law['size_pvalue']:.2g} (size), {law['ks_pvalue']:.2g} (shape)"),
            ("  rounding", f"{one['rounding']['measured']:.1e} measured, {one['rounding']['reported']:.1e} reported"),
        ]
        dense, trust = one["dense"], one["trustworthiness"]
        if dense:
            words = (
                f"median {_percent(dense['median'])}, 95 % within {_percent(dense['bound_95'])} (kernel, not sketch)"
            )
            lines.append(("  dense kernel", words))
        elif "dense" in found["reasons"]:
            lines.append(("  dense kernel", f"not compared: {found['reasons']['dense']}"))
        if trust:
            lines.append(
                ("  trustworthiness", f"{_interval(trust, lambda v: f'{v:.4f}')}, {trust['n_neighbors']} neighbours")
            )
    return lines
