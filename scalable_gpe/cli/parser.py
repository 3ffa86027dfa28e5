"""Building blocks of the command line: fields that declare options, and the parser made from them.

A command's options are a frozen dataclass. The annotation of each field holds its type and its declaration, an
`argument` or an `option`: ``n_jobs: Annotated[int, option("--n-jobs", type=int)]``.
"""

import argparse
import dataclasses
import difflib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, get_args

if TYPE_CHECKING:
    from scalable_gpe.storage.backends import StorageOptions

T = TypeVar("T")


class Settings(TypedDict, total=False):
    """Keywords of argparse's `add_argument` that the commands use."""

    type: Callable[[str], object]
    default: object
    nargs: str
    choices: Sequence[str]
    action: str | type[argparse.Action]
    metavar: str
    help: str


@dataclasses.dataclass(frozen=True)
class Declaration:
    """How a field is written on the command line; without flags it is positional.

    `stands_for` is the argument of the library that the field is passed as, where the names differ; of a positional
    argument there may be several, with spaces between.
    """

    flags: tuple[str, ...]
    stands_for: str | None
    settings: Settings


def argument(*, stands_for: str | None = None, **settings: Unpack[Settings]) -> Declaration:
    """Declare a field as a positional argument."""
    return Declaration((), stands_for, settings)


def option(*flags: str, stands_for: str | None = None, **settings: Unpack[Settings]) -> Declaration:
    """Declare a field as an option; the first flag with two dashes is its name in messages."""
    return Declaration(flags, stands_for, settings)


def declarations(options: type[Any]) -> dict[str, Declaration]:
    """Return the declaration of each field of a class of options."""
    return {one.name: get_args(one.type)[1] for one in dataclasses.fields(options)}


class OptionNames:
    """Write arguments of the library as a command's options: what `Message.render` needs.

    Examples
    --------
    >>> from typing import Annotated
    >>> @dataclasses.dataclass(frozen=True)
    ... class Options:
    ...     source: Annotated[str, argument(stands_for="X", metavar="INPUT")]
    ...     n_jobs: Annotated[int, option("-j", "--n-jobs", type=int)]
    ...     resume: Annotated[bool, option("--no-resume", action="store_false")]
    >>> names = OptionNames(Options)
    >>> names("X"), names("n_jobs"), names("n_jobs", "2"), names("resume", "False"), names("tol", "1")
    ('INPUT', '--n-jobs', '--n-jobs 2', '--no-resume', 'tol=1')
    """

    def __init__(self, options: type[Any]) -> None:
        self._names = dict(pair for name, one in declarations(options).items() for pair in _written(name, one))

    def __call__(self, name: str, value: str | None = None) -> str:
        """Write one argument; an argument that is no option of the command stays as it is."""
        whole = name if value is None else f"{name}={value}"
        if whole in self._names or name not in self._names:
            return self._names.get(whole, whole)
        return f"{self._names[name]} {value}".rstrip()


def _written(field: str, declared: Declaration) -> list[tuple[str, str]]:
    """An argument of the library (``name``, or ``name=value`` for a switch), and how the command line writes it."""
    name = declared.stands_for or field
    if not declared.flags:
        return [(one, declared.settings["metavar"]) for one in name.split()]
    flag = next(text for text in declared.flags if text.startswith("--"))
    action = declared.settings.get("action")
    if action is argparse.BooleanOptionalAction:
        return [(name, flag), (f"{name}=True", flag), (f"{name}=False", f"--no-{flag[2:]}")]
    value = {"store_true": "=True", "store_false": "=False"}.get(str(action), "")
    return [(name + value, flag)]


@dataclasses.dataclass(frozen=True)
class Command(Generic[T]):
    """One command: its options, its function and its help."""

    name: str
    options: type[T]
    run: Callable[[T], None]
    help: str
    examples: tuple[str, ...]

    def add_to(self, subparsers: Any) -> None:  # argparse's class has no public name
        """Add the parser of this command."""
        parser = subparsers.add_parser(
            self.name,
            help=self.help,
            description=self.help[0].upper() + self.help[1:].replace("%%", "%") + ".",
            epilog="\n  ".join([f"example{'s' * (len(self.examples) > 1)}:", *self.examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(_command=self, _parser=parser)
        for name, one in declarations(self.options).items():
            if one.flags:
                parser.add_argument(*one.flags, dest=name, **one.settings)
            else:
                parser.add_argument(name, **one.settings)

    def flags(self) -> list[str]:
        """Every spelling of every option."""
        return [flag for one in declarations(self.options).values() for flag in one.flags]

    def read(self, given: argparse.Namespace) -> T:
        """Return the options of this command, taken from the namespace by name."""
        return self.options(**{name: getattr(given, name) for name in declarations(self.options)})


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[Command[Any], Any]:
    """Return the command and its options; a word that no option knows is an error of the command."""
    given, unknown = parser.parse_known_args(words)
    command: Command[Any] = given._command
    if unknown:
        close = difflib.get_close_matches(unknown[0], command.flags(), 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        given._parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return command, command.read(given)


# --- values ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, repr=False)
class Kind(Generic[T]):
    """Kind of value that an option takes; argparse names it in its errors."""

    name: str
    read: Callable[[str], T]

    def __call__(self, text: str) -> T:
        return self.read(text)

    def __repr__(self) -> str:
        return self.name


def _count(text: str) -> int:
    value = float(text) if "e" in text.lower() else int(text)
    if value != int(value) or value < 1:
        raise ValueError(text)
    return int(value)


def _count_or_path(text: str) -> int | str:
    try:
        return _count(text)
    except ValueError:
        return text


def _index(text: str) -> int:
    return int(text) if text.isdigit() else _count(text)


def _power(text: str) -> int | str:
    return text if text in ("auto", "all") else _count(text)


def _one_power(text: str) -> int | str:
    return text if text == "all" else _count(text)


def _count_or_auto(text: str) -> int | str:
    return text if text == "auto" else _count(text)


def _character(text: str) -> str:
    """One character; a tab is hard to type."""
    return {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _json_object(text: str) -> "StorageOptions":
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


COUNT = Kind("positive whole number", _count)
COUNT_OR_PATH = Kind("positive whole number or path", _count_or_path)
INDEX = Kind("whole number", _index)
POWER = Kind("positive whole number (or all, or auto)", _power)
ONE_POWER = Kind("positive whole number (or all)", _one_power)
COUNT_OR_AUTO = Kind("positive whole number (or auto)", _count_or_auto)
NUMBER_OR_WORD = Kind("number or word", _number_or_word)
CHARACTER = Kind("character", _character)
JSON_OBJECT = Kind("JSON object", _json_object)
