"""The columns of a sketch: plan each filter, compute f(A)/A G in ranges of columns, store each finished range."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalable_gpe.checks import ALL
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.problem_size import live_panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.errors import SolverError
from scalable_gpe.sketch.all_scales import AllScales, ScalesIteration, ScalesPlan
from scalable_gpe.sketch.polynomial import PowerPlan, n_sweeps, plan_power
from scalable_gpe.sketch.powers import PowerIteration, Removed, column_coefficients, removed_direction, start_panel
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.filters import Filter, Power
from scalable_gpe.spectral.lanczos import Lanczos, steps_for
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.keys import columns_name, filter_name
from scalable_gpe.storage.protocol import Table

_SAVE_SECONDS = 30.0
_PLAIN_UP_TO = 8  # up to this power, a spectrum costs more than plain products


@dataclass(frozen=True)
class ColumnsMetadata:
    """Coefficients of the direction removed from G (column means if it is constant), and the sweeps of the panel.

    The panel took `n_sweeps` sweeps for the filters `together`.
    """

    means: tuple[float, ...]
    n_sweeps: int = 0
    together: tuple[Power, ...] = ()
    error: SolverError | None = None


@dataclass(frozen=True)
class SketchColumns:
    """One filter of A applied to a range of columns of G: ``Z`` before the last application of A."""

    table: Table
    first: int
    stop: int
    metadata: ColumnsMetadata


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
        removed = removed_direction(heat, top=isinstance(together[0], ScalesPlan))
        width = context.plan.panel_columns(
            edges.n_points,
            live_panels([plan.label for plan in together]),
            sketch.dtype.itemsize,
            8 * edges.longest_block,
            n_components - first,
            blocks_touched,
        )
        panels = [(first + a, first + b) for a, b in ranges(n_components - first, width)]
        with context.workers.progress.stage("sketch", len(panels) * n_sweeps(together)):
            for panel in panels:
                made = _panel_columns(heat, sketch, together, panel, context, name, removed, scales)
                for label, columns in made.items():
                    done[label].append(columns)
        context.store.remove(f"{name}/saved")
    # of a run that was killed between its last commit and this; a reader leaves it to the next writer
    if not getattr(context.store, "read_only", False) and context.store.names(f"{name}/saved"):
        context.store.remove(f"{name}/saved")
    return done


def _groups(
    plans: dict[Power, Plan], n_stored: dict[Power, int]
) -> list[tuple[int, list[PowerPlan] | list[ScalesPlan]]]:
    """Powers that share their sweeps: they miss the same columns."""
    groups: dict[int, list[PowerPlan]] = {}
    for label, plan in plans.items():
        if isinstance(plan, PowerPlan):
            groups.setdefault(n_stored[label], []).append(plan)
    grouped: list[tuple[int, list[PowerPlan] | list[ScalesPlan]]] = sorted(groups.items())
    return grouped + [(n_stored[label], [plan]) for label, plan in plans.items() if isinstance(plan, ScalesPlan)]


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
    return SketchColumns(context.store.open_table(f"{range_name}/columns"), first, stop, metadata)


def _panel_columns(
    heat: HeatKernel,
    sketch: Sketch,
    plans: list[PowerPlan] | list[ScalesPlan],
    panel: tuple[int, int],
    context: Context,
    name: str,
    removed: Removed,
    scales: AllScales,
) -> dict[Power, SketchColumns]:
    """Apply each filter to some columns; each result is committed as soon as it is complete."""
    columns = np.arange(*panel)
    kind = ALL if isinstance(plans[0], ScalesPlan) else "powers"
    panels = Panels(context, f"{name}/saved/{kind}-{panel[0]}-{panel[1]}", _SAVE_SECONDS)
    start = _Start(heat, sketch, columns, panels, removed)
    iteration = _iteration(heat, start, plans, panels, scales)
    by_label: dict[Power, Plan] = {plan.label: plan for plan in plans}
    made: dict[Power, Table] = {}
    for label, values in iteration:
        range_name = columns_name(name, by_label[label].filter.name, *panel)
        made[label] = _keep(context, values, f"{range_name}/columns")
        means = tuple(start.coefficients.tolist())
        error = iteration.error if isinstance(iteration, ScalesIteration) else None
        metadata = ColumnsMetadata(means, iteration.n_sweeps, iteration.began_with, error)
        context.store.commit(range_name, metadata)
    panels.clear()
    # every filter of a panel reports the sweeps of the whole panel
    total = replace(metadata, n_sweeps=iteration.n_sweeps)
    return {label: SketchColumns(table, *panel, total) for label, table in made.items()}


def _iteration(
    heat: HeatKernel,
    start: "_Start",
    plans: list[PowerPlan] | list[ScalesPlan],
    panels: Panels,
    scales: AllScales,
) -> PowerIteration | ScalesIteration:
    if isinstance(plans[0], ScalesPlan):
        return ScalesIteration(scales, start, plans[0], panels)
    return PowerIteration(heat, start, [plan for plan in plans if isinstance(plan, PowerPlan)], panels)


class _Start:
    """Makes the first panel of an iteration when it is needed; `coefficients` are those of the removed direction."""

    def __init__(self, heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels, removed: Removed) -> None:
        self._heat, self._sketch, self._columns, self._panels = heat, sketch, columns, panels
        self._removed = removed

    def __call__(self) -> Panel:
        panel, self.coefficients = start_panel(self._heat, self._sketch, self._columns, self._panels, self._removed)
        return panel

    @cached_property
    def coefficients(self) -> np.ndarray:
        return column_coefficients(self._heat, self._sketch, self._columns, self._removed)


def _keep(context: Context, values: Panel, name: str) -> Table:
    """Write a panel to a table of the store."""
    table = context.store.table(name, values.shape, values.dtype)

    def keep(piece: tuple[int, int]) -> None:
        table.write(piece[0], values.rows(*piece))

    context.workers.map(keep, ranges(values.shape[0], table.shard_rows), count=False)
    return table
