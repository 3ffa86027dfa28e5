"""What an input says of its rows and features, in a store: a later process needs no input to know it."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalable_gpe.errors import DamageError, GPEWarning, warn
from scalable_gpe.io.containers import checked, in_pandas, obs_values, open_hdf5, open_node, row_names
from scalable_gpe.io.points import import_optional
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import ANNOTATIONS, FEATURE_NAMES, NAMES
from scalable_gpe.storage.store import ArrayStore, Table, write_whole

if TYPE_CHECKING:
    from scalable_gpe.io.rows import InputRows

_TABLES = ("obs", "var")
_STORED = f"{ANNOTATIONS}/h5ad"
_WIDTH = 2**16  # bytes in one row of the stored table
_ROWS = 2**8  # rows of it that are written at once


@dataclass(frozen=True, eq=False)
class Annotations:
    """obs and var of an AnnData input, kept for the export of its embedding.

    `opened` gives both by name: tables of pandas or of a lazy object; or groups of a file, of which nothing is loaded
    before the export. A store keeps both as the bytes of an .h5ad file that holds nothing else, so that an export needs
    the store alone. `source` is the key of the matrix that was read, such as "obsm/X_pca".
    """

    source: str
    path: str = field(repr=False)  # for messages
    opened: Callable[[], AbstractContextManager[Any]] = field(repr=False)

    @classmethod
    def of_tables(cls, source: str, obs: Any, var: Any) -> "Annotations":
        """Those of an object as it is now; columns that are added later are not among them."""
        tables = {"obs": obs, "var": var}
        tables = {name: one if hasattr(one, "to_memory") else one.copy(deep=False) for name, one in tables.items()}
        return cls(source, "the AnnData object", partial(nullcontext, tables))

    @classmethod
    def of_file(cls, source: str, path: str, storage_options: StorageOptions | None) -> "Annotations":
        """Those of an .h5ad file, or of an AnnData folder in zarr."""
        is_hdf5 = path.lower().endswith(".h5ad")
        return cls(source, path, partial(open_hdf5, path) if is_hdf5 else partial(_open_zarr, path, storage_options))

    def problem(self, names: np.ndarray | None) -> str | None:
        """Why these are no longer the annotations of the rows of an embedding, or None."""
        try:
            with self.opened() as tables:
                found = row_names(tables)
        except (OSError, ValueError, TypeError) as error:
            return str(error)
        same = names is not None and found is not None and np.array_equal(found, names)
        return None if same else f"the rows of {self.path!r} have changed"

    def take(self, rows: np.ndarray) -> "Annotations":
        """Those of some rows: both tables are read."""
        with self.opened() as tables:
            obs, var = (in_pandas(tables[name]) for name in _TABLES)
        return Annotations.of_tables(self.source, obs.iloc[rows], var)

    def write(self, file: Any) -> None:
        """Write obs and var into an open .h5ad file or zarr group."""
        with self.opened() as tables:
            for name in _TABLES:
                if name in tables:
                    _copy(tables, name, file, self.path)

    def column(self, name: str) -> np.ndarray:
        """One column of obs: numbers, or texts with "missing" where there is none."""
        with self.opened() as tables:
            return obs_values(tables, name, self.path)


@dataclass(frozen=True)
class Labels:
    """Names of the rows and of the features, and obs and var of an AnnData input, where it has any."""

    names: np.ndarray | None = None
    feature_names: np.ndarray | None = None
    annotations: Annotations | None = None

    @classmethod
    def of(cls, rows: "InputRows | None") -> "Labels":
        """The labels of an input."""
        if rows is None:
            return cls()
        return cls(rows.names, rows.feature_names, rows.annotations)

    @classmethod
    def stored(cls, store: ArrayStore, rows: "InputRows | None") -> "Labels":
        """The labels in a store; annotations of the input itself, if it is given, may be newer."""
        own = None if rows is None else rows.annotations
        return cls(_open(store, NAMES), _open(store, FEATURE_NAMES), open_annotations(store) if own is None else own)

    def save(self, store: ArrayStore) -> None:
        """Store what there is."""
        if self.annotations is not None and store.persistent:
            save_annotations(self.annotations, store)
        _save(self.names, store, NAMES)
        _save(self.feature_names, store, FEATURE_NAMES)


@dataclass(frozen=True)
class _NamesMetadata:
    """How names are stored: bytes of `width`, padded with zeros."""

    width: int
    encoding: str = "utf-8"
    are_integers: bool = False


def _save(names: np.ndarray | None, store: ArrayStore, group: str) -> None:
    """Store names, if there are any, in place of others."""
    stored = None if names is None else _open(store, group)
    if names is None or (stored is not None and np.array_equal(stored, names)):
        return
    if stored is not None:
        store.remove(group)
    letters = np.char.encode(names.astype(str), "utf-8")
    width = max(1, letters.dtype.itemsize)
    table = store.table(f"{group}/utf8", (len(letters), width), np.uint8)
    write_whole(table, np.frombuffer(letters.tobytes(), np.uint8).reshape(len(letters), width))
    store.commit(group, _NamesMetadata(width, are_integers=names.dtype.kind == "i"))


def stored_feature_names(store: ArrayStore) -> list[str] | None:
    """The names of the features in a store, or None."""
    names = _open(store, FEATURE_NAMES)
    return None if names is None else list(names.tolist())


def _open(store: ArrayStore, group: str) -> np.ndarray | None:
    metadata = store.read(group, _NamesMetadata)
    if metadata is None:
        return None
    table = store.open_table(f"{group}/utf8")
    if metadata.encoding != "utf-8" or table.shape[1:] != (metadata.width,) or table.dtype != np.uint8:
        raise DamageError(f"array '{group}/utf8' does not hold names", f"{group}/utf8")
    letters = np.ascontiguousarray(table.read(0, table.shape[0]))
    names = np.char.decode(letters.view(f"S{metadata.width}")[:, 0], metadata.encoding)
    return names.astype(np.int64) if metadata.are_integers else names


@contextmanager
def _open_zarr(path: str, storage_options: StorageOptions | None) -> Iterator[Any]:
    yield open_node(path, storage_options)


# --- obs and var in a store -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Record:
    """The annotations of a store: a table of bytes, padded with zeros."""

    n_bytes: int
    digest: str
    source: str


def save_annotations(annotations: Annotations, store: ArrayStore) -> None:
    """Keep obs and var in a store, unless it has the same already; what cannot be kept is no reason to fail."""
    try:
        with _temporary() as path:
            h5py = import_optional("h5py", "anndata", "AnnData")
            with h5py.File(path, "w") as file:
                annotations.write(file)
            _save_file(path, annotations.source, store)
    except DamageError:
        raise
    except Exception as error:  # any column of a user, through another library
        warn(f"obs and var of the input are not kept in the store: {error}", GPEWarning)


def open_annotations(store: ArrayStore) -> Annotations | None:
    """The annotations that a store keeps."""
    record = store.read(ANNOTATIONS, _Record)
    if record is None:
        return None
    table, n_bytes = store.open_table(_STORED), record.n_bytes
    return Annotations(record.source, f"{store}/{_STORED}", partial(_opened, table, n_bytes))


@contextmanager
def _opened(stored: Table, n_bytes: int) -> Iterator[Any]:
    """The .h5ad file whose bytes a store keeps."""
    with _temporary() as path:
        with open(path, "wb") as file:
            for start, stop in ranges(stored.shape[0], _ROWS):
                file.write(stored.read(start, stop).tobytes())
            file.truncate(n_bytes)
        with open_hdf5(str(path)) as group:
            yield group


def _save_file(path: Path, source: str, store: ArrayStore) -> None:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record = _Record(path.stat().st_size, digest, source)
    if record == store.read(ANNOTATIONS, _Record):
        return
    store.remove(ANNOTATIONS)
    table = store.table(_STORED, (-(-record.n_bytes // _WIDTH), _WIDTH), np.uint8, shard_rows=_ROWS)
    with open(path, "rb") as file:
        for start, stop in ranges(table.shape[0], _ROWS):
            data = file.read((stop - start) * _WIDTH).ljust((stop - start) * _WIDTH, b"\0")
            table.write(start, np.frombuffer(data, np.uint8).reshape(stop - start, _WIDTH))
    store.commit(ANNOTATIONS, record)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scalable-gpe-") as folder:
        yield Path(folder) / "annotations.h5ad"


def _write(file: Any, name: str, value: Any) -> None:
    anndata = import_optional("anndata", "anndata", "AnnData")
    with anndata.settings.override(allow_write_nullable_strings=True):
        anndata.io.write_elem(file, name, value)


def _copy(tables: Any, name: str, file: Any, path: str) -> None:
    """Copy a table: as it is between two HDF5 files, else column by column."""
    source = tables[name]
    if hasattr(source, "iloc") or checked(source).attrs.get("encoding-version") != "0.2.0":
        _write(file, name, in_pandas(source))  # in memory already, or of an early version of AnnData
        return
    if not hasattr(tables, "store") and not hasattr(file, "store"):  # neither is zarr
        file.copy(source, name)
        return
    index, columns = str(source.attrs["_index"]), [str(column) for column in source.attrs["column-order"]]
    target = file.create_group(name)
    target.attrs.update(
        {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": index, "column-order": columns}
    )
    for column in [index, *columns]:
        if column not in source:
            raise ValueError(f"{name} of {path!r} has no column {column!r}. Write the file again.")
        _write(target, column, in_pandas(source[column]))
