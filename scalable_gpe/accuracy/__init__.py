"""The audit: how exact an embedding is, measured on sampled rows with error bars, in bounded memory at any size.

An embedding promises |y_i - y_j| ~ |f(A)_i - f(A)_j|, with f(A) = A^p or the sum of all powers. The audit computes
the right-hand side for sampled rows: it multiplies unit vectors by A, again and again, and C = f(A)^2 gives
d_ij^2 = C_ii + C_jj - 2 C_ij exactly. The difference of the two sides shows the errors of the sketch, the polynomial
and rounding. Recall and lost mass show how far the truncated kernel itself is from the dense one.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.accuracy.samples import Dense, ExactRows, Probes
from scalable_gpe.accuracy.statistics import chi_square_test, distance_errors, sketch_alone
from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.cluster import on_cluster
from scalable_gpe.formatting import power_title
from scalable_gpe.graph.neighbors import in_stored_units
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.precomputed import PRECOMPUTED
from scalable_gpe.io.rows import Rows, open_rows
from scalable_gpe.sketch.publish import sketched_rows
from scalable_gpe.storage.mapped import take_rows

LEAST_POINTS = 10  # fewer points are too few for a sample
_DENSE_ROWS = 2000  # up to this many rows the dense kernel is cheap enough to compare with
Line = tuple[str, str]

_ERRORS = ("median_error", "bound_95")
_TINY = 0.001  # p-values below this one have another cause than chance


class Audit(dict[str, Any]):
    """Figures of an audit: a dict that prints as a table and saves as JSON."""

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)

    __repr__ = __str__

    def lines(self) -> list[tuple[str, str]]:
        """Return the table as pairs of name and text."""
        return list(_table(self))

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
    embedding: Embedding, X: Any = None, *, n_probes: int = 1000, n_exact: int = 64, random_state: Any = 0
) -> Audit:
    r"""Measure how far an embedding can be trusted.

    The headline is the relative error of distances, :math:`|\,|y_i - y_j| / d_{ij} - 1|` with
    :math:`d_{ij} = |f(A)_i - f(A)_j|` the diffusion distance of the truncated kernel (f(A) is A^p, or the sum of all
    powers): its median and a bound for
    95 % of the pairs, each with a 95 % interval. The sketch alone gives a relative standard deviation of
    :math:`\sqrt{2/k}/2`; more than that comes from the polynomial or from rounding.

    Parameters
    ----------
    embedding : Embedding
        A result of `embed` or `open`.
    X : array-like, optional
        The points, if the embedding does not hold them (it was made from neighbours alone).
    n_probes : int
        Number of rows whose neighbours are searched exactly, for recall, lost mass and trustworthiness.
    n_exact : int
        Number of rows whose diffusion distances are computed exactly; all pairs of them are compared.
    random_state : int, None or numpy generator
        Seed of the samples.

    Returns
    -------
    Audit
        A dict: ``headline`` (text), ``recall`` and ``lost_mass`` (``value``, ``low``, ``high``), and under ``powers``
        for each power ``median_error`` and ``bound_95`` (``value``, ``low``, ``high``), ``scaled_error`` (the median
        after one common scale), ``sketch`` (what the sketch alone would give), ``law`` (against chi-square),
        ``dense`` and ``trustworthiness``. A figure that cannot be known is None, with the reason under
        ``reasons``: so is a ``high`` for which `n_exact` is too small, and ``ks_pvalue`` for a Bernoulli sketch.
        ``warnings`` are those of the run.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(500), n_components=16, power=8)
    >>> report = gpe.audit(result, n_probes=50)
    >>> report["recall"]["value"], report["powers"][8]["median_error"]["value"] < 0.5
    (1.0, True)
    """
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed returns it; got {type(embedding).__name__}.")
    n_probes, n_exact = (
        checks.check_count(n_probes, "n_probes", minimum=2),
        checks.check_count(n_exact, "n_exact", minimum=3),
    )
    n_points = embedding.graph.storage_order.n_points
    if n_points < LEAST_POINTS:
        raise ValueError(f"an audit needs {LEAST_POINTS} different rows or more; this embedding has {n_points}.")
    with on_cluster(embedding.graph.context):
        return _audit(embedding, X, n_probes, n_exact, checks.check_random_state(random_state))


def _audit(embedding: Embedding, X: Any, n_probes: int, n_exact: int, seed: int) -> Audit:
    began = time.perf_counter()
    points, n_rows = _points(embedding, X), embedding.graph.n_rows
    probes = Probes(embedding, points, n_probes, seed) if points is not None else None
    exact = ExactRows(embedding.heat, n_exact, seed)
    dense = Dense(embedding, points, exact) if points is not None and n_rows <= _DENSE_ROWS else None
    reasons: dict[str, str] = {}
    if probes is None:
        jaccard = embedding.settings.metric == "jaccard"
        reason = "only straight-line distances are scanned" if jaccard else "neighbors were given without X"
        reasons |= dict.fromkeys(("recall", "lost_mass", "trustworthiness", "dense"), reason)
    elif dense is None:
        reasons["dense"] = f"the dense kernel is formed for up to {_DENSE_ROWS} rows"
    if embedding.settings.sketching.sketch.kind != "gaussian":
        reasons["ks_pvalue"] = "only the entries of a Gaussian sketch are normal"
    powers = _audit_powers(embedding, exact, dense, probes)
    for name in ("median_error", "bound_95"):
        if any(figures[name]["high"] is None for figures in powers.values()):
            reasons[name] = f"{exact.n_exact} rows are too few for an upper end: raise n_exact"
    result = Audit(
        headline="",
        n_rows=n_rows,
        n_components=embedding.settings.n_components,
        n_probes=probes.n_probes if probes else 0,
        n_exact=exact.n_exact,
        recall=asdict(probes.recall()) if probes else None,
        lost_mass=asdict(probes.lost_mass()) if probes else None,
        powers=powers,
        warnings=list(embedding.report["warnings"]),
        reasons=reasons,
        seconds=0.0,
    )
    result["headline"] = " ".join(_headline(result, power) for power in powers)
    result["seconds"] = time.perf_counter() - began
    return result


def _audit_powers(
    embedding: Embedding, exact: ExactRows, dense: Dense | None, probes: Probes | None
) -> dict[Power, dict[str, Any]]:
    published, k = embedding.by_power, embedding.settings.sketching.n_columns
    covariances, powers = exact.covariances(list(embedding.filters.values())), {}
    for power, values in published.items():
        covariance, embedded = covariances[power], take_rows(values, exact.rows)
        if embedding.settings.n_sketch is None:
            wide = embedding.columns_of(power, embedded, np.arange(k))
        else:
            wide = sketched_rows(embedding.heat, embedding.sketch_columns(power), k, exact.points)
        scaled = distance_errors(covariance, embedded, exact.points, scaled=True)
        powers[power] = {
            **asdict(distance_errors(covariance, embedded, exact.points)),
            "scaled_error": asdict(scaled.median_error),
            "sketch": sketch_alone(k),
            "law": chi_square_test(covariance, wide, k, embedding.settings.sketching.sketch.kind),
            "dense": dense.compare(embedding.filters[power], covariance) if dense else None,
            "trustworthiness": probes.trustworthiness(values) if probes else None,
        }
    return powers


def _points(embedding: Embedding, X: Any) -> Rows | None:
    """Training points in storage order, or None."""
    graph = embedding.graph
    if graph.points is not None or X is None or embedding.settings.metric in ("jaccard", PRECOMPUTED):
        return graph.points
    settings = embedding.settings
    rows = open_rows(X, settings.metric, missing=settings.missing, numeric_only=settings.numeric_only)
    if rows.n_rows != graph.n_rows:
        raise ValueError(f"X must have the {graph.n_rows} rows of the embedding; got {rows.n_rows}. Pass the same X.")
    return RowSubset(in_stored_units(rows, graph.metadata), graph.storage_order.user_row)


def _headline(audit: dict[str, Any], power: Power) -> str:
    """The error of distances at one power, in one sentence."""
    figures = audit["powers"][power]
    median, bound = (_interval(figures[name]) for name in _ERRORS)
    alone = {name: _percent(share) for name, share in figures["sketch"].items()}
    return (
        f"{power_title(power).capitalize()}: relative error of distances: median {median}, 95 % of pairs within "
        f"{bound}; from the sketch alone: standard deviation {alone['standard_deviation']}, median "
        f"{alone['median_error']}, 95 % within {alone['bound_95']}."
    )


def _table(audit: dict[str, Any]) -> list[Line]:
    """Name and text of each line: rows, graph, each power, warnings."""
    reasons = audit["reasons"]
    lines = [
        ("rows", f"{audit['n_rows']} in {audit['n_components']} dimensions"),
        ("recall", _graph_figure(audit["recall"], "true neighbours found", reasons.get("recall", ""))),
        (
            "lost mass",
            _graph_figure(audit["lost_mass"], "of the dense kernel not in the lists", reasons.get("lost_mass", "")),
        ),
    ]
    for power, figures in audit["powers"].items():
        pairs = f"{figures['n_pairs']} pairs of {audit['n_exact']} rows against exact diffusion distances"
        lines += [(power_title(power), pairs), *_power_lines(figures)]
        if figures["dense"]:
            lines.append(("  dense kernel", _dense(figures["dense"], audit["lost_mass"])))
        elif "dense" in reasons:
            lines.append(("  dense kernel", f"not compared: {reasons['dense']}"))
        if trust := figures["trustworthiness"]:
            share = _interval(trust, "{:.4f}".format)
            lines.append(("  trustworthiness", f"{share}, {trust['n_neighbors']} neighbours"))
    return lines + [("warning", text) for text in audit.get("warnings", [])]


def _graph_figure(figure: Any, meaning: str, reason: str) -> str:
    return f"{_interval(figure)} {meaning}" if figure else reason


def _power_lines(figures: Any) -> list[Line]:
    law, alone = figures["law"], figures["sketch"]
    median, bound = (f"{_interval(figures[name])}; the sketch alone {_percent(alone[name])}" for name in _ERRORS)
    ratio = f"mean {law['ratio_mean']:.3f}, sd {law['ratio_sd']:.3f}; chi-square: 1 and {law['expected_sd']:.3f}"
    return [
        ("  median error", median),
        ("  95 % within", bound),
        ("  squared ratio", ratio),
        ("  law of the sketch", _law(law["size_pvalue"], law["ks_pvalue"])),
    ]


def _law(size: float, shape: float | None) -> str:
    """The p-values of the test, and what they say."""
    shown = "shape not tested: not normal" if shape is None else f"{shape:.2g} (shape)"
    as_expected = min(size, 1.0 if shape is None else shape) >= _TINY
    verdict = "errors match random-projection noise" if as_expected else "larger errors than a random projection makes"
    return f"p = {size:.2g} (size), {shown}: {verdict}"


def _dense(figures: Any, lost_mass: Any) -> str:
    """Distances of the truncated kernel against those of the dense one."""
    median, bound = _percent(figures["median"]), _percent(figures["bound_95"])
    text = f"median {median}, 95 % within {bound} (kernel, not sketch)"
    if figures["median"] > 0.5 and lost_mass:
        text += f": the lists miss {_percent(lost_mass['value'])} of the dense kernel"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{share:.2g} times"


def _interval(figure: Any, write: Callable[[float], str] = _percent) -> str:
    value, low = write(figure["value"]), write(figure["low"])
    if figure["high"] is None:
        return f"{value} (at least {low}; too few exact rows for an upper end)"
    return f"{value} ({low} to {write(figure['high'])})"
