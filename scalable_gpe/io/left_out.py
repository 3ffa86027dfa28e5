"""What is said about the columns of a table that `numeric_only` leaves out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from scalable_gpe.io.points import listed

SAMPLE_ROWS = 65_536  # rows of a column that are looked at
_COMMAS = {
    "a thousands separator": re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+(\.\d*)?\s*"),
    "a decimal comma": re.compile(r"\s*[+-]?\d+,\d+\s*"),
}


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


def left_out_remarks(columns: Mapping[Any, Sequence[Any]]) -> tuple[str, ...]:
    """Warnings: the columns that are left out, and those of them that may be numbers by their first cells.

    Examples
    --------
    >>> for text in left_out_remarks({"city": ["Rome", "Bonn"], "age": ["31", "7", "?"], "price": ["1,5", "20,25"]}):
    ...     print(text)
    columns 'city', 'age', 'price' are left out: they do not hold numbers alone.
    column 'age' is left out: 2 of the first 3 cells are numbers; row 2 holds '?'. Replace what is no number to use it.
    column 'price' is left out: it looks like numbers with a decimal comma. Write them as 1234.5 to use it.
    """
    if not columns:
        return ()
    they = "columns {} are left out: they do" if len(columns) > 1 else "column {} is left out: it does"
    likely = (_likely_numbers(name, cells) for name, cells in columns.items())
    return (f"{they.format(listed(map(repr, columns)))} not hold numbers alone.", *filter(None, likely))


def _likely_numbers(name: Any, cells: Sequence[Any]) -> str | None:
    """The warning about a column of which more than half of the cells are numbers, in one form or another."""
    texts = {row: str(cell) for row, cell in enumerate(cells) if cell is not None}
    others = [row for row, text in texts.items() if not is_number(text)]
    n_numbers = len(texts) - len(others)
    if 2 * n_numbers > len(texts):
        where = f"; row {others[0]} holds {texts[others[0]]!r}" if others else ""
        of = f"{n_numbers:,} of the first {len(texts):,} cells are numbers{where}"
        return f"column {name!r} is left out: {of}. Replace what is no number to use it."
    counts = {form: sum(map(bool, map(pattern.fullmatch, texts.values()))) for form, pattern in _COMMAS.items()}
    form = max(counts, key=lambda one: counts[one])
    if 2 * (n_numbers + counts[form]) <= len(texts):
        return None
    return f"column {name!r} is left out: it looks like numbers with {form}. Write them as 1234.5 to use it."
