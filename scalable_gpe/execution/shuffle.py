"""The shuffle: entries of a sparse matrix, sorted into buckets of rows, in memory or through scratch files."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.storage.store import ArrayStore

ENTRY_BYTES = 12
_FIELDS = 3

Source = TypeVar("Source")


class Sorted(NamedTuple):
    """Entries of one source, sorted by bucket: those of bucket b end at ``offsets[b + 1]``.

    Rows and columns are int32, values float32.
    """

    offsets: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def packed(self, bucket: int) -> list[np.ndarray]:
        """Rows, columns, and the bits of the values, of one bucket."""
        part = slice(self.offsets[bucket], self.offsets[bucket + 1])
        return [self.rows[part], self.columns[part], self.values[part].view(np.int32)]


class Shuffled:
    """Entries of all sources by bucket: in memory, and in one scratch array per group of sources and bucket."""

    def __init__(self, n_buckets: int, store: ArrayStore) -> None:
        self.counts = np.zeros(n_buckets, np.int64)
        self._store = store
        self._held: list[Sorted] = []
        self._stored: list[tuple[str, np.ndarray]] = []

    def hold(self, group: list[Sorted]) -> None:
        """Keep a group of sources in memory."""
        self.counts += _counts(group)
        self._held += group

    def keep(self, name: str, counts: np.ndarray) -> None:
        """Register a group of sources that is in the store."""
        self.counts += counts
        self._stored.append((name, counts))

    def entries(self, bucket: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and values of one bucket; entries of one source stay together, in their order."""
        parts = [[np.empty(0, np.int32)] * _FIELDS, *(source.packed(bucket) for source in self._held)]
        for name, counts in self._stored:
            if length := _FIELDS * int(counts[bucket]):
                parts.append(np.split(_scratch(self._store, name, bucket, length).read(0, length), _FIELDS))
        rows, columns, values = map(np.concatenate, zip(*parts, strict=True))
        return rows, columns, values.view(np.float32)

    def clear(self) -> None:
        """Free all entries."""
        self._held.clear()
        for name, _ in self._stored:
            self._store.remove(name)


def shuffle(
    sort: Callable[[Source], Sorted],
    sources: Sequence[Source],
    n_buckets: int,
    context: Context,
    *,
    together: int,
    n_held: int,
) -> Shuffled:
    """Sort the entries of all sources into buckets, in groups of `together` sources; `n_held` groups stay in memory.

    Without a persistent store all of them do.
    """
    together = min(together, context.workers.share_of(len(sources)))
    groups = [sources[first : first + together] for first in range(0, len(sources), together)]
    n_stored = max(0, len(groups) - n_held) if context.store.persistent else 0
    shuffled = Shuffled(n_buckets, context.store)
    for group in groups[n_stored:]:
        shuffled.hold(context.workers.map(sort, group, count=False))
    names = [context.scratch() for _ in range(n_stored)]

    def sort_group(number: int) -> np.ndarray:
        group = [sort(source) for source in groups[number]]
        counts = _counts(group)
        for bucket in np.flatnonzero(counts).tolist():
            parts = [source.packed(bucket) for source in group]
            packed = np.concatenate([part[field] for field in range(_FIELDS) for part in parts])
            _scratch(context.store, names[number], bucket, len(packed)).write(0, packed)
        return counts

    for number, counts in enumerate(context.workers.map(sort_group, range(n_stored), count=False)):
        shuffled.keep(names[number], counts)
    return shuffled


def _scratch(store: ArrayStore, name: str, bucket: int, length: int) -> Any:
    """The entries of one group of sources and one bucket."""
    return store.scratch_table(f"{name}/{bucket}", (length,), np.int32, length)


def _counts(group: list[Sorted]) -> np.ndarray:
    """Entries of each bucket."""
    counts: np.ndarray = np.sum([np.diff(source.offsets) for source in group], axis=0)
    return counts
