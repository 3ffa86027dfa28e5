"""Compiled map from the coordinates of curved patches to space, row by row."""

from math import cos
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.loops.compiled import njit

Array = npt.NDArray[np.float64]


@njit(nogil=True, cache=True)
def fill_patches(
    out: Array,
    coordinates: Array,
    patch: npt.NDArray[np.int64],
    frames: Array,
    centres: Array,
    frequencies: Array,
    phases: Array,
    amplitude: Any,
) -> None:
    """Write centre + (u, amplitude cos(F u + phase)) @ frame, with the frame of the row's patch."""
    dimension, n_waves = coordinates.shape[1], phases.shape[1]
    feature = np.empty(dimension + n_waves)
    for i in range(out.shape[0]):
        m = patch[i]
        for a in range(dimension):
            feature[a] = coordinates[i, a]
        for w in range(n_waves):
            angle = phases[m, w]
            for a in range(dimension):
                angle += frequencies[m, w, a] * coordinates[i, a]
            feature[dimension + w] = amplitude * cos(angle)
        for j in range(out.shape[1]):
            out[i, j] = centres[m, j]
        for f in range(feature.size):
            for j in range(out.shape[1]):
                out[i, j] += feature[f] * frames[m, f, j]
