"""The first pass over the rows: check that they are finite, hash them, find duplicates, fingerprint the input."""

import hashlib
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.execution.sharing import reading_steps
from scalable_gpe.io.rows import InputRows, Rows
from scalable_gpe.storage.blocks import ranges


def hash_rows(rows: Rows, context: Context) -> np.ndarray:
    """Two 64-bit hashes per row; reading also checks that every row is finite."""
    from scalable_gpe.loops import points

    panels = Panels(context)
    hashes = panels.new((rows.n_rows, 2), np.uint64)

    def hash_rows(piece: tuple[int, int]) -> None:
        out = hashes.room(*piece)
        for start, stop in reading_steps(rows.n_features, *piece):
            block = rows.read(start, stop) + np.float32(0)  # -0.0 and 0.0 are the same coordinate
            points.hash_rows(block.view(np.uint32), out[start - piece[0] : stop - piece[0]])
        hashes.put(piece[0], out)

    pieces = ranges(rows.n_rows, context.block_rows(rows.n_rows))
    with context.workers.progress.stage("rows", len(pieces)):
        context.workers.map(hash_rows, pieces)
    found = hashes.rows(0, rows.n_rows)
    panels.clear()
    return found


def distinct_rows(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """First row of each distinct point (ascending), and the point of each row (None: no row repeats)."""
    ranked = np.sort(hashes[:, 0])
    if (ranked[1:] != ranked[:-1]).all():
        return np.arange(len(hashes), dtype=np.int64), None
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ranked = hashes[order]
    new = np.ones(len(order), bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    if new.all():
        return np.arange(len(order), dtype=np.int64), None
    # lexsort is stable: the first of a run of equal hashes is the first row of its point
    first = order[new]
    cluster = np.cumsum(new) - 1
    rank = np.empty(len(first), np.int32)
    by_row = np.argsort(first)
    rank[by_row] = np.arange(len(first), dtype=np.int32)
    group = np.empty(len(order), np.int32)
    group[order] = rank[cluster]
    return first[by_row].astype(np.int64), group


@dataclass(frozen=True)
class RowsFingerprint:
    """Fingerprint of an input before all of it is read: its shape and a checksum of rows at even steps."""

    n_rows: int
    n_features: int
    sample: str


def fingerprint(rows: InputRows) -> RowsFingerprint:
    """Shape and checksum of sampled rows, and of their units where these are not the user's."""
    digest = hashlib.sha256()
    for part in rows.sample_parts():
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(f"{rows.exponent}".encode() if rows.exponent else b"")
    return RowsFingerprint(rows.n_rows, rows.n_features, digest.hexdigest()[:16])


def content(hashes: np.ndarray) -> str:
    """Checksum of all rows."""
    return hashlib.sha256(np.ascontiguousarray(hashes).tobytes()).hexdigest()[:16]
