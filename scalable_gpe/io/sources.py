"""Kinds of input: each knows how to give rows, whether they are in memory, and whether other processes can read them.

All are pickled to cluster workers: what has a name (a file, a store) by that name, what has none by its values.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import Message

# errors that zarr may raise for files that others have written and that are not sound
DECODING = (
    ValueError,
    RuntimeError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    BufferError,
    AssertionError,
)

At = slice | np.ndarray  # a range of rows with both ends, or row numbers in any order


class Source(Protocol):
    """One kind of input.

    `resident`: the values are in the memory of this process already. `shared`: other processes can read the same
    values, because they are in a file or a store.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def resident(self) -> bool: ...
    @property
    def shared(self) -> bool: ...
    def rows(self, at: At) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Rows of a numpy array, or of a part of a mapped file, which no longer knows its place in the file."""

    array: np.ndarray
    shared = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def resident(self) -> bool:
        """Whether the array is in memory."""
        return not isinstance(self.array, np.memmap)

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number."""
        return np.asarray(self.array[at])


@dataclass(frozen=True, eq=False)
class SparseSource:
    """Rows of a scipy CSR matrix, made dense as they are read."""

    matrix: Any
    resident = True
    shared = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix."""
        return tuple(self.matrix.shape)

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number."""
        return np.asarray(self.matrix[at].toarray())


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Rows of a pandas DataFrame."""

    frame: Any
    dtype: type[np.floating[Any]]
    resident = True
    shared = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the frame."""
        return tuple(self.frame.shape)

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number; missing values become NaN."""
        part = self.frame.iloc[at]
        checks.check_whole(part)
        return np.asarray(part.to_numpy(dtype=self.dtype, na_value=np.nan))


@dataclass(frozen=True, eq=False)
class DaskSource:
    """Rows of a dask array, computed in the thread that reads them (the threads are ours), or where they persist."""

    array: Any
    resident = False
    shared = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.array.shape)

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number."""
        part = self.array[at]
        clients = (getattr(value, "client", None) for value in part.__dask_graph__().values())  # of futures
        client = next(filter(None, clients), None)
        return np.asarray(part.compute(scheduler="synchronous") if client is None else client.compute(part, sync=True))


def array_name(array: Any) -> str:
    """Name of a zarr array in an error."""
    return str(array.store_path)


@dataclass(frozen=True, eq=False)
class ZarrSource:
    """Rows of a zarr array."""

    array: Any
    resident = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.array.shape)

    @property
    def shared(self) -> bool:
        """Whether the store is not in the memory of this process."""
        from zarr.storage import MemoryStore

        return not isinstance(self.array.store, MemoryStore)

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number."""
        try:
            return np.asarray(self.array[at] if isinstance(at, slice) else self.array.oindex[at])
        except (*DECODING, MemoryError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise ValueError(
                Message(
                    f"`X`: rows of the zarr array {array_name(self.array)!r} cannot be read: {text}. Write it again."
                )
            ) from error
