"""Wide rows in one byte per feature: a quarter of the memory to read, and distances that rank almost as well."""

from __future__ import annotations

import numpy as np

from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.cells.trees import Bytes, Floats, run
from scalable_gpe.loops import search as loops
from scalable_gpe.loops.vectors import BYTES_AT_ONCE

_MOST_FEATURES = 2**15  # a sum of so many squares of bytes fits in 32 bits
_SAMPLE = 1024  # rows that choose the step, and on which distances are compared
_SHARE = 0.9999  # of the values that lie within 127 steps
_WINDOW, _NEAREST = 32, 4  # rows before and after a sampled one, and how many of them are near
_GOOD = 0.02  # error of a squared distance up to which bytes are used


def in_bytes(X: Floats, workers: Workers) -> Bytes | None:
    """The rows in bytes, or None if they would not rank neighbours well.

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
