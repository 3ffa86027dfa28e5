"""The context of one computation (its store, workers and memory plan), and the stages that run in it.

The graph, the kernel, the heat kernel and the sketch are stages. `embed` runs them one after the other; the functions
for single stages (`neighbor_graph`, `gaussian_kernel`, `heat_kernel`, `gp_embedding`) run the same stages, so that each
finds the results of the others.
"""

import itertools
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.execution.memory_plan import MemoryPlan, current_block_sizes
from scalable_gpe.execution.process import map_large_arrays, process, release_freed_memory
from scalable_gpe.execution.resources import ProblemSize, measure_resources
from scalable_gpe.execution.workers import Workers
from scalable_gpe.formatting import card, card_or_text, in_time
from scalable_gpe.storage.backends import StorageOptions, is_url
from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.mapped import empty_in_lines, mapped, pieces
from scalable_gpe.storage.store import ArrayStore, MemoryStore, Table, read_whole

Result = TypeVar("Result", covariant=True)
Warned = TypeVar("Warned", bound=Any)  # keeps the warning that was given when it was made


@dataclass(frozen=True)
class Context:
    """Store, workers and memory plan of a computation; every result of a stage holds one.

    `token` is unique: it names what only this computation may use. `sweeps` counts passes over K by purpose. `seconds`
    are those of the stages, by the names of their results, where they are known.
    """

    store: ArrayStore
    workers: Workers
    plan: MemoryPlan
    sweeps: Counter[str] = field(default_factory=Counter, repr=False)
    seconds: dict[str, float] = field(default_factory=dict, repr=False)
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def __reduce__(self) -> Any:
        # another process gets access to the results, without threads and counts
        return _sent, (self.store, self.workers, self.plan, self.token)

    def block_rows(self, n_rows: int) -> int:
        """Rows of a block of K for `n_rows` points."""
        return current_block_sizes().block_rows or block_rows(n_rows)

    def empty(self, shape: tuple[int, ...], dtype: Any, *, in_order: bool = False) -> np.ndarray:
        """An array with undefined values: in memory, or mapped if the plan says so.

        It has an entry per row, which are used in any order; or it is larger, and tasks use it `in_order`.
        """
        if not self.plan.maps_arrays:
            return empty_in_lines(shape, dtype)
        # the folder of the store, or one of this machine where that is far away or read-only
        elsewhere = self.plan.resources.remote or self.store.read_only or is_url(str(self.store))
        folder = tempfile.gettempdir() if elsewhere else str(self.store)
        return mapped.empty(folder, shape, dtype, self.plan.mapped_bytes(), in_order=in_order)

    def filled(self, n_rows: int, dtype: Any, values: Callable[[int, int], Any]) -> np.ndarray:
        """A vector whose rows from `start` to `stop` are ``values(start, stop)``."""
        out = self.empty((n_rows,), dtype)
        for start, stop in pieces(n_rows):
            out[start:stop] = values(start, stop)
        return out

    def read_whole(self, table: Table) -> np.ndarray:
        """All rows of a table, in an array as `empty` makes it."""
        return read_whole(table, self.empty if self.plan.maps_arrays else np.empty)

    def tune_memory(self, *, searching: bool = False) -> None:
        """Set which freed arrays return to the system, and how much of mapped arrays may stay, as the plan says.

        Without a limit of the user this is left to glibc. The parts of a search need their room at once, those of a
        sweep do not.
        """
        if self.plan.resources.given:
            map_large_arrays(self.plan.large_array(searching=searching))
        mapped.may_fill(None if searching else self.plan.ceiling)

    def new_label(self) -> str:
        """Return a word that nothing else of this run is named by."""
        return f"{self.token}-{next(self._numbers)}"

    def scratch(self) -> str:
        """Return a new name for scratch arrays, which end with the computation."""
        return f"work/{self.new_label()}"


def _sent(store: ArrayStore, workers: Workers, plan: MemoryPlan, token: str) -> Context:
    if plan.maps_arrays and (plan.resources.given or not process.calls):
        map_large_arrays(plan.large_array(searching=True))
    return Context(store, workers, plan, token=token)


def make_context(
    store: ArrayStore, workers: Workers, size: ProblemSize, limit: int | None = None, *, resident_input: bool = False
) -> Context:
    """Make a context with the memory plan of a problem."""
    path = str(store) if store.persistent else None
    resources = measure_resources(limit, workers, path, resident_input=resident_input)
    return Context(store, workers, MemoryPlan(size, resources))


def local_context(n_rows: int) -> Context:
    """Make a context in memory, for the user's own matrix."""
    return make_context(MemoryStore(), Workers(), ProblemSize(n_rows))


def open_store(path: Any, storage_options: StorageOptions | None = None, *, read_only: bool = False) -> ArrayStore:
    """Open the zarr store at a path or URL; None gives a store in memory."""
    if path is None:
        return MemoryStore()
    from scalable_gpe.storage.zarr_store import ZarrStore

    return ZarrStore(path, read_only=read_only, storage_options=storage_options)


class StoredResult:
    """A result that other processes open by its name in the store, once each, instead of receiving its arrays."""

    context: Context
    name: str

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.context.workers.remote and self.context.store.persistent:
            return _open_by_name, (type(self), self.context, self.name, self._made_from())
        return super().__reduce_ex__(protocol)

    def _made_from(self) -> Any:
        """The result that this one was made from."""
        return None

    def summary(self) -> list[tuple[str, str]]:
        """Names and values of what to know about the result, none of which takes time to find."""
        return []

    def __repr__(self) -> str:
        return f"{type(self).__name__} ({', '.join(f'{name}: {value}' for name, value in self.summary())})"

    def _repr_html_(self) -> str:
        return card_or_text(lambda: card(type(self).__name__, [*self.summary(), *self._time()]), type(self).__name__)

    def _time(self) -> list[tuple[str, str]]:
        seconds = self.context.seconds.get(self.name)
        return [] if seconds is None else [("time", in_time(seconds))]


def _open_by_name(kind: Any, context: Context, name: str, made_from: Any) -> Any:
    return process.once((context.token, name), lambda: kind.open(context, name, made_from))


class Stage(Protocol[Result]):
    """A step of the pipeline: its inputs, its parameters, and the name of its result.

    ``find`` returns the complete result of that name, or None; ``make`` computes and commits it.
    """

    @property
    def name(self) -> str: ...
    def find(self, context: Context) -> Result | None: ...
    def make(self, context: Context) -> Result: ...


def complete(stage: Stage[Result], context: Context) -> Result:
    """Find or make the result of a stage; the caller holds the lock of the store."""
    limited = context.plan.resources.limit is not None
    if limited:  # what the stage before has freed would count against the limit
        release_freed_memory()
        context.tune_memory()
    result = stage.find(context)
    if result is None:
        began = time.perf_counter()
        result = stage.make(context)
        context.seconds[stage.name] = time.perf_counter() - began
        if limited:
            release_freed_memory()
    return result


def complete_alone(stage: Stage[Warned], context: Context, category: type[GPEWarning]) -> Warned:
    """Find or make the result of a stage outside of a run; the store is locked only to make it."""
    result = stage.find(context)
    if result is not None:
        if result.warning is not None:  # as when it was made
            warn(result.warning, category)
        return result
    with context.store.exclusive():
        return complete(stage, context)
