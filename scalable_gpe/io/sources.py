"""Input arrays: each knows how to give rows, whether they are in memory, and whether other processes can read them."""

import mmap
import operator
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import just_counts
from scalable_gpe.io.anndata_input import is_anndata
from scalable_gpe.io.files import read_points
from scalable_gpe.io.points import Points, as_whole_numbers, first_line, listed, narrowest_float
from scalable_gpe.io.tables import left_out_remarks
from scalable_gpe.storage.backends import StorageOptions

At = slice | np.ndarray  # a range of rows with both ends, or row numbers in any order
_SPAN = 2**24  # bytes of a mapped file within which rows are taken at once
_FEW = 64  # rows that are taken at once wherever they are


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of an array of some library: "numpy", "mapped" (a whole file), "scipy", "pandas", "dask" or "zarr".

    Rows of the array that are `dropped` (ascending numbers) are left out. Other processes are sent what has a name (a
    file, a store) by that name, else its values. A part of a mapped file is an array of numpy: it no longer knows its
    place in the file.
    """

    array: Any
    library: str = "numpy"
    dropped: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is left of the array."""
        shape = tuple(self.array.shape)
        return shape if self.dropped is None else (int(shape[0]) - len(self.dropped), *shape[1:])

    @property
    def resident(self) -> bool:
        """Whether the values are in the memory of this process already."""
        return self.library in ("numpy", "scipy", "pandas") and not isinstance(self.array, np.memmap)

    @property
    def shared(self) -> bool:
        """Whether other processes can read the same values: a file with a name, or a store that is not in memory."""
        if self.library == "mapped":
            return bool(self.array.filename is not None)
        if self.library != "zarr":
            return False
        from zarr.storage import MemoryStore

        return not isinstance(self.array.store, MemoryStore)

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """Numbers in the array of rows that are left."""
        if self.dropped is None:
            return ids
        # so many rows are kept before each dropped one
        before = self.dropped - np.arange(len(self.dropped))
        numbers: np.ndarray = ids + np.searchsorted(before, ids, side="right")
        return numbers

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number; a range with few gaps is read as one."""
        read = _READERS[self.library]
        if self.dropped is None:
            return np.asarray(read(self.array, at))
        ids = self.numbers(np.arange(at.start, at.stop) if isinstance(at, slice) else np.asarray(at))
        if isinstance(at, slice) and len(ids) and ids[-1] - ids[0] < 2 * len(ids):
            whole = np.asarray(read(self.array, slice(int(ids[0]), int(ids[-1]) + 1)))
            return np.asarray(whole[ids - ids[0]])
        return np.asarray(read(self.array, ids))

    def __reduce__(self) -> tuple[Callable[..., "Source"], tuple[Any, ...]]:
        array = self.array
        if self.library != "mapped":
            return Source, (array, self.library, self.dropped)
        if not self.shared:
            return Source, (np.array(array), "numpy", self.dropped)
        order = "C" if array.flags.c_contiguous else "F"
        return _open_mapped, (self.dropped, str(array.filename), array.dtype, "r", array.offset, array.shape, order)


def _open_mapped(dropped: np.ndarray | None, *place: Any) -> Source:
    return Source(np.memmap(*place), "mapped", dropped)


def _mapped_rows(array: np.memmap, at: At) -> np.ndarray:
    """Copies, because mapped pages count as memory of this process."""
    if isinstance(at, slice):
        return _copy_mapped(array, at)
    ids = np.asarray(at)
    order = np.argsort(ids, kind="stable")
    out = np.empty((len(ids), *array.shape[1:]), array.dtype)
    for some in _near(ids[order], max(1, array.nbytes // max(1, len(array)))):
        out[order[some]] = _copy_mapped(array, ids[order[some]])
    return out


def _near(ids: np.ndarray, row_bytes: int) -> Iterator[slice]:
    """Ranges of ascending row numbers that are few, or near each other: the system maps the pages around a row."""
    places = ids.astype(np.int64) * row_bytes // _SPAN
    bounds = np.append(np.flatnonzero(np.diff(places)) + 1, len(ids))
    start = 0
    for stop in bounds.tolist():
        if stop - start >= _FEW or stop == len(ids):
            yield slice(start, stop)
            start = stop


def _copy_mapped(array: np.memmap, at: At) -> np.ndarray:
    values = np.array(array[at])
    if hasattr(mmap, "MADV_DONTNEED") and array.mode != "c":  # would drop the changes of a copy-on-write map
        base: Any = array.base
        base.madvise(mmap.MADV_DONTNEED)
    return values


def _scipy_rows(matrix: Any, at: At) -> np.ndarray:
    return np.asarray(matrix[at].toarray())


def _pandas_rows(frame: Any, at: At) -> np.ndarray:
    """Missing values become NaN; pandas' nullable types count as wide."""
    part = frame.iloc[at]
    checks.check_whole(part)
    plain = all(isinstance(dtype, np.dtype) for dtype in frame.dtypes)
    dtype = narrowest_float(frame.dtypes) if plain else np.float64
    return np.asarray(part.to_numpy(dtype=dtype, na_value=np.nan))


def _dask_rows(array: Any, at: At) -> np.ndarray:
    """Computed in the thread that reads them (the threads are ours), or where they persist."""
    part = array[at]
    clients = (getattr(value, "client", None) for value in part.__dask_graph__().values())  # of futures
    client = next(filter(None, clients), None)
    return np.asarray(part.compute(scheduler="synchronous") if client is None else client.compute(part, sync=True))


def _zarr_rows(array: Any, at: At) -> np.ndarray:
    try:
        return np.asarray(array[at] if isinstance(at, slice) else array.oindex[at])
    except OSError:
        raise
    except Exception as error:  # whatever zarr raises for a file that is not sound
        raise ValueError(
            f"X: rows of the zarr array {str(array.store_path)!r} cannot be read: {first_line(error)}. Write it again."
        ) from error


_READERS: dict[str, Callable[[Any, At], np.ndarray]] = {
    "numpy": operator.getitem,
    "mapped": _mapped_rows,
    "scipy": _scipy_rows,
    "pandas": _pandas_rows,
    "dask": _dask_rows,
    "zarr": _zarr_rows,
}


# --- inputs ---------------------------------------------------------------------------------------


def open_points(X: Any, name: str, storage_options: StorageOptions | None, numeric_only: bool) -> Points:
    """Open an input; its values are a `Source`."""
    if isinstance(X, str | os.PathLike) or is_anndata(X):
        X = read_points(X, storage_options=storage_options, numeric_only=numeric_only)
    points = X if isinstance(X, Points) else Points(X, None, "")
    values = points.values
    if hasattr(values, "iloc") or hasattr(values, "to_dask_array"):
        table = _table_points(values, name, numeric_only and points is not X)
        names = table.names if points.names is None else points.names
        features = table.feature_names if points.feature_names is None else points.feature_names
        remarks = points.remarks + table.remarks
        points = replace(points, values=table.values, names=names, feature_names=features, remarks=remarks)
    else:
        points = replace(points, values=_array_source(values, name))
    has_features = points.feature_names is not None and len(points.feature_names) == points.shape[1]
    return points if has_features else replace(points, feature_names=None)


def _table_points(frame: Any, name: str, numeric_only: bool) -> Points:
    """The points of a DataFrame of pandas or dask; whole numbers as labels just count the columns, or rows of dask."""
    is_dask, remarks = hasattr(frame, "to_dask_array"), tuple[str, ...]()
    frame = frame if is_dask else _with_plain_columns(frame)
    if numeric_only:
        are_numbers = np.array([_is_number(dtype) for dtype in frame.dtypes], np.bool_)
        remarks = left_out_remarks(frame.columns[~are_numbers])
        frame = frame.iloc[:, np.flatnonzero(are_numbers)]
    _check_columns(frame, name)
    features = None if _are_numbers(frame.columns) else _labels(frame.columns)
    if not is_dask:
        return Points(Source(frame, "pandas"), _frame_names(frame.index), "", None, features, remarks)
    values = frame.map_partitions(_whole_columns, meta=frame._meta).to_dask_array(lengths=True)
    index = frame.index.compute()
    names = None if _are_numbers(index) else _labels(index)
    return Points(_array_source(values, name), names, "", None, features, remarks)


def _with_plain_columns(frame: Any) -> Any:
    """A DataFrame whose columns of Python's bools or numbers, some missing, have such a type, as in a file."""
    objects = np.flatnonzero([str(dtype) == "object" for dtype in frame.dtypes])
    frame = frame.copy(deep=False) if len(objects) else frame
    for number in objects:
        frame.isetitem(number, frame.iloc[:, number].convert_dtypes())
    return frame


def _array_source(X: Any, name: str) -> Source:
    """The source of an array of any library, or of what numpy makes an array of."""
    kind = _library(X)
    if kind == "scipy" and hasattr(X, "tocsr"):
        _check_dtype(X.dtype, name)
        return Source(X.tocsr(), "scipy")
    if kind in ("dask", "zarr"):
        _check_dtype(X.dtype, name)
        return Source(X, kind)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(f"{name} has masked entries. Drop their rows, or fill them in with filled().")
    try:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"{name} must be a numeric array; got {type(X).__name__} ({error}).") from None
    _check_dtype(array.dtype, name)
    is_file = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)  # a part does not know its place in it
    return Source(array, "mapped" if is_file else "numpy")


def _library(X: Any) -> str:
    """The library of an array, by name, so that none is imported that the user does not have; "" for numpy and others.

    Views of an AnnData object are subclasses of the arrays that they show.
    """
    modules = (one.__module__.partition(".")[0] for one in type(X).__mro__)
    return next((name for name in modules if name in ("scipy", "dask", "zarr")), "")


def _check_dtype(dtype: Any, name: str) -> None:
    if np.dtype(dtype).kind not in "fiub":
        raise TypeError(
            f"{name} must be real and numeric; got dtype {dtype}. Convert it to float32: {name}.astype('float32')."
        )


def _check_columns(frame: Any, name: str) -> None:
    columns = zip(frame.columns, frame.dtypes, strict=True)
    wrong = [f"column {column!r} has dtype {one}" for column, one in columns if not _is_number(one)]
    if wrong or not len(frame.columns):
        they = "them" if len(wrong) > 1 else "it"
        raise TypeError(
            f"{name} must be numeric; {listed(wrong) or 'it has no column of numbers'}. Drop or encode {they} "
            f"before embedding{', or pass numeric_only=True to embed' * (name == 'X')}."
        )


def _is_number(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "fiub"


def _whole_columns(frame: Any) -> Any:
    """A part of a dask DataFrame, whose columns are about to be converted to one type."""
    checks.check_whole(frame)
    return frame


def _frame_names(index: Any) -> np.ndarray | None:
    """Labels of a DataFrame's rows, if its index does more than count them."""
    if just_counts(index):
        return None
    return as_whole_numbers(_labels(index)) if _are_numbers(index) else _labels(index)


def _are_numbers(index: Any) -> bool:
    return getattr(index.dtype, "kind", "O") in "iu"


def _labels(index: Any) -> np.ndarray:
    return np.asarray([str(label) for label in index])
