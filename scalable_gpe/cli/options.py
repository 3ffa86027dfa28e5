"""Arguments and options: how they are declared, what they take, and those that several commands share.

They have the names of the library's arguments; users see their flags and metavars.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

FILE = click.Path(readable=False)  # for completion in the shell; the library checks files


class Argument(click.Argument):
    """A positional argument with help; by default a path."""

    def __init__(self, name: str, metavar: str, help: str, *, type: Any = FILE, **settings: Any) -> None:
        super().__init__([name], metavar=metavar, type=type, **settings)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return metavar and help."""
        return str(self.metavar), str(self.help)


def option(flags: str, metavar: str | None, help: str, **settings: Any) -> click.Option:
    """Declare an option; the first flag with two dashes is its name in messages."""
    return click.Option(flags.split(), metavar=metavar, help=help, **settings)


def several(flag: str, metavar: str, help: str, **settings: Any) -> click.Option:
    """Declare an option that takes one or more values: ``--columns a b``."""
    settings = {"callback": lambda _, __, values: list(values) or None, **settings}
    return option(flag, f"{metavar} ...", help, multiple=True, **settings)


def switch(flags: str, help: str, **settings: Any) -> click.Option:
    """Declare an option without a value."""
    return option(flags, None, help, is_flag=True, **settings)


def switch_off(name: str, help: str) -> click.Option:
    """Declare the option ``--no-name``, after which `name` is False."""
    return switch(f"{name} --no-{name}", help, callback=lambda _, __, value: not value)


def take(given: dict[str, Any], parameters: Iterable[click.Parameter]) -> dict[str, Any]:
    """Remove the values of some parameters, and return them by name."""
    return {str(one.name): given.pop(str(one.name)) for one in parameters if one.name in given}


# --- values: click names the option of an error ---------------------------------------------------


def count(value: Any, word: str | None = None) -> Any:
    """Read a positive whole number, 1000, 1_000 or 1e3, or a word."""
    text = str(value)
    if text == word:
        return text
    try:
        number = float(text) if "e" in text.lower() else int(text)
        if number == int(number) and number >= 1:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(f"{text!r} is not a positive whole number{f' or {word}' if word else ''}.")


def count_or(word: str) -> Callable[[Any], Any]:
    """Read a positive whole number or this word."""
    return lambda value: count(value, word)


def count_or_path(text: str) -> Any:
    """Read a positive whole number, or leave the text as it is."""
    try:
        return count(text)
    except click.BadParameter:
        return text


def number_or_word(text: str) -> float | str:
    """Read a number, or leave the text as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def character(text: str) -> str:
    """Read one character; a tab is hard to type."""
    return {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    except ValueError:
        pass
    raise click.BadParameter(f"{text!r} is not a JSON object.")


# --- shared by several commands -------------------------------------------------------------------


def _remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[str(parameter.name)] = value


CONSOLE = tuple(
    switch(flags, help, expose_value=False, callback=_remember)
    for flags, help in (
        ("-q --quiet", "no progress bars, no text but tables"),
        ("--json", "print the result as JSON"),
        ("--debug", "show where an error comes from"),
    )
)
STORAGE_OPTIONS = option(
    "--storage-options", "JSON", 'what fsspec needs to reach URLs: {"endpoint_url": "..."}', type=json_object
)
STORE = (Argument("store", "STORE", "a zarr store: a path or URL"), STORAGE_OPTIONS)
RUN = (*STORE, option("--run", "NAME", "which run of several, as info lists them (the latest)"))
N_JOBS = option("--n-jobs", "J", "threads (all cores)", type=int)
OVERWRITE = switch("--overwrite", "replace OUT if it exists")
POINTS = (
    option(
        "--key",
        "KEY",
        "array of an .h5ad or .zarr file (obsm/X_pca if present, else X); list column of a .parquet file",
    ),
    option("--index", "COLUMN", "column of a .csv or .parquet file that holds the names of the rows"),
    several(
        "--columns", "COLUMN", "columns of a .csv or .parquet file, by name or by number from 0 (all but the index)"
    ),
    several("--drop", "COLUMN", "columns to leave out, instead of --columns"),
    option(
        "--header/--no-header",
        None,
        "whether the first line of a .csv file names the columns (decided from the file)",
        default=None,
    ),
    option(
        "--sep --delimiter",
        "C",
        "character between the cells of a .csv file, or tab (a comma; in a .tsv file a tab)",
        type=character,
    ),
    switch("--numeric-only", "leave out the columns of a table that are neither numbers nor bools"),
)
MISSING_VALUES = option("--missing", "NAME", "drop rows with missing values (error)")
SCALE = option("--scale", "NAME", "divide each column by its spread: standard or robust (as it is)")
SIZES = (
    option("-k --n-components --components", "K", "dimensions (32)", type=count, default=32),
    option("--n-neighbors --neighbors", "M", "neighbours of each row (16)", type=count),
    several(
        "--power",
        "P",
        "all, or powers of A (all)",
        type=count_or("all"),
        callback=lambda _, __, values: values[0] if len(values) == 1 else list(values) or None,
    ),
    option("--horizon", "T", "average steps of a walk in --power all (auto)", type=count_or("auto")),
    option("--n-sketch", "S", "compute S columns and keep their K principal axes", type=count),
    option("--memory-limit", "BYTES", "resident memory of the process, such as 2GB"),
)
AUDIT = (
    option("--n-probes --probes", "N", "rows with an exact neighbour search (1000)", type=count),
    option("--n-exact --exact", "N", "rows with exact diffusion distances (64)", type=count, default=64),
    option("--random-state", "SEED", "seed of the samples (0)", type=int),
)
VALUES_INDEX = option("--index", "NAME", "which column of that file holds the names of the rows (found by itself)")
COLOR = (
    option(
        "--color",
        "FILE",
        "colours: a column of a .npy, .csv, .parquet or .h5ad file, by the names of the rows or in their order",
        type=FILE,
    ),
    option("--column", "NAME", "which column of that file (.npy: its number; .h5ad: a column of obs)"),
    VALUES_INDEX,
)
