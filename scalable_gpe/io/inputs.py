"""Any input as points whose values are a source."""

import mmap
import os
from dataclasses import replace
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.io.anndata_object import is_anndata
from scalable_gpe.io.files import read_points
from scalable_gpe.io.points import Points, as_whole_numbers, listed
from scalable_gpe.io.sources import Source
from scalable_gpe.io.tables import left_out_remarks
from scalable_gpe.row_values import just_counts
from scalable_gpe.storage.backends import StorageOptions


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
