"""A kernel that is the user's own matrix."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.context import local_context
from scalable_gpe.graph.edges import Edges
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.storage.records import matrix_name
from scalable_gpe.storage.store import write_whole

_LEAST = 1e-25  # of the diagonal: weights far below it must not underflow


def from_scipy(matrix: Any) -> SparseKernel:
    """Make a kernel from a symmetric scipy matrix with positive diagonal and no negative entries."""
    csr = matrix.tocsr().astype(np.float64)
    csr.sum_duplicates()
    csr.sort_indices()
    _check_matrix(csr)
    csr = csr.astype(np.float32)
    n_rows = csr.shape[0]
    context, name = local_context(n_rows), matrix_name(b"".join(map(bytes, (csr.indptr, csr.indices, csr.data))))
    rows = context.block_rows(n_rows)
    columns = context.store.ragged(f"{name}/indices", -(-n_rows // rows), csr.nnz, np.int32)
    weights = context.store.ragged(f"{name}/weights", -(-n_rows // rows), csr.nnz, np.float32)
    for block, start in enumerate(range(0, n_rows, rows)):
        at = slice(csr.indptr[start], csr.indptr[min(start + rows, n_rows)])
        columns.write(block, csr.indices[at])
        weights.write(block, csr.data[at])
    degree = context.store.table(f"{name}/degree", (n_rows,), np.int32)
    write_whole(degree, np.diff(csr.indptr))
    edges = Edges(degree, rows, columns, weights)
    order, diagonal = StorageOrder(np.arange(n_rows, dtype=np.int64)), csr.diagonal().astype(np.float64)
    return SparseKernel(context, name, order, edges, None, None, diagonal=diagonal)


def _check_matrix(csr: Any) -> None:
    if csr.shape[0] != csr.shape[1]:
        raise ValueError(f"kernel must be a square matrix; got shape {csr.shape}.")
    if not np.isfinite(csr.data).all() or (csr.data < 0).any():
        raise ValueError("kernel must have finite entries of at least 0; some are negative, infinite or NaN.")
    zero = np.flatnonzero(csr.diagonal() <= 0)
    if zero.size:
        raise ValueError(
            f"kernel must have a positive diagonal; none in {checks.rows_named(zero)}. Set it to 1: without it the "
            "scaling may not exist."
        )
    if csr.diagonal().min() < _LEAST or csr.data.max() > 1 / _LEAST:
        raise ValueError(
            f"kernel must have a diagonal above {_LEAST:g} and entries below {1 / _LEAST:g}, for single precision; got "
            f"{csr.diagonal().min():.3g} and {csr.data.max():.3g}. Divide it by a constant: A does not depend on it."
        )
    if abs(csr - csr.T).max() > 1e-6 * csr.data.max():
        raise ValueError("kernel must be symmetric; it is not. Use (kernel + kernel.T) / 2.")
