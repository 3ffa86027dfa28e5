"""The random matrix G; each entry is a function of (random_state, row, column)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks

KINDS = ("gaussian", "bernoulli")
_MAX_COLUMNS = 2**32


def sketch_matrix(
    n_rows: int,
    n_components: int,
    *,
    kind: str = "gaussian",
    random_state: Any = 0,
    rows: Any = None,
    columns: Any = None,
) -> npt.NDArray[np.float64]:
    r"""Random matrix G of a sketch :math:`Y = A^p G / \sqrt{k}`, or any part of it.

    .. math:: G_{ij} \sim N(0, 1) \quad\text{or}\quad G_{ij} = \pm 1 \text{ with equal probability}

    Entry (i, j) is fixed by ``(kind, random_state, i, j)``: a part has the numbers of the whole, and a wider
    matrix begins with the columns of a narrower one. The numbers are the same on every platform.

    Parameters
    ----------
    n_rows, n_components : int
        Shape of the whole matrix.
    kind : {"gaussian", "bernoulli"}
        Normal entries, or symmetric signs.
    random_state : int, None or numpy generator
        A seed of 64 bits; None draws a new one.
    rows, columns : slice or array of int, optional
        The part to make; everything by default.

    Returns
    -------
    ndarray of float64

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> G = gpe.sketch_matrix(1000, 4, random_state=1)
    >>> part = gpe.sketch_matrix(1000, 4, random_state=1, rows=[7, 3], columns=slice(2, 4))
    >>> bool((part == G[[7, 3], 2:]).all())
    True
    >>> gpe.sketch_matrix(2, 3, kind="bernoulli").tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]
    """
    checks.check_choice(kind, KINDS, "kind")
    row_ids = checks.check_selection(rows, checks.check_count(n_rows, "n_rows"), "rows")
    width = checks.check_count(n_components, "n_components", maximum=_MAX_COLUMNS)
    column_ids = checks.check_selection(columns, width, "columns")
    return Sketch(kind, checks.check_random_state(random_state)).entries(row_ids, column_ids)


@dataclass(frozen=True)
class Sketch:
    """A random matrix: its kind, its seed, and the floating-point type of its panels."""

    kind: str
    seed: int
    precision: str = "single"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a panel."""
        return np.dtype(np.float32 if self.precision == "single" else np.float64)

    def entries(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Entries of G for some of the user's rows."""
        from scalable_gpe.loops import random

        out = np.empty((len(rows), len(columns)))
        fill = random.fill_gaussian if self.kind == "gaussian" else random.fill_bernoulli
        fill(out, np.asarray(rows, dtype=np.int64), columns, np.uint64(self.seed))
        return out
