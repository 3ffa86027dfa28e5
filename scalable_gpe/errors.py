"""Errors and warnings of the library, for users to catch and filter; the logger."""

import logging
import os
import sys
import warnings
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
    """Warn at the line of the user's code that called the library; return the text, for the report."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_between(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
    return text


def _is_between(filename: str) -> bool:
    """Whether a line of code lies between the user's call and the warning."""
    return filename.startswith(_LIBRARY) or _SKLEARN in filename


def __dir__() -> list[str]:
    return __all__
