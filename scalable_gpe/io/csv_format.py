"""How a text table is written: its delimiter, and whether its first line names the columns.

Both are decided from the first lines, and only where these lines leave no doubt; everything else is refused with the
arguments that decide it. `csv.Sniffer` is not asked: on names with spaces, and on tables of whole numbers, it is wrong.
"""

import csv
import io
import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from scalable_gpe.errors import Message
from scalable_gpe.io.points import first_names

_FIRST_LINES = 2**22  # bytes in which the first line of a text must end
_N_LINES = 32  # lines that are looked at
_DELIMITERS = (",", "\t", ";", "|", " ")  # in this order where several fit
_GAPS = frozenset({"", "#N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"})  # what the parser reads as missing


@dataclass(frozen=True)
class CsvFormat:
    """How a text table is written.

    Attributes
    ----------
    delimiter : str
        One character.
    names : tuple of str
        Names of the columns: those of the header, or ``"column 0"`` and so on.
    n_skipped : int
        Lines before the first row, the header and empty ones.
    has_header : bool
        Whether a line names the columns.
    """

    delimiter: str
    names: tuple[str, ...]
    n_skipped: int
    has_header: bool


@dataclass(frozen=True)
class _Records:
    """The first records of a text, split at one delimiter; `n_lines` is where the first of them ends."""

    delimiter: str
    first: tuple[str, ...]
    later: tuple[tuple[str, ...], ...]
    n_lines: int

    @property
    def agrees(self) -> bool:
        """Whether there are several columns, as many in each record."""
        return len(self.first) > 1 and {len(record) for record in self.later} <= {len(self.first)}

    @property
    def n_numbers(self) -> int:
        return sum(is_number(cell) for record in self.later for cell in record)


def csv_format(
    path: str,
    delimiter: str | None = None,
    header: bool | None = None,
    wanted: Sequence[object] = (),
    argument: str = "X",
) -> CsvFormat:
    """Find out how a text table is written.

    What is given is taken as it is. A column in `wanted` that the first line names makes this line a header. Errors
    name the `argument` whose file this is.
    """
    text = _first_lines(path, argument)
    possible = _likely(path) if delimiter is None else [_check_delimiter(delimiter)]
    found = _choose([_records(text, one, path, argument) for one in possible])
    if header is None:
        header = any(isinstance(name, str) and not is_number(name) and name in found.first for name in wanted)
        header = header or _names_columns(found, path)
    elif not isinstance(header, bool):
        raise TypeError(Message(f"`header` must be True, False or None (decided from the file); got {header!r}."))
    names = found.first if header else tuple(f"column {number}" for number in range(len(found.first)))
    return CsvFormat(found.delimiter, names, found.n_lines if header else 0, header)


def is_number(cell: str) -> bool:
    """Whether a cell is a number.

    Examples
    --------
    >>> is_number(" 1e3"), is_number("a"), is_number("")
    (True, False, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return True


# --- the first lines ------------------------------------------------------------------------------


def _first_lines(path: str, argument: str) -> str:
    """The first lines of a text, whole."""
    import pyarrow

    try:
        with pyarrow.input_stream(path, compression="detect") as stream:
            data = stream.read(_FIRST_LINES)
            ends = not stream.read(1)
    except (OSError, zlib.error) as error:
        raise ValueError(Message(f"`{argument}`: {path!r} cannot be read: {error}. Write it again.")) from None
    text = str(data.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise ValueError(Message(f"`{argument}`: {path!r} is empty. Pass a table with one point per row."))
    if ends:
        return text
    whole = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    if not whole:
        raise ValueError(
            Message(
                f"`{argument}`: the first line of {path!r} is longer than {_FIRST_LINES // 2**20} MiB. Is it a table?"
            )
        )
    return whole


def _records(text: str, delimiter: str, path: str, argument: str) -> _Records:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        first = next(cells for cells in lines if cells)
        n_lines = lines.line_num
        later = [tuple(cells) for cells in itertools.islice(lines, _N_LINES) if cells]
    except (csv.Error, StopIteration) as error:
        raise ValueError(Message(f"`{argument}`: {path!r} is not a table: {error}. Check its quotes.")) from None
    return _Records(delimiter, tuple(cell.strip() for cell in first), tuple(later), n_lines)


# --- the delimiter --------------------------------------------------------------------------------


def _likely(path: str) -> list[str]:
    """Delimiters, the most likely one first."""
    is_tsv = path.lower().removesuffix(".gz").endswith(".tsv")
    return sorted(_DELIMITERS, key=lambda one: is_tsv and one != "\t")


def _check_delimiter(delimiter: object) -> str:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise ValueError(Message(f"`delimiter` must be one character, such as ',' or a tab; got {delimiter!r}."))
    return delimiter


def _choose(candidates: list[_Records]) -> _Records:
    """The delimiter that gives each line as many cells, and the most numbers; the parser names lines that differ."""
    agreeing = [one for one in candidates if one.agrees]
    if agreeing:
        return max(agreeing, key=lambda one: one.n_numbers)  # the first of those with as many
    both = [one for one in candidates if len(one.first) > 1 and any(len(record) > 1 for record in one.later)]
    written = [one for one in candidates if len(one.first) > 1 and one.delimiter != " "]
    return [*both, *written, *candidates][0]


# --- the header -----------------------------------------------------------------------------------


def _names_columns(records: _Records, path: str) -> bool:
    """Whether the first line is a header; refuse where it may as well be a point."""
    cells = records.first
    unnamed = len(cells) > 1 and cells[0] == ""  # so pandas writes the name of its index
    rest = cells[unnamed:]
    numbers = [cell for cell in rest if is_number(cell)]
    counted = numbers == [str(number) for number in range(len(rest))]
    if any(cell in _GAPS for cell in rest):
        raise _ambiguous(path, cells, "it has an empty cell")
    if not numbers or (counted and len(cells) > 1):  # names, or what pandas writes for columns without names
        return True
    if len(numbers) < len(rest):
        raise _ambiguous(path, cells, "it has both words and numbers")
    if unnamed:
        raise _ambiguous(path, cells, "it has an empty cell")
    if counted or (_is_numbering(cells) and not any(map(_is_whole, records.later))):
        raise _ambiguous(path, cells, "its numbers may be those of the columns")
    return False


def _is_whole(cells: Sequence[str]) -> bool:
    return all(cell.strip().isdecimal() for cell in cells)


def _is_numbering(cells: Sequence[str]) -> bool:
    """Whether cells are ascending whole numbers, such as 1 to d, or years."""
    if len(cells) < 2 or not _is_whole(cells):
        return False
    numbers = [int(cell) for cell in cells]
    return all(left < right for left, right in itertools.pairwise(numbers))


def _ambiguous(path: str, cells: Sequence[str], why: str) -> ValueError:
    return ValueError(
        Message(
            f"`X`: the first line of {path!r} ({first_names(cells, 4)}) may name the columns or be a point: {why}. "
            "Pass `header=True` if it names the columns, `header=False` if it is a point."
        )
    )
