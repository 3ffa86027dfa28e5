"""What an unfinished graph was made from: another input, or other libraries, must not resume it.

The name of a graph depends on sampled rows only. All rows are hashed before the search, and the checksum is committed
then, with the versions of the libraries: another one may order the points otherwise.
"""

import itertools
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from scalable_gpe.errors import Message, StoreError, logger
from scalable_gpe.execution.versions import versions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.keys import RUNS, Keys, input_name
from scalable_gpe.storage.protocol import ArrayStore

_MADE_FROM_GRAPHS = ("kernel", "heat", "sketch")
_IN_ORDER = ("points", "indices", "distances", "edges")


@dataclass(frozen=True)
class GraphInput:
    """Checksum of all rows (None without points), and versions of the libraries, when a graph was begun.

    `complete`: the graph was committed, so that a kernel may have been made from it.
    `n_parts`: those of its search; None in stores of earlier versions.
    """

    content: str | None
    versions: dict[str, str]
    complete: bool = False
    n_parts: int | None = None


@dataclass(frozen=True)
class _Run:
    """The names that a run's record holds."""

    keys: Keys


def begin(name: str, content: str | None, store: ArrayStore, n_parts: int = 1) -> int:
    """Commit the input of a graph before it is made; remove an unfinished graph of another one.

    A graph that was complete once (it is being repaired) may have a kernel, which belongs to its rows and to its order.
    Returns the number of parts of the search: `n_parts`, or those of the search that is resumed if they are no fewer.
    """
    now, begun = GraphInput(content, versions(), n_parts=n_parts), store.read(input_name(name), GraphInput)
    same = begun is not None and (begun.content, begun.versions) == (now.content, now.versions)
    if begun is not None and same and begun.n_parts is not None and begun.n_parts >= n_parts:
        return begun.n_parts
    if name in _names(store, "graph"):
        made = _made_from(name, begun, store)
        if made:
            _check_content(begun, content)
        why = "has parts that the limit does not allow" if same else "was made from other rows, or with other versions"
        logger.warning("the unfinished graph %s: starting over", why)
        for result in (*made, name):
            store.remove(result)
    store.commit(input_name(name), now)
    return n_parts


def complete(name: str, store: ArrayStore) -> None:
    """Record that a graph is about to be committed."""
    begun = store.read(input_name(name), GraphInput)
    if begun is not None and not begun.complete:
        store.commit(input_name(name), replace(begun, complete=True))


def check_order(name: str, user_row: np.ndarray, store: ArrayStore) -> None:
    """Remove what is stored in another order than that of this search, which another build of a library may give."""
    stored = store.find_table(f"{name}/user_row")
    if stored is None or stored.shape != user_row.shape:
        return
    pieces = ranges(len(user_row), stored.shard_rows)
    if any(stored.has(start) and (stored.read(start, stop) != user_row[start:stop]).any() for start, stop in pieces):
        logger.warning("the unfinished graph has its points in another order: starting over")
        made = _made_from(name, store.read(input_name(name), GraphInput), store)
        for result in (*made, *(f"{name}/{table}" for table in _IN_ORDER)):
            store.remove(result)


def refuse_input() -> NoReturn:
    """Raise: the rows that the fingerprint does not sample are others."""
    raise StoreError(
        Message(
            "the store was made from another input: its shape and sampled rows are the same, other rows differ. "
            "Pass another store, or `resume=False` to start over in this one."
        )
    )


def _check_content(begun: GraphInput | None, content: str | None) -> None:
    """Raise unless a graph that others were made from had the same rows."""
    if begun is None:
        raise StoreError(
            Message(
                "the graph of the store is damaged, and the store does not say which rows it was made from. Pass "
                "another store, or `resume=False` to start over in this one."
            )
        )
    if begun.content != content:
        refuse_input()


def _made_from(graph: str, begun: GraphInput | None, store: ArrayStore) -> list[str]:
    """Kernels that may have been made from a graph, and what was made from kernels.

    Results of runs of other graphs do not count.
    """
    if begun is not None and not begun.complete:
        return []
    runs = [run.keys for name in _names(store, RUNS) if (run := store.peek(name, _Run)) is not None]
    others = {name for keys in runs if keys.graph != graph for name in (keys.kernel, keys.heat, keys.sketch)}
    kernels, *later = ([name for name in _names(store, group) if name not in others] for group in _MADE_FROM_GRAPHS)
    return [*kernels, *itertools.chain(*later)] if kernels else []


def _names(store: ArrayStore, group: str) -> list[str]:
    return [f"{group}/{name}" for name in store.names(group)]
