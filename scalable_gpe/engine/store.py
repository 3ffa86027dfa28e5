"""The zarr store of a run: checksummed tables, marks that are written last, a lock, verification.

Each result (``graph/<key>``, ``kernel/<key>``, ...) is a zarr group. Its attributes are its mark:
absent until every chunk is on disk, written in one atomic replacement, and holding a checksum of
the metadata of each array, because a changed dtype or shape reads as wrong numbers silently.
"""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from scalable_gpe.engine.errors import DamageError, StoreError
from scalable_gpe.engine.tables import Facts, block_rows

FORMAT = "scalable_gpe"
FORMAT_VERSION = 1
_CHUNK_BYTES = 2**22
_ABSENT = 2**64 - 1  # offset of a chunk that a shard does not hold
# what decoding a chunk that was cut, emptied or changed may raise
_DECODING = (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError, EOFError, BufferError, AssertionError)
_TAKE_ROWS = 4096  # rows of an inner chunk of a table that is read by row numbers


class StoredTable:
    """A table that is a zarr array, sharded by rows."""

    def __init__(self, array: zarr.Array) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = np.dtype(array.dtype)
        self.shard_rows = (array.shards or array.chunks)[0]

    @property
    def key(self) -> tuple[str, str]:
        """What tells this table from all others."""
        return str(self.array.store), self.array.path

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        with _named(self.array):
            return np.asarray(self.array[start:stop])

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by ascending number; touches only the chunks that hold them."""
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        step = self.array.chunks[0]
        cuts = np.flatnonzero(np.diff(ids // step)) + 1
        # neighbouring chunks are read in one call, at most a shard at a time
        bounds = [0, *cuts.tolist(), len(ids)] if len(ids) else [0]
        first = 0
        while first < len(bounds) - 1:
            last = first + 1
            chunk, shard = ids[bounds[first]] // step, ids[bounds[first]] // self.shard_rows
            while (
                last < len(bounds) - 1
                and ids[bounds[last]] // step == chunk + (last - first)
                and ids[bounds[last]] // self.shard_rows == shard
            ):
                last += 1
            rows = ids[bounds[first] : bounds[last]]
            start, stop = int(rows[0]), int(rows[-1]) + 1
            out[bounds[first] : bounds[last]] = self.read(start, stop)[rows - start]
            first = last
        return out

    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None:
        """Write a whole shard from row `start` on, or some columns of it (one writer at a time)."""
        whole = len(values) == self.shard_rows or start + len(values) == self.shape[0]
        if start % self.shard_rows or not whole:
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        with _named(self.array):
            if values.ndim == 2 and values.shape[1] != self.shape[1]:
                self.array[start : start + len(values), first_column : first_column + values.shape[1]] = values
            else:
                self.array[start : start + len(values)] = values

    def has(self, start: int) -> bool:
        """Whether the shard that begins at `start` stands in the store and reads back."""
        return _readable(self.array, start // self.shard_rows, *(0 for _ in self.shape[1:]))


class StoredRagged:
    """Ragged blocks: row b of a zarr array holds a 1, then the entries of block b, then zeros.

    The leading 1 keeps every shard from being all zeros, so that inner chunks of padding need not
    be written and a missing shard is always damage.
    """

    def __init__(self, array: zarr.Array) -> None:
        self.array = array
        self.dtype = np.dtype(array.dtype)

    def read(self, block: int, length: int) -> np.ndarray:
        """Entries of one block."""
        with _named(self.array):
            row = _read_row(self.array, block, length + 1)
        if row[0] != 1:
            raise DamageError(f"array {self.array.path!r} is damaged: chunk c/{block}/0 is missing", self.array.path)
        return row[1:]

    def write(self, block: int, values: np.ndarray) -> None:
        """Write the entries of one block, padding included, as one shard."""
        row = np.zeros((1, self.array.shape[1]), self.dtype)
        row[0, 0] = 1
        row[0, 1 : len(values) + 1] = values
        with _named(self.array):
            self.array[block : block + 1] = row

    def has(self, block: int) -> bool:
        """Whether a block stands in the store and reads back."""
        return _readable(self.array, block, 0)


class Store:
    """A home on disk: one zarr (format 3) group per run."""

    stored = True

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self.read_only = read_only
        if read_only and not (self.path / "zarr.json").exists():
            raise FileNotFoundError(f"store {str(self.path)!r} does not exist, or is not a zarr group. Check the path.")
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"store {str(self.path)!r} is a file. Pass the path of a directory.")
        if self.path.exists() and any(self.path.iterdir()) and not (self.path / "zarr.json").exists():
            raise StoreError(f"store {str(self.path)!r} is a directory with other contents. Pass a new or empty path.")
        fresh = not (self.path / "zarr.json").exists()
        with _io(self.path):
            self.root = zarr.open_group(str(self.path), mode="r" if read_only else "a", zarr_format=3)
            if fresh:
                self.root.attrs.put({"format": FORMAT, "format_version": FORMAT_VERSION})
        self._check_format()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], read_only=True)  # type: ignore[misc]

    def _check_format(self) -> None:
        attributes = dict(self.root.attrs)
        if attributes.get("format") != FORMAT:
            raise StoreError(
                f"store {str(self.path)!r} was not made by scalable_gpe (its zarr.json names no format). "
                "Pass another path; nothing in it was touched."
            )
        if attributes.get("format_version") != FORMAT_VERSION:
            raise StoreError(
                f"store {str(self.path)!r} has format version {attributes.get('format_version')}, this release "
                f"reads {FORMAT_VERSION}. Use the release that wrote it, or start over in another path."
            )

    # --- tables -------------------------------------------------------------------------------

    def table(self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None) -> StoredTable:
        """Make a table, or find the unfinished one of that name."""
        shard = min(shard_rows or block_rows(shape[0]), max(shape[0], 1))
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        chunk = max(1, min(_TAKE_ROWS if len(shape) > 1 else shard, shard, _CHUNK_BYTES // max(row_bytes, 1)))
        if shard % chunk:  # a shard is a whole number of chunks
            chunk = shard
        return StoredTable(self._array(name, shape, dtype, (chunk, *shape[1:]), (shard, *shape[1:])))

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any) -> StoredRagged:
        """Make ragged blocks of at most `longest` entries, or find the unfinished ones of that name."""
        chunk = min(longest + 1, _CHUNK_BYTES // np.dtype(dtype).itemsize)
        width = -(-(longest + 1) // chunk) * chunk
        return StoredRagged(self._array(name, (n_blocks, width), dtype, (1, chunk), (1, width), empty=False))

    def _array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any,
        chunks: tuple[int, ...],
        shards: tuple[int, ...],
        empty: bool = True,
    ) -> zarr.Array:
        known = self._known(name, empty=empty)
        if known is not None and (known.shape, known.dtype) == (shape, np.dtype(dtype)):
            return known
        self.remove(name)
        with _io(self.path):
            return self.root.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                shards=None if shards == chunks else shards,
                compressors=(Crc32cCodec(),),
                fill_value=0,
                config={"write_empty_chunks": empty},
            )

    def _known(self, name: str, *, empty: bool = True) -> zarr.Array | None:
        """The array of that name, if there is one; whether chunks of zeros are written is not stored with it."""
        if not (self.path / name / "zarr.json").exists():
            return None
        mode: Any = "r" if self.read_only else "r+"
        try:
            with zarr.config.set({"array.write_empty_chunks": empty}):
                return zarr.open_array(str(self.path), path=name, mode=mode)
        except _DECODING:
            return None

    def open_table(self, name: str) -> StoredTable:
        """Find the table of that name."""
        return StoredTable(self._find(name))

    def open_ragged(self, name: str) -> StoredRagged:
        """Find the ragged blocks of that name."""
        return StoredRagged(self._find(name))

    def _find(self, name: str) -> zarr.Array:
        found = self._known(name)
        if found is None:
            raise DamageError(f"array {name!r} is missing from store {str(self.path)!r}", name)
        return found

    def remove(self, name: str) -> None:
        """Forget a result: its mark first, then its arrays."""
        folder = self.path / name
        if folder.exists():
            (folder / "zarr.json").unlink(missing_ok=True)
            shutil.rmtree(folder)

    def sweep(self) -> None:
        """Remove what a killed writer left behind."""
        for file in self.path.rglob("*.partial"):
            file.unlink(missing_ok=True)

    # --- marks --------------------------------------------------------------------------------

    def mark(self, name: str, facts: Facts, arrays: Sequence[str] = ()) -> None:
        """Mark a result (its arrays, and `arrays` elsewhere) as complete: all of them are flushed to disk first."""
        with _io(self.path):
            group = self.root.require_group(name)
            metadata: dict[str, str] = {}
            for place in (name, *arrays):
                _flush(self.path / place)
                metadata |= self._metadata(place, itself=place != name)
            content = {"facts": facts, "metadata": metadata}
            group.attrs.put({**content, "checksum": _checksum(content)})
            _flush(self.path / name, deep=False)

    def results(self) -> list[str]:
        """Names of all groups below the root, marked or not."""
        files = [file for file in sorted(self.path.rglob("zarr.json")) if file.parent != self.path]
        arrays = {file for file in files if (file.parent / "c").exists()}
        return [file.parent.relative_to(self.path).as_posix() for file in files if file not in arrays]

    def names(self, group: str) -> list[str]:
        """Results that stand below a group, finished or not."""
        folder = self.path / group
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []

    def facts(self, name: str) -> Facts | None:
        """Facts of a complete result, or None; a result that lost a chunk or was changed is an error."""
        mark = self._mark(name)
        if mark is None:
            return None
        damage = self.damage(mark["metadata"])
        if damage:
            array, what = damage[0]
            raise DamageError(f"array {array!r} of store {str(self.path)!r} is damaged: {what}", array)
        return mark["facts"]

    def record(self, name: str) -> Facts | None:
        """Facts of a complete result, whatever has become of its arrays."""
        mark = self._mark(name)
        return None if mark is None else mark["facts"]

    def _mark(self, name: str) -> dict[str, Any] | None:
        try:
            attributes = json.loads((self.path / name / "zarr.json").read_bytes()).get("attributes", {})
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError):
            raise DamageError(f"{name}/zarr.json of store {str(self.path)!r} is not readable", name) from None
        if "facts" not in attributes:
            return None
        content = {"facts": attributes["facts"], "metadata": attributes.get("metadata")}
        if attributes.get("checksum") != _checksum(content):
            raise DamageError(f"{name}/zarr.json of store {str(self.path)!r} was changed", name)
        return content

    def _metadata(self, name: str, *, itself: bool = False) -> dict[str, str]:
        """Checksums of the zarr.json of all arrays below a result."""
        found = {}
        for file in sorted((self.path / name).rglob("zarr.json")):
            if itself or file.parent != self.path / name:
                found[file.parent.relative_to(self.path).as_posix()] = hashlib.sha256(file.read_bytes()).hexdigest()
        return found

    def damage(self, metadata: dict[str, str]) -> list[tuple[str, str]]:
        """What is wrong with arrays, without reading their chunks: (array, metadata changed or chunk missing)."""
        wrong = []
        for array, digest in metadata.items():
            file = self.path / array / "zarr.json"
            if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                wrong.append((array, "zarr.json is missing" if not file.exists() else "zarr.json was changed"))
                continue
            wrong += [(array, f"chunk {key} is missing") for key in self._missing(array)]
        return wrong

    def repair(self, array: str, what: str) -> None:
        """Make a damaged result be made again: its mark goes, and what would stand in the way."""
        metadata = self.path / array / "zarr.json"
        if "zarr.json" in what:
            metadata.unlink(missing_ok=True)
        for result in self.results():
            try:
                mark = self._mark(result)
            except DamageError:
                mark = None
                (self.path / result / "zarr.json").unlink(missing_ok=True)
            if mark is not None and array in (result, *mark["metadata"]):
                self.root.require_group(result).attrs.put({})
        # an embedding is written column by column: a damaged chunk would be read before it is written
        if array.startswith("embedding/") or ("zarr.json" in what and (self.path / array / "c").exists()):
            self.remove(array)

    def verify(self) -> list[tuple[str, str]]:
        """Read every chunk of every complete result: (array, what is wrong with which chunk)."""
        wrong: set[tuple[str, str]] = set()
        for result in self.results():
            try:
                mark = self._mark(result)
            except DamageError:
                wrong.add((result, "zarr.json was changed"))
                continue
            if mark is None:
                continue
            damage = self.damage(mark["metadata"])
            wrong.update(damage)
            for array in set(mark["metadata"]) - {array for array, what in damage if "zarr.json" in what}:
                wrong.update((array, f"chunk {key} is damaged") for key in self._unreadable(array))
        return sorted(wrong)

    def _unreadable(self, name: str) -> Iterator[str]:
        array = self.root[name]
        if isinstance(array, zarr.Array):
            for index in _grid(array):
                key = "/".join(["c", *map(str, index)])
                if (self.path / name / key).exists() and not _readable(array, *index):
                    yield key

    def _missing(self, array_name: str) -> Iterator[str]:
        array = self.root[array_name]
        if isinstance(array, zarr.Array):
            for index in _grid(array):
                key = "/".join(["c", *map(str, index)])
                if not (self.path / array_name / key).exists():
                    yield key

    # --- the lock -----------------------------------------------------------------------------

    def lock(self) -> None:
        """Refuse a second process on this store; the system frees the lock when its holder dies."""
        import fcntl

        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StoreError(
                f"store {str(self.path)!r} is in use by another process. Wait for it, or pass another path."
            ) from None
        self._lock = handle

    def unlock(self) -> None:
        """Let others work on this store."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_array(path: str) -> zarr.Array:
    """Open a zarr array (format 2 or 3) for reading; never one of Python objects."""
    found = zarr.open(path, mode="r")
    if not isinstance(found, zarr.Array):
        arrays = ", ".join(name for name, _ in found.arrays()) or "none"
        raise ValueError(f"X: {path!r} is a zarr group, not an array; it holds the arrays {arrays}. Name one of them.")
    if np.dtype(found.dtype).kind not in "fiub":
        raise TypeError(f"X: the zarr array {path!r} has dtype {found.dtype}; it must be real and numeric.")
    return found


def _grid(array: zarr.Array) -> Iterator[tuple[int, ...]]:
    steps = array.shards or array.chunks
    return itertools.product(*(range(-(-size // step)) for size, step in zip(array.shape, steps, strict=True)))


def _readable(array: zarr.Array, *index: int) -> bool:
    path = _root(array) / array.path / "/".join(["c", *map(str, index)])
    if not path.exists():
        return False
    steps = array.shards or array.chunks
    region = tuple(slice(i * step, (i + 1) * step) for i, step in zip(index, steps, strict=True))
    try:
        array[region]
    except (OSError, *_DECODING):
        return False
    return True


def _read_row(array: zarr.Array, row: int, length: int) -> np.ndarray:
    """The first entries of a row that is one shard (or chunk) of a local store.

    Blocks of K are read in every sweep. This reads the file in one piece, checks the same checksums and copies each
    chunk once, which is faster than the general machinery; that stays in use for all else.
    """
    data = np.frombuffer((_root(array) / array.path / f"c/{row}/0").read_bytes(), np.uint8)
    chunk, width = array.chunks[1], array.shape[1]
    places = np.array([[0, len(data)]], np.uint64)
    if array.shards is not None:
        places = _checked(data[len(data) - 16 * (width // chunk) - 4 :]).view("<u8").reshape(-1, 2)
    out = np.zeros(length, array.dtype)
    for number, start in enumerate(range(0, length, chunk)):
        offset, size = (int(value) for value in places[number])
        if offset != _ABSENT:  # else a chunk of zeros, which is not written
            values = _checked(data[offset : offset + size]).view(array.dtype)
            out[start : start + chunk] = values[: length - start]
    return out


def _checked(stored: np.ndarray) -> np.ndarray:
    """Bytes without the checksum at their end, which must be right."""
    if google_crc32c.value(stored[:-4]) != int.from_bytes(stored[-4:].tobytes(), "little"):
        raise ValueError("stored and computed checksum do not match")
    return stored[:-4]


def _root(array: zarr.Array) -> Path:
    return Path(str(array.store.root))  # type: ignore[attr-defined]


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _flush(folder: Path, *, deep: bool = True) -> None:
    """Fsync the files of a folder (and below), then the folder, so that a mark never precedes its data."""
    for parent, _, names in os.walk(folder):
        for name in [*names, "."]:
            handle = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        if not deep:
            return


@contextlib.contextmanager
def _io(path: Path) -> Iterator[None]:
    """Say which store could not be written, and why, in one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"store {str(path)!r}: {error.strerror or error}. What is finished stays; make room or repair the disk and "
            "run the same call again to go on."
        ) from error


@contextlib.contextmanager
def _named(array: zarr.Array) -> Iterator[None]:
    """Errors of a chunk name its array."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamageError(f"array {array.path!r} is damaged: {error.filename} is missing", array.path) from error
    except OSError as error:
        raise StoreError(
            f"array {array.path!r}: {error.strerror or error}. What is finished stays; make room or repair the disk "
            "and run the same call again to go on."
        ) from error
    except _DECODING as error:
        raise DamageError(f"array {array.path!r} is damaged: {error}", array.path) from error
