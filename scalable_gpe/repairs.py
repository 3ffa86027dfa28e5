"""Repair of a store: the damaged stages of its finished runs are computed again, where that is possible."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.workers import Progress, Workers
from scalable_gpe.graph.build import GraphStage, Source
from scalable_gpe.graph.neighbors import GraphMetadata, NeighborGraph
from scalable_gpe.graph.points import content, hash_rows
from scalable_gpe.io.rows import InputRows
from scalable_gpe.pipeline import open_input, plan_memory, run_stages
from scalable_gpe.report import Report
from scalable_gpe.runs import RunRecord, with_repairs
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.commits import Damage
from scalable_gpe.storage.records import ANNOTATIONS, FEATURE_NAMES, NAMES, RUNS, Keys, from_json, input_name, to_json
from scalable_gpe.storage.store import read_whole
from scalable_gpe.storage.zarr_store import ZarrStore


class Repair(NamedTuple):
    """The damage that a store had, and what is left of it; each entry names an array and says what is wrong."""

    damage: list[Damage]
    left: list[Damage]


def repair(
    store: Any,
    X: Any = None,
    *,
    storage_options: StorageOptions | None = None,
    n_jobs: int | None = None,
    progress: Any = None,
) -> Repair:
    """Find all damage of a store, and compute the damaged stages of its finished runs again.

    Everything but the graph and the names is computed from what the store holds; the graph needs X. What cannot be
    computed stays as it is, so that the rest can still be read.

    Parameters
    ----------
    store : path or URL
        The store of an earlier ``embed(..., store=...)``.
    X : array-like, optional
        The points that the store was made from. A graph from `neighbors=` is not repaired: call `embed` again.
    storage_options : dict, optional
        As in `embed`.
    n_jobs : int, optional
        Number of threads; all cores by default.
    progress : None, False or callable(stage, done, total)
        As in `embed`.

    Returns
    -------
    Repair
        The pair (damage, left): what was damaged, and what still is.

    Examples
    --------
    >>> import os, tempfile, scalable_gpe as gpe
    >>> store = os.path.join(tempfile.mkdtemp(), "run.zarr")
    >>> result = gpe.embed(gpe.datasets.circle(200), n_components=8, power=4, store=store, progress=False)
    >>> gpe.repair(store)
    Repair(damage=[], left=[])
    """
    check_options(storage_options, store, X)
    ZarrStore(store, read_only=True, storage_options=storage_options)  # a store that does not exist is not made
    arrays = ZarrStore(store, storage_options=storage_options)
    with arrays.exclusive(repaired=False), Workers(n_jobs, Progress(progress)) as workers:
        damage = arrays.verify()
        for run in _finished_runs(arrays) if damage else ():
            _repair_run(run, damage, X, storage_options, arrays, workers)
        left = arrays.verify() if damage else []
        arrays.forget_damage()
        for damaged in left:
            arrays.note_damage(damaged.array)
    return Repair(damage, left)


@dataclass(frozen=True, kw_only=True)
class _StoredGraph(GraphStage):
    """The graph of a run as the store holds it."""

    keys: Keys
    report: Report

    @property
    def n_rows(self) -> int:
        """Number of rows of the run."""
        return self.report.n_rows

    @property
    def n_neighbors(self) -> int:
        """Number of neighbours in each list."""
        return self.report.n_neighbors

    @property
    def source(self) -> Source:
        """Fingerprint of the input, as the run has it."""
        return from_json(Source, self.keys.input)

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.keys.graph

    def make(self, context: Context) -> NeighborGraph:
        """Raise: there is nothing to make it from."""
        raise StoreError(f"the graph {self.name!r} is not complete, and needs the points. Pass X.")


def _finished_runs(store: ZarrStore) -> list[RunRecord]:
    """The finished runs whose record can be read; the one that was used last stays the last."""
    runs = []
    for name in store.names(RUNS):
        with contextlib.suppress(DamageError):
            runs.append(store.peek(f"{RUNS}/{name}", RunRecord))
    return sorted((run for run in runs if run is not None and run.finished), key=lambda run: run.last_used)


def _repair_run(
    run: RunRecord,
    damage: list[Damage],
    X: Any,
    storage_options: StorageOptions | None,
    store: ZarrStore,
    workers: Workers,
) -> None:
    """Compute the damaged stages of one run again, if there is what they are made from."""
    keys, parameters = run.keys, run.parameters
    later = _below(damage, (keys.kernel, keys.heat, keys.sketch, keys.run_name, *run.arrays.values()))
    graph = _below(damage, (keys.graph, input_name(keys.graph)))
    labels = _below(damage, (NAMES, FEATURE_NAMES, ANNOTATIONS))
    assert run.report is not None  # a finished run has one
    source: GraphStage = _StoredGraph(parameters.search, None, keys=keys, report=run.report)
    if X is not None and source.source.neighbors is None:
        source = GraphStage(parameters.search, open_input(X, parameters, storage_options))
        number = int(keys.graph.partition("-")[2] or 0)
        source, later = replace(source.scaled(workers), number=number), [*later, *graph, *labels]
    elif graph:
        return
    if not later:
        return
    weight = None  # which only the heat kernel holds
    if parameters.sample_weight is not None:
        try:
            weight = read_whole(store.open_table(f"{keys.heat}/weights"))
        except DamageError:
            return
    context = Context(store, workers, plan_memory(parameters, source, workers, store.location))
    if source.rows is not None:
        _check_input(source, source.rows, run, context)
    for damaged in later:
        store.repair(damaged.array, damaged.part)
    with_repairs(store, lambda: run_stages(source, parameters, context, weight))


def _below(damage: Iterable[Damage], results: Iterable[str]) -> list[Damage]:
    """The damage of some results and of the arrays below them."""
    return [found for found in damage if any(f"{found.array}/".startswith(f"{name}/") for name in results)]


def _check_input(source: GraphStage, rows: InputRows, run: RunRecord, context: Context) -> None:
    """Refuse other points than those of the run, before anything is removed."""
    metadata = None
    with contextlib.suppress(DamageError):
        metadata = context.store.peek(run.keys.graph, GraphMetadata)
    same = to_json(source.source) == run.keys.input
    if same and metadata is not None and metadata.content is not None:
        same = metadata.content == content(hash_rows(rows, context))
    if not same:
        raise StoreError("X does not hold the points that the store was made from. Pass those.")
