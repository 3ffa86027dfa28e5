"""Dask arrays for users."""

from typing import Any


def dask_rows(matrix: Any, rows: int) -> Any:
    """Dask array of CSR blocks of `rows` rows each."""
    import dask
    import dask.array as da

    blocks = [
        da.from_delayed(
            dask.delayed(matrix[start : start + rows]),
            shape=(min(rows, matrix.shape[0] - start), matrix.shape[1]),
            dtype=matrix.dtype,
            meta=matrix[:0],
        )
        for start in range(0, matrix.shape[0], rows)
    ]
    return da.concatenate(blocks, axis=0)
