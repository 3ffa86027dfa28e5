"""Vectors of all rows whose entries are made when they are needed."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt


class LazyVector:
    """A vector whose entries are made when it is sliced, in place of an array with an entry per row.

    ``rows(start, stop)`` makes entries. Anything but a slice takes all of them, as an array does.
    """

    ndim = 1

    def __init__(self, length: int, dtype: npt.DTypeLike, rows: Callable[[int, int], Any]) -> None:
        self.shape, self.dtype, self._rows = (length,), np.dtype(dtype), rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._made(start, max(start, stop))[::step]
        return np.asarray(self)[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._made(0, len(self)).astype(dtype or self.dtype, copy=False)

    def _made(self, start: int, stop: int) -> np.ndarray:
        out = np.empty(stop - start, self.dtype)
        out[:] = self._rows(start, stop)
        return out


def lazy_vector(length: int, dtype: npt.DTypeLike, rows: Callable[[int, int], Any]) -> np.ndarray:
    """A lazy vector, for code that slices a vector or takes all of it."""
    return cast(np.ndarray, LazyVector(length, dtype, rows))
