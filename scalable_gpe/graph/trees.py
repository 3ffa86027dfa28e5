"""Steps of the search inside one part: trees of median splits, comparisons inside their leaves, rows in bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg  # loaded before BLAS is limited to one thread: the compiled loops call its matrix product
from numpy.typing import NDArray

from scalable_gpe.execution.workers import Workers
from scalable_gpe.loops import search as loops
from scalable_gpe.loops.vectors import BYTES_AT_ONCE

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.int8]

_MOST_FEATURES = 2**15  # a sum of so many squares of bytes fits in 32 bits
_SAMPLE = 1024  # rows that choose the step, and on which distances are compared
_SHARE = 0.9999  # of the values that lie within 127 steps
_WINDOW, _NEAREST = 32, 4  # rows before and after a sampled one, and how many of them are near
_GOOD = 0.02  # error of a squared distance up to which bytes are used


def cut(workers: Workers, n: int, per_thread: int = 4) -> list[tuple[int, int]]:
    """Cut 0..n into ranges: one for a single thread, otherwise some for each."""
    n_ranges = min(n, 1 if workers.n_jobs == 1 else per_thread * workers.n_jobs)
    return list(pairwise([i * n // n_ranges for i in range(n_ranges + 1)])) if n else []


def run(
    workers: Workers,
    loop: Callable[..., Any],
    n: int,
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    per_thread: int = 4,
) -> None:
    """Run a compiled loop over 0..n in threads; it takes the bounds of its range between the other arguments."""
    workers.map(lambda piece: loop(*before, *piece, *after), cut(workers, n, per_thread), count=False)


def compare_leaves(
    workers: Workers, Z: Floats | Bytes, rows: Ints, leaves: NDArray[np.int64], neighbors: Ints, distances: Floats
) -> None:
    """Improve the lists by all pairs of rows of one leaf; leaves are disjoint, so their order does not matter."""
    loop = loops.compare_byte_leaves if Z.dtype == np.int8 else loops.compare_leaves
    run(workers, loop, len(leaves) - 1, (Z, rows, leaves), (neighbors, distances))


def root(n_rows: int) -> tuple[Ints, NDArray[np.int64]]:
    """All rows as one node."""
    return np.arange(n_rows, dtype=np.int32), np.array([0, n_rows], np.int64)


def grow(
    Z: Floats, rows: Ints, bounds: NDArray[np.int64], leaf_rows: int, seed: np.uint64, n_powers: int, workers: Workers
) -> tuple[Ints, NDArray[np.int64]]:
    """Halve nodes along their spread to at most `leaf_rows` rows each; return the rows in order and the bounds."""
    rows = rows.copy()
    level = 0
    while np.diff(bounds).max() > leaf_rows:
        large = np.diff(bounds) > leaf_rows
        halve(Z, rows, bounds, leaf_rows, np.uint64(int(seed) ^ (level << 40)), n_powers, workers)
        middles = (bounds[:-1] + np.diff(bounds) // 2)[large]
        bounds = np.sort(np.concatenate([bounds, middles]))
        level += 1
    return rows, bounds


def halve(
    Z: Floats, rows: Ints, bounds: NDArray[np.int64], leaf_rows: int, seed: np.uint64, n_powers: int, workers: Workers
) -> tuple[Floats, Floats, Floats]:
    """Split every node with more than `leaf_rows` rows: order its rows by side of a plane; return the planes."""
    n_nodes = len(bounds) - 1
    planes = (
        np.zeros((n_nodes, Z.shape[1]), np.float32),
        np.zeros((n_nodes, Z.shape[1]), np.float32),
        np.zeros(n_nodes, np.float32),
    )
    run(workers, loops.split_nodes, n_nodes, (Z, rows, bounds), (leaf_rows, seed, n_powers, *planes))
    return planes


def fit_reduction(sample: Floats, n_reduced: int, seed: np.uint64) -> tuple[Floats, Floats]:
    """The mean and the leading principal directions of a sample (randomised, two powers)."""
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = sample - mean
    start = np.random.default_rng(int(seed)).standard_normal((n_reduced + 16, len(sample))).astype(np.float32)
    basis = np.ascontiguousarray(start @ centred).T
    for _ in range(2):
        basis = scipy.linalg.qr(basis, mode="economic")[0]
        basis = centred.T @ (centred @ basis)
    basis = scipy.linalg.qr(basis, mode="economic")[0]
    _, _, turns = scipy.linalg.svd(centred @ basis, full_matrices=False)
    return mean, np.ascontiguousarray((basis @ turns.T)[:, :n_reduced])


def reduced(X: Floats, mean: Floats, directions: Floats, workers: Workers) -> Floats:
    """Project rows onto directions, in products of one shape, so that threads do not change a bit."""
    out = np.empty((len(X), directions.shape[1]), np.float32)

    def project(piece: tuple[int, int]) -> None:
        for start in range(piece[0] * 1024, min(piece[1] * 1024, len(X)), 1024):
            block = np.zeros((1024, X.shape[1]), np.float32)
            rows = X[start : start + 1024]
            np.subtract(rows, mean, out=block[: len(rows)])
            out[start : start + 1024] = (block @ directions)[: len(rows)]

    workers.map(project, cut(workers, -(-len(X) // 1024)), count=False)
    return out


def in_bytes(X: Floats, workers: Workers) -> Bytes | None:
    """Wide rows in one byte per feature, a quarter of the memory to read; None if they would not rank neighbours well.

    All features have the same step, so that distances keep their order. Rows in tight groups far from each other, and
    rows with a few huge values, need more than a byte. X is in the order of a tree.
    """
    if X.shape[1] > _MOST_FEATURES:
        return None
    rows = np.unique(np.linspace(0, len(X) - 1, _SAMPLE).astype(np.int64))
    sample = X[rows]
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    reach = float(np.quantile(np.abs(sample - mean), _SHARE))
    if not 0 < reach < np.inf:
        return None
    per_step = np.float32(127 / reach)
    out = np.empty((len(X), -(-X.shape[1] // BYTES_AT_ONCE) * BYTES_AT_ONCE), np.int8)
    run(workers, loops.quantize_rows, len(X), (X,), (mean, per_step, out))
    return out if _error(X, out, per_step, rows) <= _GOOD else None


def _error(X: Floats, quantized: Bytes, per_step: np.float32, rows: np.ndarray) -> float:
    """The relative error of a squared distance to near rows: the largest one of a row, the median over rows."""
    worst = []
    for row in rows:
        window = np.delete(np.arange(max(0, row - _WINDOW), min(len(X), row + _WINDOW + 1)), min(row, _WINDOW))
        exact = _squares(X[window].astype(np.float64) - X[row])
        near = np.argsort(exact, kind="stable")[:_NEAREST]
        rough = _squares(quantized[window[near]].astype(np.float64) - quantized[row]) / float(per_step) ** 2
        worst.append(np.max(np.abs(rough - exact[near]) / np.maximum(exact[near], np.finfo(np.float32).tiny)))
    return float(np.median(worst))


def _squares(differences: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.einsum("ij,ij->i", differences, differences)
    return squares
