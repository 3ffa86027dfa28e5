"""Any input as float32 rows, read block by block."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from scalable_gpe import checks
from scalable_gpe.io.files import Points, read_points
from scalable_gpe.io.npy import MappedFile, RemoteFile
from scalable_gpe.storage.blocks import ranges

METRICS = ("euclidean", "cosine")
_SAMPLE = 1024
_BYTES_AT_ONCE = 2**24


class Rows(Protocol):
    """Points as the rest of the library sees them: float32, in ranges or by number.

    `resident`: they are in memory already.
    """

    n_rows: int
    n_features: int
    resident: bool

    def read(self, start: int, stop: int) -> np.ndarray: ...
    def take(self, ids: np.ndarray) -> np.ndarray: ...


class InputRows:
    """Points as the rest of the library sees them: float32, in ranges or by number.

    Input wider than float32 is shifted by a fixed row before it is rounded, so that large
    offsets (dates, coordinates) do not swallow the differences between rows.
    """

    def __init__(
        self,
        get: Callable[[Any], np.ndarray],
        shape: tuple[int, int],
        *,
        metric: str = "euclidean",
        names: np.ndarray | None = None,
        resident: bool = False,
        offset: np.ndarray | None = None,
        name: str = "X",
    ) -> None:
        self._get, self._name = get, name
        self.n_rows, self.n_features = shape
        self.metric = metric
        self.names = names
        self.resident = resident
        self.offset = offset

    def read(self, start: int, stop: int) -> np.ndarray:
        """InputRows start to stop, C-contiguous float32."""
        return self._convert(self._get(slice(start, stop)), np.arange(start, stop))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """InputRows by number."""
        return self._convert(self._get(ids), ids)

    def _convert(self, values: np.ndarray, ids: np.ndarray) -> np.ndarray:
        if self.metric == "cosine":
            return _unit(np.asarray(values, dtype=np.float64), ids, self._name)
        if self.offset is not None:
            values = np.asarray(values, dtype=np.float64) - self.offset
        with np.errstate(over="ignore"):
            block = np.require(values, dtype=np.float32, requirements=["C", "W"])
        checks.check_finite(block, self._name, ids if len(ids) else 0)
        return block

    def steps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of rows that are read at once."""
        rows = max(256, min(65_536, _BYTES_AT_ONCE // (8 * self.n_features)))
        return [(start + first, start + last) for first, last in ranges(stop - start, rows)]

    @property
    def shared(self) -> bool:
        """Whether other processes can read the same rows: an array in a file or a store, not one in this process."""
        source: Any = getattr(self._get, "args", (getattr(self._get, "__self__", None),))[0]
        if isinstance(source, MappedFile):
            return source.has_name
        if isinstance(source, RemoteFile):
            return True
        return type(source).__module__.startswith("zarr") and "Memory" not in type(source.store).__name__

    def sample(self) -> np.ndarray:
        """Some rows at even steps: what is looked at before any work, and the input's fingerprint."""
        ids = np.unique(np.linspace(0, self.n_rows - 1, min(self.n_rows, _SAMPLE)).astype(np.int64))
        return self.take(ids)


def open_rows(
    X: Any,
    metric: str = "euclidean",
    *,
    name: str = "X",
    min_rows: int = 2,
    storage_options: dict[str, Any] | None = None,
) -> InputRows:
    """InputRows of a numpy, memory-mapped, zarr, dask or scipy sparse array, a DataFrame, a path or `Points`."""
    checks.check_choice(metric, METRICS, "metric")
    if isinstance(X, InputRows):
        return X
    if isinstance(X, str | os.PathLike):
        X = read_points(X, storage_options=storage_options)
    if hasattr(X, "to_dask_array"):
        X = _dask_frame(X)
    precomputed = X.names if isinstance(X, Points) else None
    X = X.values if isinstance(X, Points) else X
    get, names, resident = _getter(X, name)
    names = names if precomputed is None else precomputed
    shape = _shape(X, name)
    checks.check_shape(shape, name, min_rows)
    offset = _offset(get, shape, X) if metric == "euclidean" else None
    rows = InputRows(get, shape, metric=metric, names=names, resident=resident, offset=offset, name=name)
    rows.sample()
    return rows


def _shape(X: Any, name: str) -> tuple[int, int]:
    shape = tuple(X.shape) if hasattr(X, "shape") else np.asarray(X).shape
    if any(not size >= 0 for size in shape):
        raise ValueError(f"{name} has an unknown number of rows; call {name}.compute_chunk_sizes() first.")
    return tuple(int(size) for size in shape)  # type: ignore[return-value]


def _getter(X: Any, name: str) -> tuple[Callable[[Any], np.ndarray], np.ndarray | None, bool]:
    """How to get rows from an input, the names of its rows, and whether it is in memory already."""
    kind = type(X).__module__.partition(".")[0]
    if kind == "scipy" and hasattr(X, "tocsr"):
        matrix = X.tocsr()
        _check_dtype(matrix.dtype, name)
        return partial(_from_sparse, matrix), None, True
    if kind == "dask":
        _check_dtype(X.dtype, name)
        return partial(_from_dask, X), None, False
    if hasattr(X, "iloc"):
        return _frame(X, name)
    if kind == "zarr":
        _check_dtype(X.dtype, name)
        return partial(_from_zarr, X), None, False
    if isinstance(X, RemoteFile):
        _check_dtype(X.dtype, name)
        return X.rows, None, False
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(f"{name} has masked entries. Drop their rows, or fill them in with filled().")
    try:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"{name} must be a numeric array; got {type(X).__name__} ({error}).") from None
    _check_dtype(array.dtype, name)
    if MappedFile.is_whole(array):
        return MappedFile(array).rows, None, False
    return partial(_from_array, array), None, not isinstance(array, np.memmap)


def _dask_frame(X: Any) -> Points:
    """A dask DataFrame as a dask array; an index of texts gives the names."""
    index = X.index.compute()
    names = None if getattr(index.dtype, "kind", "O") in "iu" else np.asarray([str(label) for label in index])
    return Points(X.to_dask_array(lengths=True), names, "a dask DataFrame")


def _frame(X: Any, name: str) -> tuple[Callable[[Any], np.ndarray], np.ndarray | None, bool]:
    for column, dtype in zip(X.columns, X.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "fiub":
            raise TypeError(
                f"{name} must be numeric; column {column!r} has dtype {dtype}. Drop or encode it before embedding."
            )
    plain = type(X.index).__name__ == "RangeIndex"
    names = None if plain else np.asarray([str(label) for label in X.index])
    narrow = all(isinstance(dtype, np.dtype) and np.can_cast(dtype, np.float32) for dtype in X.dtypes)
    dtype = np.float32 if narrow else np.float64
    return partial(_from_frame, X, dtype), names, True


# how to get rows: functions with a name, so that what holds them can be pickled


def _from_array(array: np.ndarray, at: Any) -> np.ndarray:
    return array[at]


def _from_sparse(matrix: Any, at: Any) -> np.ndarray:
    return matrix[at].toarray()


def _from_dask(array: Any, at: Any) -> np.ndarray:
    return np.asarray(array[at].compute(scheduler="synchronous"))


def _from_zarr(array: Any, at: Any) -> np.ndarray:
    return np.asarray(array[at] if isinstance(at, slice) else array.oindex[at])


def _from_frame(frame: Any, dtype: Any, at: Any) -> np.ndarray:
    return frame.iloc[at].to_numpy(dtype=dtype, na_value=np.nan)


def _check_dtype(dtype: Any, name: str) -> None:
    if np.dtype(dtype).kind not in "fiub":
        raise TypeError(
            f"{name} must be real and numeric; got dtype {dtype}. Convert it, for instance with astype('float32')."
        )


def _offset(get: Callable[[Any], np.ndarray], shape: tuple[int, int], X: Any) -> np.ndarray | None:
    """Median of some rows of an input whose numbers float32 cannot hold, else nothing."""
    ids = np.unique(np.linspace(0, shape[0] - 1, min(shape[0], _SAMPLE)).astype(np.int64))
    values = np.asarray(get(ids))
    if values.dtype == np.float32 or type(X).__module__.startswith("scipy"):
        return None
    wide = values.astype(np.float64)
    checks.check_finite(wide, first_row=ids)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    # the same numbers give the same bytes, whatever type they come in; a far row must not move the offset
    return None if (narrow == wide).all() else np.median(wide, axis=0)


def _unit(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    checks.check_finite(values, name, ids if len(ids) else 0)
    length = np.sqrt((values * values).sum(axis=1))
    if not (length > 0).all():
        zero = ids[length == 0]
        raise ValueError(
            f"metric='cosine' has no meaning for rows of zeros; got {checks.rows_named(zero)}. Drop them first."
        )
    return np.ascontiguousarray(values / length[:, None], dtype=np.float32)
