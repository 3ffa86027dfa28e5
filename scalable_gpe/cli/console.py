"""Everything that the command line prints."""

import json
import sys

import click

PROGRAM = "scalable-gpe"


def _printable(text: str) -> str:
    """Replace control characters: texts of a store or a file must not steer the terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def show(text: str, data: object) -> None:
    """Print a result: a text, or with --json its data for other programs."""
    print(_printable(json.dumps(data, indent=2) if is_given("json") else text), flush=True)


def table(title: str, pairs: list[tuple[str, str]]) -> str:
    """Return a small table, with an empty line after it."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs), ""])


def is_given(switch: str) -> bool:
    """Whether the command has this switch: quiet, json or debug."""
    return bool(click.get_current_context().meta[switch])


def progress() -> bool | None:
    """The `progress` argument of the library."""
    return False if is_given("quiet") else None


def tell(text: str, data: object = None) -> None:
    """Print about the work, unless --quiet; with --json, print only the data."""
    wanted = data is not None if is_given("json") else not is_given("quiet")
    if wanted:
        show(text, data)


def say(text: str) -> None:
    """Print a line to standard error."""
    print(_printable(text), file=sys.stderr, flush=True)


def caution(text: str) -> None:
    """Print a warning as one line."""
    say(f"{PROGRAM}: warning: {one_line(text)}")


def one_line(text: str) -> str:
    """Words with one space between them."""
    return " ".join(text.split())
