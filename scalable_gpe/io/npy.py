"""Rows of a .npy file: mapped from disk, or read as ranges of bytes behind a URL; never copied whole.

Other processes are sent the name of the file and open it themselves.
"""

import io
import mmap
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.sources import ArraySource, At
from scalable_gpe.storage.backends import StorageOptions, open_backend

_HEADER = 2**16  # bytes that hold the header of any file of numbers
_SPAN = 2**24  # bytes of a mapped file within which rows are taken at once
_FEW = 64  # rows that are taken at once wherever they are
_GAP = 2**17  # bytes between two rows that are read rather than requested separately


def map_npy(path: str) -> np.ndarray:
    """Map a .npy file; never unpickle it."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy would advise to unpickle a file that is not .npy
        raise _not_npy(path) from error
    if not isinstance(array, np.ndarray):  # an .npz under another name
        raise _not_npy(path)
    return array


def _not_npy(path: str) -> ValueError:
    return ValueError(f"{path!r} is not a .npy file of numbers. Write one with numpy.save.")


class MappedFile:
    """Rows of an array that is a memory-mapped file."""

    resident = False

    def __init__(self, array: np.memmap) -> None:
        self._array = array

    @staticmethod
    def is_whole(array: Any) -> TypeGuard[np.memmap]:
        """Whether an array is a mapped file as it was opened; a part of one no longer knows its place in the file."""
        return isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._array.shape

    @property
    def shared(self) -> bool:
        """Whether the file has a name by which another process can open it."""
        return self._array.filename is not None

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number: copied, because mapped pages count as memory of this process."""
        if isinstance(at, slice):
            return self._copy(at)
        ids = np.asarray(at)
        order = np.argsort(ids, kind="stable")
        out = np.empty((len(ids), *self._array.shape[1:]), self._array.dtype)
        for some in self._near(ids[order]):
            out[order[some]] = self._copy(ids[order[some]])
        return out

    def _near(self, ids: np.ndarray) -> Iterator[slice]:
        """Ranges of ascending row numbers that are few, or near each other: the system maps the pages around a row."""
        row_bytes = max(1, self._array.nbytes // max(1, len(self._array)))
        places = ids.astype(np.int64) * row_bytes // _SPAN
        bounds = np.append(np.flatnonzero(np.diff(places)) + 1, len(ids))
        start = 0
        for stop in bounds.tolist():
            if stop - start >= _FEW or stop == len(ids):
                yield slice(start, stop)
                start = stop

    def _copy(self, at: At) -> np.ndarray:
        values = np.array(self._array[at])
        if hasattr(mmap, "MADV_DONTNEED") and self._array.mode != "c":  # would drop the changes of a copy-on-write map
            base: Any = self._array.base
            base.madvise(mmap.MADV_DONTNEED)
        return values

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        array = self._array
        if not self.shared:
            return ArraySource, (np.array(array),)
        order = "C" if array.flags.c_contiguous else "F"
        return _map, (str(array.filename), array.dtype, array.shape, array.offset, order)


def _map(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, order: Any) -> MappedFile:
    return MappedFile(np.memmap(path, dtype, "r", offset, shape, order))


class RemoteFile:
    """Rows of a two-dimensional .npy file in C order behind a URL."""

    resident = False
    shared = True

    def __init__(self, url: str, storage_options: StorageOptions | None = None) -> None:
        folder, _, self._name = url.rpartition("/")
        self._backend = open_backend(folder, storage_options)
        try:
            head = io.BytesIO(self._backend.read(self._name, 0, _HEADER))
        except FileNotFoundError as error:
            raise FileNotFoundError(Message(f"`X`: there is no file {url!r}. Check the URL.")) from error
        self.shape, columns_first, self.dtype = _read_header(head, url)
        self._first = head.tell()
        if columns_first and len(self.shape) > 1:
            raise ValueError(
                Message(f"`X`: {url!r} is in Fortran order, whose rows are scattered. Save numpy.ascontiguousarray(X).")
            )

    def rows(self, at: At) -> np.ndarray:
        """Rows of a range, or by number."""
        if isinstance(at, slice):
            return self._read(at.start, at.stop)
        ids = np.asarray(at)
        order = np.argsort(ids, kind="stable")
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        near = max(1, _GAP // self._row_bytes)
        for run in np.split(order, np.flatnonzero(np.diff(ids[order]) > near) + 1):
            if len(run):
                first = int(ids[run[0]])
                out[run] = self._read(first, int(ids[run[-1]]) + 1)[ids[run] - first]
        return out

    @property
    def _row_bytes(self) -> int:
        return max(1, int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize)

    def _read(self, start: int, stop: int) -> np.ndarray:
        begin, end = (self._first + row * self._row_bytes for row in (start, stop))
        data = self._backend.read(self._name, begin, end)
        if len(data) != end - begin:
            raise ValueError(Message(f"`X`: {self._backend}/{self._name} ends before its last row. Copy it again."))
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])


def _read_header(head: io.BytesIO, url: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of a .npy file."""
    try:
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(head)
        if dtype.hasobject or any(isinstance(size, bool) or size < 0 for size in shape):
            raise ValueError("not an array of numbers")
    except Exception as error:  # whatever numpy raises for a header that is not sound
        raise _not_npy(url) from error
    return shape, columns_first, dtype
