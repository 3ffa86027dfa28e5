"""obs and var of an AnnData input, kept for the export of its embedding.

Of a file nothing is loaded before the export, which copies them column by column. A store keeps them as the bytes of an
.h5ad file that holds nothing else, so that an export needs the store alone.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.errors import DamageError, GPEWarning, warn
from scalable_gpe.io.anndata_parts import checked, obs_values, plain_values, row_names
from scalable_gpe.io.hdf5 import open_hdf5
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import Annotations, first_names
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.records import ANNOTATIONS
from scalable_gpe.storage.store import ArrayStore, Table

_FRAMES = ("obs", "var")
_TABLE = f"{ANNOTATIONS}/h5ad"
_WIDTH = 2**16  # bytes in one row of the stored table
_ROWS = 2**8  # rows of it that are written at once


@dataclass(frozen=True, eq=False)
class FrameAnnotations:
    """obs and var of an AnnData object: pandas tables, or the tables of a lazy object."""

    source: str
    obs: Any
    var: Any

    @classmethod
    def of(cls, adata: Any, source: str) -> "FrameAnnotations":
        """Those of an object as it is now; columns that are added later are not among them."""
        return cls(source, *(frame if _is_lazy(frame) else frame.copy(deep=False) for frame in (adata.obs, adata.var)))

    def problem(self, names: np.ndarray | None, n_rows: int) -> str | None:
        """Why these are not the annotations of an embedding, or None."""
        return None if len(self.obs.index) == n_rows else f"obs has {len(self.obs.index)} rows, not {n_rows}"

    def take(self, rows: np.ndarray) -> "FrameAnnotations":
        """Those of some rows."""
        obs = self.obs.to_memory() if _is_lazy(self.obs) else self.obs
        return replace(self, obs=obs.iloc[rows])

    def write(self, file: Any) -> None:
        """Write obs and var into an open .h5ad file or zarr group."""
        for name in _FRAMES:
            frame = getattr(self, name)
            _write(file, name, frame.to_memory() if _is_lazy(frame) else frame)

    def column(self, name: str) -> np.ndarray:
        """One column of obs."""
        if name not in self.obs:
            raise ValueError(f"column= must name one of obs: {first_names(self.obs.columns)}; got {name!r}.")
        values = self.obs[name]
        return plain_values(values.to_pandas() if hasattr(values, "to_pandas") else values)


@dataclass(frozen=True)
class FileAnnotations:
    """obs and var of an .h5ad file, of an AnnData folder in zarr, or of the .h5ad file whose bytes a store keeps."""

    source: str
    path: str
    storage_options: StorageOptions | None = field(default=None, repr=False)
    stored: Table | None = field(default=None, repr=False)
    n_bytes: int = 0

    def problem(self, names: np.ndarray | None, n_rows: int) -> str | None:
        """Why these are no longer the annotations of an embedding, or None."""
        try:
            with self._open() as group:
                found = row_names(group, self.path)
        except (OSError, ValueError, TypeError) as error:
            return str(error)
        if names is None or found is None or not np.array_equal(found, names):
            return f"the rows of {self.path!r} have changed"
        return None

    def take(self, rows: np.ndarray) -> FrameAnnotations:
        """Those of some rows: both tables are read."""
        anndata = import_optional("anndata", "anndata", "AnnData")
        with self._open() as group:
            obs, var = (anndata.io.read_elem(checked(group[name])) for name in _FRAMES)
        return FrameAnnotations(self.source, obs.iloc[rows], var)

    def write(self, file: Any) -> None:
        """Write obs and var into an open .h5ad file or zarr group."""
        with self._open() as group:
            for name in _FRAMES:
                if name in group:
                    _copy(group, name, file, self.path)

    def column(self, name: str) -> np.ndarray:
        """One column of obs."""
        with self._open() as group:
            return obs_values(group, name, self.path)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        if self.stored is not None:
            with _temporary() as path:
                with open(path, "wb") as file:
                    for start in range(0, self.stored.shape[0], _ROWS):
                        file.write(self.stored.read(start, min(start + _ROWS, self.stored.shape[0])).tobytes())
                    file.truncate(self.n_bytes)
                with open_hdf5(str(path)) as group:
                    yield group
        elif self.path.lower().endswith(".h5ad"):
            with open_hdf5(self.path) as group:
                yield group
        else:
            from scalable_gpe.io.zarr_input import open_node

            yield open_node(self.path, self.storage_options)


# --- in a store -----------------------------------------------------------------------------------


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


def open_annotations(store: ArrayStore) -> FileAnnotations | None:
    """The annotations that a store keeps."""
    record = store.read(ANNOTATIONS, _Record)
    if record is None:
        return None
    return FileAnnotations(record.source, f"{store}/{_TABLE}", None, store.open_table(_TABLE), record.n_bytes)


def _save_file(path: Path, source: str, store: ArrayStore) -> None:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record = _Record(path.stat().st_size, digest, source)
    if record == store.read(ANNOTATIONS, _Record):
        return
    store.remove(ANNOTATIONS)
    table = store.table(_TABLE, (-(-record.n_bytes // _WIDTH), _WIDTH), np.uint8, shard_rows=_ROWS)
    with open(path, "rb") as file:
        for start in range(0, table.shape[0], _ROWS):
            stop = min(start + _ROWS, table.shape[0])
            data = file.read((stop - start) * _WIDTH).ljust((stop - start) * _WIDTH, b"\0")
            table.write(start, np.frombuffer(data, np.uint8).reshape(stop - start, _WIDTH))
    store.commit(ANNOTATIONS, record)


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scalable-gpe-") as folder:
        yield Path(folder) / "annotations.h5ad"


# --- tables ---------------------------------------------------------------------------------------


def _is_lazy(frame: Any) -> bool:
    return hasattr(frame, "to_memory")


def _write(file: Any, name: str, value: Any) -> None:
    anndata = import_optional("anndata", "anndata", "AnnData")
    with anndata.settings.override(allow_write_nullable_strings=True):
        anndata.io.write_elem(file, name, value)


def _copy(group: Any, name: str, file: Any, path: str) -> None:
    """Copy a table: as it is between two HDF5 files, else column by column."""
    source = checked(group[name])
    attributes = source.attrs
    plain = hasattr(source, "keys") and attributes.get("encoding-version") == "0.2.0"
    if plain and not (hasattr(group, "store") or hasattr(file, "store")):  # neither is zarr
        file.copy(source, name)
        return
    anndata = import_optional("anndata", "anndata", "AnnData")
    if not plain:  # of an early version of AnnData
        _write(file, name, anndata.io.read_elem(source))
        return
    index, columns = str(attributes["_index"]), [str(column) for column in attributes["column-order"]]
    target = file.create_group(name)
    target.attrs.update(
        {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": index, "column-order": columns}
    )
    for column in [index, *columns]:
        if column not in source:
            raise ValueError(f"{name} of {path!r} has no column {column!r}. Write the file again.")
        _write(target, column, anndata.io.read_elem(source[column]))
