"""Compressed chunks of zarr arrays that others have written: refused before they expand beyond the size of a chunk."""

import bz2
import lzma
import math
import struct
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

_SLACK = 2**16  # bytes that filters may add
_MOST_TEXT = 2**28  # bytes of a chunk of texts, whose size is not declared
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK = 2**17  # the most that one block holds
_TRIVIAL = {"bytes", "crc32c", "sharding_indexed", "transpose", "vlen-utf8", "vlen-bytes"}
_FILTERS = {"delta", "shuffle", "fixedscaleoffset", "quantize", "packbits", "astype", "bitround"}


def _blosc_size(data: bytes, most: int) -> int:
    return int(struct.unpack_from("<I", data, 4)[0]) if len(data) >= 16 and data[0] == 2 else 0


def _lz4_size(data: bytes, most: int) -> int:
    size = int(struct.unpack_from("<i", data)[0]) if len(data) >= 4 else 0
    return max(size, 0)  # the codec refuses what is below 0


def _zstd_size(data: bytes, most: int) -> int:
    """Size that the header of a frame names, or else the least that its blocks can expand to."""
    if data[:4] != _ZSTD or len(data) < 6:
        return 0
    kind = data[4]
    has_size, single = kind >> 6, bool(kind & 32)
    start = 5 + (0 if single else 1) + (0, 1, 2, 4)[kind & 3]
    if has_size or single:
        width = (1, 2, 4, 8)[has_size]
        return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)
    n_blocks, last = 0, False
    while not last and start + 3 <= len(data):
        header = int.from_bytes(data[start : start + 3], "little")
        last, repeated, size = bool(header & 1), header >> 1 & 3 == 1, header >> 3
        start += 3 + (1 if repeated else size)
        n_blocks += 1
    return max(n_blocks - 1, 0) * _ZSTD_BLOCK


def _stream_size(make: Callable[[], Any]) -> Callable[[bytes, int], int]:
    """Size of streams whose headers do not name it: found by decompressing, up to the limit."""

    def size(data: bytes, most: int) -> int:
        total = 0
        try:
            while data and total <= most:
                stream = make()
                total += len(stream.decompress(data, most + 1 - total))
                data = stream.unused_data if stream.eof else b""
        except (zlib.error, lzma.LZMAError, OSError, EOFError):
            pass  # the codec itself says what is wrong
        return total

    return size


_SIZES: dict[str, Callable[[bytes, int], int]] = {
    "blosc": _blosc_size,
    "lz4": _lz4_size,
    "zstd": _zstd_size,
    "gzip": _stream_size(lambda: zlib.decompressobj(47)),
    "zlib": _stream_size(lambda: zlib.decompressobj(47)),
    "bz2": _stream_size(bz2.BZ2Decompressor),
    "lzma": _stream_size(lzma.LZMADecompressor),
}


@dataclass(frozen=True)
class ChunkLayout:
    """How the chunks of one array are stored.

    Attributes
    ----------
    array : str
        Path of the array in its store.
    codec : str
        The compressor.
    n_bytes : int
        Bytes of a chunk that is not compressed.
    n_inner : int
        Chunks in a shard; 0 without shards.
    n_index : int
        Bytes of the index of a shard.
    index_first : bool
        Whether the index comes before the chunks.
    """

    array: str
    codec: str
    n_bytes: int
    n_inner: int = 0
    n_index: int = 0
    index_first: bool = False


def chunk_layout(array: Any) -> ChunkLayout | None:
    """How the chunks of a zarr array are compressed, or None; codecs that cannot be bounded are refused."""
    described = array.metadata.to_dict()
    codecs = _flat(described.get("codecs") or (), "name")
    codecs += _flat(described.get("filters") or (), "id") + _flat([described.get("compressor")], "id")
    names = [name.removeprefix("numcodecs.") for name in codecs]
    found = [name for name in names if name in _SIZES]
    unknown = set(names) - _TRIVIAL - _FILTERS - set(_SIZES)
    if unknown:
        raise TypeError(f"codec {min(unknown)!r} is not read")
    if len(found) > 1 or names.count("sharding_indexed") > 1:
        raise TypeError(f"codecs within codecs ({', '.join(names)}) are not read")
    if not found:
        return None
    item = array.dtype.itemsize if array.dtype.kind in "fiub" else 0
    n_bytes = math.prod(array.chunks) * item if item else _MOST_TEXT
    if array.shards is None:
        return ChunkLayout(array.path, found[0], n_bytes)
    shard = described["codecs"][0]["configuration"]
    n_inner = math.prod(outer // inner for outer, inner in zip(array.shards, array.chunks, strict=True))
    n_index = 16 * n_inner + 4 * len([one for one in shard["index_codecs"] if one["name"] == "crc32c"])
    return ChunkLayout(array.path, found[0], n_bytes, n_inner, n_index, str(shard["index_location"]) == "start")


def _flat(codecs: Iterable[Any], name: str) -> list[str]:
    """Names of codecs, and of those inside them."""
    names: list[str] = []
    for codec in codecs:
        if codec is not None:
            one = codec if isinstance(codec, dict) else codec.get_config()
            names += [str(one[name]), *_flat((one.get("configuration") or {}).get("codecs") or (), name)]
    return names


class BoundedStore(WrapperStore[Store]):
    """A store in which the chunks of one array expand to no more than the size of a chunk."""

    def __init__(self, store: Store, layout: ChunkLayout) -> None:
        super().__init__(store)
        self._layout = layout

    def _with_store(self, store: Store) -> "BoundedStore":
        return type(self)(store, self._layout)

    def __str__(self) -> str:
        return str(self._store)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._store, self._layout)

    def _check(self, key: str, value: Buffer | None, byte_range: ByteRequest | None) -> Buffer | None:
        described = key.endswith((".json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"))
        if value is not None and not described and key.startswith(self._layout.array):
            most = self._layout.n_bytes + _SLACK
            for chunk in self._chunks(value.to_bytes(), whole=byte_range is None):
                if _SIZES[self._layout.codec](chunk, most) > most:
                    raise ValueError(f"chunk {key!r} expands to more than the {self._layout.n_bytes} bytes of a chunk")
        return value

    def _chunks(self, data: bytes, *, whole: bool) -> list[bytes]:
        """The chunks of a shard, or one chunk alone."""
        n_index = self._layout.n_index
        if not n_index or not whole:
            return [data]
        index = data[:n_index] if self._layout.index_first else data[-n_index:]
        places = np.frombuffer(index[: 16 * self._layout.n_inner], "<u8")
        return [
            data[int(start) : int(start) + int(size)] for start, size in zip(places[::2], places[1::2], strict=True)
        ]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Bytes of a chunk, once they are known to be small."""
        return self._check(key, await self._store.get(key, prototype, byte_range), byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Ranges of bytes, each once it is known to be small."""
        ranges = list(key_ranges)
        values = await self._store.get_partial_values(prototype, ranges)
        return [self._check(key, value, asked) for (key, asked), value in zip(ranges, values, strict=True)]

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)
