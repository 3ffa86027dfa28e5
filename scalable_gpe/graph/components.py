"""Connected components of a symmetric graph: inside each block, then between blocks.

Each block is joined inside by a task of its own. Edges between blocks then connect only the parts so found, which are
few. So no process needs a tree of all points.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.graph.edges import Block, Edges

Values = Callable[[Block], np.ndarray]


@dataclass(frozen=True)
class _Chosen:
    """The edges that count: those with values from `least` to `most`."""

    least: float
    most: float
    values_of: Values | None

    @property
    def are_all(self) -> bool:
        """Whether all edges count, whatever their values."""
        return self.least == -np.inf and self.most == np.inf

    def columns(self, block: Block) -> np.ndarray:
        """The points that the rows of a block are joined with; -1 for edges that do not count."""
        if self.are_all:
            return block.indices
        values = block.values if self.values_of is None else self.values_of(block)
        return np.where((values >= self.least) & (values <= self.most), block.indices, np.int32(-1))


@dataclass(frozen=True)
class _Parts:
    """The components inside each block: the first point of that of each point, and their number."""

    first: Panel
    count: int


@dataclass(frozen=True)
class _Merged:
    """Parts that belong together, ascending by their first points; `root` is the first point of the component."""

    first: np.ndarray
    root: np.ndarray

    @property
    def n_fewer(self) -> int:
        """How many fewer components than parts there are."""
        return len(self.first) - len(np.unique(self.root))


def count_components(
    edges: Edges, context: Context, *, least: float = -np.inf, most: float = np.inf, values_of: Values | None = None
) -> int:
    """Number of connected components; edges with values outside [least, most] do not count (by default all count).

    `values_of` gives the values of a block where they are not those of `edges`.
    """
    panels, chosen = Panels(context), _Chosen(least, most, values_of)
    parts = _join_inside(edges, chosen, context, panels)
    count = parts.count - _join_between(edges, chosen, context, parts).n_fewer
    panels.clear()
    return count


def component_roots(
    edges: Edges, context: Context, panels: Panels, *, least: float, values_of: Values | None = None
) -> Panel:
    """First point of the connected component of each point; edges with values below `least` do not count.

    `values_of` gives the values of a block where they are not those of `edges`.
    """
    chosen = _Chosen(least, np.inf, values_of)
    parts = _join_inside(edges, chosen, context, panels)
    merged = _join_between(edges, chosen, context, parts)
    n_merged = len(merged.first)
    if n_merged == 0:
        return parts.first
    merged_first, merged_root = panels.of(merged.first), panels.of(merged.root)
    with replaced(parts.first) as roots:

        def name_roots(number: int) -> None:
            piece = edges.rows_of(number)
            own, out = parts.first.rows(*piece), roots.room(*piece)
            at = np.minimum(np.searchsorted(merged_first.whole(), own), n_merged - 1)
            out[:] = np.where(merged_first.whole()[at] == own, merged_root.whole()[at], own)
            roots.put(piece[0], out)

        context.workers.map_blocks(name_roots, edges.n_blocks)
    return roots


def _join_inside(edges: Edges, chosen: _Chosen, context: Context, panels: Panels) -> _Parts:
    """Join the points of each block."""
    from scalable_gpe.loops import sparse

    first = panels.new((edges.n_points,), np.int32)

    def join_inside(number: int) -> int:
        start, stop = edges.rows_of(number)
        parent, out = np.arange(stop - start, dtype=np.int32), first.room(start, stop)
        block = edges.block(number, values=not chosen.are_all)
        sparse.unite_rows(block.indptr, chosen.columns(block), start, parent)
        out[:] = _roots(parent) + start
        first.put(start, out)
        return int(np.count_nonzero(parent == np.arange(stop - start)))

    return _Parts(first, sum(context.workers.map_blocks(join_inside, edges.n_blocks)))


def _join_between(edges: Edges, chosen: _Chosen, context: Context, parts: _Parts) -> _Merged:
    """Merge the parts of different blocks along the edges between them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    def join_between(number: int) -> np.ndarray:
        start, stop = edges.rows_of(number)
        block = edges.block(number, values=not chosen.are_all)
        columns = chosen.columns(block)
        leaving = np.flatnonzero(columns >= stop)
        rows, others = np.searchsorted(block.indptr, leaving, side="right") - 1, columns[leaving]
        own = parts.first.rows(start, stop)[rows].astype(np.int64)
        pairs: np.ndarray = np.unique(own << 32 | parts.first.whole(others)[others])
        return pairs

    pairs = np.concatenate(context.workers.map_blocks(join_between, edges.n_blocks))
    first, ends = np.unique(np.stack([pairs >> 32, pairs & 0xFFFFFFFF]).astype(np.int32), return_inverse=True)
    one, other = ends.reshape(2, -1).astype(np.int32)  # earlier versions of scipy take no other numbers
    joined = coo_array((np.ones(len(one), np.bool_), (one, other)), shape=(len(first), len(first)))
    _, labels = connected_components(joined, directed=False)
    _, roots = np.unique(labels, return_index=True)  # `first` ascends
    return _Merged(first, first[roots[labels]])


def _roots(parent: np.ndarray) -> np.ndarray:
    """The root of each tree, from the parents of its members."""
    roots = parent
    while not np.array_equal(higher := parent[roots], roots):
        roots = higher
    return roots
