"""The columns of a sketch: plan each filter, compute f(A)/A G in ranges of columns, store each finished range."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scalable_gpe.checks import ALL
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.resources import live_panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.errors import LastChange
from scalable_gpe.sketch.all_scales import AllScales, ScalesPlan
from scalable_gpe.sketch.polynomial import PowerPlan, n_sweeps, plan_power
from scalable_gpe.sketch.powers import PowerIteration, Removed, removed_direction, start_panel
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.filters import Filter, Power
from scalable_gpe.spectral.lanczos import Lanczos, steps_for
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import columns_name, filter_name
from scalable_gpe.storage.store import Table

_SAVE_SECONDS = 30.0
_PLAIN_UP_TO = 8  # up to this power, a spectrum costs more than plain products


@dataclass(frozen=True)
class ColumnsMetadata:
    """The change in the last cycle of the solver, of some columns of the sum of all powers."""

    change: LastChange | None = None


@dataclass(frozen=True)
class SketchColumns:
    """One filter of A applied to a range of columns of G: ``Z`` before the last application of A."""

    table: Table
    first: int
    stop: int
    change: LastChange | None = None


Plan = PowerPlan | ScalesPlan


def plan_powers(
    heat: HeatKernel, sketch: Sketch, powers: Sequence[int], tol: float, context: Context, name: str
) -> dict[Power, Plan]:
    """Plan each power independently, so that its result does not depend on the others of the run."""
    plans, lanczos = dict[Power, Plan](), Lanczos(heat, sketch.seed, ordinary=True)
    for power in powers:
        plan_name = filter_name(name, Filter(power).name)
        plan = context.store.read(plan_name, PowerPlan)
        if plan is None:
            spectrum = lanczos.spectrum(steps_for(power)) if power > _PLAIN_UP_TO else None
            plan = plan_power(power, spectrum, sketch.precision, tol, heat.residual if heat.is_centred else 0.0)
            context.store.commit(plan_name, plan)
        plans[power] = plan
    lanczos.clear()
    return plans


def make_columns(
    heat: HeatKernel,
    sketch: Sketch,
    n_components: int,
    plans: dict[Power, Plan],
    context: Context,
    name: str,
    scales: AllScales,
) -> dict[Power, list[SketchColumns]]:
    """Compute the columns that are not stored yet; powers that can share their sweeps do."""
    done = {label: _stored_columns(context, name, plan.filter, n_components) for label, plan in plans.items()}
    edges = heat.kernel.edges
    groups = _groups(plans, {label: parts[-1].stop if parts else 0 for label, parts in done.items()})
    blocks_touched = edges.blocks_touched() if context.plan.maps_arrays and groups else 0
    for first, together in groups:
        if first >= n_components:
            continue
        vectors = Panels(heat.context)
        removed = removed_direction(heat, vectors, top=isinstance(together[0], ScalesPlan))
        width = context.plan.panel_columns(
            edges.n_points,
            live_panels([plan.label for plan in together]),
            sketch.dtype.itemsize,
            8 * edges.longest_block,
            n_components - first,
            blocks_touched,
        )
        panels = [(first + a, first + b) for a, b in ranges(n_components - first, width)]
        with context.workers.progress.stage("sketch", len(panels) * sweeps_of(together)):
            for panel in panels:
                for label, columns in _panel_columns(heat, sketch, together, panel, context, name, removed, scales):
                    done[label].append(columns)
        vectors.clear()
        context.store.remove(f"{name}/saved")
    # of a run that was killed between its last commit and this; a reader leaves it to the next writer
    if not getattr(context.store, "read_only", False) and context.store.names(f"{name}/saved"):
        context.store.remove(f"{name}/saved")
    return done


def sweeps_of(plans: Iterable[Plan]) -> int:
    """Number of sweeps of one panel for several filters together, including the last ones, which publish."""
    plans = list(plans)
    scales = sum(plan.n_products + 1 for plan in plans if isinstance(plan, ScalesPlan))
    return scales + n_sweeps([plan for plan in plans if isinstance(plan, PowerPlan)])


def _groups(plans: dict[Power, Plan], n_stored: dict[Power, int]) -> list[tuple[int, list[Plan]]]:
    """Powers that share their sweeps: they miss the same columns. The sum of all powers comes last, alone."""
    groups: dict[tuple[bool, int], list[Plan]] = {}
    for label, plan in plans.items():
        groups.setdefault((isinstance(plan, ScalesPlan), n_stored[label]), []).append(plan)
    return [(first, groups[is_all, first]) for is_all, first in sorted(groups)]


def _stored_columns(context: Context, name: str, wanted: Filter, n_components: int) -> list[SketchColumns]:
    """Committed column ranges of a filter, without gaps from column 0 on; of several that overlap, the longest."""
    bounds = [name.split("-") for name in context.store.names(filter_name(name, wanted.name))]
    ranges_found = [tuple(map(int, pair)) for pair in bounds if len(pair) == 2 and all(part.isdigit() for part in pair)]
    chain: list[SketchColumns] = []
    stop = 0
    while stop < n_components:
        ends = sorted((last for first, last in ranges_found if first == stop < last), reverse=True)
        columns = next((part for last in ends if (part := _committed(context, name, wanted, stop, last))), None)
        if columns is None:
            break
        chain.append(columns)
        stop = columns.stop
    return chain


def _committed(context: Context, name: str, wanted: Filter, first: int, stop: int) -> SketchColumns | None:
    range_name = columns_name(name, wanted.name, first, stop)
    metadata = context.store.read(range_name, ColumnsMetadata)
    if metadata is None:
        return None
    return SketchColumns(context.store.open_table(f"{range_name}/columns"), first, stop, metadata.change)


def _panel_columns(
    heat: HeatKernel,
    sketch: Sketch,
    plans: list[Plan],
    panel: tuple[int, int],
    context: Context,
    name: str,
    removed: Removed,
    scales: AllScales,
) -> Iterator[tuple[Power, SketchColumns]]:
    """Apply each filter to some columns; each result is committed as soon as it is complete."""
    kind = "cycles" if isinstance(plans[0], ScalesPlan) else "threes"  # how states are saved
    panels = Panels(context, f"{name}/saved/{kind}-{panel[0]}-{panel[1]}", _SAVE_SECONDS)

    def start() -> Panel:
        return start_panel(heat, sketch, np.arange(*panel), panels, removed)

    filters = {plan.label: plan.filter for plan in plans}
    for label, values, change in apply_filters(heat, start, plans, panels, scales):
        range_name = columns_name(name, filters[label].name, *panel)
        table = _keep(context, values, f"{range_name}/columns")
        context.store.commit(range_name, ColumnsMetadata(change))
        yield label, SketchColumns(table, *panel, change)
    panels.clear()


def apply_filters(
    heat: HeatKernel,
    start: Callable[[], Panel],
    plans: Sequence[Plan],
    panels: Panels,
    scales: AllScales,
    purpose: str = "sketch",
) -> Iterator[tuple[Power, Panel, LastChange | None]]:
    """Each filter of a panel before the last application of A, and the change in the last cycle of the solver.

    `start` makes the panel. A yielded one is valid until the next one is requested.
    """
    if isinstance(plans[0], ScalesPlan):
        panel, change = scales.solve(start, plans[0], panels, purpose)
        yield ALL, panel, change
        panel.retire()
        return
    powers = [plan for plan in plans if isinstance(plan, PowerPlan)]
    for power, values in PowerIteration(heat, start, powers, panels, purpose):
        yield power, values, None


def _keep(context: Context, values: Panel, name: str) -> Table:
    """Write a panel to a table of the store."""
    table = context.store.table(name, values.shape, values.dtype)

    def keep(piece: tuple[int, int]) -> None:
        table.write(piece[0], values.rows(*piece))

    context.workers.map(keep, ranges(values.shape[0], table.shard_rows), count=False)
    return table
