"""Rows of a .npy file: mapped from disk, or read as ranges of bytes behind a URL; never copied whole.

Both are sent to other processes by name and opened there.
"""

import io
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from scalable_gpe.storage.backends import open_backend

_HEADER = 2**16  # bytes that hold the header of any file of numbers
_SPAN = 2**24  # bytes of a mapped file within which rows are taken at once
_FEW = 64  # rows that are taken at once wherever they are
_GAP = 2**17  # bytes between two rows that are read rather than asked for separately


class MappedFile:
    """Rows of an array that is a memory-mapped file."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def is_whole(array: Any) -> bool:
        """Whether an array is a mapped file as it was opened, and not a part of one, which has lost its place."""
        return isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)

    @property
    def has_name(self) -> bool:
        """Whether another process can open the file."""
        return self._array.filename is not None

    def rows(self, at: Any) -> np.ndarray:
        """Rows of a slice, or by number: copied, because pages that stay mapped count as memory of this process."""
        if isinstance(at, slice):
            return self._copied(at)
        ids = np.asarray(at)
        order = np.argsort(ids, kind="stable")
        out = np.empty((len(ids), *self._array.shape[1:]), self._array.dtype)
        for some in self._near(ids[order]):
            out[order[some]] = self._copied(ids[order[some]])
        return out

    def _near(self, ids: np.ndarray) -> Iterator[slice]:
        """Ranges of ascending row numbers that are few, or near each other: the kernel maps what lies around a row."""
        row_bytes = max(1, self._array.nbytes // max(1, len(self._array)))
        places = ids.astype(np.int64) * row_bytes // _SPAN
        bounds = np.append(np.flatnonzero(np.diff(places)) + 1, len(ids))
        start = 0
        for stop in bounds.tolist():
            if stop - start >= _FEW or stop == len(ids):
                yield slice(start, stop)
                start = stop

    def _copied(self, at: Any) -> np.ndarray:
        values = np.array(self._array[at])
        if hasattr(mmap, "MADV_DONTNEED") and self._array.mode != "c":  # changes to a copy would be lost
            self._array.base.madvise(mmap.MADV_DONTNEED)
        return values

    def __reduce__(self) -> Any:
        array = self._array
        if not self.has_name:
            return _Held, (np.array(array),)
        order = "C" if array.flags.c_contiguous else "F"
        return _map, (str(array.filename), array.dtype, array.shape, array.offset, order)


class _Held:
    """Rows of a file that has no name, in another process."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def rows(self, at: Any) -> np.ndarray:
        """Rows of a slice, or by number."""
        return self._array[at]


def _map(path: str, dtype: Any, shape: tuple[int, ...], offset: int, order: Any) -> MappedFile:
    return MappedFile(np.memmap(path, dtype, "r", offset, shape, order))


class RemoteFile:
    """Rows of a two-dimensional .npy file in C order."""

    def __init__(self, url: str, storage_options: dict[str, Any] | None = None) -> None:
        folder, _, self._name = url.rpartition("/")
        self._backend = open_backend(folder, storage_options)
        try:
            head = io.BytesIO(self._backend.read(self._name, 0, _HEADER))
        except FileNotFoundError as error:
            raise FileNotFoundError(f"X: there is no file {url!r}. Check the URL.") from error
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, columns_first, self.dtype = read(head)
        self._first = head.tell()
        if columns_first and len(self.shape) > 1:
            raise ValueError(
                f"X: {url!r} is in Fortran order, whose rows are scattered. Save numpy.ascontiguousarray(X)."
            )

    def rows(self, at: Any) -> np.ndarray:
        """Rows of a slice, or by number."""
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
            raise ValueError(f"X: {self._backend}/{self._name} ends before its last row. Copy it again.")
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])
