"""What the command line prints, in the words of the command line."""

import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PROGRAM = "scalable-gpe"

# what the library says of its arguments, where an option has another form
_FLAGS = {"resume=False": "--no-resume", "graph=False": "--no-graph", "overwrite=True": "--overwrite"}
_START = r"(?<![^\s(])"  # of a word: not inside a path
_CODE = re.compile(r", for instance (?:with )?[\w.]*[(\[][^,]*[)\]](?=[,.])")


def in_options(text: str, options: Mapping[str, str]) -> str:
    """One line in which arguments of the library are options of the command line.

    Examples
    --------
    >>> in_options("n_neighbors must be at most 4. Pass power=2.", {"n_neighbors": "--n-neighbors", "power": "--power"})
    '--n-neighbors must be at most 4. Pass --power 2.'
    """
    text = _CODE.sub("", " ".join(text.split()))
    text = re.sub(r"^X: ", "", text)
    text = re.sub(r"^X\b", "INPUT", text)
    for argument, flag in _FLAGS.items():
        text = text.replace(argument, flag)
    for name, option in options.items():
        # a name alone may be a word of English, unless it has an underscore or is what the sentence is about
        text = re.sub(rf"{_START}{name}=(?=[\w'\[-])", f"{option} ", text)
        text = re.sub(rf"{_START}{name}=", option, text)
        text = re.sub(rf"^{name}\b(?= must| has)" if "_" not in name else rf"{_START}{name}\b", option, text)
    return text


def show_pairs(title: str, pairs: list[tuple[str, str]]) -> None:
    """Print a small table."""
    width = max((len(name) for name, _ in pairs), default=0)
    print("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs), ""]))


def show_json(value: Any) -> None:
    """Print a result for other programs."""
    print(json.dumps(value, indent=2))


def tell(given: Any, text: str) -> None:
    """Print what a reader may like to know."""
    if not given.quiet and not given.json:
        print(text, flush=True)


def say(text: str) -> None:
    """Print what a reader must know, beside the results."""
    print(text, file=sys.stderr, flush=True)


def caution(text: str, options: Mapping[str, str]) -> None:
    """Print a warning as one line."""
    say(f"{PROGRAM}: warning: {in_options(text, options)}")


@contextmanager
def plain_warnings(options: Mapping[str, str]) -> Iterator[None]:
    """Warnings as one line each, without the line of code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: caution(str(message), options)
        yield
