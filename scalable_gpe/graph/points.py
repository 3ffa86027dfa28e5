"""The rows of an input as distinct points: one pass that checks and hashes them, rows in another order, rounding."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.graph.recall import ExactSample, bin_centres
from scalable_gpe.io.rows import InputRows, Rows, rows_at_once
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import number_leaders, pieces, take_rows

_SHARD_BYTES = 2**25
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


class RowSubset:
    """Some rows of another source, in a given order."""

    def __init__(self, rows: Rows, ids: np.ndarray | Panel) -> None:
        self._rows, self._ids = rows, Panel(ids) if isinstance(ids, np.ndarray) else ids
        self.n_rows, self.n_features, self.resident = ids.shape[0], rows.n_features, rows.resident

    def read(self, start: int, stop: int) -> np.ndarray:
        ids = self._ids.rows(start, stop)
        if len(ids) and int(ids[-1]) - int(ids[0]) < 2 * len(ids) and (np.diff(ids) > 0).all():
            rows: np.ndarray = self._rows.read(int(ids[0]), int(ids[-1]) + 1)[ids - ids[0]]
            return rows
        return self._rows.take(ids)

    def take(self, ids: np.ndarray) -> np.ndarray:
        return self._rows.take(take_rows(self._ids.whole(), ids))


def ensure_shared(rows: InputRows, context: Context) -> Rows:
    """Return rows that every worker can read; rows that only this process has are first written to the store."""
    if not context.workers.remote or rows.shared:
        return rows
    shard = min(context.block_rows(rows.n_rows), rows_per_shard(rows.n_features), rows.n_rows)
    shape = rows.n_rows, rows.n_features
    table = context.store.table(f"{context.scratch()}/rows", shape, np.float32, shard_rows=shard)

    def copy(piece: tuple[int, int]) -> None:
        table.write(piece[0], np.concatenate([rows.read(*step) for step in rows.steps(*piece)]))

    context.workers.here.map(copy, ranges(rows.n_rows, table.shard_rows), count=False)
    return table


def rows_per_shard(n_features: int) -> int:
    """Rows of a shard of points: a power of two, about 32 MB."""
    return 1 << max(8, (_SHARD_BYTES // (4 * n_features)).bit_length() - 1)


def hash_rows(rows: Rows, context: Context) -> np.ndarray:
    """Two 64-bit hashes per row; reading also checks that every row is finite."""
    from scalable_gpe.loops import points

    panels = Panels(context)
    hashes = panels.new((rows.n_rows, 2), np.uint64)

    def hash_rows(piece: tuple[int, int]) -> None:
        out = hashes.room(*piece)
        for start, stop in ranges(len(out), rows_at_once(rows.n_features)):
            # -0.0 and 0.0 are the same coordinate
            block = rows.read(piece[0] + start, piece[0] + stop) + np.float32(0)
            points.hash_rows(block.view(np.uint32), out[start:stop])
        hashes.put(piece[0], out)

    blocks = ranges(rows.n_rows, context.block_rows(rows.n_rows))
    only_here = isinstance(rows, InputRows) and not rows.shared
    with context.workers.progress.stage("rows", len(blocks)):
        (context.workers.here if only_here else context.workers).map(hash_rows, blocks)
    all_hashes = hashes.rows(0, rows.n_rows)
    panels.clear()
    return all_hashes


def add_lost_digits(hashes: np.ndarray, rows: InputRows, context: Context) -> None:
    """Change the hashes of rows so that those of rows differ which are equal as float32 only."""
    from scalable_gpe.loops import points

    def add(step: tuple[int, int]) -> None:
        block, out = rows.exact(slice(*step)), np.empty((step[1] - step[0], 2), np.uint64)
        points.hash_rows(np.ascontiguousarray(block - block.astype(np.float32)).view(np.uint32), out)
        hashes[slice(*step)] ^= out

    context.workers.here.map(add, rows.steps(0, rows.n_rows), count=False)


@dataclass(frozen=True)
class DistinctRows:
    """Distinct points of an input in which rows repeat.

    `first` is the first row of each point (ascending), `group` the point of each row.
    """

    first: np.ndarray
    group: np.ndarray


def distinct_rows(hashes: np.ndarray, context: Context) -> DistinctRows | None:
    """Merge rows with equal hashes; None if no row repeats.

    Rows are compared bucket by bucket, by the first bits of their hashes, as many rows at a time as memory allows.
    """
    n_rows = len(hashes)
    n_bits = (context.plan.compared_buckets(n_rows) - 1).bit_length()
    leader: np.ndarray | None = None
    for bucket in range(2**n_bits):
        rows, compared = _in_bucket(hashes, bucket, n_bits)
        for start, others in _repeats(compared, rows):
            if leader is None:
                leader = context.filled(n_rows, np.int32, lambda start, stop: np.arange(start, stop))
            leader[others] = start
    return None if leader is None else _numbered(leader, context)


def _in_bucket(hashes: np.ndarray, bucket: int, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first hash begins with some bits, ascending, and their hashes.

    They are spread over all pages of the hashes, so that both are taken in one pass.
    """
    if not n_bits:
        return np.arange(len(hashes)), hashes
    shift = np.uint64(64 - n_bits)
    rows, compared = [], []
    for start, stop in pieces(len(hashes)):
        piece = hashes[start:stop]
        in_bucket = np.flatnonzero(piece[:, 0] >> shift == np.uint64(bucket))
        rows.append(start + in_bucket)
        compared.append(piece[in_bucket])
    return np.concatenate(rows), np.concatenate(compared)


def _repeats(hashes: np.ndarray, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows that are equal to an earlier one, with the first row that each is equal to."""
    ranked = np.sort(hashes[:, 0])
    if (ranked[1:] != ranked[:-1]).all():
        return
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ranked = hashes[order]
    new = np.ones(len(order), bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    if not new.all():
        # lexsort is stable: the first of a run of equal hashes is the first row of its point
        first = order[new][np.cumsum(new) - 1]
        yield rows[first[~new]], rows[order[~new]]


def _numbered(leader: np.ndarray, context: Context) -> DistinctRows:
    """Number the points by their first rows."""
    group, n_points = number_leaders(leader, context.empty)
    first = context.empty((n_points,), np.int64)
    for start, stop in pieces(len(leader)):
        first_rows = start + np.flatnonzero(leader[start:stop] == np.arange(start, stop))
        if len(first_rows):
            first[group[first_rows[0]] : group[first_rows[-1]] + 1] = first_rows
    return DistinctRows(first, group)


@dataclass(frozen=True)
class RowsFingerprint:
    """Fingerprint of an input before all of it is read: its shape and a checksum of rows at even steps."""

    n_rows: int
    n_features: int
    sample: str


def fingerprint(rows: InputRows) -> RowsFingerprint:
    """Shape and checksum of sampled rows, of their units where these are not the user's, and of the rows left out."""
    digest = hashlib.sha256()
    for part in rows.sample_parts():
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(f"{rows.exponent}".encode() if rows.exponent else b"")
    digest.update(b"" if rows.dropped is None else rows.dropped.tobytes())
    return RowsFingerprint(rows.n_rows, rows.n_features, digest.hexdigest()[:16])


def content(hashes: np.ndarray) -> str:
    """Checksum of all rows."""
    digest = hashlib.sha256()
    for start, stop in pieces(len(hashes)):
        digest.update(np.ascontiguousarray(hashes[start:stop]).data)
    return digest.hexdigest()[:16]


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


def _lost(rows: np.ndarray) -> np.ndarray:
    """What float32 loses of rows."""
    return rows - rows.astype(np.float32)


def _compare(rows: InputRows, n_neighbors: int, context: Context) -> None:
    """Compare some rows, and those that are rounded most, with all in double precision; raise if rounding matters."""
    map_here, n_rows = context.workers.here.map, rows.n_rows
    worst = np.concatenate(map_here(lambda step: _most_rounded(rows, *step), rows.steps(0, n_rows), count=False))
    worst = worst[np.argsort(-worst[:, 1], kind="stable"), 0].astype(np.int64)
    usual = _even(n_rows, _SUSPECTS)
    ids = np.concatenate([usual, worst[: _SUSPECTS // 4], worst[_even(len(worst), _SUSPECTS)]])
    own = rows.exact(ids)
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
        _refuse(rows, np.unique(ids[wrong]), _lost(own)[wrong], *sizes)


def _most_rounded(rows: InputRows, start: int, stop: int) -> np.ndarray:
    """The rows of a range that float32 rounds most, and by how much."""
    lost = np.linalg.norm(_lost(rows.exact(slice(start, stop))), axis=1)
    worst = np.argsort(-lost, kind="stable")[:_WORST]
    return np.column_stack([start + worst, lost[worst]])


def _nearest(rows: InputRows, own: np.ndarray, n_kept: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances of some rows to the nearest others of a range, and what float32 loses of these differences."""
    from scipy.spatial.distance import cdist

    shape = len(own), n_kept
    lengths, lost = np.full(shape, _NONE), np.zeros(shape)
    for step in rows.steps(start, stop):
        block = rows.exact(slice(*step))
        for first, last in ranges(len(block), _AT_ONCE):
            others = block[first:last]
            between = cdist(own, others)
            between[between == 0] = _NONE
            lengths, lost = _keep(
                n_kept,
                np.concatenate([lengths, between], axis=1),
                np.concatenate([lost, cdist(_lost(own), _lost(others))], axis=1),
            )
    return lengths, lost


def _keep(n_kept: int, lengths: np.ndarray, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
