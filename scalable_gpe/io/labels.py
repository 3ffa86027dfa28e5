"""What an input says of its rows and features, in a store: a later process needs no input to know it."""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.io.annotations import open_annotations, save_annotations
from scalable_gpe.io.points import Annotations
from scalable_gpe.io.rows import InputRows
from scalable_gpe.storage.records import FEATURE_NAMES, NAMES
from scalable_gpe.storage.store import ArrayStore, write_whole


@dataclass(frozen=True)
class Labels:
    """Names of the rows and of the features, and obs and var of an AnnData input, where it has any."""

    names: np.ndarray | None = None
    feature_names: np.ndarray | None = None
    annotations: Annotations | None = None

    @classmethod
    def of(cls, rows: InputRows | None) -> "Labels":
        """The labels of an input."""
        if rows is None:
            return cls()
        return cls(rows.names, rows.feature_names, rows.annotations)

    @classmethod
    def stored(cls, store: ArrayStore, rows: InputRows | None) -> "Labels":
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
    """The stored names, or None."""
    metadata = store.read(group, _NamesMetadata)
    if metadata is None:
        return None
    table = store.open_table(f"{group}/utf8")
    if metadata.encoding != "utf-8" or table.shape[1:] != (metadata.width,) or table.dtype != np.uint8:
        raise DamageError(f"array '{group}/utf8' does not hold names", f"{group}/utf8")
    letters = np.ascontiguousarray(table.read(0, table.shape[0]))
    names = np.char.decode(letters.view(f"S{metadata.width}")[:, 0], metadata.encoding)
    return names.astype(np.int64) if metadata.are_integers else names
