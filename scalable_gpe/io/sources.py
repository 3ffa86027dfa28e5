"""Input arrays: each knows how to give rows, whether they are in memory, and whether other processes can read them."""

import mmap
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.io.points import narrowest_float

At = slice | np.ndarray  # a range of rows with both ends, or row numbers in any order
_SPAN = 2**24  # bytes of a mapped file within which rows are taken at once
_FEW = 64  # rows that are taken at once wherever they are


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of an array of some library: "numpy", "mapped" (a whole file), "scipy", "pandas", "dask" or "zarr".

    Rows of the array that are `dropped` (ascending numbers) are left out. Other processes are sent what has a name (a
    file, a store) by that name, else its values. A part of a mapped file is an array of numpy: it no longer knows its
    place in the file.
    """

    array: Any
    library: str = "numpy"
    dropped: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is left of the array."""
        shape = tuple(self.array.shape)
        return shape if self.dropped is None else (int(shape[0]) - len(self.dropped), *shape[1:])

    @property
    def resident(self) -> bool:
        """Whether the values are in the memory of this process already."""
        return self.library in ("numpy", "scipy", "pandas") and not isinstance(self.array, np.memmap)

    @property
    def shared(self) -> bool:
        """Whether other processes can read the same values: a file with a name, or a store that is not in memory."""
        if self.library == "mapped":
            return bool(self.array.filename is not None)
        if self.library != "zarr":
            return False
        from zarr.storage import MemoryStore

        return not isinstance(self.array.store, MemoryStore)

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """Numbers in the array of rows that are left."""
        if self.dropped is None:
            return ids
        # so many rows are kept before each dropped one
        before = self.dropped - np.arange(len(self.dropped))
        numbers: np.ndarray = ids + np.searchsorted(before, ids, side="right")
        return numbers

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number; a range with few gaps is read as one."""
        read = _READERS[self.library]
        if self.dropped is None:
            return np.asarray(read(self.array, at))
        ids = self.numbers(np.arange(at.start, at.stop) if isinstance(at, slice) else np.asarray(at))
        if isinstance(at, slice) and len(ids) and ids[-1] - ids[0] < 2 * len(ids):
            whole = np.asarray(read(self.array, slice(int(ids[0]), int(ids[-1]) + 1)))
            return np.asarray(whole[ids - ids[0]])
        return np.asarray(read(self.array, ids))

    def __reduce__(self) -> tuple[Callable[..., "Source"], tuple[Any, ...]]:
        array = self.array
        if self.library != "mapped":
            return Source, (array, self.library, self.dropped)
        if not self.shared:
            return Source, (np.array(array), "numpy", self.dropped)
        order = "C" if array.flags.c_contiguous else "F"
        return _open_mapped, (self.dropped, str(array.filename), array.dtype, "r", array.offset, array.shape, order)


def _open_mapped(dropped: np.ndarray | None, *place: Any) -> Source:
    return Source(np.memmap(*place), "mapped", dropped)


def _mapped_rows(array: np.memmap, at: At) -> np.ndarray:
    """Copies, because mapped pages count as memory of this process."""
    if isinstance(at, slice):
        return _copy_mapped(array, at)
    ids = np.asarray(at)
    order = np.argsort(ids, kind="stable")
    out = np.empty((len(ids), *array.shape[1:]), array.dtype)
    for some in _near(ids[order], max(1, array.nbytes // max(1, len(array)))):
        out[order[some]] = _copy_mapped(array, ids[order[some]])
    return out


def _near(ids: np.ndarray, row_bytes: int) -> Iterator[slice]:
    """Ranges of ascending row numbers that are few, or near each other: the system maps the pages around a row."""
    places = ids.astype(np.int64) * row_bytes // _SPAN
    bounds = np.append(np.flatnonzero(np.diff(places)) + 1, len(ids))
    start = 0
    for stop in bounds.tolist():
        if stop - start >= _FEW or stop == len(ids):
            yield slice(start, stop)
            start = stop


def _copy_mapped(array: np.memmap, at: At) -> np.ndarray:
    values = np.array(array[at])
    if hasattr(mmap, "MADV_DONTNEED") and array.mode != "c":  # would drop the changes of a copy-on-write map
        base: Any = array.base
        base.madvise(mmap.MADV_DONTNEED)
    return values


def _scipy_rows(matrix: Any, at: At) -> np.ndarray:
    return np.asarray(matrix[at].toarray())


def _pandas_rows(frame: Any, at: At) -> np.ndarray:
    """Missing values become NaN; pandas' nullable types count as wide."""
    part = frame.iloc[at]
    checks.check_whole(part)
    plain = all(isinstance(dtype, np.dtype) for dtype in frame.dtypes)
    dtype = narrowest_float(frame.dtypes) if plain else np.float64
    return np.asarray(part.to_numpy(dtype=dtype, na_value=np.nan))


def _dask_rows(array: Any, at: At) -> np.ndarray:
    """Computed in the thread that reads them (the threads are ours), or where they persist."""
    part = array[at]
    clients = (getattr(value, "client", None) for value in part.__dask_graph__().values())  # of futures
    client = next(filter(None, clients), None)
    return np.asarray(part.compute(scheduler="synchronous") if client is None else client.compute(part, sync=True))


def _zarr_rows(array: Any, at: At) -> np.ndarray:
    try:
        return np.asarray(array[at] if isinstance(at, slice) else array.oindex[at])
    except OSError:
        raise
    except Exception as error:  # whatever zarr raises for a file that is not sound
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"X: rows of the zarr array {array_name(array)!r} cannot be read: {text}. Write it again."
        ) from error


def array_name(array: Any) -> str:
    """Name of a zarr array in an error."""
    return str(array.store_path)


_READERS: dict[str, Callable[[Any, At], np.ndarray]] = {
    "numpy": operator.getitem,
    "mapped": _mapped_rows,
    "scipy": _scipy_rows,
    "pandas": _pandas_rows,
    "dask": _dask_rows,
    "zarr": _zarr_rows,
}
