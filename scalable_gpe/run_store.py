"""The store of a run: locked while it is written, repaired where damaged, left as it was by input that is refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import DamageError, StoreError, logger
from scalable_gpe.execution.context import open_store
from scalable_gpe.storage.backends import StorageOptions, is_read_only
from scalable_gpe.storage.keys import GROUPS, input_name
from scalable_gpe.storage.protocol import ArrayStore, Table

_REPAIRS = 8  # damaged stages that one call recomputes


def open_sound(store: ArrayStore, name: str) -> Table:
    """Open a published array and check that every shard can be read; a damaged one is published again."""
    table = store.open_table(name)
    damaged = [start for start in range(0, table.shape[0], table.shard_rows) if not table.has(start)]
    if damaged:
        raise DamageError(f"array {name!r} is damaged: rows from {damaged[0]} on cannot be read", name)
    return table


def with_repairs(store: ArrayStore, work: Callable[[], Embedding]) -> Embedding:
    """Run `work`; stages that turn out to be damaged are recomputed."""
    for _ in range(_REPAIRS):
        try:
            return work()
        except DamageError as error:
            if store.read_only:
                raise
            logger.warning("%s", error)
            store.repair(error.array, error.part)
    return work()


@contextmanager
def opened(path: Any, storage_options: StorageOptions | None) -> Iterator[ArrayStore]:
    """Open the store of a run, and lock it against other processes until the run ends.

    One that cannot be written to, as on a read-only mount, needs no lock: its finished runs can be read.
    """
    store = open_store(path, storage_options, read_only=is_read_only(path))
    if store.read_only:
        yield store
        return
    with store.exclusive():
        yield store


def check_writable(store: ArrayStore) -> None:
    """Refuse a store that cannot be written to and does not hold the finished run."""
    if store.read_only:
        raise StoreError(
            f"store {str(store)!r} cannot be written to, and holds no finished run with these arguments. Pass "
            "another store=, or the arguments of a run that it holds."
        )


@contextmanager
def nothing_left(store: ArrayStore, graph: str | None) -> Iterator[None]:
    """Remove what a refused input has left: a new store, or a new `graph` beside the one that it was to replace."""
    try:
        yield
    except (ValueError, TypeError):
        if not store.read_only and not any(store.names(group) for group in GROUPS):
            store.discard()
        if graph is not None and {f"graph/{one}" for one in store.names("graph")} - {graph}:
            store.remove(graph)
            store.remove(input_name(graph))
        raise
