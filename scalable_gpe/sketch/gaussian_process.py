"""The Gaussian process embedding Y = A^p G / sqrt(k)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, cast

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.context import Context, locked, open_store
from scalable_gpe.execution.memory_plan import in_flight, n_panels
from scalable_gpe.execution.panels import MemoryPanel, Panel, Panels, PanelTable, StoredPanel
from scalable_gpe.execution.workers import current_block_sizes
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.polynomial import Plan, plan_power, widen
from scalable_gpe.sketch.powers import PowerIteration, Sketch, column_means, start_panel
from scalable_gpe.sketch.random_matrix import KINDS, sketch_matrix
from scalable_gpe.spectral.density import Lanczos, steps_for
from scalable_gpe.storage.backends import check_options
from scalable_gpe.storage.protocol import Table, ranges

PRECISIONS = ("single", "double")
_SAVE_SECONDS = 30.0
_PLAIN_UP_TO = 8  # powers for which no interval is worth finding


@dataclass(frozen=True)
class SketchColumns:
    """One power of A applied to a range of columns of G: ``Z`` after power - 1 applications, as `powers` keeps it."""

    table: Table
    first: int
    stop: int
    means: np.ndarray


def gp_embedding(
    heat: HeatKernel,
    n_components: int = 16,
    power: Any = 16,
    *,
    sketch: str = "gaussian",
    random_state: Any = 0,
    precision: str = "single",
    tol: float = 1e-4,
    store: Any = None,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    r"""Gaussian process embedding of a heat kernel.

    .. math:: Y = A^p G / \sqrt{k}, \qquad E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    For a converged bistochastic kernel the columns of G are centred, which shifts all points alike.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    n_components : int
        Dimension k of the embedding.
    power : int or sequence of int
        The power p; several share their products.
    sketch : {"gaussian", "bernoulli"}
        Entries of G.
    random_state : int, None or numpy generator
        Seed of G; entry (i, j) does not depend on anything else.
    precision : {"single", "double"}
        Type of the panels that are multiplied.
    tol : float
        Relative error of distances that the polynomial may make.
    store : path or URL, optional
        A zarr store for the result.
    storage_options : dict, optional
        What fsspec needs to reach the URL of `store`.

    Returns
    -------
    ndarray of float32, (N, k), or a dict of them for a sequence of powers; zarr arrays with a store.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> gpe.gp_embedding(heat, 2, power=8).shape
    (300, 2)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel makes it; got {type(heat).__name__}.")
    parameters = check_sketch(n_components, power, sketch, random_state, precision, tol)
    check_options(storage_options, store)
    store = heat.context.store if store is None else open_store(store, storage_options)
    context = Context(store, heat.context.workers, heat.context.memory_limit)
    how = Sketch(parameters["sketch"], parameters["random_state"], precision)
    of = heat.name if store is None else _identity(heat)
    name = f"sketch/{of}/{how.kind}-{how.seed}-{precision}-{tol}".replace("//", "/")
    with locked(store):
        points, _ = make_points(heat, how, parameters["n_components"], parameters["powers"], tol, context, name)
    # a copy in memory: the home's own table is written again by the next call
    values = {
        one: as_array(table) if context.store.stored else table.read(0, heat.shape[0]).copy()
        for one, table in points.items()
    }
    return values[parameters["powers"][0]] if isinstance(power, Integral) else values


def _identity(heat: HeatKernel) -> str:
    """Checksum of A times a fixed random vector, so that kernels that share a store are not mixed up."""
    image = heat @ sketch_matrix(heat.shape[0], 1)
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:12]


def check_sketch(
    n_components: Any, power: Any, sketch: str, random_state: Any, precision: str, tol: Any
) -> dict[str, Any]:
    """Check what a sketch is asked for."""
    return {
        "n_components": checks.check_count(n_components, "n_components"),
        "powers": checks.check_powers(power),
        "sketch": checks.check_choice(sketch, KINDS, "sketch"),
        "random_state": checks.check_random_state(random_state),
        "precision": checks.check_choice(precision, PRECISIONS, "precision"),
        "tol": checks.check_positive(tol, "tol"),
    }


def as_array(table: Any) -> Any:
    """What the user sees of a table: the numpy or the zarr array."""
    return table.array if hasattr(table, "array") else table.values


def make_points(
    heat: HeatKernel, sketch: Sketch, n_components: int, powers: Sequence[int], tol: float, context: Context, name: str
) -> tuple[dict[int, Table], dict[int, Plan]]:
    """Sketch and publish: the whole of A^p G / sqrt(k) under ``<name>/points/<power>``."""
    plans = make_plans(heat, sketch, powers, tol, context, name)
    carried = make_columns(heat, sketch, n_components, plans, context, name)
    return {
        power: publish(heat, carried[power], n_components, context, f"{name}/points-{n_components}/{power}")
        for power in powers
    }, plans


def make_plans(
    heat: HeatKernel, sketch: Sketch, powers: Sequence[int], tol: float, context: Context, name: str
) -> dict[int, Plan]:
    """Plan each power by itself, so that it does not matter which others are asked for."""
    lanczos = Lanczos(heat, sketch.seed)
    plans = {}
    for power in powers:
        metadata = context.store.metadata(f"{name}/{power}")
        if metadata is None:
            spectrum = lanczos.spectrum(steps_for(power)) if power > _PLAIN_UP_TO else None
            plan = plan_power(power, spectrum, sketch.precision, tol, heat.residual if heat.is_centred else 0.0)
            metadata = {
                "lower": plan.lower,
                "coefficients": list(plan.coefficients),
                "error": plan.error,
                "n_probes": plan.n_probes,
            }
            context.store.commit(f"{name}/{power}", metadata)
        plans[power] = Plan(power=power, **{**metadata, "coefficients": tuple(metadata["coefficients"])})
    return plans


def make_columns(
    heat: HeatKernel, sketch: Sketch, n_components: int, plans: dict[int, Plan], context: Context, name: str
) -> dict[int, list[SketchColumns]]:
    """Carry the columns that are not there yet; powers that lack the same columns go together."""
    done = {power: _known(context, f"{name}/{power}", n_components, heat.kernel.edges.n_points) for power in plans}
    reach = {power: (known[-1].stop if known else 0) for power, known in done.items()}
    for first in sorted(set(reach.values()) - {n_components}):
        together = [plans[power] for power in plans if reach[power] == first]
        width = panel_columns(heat, sketch, together, context, n_components - first)
        panels = [(first + a, first + b) for a, b in ranges(n_components - first, width)]
        n_sweeps = len(panels) * sweeps_of(together)
        with context.workers.progress.stage("sketch", n_sweeps):
            for panel in panels:
                for power, carried in _carry_panel(heat, sketch, together, panel, context, name).items():
                    done[power].append(carried)
    if context.store.stored and set(reach.values()) != {n_components}:
        context.store.remove(f"{name}/saved")
    return done


def sweeps_of(plans: Sequence[Plan]) -> int:
    """Sweeps of one panel that several plans take together, the publishing ones included."""
    plain = max((plan.power - 1 for plan in plans if not plan.coefficients), default=0)
    degree = max((plan.degree for plan in plans), default=0)
    return plain + degree + len(plans)


def panel_columns(heat: HeatKernel, sketch: Sketch, plans: Sequence[Plan], context: Context, wanted: int) -> int:
    """Columns that are carried at once within the memory limit."""
    cut = current_block_sizes().panel_columns
    if cut:
        return min(cut, wanted)
    n_points = heat.kernel.edges.n_points
    column = n_points * np.dtype(sketch.dtype).itemsize * n_panels(len(plans), remote=context.workers.remote)
    flight = in_flight(heat.kernel.edges.largest_bytes, context.workers.n_jobs)
    # what a worker has beside its panels is taken to be what this process has, and some more
    share = 0.88 if context.workers.remote else 0.95
    fit = max(1, (int(share * context.spare_bytes()) - flight) // column)
    if fit >= wanted:
        return wanted
    return fit - fit % 16 if fit >= 16 else fit - fit % 4 if fit >= 4 else fit


def _known(context: Context, name: str, n_components: int, n_points: int) -> list[SketchColumns]:
    """Column ranges of a power that are complete, chained from column 0."""
    known: list[SketchColumns] = []
    stop = 0
    ranges_there = [
        one.split("-") for one in context.store.names(name) if one.replace("-", "").isdigit() and "-" in one
    ]
    by_first = {int(first): int(last) for first, last in ranges_there}
    while stop in by_first and stop < n_components:
        metadata = context.store.metadata(f"{name}/{stop}-{by_first[stop]}")
        if metadata is None:
            break
        table = context.store.open_table(f"{name}/{stop}-{by_first[stop]}/columns")
        known.append(SketchColumns(table, stop, by_first[stop], np.array(metadata["means"])))
        stop = by_first[stop]
    return known


def _carry_panel(
    heat: HeatKernel, sketch: Sketch, plans: Sequence[Plan], panel: tuple[int, int], context: Context, name: str
) -> dict[int, SketchColumns]:
    """Carry some columns to each power; each is kept and marked as soon as it is there."""
    columns = np.arange(*panel)
    panels = Panels(context, f"{name}/saved/{panel[0]}-{panel[1]}", _SAVE_SECONDS)
    start = _Start(heat, sketch, columns, panels)
    carry = PowerIteration(heat, start, plans, panels)
    by_power = {plan.power: plan for plan in plans}
    carried = {}
    for power, values in carry:
        wrong = carry.wrong if by_power[power].coefficients else carry.wrong[:0]
        right = _again(heat, sketch, by_power[power], columns[wrong], panels) if len(wrong) else None
        place = f"{name}/{power}/{panel[0]}-{panel[1]}"
        table = _keep(context, values, wrong, right, f"{place}/columns")
        context.store.commit(place, {"means": start.means.tolist()})
        carried[power] = SketchColumns(table, *panel, start.means)
    panels.clear()
    return carried


class _Start:
    """The panel that a carry starts from, when it is asked for, and the means of its columns of G in any case."""

    def __init__(self, heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels) -> None:
        self._heat, self._sketch, self._columns, self._panels = heat, sketch, columns, panels

    def __call__(self) -> Panel:
        panel, self.means = start_panel(self._heat, self._sketch, self._columns, self._panels)
        return panel

    @cached_property
    def means(self) -> np.ndarray:
        return column_means(self._heat, self._sketch, self._columns)


def _again(heat: HeatKernel, sketch: Sketch, plan: Plan, columns: np.ndarray, panels: Panels) -> Panel:
    """Columns for which the interval proved too short, carried on [-1, 1]."""
    unsaved = Panels(heat.context, heat.context.scratch())
    return next(iter(PowerIteration(heat, _Start(heat, sketch, columns, panels), [widen(plan)], unsaved)))[1]


def _keep(context: Context, values: Panel, wrong: np.ndarray, right: Panel | None, name: str) -> Table:
    """Write a panel to a table of its home, with some columns from another panel."""
    table = context.store.table(name, values.shape, values.dtype)

    def keep(piece: tuple[int, int]) -> None:
        rows = values.rows(*piece)
        if right is not None:
            rows = rows.copy()
            rows[:, wrong] = right.rows(*piece)
        table.write(piece[0], rows)

    context.workers.map(keep, ranges(values.shape[0], table.shard_rows), count=False)
    return table


def publish(
    heat: HeatKernel, carried: Sequence[SketchColumns], n_components: int, context: Context, name: str
) -> Table:
    """Write ``y = s (K Z) / sqrt(k)`` in the user's order: the last application of A."""
    from scalable_gpe.loops import sparse

    edges = heat.kernel.edges
    out = context.store.table(name, (heat.shape[0], n_components), np.float32)
    for part in carried:
        panels = Panels(context, context.scratch())
        panel = opened_panel(context, part.table)
        result = panels.new(panel.shape, np.float32)

        def last_product(block: int, panel: Panel = panel, result: Panel = result) -> None:
            first, indptr, indices, weights = heat.kernel.edges.block(block)
            stop = first + len(indptr) - 1
            factor = heat.scale_points[first:stop] / np.sqrt(n_components)
            rows = result.room(first, stop)
            sparse.product(indptr, indices, weights, panel.whole(indices), factor, rows)
            result.put(first, rows)

        def write(piece: tuple[int, int], part: SketchColumns = part, result: Panel = result) -> None:
            position = heat.kernel.storage_order.position[slice(*piece)]
            out.write(piece[0], result.whole(position)[position, : n_components - part.first], part.first)

        context.workers.map(last_product, range(edges.n_blocks), count=False)
        context.count_sweep("sketch")
        context.workers.progress.advance()
        context.workers.map(write, ranges(heat.shape[0], out.shard_rows), count=False)
        panels.clear()
    return out


def opened_panel(context: Context, table: Table) -> Panel:
    """What was carried, as a panel."""
    if context.workers.remote:
        return StoredPanel(cast(PanelTable, table))
    return MemoryPanel(np.ascontiguousarray(table.read(0, table.shape[0])))
