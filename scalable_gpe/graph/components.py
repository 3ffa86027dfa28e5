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

Joins = Callable[[Block], np.ndarray]  # which entries of a block join their rows


@dataclass(frozen=True)
class _Parts:
    """The components inside each block, and those of them that belong together, ascending by their first points.

    `first` is the first point of the component of each point inside its block; `root` is the first point of the whole
    component of each one in `merged`.
    """

    first: Panel
    merged: np.ndarray
    root: np.ndarray
    n_components: int


def count_components(edges: Edges, context: Context, joins: Joins | None = None) -> int:
    """Number of connected components; without `joins`, all edges join their points."""
    panels = Panels(context)
    count = _join(edges, joins, context, panels).n_components
    panels.clear()
    return count


def component_roots(edges: Edges, context: Context, panels: Panels, joins: Joins | None = None) -> Panel:
    """First point of the connected component of each point; without `joins`, all edges join their points."""
    parts = _join(edges, joins, context, panels)
    n_merged = len(parts.merged)
    if n_merged == 0:
        return parts.first
    merged_first, merged_root = panels.of(parts.merged), panels.of(parts.root)
    with replaced(parts.first) as roots:

        def name_roots(number: int) -> None:
            piece = edges.rows_of(number)
            own, out = parts.first.rows(*piece), roots.room(*piece)
            at = np.minimum(np.searchsorted(merged_first.whole(), own), n_merged - 1)
            out[:] = np.where(merged_first.whole()[at] == own, merged_root.whole()[at], own)
            roots.put(piece[0], out)

        context.workers.map_blocks(name_roots, edges.n_blocks)
    return roots


def _join(edges: Edges, joins: Joins | None, context: Context, panels: Panels) -> _Parts:
    """Join the points of each block, then merge what edges between blocks connect."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from scalable_gpe.loops import sparse

    first = panels.new((edges.n_points,), np.int32)

    def joined_block(number: int) -> tuple[Block, np.ndarray]:
        """A block, and the points that its rows are joined with; -1 for others."""
        block = edges.block(number, values=joins is not None)
        return block, block.indices if joins is None else np.where(joins(block), block.indices, np.int32(-1))

    def join_inside(number: int) -> int:
        start, stop = edges.rows_of(number)
        parent, out = np.arange(stop - start, dtype=np.int32), first.room(start, stop)
        block, columns = joined_block(number)
        sparse.unite_rows(block.indptr, columns, start, parent)
        out[:] = _roots(parent) + start
        first.put(start, out)
        return int(np.count_nonzero(parent == np.arange(stop - start)))

    def join_between(number: int) -> np.ndarray:
        start, stop = edges.rows_of(number)
        block, columns = joined_block(number)
        leaving = np.flatnonzero(columns >= stop)
        rows, others = np.searchsorted(block.indptr, leaving, side="right") - 1, columns[leaving]
        own = first.rows(start, stop)[rows].astype(np.int64)
        pairs: np.ndarray = np.unique(own << 32 | first.whole(others)[others])
        return pairs

    n_inside = sum(context.workers.map_blocks(join_inside, edges.n_blocks))
    pairs = np.concatenate(context.workers.map_blocks(join_between, edges.n_blocks))
    merged, ends = np.unique(np.stack([pairs >> 32, pairs & 0xFFFFFFFF]).astype(np.int32), return_inverse=True)
    one, other = ends.reshape(2, -1).astype(np.int32)  # earlier versions of scipy take no other numbers
    joined = coo_array((np.ones(len(one), np.bool_), (one, other)), shape=(len(merged), len(merged)))
    _, labels = connected_components(joined, directed=False)
    _, roots = np.unique(labels, return_index=True)  # `merged` ascends
    return _Parts(first, merged, merged[roots[labels]], n_inside - len(merged) + len(roots))


def _roots(parent: np.ndarray) -> np.ndarray:
    """The root of each tree, from the parents of its members."""
    roots = parent
    while not np.array_equal(higher := parent[roots], roots):
        roots = higher
    return roots
