"""Steps of the search inside one part: trees of median splits, comparisons of cells, and threads to run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg  # loaded before BLAS is limited to one thread: the compiled loops call its matrix product
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from scalable_gpe.loops import search as loops

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Each = Callable[[int, Callable[[int, int], Any]], None]


@dataclass(frozen=True)
class Candidates:
    """Rows that a cell is compared with, besides its own (see `loops.compare_cells`)."""

    known: Ints
    n_used: int
    max_candidates: int
    origins: Ints


def compare(
    each: Each,
    Z: Floats,
    rows: Ints,
    cells: NDArray[np.int64],
    candidates: Candidates,
    neighbors: Ints,
    distances: Floats,
) -> None:
    """Improve the lists of all cells; order does not matter: a snapshot is read, and each list belongs to one cell."""
    with_what = (candidates.origins, candidates.n_used, candidates.max_candidates, candidates.known)
    on_ranges(each, loops.compare_cells, len(cells) - 1, (Z, rows, cells), (*with_what, neighbors, distances))


def root(n_rows: int) -> tuple[Ints, NDArray[np.int64]]:
    """All rows as one node."""
    return np.arange(n_rows, dtype=np.int32), np.array([0, n_rows], np.int64)


def groups_of(labels: Ints) -> tuple[Ints, NDArray[np.int64]]:
    """The rows grouped by label, and the bounds of the groups."""
    rows = np.argsort(labels, kind="stable").astype(np.int32)
    begins = np.flatnonzero(np.diff(labels[rows], prepend=-1))
    return rows, np.append(begins, len(labels)).astype(np.int64)


def grow(
    Z: Floats, rows: Ints, bounds: NDArray[np.int64], leaf_rows: int, seed: np.uint64, n_powers: int, each: Each
) -> tuple[Ints, NDArray[np.int64]]:
    """Halve nodes along their spread to at most `leaf_rows` rows each; return the rows in order and the bounds."""
    rows = rows.copy()
    level = 0
    while np.diff(bounds).max() > leaf_rows:
        large = np.diff(bounds) > leaf_rows
        halve(Z, rows, bounds, leaf_rows, np.uint64(int(seed) ^ (level << 40)), n_powers, each)
        middles = (bounds[:-1] + np.diff(bounds) // 2)[large]
        bounds = np.sort(np.concatenate([bounds, middles]))
        level += 1
    return rows, bounds


def halve(
    Z: Floats, rows: Ints, bounds: NDArray[np.int64], leaf_rows: int, seed: np.uint64, n_powers: int, each: Each
) -> tuple[Floats, Floats, Floats]:
    """Split every node with more than `leaf_rows` rows: order its rows by side of a plane; return the planes."""
    n_nodes = len(bounds) - 1
    planes = (
        np.zeros((n_nodes, Z.shape[1]), np.float32),
        np.zeros((n_nodes, Z.shape[1]), np.float32),
        np.zeros(n_nodes, np.float32),
    )
    on_ranges(each, loops.split_nodes, n_nodes, (Z, rows, bounds), (leaf_rows, seed, n_powers, *planes))
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


def reduced(X: Floats, mean: Floats, directions: Floats, each: Each) -> Floats:
    """Project rows onto directions, in products of one shape, so that threads do not change a bit."""
    out = np.empty((len(X), directions.shape[1]), np.float32)

    def project(first: int, last: int) -> None:
        for start in range(first * 1024, min(last * 1024, len(X)), 1024):
            block = np.zeros((1024, X.shape[1]), np.float32)
            rows = X[start : start + 1024]
            np.subtract(rows, mean, out=block[: len(rows)])
            out[start : start + 1024] = (block @ directions)[: len(rows)]

    each(-(-len(X) // 1024), project)
    return out


def repair(X: Floats, names: Ints, near: Ints, far: Floats) -> None:
    """Compare rows whose lists are short with the whole part (distances that overflow leave lists short)."""
    every = np.arange(len(X), dtype=np.int32)
    for row in np.flatnonzero(near[:, -1] < 0):
        others = np.delete(every, row)
        with np.errstate(over="ignore"):
            distances = ((X[others].astype(np.float64) - X[row]) ** 2).sum(axis=1).astype(np.float32)
        best = np.lexsort((names[others], distances))[: near.shape[1]]
        near[row], far[row] = names[others][best], distances[best]


def on_ranges(each: Each, loop: Callable[..., Any], n: int, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """Run a compiled loop over the ranges of 0..n."""
    each(n, lambda first, last: loop(*before, first, last, *after))


def alone(n: int, task: Callable[[int, int], Any]) -> None:
    """Run a task without threads."""
    task(0, n)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[Each]:
    """Give a function that runs a task on ranges of 0..n in threads, with BLAS limited to one thread each."""
    n_threads = n_jobs if n_jobs is not None and n_jobs > 0 else os.cpu_count() or 1
    with ThreadPoolExecutor(n_threads) as pool, threadpool_limits(limits=1, user_api="blas"):

        def each(n: int, task: Callable[[int, int], Any]) -> None:
            n_ranges = min(n, 4 * n_threads)
            bounds = [i * n // n_ranges for i in range(n_ranges + 1)] if n else [0]
            list(pool.map(task, bounds[:-1], bounds[1:]))

        yield each
