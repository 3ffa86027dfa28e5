"""Checks of what users pass in. Every message names the argument, the rule, the value and a way out."""

import operator
import secrets
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import GPEWarning, warn

ALL = "all"  # the sum of all powers up to a horizon
Power: TypeAlias = int | str  # a power p, or "all"
Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
_ROWS_AT_ONCE = 65_536
_WHOLE = 2.0**53


def check_points(X: object, name: str = "X", min_rows: int = 2) -> npt.NDArray[Any]:
    """Return 2-D, numeric, finite rows as a float32 or float64 array; an array of these types is not copied.

    Examples
    --------
    >>> check_points([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    array = _real(X, name)
    check_shape(array.shape, name, min_rows)
    check_finite(array, name)
    return array


def check_shape(shape: tuple[int, ...], name: str = "X", min_rows: int = 2) -> None:
    """Check the shape of a set of points: 2-D, enough rows, at least one column."""
    if len(shape) != 2:
        raise ValueError(
            f"{name} must be 2-D, one point per row; got shape {shape}. "
            "Use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row."
        )
    if shape[0] < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} rows; got {shape[0]}. Pass more points.")
    if shape[1] < 1:
        raise ValueError(f"{name} must have at least one column; got shape {shape}. Pass at least one feature.")


def check_finite(
    block: npt.NDArray[Any], name: str = "X", first_row: int | npt.NDArray[Any] = 0, most: str = "1e308"
) -> None:
    """Check that a block of rows has no NaN and no infinity.

    ``first_row`` is the number of the block's first row, or an array with the number of each row; ``most`` is the
    largest number that would have been finite, for the message.
    """
    bad = [_bad_rows(block[start : start + _ROWS_AT_ONCE]) + start for start in range(0, len(block), _ROWS_AT_ONCE)]
    numbers = np.concatenate(bad) if bad else np.zeros(0, np.int64)
    if numbers.size:
        numbers = numbers + first_row if isinstance(first_row, int) else first_row[numbers]
        raise not_finite(name, most, rows_named(numbers))


def _bad_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    # a finite sum means finite entries, and needs no temporary array of the size of the block
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.sum(dtype=np.float64))
    return np.flatnonzero(~np.isfinite(rows).all(axis=1)) if not finite else np.zeros(0, np.int64)


class NotFiniteError(ValueError):
    """Rows of an input hold NaN, infinity, or numbers that are too large; `fault` says where."""

    fault: str


def not_finite(name: str, most: str, where: str) -> NotFiniteError:
    """The error for rows that are not finite."""
    or_drop = " (missing='drop' drops those with NaN)" if name == "X" else ""
    fault = f"must be finite and below {most}; NaN, infinity or more in {where}."
    way_out = f"Drop these rows{or_drop}, fill them in, or scale {name} down."
    error = NotFiniteError(f"{name} {fault} {way_out}")
    error.fault = fault
    return error


def check_whole(values: Any, name: str = "X") -> None:
    """Check that whole numbers of 64 bits, in a matrix or a DataFrame, are below 2**53: float64 holds these.

    Examples
    --------
    >>> check_whole(np.array([[1, 2**53 - 1]]))
    """
    if hasattr(values, "iloc"):
        for number, dtype in enumerate(values.dtypes):
            if _is_long(dtype):
                column = values.iloc[:, number].dropna().to_numpy(f"{dtype.kind}8")
                _check_below(column, f"column {values.columns[number]!r} of {name}")
    elif _is_long(getattr(values, "dtype", None)):
        _check_below(values.data if hasattr(values, "tocsr") else values, f"{name}")


def _is_long(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") in "iu" and getattr(dtype, "itemsize", 0) == 8


def _check_below(values: npt.NDArray[Any], what: str) -> None:
    high, low = values.max(axis=0, initial=0), values.min(axis=0, initial=0)
    large = np.flatnonzero(np.maximum(high.astype(np.float64), -low.astype(np.float64)) >= _WHOLE)
    if large.size:
        columns = f" in column{'s' * (large.size > 1)} {some(large)}" if values.ndim == 2 else ""
        raise ValueError(
            f"{what} must hold whole numbers below 2**53, because double precision rounds larger ones; got "
            f"others{columns}. Subtract the smallest one as a whole number, or convert them to floats if the last "
            "digits mean nothing: X.astype(float)."
        )


def check_positive(value: object, name: str) -> float:
    """Check that a number is finite and above 0."""
    if not isinstance(value, Real) or _is_bool(value):
        raise TypeError(f"{name} must be a positive number; got {value!r} ({_kind(value)}). Pass a float.")
    if not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive, finite number; got {value!r}. Choose one above 0.")
    return float(value)


def check_fraction(value: object, name: str) -> float:
    """Check that a number is above 0 and at most 1."""
    number = check_positive(value, name)
    if number > 1:
        raise ValueError(f"{name} must be above 0 and at most 1; got {value!r}. Write 95 % as 0.95.")
    return number


def check_count(value: object, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Check that a number is whole and lies in [minimum, maximum]."""
    if not isinstance(value, Integral) or _is_bool(value):
        raise TypeError(f"{name} must be a whole number; got {value!r} ({_kind(value)}). Pass an int.")
    number = operator.index(value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {number}. Raise it.")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}; got {number}. Lower it.")
    return number


def check_row(value: Any, n_rows: int, names: npt.NDArray[Any] | None, name: str, what: str = "row") -> int:
    """Return the number of a row that is given by its number, or by a name that no other row has.

    Examples
    --------
    >>> check_row("b", 3, np.array(["a", "b", "c"]), "root"), check_row(2, 3, None, "root")
    (1, 2)
    """
    if not isinstance(value, str):
        return check_count(value, name, minimum=0, maximum=n_rows - 1)
    found = np.zeros(0, np.int64) if names is None else np.flatnonzero(names.astype(str) == value)
    if len(found) != 1:
        others = f", the name of {len(found)} {what}s: {rows_named(found)}" if len(found) else ", the name of none"
        raise ValueError(f"{name} must be a row number or the name of one {what}; got {value!r}{others}.")
    return int(found[0])


def check_powers(value: object, name: str = "power") -> tuple[Power, ...]:
    """Check one power or "all", or several different ones; return a tuple in the order given."""
    given = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    powers = tuple(_one_power(power, name) for power in given)
    if not powers or len(set(powers)) < len(powers):
        raise ValueError(f"{name} must hold different powers, such as [16, 64]; got {list(powers)}.")
    return powers


def _one_power(value: object, name: str) -> Power:
    if not isinstance(value, str):
        return check_count(value, name)
    if value != ALL:
        raise ValueError(f"{name} must be a whole number, 'all', or several of them; got {value!r}.")
    return ALL


def check_of_all(value: object, powers: Sequence[Power], name: str) -> int | str:
    """Check a parameter of the sum of all powers: "auto", or a whole number if the sum is asked for."""
    if isinstance(value, str) and value == "auto":
        return value
    if isinstance(value, str):
        raise ValueError(f"{name} must be a whole number or 'auto'; got {value!r}.")
    number = check_count(value, name)
    if ALL not in powers:
        raise ValueError(f"{name} is for power='all'; got {name}={number} with one power only.")
    return number


def check_choice(value: object, choices: Collection[str], name: str) -> str:
    """Check that a word is one of a list."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {_quoted(choices)}; got {value!r} ({_kind(value)}).")
    if value not in choices:
        raise ValueError(f"{name} must be one of {_quoted(choices)}; got {value!r}. Choose one of these.")
    return value


def check_random_state(value: object, name: str = "random_state") -> int:
    """Return a 64-bit seed from an int, None (fresh entropy) or a numpy generator (which draws one number).

    Examples
    --------
    >>> check_random_state(7)
    7
    """
    if value is None:
        return secrets.randbits(64)
    if isinstance(value, np.random.Generator):
        return int(value.integers(0, 2**64, dtype=np.uint64))
    if isinstance(value, np.random.RandomState):
        return int(value.randint(0, 2**64, dtype=np.uint64))
    return check_count(value, name, minimum=0, maximum=2**64 - 1)


def check_selection(selection: object, length: int, name: str) -> npt.NDArray[np.int64]:
    """Return the positions that None (all), a slice or an array of whole numbers selects from ``range(length)``."""
    if selection is None or isinstance(selection, slice):
        return np.arange(*(selection or slice(None)).indices(length), dtype=np.int64)
    ids = np.asarray(selection)
    if ids.size == 0:
        return np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be a slice or a 1-D array of whole numbers; got shape {ids.shape} of {ids.dtype}. "
            "Turn a mask into numbers with np.flatnonzero."
        )
    outside = ids[(ids < 0) | (ids >= length)]
    if outside.size:
        raise ValueError(f"{name} must lie between 0 and {length - 1}; got {some(outside)}. Remove these.")
    return ids.astype(np.int64)


def _real(value: object, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{name} must be a numeric array; got {_kind(value)} ({error}).") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real and numeric; got dtype {array.dtype}. Convert it: astype(float).")
    check_whole(array, name)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def some(values: npt.NDArray[Any], count: int | None = None) -> str:
    """Write the first few numbers, and how many more there are; of `count`, if these are the first of so many."""
    count = values.size if count is None else count
    rest = f" and {count - 5} more" if count > 5 else ""
    return ", ".join(str(int(value)) for value in values[:5]) + rest


def rows_named(numbers: npt.NDArray[Any], count: int | None = None) -> str:
    """Write a list of row numbers, or of the first of `count`.

    Examples
    --------
    >>> rows_named(np.array([17])), rows_named(np.array([3, 5]))
    ('row 17', 'rows 3, 5')
    """
    return f"row{'s' * (numbers.size > 1)} {some(numbers, count=count)}"


def _quoted(choices: Iterable[str]) -> str:
    return ", ".join(repr(choice) for choice in choices)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _kind(value: object) -> str:
    return type(value).__name__


# --- row values -----------------------------------------------------------------------------------


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
