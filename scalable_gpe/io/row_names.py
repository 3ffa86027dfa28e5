"""Names of the rows in a store, so that a later process needs no input to show them."""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.storage.keys import NAMES
from scalable_gpe.storage.protocol import ArrayStore, write_whole


@dataclass(frozen=True)
class _NamesMetadata:
    """How the names of the rows are stored: bytes of `width`, padded with zeros."""

    width: int
    encoding: str = "utf-8"


def save_names(names: np.ndarray | None, store: ArrayStore) -> None:
    """Store the names of the rows, if they have any."""
    stored = None if names is None else open_names(store)
    if names is None or (stored is not None and np.array_equal(stored, names)):
        return
    if stored is not None:
        store.remove(NAMES)
    letters = np.char.encode(names, "utf-8")
    width = max(1, letters.dtype.itemsize)
    table = store.table(f"{NAMES}/utf8", (len(letters), width), np.uint8)
    write_whole(table, np.frombuffer(letters.tobytes(), np.uint8).reshape(len(letters), width))
    store.commit(NAMES, _NamesMetadata(width))


def open_names(store: ArrayStore) -> np.ndarray | None:
    """The stored names of the rows, or None."""
    metadata = store.read(NAMES, _NamesMetadata)
    if metadata is None:
        return None
    table = store.open_table(f"{NAMES}/utf8")
    if metadata.encoding != "utf-8" or table.shape[1:] != (metadata.width,) or table.dtype != np.uint8:
        raise DamageError(f"array '{NAMES}/utf8' does not hold names", f"{NAMES}/utf8")
    letters = np.ascontiguousarray(table.read(0, table.shape[0]))
    return np.char.decode(letters.view(f"S{metadata.width}")[:, 0], metadata.encoding)
