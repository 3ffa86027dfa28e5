"""What an unfinished graph was made from: another input, or other libraries, must not resume it.

The name of a graph depends on sampled rows only. All rows are hashed before the search, and the checksum is committed
then, with the versions of the libraries: another one may order the points otherwise.
"""

from dataclasses import dataclass
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
    """Checksum of all rows (None without points), and versions of the libraries, when a graph was begun."""

    content: str | None
    versions: dict[str, str]


@dataclass(frozen=True)
class _Run:
    """The names that a run's record holds."""

    keys: Keys


def begin(name: str, content: str | None, store: ArrayStore) -> None:
    """Commit the input of a graph before it is made; remove an unfinished graph of another one.

    A graph that was complete once (it is being repaired) has a kernel that belongs to its rows and to its order.
    """
    now = GraphInput(content, versions())
    known = store.read(input_name(name), GraphInput)
    if known == now:
        return
    if name.rpartition("/")[2] in store.names("graph"):
        made = _made_from(name, store)
        if made and (known is None or known.content != content):
            refuse_input()
        logger.warning("the unfinished graph was made from other rows, or with other versions: starting over")
        for one in (*made, name):
            store.remove(one)
    store.commit(input_name(name), now)


def check_order(name: str, user_row: np.ndarray, store: ArrayStore) -> None:
    """Remove what is stored in another order than that of this search, which another build of a library may give."""
    stored = store.find_table(f"{name}/user_row")
    if stored is None or stored.shape != user_row.shape:
        return
    pieces = ranges(len(user_row), stored.shard_rows)
    if any(stored.has(start) and (stored.read(start, stop) != user_row[start:stop]).any() for start, stop in pieces):
        logger.warning("the unfinished graph has its points in another order: starting over")
        for one in (*_made_from(name, store), *(f"{name}/{table}" for table in _IN_ORDER)):
            store.remove(one)


def refuse_input() -> NoReturn:
    """Raise: the rows that the fingerprint does not sample are others."""
    raise StoreError(
        Message(
            "the store was made from another input: its shape and sampled rows are the same, other rows differ. "
            "Pass another store, or `resume=False` to start over in this one."
        )
    )


def _made_from(graph: str, store: ArrayStore) -> list[str]:
    """Kernels and what was made from them, without those that belong to runs of other graphs."""
    runs = [run for one in store.names(RUNS) if (run := store.peek(f"{RUNS}/{one}", _Run)) is not None]
    others = {name for run in runs if run.keys.graph != graph for name in (run.keys.kernel, run.keys.heat)}
    others |= {run.keys.sketch for run in runs if run.keys.graph != graph}
    present = [f"{group}/{one}" for group in _MADE_FROM_GRAPHS for one in store.names(group)]
    return [name for name in present if name not in others]
