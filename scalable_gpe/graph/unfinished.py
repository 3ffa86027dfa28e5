"""What an unfinished graph was made from: another input, or other libraries, must not resume it.

The name of a graph depends on sampled rows only. All rows are hashed before the search, and the checksum is committed
then, with the versions of the libraries: another one may order the points otherwise.
"""

from dataclasses import dataclass, replace

import numpy as np

from scalable_gpe.errors import StoreError, logger
from scalable_gpe.execution.process import versions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import input_name
from scalable_gpe.storage.store import ArrayStore


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


def begin(name: str, content: str | None, store: ArrayStore, n_parts: int = 1) -> int:
    """Commit the input of a graph before it is made; remove an unfinished graph of another one.

    A graph that was complete once may have a kernel, which belongs to its rows and to its order: it is repaired from
    the same input only. Returns the number of parts of the search: `n_parts`, or those of the search that is resumed if
    they are no fewer.
    """
    now, begun = GraphInput(content, versions(), n_parts=n_parts), store.read(input_name(name), GraphInput)
    same = begun is not None and (begun.content, begun.versions) == (now.content, now.versions)
    if begun is not None and same and begun.n_parts is not None and begun.n_parts >= n_parts:
        return begun.n_parts
    if name.rpartition("/")[2] in store.names("graph"):
        _start_over(begun, [name], store)
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
        in_order = [f"{name}/{table}" for table in ("points", "indices", "distances", "edges")]
        _start_over(store.read(input_name(name), GraphInput), in_order, store)


def _start_over(begun: GraphInput | None, arrays: list[str], store: ArrayStore) -> None:
    """Remove arrays of a graph that was never complete; refuse to replace one that was."""
    if begun is None or begun.complete:
        raise StoreError(
            "the graph of the store is damaged, and cannot be repaired: it was made from another input, in larger "
            "parts or with other versions of libraries. Pass another store, or resume=False to start over in "
            "this one."
        )
    logger.warning("the unfinished graph has other rows, larger parts or other versions: starting over")
    for array in arrays:
        store.remove(array)
