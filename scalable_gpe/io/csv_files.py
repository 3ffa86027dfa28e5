"""Text tables (.csv, .tsv), read by pyarrow batch by batch.

The ending says which character separates the cells, and the first line whether it names the columns, unless the caller
says both. A first line that leaves a doubt is refused with the argument that decides.
"""

import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import first_names
from scalable_gpe.io.tables import TableFile, is_numeric, wrong_columns

_FIRST_LINES = 2**22  # bytes in which the first line of a text must end
_BLOCK = 2**23  # bytes of a text that are parsed at once


@dataclass(frozen=True)
class CsvTable(TableFile):
    """A text table: the character between its cells, and the lines before its first row.

    To the parser, columns are named by their numbers, because two may have one name.
    """

    sep: str
    n_skipped: int

    def type_of(self, column: int) -> Any:
        import pyarrow

        return pyarrow.null() if self._first_rows is None else self._first_rows.column(column).type

    def fault(self, column: int) -> str | None:
        import pyarrow.types as types

        if is_numeric(kind := self.type_of(column)) or types.is_null(kind):
            return None
        texts = [str(cell) for cell in self._first_rows.column(column).to_pylist() if cell is not None]
        only = f" (cells end at {self.sep!r}; sep= is another character)" if len(self.names) == 1 else ""
        return f"holds {next((text for text in texts if not _is_number(text)), texts[0])!r}{only}"

    def dtype(self, columns: Sequence[int]) -> type[np.floating[Any]]:
        return np.float64

    def batches(self, columns: Sequence[int], index: int | None) -> Iterator[Any]:
        import pyarrow

        # types guessed from the first rows can be wrong later
        bools = () if self._first_rows is None else [f.name for f in self._first_rows.schema if f.type == "bool"]
        types = {str(one): pyarrow.bool_() if str(one) in bools else pyarrow.float64() for one in columns}
        return self._parsed(types if index is None else {**types, str(index): pyarrow.string()})

    def read(self, column: int, texts: Sequence[int]) -> Any:
        import pyarrow
        import pyarrow.csv

        names = {str(one): pyarrow.string() for one in texts}  # 007 is a name
        options = pyarrow.csv.ConvertOptions(include_columns=[str(column), *names], column_types=names)
        try:
            return pyarrow.csv.read_csv(self.path, *self._parsing, options)
        except (pyarrow.ArrowException, OSError) as error:
            text = f"is not a table with a header and {self.sep!r} between its cells: {error}"
            raise ValueError(f"color: {self.path!r} {text}") from None

    @cached_property
    def _first_rows(self) -> Any:
        """The first record batch, with the types of its cells; None without rows."""
        return next(self._parsed({}, strings_can_be_null=True), None)

    def _parsed(self, types: dict[str, Any], **converting: Any) -> Iterator[Any]:
        """Record batches with columns of these types; all columns with those of the first rows if there are none."""
        import pyarrow
        import pyarrow.csv

        options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types), **converting)
        try:
            with pyarrow.input_stream(self.path, compression="detect") as stream:
                yield from pyarrow.csv.open_csv(stream, *self._parsing, options)
        except pyarrow.ArrowInvalid as error:
            raise TypeError(f"X: {self.path!r} is not a table of numbers: {self._explain(error)}") from None
        except OSError as error:  # of a damaged .gz
            raise ValueError(f"X: {self.path!r} cannot be read: {error}. Write it again.") from None

    @property
    def _parsing(self) -> tuple[Any, Any]:
        """How the file is read and parsed."""
        import pyarrow.csv

        every = [str(column) for column in range(len(self.names))]
        reading = pyarrow.csv.ReadOptions(column_names=every, skip_rows=self.n_skipped, block_size=_BLOCK)
        return reading, pyarrow.csv.ParseOptions(delimiter=self.sep, newlines_in_values=True)

    def _explain(self, error: Exception) -> str:
        """What pyarrow says, with the names of columns, and a way out."""
        text = str(error).splitlines()[0]
        if "invalid UTF8" in text:
            return f"{text}. Save it with the encoding UTF-8."
        if "CSV parse error: Expected" in text:
            return f"{text}. Give each line as many cells as the first one, or pass sep=."
        found = re.search(r"column #(\d+): .*?invalid value '(.*?)'", text)
        return wrong_columns({int(found[1]): f"holds {found[2]!r}"}, self) if found else text


def open_csv(path: str, sep: str | None = None, header: bool | None = None) -> CsvTable:
    """Find out how a text table is written, where the caller does not say it."""
    import_optional("pyarrow.csv", "tables", "a .csv file")
    sep = usual_separator(path) if sep is None else sep
    if not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n' or not sep.isascii():
        raise ValueError(f"sep must be one character, such as ',' or a tab; got {sep!r}.")
    first, n_lines = _first_record(path, sep)
    header = _names_columns(first) if header is None else header
    if header is None:
        raise ValueError(
            f"X: the first line of {path!r} ({first_names(first, 4)}) may name the columns or be a point. "
            "Pass header=True if it names the columns, header=False if it is a point."
        )
    if not isinstance(header, bool):
        raise TypeError(f"header must be True, False or None (decided from the file); got {header!r}.")
    names = first if header else [f"column {number}" for number in range(len(first))]
    source = path + (" below a header" if header else "")
    index = 0 if header and names[0] == "" else None  # pandas writes an index without a name so
    return CsvTable(path, source, names, index, header, sep, n_lines if header else 0)


def usual_separator(path: str) -> str:
    """The character between cells, by the ending of a path."""
    return "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","


def _first_record(path: str, sep: str) -> tuple[list[str], int]:
    """The cells of the first line that is not empty, and where it ends."""
    import pyarrow

    try:
        with pyarrow.input_stream(path, compression="detect") as stream:
            data = stream.read(_FIRST_LINES)
    except (OSError, zlib.error) as error:
        raise ValueError(f"X: {path!r} cannot be read: {error}. Write it again.") from None
    text = data.decode("utf-8-sig", errors="replace")
    if len(data) == _FIRST_LINES and len(text.splitlines()) == 1:
        size = f"{_FIRST_LINES // 2**20} MiB"
        raise ValueError(f"X: the first line of {path!r} is longer than {size}. Is it a table?")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=sep)
    try:
        first = next((cells for cells in lines if cells), None)
    except csv.Error as error:
        raise ValueError(f"X: {path!r} is not a table: {error}. Check its quotes.") from None
    if first is None or not text.strip():
        raise ValueError(f"X: {path!r} is empty. Pass a table with one point per row.")
    return [cell.strip() for cell in first], lines.line_num


def _names_columns(cells: Sequence[str]) -> bool | None:
    """Whether the first line is a header; None where it may as well be a point.

    Examples
    --------
    >>> _names_columns(["a", "b"]), _names_columns(["", "0", "1"]), _names_columns(["1.5", "2"])
    (True, True, False)
    >>> _names_columns(["2019", "2020"])
    """
    numeric = [_is_number(cell) for cell in cells]
    numbers = list(cells if numeric[0] else cells[1:])
    if numbers == [str(number) for number in range(len(numbers))] and (len(numbers) > 1 or cells[0] == ""):
        return True  # pandas, for columns without names
    may_name = len(set(cells)) == len(cells) and all(map(str.isdecimal, cells))
    return None if any(numeric) and (may_name or not all(numeric)) else not any(numeric)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
