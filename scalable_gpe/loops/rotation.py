"""Compiled loop: rows times a matrix."""

import numpy as np

from scalable_gpe.loops.compiled import njit


@njit(nogil=True, cache=True)
def rotate_rows(values, axes, out):
    """``out = values @ axes`` in float64, each row by itself: its bytes do not depend on the rows beside it."""
    width = axes.shape[1]
    total = np.empty(width)
    for i in range(len(values)):
        for c in range(width):
            total[c] = 0.0
        for j in range(axes.shape[0]):
            value = np.float64(values[i, j])
            for c in range(width):
                total[c] += value * axes[j, c]
        for c in range(width):
            out[i, c] = total[c]
