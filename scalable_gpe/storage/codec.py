"""zarr's checksum codec, whose errors are damage: zarr's own raises a ValueError, as many faults of a program do."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import google_crc32c
import zarr
from zarr.codecs import Crc32cCodec, ShardingCodec

from scalable_gpe.errors import DamageError

ZarrArray: TypeAlias = "zarr.Array[Any]"


@dataclass(frozen=True)
class CheckedCodec(Crc32cCodec):
    """CRC-32C of a chunk, or of the index of a shard, after which the bytes have the length of their array."""

    array: str = ""

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        stored = chunk_bytes.as_numpy_array()
        content = stored[:-4]
        n_bytes = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize
        checksum = int.from_bytes(stored[-4:].tobytes(), "little")
        if len(stored) != n_bytes + 4 or google_crc32c.value(content) != checksum:
            raise DamageError(f"array {self.array!r} is damaged: stored and computed checksum do not match", self.array)
        return chunk_spec.prototype.buffer.from_array_like(content)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return self._decode_sync(chunk_bytes, chunk_spec)


def with_checks(array: ZarrArray, *, write_empty: bool) -> ZarrArray:
    """The same array, whose damaged chunks raise a DamageError that names it; `write_empty`: write chunks of zeros."""
    codec = CheckedCodec(array.path)
    metadata: Any = array.metadata
    return zarr.Array(
        zarr.AsyncArray(
            metadata=replace(metadata, codecs=_replaced(metadata.codecs, codec)),
            store_path=array.store_path,
            config={"write_empty_chunks": write_empty},
        )
    )


def _replaced(codecs: Iterable[Any], checked: CheckedCodec) -> tuple[Any, ...]:
    """The same codecs with checks, also those inside a shard and of its index."""
    return tuple(_with_checks(codec, checked) for codec in codecs)


def _with_checks(codec: Any, checked: CheckedCodec) -> Any:
    if isinstance(codec, ShardingCodec):
        inner, index = _replaced(codec.codecs, checked), _replaced(codec.index_codecs, checked)
        return replace(codec, codecs=inner, index_codecs=index)
    return checked if isinstance(codec, Crc32cCodec) else codec
