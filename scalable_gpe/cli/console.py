"""Everything that the command line prints."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from scalable_gpe.cli.options import ConsoleOptions
from scalable_gpe.cli.parser import OptionNames
from scalable_gpe.errors import Message

PROGRAM = "scalable-gpe"


def in_options(raised: BaseException, names: OptionNames) -> str:
    """Return the text of an error or warning as one line; arguments that it marks are written as options.

    Examples
    --------
    >>> from scalable_gpe.cli.options import EmbedOptions
    >>> error = ValueError(Message("`n_neighbors` must be at most 4. Pass `power=2`."))
    >>> in_options(error, OptionNames(EmbedOptions))
    '--n-neighbors must be at most 4. Pass --power 2.'
    """
    text = raised.args[0] if raised.args else None
    return _one_line(text.render(names) if isinstance(text, Message) else str(raised))


def _printable(text: str) -> str:
    """Replace control characters: texts of a store or a file must not steer the terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def show(text: str) -> None:
    """Print a result."""
    print(_printable(text))


def show_pairs(title: str, pairs: list[tuple[str, str]]) -> None:
    """Print a result as a small table."""
    width = max((len(name) for name, _ in pairs), default=0)
    show("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs), ""]))


def show_json(value: object, indent: int | None = 2) -> None:
    """Print a result for other programs."""
    show(json.dumps(value, indent=indent))


def tell(options: ConsoleOptions, text: str) -> None:
    """Print a line about the work, unless --quiet or --json."""
    if not options.quiet and not options.json:
        print(_printable(text), flush=True)


def say(text: str) -> None:
    """Print a line to standard error."""
    print(_printable(text), file=sys.stderr, flush=True)


def caution(text: str) -> None:
    """Print a warning as one line."""
    say(f"{PROGRAM}: warning: {_one_line(text)}")


@contextmanager
def plain_warnings(names: OptionNames) -> Iterator[None]:
    """Print warnings as one line each, without the line of code."""
    with warnings.catch_warnings():
        # numpy's and Python's warnings come as a text or as a Warning
        warnings.showwarning = lambda message, *_, **__: caution(
            in_options(message, names) if isinstance(message, Warning) else str(message)
        )
        yield


def _one_line(text: str) -> str:
    return " ".join(text.split())
