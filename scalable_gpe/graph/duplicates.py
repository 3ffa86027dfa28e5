"""The first pass over the rows: check that they are finite, hash them, find duplicates, fingerprint the input."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.io.rows import InputRows, Rows, rows_at_once
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import number_leaders, pieces


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
