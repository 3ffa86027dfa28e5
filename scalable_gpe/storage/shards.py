"""The files of zarr arrays as this library lays them out, read and written without zarr.

A file holds chunks of equal length, each followed by its CRC-32C. With several chunks, an index of their offsets and
lengths follows, with a checksum of its own (zarr's sharding codec). zarr reads and writes the same files; it takes new
arrays and several copies, and holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from scalable_gpe.loops.checksum import crc32c
from scalable_gpe.storage.backends import StorageBackend
from scalable_gpe.storage.handle import ZarrArray
from scalable_gpe.storage.scratch import check, checked

ABSENT = 2**64 - 1  # offset of a chunk that a file does not hold: it is all zeros
_TOGETHER = 256  # chunks that are read by one call
_PLAIN = ("bytes", "crc32c")


@dataclass(frozen=True)
class FileFormat:
    """The number of chunks of a file, and their bytes; a file that `is_single` has one chunk and no index."""

    n_chunks: int
    chunk_bytes: int
    is_single: bool

    def read_index(self, backend: StorageBackend, key: str) -> np.ndarray:
        """Offset and length of each chunk of a file."""
        if self.is_single:
            return np.array([[0, self.chunk_bytes + 4]], np.uint64)
        size = backend.length(key)
        stored = backend.read(key, size - 16 * self.n_chunks - 4, size)
        return checked(np.frombuffer(stored, np.uint8)).view("<u8").reshape(self.n_chunks, 2)

    def read(
        self, backend: StorageBackend, key: str, first: int, chunks: Sequence[np.ndarray], index: np.ndarray
    ) -> None:
        """Read chunks of a file, from number `first` on, into arrays of bytes, and verify them."""
        for start, stop in self._runs(index[first : first + len(chunks)]):
            some, checksums = chunks[start:stop], [bytearray(4) for _ in range(start, stop)]
            offset = int(index[first + start, 0])
            if offset == ABSENT:
                for chunk in some:
                    chunk[:] = 0
                continue
            buffers = chain.from_iterable((chunk.data, crc) for chunk, crc in zip(some, checksums, strict=True))
            backend.read_into(key, *buffers, start=None if self.is_single else offset)
            for chunk, crc in zip(some, checksums, strict=True):
                check(chunk, crc)

    def _runs(self, index: np.ndarray) -> Iterator[tuple[int, int]]:
        """Ranges of chunks that follow each other in the file, or that it does not hold."""
        start, step = 0, self.chunk_bytes + 4
        offsets, lengths = index[:, 0].tolist(), index[:, 1].tolist()
        for number, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
            if offset != ABSENT and length != step:
                raise ValueError(f"a chunk has {length} bytes instead of {step}")
            before = offsets[number - 1]
            follows = offset == before if ABSENT in (offset, before) else offset == before + step
            if number > start and (not follows or number - start == _TOGETHER):
                yield start, number
                start = number
        if len(offsets):
            yield start, len(offsets)

    def write(self, backend: StorageBackend, key: str, chunks: Sequence[np.ndarray | None]) -> None:
        """Write a file: arrays of bytes, None for chunks that it does not hold."""
        pieces: list[Any] = []
        index, offset = np.full((self.n_chunks, 2), ABSENT, "<u8"), 0
        for number, chunk in enumerate(chunks):
            if chunk is not None:
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
