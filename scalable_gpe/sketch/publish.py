"""The last application of A: from the columns of a sketch to the embedding in the user's order."""

from collections.abc import Sequence

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import ordinary_rows
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.sketch.columns import SketchColumns
from scalable_gpe.sketch.rotation import find_axes, principal_axes, save_axes, write_rotated
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_rows
from scalable_gpe.storage.store import Table


def publish(
    heat: HeatKernel,
    columns: Sequence[SketchColumns],
    n_components: int,
    context: Context,
    name: str,
    *,
    n_columns: int,
    axes_name: str | None,
    owner: str | None = None,
) -> None:
    """Write ``y = s (K Z) / sqrt(n_columns)`` in the user's order; `owner` is the key of the run.

    With `axes_name`, write the coordinates along the first principal axes, which are stored under it. The columns are
    then scratch; in memory, they are rotated in their place if all are kept (a store may be left, or a task repeated,
    in the middle).
    """
    in_place = axes_name is None or (n_columns == n_components and not context.store.persistent)
    sketched = name if in_place else context.scratch()
    wide = context.store.table(sketched, (heat.shape[0], n_columns), np.float32, owner=owner if in_place else None)
    loop = Product(lambda start, stop: heat.scale_points[start:stop] / np.sqrt(n_columns))
    for part in columns:
        panels = Panels(context)
        source = panels.open(part.table)
        result = panels.new(source.shape, np.float32)
        sweep(heat.kernel, loop, source, result, context, purpose="sketch")
        write_columns(heat, result, part.first, wide, context)
        panels.clear()
    if axes_name is None:
        return
    wide = context.store.open_table(sketched)
    axes = find_axes(context, axes_name)
    if axes is None:
        panels = Panels(context)
        ordinary = panels.of(ordinary_rows(heat))
        axes = principal_axes(wide.read, heat.shape[0], ordinary.rows, context.workers)
        panels.clear()
        save_axes(axes, context, axes_name)
    out = context.store.table(name, (heat.shape[0], n_components), np.float32, owner=owner)
    write_rotated(wide, axes, out, context)
    if not in_place:
        context.store.remove(sketched)


def sketched_rows(heat: HeatKernel, columns: Sequence[SketchColumns], width: int, points: np.ndarray) -> np.ndarray:
    """``s (K Z) / sqrt(width)`` of some points, in float64: all columns of the sketch, before any rotation."""
    out = np.empty((len(points), width))
    for part in columns:
        stop = min(part.stop, width)
        for i, neighbors, weights in heat.kernel.edges.rows(points):
            values = part.table.take(neighbors)[:, : stop - part.first].astype(np.float64)
            out[i, part.first : stop] = heat.scale_points[points[i]] * (weights.astype(np.float64) @ values)
    out /= np.sqrt(width)
    return out


def write_columns(heat: HeatKernel, result: Panel, first: int, out: Table, context: Context) -> None:
    """Write some columns of the embedding, all rows in the user's order, as many together as memory allows."""
    n_columns = min(result.shape[1], out.shape[1] - first)
    n_shards = context.plan.shards_together(out.shard_rows * n_columns * out.dtype.itemsize)

    def write(piece: tuple[int, int]) -> None:
        position = heat.kernel.storage_order.position[slice(*piece)]
        rows = take_rows(result.whole(position), position)[:, :n_columns]
        for start, stop in ranges(len(rows), out.shard_rows):
            out.write(piece[0] + start, rows[start:stop], first)

    context.workers.map(write, ranges(out.shape[0], n_shards * out.shard_rows), count=False)
