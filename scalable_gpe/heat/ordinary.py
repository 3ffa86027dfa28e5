"""The part of vectors that tells ordinary rows of one component apart.

Isolated rows, and other rows that are *held*, are zero in it, and so is the top eigenvector of each component: no power
shrinks it. Vectors are panels Z = S M^(1/2) x (see `sketch/powers.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import pieces, take_rows

LEAST_SHARE = 0.01  # of the rows that a shape lives on


def ordinary_rows(heat: HeatKernel) -> np.ndarray:
    """Mask (the user's order) of the rows that show the shape of the data.

    They are not isolated, alone or with their copies, and not in components of less than 1 % of the rows; if all
    components are so small, they are not isolated.
    """
    mask, position = _ordinary_points(heat), heat.kernel.storage_order.position
    return heat.context.filled(len(position), np.bool_, lambda a, b: take_rows(mask, position[a:b]))


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

    def free(self, vectors: Panel) -> Panel:
        """The vectors with zeros in rows that are held, which replaces them."""
        with replaced(vectors) as part:

            def hold(piece: tuple[int, int]) -> None:
                out = vectors.rows(*piece)
                out[self.are_held(*piece)] = 0
                part.put(piece[0], out)

            context = self.heat.context
            context.workers.map(hold, row_pieces(context, vectors.shape[0]), count=False)
        return part

    def along_top(self, vectors: Panel) -> tuple[np.ndarray, np.ndarray]:
        """First point of each component, and what lies along the top eigenvector there, in units of it."""

        def rows(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            return vectors.rows(*piece), self._free_top(*piece) / np.sqrt(self.heat.step_scale[slice(*piece)])

        components, totals = self._totals(vectors.shape[1], rows)
        return components, totals / np.where(self._squares > 0, self._squares, 1.0)

    def mean_squares(self, vectors: Panel) -> tuple[np.ndarray, np.ndarray]:
        """First point of each component, and sums of x^2 there, divided by those of the top eigenvector."""

        def squares(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            return vectors.rows(*piece) ** 2, ~self.are_held(*piece) / self.heat.step_scale[slice(*piece)]

        components, totals = self._totals(vectors.shape[1], squares)
        return components, totals / self._squares

    def part(self, vectors: Panel, panels: Panels) -> Panel:
        """The part of `vectors` that lives on these rows, which replaces them."""
        context, (shared, along) = self.heat.context, (panels.of(one) for one in self.along_top(vectors))
        with replaced(vectors) as part:

            def leave_out(piece: tuple[int, int]) -> None:
                from scalable_gpe.loops import sparse

                own = self.components(*piece)
                number = own if self.roots is None else np.searchsorted(shared.whole(), own)
                factor = self._free_top(*piece) * np.sqrt(self.heat.step_scale[slice(*piece)])
                out, free = vectors.rows(*piece), ~self.are_held(*piece)
                sparse.leave_out(out, free, factor, number, along.whole())
                part.put(piece[0], out)

            context.workers.map(leave_out, row_pieces(context, vectors.shape[0]), count=False)
        shared.retire()
        along.retire()
        return part

    @cached_property
    def _squares(self) -> np.ndarray:
        """Squared length of the top eigenvector in each component, as a column."""

        def rows(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            top = self._free_top(*piece)
            return top[:, None], top

        return self._totals(1, rows)[1]

    def _free_top(self, start: int, stop: int) -> np.ndarray:
        """The top eigenvector; zero in rows that are held."""
        values: np.ndarray = self.top.rows(start, stop) * ~self.are_held(start, stop)
        return values

    def components(self, start: int, stop: int) -> np.ndarray:
        """First point of the component of each row."""
        return np.zeros(stop - start, np.int32) if self.roots is None else self.roots.rows(start, stop)

    def _numbered(self, component: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The components of some rows, and the number of that of each row among them."""
        if self.roots is None:
            return component[:1], component
        return np.unique(component, return_inverse=True)

    def _totals(
        self, n_columns: int, rows: Callable[[tuple[int, int]], tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """First point of each component, and sums over its rows; `rows` gives those of a piece, and their factors."""
        from scalable_gpe.loops import sparse

        def totals_of(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            (values, factor), component = rows(piece), self.components(*piece)
            components, totals = [], []
            for start, stop in ranges(len(values), CHUNK):
                found, number = self._numbered(component[start:stop])
                components.append(found)
                totals.append(np.zeros((len(found), n_columns)))
                sparse.add_by(number, values[start:stop], factor[start:stop], totals[-1])
            return np.concatenate(components), np.concatenate(totals)

        context = self.heat.context
        partial = context.workers.map(totals_of, row_pieces(context, self.top.shape[0]), count=False)
        found, sums = (np.concatenate(part) for part in zip(*partial, strict=True))
        components, number = np.unique(found, return_inverse=True)
        totals = np.zeros((len(components), n_columns))
        sparse.add_by(number, sums, np.ones(len(sums)), totals)
        return components, totals
