"""The errors and warnings of the library, so that users can catch and filter them; and its logger."""

import logging
import os
import sys
import warnings
from pathlib import Path

logger = logging.getLogger("scalable_gpe")

_HERE = str(Path(__file__).parent)
_BETWEEN = f"{os.sep}sklearn{os.sep}"  # which calls an estimator's methods for its user


class GPEError(Exception):
    """Base of the errors that are not about an argument."""


class StoreError(GPEError, OSError):
    """A store cannot be used: damaged, busy, full, or made from something else."""


class DamageError(StoreError):
    """An array of a store is damaged; `array` names it. The next run makes its stage again."""

    def __init__(self, message: str, array: str) -> None:
        super().__init__(f"{message}. Run embed again: what is damaged is computed anew, the rest is kept.")
        self.message, self.array = message, array

    def __reduce__(self) -> tuple[type["DamageError"], tuple[str, str]]:
        return type(self), (self.message, self.array)  # from a worker to the caller


class MemoryLimitError(GPEError, ValueError):
    """The plan does not fit `memory_limit`; the message names the smallest limit that would do."""


class GPEWarning(UserWarning):
    """Base of the warnings of this library."""


class ConvergenceWarning(GPEWarning):
    """An iteration stopped before it reached its tolerance."""


class RecallWarning(GPEWarning):
    """The neighbour lists miss more neighbours than asked for."""


class TruncationWarning(GPEWarning):
    """The truncated kernel lost a noticeable part of the dense kernel's mass."""


class ConnectivityWarning(GPEWarning):
    """The graph has isolated rows or falls into several pieces."""


class VanishingWarning(GPEWarning):
    """The power is so large that nothing is left of the data."""


def warn(message: str, category: type[GPEWarning]) -> str:
    """Warn with the line of the caller's code that called this library; gives the message, for the record."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_HERE) or _BETWEEN in frame.f_code.co_filename
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
    return message
