"""The runs of a store: their records (parameters, progress, seconds of each stage), and the store while one writes.

The store is locked while it is written, repaired where damaged, and left as it was by input that is refused.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import DamageError, GPEWarning, StoreError, logger, warn
from scalable_gpe.execution.context import Context, open_store
from scalable_gpe.execution.process import versions
from scalable_gpe.formatting import plain
from scalable_gpe.parameters import Parameters
from scalable_gpe.report import Report
from scalable_gpe.storage.backends import StorageOptions, is_read_only
from scalable_gpe.storage.records import GROUPS, RUNS, Keys, embedding_name, input_name
from scalable_gpe.storage.store import ArrayStore, Table

_REPAIRS = 8  # damaged stages that one call recomputes


@dataclass(frozen=True)
class RunRecord:
    """One run of a store; `arrays` are the names of its embeddings once it is finished."""

    keys: Keys
    parameters: Parameters
    finished: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    report: Report | None = None
    arrays: dict[Power, str] = field(default_factory=dict)
    used_at: float = 0.0

    @property
    def last_used(self) -> float:
        """Time of the last `embed` call for this run; by default the run with the latest time is opened."""
        return max(self.used_at, 0.0 if self.report is None else self.report.finished_at)


class RunLog:
    """Writes the record of a run, stage by stage.

    The record is first written after the graph stage, which reads every row and may refuse the input. `finished` is the
    record of a run that is already complete; nothing is written for it. A run that `starts_over` is recorded when what
    the store held is removed: after the kernel stage, the last one that may refuse the input.
    """

    def __init__(self, context: Context, keys: Keys, parameters: Parameters, *, starts_over: bool = False) -> None:
        self._store, self._name = context.store, keys.run_name
        record = self._store.read(self._name, RunRecord)
        self.finished = record if record is not None and record.finished else None
        self.seconds = {} if record is None else dict(record.seconds)
        self._record = RunRecord(keys, parameters, versions=versions())
        self._waits = starts_over
        if record is not None:
            _compare_versions(record.versions)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage, and record that it is done."""
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        if self._waits and name == "kernel":
            _remove_others(self._store, self._record.keys)
            self._waits = False
        if self.finished is None and not self._waits:
            self._store.commit(self._name, replace(self._record, seconds=dict(self.seconds)))

    def use(self, finished: RunRecord) -> None:
        """Record that a finished run was used again, if the store can be written to."""
        if self._store.read_only:
            return
        self._store.commit(self._name, replace(finished, used_at=time.time()), arrays=list(finished.arrays.values()))

    def finish(self, report: Report, arrays: dict[Power, str]) -> None:
        """Record that the run is finished."""
        done = replace(self._record, finished=True, seconds=dict(self.seconds), report=report, arrays=arrays)
        self._store.commit(self._name, done, arrays=list(arrays.values()))


def _remove_others(store: ArrayStore, keys: Keys) -> None:
    """Remove all that a store held before a run, which has its graph and its kernel."""
    own = {keys.graph, input_name(keys.graph), keys.kernel}
    for group in GROUPS:
        names = [f"{group}/{result}" for result in store.names(group)]
        others = [group] if names and own.isdisjoint(names) else [name for name in names if name not in own]
        if others:
            logger.warning("starting over: removing %s", ", ".join(others))
        for name in others:
            store.remove(name)


def _compare_versions(stored: dict[str, str]) -> None:
    """Warn if a run resumes with other library versions than it began with."""
    now = versions()
    changed = [f"{name} {stored[name]} -> {now.get(name)}" for name in stored if stored[name] != now.get(name)]
    if changed:
        warn(f"the store was written with other versions ({', '.join(changed)}): bytes may differ.", GPEWarning)


def read_runs(store: ArrayStore) -> dict[str, RunRecord]:
    """Read all runs of a store by name, including those whose arrays are damaged."""
    runs = {name: store.peek(f"{RUNS}/{name}", RunRecord) for name in store.names(RUNS)}
    return {name: record for name, record in runs.items() if record is not None}


def choose_run(store: ArrayStore, name: str | None, where: str) -> tuple[str, RunRecord]:
    """The finished run with this name, or whose name begins so, and its name; without one, the run last used."""
    runs = {key: record for key in store.names(RUNS) if (record := store.read(f"{RUNS}/{key}", RunRecord)) is not None}
    finished = {key: record for key, record in runs.items() if record.finished}
    if not finished:
        state = "an unfinished run" if runs else "no finished stage of a run"
        raise StoreError(f"store {where!r} holds {state}. Run embed again with the same arguments to resume.")
    if name is None:
        return max(finished.items(), key=lambda run: run[1].last_used)
    matching = [(key, record) for key, record in finished.items() if key.startswith(name)]
    if len(matching) != 1:
        names = ", ".join(f"{key!r} (power {plain(record.parameters.power)})" for key, record in finished.items())
        raise ValueError(f"run= must name one of {names}; got {name!r}.")
    return matching[0]


def check_same_input(store: ArrayStore, keys: Keys) -> None:
    """Refuse a store that was made from another input, and say what differs."""
    for record in read_runs(store).values():
        if record.keys.input != keys.input:
            raise StoreError(
                f"the store was made from another input ({_difference(record.keys.input, keys.input)}). Pass "
                "another store, or resume=False to start over in this one."
            )


def _difference(stored: dict[str, Any], now: dict[str, Any]) -> str:
    """How the rows or the neighbour lists of a store differ from those of now."""
    what = next(name for name in now if stored.get(name) != now[name])
    old, new = stored.get(what) or {}, now[what] or {}
    sizes = [
        f"{name}: stored {old.get(name)}, now {new.get(name)}"
        for name in ("n_rows", "n_features", "shape")
        if old.get(name) != new.get(name)
    ]
    return "; ".join(sizes) or f"{what} of the same shape with other values"


def embedding_names(store: ArrayStore, key: str, powers: tuple[Power, ...]) -> dict[Power, str]:
    """Names of the embeddings of a run: embedding/<power>, or with its key where another run has begun that one."""
    short = {power: embedding_name(power) for power in powers}
    return {power: name if _is_free(store, name, key) else embedding_name(power, key) for power, name in short.items()}


def _is_free(store: ArrayStore, name: str, key: str) -> bool:
    """Whether a run may take a name: no other run has it or writes to it."""
    others = (record for other, record in read_runs(store).items() if other != key)
    taken = {array for record in others for array in record.arrays.values()}
    return name not in taken and store.owner(name) in (None, key)


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
