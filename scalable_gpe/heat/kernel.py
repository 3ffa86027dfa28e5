"""The truncated Gaussian kernel on the union of the neighbour lists."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from scalable_gpe.errors import DamageError, TruncationWarning, warn
from scalable_gpe.execution.context import Context, StoredResult, complete_alone
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.graph.edges import Block, Edges, component_roots, count_components
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.recall import N_SAMPLES, Scanned, scan_points
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.bandwidth import (
    check_epsilon,
    check_resolution,
    effective_epsilon,
    intrinsic_dimension,
    is_uneven,
    slope_epsilon,
)
from scalable_gpe.heat.local import LocalScales, ScaleMetadata, make_scales
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.records import kernel_name
from scalable_gpe.storage.store import read_whole

JOINED = 1e-12  # weights below this share of the diagonal do not connect rows


@dataclass(frozen=True)
class KernelMetadata:
    """Metadata of a kernel, stored with it."""

    epsilon: float
    lost_mass: float | None = None
    sigma: ScaleMetadata | None = None
    warning: str | None = None
    n_connected_components: int | None = None
    missing_weight: float | None = None


@dataclass(frozen=True, repr=False)
class SparseKernel(StoredResult):
    """Symmetric sparse matrix K with unit diagonal, in CSR row blocks; ``@`` multiplies in the user's order.

    Attributes
    ----------
    epsilon : float or None
        The bandwidth. With epsilon="local" each row has its own `sigma`, and this is the median of sigma^2. None for a
        matrix that was given to `heat_kernel`.
    lost_mass : float or None
        Share of the dense kernel's mass outside the neighbour lists; None if the graph was made without X.
    missing_weight : float or None
        Share of the kernel's weight between true neighbours that the search missed; None if it was not measured.
    graph : NeighborGraph or None
        The graph that the kernel was made from; None for a matrix that was given to `heat_kernel`.
    """

    context: Context
    name: str
    storage_order: StorageOrder
    edges: Edges
    epsilon: float | None
    lost_mass: float | None
    graph: NeighborGraph | None = None
    scales: LocalScales | None = None
    warning: str | None = None
    counted_components: int | None = None
    missing_weight: float | None = None
    diagonal: np.ndarray | None = None  # of a matrix that was given to `heat_kernel`; None: it is 1

    @cached_property
    def n_connected_components(self) -> int:
        """Number of connected components of K; weights below 1e-12 of the diagonal do not connect rows."""
        if self.counted_components is not None:
            return self.counted_components
        return count_components(self.edges, self.context, _joins(self))

    @property
    def sigma(self) -> np.ndarray | None:
        """Length scale of each row with epsilon="local", in the units of X, else None."""
        if self.scales is None or self.graph is None:
            return None
        return self.storage_order.spread(self.graph.in_user_units(self.scales.sigma))

    @property
    def stored_epsilon(self) -> float:
        """The bandwidth of the stored distances, which may be in other units than X."""
        assert self.graph is not None and self.epsilon is not None  # only the user's own matrix has neither
        return self.graph.stored_epsilon(self.epsilon)

    def _made_from(self) -> NeighborGraph | None:
        return self.graph

    @staticmethod
    def open(context: Context, name: str, made_from: NeighborGraph) -> "SparseKernel":
        """Open a complete kernel."""
        store, metadata = context.store, context.store.read(name, KernelMetadata)
        if metadata is None:
            raise DamageError(f"the kernel {name!r} is not complete", name)
        weights, plan = store.open_ragged(f"{name}/weights"), context.plan
        empty = partial(context.empty, in_order=True)
        edges = made_from.edges.with_values(weights, plan.resident_bytes(), empty)
        scales = (
            None
            if metadata.sigma is None
            else LocalScales(store.open_table(f"{name}/sigma"), metadata.sigma, context.empty)
        )
        return SparseKernel(
            context=context,
            name=name,
            storage_order=made_from.storage_order,
            edges=edges,
            epsilon=metadata.epsilon,
            lost_mass=metadata.lost_mass,
            graph=made_from,
            scales=scales,
            warning=metadata.warning,
            counted_components=metadata.n_connected_components,
            missing_weight=metadata.missing_weight,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """N x N."""
        return (self.storage_order.n_rows, self.storage_order.n_rows)

    @property
    def nnz(self) -> int:
        """Stored entries between distinct points, diagonal included."""
        return self.edges.nnz

    def summary(self) -> list[tuple[str, str]]:
        """Names and values of what to know about the kernel."""
        n_rows, scales = self.shape[0], "" if self.scales is None else ", the median of sigma^2 (local length scales)"
        lists = [] if self.graph is None else [("neighbours", f"{self.graph.n_neighbors} each ({self.graph.method})")]
        return [
            ("shape", f"{n_rows:,} x {n_rows:,}"),
            ("entries", f"{self.nnz:,} ({self.nnz / self.storage_order.n_points:.1f} per row)"),
            ("epsilon", "of the given matrix" if self.epsilon is None else f"{self.epsilon:.6g}{scales}"),
            ("lost mass", "not measured" if self.lost_mass is None else f"{self.lost_mass:.2%}"),
            ("missing weight", "not measured" if self.missing_weight is None else f"{self.missing_weight:.2%}"),
            *lists,
        ]

    def __matmul__(self, other: Any) -> np.ndarray:
        return apply(self, other)

    def to_scipy(self) -> Any:
        """Return the whole matrix as a scipy CSR matrix (float32), rows and columns in the user's order."""
        return to_scipy(self)

    def to_dask(self) -> Any:
        """Return the matrix as a dask array of scipy CSR blocks, rows and columns in the user's order."""
        from scalable_gpe.execution.cluster import dask_rows

        return dask_rows(self.to_scipy(), self.edges.block_rows)


def gaussian_kernel(graph: NeighborGraph, epsilon: Any = "auto") -> SparseKernel:
    r"""Truncated Gaussian kernel on the union of the neighbour lists.

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon) \text{ if } j \in N(i) \text{ or } i \in N(j), \quad K_{ii} = 1

    With local length scales the bandwidth of a pair is :math:`\sigma_i \sigma_j`, and :math:`\sigma_i` is proportional
    to the distance from i to its seventh neighbour.

    Parameters
    ----------
    graph : NeighborGraph
        Neighbour lists with distances.
    epsilon : float or {"auto", "global", "local", "bgh"}
        The bandwidth, in squared units of X. "global" and "local" give the median row n_neighbors / 7 effective
        neighbours: "global" with one epsilon for all rows, "local" with one length scale per row. "auto" means
        "global", or "local" if one epsilon would leave more than 6 % of the rows under-connected. "bgh" is one epsilon
        by the criterion of Berry, Giannakis and Harlim.

    Returns
    -------
    SparseKernel

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> kernel = gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(200), 8), epsilon=0.01)
    >>> kernel.epsilon, kernel.shape
    (0.01, (200, 200))
    """
    if not isinstance(graph, NeighborGraph):
        raise TypeError(f"graph must be a NeighborGraph, as neighbor_graph returns it; got {type(graph).__name__}.")
    return complete_alone(KernelStage(graph, check_epsilon(epsilon)), graph.context, TruncationWarning)


@dataclass(frozen=True)
class KernelStage:
    """Stage that makes the kernel of a graph; `epsilon` is a number or a rule."""

    graph: NeighborGraph
    epsilon: float | str

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return kernel_name(self.graph.name, self.epsilon)

    def find(self, context: Context) -> SparseKernel | None:
        """Return the complete kernel, or None."""
        metadata = context.store.read(self.name, KernelMetadata)
        return None if metadata is None else SparseKernel.open(context, self.name, self.graph)

    def make(self, context: Context) -> SparseKernel:
        """Weigh the edges of the graph, and commit the kernel."""
        return _make_kernel(self.graph, self.epsilon, context, self.name)


def _make_kernel(graph: NeighborGraph, epsilon: float | str, context: Context, name: str) -> SparseKernel:
    squared = graph.sampled_distances() ** 2
    if isinstance(epsilon, str):
        rule = slope_epsilon if epsilon == "bgh" else effective_epsilon
        number = 0.0 if epsilon == "local" else rule(squared)
    else:
        number = graph.stored_epsilon(epsilon)
    local = is_uneven(squared, number) if epsilon == "auto" else epsilon == "local"
    scales = make_scales(graph, context, f"{name}/sigma") if local else None
    check_resolution(graph, squared, epsilon, number if scales is None else float(scales.sigma.min()) ** 2)
    shown = epsilon if not isinstance(epsilon, str) else graph.user_epsilon(number)
    shown = shown if scales is None else scales.metadata.median**2
    edges = graph.edges
    weights = context.store.ragged(f"{name}/weights", edges.n_blocks, edges.longest_block, np.float32)

    def weigh(block_number: int) -> bool:
        """Write the weights of a block; return whether all of them connect their rows."""
        block = graph.edges.block(block_number)
        if weights.has(block_number):
            values = weights.read(block_number, len(block.values))
        else:
            values = _weights(block, number, scales)
            weights.write(block_number, values)
        return bool(values.min() >= JOINED)

    with context.workers.progress.stage("kernel", edges.n_blocks):
        joined = all(context.workers.map(weigh, range(edges.n_blocks)))
    kernel = SparseKernel(context, name, graph.storage_order, edges.with_values(weights), shown, None, graph, scales)
    # the components of the graph, without a pass over K, unless some edges have no weight
    n_connected = graph.n_connected_components if joined else kernel.n_connected_components
    lost, warning = _lost_mass(kernel), None
    if lost is not None and lost > 0.05 and (not isinstance(epsilon, str) or (intrinsic_dimension(graph) or 9) <= 3):
        warning = warn(
            f"the truncated kernel misses {lost:.0%} of the dense kernel's mass at epsilon={shown:g}: distances are "
            "those of the truncated kernel. Raise n_neighbors or lower epsilon.",
            TruncationWarning,
        )
    sigma = None if scales is None else scales.metadata
    context.store.commit(name, KernelMetadata(shown, lost, sigma, warning, n_connected, _missing_weight(kernel)))
    return SparseKernel.open(context, name, graph)


def _weights(block: Block, epsilon: float, scales: LocalScales | None) -> np.ndarray:
    """Affinities of the edges of one block."""
    from scalable_gpe.loops import sparse

    first, indptr, indices, lengths = block
    values = np.empty(len(lengths), np.float32)
    if scales is None:
        sparse.gaussian_weights(lengths, epsilon, values)
    else:
        sparse.local_weights(indptr, indices, lengths, first, scales.sigma, values)
    return values


def _lost_mass(kernel: SparseKernel) -> float | None:
    """``1 - sum K_sparse / sum K_dense`` over sampled rows, the diagonal left out; None without points."""
    graph = kernel.graph
    if graph is None or graph.scan is None or kernel.epsilon is None:
        return None
    if kernel.scales is None:
        return graph.scan.lost_mass(kernel.stored_epsilon)
    if graph.points is None:
        return None
    dense, sparse = (masses.sum() for masses in row_masses(kernel, graph.points, graph.sampled_points(N_SAMPLES)))
    return max(0.0, 1 - float(sparse / dense)) if dense > 0 else 0.0


def _missing_weight(kernel: SparseKernel) -> float | None:
    """Weight of true neighbours that the graph lacks, as a share of that of all; None if it was not measured."""
    if kernel.graph is None or kernel.graph.scan is None:
        return None
    nearest = kernel.graph.scan.nearest
    if kernel.scales is None:
        return nearest.missing_weight(kernel.stored_epsilon)
    left, right = (kernel.scales.sigma[some].astype(np.float64) for some in (nearest.points, nearest.neighbors))
    return nearest.missing_weight(left * right)


def row_masses(kernel: SparseKernel, points: Rows, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row sums without the diagonal, for some rows (ascending): of the dense kernel, and of this one."""
    from scalable_gpe.loops import points as loops

    scales = kernel.scales
    if scales is None:
        epsilon = np.full(len(own), kernel.stored_epsilon, dtype=np.float64)
    else:
        epsilon = scales.sigma[own].astype(np.float64)

    def add_masses(some: Scanned, masses: np.ndarray) -> None:
        scale = np.ones(len(some.ids), np.float32) if scales is None else scales.sigma[some.ids]
        loops.dense_mass(*some[1:], epsilon[some.lane], scale, masses[some.lane])

    n_rows = len(own)
    dense = scan_points(points, own, lambda: np.zeros(n_rows), add_masses, kernel.context)
    sums = np.empty(n_rows)
    for i, _, weights in kernel.edges.rows(own):
        sums[i] = weights.sum(dtype=np.float64) - 1
    return dense, sums


def kernel_components(kernel: SparseKernel) -> np.ndarray:
    """First point of the connected component of K that each point belongs to, in an array (storage order)."""
    panels = Panels(kernel.context)
    roots = shared_components(kernel, panels).rows(0, kernel.edges.n_points)
    panels.clear()
    return roots


def shared_components(kernel: SparseKernel, panels: Panels) -> Panel:
    """First point of the connected component of K that each point belongs to, as tasks read it (storage order)."""
    return component_roots(kernel.edges, kernel.context, panels, _joins(kernel))


def _joins(kernel: SparseKernel) -> Callable[[Block], np.ndarray]:
    """Which entries of a block join their rows: those of at least `JOINED` where the diagonal is 1."""
    if kernel.diagonal is None:
        return lambda block: block.values >= JOINED
    root = np.sqrt(kernel.diagonal)

    def joins(block: Block) -> np.ndarray:
        rows = np.repeat(np.arange(block.first, block.stop), np.diff(block.indptr))
        joined: np.ndarray = block.values / root[rows] / root[block.indices] >= JOINED
        return joined

    return joins


def apply(kernel: SparseKernel, other: Any, scale: np.ndarray | None = None) -> np.ndarray:
    """``S K S V`` (``K V`` without a scale) for an array V and a diagonal `scale` of the user's rows."""
    values = np.asarray(other)
    if values.ndim not in (1, 2) or values.shape[0] != kernel.shape[1] or values.dtype.kind not in "fiub":
        raise ValueError(
            f"the right-hand side of @ must be a numeric array with {kernel.shape[1]} rows; got shape "
            f"{values.shape} of {values.dtype}."
        )
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    factor = np.ones((len(values), 1), dtype) if scale is None else scale[:, None]
    given = (values.reshape(len(values), -1) * factor).astype(dtype)
    panels = Panels(kernel.context)
    source = panels.of(np.ascontiguousarray(kernel.storage_order.collect(given)))
    target = panels.new(source.shape, dtype)
    sweep(kernel, Product(lambda start, stop: np.ones(stop - start)), source, target, kernel.context, purpose="product")
    product = kernel.storage_order.spread(target.rows(0, target.shape[0])) * factor
    panels.clear()
    return np.asarray(product, dtype).reshape(values.shape)


def to_scipy(kernel: SparseKernel, scale: np.ndarray | None = None) -> Any:
    """Return ``S K S`` (K without a scale) as one scipy CSR matrix in the user's order; `scale` as in `apply`."""
    from scipy.sparse import csr_matrix

    edges, n_points, n_rows = kernel.edges, kernel.edges.n_points, kernel.storage_order.n_rows
    blocks = list(edges.blocks())
    indptr = np.concatenate([[0], np.cumsum(read_whole(edges.degree), dtype=np.int64)])
    columns, data = (np.concatenate([block[k] for block in blocks]) for k in (2, 3))
    matrix = csr_matrix((data, columns, indptr), shape=(n_points, n_points))
    factor = np.ones(n_rows, data.dtype) if scale is None else scale
    spread = csr_matrix((factor, kernel.storage_order.position, np.arange(n_rows + 1)), shape=(n_rows, n_points))
    full = (spread @ matrix @ spread.T).tocsr()
    full.sort_indices()
    return full
