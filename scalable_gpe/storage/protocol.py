"""The interface of a store: tables of rows, ragged blocks, commits.

A stage gets tables from its store by name, writes whole shards of them, and commits its result with the record that
describes it. It does not depend on the kind of store: `memory` keeps arrays in this process, `zarr_store` in a zarr
group.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from scalable_gpe.storage.mapped import Empty, pieces
from scalable_gpe.storage.records import Record


class ScratchArray(Protocol):
    """A 1-D or 2-D array that is read in any ranges and written in whole shards of rows.

    ``run_rows`` are the rows of the smallest part of a file that is read; ``gap_rows`` are read in the time that one
    more request takes. ``key`` is unique among all arrays, and ends with the name.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int

    @property
    def run_rows(self) -> int: ...
    @property
    def gap_rows(self) -> int: ...
    @property
    def key(self) -> tuple[str, str]: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...
    def read_into(self, start: int, out: np.ndarray) -> None: ...
    def write(self, start: int, values: np.ndarray) -> None: ...


class Table(ScratchArray, Protocol):
    """An array whose rows are read by number too; ``array`` is what users see, a numpy or a zarr array."""

    @property
    def array(self) -> Any: ...
    def take(self, ids: np.ndarray) -> np.ndarray: ...
    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None: ...
    def has(self, start: int) -> bool: ...


class Ragged(Protocol):
    """One 1-D array per block; the caller knows how long each one is."""

    dtype: np.dtype[Any]

    def read(self, block: int, length: int) -> np.ndarray: ...
    def write(self, block: int, values: np.ndarray) -> None: ...
    def has(self, block: int) -> bool: ...


class ArrayStore(Protocol):
    """Makes, finds and removes tables, and knows which results are complete.

    `persistent`: results outlive this process, and other processes can open them. The `owner` of a table is the key of
    the run that writes it.
    """

    persistent: bool

    @property
    def read_only(self) -> bool: ...

    @property
    def location(self) -> str: ...

    @property
    def scratch_folder(self) -> str: ...
    def table(
        self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None, owner: str | None = None
    ) -> Table: ...
    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any, n_chunks: int = 1) -> Ragged: ...
    def input_copy(self, name: str, shape: tuple[int, int], shard_rows: int) -> Table | None: ...
    def open_table(self, name: str) -> Table: ...
    def open_ragged(self, name: str) -> Ragged: ...
    def find_table(self, name: str) -> Table | None: ...
    def scratch_table(self, name: str, shape: Sequence[int], dtype: Any, shard_rows: int) -> ScratchArray: ...

    def commit(self, name: str, record: object, arrays: Sequence[str] = ()) -> None: ...
    def read(self, name: str, kind: type[Record]) -> Record | None: ...
    def peek(self, name: str, kind: type[Record]) -> Record | None: ...
    def names(self, group: str) -> list[str]: ...
    def owner(self, name: str) -> str | None: ...
    def remove(self, name: str) -> None: ...
    def detach(self, name: str) -> Any: ...

    def exclusive(self) -> AbstractContextManager[None]: ...
    def flush(self, name: str) -> None: ...
    def repair(self, array: str, part: str = "") -> None: ...
    def discard(self) -> None: ...


def write_whole(table: Table, values: np.ndarray) -> None:
    """Write an array that this process holds, shard by shard."""
    for start, stop in pieces(len(values), table.shard_rows):
        table.write(start, values[start:stop])


def read_whole(table: Table, empty: Empty = np.empty) -> np.ndarray:
    """All rows of a table; `empty` makes the array."""
    if empty is np.empty:
        return table.read(0, table.shape[0])
    out = empty(table.shape, table.dtype)
    for start, stop in pieces(table.shape[0], table.shard_rows):
        table.read_into(start, out[start:stop])
    return out
