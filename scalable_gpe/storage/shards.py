"""The files of zarr arrays as this library lays them out, read and written without zarr.

A file holds chunks of equal length, each followed by its CRC-32C. With several chunks, an index of their offsets and
lengths follows, with a checksum of its own (zarr's sharding codec). zarr reads and writes the same files; it takes new
arrays and several copies, and holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.loops.checksum import crc32c
from scalable_gpe.storage.backends import StorageBackend, WrongBytes
from scalable_gpe.storage.codec import ZarrArray
from scalable_gpe.storage.scratch import MISMATCH, checked

ABSENT = 2**64 - 1  # offset of a chunk that a file does not hold: it is all zeros
_PLAIN = ("bytes", "crc32c")


@dataclass(frozen=True)
class FileFormat:
    """The number of chunks of a file, and their bytes; a file that `is_single` has one chunk and no index."""

    n_chunks: int
    chunk_bytes: int
    is_single: bool

    def index(self, backend: StorageBackend, key: str) -> list[int]:
        """Offsets of the chunks of a file."""
        if self.is_single:
            return [0]
        size, index_bytes = backend.length(key), 16 * self.n_chunks + 4
        if size < index_bytes:
            raise WrongBytes(f"{key} is too short")
        stored = backend.read(key, size - index_bytes, size)
        offsets, lengths = checked(np.frombuffer(stored, np.uint8)).view("<u8").reshape(self.n_chunks, 2).T
        wrong = lengths[(lengths != self.chunk_bytes + 4) & (offsets != ABSENT)]
        if len(wrong):
            raise WrongBytes(f"a chunk has {wrong[0]} bytes instead of {self.chunk_bytes + 4}")
        return list(map(int, offsets))

    def read(self, backend: StorageBackend, key: str, first: int, content: np.ndarray, index: list[int]) -> None:
        """Read whole chunks of a file, from number `first` on, into an array of bytes, and verify them."""
        length = self.chunk_bytes
        start, n_chunks = 0, len(content) // length
        while start < n_chunks:
            offset, stop = index[first + start], start + 1
            if offset == ABSENT:
                content[start * length : stop * length] = 0
            else:
                # chunks that follow each other in the file are read by one call
                while stop < n_chunks and index[first + stop] == offset + (stop - start) * (length + 4):
                    stop += 1
                at = None if self.is_single else offset
                stored, computed = backend.read_runs(key, content[start * length : stop * length], length, at)
                if stored.tobytes() != computed.tobytes():
                    raise WrongBytes(MISMATCH)
            start = stop

    def write(self, backend: StorageBackend, key: str, chunks: Sequence[np.ndarray]) -> None:
        """Write the first chunks of a file, which are arrays of bytes; those after them are absent."""
        pieces: list[Any] = []
        index, offset = np.full((self.n_chunks, 2), ABSENT, "<u8"), 0
        for number, chunk in enumerate(chunks):
            pieces += [chunk.data, crc32c(chunk).to_bytes(4, "little")]
            index[number] = offset, len(chunk) + 4
            offset += len(chunk) + 4
        if not self.is_single:
            content = index.reshape(-1).view(np.uint8)
            pieces += [content.data, crc32c(content).to_bytes(4, "little")]
        backend.write(key, *pieces, durable=True)


def file_format(array: ZarrArray) -> FileFormat | None:
    """The format of the files of an array whose chunks are cut along one axis, or None if it has another one."""
    shards = array.shards or array.chunks
    if sum(shard != chunk for shard, chunk in zip(shards, array.chunks, strict=True)) > 1:
        return None
    described: Any = array.metadata.to_dict()
    codecs: Any = described.get("codecs") or ()
    if array.shards is not None:
        inner = codecs[0].get("configuration") or {} if len(codecs) == 1 else {}
        if inner.get("index_location") != "end" or _names(inner.get("index_codecs")) != _PLAIN:
            return None
        codecs = inner.get("codecs")
    if _names(codecs) != _PLAIN:
        return None
    n_chunks = int(np.prod([shard // chunk for shard, chunk in zip(shards, array.chunks, strict=True)]))
    return FileFormat(n_chunks, int(np.prod(array.chunks)) * array.dtype.itemsize, array.shards is None)


def _names(codecs: Any) -> tuple[str, ...]:
    """Names of codecs; numbers must be stored with their low byte first, as in memory."""
    if any((codec.get("configuration") or {}).get("endian", "little") != "little" for codec in codecs or ()):
        return ()
    return tuple(str(codec.get("name")) for codec in codecs or ())
