"""Text tables (.csv, .tsv), read by pyarrow batch by batch.

The ending says which character separates the cells, and the first line whether it names the columns, unless the caller
says both. A first line that leaves a doubt is refused with the argument that decides.
"""

import csv
import io
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.left_out import is_number, left_out_remarks
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import Points, are_whole_numbers, first_names, listed, name_array
from scalable_gpe.io.tables import TableOptions, copy_columns, find_column, is_numeric, kept_columns, way_out, without

_FIRST_LINES = 2**22  # bytes in which the first line of a text must end
_BLOCK = 2**23  # bytes of a text that are parsed at once
_OTHERS = (";", "\t", "|", ",", " ")  # separators that are recognised where another one was expected


@dataclass(frozen=True)
class CsvFormat:
    """How a text table is written.

    Attributes
    ----------
    sep : str
        The character between cells.
    names : tuple of str
        Names of the columns: those of the header, or ``"column 0"`` and so on.
    n_skipped : int
        Lines before the first row, the header and empty ones.
    has_header : bool
        Whether a line names the columns.
    """

    sep: str
    names: tuple[str, ...]
    n_skipped: int
    has_header: bool


def csv_format(path: str, sep: str | None = None, header: bool | None = None) -> CsvFormat:
    """How a text table is written."""
    text = _first_lines(path)
    expected = usual_separator(path) if sep is None else _check_separator(sep)
    try:
        first, second, n_lines = _records(text, expected)
    except (csv.Error, StopIteration) as error:
        raise ValueError(Message(f"`X`: {path!r} is not a table: {error}. Check its quotes.")) from None
    if sep is None:
        _refuse_other_separators(text, expected, path)
    if header is None:
        header = _names_columns(first, second)
    if header is None:
        raise _ambiguous(path, first)
    if not isinstance(header, bool):
        raise TypeError(Message(f"`header` must be True, False or None (decided from the file); got {header!r}."))
    names = first if header else tuple(f"column {number}" for number in range(len(first)))
    return CsvFormat(expected, names, n_lines if header else 0, header)


def read_csv(path: str, options: TableOptions) -> Points:
    """Read numbers as float64."""
    import_optional("pyarrow.csv", "tables", "a .csv file")
    written = csv_format(path, options.sep, options.header)
    index = find_column(options.index, written.names, "index", path)
    if index is None and written.has_header and written.names[0] == "":  # pandas writes an unnamed index so
        index = 0
    text = _Text(path, written, kept_columns(options, written.names, index, path), index)
    others = text.others() if options.numeric_only else []
    left_out = {written.names[column]: cells for column, cells in text.cells(others).items()}
    kept = [column for column in text.kept if column not in others]
    text = replace(text, kept=kept)
    note = (" below a header" if written.has_header else "") + without(list(left_out))
    points = copy_columns(text.batches(), text.columns, text.index, np.float64, path, note)
    features = name_array([written.names[column] for column in kept]) if written.has_header else None
    remarks, integers = left_out_remarks(left_out) + points.remarks, are_whole_numbers(points.names)
    return replace(points, feature_names=features, remarks=remarks, integer_names=integers)


# --- the first lines ------------------------------------------------------------------------------


def _first_lines(path: str) -> str:
    """The beginning of a text, with its first line whole."""
    import pyarrow

    try:
        with pyarrow.input_stream(path, compression="detect") as stream:
            data = stream.read(_FIRST_LINES)
            is_whole = not stream.read(1)
    except (OSError, zlib.error) as error:
        raise ValueError(Message(f"`X`: {path!r} cannot be read: {error}. Write it again.")) from None
    text = str(data.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise ValueError(Message(f"`X`: {path!r} is empty. Pass a table with one point per row."))
    if not is_whole and len(text.splitlines()) == 1:
        size = f"{_FIRST_LINES // 2**20} MiB"
        raise ValueError(Message(f"`X`: the first line of {path!r} is longer than {size}. Is it a table?"))
    return text


def _records(text: str, sep: str) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """The cells of the first two lines that are not empty, and where the first of them ends."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=sep)
    first = next(cells for cells in lines if cells)
    n_lines = lines.line_num
    second = next((cells for cells in lines if cells), [])
    return tuple(cell.strip() for cell in first), tuple(second), n_lines


def usual_separator(path: str) -> str:
    """The character between cells, by the ending of a path."""
    return "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","


def _check_separator(sep: object) -> str:
    if not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n' or not sep.isascii():
        raise ValueError(Message(f"`sep` must be one character, such as ',' or a tab; got {sep!r}."))
    return sep


def _refuse_other_separators(text: str, expected: str, path: str) -> None:
    """Refuse a text that another separator splits as well: its decimal commas are not separators."""
    has_one_column = len(_records(text, expected)[0]) == 1
    for sep in _OTHERS if has_one_column else ";\t|":
        if sep != expected and _splits(text, sep):
            raise ValueError(
                Message(
                    f"`X`: the cells of {path!r} seem to be separated by {sep!r}, not by {expected!r} as its ending "
                    f"says. Pass `sep={sep!r}`, or `sep={expected!r}` if the ending is right."
                )
            )


def _splits(text: str, sep: str) -> bool:
    """Whether a separator splits the first two lines into as many cells, and not into one."""
    try:
        first, second, _ = _records(text, sep)
    except csv.Error:  # a cell that is too long: the lines of a wide table have another separator
        return False
    return len(first) > 1 and len(second) in (0, len(first))


# --- the header -----------------------------------------------------------------------------------


def _names_columns(first: Sequence[str], second: Sequence[str]) -> bool | None:
    """Whether the first line is a header; None where it may as well be a point.

    Examples
    --------
    >>> _names_columns(["a", "b"], ["1", "2"]), _names_columns(["", "0", "1"], ["x", "1", "2"])
    (True, True)
    >>> _names_columns(["1.5", "2"], ["3", "4"]), _names_columns(["2019", "2020"], ["1.5", "2"])
    (False, None)
    >>> _names_columns(["1", "2", "3"], ["8", "5", "5"]), _names_columns(["1", "4", "9"], ["8", "5", "5"])
    (None, False)
    """
    numeric = [is_number(cell) for cell in first]
    if not any(numeric):
        return True
    numbers = list(first if numeric[0] else first[1:])
    if numbers == [str(number) for number in range(len(numbers))]:  # pandas, for columns without names
        return True if len(numbers) > 1 or first[0] == "" else None
    whole = all(map(str.isdecimal, second))
    if not all(numeric) or (_counts_up(first) and (not whole or int(first[-1]) - int(first[0]) == len(first) - 1)):
        return None
    return False


def _counts_up(cells: Sequence[str]) -> bool:
    """Whether cells are ascending whole numbers, such as years."""
    if len(cells) < 2 or not all(map(str.isdecimal, cells)):
        return False
    return all(int(left) < int(right) for left, right in itertools.pairwise(cells))


def _ambiguous(path: str, cells: Sequence[str]) -> ValueError:
    return ValueError(
        Message(
            f"`X`: the first line of {path!r} ({first_names(cells, 4)}) may name the columns or be a point. "
            "Pass `header=True` if it names the columns, `header=False` if it is a point."
        )
    )


# --- the rows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """Some columns of a text, and the column of its row names, by their numbers."""

    path: str
    written: CsvFormat
    kept: list[int]
    names: int | None

    @property
    def columns(self) -> list[str]:
        """The columns of numbers as the parser calls them: by number, because two may have one name."""
        return [str(column) for column in self.kept]

    @property
    def index(self) -> str | None:
        return None if self.names is None else str(self.names)

    def batches(self) -> Iterator[Any]:
        """Record batches; types are given, because types guessed from the first batch can be wrong later."""
        import pyarrow

        first = self._first_rows({})
        bools = [] if first is None else [one.name for one in first.schema if one.type == pyarrow.bool_()]
        try:
            types = {name: pyarrow.bool_() if name in bools else pyarrow.float64() for name in self.columns}
            yield from self._parsed(types)
        except pyarrow.ArrowInvalid as error:
            raise TypeError(Message(f"`X`: {self.path!r} is not a table of numbers: {self._explain(error)}")) from None
        except OSError as error:  # of a damaged .gz
            raise ValueError(Message(f"`X`: {self.path!r} cannot be read: {error}. Write it again.")) from None

    def others(self) -> list[int]:
        """Columns whose first rows are neither numbers nor bools."""
        first = self._first_rows({})
        return [] if first is None else [one for one in self.kept if not is_numeric(first.column(str(one)).type)]

    def cells(self, columns: list[int]) -> dict[int, list[str | None]]:
        """The first cells of some columns, as texts."""
        import pyarrow

        first = self._first_rows({str(column): pyarrow.string() for column in columns}) if columns else None
        return {} if first is None else {one: first.column(str(one)).to_pylist() for one in columns}

    def _first_rows(self, types: dict[str, Any]) -> Any:
        """The first record batch; None if it cannot be read."""
        import pyarrow

        try:
            return next(self._parsed(types), None)
        except (pyarrow.ArrowException, OSError):
            return None

    def _parsed(self, types: dict[str, Any]) -> Iterator[Any]:
        """Record batches with columns of these types; other columns have those of their first rows."""
        import pyarrow
        import pyarrow.csv

        columns = self.columns if self.index is None else [*self.columns, self.index]
        are_texts = pyarrow.string() in types.values()
        if self.index is not None:
            types = {**types, self.index: pyarrow.string()}
        every = [str(column) for column in range(len(self.written.names))]
        with pyarrow.input_stream(self.path, compression="detect") as stream:
            yield from pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(column_names=every, skip_rows=self.written.n_skipped, block_size=_BLOCK),
                pyarrow.csv.ParseOptions(delimiter=self.written.sep, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(column_types=types, include_columns=columns, strings_can_be_null=are_texts),
            )

    def _explain(self, error: Exception) -> str:
        """What pyarrow says, with the names of all columns of text and a way out."""
        text = str(error).splitlines()[0]
        if "CSV parse error: Expected" in text and (row := self._ragged_row()) is not None:
            return f"{row}. Give each line as many cells as the first one."
        found = re.search(r"column #(\d+): .*?invalid value '(.*?)'", text)
        if "invalid UTF8" in text:
            return f"{text}. Save it with the encoding UTF-8."
        if not found:
            return text
        wrong = dict(sorted({**self._first_texts(), int(found[1]): found[2]}.items()))
        names = [self.written.names[column] for column in wrong]
        index = None if self.names is None else self.written.names[self.names]
        holds = (f"column {name!r} holds {cell!r}" for name, cell in zip(names, wrong.values(), strict=True))
        return f"{listed(holds)}. {way_out(names, index)}"

    def _ragged_row(self) -> str | None:
        """What the parser says of a line with another number of cells; it counts lines in one thread only."""
        import pyarrow
        import pyarrow.csv

        try:
            pyarrow.csv.read_csv(
                self.path,
                pyarrow.csv.ReadOptions(column_names=list(map(str, range(len(self.written.names)))), use_threads=False),
                pyarrow.csv.ParseOptions(delimiter=self.written.sep, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(include_columns=["0"], column_types={"0": pyarrow.string()}),
            )
        except pyarrow.ArrowInvalid as error:
            found = re.search(r"Row #(\d+): (.*)", str(error))
            return None if found is None else f"line {found[1]}: {found[2]}"
        return None

    def _first_texts(self) -> dict[int, str]:
        """The columns that do not begin with numbers, and the first cell of each that is none."""
        texts = {
            column: [cell for cell in rows if cell is not None and not is_number(cell)]
            for column, rows in self.cells(self.others()).items()
        }
        return {column: rows[0] for column, rows in texts.items() if rows}
