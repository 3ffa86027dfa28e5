"""The part of vectors that tells ordinary rows of one component apart.

Isolated rows, and other rows that are *held*, are zero in it, and so is the top eigenvector of each component: no power
shrinks it. Vectors are panels Z = S M^(1/2) x (see `sketch/powers.py`).
"""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.storage.blocks import ranges


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
                at = np.searchsorted(shared.whole(), self._components(*piece))
                out = part.room(*piece)
                out[:] = (x - along.whole()[at] * top[:, None]) * np.sqrt(self.heat.step_scale[slice(*piece)])[:, None]
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
