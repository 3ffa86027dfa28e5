"""The columns of a sketch: plan each power, compute A^(p-1) G in ranges of columns, store each finished range."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.polynomial import PowerPlan, n_sweeps, plan_power, widen
from scalable_gpe.sketch.powers import PowerIteration, column_means, start_panel
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.lanczos import Lanczos, steps_for
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.keys import columns_name, power_name
from scalable_gpe.storage.protocol import Table

_SAVE_SECONDS = 30.0
_PLAIN_UP_TO = 8  # up to this power, finding an interval costs more than plain products


@dataclass(frozen=True)
class ColumnsMetadata:
    """Column means of G, and the sweeps that the columns' panel took for the powers `together`."""

    means: tuple[float, ...]
    n_sweeps: int = 0
    together: tuple[int, ...] = ()


@dataclass(frozen=True)
class SketchColumns:
    """One power of A applied to a range of columns of G: ``Z`` after power - 1 applications."""

    table: Table
    first: int
    stop: int
    metadata: ColumnsMetadata


def plan_powers(
    heat: HeatKernel, sketch: Sketch, powers: Sequence[int], tol: float, context: Context, name: str
) -> dict[int, PowerPlan]:
    """Plan each power independently, so that its result does not depend on the other powers of the run."""
    lanczos = Lanczos(heat, sketch.seed)
    plans = {}
    for power in powers:
        plan = context.store.read(power_name(name, power), PowerPlan)
        if plan is None:
            spectrum = lanczos.spectrum(steps_for(power)) if power > _PLAIN_UP_TO else None
            plan = plan_power(power, spectrum, sketch.precision, tol, heat.residual if heat.is_centred else 0.0)
            context.store.commit(power_name(name, power), plan)
        plans[power] = replace(plan, power=power)
    return plans


def make_columns(
    heat: HeatKernel, sketch: Sketch, n_components: int, plans: dict[int, PowerPlan], context: Context, name: str
) -> dict[int, list[SketchColumns]]:
    """Compute the columns that are not stored yet; powers that miss the same columns share their sweeps."""
    done = {power: _stored_columns(context, name, power, n_components) for power in plans}
    n_stored = {power: (known[-1].stop if known else 0) for power, known in done.items()}
    edges = heat.kernel.edges
    for first in sorted({count for count in n_stored.values() if count < n_components}):
        together = [plans[power] for power in plans if n_stored[power] == first]
        width = context.plan.panel_columns(
            edges.n_points, len(together), sketch.dtype.itemsize, 8 * edges.longest_block, n_components - first
        )
        panels = [(first + a, first + b) for a, b in ranges(n_components - first, width)]
        with context.workers.progress.stage("sketch", len(panels) * n_sweeps(together)):
            for panel in panels:
                for power, columns in _panel_columns(heat, sketch, together, panel, context, name).items():
                    done[power].append(columns)
    if min(n_stored.values()) < n_components:
        context.store.remove(f"{name}/saved")
    return done


def _stored_columns(context: Context, name: str, power: int, n_components: int) -> list[SketchColumns]:
    """Committed column ranges of a power, without gaps from column 0 on; of several that overlap, the longest."""
    found = [one.split("-") for one in context.store.names(power_name(name, power))]
    ranges_found = [tuple(map(int, one)) for one in found if len(one) == 2 and all(part.isdigit() for part in one)]
    known: list[SketchColumns] = []
    stop = 0
    while stop < n_components:
        ends = sorted((last for first, last in ranges_found if first == stop < last), reverse=True)
        columns = next((one for last in ends if (one := _committed(context, name, power, stop, last))), None)
        if columns is None:
            break
        known.append(columns)
        stop = columns.stop
    return known


def _committed(context: Context, name: str, power: int, first: int, stop: int) -> SketchColumns | None:
    range_name = columns_name(name, power, first, stop)
    metadata = context.store.read(range_name, ColumnsMetadata)
    if metadata is None:
        return None
    return SketchColumns(context.store.open_table(f"{range_name}/columns"), first, stop, metadata)


def _panel_columns(
    heat: HeatKernel, sketch: Sketch, plans: Sequence[PowerPlan], panel: tuple[int, int], context: Context, name: str
) -> dict[int, SketchColumns]:
    """Apply each power to some columns; each result is committed as soon as it is complete."""
    columns = np.arange(*panel)
    panels = Panels(context, f"{name}/saved/{panel[0]}-{panel[1]}", _SAVE_SECONDS)
    start = _Start(heat, sketch, columns, panels)
    iteration = PowerIteration(heat, start, plans, panels)
    by_power = {plan.power: plan for plan in plans}
    made: dict[int, tuple[Table, str]] = {}
    n_repeated = 0
    for power, values in iteration:
        wrong = iteration.wrong if by_power[power].coefficients else iteration.wrong[:0]
        corrected = None
        if len(wrong):
            repeated = _on_wide_interval(heat, sketch, by_power[power], columns[wrong], panels)
            corrected, n_repeated = repeated[0], n_repeated + repeated[1]
        range_name = columns_name(name, power, *panel)
        made[power] = _keep(context, values, wrong, corrected, f"{range_name}/columns"), range_name
        metadata = ColumnsMetadata(tuple(start.means.tolist()), iteration.n_sweeps + n_repeated, iteration.began_with)
        context.store.commit(range_name, metadata)
    panels.clear()
    # every power of a panel reports the sweeps of the whole panel
    total = replace(metadata, n_sweeps=iteration.n_sweeps + n_repeated)
    return {power: SketchColumns(table, *panel, total) for power, (table, _) in made.items()}


class _Start:
    """Makes the first panel of an iteration when it is needed; `means` are the means of its columns of G."""

    def __init__(self, heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels) -> None:
        self._heat, self._sketch, self._columns, self._panels = heat, sketch, columns, panels

    def __call__(self) -> Panel:
        panel, self.means = start_panel(self._heat, self._sketch, self._columns, self._panels)
        return panel

    @cached_property
    def means(self) -> np.ndarray:
        return column_means(self._heat, self._sketch, self._columns)


def _on_wide_interval(
    heat: HeatKernel, sketch: Sketch, plan: PowerPlan, columns: np.ndarray, panels: Panels
) -> tuple[Panel, int]:
    """Recompute on [-1, 1] the columns for which the interval proved too short; return them and the sweeps made."""
    iteration = PowerIteration(heat, _Start(heat, sketch, columns, panels), [widen(plan)], Panels(heat.context))
    _, panel = next(iter(iteration))
    return panel, iteration.n_sweeps


def _keep(context: Context, values: Panel, wrong: np.ndarray, right: Panel | None, name: str) -> Table:
    """Write a panel to a table of the store, with the columns `wrong` taken from the panel `right`."""
    table = context.store.table(name, values.shape, values.dtype)

    def keep(piece: tuple[int, int]) -> None:
        rows = values.rows(*piece)
        if right is not None:
            rows = rows.copy()
            rows[:, wrong] = right.rows(*piece)
        table.write(piece[0], rows)

    context.workers.map(keep, ranges(values.shape[0], table.shard_rows), count=False)
    return table
