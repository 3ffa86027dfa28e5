"""Whether float32 holds the distances between neighbours: its rounding must be far below them.

Rows are kept as float32. Its rounding grows with the distance of a row from the median of each column, but what counts
is the difference between near rows: that between far ones has no weight in the kernel.
"""

import math
from typing import NamedTuple

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.context import Context
from scalable_gpe.graph.duplicates import DistinctRows
from scalable_gpe.graph.recall import ExactSample, bin_centres
from scalable_gpe.io.rows import InputRows, Rows
from scalable_gpe.storage.blocks import ranges

_SHARE = 1 / 32  # of the distance between near rows that rounding may reach: the embedding then changes by about 2 %
_FEW = 0.05  # share of the rows that may be nearer to others than that
_FLOAT32 = 2.0**-24  # relative rounding
_COMPUTED, _GIVEN = 2.0**-43, 2.0**-51  # that of results in double precision, and of the numbers that they begin with
_LOCAL = 7  # the neighbour whose distance is the length scale of a row
_SAMPLED, _MERGED = 65_536, 1024  # rows that are looked at, and equal ones that are compared
_SUSPECTS = 128  # rows that are compared with all
_AT_ONCE, _PIECES = 1024, 64  # rows of one comparison, and tasks
_NONE = 1e300  # the distance of equal rows, which do not count
_WORST = 8  # suspects of the rows that are read at once


def merges_others(rows: InputRows, distinct: DistinctRows) -> bool:
    """Whether sampled rows that are equal as float32 differ by more than the rounding of double precision."""
    ids = _even(rows.n_rows, _SAMPLED)
    first = distinct.first[distinct.group[ids]]
    merged = np.flatnonzero(first != ids)
    if not len(merged):
        return False
    merged = merged[_even(len(merged), _MERGED)]
    left, right = rows.exact(ids[merged]), rows.exact(first[merged])
    return bool((np.linalg.norm(left - right, axis=1) > _noise(rows, right)).any())


def check_rounding(rows: InputRows, points: Rows, sample: ExactSample, context: Context) -> None:
    """Raise if float32 does not hold the distances between near rows; say which columns are the cause.

    The sampled distances bound the rounding of all rows. Only if that is not far below the distances between near rows,
    the rows are read in double precision.
    """
    if not rows.rounds:
        return
    near = _near_distance(np.sqrt(sample.nearest.astype(np.float64)), sample.nearest.shape[1])
    farthest = bin_centres()[np.flatnonzero(sample.histogram)].max(initial=0)
    reach = math.sqrt(farthest) + np.linalg.norm(points.take(sample.points[:1]).astype(np.float64))
    if 2 * _FLOAT32 * reach > _SHARE * near:
        _compare(rows, sample.nearest.shape[1], context)


def _near_distance(lengths: np.ndarray, n_neighbors: int) -> float:
    """The distance of near rows, from sorted lists: the length scale of nearly all rows, or that of the median row.

    The one counts with ``epsilon="local"``, the other with "global", which aims for n_neighbors / 7 near rows.
    """
    own, usual = lengths[:, min(_LOCAL, n_neighbors) - 1], lengths[:, -(-n_neighbors // 7) - 1]
    return min(float(np.quantile(own, _FEW)), float(np.median(usual)))


class _Rounded(NamedTuple):
    """Rows in double precision, and what float32 loses of them."""

    rows: np.ndarray
    lost: np.ndarray


def _rounded(rows: np.ndarray) -> _Rounded:
    return _Rounded(rows, rows - rows.astype(np.float32))


def _compare(rows: InputRows, n_neighbors: int, context: Context) -> None:
    """Compare some rows, and those that are rounded most, with all in double precision; raise if rounding matters."""
    map_here, n_rows = context.workers.here.map, rows.n_rows
    worst = np.concatenate(map_here(lambda step: _most_rounded(rows, *step), rows.steps(0, n_rows), count=False))
    worst = worst[np.argsort(-worst[:, 1], kind="stable"), 0].astype(np.int64)
    usual = _even(n_rows, _SUSPECTS)
    ids = np.concatenate([usual, worst[: _SUSPECTS // 4], worst[_even(len(worst), _SUSPECTS)]])
    own = _rounded(rows.exact(ids))
    n_kept, pieces = max(min(_LOCAL, n_neighbors), -(-n_neighbors // 7)), ranges(n_rows, -(-n_rows // _PIECES))
    found = map_here(lambda piece: _nearest(rows, own, n_kept, *piece), pieces, count=False)
    lengths, lost = _keep(n_kept, *(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))
    scale = np.maximum(lengths[:, 0], _near_distance(lengths[: len(usual)], n_neighbors))
    beside = lengths <= 2 * scale[:, None]
    rounding = np.sqrt((lost**2).sum(axis=1, where=beside) / beside.sum(axis=1))
    wrong = rounding > _SHARE * scale
    if wrong.any():
        one = int(np.argmax(rounding / scale))
        sizes = (math.ldexp(float(size[one]), -rows.exponent) for size in (rounding, scale))
        _refuse(rows, np.unique(ids[wrong]), own.lost[wrong], *sizes)


def _most_rounded(rows: InputRows, start: int, stop: int) -> np.ndarray:
    """The rows of a range that float32 rounds most, and by how much."""
    lost = np.linalg.norm(_rounded(rows.exact(slice(start, stop))).lost, axis=1)
    worst = np.argsort(-lost, kind="stable")[:_WORST]
    return np.column_stack([start + worst, lost[worst]])


def _nearest(rows: InputRows, own: _Rounded, n_kept: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances of some rows to the nearest others of a range, and what float32 loses of these differences."""
    from scipy.spatial.distance import cdist

    shape = len(own.rows), n_kept
    lengths, lost = np.full(shape, _NONE), np.zeros(shape)
    for step in rows.steps(start, stop):
        block = rows.exact(slice(*step))
        for first, last in ranges(len(block), _AT_ONCE):
            others = _rounded(block[first:last])
            between = cdist(own.rows, others.rows)
            between[between == 0] = _NONE
            lengths, lost = _keep(
                n_kept,
                np.concatenate([lengths, between], axis=1),
                np.concatenate([lost, cdist(own.lost, others.lost)], axis=1),
            )
    return lengths, lost


def _keep(n_kept: int, lengths: np.ndarray, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest, sorted."""
    kept = np.argsort(lengths, axis=1, kind="stable")[:, :n_kept]
    return np.take_along_axis(lengths, kept, 1), np.take_along_axis(lost, kept, 1)


def _noise(rows: InputRows, values: np.ndarray) -> np.ndarray:
    """Distance up to which rows may differ by the rounding of double precision alone: of principal components, say."""
    given = 0.0 if rows.offset is None else rows.offset / (1.0 if rows.scale is None else rows.scale)
    shift = math.ldexp(float(np.linalg.norm(given)), rows.exponent)
    noise: np.ndarray = _COMPUTED * np.linalg.norm(values, axis=1) + _GIVEN * shift
    return noise


def _even(n_rows: int, most: int) -> np.ndarray:
    """At most so many row numbers, at even steps."""
    return np.unique(np.linspace(0, n_rows - 1, min(most, n_rows)).astype(np.int64))


def _refuse(rows: InputRows, ids: np.ndarray, lost: np.ndarray, rounding: float, scale: float) -> None:
    name, share = rows.name, (lost**2).sum(axis=0)
    columns = [int(c) for c in np.argsort(-share, kind="stable")[:3] if share[c] > 0.1 * share.sum()]
    labels = ", ".join(str(c) if rows.feature_names is None else f"{c} ('{rows.feature_names[c]}')" for c in columns)
    text = (
        f"{name} must keep the distances between near rows when it is rounded to float32; it changes them by "
        f"{rounding:.2g} where near rows are {scale:.2g} apart, in {checks.rows_named(ids)}. "
    )
    if rows.metric != "euclidean":
        way_out = f"All rows point nearly one way: shift the columns of {name} by their means, or use another metric."
    else:
        way_out = (
            f"Most of it comes from column{'s' * (len(columns) > 1)} {labels}, whose values are too large beside their "
            "differences. Shift groups of rows that are far apart there nearer to each other (across such gaps the "
            "kernel is 0), or embed each group alone"
            + (f"; sparse {name} is not shifted to its median, dense is." if rows.is_sparse else ".")
            + f" If differences this small mean nothing, convert {name} to float32: {name}.astype('float32')."
        )
    raise ValueError(text + way_out)
