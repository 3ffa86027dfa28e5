"""The random matrix G, entry by entry a function of (random_state, row, column)."""

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
        A seed of 64 bits; None takes a fresh one.
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
    return _entries(kind, row_ids, column_ids, checks.check_random_state(random_state))


def _entries(
    kind: str, row_ids: npt.NDArray[np.int64], column_ids: npt.NDArray[np.int64], seed: int
) -> npt.NDArray[np.float64]:
    from scalable_gpe.loops import random

    out = np.empty((row_ids.size, column_ids.size))
    fill = random.fill_gaussian if kind == "gaussian" else random.fill_bernoulli
    fill(out, row_ids, column_ids, np.uint64(seed))
    return out
