"""Errors and warnings of the library, for users to catch and filter; the texts they carry; the logger."""

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "GPEError",
    "StoreError",
    "DamageError",
    "MemoryLimitError",
    "GPEWarning",
    "ConvergenceWarning",
    "RecallWarning",
    "TruncationWarning",
    "ConnectivityWarning",
    "VanishingWarning",
]

logger = logging.getLogger("scalable_gpe")

_LIBRARY = str(Path(__file__).parent)
_SKLEARN = f"{os.sep}sklearn{os.sep}"  # scikit-learn wraps the methods of an estimator
PYTHON_ONLY = "!"
_MARK = re.compile(r"`([^`=]+)(?:=([^`]*))?`")


class Message(str):
    """Text of an error or a warning, with marks around the arguments that it names.

    A mark is a pair of backticks around ``name`` or ``name=value``. As a str the text has no marks: Python users read
    ``n_neighbors`` and ``power=2``. `render` writes the marked arguments in other words; the command line writes
    ``--n-neighbors`` and ``--power 2``. A mark that begins with "!" is advice for Python alone, such as ``X.T``: the
    command line leaves it out. Every exception class takes a Message in place of a str.

    Examples
    --------
    >>> text = Message("`n_neighbors` must be at most 4. Pass `power=2`.")
    >>> print(text)
    n_neighbors must be at most 4. Pass power=2.
    >>> text.render(lambda name, value: name.upper() if value is None else f"{name.upper()} {value}")
    'N_NEIGHBORS must be at most 4. Pass POWER 2.'
    """

    marked: str

    def __new__(cls, marked: str) -> "Message":
        text = super().__new__(cls, _MARK.sub(lambda mark: mark[0][1:-1].removeprefix(PYTHON_ONLY), marked))
        text.marked = marked
        return text

    def __getnewargs__(self) -> tuple[str]:
        return (self.marked,)  # errors travel from workers to the caller

    def render(self, argument: Callable[[str, str | None], str]) -> str:
        """Write each marked argument as ``argument(name, value)``; the value is None for a name alone."""
        return _MARK.sub(lambda mark: argument(mark[1], mark[2]), self.marked)


class GPEError(Exception):
    """Base of the errors that are not about an argument."""


class StoreError(GPEError, OSError):
    """The store cannot be used: damaged, busy, full, or made from another input."""


class DamageError(StoreError):
    """An array of a store is damaged; `array` names it. The next run computes its stage again.

    `part` is what must be made again: a chunk ("c/0/0"), METADATA or NUMBERS; "" if that is not known.
    """

    def __init__(self, message: str, array: str, part: str = "") -> None:
        super().__init__(f"{message}. Run embed again: it computes the damaged stage again and keeps the rest.")
        self.message, self.array, self.part = message, array, part

    def __reduce__(self) -> tuple[type["DamageError"], tuple[str, str, str]]:
        return type(self), (self.message, self.array, self.part)  # errors travel from workers to the caller


METADATA, NUMBERS = "metadata", "numbers"  # parts of an array


def wrong_numbers(array: str) -> DamageError:
    """Damage that no checksum shows: the whole array is made again."""
    return DamageError(f"array {array!r} is damaged: its numbers cannot be right", array, NUMBERS)


class MemoryLimitError(GPEError, ValueError):
    """The run does not fit in `memory_limit`; the message names the smallest limit that is enough."""


class GPEWarning(UserWarning):
    """Base of the warnings of this library."""


class ConvergenceWarning(GPEWarning):
    """An iteration stopped before it reached its tolerance."""


class RecallWarning(GPEWarning):
    """The neighbour lists miss more neighbours than requested."""


class TruncationWarning(GPEWarning):
    """The truncated kernel lost a noticeable part of the dense kernel's mass."""


class ConnectivityWarning(GPEWarning):
    """Rows are isolated, components not connected, or new rows far from all training rows."""


class VanishingWarning(GPEWarning):
    """The power is so large that nothing is left of the data."""


def warn(text: str, category: type[GPEWarning]) -> str:
    """Warn at the line of the user's code that called the library; return the text without marks, for the report.

    Backticks in `text` mark arguments, as in `Message`.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_between(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    message = Message(text)
    warnings.warn(message, category, stacklevel=level)
    return str(message)


def _is_between(filename: str) -> bool:
    """Whether a line of code lies between the user's call and the warning."""
    return filename.startswith(_LIBRARY) or _SKLEARN in filename


def __dir__() -> list[str]:
    return __all__
