"""The part of vectors that tells ordinary rows of one component apart.

Isolated rows, and other rows that are *held*, are zero in it, and so is the top eigenvector of each component: no power
shrinks it. Vectors are panels Z = S M^(1/2) x (see `sketch/powers.py`).
"""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import pieces, take_ascending

LEAST_SHARE = 0.01  # of the rows that a shape lives on


def ordinary_rows(heat: HeatKernel) -> np.ndarray:
    """Mask (the user's order) of the rows that show the shape of the data.

    They are not isolated, alone or with their copies, and not in components of less than 1 % of the rows; if all
    components are so small, they are not isolated.
    """
    mask, position = _ordinary_points(heat), heat.kernel.storage_order.position
    return heat.context.derived(len(position), np.bool_, lambda a, b: take_ascending(mask, position[a:b]))


def _ordinary_points(heat: HeatKernel) -> np.ndarray:
    """The mask in storage order."""
    context, isolated = heat.context, heat.isolated
    mask = context.filled(len(isolated), np.bool_, lambda a, b: ~isolated[a:b])
    if heat.kernel.n_connected_components == 1:
        return mask
    panels = Panels(context)
    small = in_small_groups(heat, shared_components(heat.kernel, panels))
    panels.clear()
    shown = context.filled(len(isolated), np.bool_, lambda a, b: mask[a:b] & ~small[a:b])
    return shown if shown.any() else mask


def in_small_groups(heat: HeatKernel, roots: Panel | None) -> np.ndarray:
    """Mask (storage order) of the points in groups of less than 1 % of the rows."""
    n_points = heat.kernel.edges.n_points
    if roots is None:
        return np.zeros(n_points, np.bool_)
    sizes = np.zeros(n_points)
    for start, stop in pieces(n_points):
        np.add.at(sizes, roots.rows(start, stop), heat.weights[start:stop])
    small = sizes < LEAST_SHARE * heat.total_weight
    return np.concatenate([small[roots.rows(start, stop)] for start, stop in pieces(n_points)])


@dataclass(frozen=True)
class OrdinaryRows:
    """Rows that are not held, and the component of each (None: there is one)."""

    heat: HeatKernel
    top: Panel  # the top eigenvector, of length 1
    held: Panel | None = None
    roots: Panel | None = None

    @staticmethod
    def of(
        heat: HeatKernel, panels: Panels, held: np.ndarray | None = None, roots: Panel | None = None
    ) -> "OrdinaryRows":
        """The rows for which the mask `held` is not true."""
        top = panels.of(top_eigenvector(heat))
        return OrdinaryRows(heat, top, None if held is None else panels.of(held), roots)

    def are_held(self, start: int, stop: int) -> np.ndarray:
        """Mask of the rows that are held."""
        return np.zeros(stop - start, np.bool_) if self.held is None else self.held.rows(start, stop)

    def part(self, vectors: Panel, panels: Panels) -> Panel:
        """The part of `vectors` that lives on these rows, which replaces them."""
        context = self.heat.context
        blocks = row_pieces(context, vectors.shape[0])

        def sums_of(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            return self._sums(vectors, piece)

        partial = context.workers.map(sums_of, blocks, count=False)
        found, sums = (np.concatenate(part) for part in zip(*partial, strict=True))
        components, number = np.unique(found, return_inverse=True)
        totals = _add_by(number, sums, len(components))
        squares = totals[:, 0]
        shared = panels.of(components)
        along = panels.of(totals[:, 1:] / np.where(squares > 0, squares, 1.0)[:, None])
        with replaced(vectors) as part:

            def leave_out(piece: tuple[int, int]) -> None:
                x, top = self._rows(vectors, *piece)
                out, means = part.room(*piece), along.whole()
                if len(means) > 1:
                    means = means[np.searchsorted(shared.whole(), self._components(*piece))]
                x -= means * top[:, None]
                np.multiply(x, np.sqrt(self.heat.step_scale[slice(*piece)])[:, None], out=out)
                part.put(piece[0], out)

            context.workers.map(leave_out, blocks, count=False)
        shared.retire()
        along.retire()
        return part

    def _rows(self, vectors: Panel, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of x, and of the top eigenvector; zero where they are held."""
        free = ~self.are_held(start, stop)
        x = vectors.rows(start, stop) * (free / np.sqrt(self.heat.step_scale[start:stop]))[:, None]
        return x, self.top.rows(start, stop) * free

    def _components(self, start: int, stop: int) -> np.ndarray:
        """First point of the component of each row."""
        return np.zeros(stop - start, np.int32) if self.roots is None else self.roots.rows(start, stop)

    def _sums(self, vectors: Panel, piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Squares of the top eigenvector and its products with x, summed over the components of each chunk."""
        (x, top), component = self._rows(vectors, *piece), self._components(*piece)
        products = np.column_stack([top, x]) * top[:, None]
        components, totals = [], []
        for start, stop in ranges(len(products), CHUNK):
            found, number = np.unique(component[start:stop], return_inverse=True)
            components.append(found)
            totals.append(_add_by(number, products[start:stop], len(found)))
        return np.concatenate(components), np.concatenate(totals)


def _add_by(number: np.ndarray, values: np.ndarray, n_numbers: int) -> np.ndarray:
    """Sums of the rows of `values` that have the same number, added one by one in their order."""
    if n_numbers == 1:
        return np.asarray(values.sum(axis=0, keepdims=True))
    totals = np.zeros((n_numbers, values.shape[1]))
    np.add.at(totals, number, values)
    return totals
