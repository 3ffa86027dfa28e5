"""Sample weights: how much each row counts, as if it were there that many times."""

import hashlib
from typing import Any

import numpy as np

from scalable_gpe import checks

_RANGE = (1e-12, 1e12)  # float32 holds their roots, and what is divided by them


def weight_checksum(sample_weight: np.ndarray | None) -> str | None:
    """Checksum of the weights, which enters the name of the heat kernel; None without weights."""
    if sample_weight is None:
        return None
    return hashlib.sha256(np.ascontiguousarray(sample_weight).tobytes()).hexdigest()[:12]


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Check one weight per row; None if all are 1, which is the same as no weights.

    Examples
    --------
    >>> check_sample_weight([1, 1, 2.5], 3).tolist()
    [1.0, 1.0, 2.5]
    """
    if sample_weight is None:
        return None
    values = np.asarray(sample_weight)
    if values.dtype.kind not in "fiu":
        raise TypeError(f"sample_weight must hold numbers, one per row; got dtype {values.dtype}.")
    if values.shape != (n_rows,):
        text = f"sample_weight must hold one number for each of the {n_rows} rows; got {values.shape}."
        raise ValueError(text)
    values = values.astype(np.float64)
    wrong = np.flatnonzero(~((values >= _RANGE[0]) & (values <= _RANGE[1])))
    if wrong.size:
        raise ValueError(
            f"sample_weight must lie between {_RANGE[0]:g} and {_RANGE[1]:g}; others in "
            f"{checks.rows_named(wrong)}. Drop rows without weight, or divide all weights by a constant."
        )
    return None if (values == 1).all() else values
