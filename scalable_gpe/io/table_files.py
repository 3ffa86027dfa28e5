"""Tables in files: text (.csv, .tsv) and .parquet, opened with pyarrow.

The ending of a text says which character separates the cells, and its first line whether it names the columns, unless
the caller says both. A first line that leaves a doubt is refused with the argument that decides.
"""

import contextlib
import csv
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_gpe.io.points import (
    BATCH_ROWS,
    check_disk,
    first_line,
    first_names,
    import_optional,
)
from scalable_gpe.io.tables import (
    ADVICE,
    Table,
    find_column,
    is_numeric,
)

_FIRST_LINES = 2**22  # bytes in which the first line of a text must end
_BLOCK = 2**23  # bytes of a text that are parsed at once
_LEAST_BYTES = 4  # bytes of a number in the copy
_EXAMPLES = 1_000  # rows in which a text is looked for that shows why a column is none of numbers
_ORDER = "the files of {!r} are read by number, 2 before 10, as dask does; pandas reads them in another order."


def open_csv(path: str, sep: str | None = None, header: bool | None = None) -> Table:
    """Find out how a text table is written, where the caller does not say it, and what its columns hold."""
    pyarrow = import_optional("pyarrow", "tables", "a .csv file")
    text, header = _text(path, sep, header)
    # types guessed from the first rows can be wrong later: only bools stay what they are
    first: Any = next(text.batches({}, strings_can_be_null=True), None)
    types = [pyarrow.null()] * len(text.names) if first is None else first.schema.types

    def batches(columns: Sequence[int], texts: Sequence[int]) -> Iterator[Any]:
        numbers = {str(one): types[one] if types[one] == "bool" else pyarrow.float64() for one in columns}
        return text.batches(numbers | {str(one): pyarrow.string() for one in texts})

    return Table(
        path,
        path + (" below a header" if header else ""),
        text.names,
        types,
        [None if is_numeric(kind) or kind == "null" else _fault(text, first.column(n)) for n, kind in enumerate(types)],
        0 if header and text.names[0] == "" else None,  # pandas writes an index without a name so
        header,
        batches,
        text.column,
    )


def _fault(text: "_Text", column: Any) -> str:
    """Why a column is none of numbers: the first text in it."""
    cells = [str(cell) for cell in column.drop_null().slice(0, _EXAMPLES).to_pylist()]
    only = f" (cells end at {text.sep!r}; sep= is another character)" if len(text.names) == 1 else ""
    return f"holds {next((cell for cell in cells if not _is_number(cell)), cells[0])!r}{only}"


@dataclass(frozen=True)
class _Text:
    """A text table: the character between its cells, and the lines before its first row.

    To the parser, columns are named by their numbers, because two may have one name.
    """

    path: str
    names: list[str]
    sep: str
    n_skipped: int

    def batches(self, types: dict[str, Any], **converting: Any) -> Iterator[Any]:
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

    def column(self, number: int) -> Any:
        """A whole column with a type that holds all of it."""
        import pyarrow
        import pyarrow.csv

        options = pyarrow.csv.ConvertOptions(include_columns=[str(number)])
        try:
            return pyarrow.csv.read_csv(self.path, *self._parsing, options).column(0).to_pandas()
        except (pyarrow.ArrowException, OSError) as error:
            text = f"is not a table with a header and {self.sep!r} between its cells: {error}"
            raise ValueError(f"color: {self.path!r} {text}") from None

    @property
    def _parsing(self) -> tuple[Any, Any]:
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
        return f"column {self.names[int(found[1])]!r} holds {found[2]!r}. {ADVICE}" if found else text


def _text(path: str, sep: str | None, header: bool | None) -> tuple[_Text, bool]:
    """How a text table is written, and whether its first line names the columns."""
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
    return _Text(path, names, sep, n_lines if header else 0), header


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


# --- parquet --------------------------------------------------------------------------------------


def open_parquet(path: str) -> Table:
    """Open a file, or a folder of files that counts as one."""
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    import pyarrow.types

    files = parquet_files(path)
    with sound_parquet(path):
        schema = parquet.read_schema(files[0])
    names = list(schema.names)

    def batches(columns: Sequence[int], texts: Sequence[int]) -> Iterator[Any]:
        chosen = [*columns, *texts]
        with sound_parquet(path):
            for file in files:
                yield from _parquet_batches(file, [names[one] for one in chosen], list(map(str, chosen)), len(columns))

    def column(number: int) -> Any:
        with sound_parquet(path, "color"):
            return parquet.ParquetDataset(files).read(columns=[names[number]]).column(0).to_pandas()

    faults = [None if is_numeric(kind) else f"has type {kind}" for kind in schema.types]
    types = [kind.value_type if pyarrow.types.is_dictionary(kind) else kind for kind in schema.types]
    remarks = () if files == sorted(files) else (_ORDER.format(path),)
    return Table(path, path, names, types, faults, _pandas_index(schema, path), True, batches, column, remarks)


def _parquet_batches(file: str, names: list[str], numbers: list[str], n_columns: int) -> Iterator[Any]:
    """Record batches of some columns of a file, the first `n_columns` of which are to be copied."""
    import pyarrow.parquet

    # names stay in the dictionary that the file has: a long one that is used often would fill the memory
    with pyarrow.parquet.ParquetFile(file, pre_buffer=False, read_dictionary=names[n_columns:]) as opened:
        check_disk(opened.metadata.num_rows * n_columns * _LEAST_BYTES)
        for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=names):
            yield pyarrow.RecordBatch.from_arrays([batch.column(name) for name in names], numbers)


def _pandas_index(schema: Any, path: str) -> int | None:
    """The column in which pandas keeps the index, if pandas wrote the file and the index is not just counted."""
    try:
        columns = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(f"X: {path!r} has metadata of pandas that is not sound. Write it again.") from None
    named = len(columns) == 1 and isinstance(columns[0], str)
    return find_column(columns[0], schema.names, "index", path) if named else None


def parquet_files(path: str) -> list[str]:
    """A file, or those in a folder, part.2 before part.10, as dask has them."""
    if not os.path.isdir(path):
        return [path]
    files = sorted(map(str, Path(path).rglob("*.parquet")), key=_by_numbers)
    if not files:
        raise ValueError(f"X: the folder {path!r} holds no .parquet file. Check the path.")
    return files


def _by_numbers(text: str) -> list[Any]:
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", text))]


@contextlib.contextmanager
def sound_parquet(path: str, argument: str = "X") -> Iterator[None]:
    """Name a damaged file; pyarrow's errors do not."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{argument}: {path!r} is not a sound .parquet file: {first_line(error)}. Write it again."
        ) from None
