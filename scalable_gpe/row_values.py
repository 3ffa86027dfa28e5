"""Values that a user gives for rows: one for each of them, in their order or by their names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import GPEWarning, warn


def check_row_values(
    values: Any,
    n_rows: int,
    name: str,
    dropped: npt.NDArray[Any] | None = None,
    names: npt.NDArray[Any] | None = None,
) -> Any:
    """Check that there is one value for each row, or for each row of an input of which some were `dropped`.

    Those of the rows that are left are returned. A pandas Series goes by its index where the rows have names.

    Examples
    --------
    >>> check_row_values(["a", "b", "c"], 2, "color", np.array([1])).tolist()
    ['a', 'c']
    """
    values = in_order_of(names, values, name, dropped=dropped)
    shape, n_dropped = np.shape(values), 0 if dropped is None else len(dropped)
    if dropped is not None and shape == (n_rows + n_dropped,):
        kept = np.delete(np.arange(shape[0]), dropped)
        values = getattr(values, "iloc", values)  # of a Series; a Categorical keeps its categories
        return (np.asarray(values) if isinstance(values, Sequence) else values)[kept]
    if shape != (n_rows,):
        before = f", or for each of the {n_rows + n_dropped} of the input" if n_dropped else ""
        raise ValueError(f"{name} must have one value for each of the {n_rows} rows{before}; got shape {shape}.")
    return values


def _check_counting(index: Any, name: str) -> None:
    """Refuse an index that has the numbers of rows without names in another order."""
    numbers, counted = np.asarray(index), np.arange(len(index))
    if numbers.dtype.kind not in "iu" or np.array_equal(numbers, counted):
        return
    if np.array_equal(np.sort(numbers), counted):
        text = (
            f"{name} is a Series whose index has the numbers of the rows in another order. Pass {name}.sort_index() "
            f"to go by it, or {name}.to_numpy() if the values are in the order of the rows."
        )
        raise ValueError(text)


def just_counts(index: Any) -> bool:
    """Whether the index of a table counts its rows from 0, and so does not name them."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def in_order_of(
    names: npt.NDArray[Any] | None,
    values: Any,
    name: str,
    *,
    partial: bool = False,
    dropped: npt.NDArray[Any] | None = None,
) -> Any:
    """The values of a pandas Series in the order of rows that have `names`, by its index; anything else as it is.

    An index that just counts goes by position, for the rows or for those of an input of which some were `dropped`. It
    is refused if it may as well hold the names of rows in another order. With `partial`, rows that the index does not
    name get None.

    Examples
    --------
    >>> import pandas
    >>> in_order_of(np.array(["a", "b"]), pandas.Series([1, 2], index=["b", "a"]), "color").tolist()
    [2, 1]
    """
    if hasattr(values, "map_partitions"):  # a Series of dask
        values = values.compute()
    if not hasattr(values, "reindex"):
        return values
    index = values.index
    if names is None:
        if not just_counts(index):
            _check_counting(index, name)
        return values
    names = names.astype(str)
    if just_counts(index) and not _counts_names(len(index), names, dropped, name):
        return values
    return _by_name(names, values, name, partial)


def _by_name(names: npt.NDArray[Any], values: Any, name: str, partial: bool) -> Any:
    """The value of each row by name, None without one; equal names in the same order may repeat."""
    import pandas

    rows, index = pandas.Index(names), pandas.Index(np.asarray(values.index).astype(str))
    if index.equals(rows):
        return values
    has_value, is_known = rows.isin(index), index.isin(rows)
    repeated = rows[has_value & rows.duplicated()].append(index[is_known & index.duplicated()]).unique()
    if len(repeated) or not (has_value.any() if partial else has_value.all()):
        wrong, what = (repeated, "stand in several rows") if len(repeated) else (rows[~has_value], "have no value")
        shown = ", ".join(map(repr, wrong[:5])) + (f" and {len(wrong) - 5:,} more" if len(wrong) > 5 else "")
        raise ValueError(
            f"{name} goes by the names of rows, but {len(wrong):,} of them {what}: {shown}. Give each row one "
            "value, or pass the values alone if they are in the order of the rows."
        )
    numbers = np.flatnonzero(is_known)[index[is_known].get_indexer(rows)]
    if has_value.all():
        return values.iloc[numbers].reset_index(drop=True)
    if unknown := len(index) - np.count_nonzero(is_known):
        warn(f"{unknown:,} of {len(index):,} names of {name} are in no row: they are left out.", GPEWarning)
    by_row = np.full(len(rows), None, object)
    by_row[has_value] = np.asarray(values, object)[numbers[has_value]]
    return by_row


def _counts_names(length: int, names: npt.NDArray[Any], dropped: npt.NDArray[Any] | None, name: str) -> bool:
    """Whether the index 0, 1, ... of so many values holds names of rows; refuse it if it may be positions too."""
    counted = np.arange(length)
    if not np.isin(names, counted.astype(str)).all():
        return False
    rows = counted if dropped is None or length == len(names) else np.delete(counted, dropped[dropped < length])
    if len(rows) != len(names):
        return True
    if np.array_equal(rows.astype(str), names):
        return False
    raise ValueError(
        f"{name} is a Series with the index 0 to {length - 1}, and the rows are named so in another order. Pass "
        "its values alone, as to_numpy() gives them, if they are in the order of the rows, or give it their names "
        "as index."
    )
