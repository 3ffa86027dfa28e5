"""Tables for a while: plain bytes and their checksum, a file for each shard, described by no metadata."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np

from scalable_gpe.engine.errors import DamageError

if TYPE_CHECKING:
    from scalable_gpe.engine.store import Store


@dataclass(eq=False)
class LooseTable:
    """A table whose description its owner has; so it costs nothing to make and, in another process, nothing to open.

    `spare` names a table of the same shape that nobody needs any more. Its files are written over where the place can
    do that: new ones would cost several times as much.
    """

    store: "Store"
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int
    spare: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells this table from all others."""
        return str(self.store.place), self.name

    def describe(self) -> dict[str, Any]:
        """What `Store.loose` needs to find it again, as JSON can hold it."""
        return {"name": self.name, "shape": self.shape, "dtype": self.dtype.str, "shard_rows": self.shard_rows}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in an array of their own."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Rows from start on, into an array; whole shards without a copy."""
        stop = start + len(out)
        for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
            first = shard * self.shard_rows
            last = min(first + self.shard_rows, self.shape[0])
            if start <= first and last <= stop:
                self._fill(shard, out[first - start : last - start])
            else:
                rows = np.empty((last - first, *self.shape[1:]), self.dtype)
                self._fill(shard, rows)
                low, high = max(start, first), min(stop, last)
                out[low - start : high - start] = rows[low - first : high - first]

    def _fill(self, shard: int, rows: np.ndarray) -> None:
        """All rows of one shard."""
        key, content, checksum = f"{self.name}/{shard}", rows.reshape(-1).view(np.uint8), bytearray(4)
        try:
            with self.store.place.io(f"array {self.name!r}", missing=True):
                self.store.place.read_into(key, content.data, checksum)
            check(content, checksum)
        except (FileNotFoundError, ValueError) as error:
            raise DamageError(f"array {self.name!r} is damaged: {key}: {error}", self.name) from error

    def write(self, start: int, values: np.ndarray) -> None:
        """Write one whole shard."""
        self.store.check_writable()
        values = np.ascontiguousarray(values, self.dtype)
        if start % self.shard_rows or len(values) != min(self.shard_rows, self.shape[0] - start):
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        content, shard = values.reshape(-1).view(np.uint8), start // self.shard_rows
        checksum = google_crc32c.value(content).to_bytes(4, "little")
        over = None if self.spare is None else f"{self.spare}/{shard}"
        with self.store.place.io(f"array {self.name!r}"):
            self.store.place.write(f"{self.name}/{shard}", content.data, checksum, over=over)


def check(content: np.ndarray, checksum: Any) -> None:
    """See to it that bytes have the checksum that was stored with them."""
    if google_crc32c.value(content) != int.from_bytes(checksum, "little"):
        raise ValueError("stored and computed checksum do not match")


def checked(stored: np.ndarray) -> np.ndarray:
    """Bytes without the checksum at their end, which must be right."""
    check(stored[:-4], stored[-4:].tobytes())
    return stored[:-4]
