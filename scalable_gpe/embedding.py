"""From points to embedding: the whole pipeline, in the order in which it runs.

X -> NeighborGraph -> SparseKernel -> HeatKernel -> Embedding
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import ALL, Power
from scalable_gpe.compile_ahead import compile_ahead
from scalable_gpe.errors import DamageError, GPEWarning, Message, StoreError, logger, warn
from scalable_gpe.execution.allocator import share_freed_memory
from scalable_gpe.execution.cluster import check_client, shared_store, workers_for
from scalable_gpe.execution.context import Context, make_context, open_store
from scalable_gpe.execution.memory_plan import MemoryPlan, ProblemSize, live_panels, measure_resources
from scalable_gpe.execution.progress import Progress
from scalable_gpe.execution.stages import complete
from scalable_gpe.execution.workers import Workers, count_jobs
from scalable_gpe.formatting import plain
from scalable_gpe.graph.build import GraphStage, check_neighbors
from scalable_gpe.graph.distance_matrix import PRECOMPUTED, distance_lists
from scalable_gpe.graph.neighbors import NeighborGraph, open_graph
from scalable_gpe.heat.kernel import KernelStage, SparseKernel, kernel_components, open_kernel
from scalable_gpe.heat.normalization import SINKHORN_PRODUCTS, SINKHORN_TOL, HeatKernel, HeatStage, open_heat
from scalable_gpe.heat.ordinary import ordinary_rows
from scalable_gpe.heat.sample_weight import SampleWeight, check_sample_weight
from scalable_gpe.io.labels import Labels
from scalable_gpe.io.obs_columns import MISSING
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import Annotations
from scalable_gpe.io.rows import InputRows, open_rows
from scalable_gpe.markup import card_or_text
from scalable_gpe.multilevel.horizon import choose_first_power
from scalable_gpe.parameters import Parameters, check_parameters
from scalable_gpe.propagation.labels import check_groups, group_members
from scalable_gpe.propagation.propagate import TOL, Propagation, propagate
from scalable_gpe.propagation.solutions import HARMONIC, SPREADING
from scalable_gpe.report import Report, make_report
from scalable_gpe.run_log import RunLog, check_same_input, choose_run, names_to_write, publish_names
from scalable_gpe.sketch.columns import SketchColumns
from scalable_gpe.sketch.gaussian_process import SketchResult, SketchStage, warn_if_few
from scalable_gpe.sketch.publish import sketched_rows
from scalable_gpe.sketch.rotation import Axes, distance_error, principal_axes
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.backends import StorageOptions, check_options, is_read_only
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.keys import GROUPS, Keys, heat_name, input_name, kernel_name, run_key
from scalable_gpe.storage.protocol import ArrayStore, Table
from scalable_gpe.storage.records import to_json
from scalable_gpe.transform.new_distances import NewDistances
from scalable_gpe.transform.new_points import Extension, NewPoints, NewRows, NewRowsSource, extensions_of

_READ_ROWS = 65_536
_ERROR_ROWS = 256  # rows on which the error of kept axes is measured
_REPAIRS = 8  # damaged stages that one call recomputes


class Pseudotime(NamedTuple):
    """Distances from a root, and their relative error (root mean square)."""

    values: np.ndarray
    error: float


def distances_from(root: int, points: Any, component: np.ndarray | None) -> np.ndarray:
    """Distances of all points from one row, infinite in other components; None: all are in one."""
    there, values = np.asarray(points[root], np.float64), np.empty(points.shape[0])
    for start, stop in ranges(len(values), _READ_ROWS):
        values[start:stop] = np.linalg.norm(np.asarray(points[start:stop], np.float64) - there, axis=1)
    if component is not None:
        values[component != component[root]] = np.inf
    return values


@dataclass(frozen=True)
class Embedding:
    """An embedding with everything that led to it.

    Attributes
    ----------
    points : array (N, k) of float32, or {power: array}
        numpy, or zarr when stored; a dict when `power` was a sequence. Rows are in the order of the input.
    graph, kernel, heat : NeighborGraph, SparseKernel, HeatKernel
        Results of the stages.
    parameters, report : dict
        The arguments of the run, and the figures that it measured.
    names : array of str or None
        Labels of the rows, when the input had any.
    kept_rows : array of int
        Number in the input of each row: all of them, unless ``missing="drop"`` left some out.
    feature_names : array of str or None
        Labels of the columns of the input, when it had any; `transform` compares them with those of new rows.
    annotations : Annotations or None
        obs and var of an AnnData input, which `export` keeps.
    """

    points: Any
    graph: NeighborGraph
    kernel: SparseKernel
    heat: HeatKernel
    parameters: dict[str, Any]
    report: dict[str, Any]
    settings: Parameters = field(repr=False)
    names: np.ndarray | None = None
    feature_names: np.ndarray | None = field(default=None, repr=False)
    annotations: Annotations | None = field(default=None, repr=False)
    _columns: dict[Power, list[SketchColumns]] = field(default_factory=dict, repr=False)
    _axes: dict[Power, Axes] = field(default_factory=dict, repr=False)

    @property
    def filters(self) -> dict[Power, Filter]:
        """The function of the eigenvalues of A that each power stands for."""
        every = Filter(self.report["horizon"] or 1, True, self.report["first_power"] or 1)
        return {one: every if isinstance(one, str) else Filter(one) for one in self.settings.powers}

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Mask of the rows that determine principal axes, in the order of the input.

        They are not isolated, alone or with their copies, and not in components of less than 1 % of the rows.
        """
        return ordinary_rows(self.heat)

    @property
    def kept_rows(self) -> np.ndarray:
        """Number in the input of each row of the points: all of them, unless ``missing="drop"`` left some out."""
        return self.graph.kept_rows

    @property
    def dropped(self) -> np.ndarray | None:
        """Numbers in the input of the rows that were left out, ascending; None without any."""
        return self.graph.dropped

    @property
    def is_rotated(self) -> bool:
        """Whether the columns are principal axes of the sketch."""
        return self.settings.sketching.is_rotated

    def sketch_columns(self, power: Power) -> list[SketchColumns]:
        """The columns of the sketch of one power, before the last application of A."""
        return self._columns[power]

    def columns_of(self, power: Power, points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Some columns of the sketch of some rows of the embedding, in float64; it must have all axes."""
        points = points.astype(np.float64)
        return self._axes[power].rotate_back(points, chosen) if self.is_rotated else points[:, chosen]

    @property
    def by_power(self) -> dict[Power, Any]:
        """The N x k array of each power."""
        return self.points if self.settings.several else {self.settings.powers[0]: self.points}

    def at(self, power: Power) -> Any:
        """Return the N x k array of one power, whether the embedding has one or several.

        Parameters
        ----------
        power : int or "all"
            One of the powers of the run.

        Examples
        --------
        >>> import scalable_gpe as gpe
        >>> result = gpe.embed(gpe.datasets.torus(500), n_components=8, power=[16, "all"])
        >>> result.at("all").shape
        (500, 8)
        """
        known = self.by_power
        if power not in known:
            raise ValueError(Message(f"`power` must be one of {list(known)}; got {power!r}."))
        return known[power]

    def transform(
        self,
        X_new: Any,
        *,
        power: Power | None = None,
        return_distance: bool = False,
        storage_options: StorageOptions | None = None,
    ) -> Any:
        r"""Embed new rows.

        .. math:: y(x) = a(x, \cdot)\, A^{p-1} G / \sqrt{k}

        (with "all", the sum of these for all powers p up to the horizon).

        The row a(x, .) is the row of A that x would have had in training; a training row gets its own embedding. Each
        row is embedded independently: alone or in a batch, the result has the same bytes.

        A row far from all training rows is placed next to its nearest ones, so its coordinates are unreliable. A
        warning counts these rows: the weight exp(-u^2) of their nearest training row, at u of its length scales, is
        below 1e-12 (u > 5.26).

        Parameters
        ----------
        X_new : array-like (M, d)
            Any input that `embed` takes, with the features of the training rows. Read batch by batch. Of an AnnData
            object, the matrix that was embedded of the first one is taken; of a table, the columns named
            `feature_names`, in whatever order they are.
        power : int or "all", optional
            One power of an embedding that has several; by default each of them, as a dict.
        return_distance : bool
            Return the distances to the nearest training rows as well, instead of the warning.
        storage_options : dict, optional
            As in `embed`, if X_new is a URL.

        Returns
        -------
        points : ndarray (M, k) of float32, or {power: ndarray}
        distance : ndarray (M,) of float64
            Distance of each row to the nearest training row, in units of the length scale of that row: sqrt(epsilon),
            or its sigma with local length scales. Only with ``return_distance=True``.

        Examples
        --------
        >>> import scalable_gpe as gpe
        >>> torus = gpe.datasets.torus(1100, random_state=1)
        >>> result = gpe.embed(torus[:1000], n_components=8)
        >>> result.transform(torus[1000:]).shape
        (100, 8)
        """
        wanted = self.by_power if power is None else {power: self.at(power)}
        found = self._new_points.apply(X_new, self._extensions(wanted), storage_options)
        every = self.settings.several and power is None
        points: Any = dict(zip(wanted, found.values, strict=True)) if every else found.values[0]
        if return_distance:
            return points, found.distance
        found.warn_if_far()
        return points

    def principal(self, n_axes: int = 2, *, power: Power | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates along the principal axes: ordered by how much they matter, the plane for pictures.

        With ``axes="principal"``, the default of `embed`, these are the first columns of the points.
        The axes are those of the ordinary rows: isolated rows, and components of less than 1 % of the rows, would
        determine them alone. Rows are rotated, not shifted, so that distances within the axes stay as they are.

        Parameters
        ----------
        n_axes : int
            Number of axes, at most n_components.
        power : int or "all", optional
            Which power of an embedding of several; needed only then.

        Returns
        -------
        points : ndarray (N, n_axes) of float32
        shares : ndarray (n_axes,)
            Share of the variance of the ordinary rows along each axis.

        Examples
        --------
        >>> import scalable_gpe as gpe
        >>> points, shares = gpe.embed(gpe.datasets.torus(500), n_components=8, power=64).principal(2)
        >>> points.shape, bool(shares[0] >= shares[1])
        ((500, 2), True)
        """
        points = self.at(self._one_power(power))
        n_axes = checks.check_count(n_axes, "n_axes", maximum=int(points.shape[1]))
        ordinary = self.ordinary
        here = self.heat.context.workers.here
        axes = principal_axes(lambda a, b: points[a:b], len(ordinary), lambda a, b: ordinary[a:b], here)
        pieces = ranges(len(ordinary), _READ_ROWS)
        rotated = np.concatenate([axes.rotate(np.asarray(points[slice(*piece)]), n_axes) for piece in pieces])
        return rotated, axes.shares[:n_axes]

    def pseudotime(self, root: Any) -> Pseudotime:
        r"""Diffusion pseudotime: the distance of each row from a root, through all scales at once.

        .. math:: t_i = |y_i - y_{root}| \approx |M_i - M_{root}|, \qquad M = A^m (I - c A)^{-1}

        With m = 1 that is the usual definition; embed 50,000 rows or more with ``first_power=1`` for it.

        Parameters
        ----------
        root : int or str
            The root: a row number, or a row name if the input had names.

        Returns
        -------
        Pseudotime
            The pair (values, error): an array (N,) of float64, infinite in other components of the kernel than that of
            the root; and their relative error, root mean square: sqrt(2/k) / 2 of the sketch, and with n_sketch what
            the kept axes leave out of the distances from this root, measured on up to 256 rows.

        Examples
        --------
        >>> import numpy as np, scalable_gpe as gpe
        >>> angle = np.linspace(0, 3, 300)
        >>> result = gpe.embed(np.column_stack([np.cos(angle), np.sin(angle)]), n_components=32, power="all")
        >>> time, error = result.pseudotime(0)
        >>> float(time[0]), bool(time.argmax() > 250), error
        (0.0, True, 0.125)
        """
        if ALL not in self.by_power:
            raise ValueError(Message("pseudotime needs all scales: pass `power='all'` to embed."))
        row = self._row(root)
        return Pseudotime(distances_from(row, self.at(ALL), self.row_components), self.distance_error(row))

    @cached_property
    def row_components(self) -> np.ndarray | None:
        """Number of the connected component of the kernel that each row belongs to; None if there is only one."""
        if self.kernel.n_connected_components == 1:
            return None
        components: np.ndarray = kernel_components(self.kernel)[self.graph.storage_order.position]
        return components

    def distance_error(self, root: int | None = None) -> float:
        """Relative error of distances at all scales within a component, from one row or between sampled ones."""
        n_sketch, n_rows = self.settings.sketching.n_columns, self.graph.n_rows
        if self.settings.n_sketch is None:
            return float(np.sqrt(2 / n_sketch) / 2)
        rows = np.unique(np.linspace(0, n_rows - 1, _ERROR_ROWS).astype(np.int64))
        roots, component = rows if root is None else np.array([root]), self.row_components
        points = [self.graph.storage_order.position[some].astype(np.int64) for some in (roots, rows)]
        wide = [sketched_rows(self.heat, self._columns[ALL], n_sketch, some) for some in points]
        numbers = np.zeros(n_rows, np.int8) if component is None else component
        same = numbers[roots][:, None] == numbers[rows]
        return distance_error(self._axes[ALL], self.settings.n_components, wide[0], wide[1], same)

    def propagate(
        self,
        labels: Any,
        *,
        method: str = SPREADING,
        horizon: Any = "auto",
        tol: float = TOL,
        store: Any = None,
        storage_options: StorageOptions | None = None,
    ) -> Propagation:
        """Class probabilities of all rows from a few labelled ones; `scalable_gpe.propagate` explains the methods.

        Parameters
        ----------
        labels : array-like (N,) or str
            Numbers or texts; -1, None, NaN and empty texts are rows without a label. A pandas Series goes by its index
            if the rows have names, and need not name all. A text is a column of the obs of an AnnData input.
        method, horizon, tol, store, storage_options
            As in `propagate`.

        Returns
        -------
        Propagation

        Examples
        --------
        >>> import numpy as np, scalable_gpe as gpe
        >>> X, labels = gpe.datasets.torus(500), np.full(500, -1)
        >>> labels[:20] = X[:20, 2] > 0
        >>> found = gpe.embed(X, n_components=8).propagate(labels)
        >>> found.probabilities.shape, float(np.mean(found.codes == (X[:, 2] > 0))) > 0.8
        ((500, 2), True)
        """
        if isinstance(labels, str):
            values = self._obs_column(labels)
        else:
            values = checks.in_order_of(self.names, labels, "labels", partial=True)
        how = {"method": method, "horizon": horizon, "tol": tol}
        return propagate(self.heat, values, **how, store=store, storage_options=storage_options)

    def fate(self, terminal: Any, *, tol: float = TOL, store: Any = None) -> Propagation:
        """The probability that a walk from each row reaches each terminal group first.

        Equivalent to ``propagate`` with ``method="harmonic"`` and the rows of the groups as the labelled ones.

        Parameters
        ----------
        terminal : dict, sequence or str
            ``{name: rows}`` with rows by number, name or mask; a sequence of rows, each a group of its own; or a column
            of the obs of an AnnData input, with missing values in rows of no group.
        tol, store
            As in `propagate`.

        Returns
        -------
        Propagation
            The groups are its ``classes``.

        Examples
        --------
        >>> import numpy as np, scalable_gpe as gpe
        >>> line = np.linspace(0, 1, 200)[:, None]
        >>> fates = gpe.embed(line, n_components=8, n_neighbors=8).fate({"left": [0, 1], "right": [199]})
        >>> fates.classes.tolist(), bool(abs(fates.probabilities[100] - 0.5).max() < 0.1)
        (['left', 'right'], True)
        """
        if isinstance(terminal, str):
            return propagate(self.heat, self._obs_column(terminal), method=HARMONIC, tol=tol, store=store)
        given, n_rows = terminal if isinstance(terminal, Mapping) else {one: one for one in terminal}, self.graph.n_rows
        members = {group: group_members(some, n_rows, self.names) for group, some in given.items()}
        rows = {group: np.array([self._row(one, "terminal") for one in some]) for group, some in members.items()}
        groups = check_groups(rows, n_rows, "terminal")
        found = propagate(self.heat, groups.codes, method=HARMONIC, tol=tol, store=store)
        return replace(found, classes=np.array(groups.names))

    def _obs_column(self, name: str) -> np.ndarray:
        """A column of obs, with empty texts where values are missing."""
        if self.annotations is None:
            raise ValueError(
                Message(f"{name!r} would be a column of obs, which an AnnData input has; pass one value for each row.")
            )
        values = self.annotations.column(name)
        return np.where(values == MISSING, "", values) if values.dtype.kind == "U" else values

    def to_opentsne(self) -> Any:
        r"""Affinities for openTSNE: the heat kernel without its diagonal, scaled to the sum 1.

        .. math:: P_{ij} = A_{ij} / \sum_{k \ne l} A_{kl}, \quad i \ne j

        t-SNE then needs no neighbour search and no perplexity of its own. Needs
        ``pip install "scalable-gpe[tsne]"``.

        Returns
        -------
        openTSNE.affinity.PrecomputedAffinities
            Pass it to ``openTSNE.TSNE(initialization=...).fit(affinities=...)``.
        """
        affinity = import_optional("openTSNE.affinity", "tsne", "to_opentsne")
        return affinity.PrecomputedAffinities(self._affinities(), normalize=False)

    def _affinities(self) -> Any:
        """The heat kernel without its diagonal as a scipy CSR matrix of sum 1."""
        matrix = self.heat.to_scipy()
        matrix.setdiag(0)
        matrix.eliminate_zeros()
        return matrix / matrix.sum()

    def _row(self, root: Any, name: str = "root") -> int:
        """The number of a row that is given by number or name."""
        if isinstance(root, str):
            found = np.flatnonzero(self.names == root) if self.names is not None else np.zeros(0, int)
            checks.check_one_row(root, found, "row", name)
            return int(found[0])
        return checks.check_count(root, name, minimum=0, maximum=self.graph.n_rows - 1)

    def _one_power(self, power: Power | None) -> Power:
        """The power that was asked for, or the only one."""
        if power is None and len(self.by_power) > 1:
            raise ValueError(Message(f"`power` must be one of {list(self.by_power)}: the embedding has several."))
        return next(iter(self.by_power)) if power is None else power

    def __getstate__(self) -> object:
        cached = ("_new_points", "row_components", "ordinary")
        return {name: value for name, value in vars(self).items() if name not in cached}

    @cached_property
    def _new_points(self) -> NewPoints:
        """State that `transform` reuses between calls."""
        kind = NewDistances if self.settings.metric == PRECOMPUTED else NewPoints
        key = None if self.annotations is None else self.annotations.source
        return kind(self.graph, self.heat, self.settings.metric, self.feature_names, key)

    def _transformed(self, X_new: Any, power: Power, missing: str = "error") -> tuple[NewRowsSource, Iterator[NewRows]]:
        """The new rows, and what `transform` gives for them at one power, some rows at a time."""
        rows = self._new_points.open(X_new, missing=missing)
        return rows, self._new_points.batches(rows, self._extensions({power: self.at(power)}))

    def _extensions(self, points: dict[Power, Any]) -> list[Extension]:
        return extensions_of(self._columns, self._axes, points, self.settings.sketching.n_columns)

    def __repr__(self) -> str:
        n_rows, power = self.report["n_rows"], self.report["power"]
        return f"Embedding of {n_rows} rows in {self.settings.n_components} dimensions, power {plain(power)}"

    def _repr_html_(self) -> str:
        from scalable_gpe.notebook import embedding_card

        return card_or_text(lambda: embedding_card(self), type(self).__name__)


def embed(
    X: Any = None,
    *,
    n_components: int = 32,
    n_neighbors: int | None = None,
    epsilon: Any = "auto",
    power: Any = "all",
    horizon: Any = "auto",
    first_power: Any = "auto",
    n_sketch: int | None = None,
    axes: str = "principal",
    scale: str | None = None,
    missing: str = "error",
    numeric_only: bool = False,
    client: Any = None,
    normalization: str = "bistochastic",
    sketch: str = "gaussian",
    metric: str = "euclidean",
    neighbors: Any = None,
    random_state: Any = 0,
    precision: str = "single",
    tol: Any = "auto",
    method: str = "auto",
    recall: float = 0.95,
    store: Any = None,
    storage_options: StorageOptions | None = None,
    memory_limit: Any = None,
    n_jobs: int | None = None,
    resume: bool = True,
    progress: Any = None,
    sample_weight: Any = None,
) -> Embedding:
    r"""Gaussian process embedding of points: straight-line distances that approximate diffusion distances.

    .. math::
        K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon_{ij}), \quad A = S K S, \quad Y = A^p G / \sqrt{k}, \quad
        E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    with :math:`\epsilon_{ij} = \sigma_i \sigma_j`, or one :math:`\epsilon` for all pairs. The result is a function of
    data, parameters and random_state alone; memory_limit, n_jobs and store change where it is computed and how fast,
    but not a single bit of it.

    Parameters
    ----------
    X : array-like (N, d), optional
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, AnnData object (in memory, backed or lazy;
        ``obsm["X_pca"]`` if it is there, else ``X``), a path (.npy, .zarr, .csv, .parquet, .h5ad), a URL (.npy, .zarr)
        or the result of `read_points`. In any unit from 1e-120 to 1e120. Not needed if `neighbors` is given.
    n_components : int
        Dimension k of the embedding; distances have a relative standard deviation of sqrt(2/k) / 2, and below 8 a
        warning says so. For fewer coordinates pass `n_sketch`, or take the first columns of the result.
    n_neighbors : int, optional
        Number of other points in each neighbour list; min(32, N - 1) by default.
    epsilon : float or {"auto", "global", "local", "bgh"}
        Bandwidth of the kernel, in squared units of X. "global" and "bgh" choose one epsilon for all rows; "local"
        gives each row its own length scale sigma, proportional to the distance to its seventh neighbour. "auto" means
        "global", or "local" if one epsilon would leave more than 6 % of the rows under-connected.
    power : "all", int, or a sequence of them
        "all" is the sum of all powers from the first power m on, :math:`f(A) = A^m (I - c A)^{-1}` with
        :math:`c = 1 - 1/T`, in place of :math:`A^p`: all scales at once. An int p is one scale, fine if small, coarse
        if large. Several in one run share their products, and ``points`` is then a dict.
    horizon : int or "auto"
        The horizon T of "all". "auto" takes the smallest power of two from eight relaxation times of the slowest shape
        of the data on; groups of less than 1 % of the rows do not count.
    first_power : int or "auto"
        The first power m of "all". "auto" takes 4 from 50,000 rows on, and 1 below. With 1 and a long horizon the sum
        is that of diffusion pseudotime, :math:`A + A^2 + \dots`.
    n_sketch : int, optional
        Compute this many columns and keep the n_components principal axes of them: ordered coordinates, and less
        noise in what is kept. By default n_components columns are computed, and all axes kept.
    axes : {"principal", "sketch"}
        "principal" rotates the points to principal axes: the same distances, columns ordered by their variance, so that
        the first two are the plane for pictures. Isolated rows, and components of less than 1 % of the rows, do not
        determine the axes. "sketch" keeps the random columns of the formula: then a run with fewer components has the
        first columns of one with more, and `gp_embedding` returns the same.
    scale : {None, "standard", "robust"}
        Divide each column by its standard deviation, or by the interquartile range (of up to 65,536 rows at even
        steps), so that columns in different units count alike; `transform` does the same with new rows. epsilon and
        distances are then in these units. Only for the metric "euclidean". A warning names a column that has more than
        90 % of the variance.
    missing : {"error", "drop"}
        What to do with rows that have missing values (NaN). "drop" leaves them out: the points are the other rows,
        whose numbers are in `kept_rows`; names and exports follow them.
    numeric_only : bool
        Take only the columns of a table that are numbers or bools; by default others are an error.
    client : None, False or distributed.Client
        Whose workers run the loops. None takes the active client if some of its workers are on other hosts, and X is a
        dask collection or has 1,000,000 rows or more; else, and with False, threads of this process do the work, which
        are faster then. A given client is always used. The report says in ``cluster`` what was used, and why.
    normalization : {"bistochastic", "symmetric"}
        How K is scaled to A.
    sketch : {"gaussian", "bernoulli"}
        Entries of the random matrix G.
    metric : {"euclidean", "cosine", "correlation", "hamming", "jaccard"}
        The distance of rows. Cosine is euclidean on rows scaled to length 1, correlation that of centred rows. For
        rows of 0 and 1, the squared distance is the share of differing entries: among all (hamming), or among those
        that are 1 in either row (jaccard, by the methods "brute" and, above 20,000 rows, "pynndescent" only, whose
        lists depend on the number of threads; without transform).
        "precomputed": X holds distances, of all pairs (N x N) or sparse ones of neighbours; new rows are then
        given by their distances to the training rows. Pass other metrics so, or through `neighbors`.
    neighbors : (indices, distances) or sparse matrix of distances, optional
        Precomputed neighbour lists, used instead of a search.
    random_state : int, None or numpy generator
        Seed of all random numbers.
    precision : {"single", "double"}
        Floating-point type of the panels.
    tol : float or "auto"
        Largest relative error of distances that the polynomial or the solver may cause; by default 1e-4 for powers and
        1e-2 for all scales.
    method : {"auto", "kdtree", "brute", "cells", "pynndescent"}
        The neighbour search.
    recall : float
        Share of true neighbours to aim for; a lower measured share gives a warning. The `missing_weight` of the
        report says what the missing ones cost.
    store : path or URL, optional
        A zarr store, "run.zarr" or "s3://bucket/run.zarr": results stream there, and a second call resumes where
        the first one stopped.
    storage_options : dict, optional
        Options of fsspec for the URLs of `store` and `X`: credentials, endpoint. Never written to the store.
    memory_limit : int or str, optional
        Largest resident memory of each process, interpreter and X included; "2GB" is 2e9 bytes.
    n_jobs : int, optional
        Number of threads; all cores by default.
    resume : bool
        Use what the store already holds; False starts over.
    progress : None, False or callable(stage, done, total)
        A bar in a terminal or notebook by default.
    sample_weight : array-like (N,), optional
        Weight of each row, above 0. A row of weight 3 counts as three equal rows: the same A up to scale, the same
        expected distances. Weights of equal rows are added.

    Returns
    -------
    Embedding

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(1000), n_components=8, power=16)
    >>> result.points.shape, result.report["converged"]
    ((1000, 8), True)
    """
    parameters = check_parameters(
        n_components=n_components,
        n_neighbors=n_neighbors,
        epsilon=epsilon,
        power=power,
        horizon=horizon,
        first_power=first_power,
        n_sketch=n_sketch,
        axes=axes,
        scale=scale,
        missing=missing,
        numeric_only=numeric_only,
        normalization=normalization,
        sketch=sketch,
        metric=metric,
        random_state=random_state,
        precision=precision,
        tol=tol,
        method=method,
        recall=recall,
        memory_limit=memory_limit,
    )
    _check_where(X, store, storage_options, n_jobs, resume)
    check_client(client)
    if random_state is None and store is not None:
        warn(
            "`random_state=None` draws a new seed at every call: this run cannot be resumed, and the store grows "
            "each time. Pass a number.",
            GPEWarning,
        )
    share_freed_memory(parameters.memory_limit)  # before X is opened: threads that have begun keep theirs
    bars = Progress(progress)
    if parameters.metric == PRECOMPUTED:
        X, neighbors = None, _given_distances(X, neighbors, parameters.n_neighbors)
    rows = None if X is None else open_input(X, parameters, storage_options)
    if neighbors is not None and (scale is not None or (rows is not None and rows.dropped is not None)):
        raise ValueError(
            Message(
                "`scale` and `missing='drop'` change the rows of a search; `neighbors` are lists of rows as they are."
            )
        )
    lists = check_neighbors(neighbors, rows, parameters.n_neighbors)
    parameters = parameters.for_rows(None if lists is not None or rows is None else rows.n_rows)
    source = GraphStage(parameters.search, rows, lists, is_default=n_neighbors is None)
    weight = check_sample_weight(_of_kept(sample_weight, rows), source.n_rows)
    parameters = replace(parameters, sample_weight=None if weight is None else weight.content)
    warn_if_few(parameters.sketching)
    has_store = store is not None
    with workers_for(
        client, n_jobs, bars, n_rows=source.n_rows, is_dask=source.is_dask, has_store=has_store
    ) as workers:
        source = source.scaled(workers)
        store = shared_store(workers, store)
        plan = plan_memory(parameters, source, workers, store)
        with _opened(store, storage_options) as arrays:
            stage, context = source.numbered(arrays, again=not resume), Context(arrays, workers, plan)
            with _nothing_left(arrays, None if resume else stage.name):
                return with_repairs(arrays, lambda: run_stages(stage, parameters, context, weight, resume=resume))


def run_stages(
    source: GraphStage, parameters: Parameters, context: Context, weight: SampleWeight | None, *, resume: bool = True
) -> Embedding:
    """Run the pipeline: each stage finds its result in the store, or makes it."""
    keys = _make_keys(source, parameters)
    if resume:
        check_same_input(context.store, keys)
    log = RunLog(context, keys, parameters, starts_over=not resume)
    if log.finished is None:
        _check_writable(context.store)
        how, last = parameters.sketching.sketch, parameters.powers[-1]
        compile_ahead(context.workers, parameters.normalization, how.kind, parameters.precision, last)
    with log.stage("graph"):
        graph = complete(source, context)
    with log.stage("kernel"):
        kernel = complete(KernelStage(graph, parameters.epsilon), context)
    with log.stage("heat"):
        heat = complete(HeatStage(kernel, parameters.normalization, sample_weight=weight), context)
    with log.stage("sketch"):
        sketch = complete(SketchStage(heat, parameters.sketching, keys.sketch), context)
    labels = Labels.of(source.rows)
    if not context.store.read_only:
        labels.save(context.store)  # also of a finished run, whose rows had none when it was made
    whole = sketch.has_axes(parameters.sketching, context)
    if log.finished is not None and log.finished.report is not None and whole:
        log.use(log.finished)
        arrays = log.finished.arrays
        tables = {power: _open_sound(context.store, arrays[power]) for power in parameters.powers}
        return _embedding(heat, tables, sketch, parameters, log.finished.report, labels)
    with log.stage("write"):
        written = names_to_write(context.store, keys.run, parameters.powers)
        for power, name in written.items():
            sketch.publish(heat, parameters.sketching, power, context, name, keys.run)
        arrays = publish_names(context.store, keys.run, written)
        tables = {power: context.store.open_table(name) for power, name in arrays.items()}
    # of a graph that was made when other columns were left out
    remarks = [warn(text, GPEWarning) for text in source.remarks if str(Message(text)) not in graph.metadata.remarks]
    report = make_report(graph, kernel, heat, sketch, parameters, tables, log.seconds, context.plan.limit_warning())
    report = replace(report, warnings=(*remarks, *report.warnings))
    log.finish(report, arrays)
    return _embedding(heat, tables, sketch, parameters, report, labels)


def open_embedding(
    store: Any,
    X: Any = None,
    *,
    run: str | None = None,
    storage_options: StorageOptions | None = None,
    progress: Any = False,
) -> Embedding:
    """Open a finished run of a store.

    Parameters
    ----------
    store : path or URL
        The store of an earlier ``embed(..., store=...)``.
    X : array-like, optional
        The points, if the store does not hold them.
    run : str, optional
        Name of the run as ``scalable-gpe info`` lists it, or the beginning of the name. By default the run that `embed`
        last used.
    storage_options : dict, optional
        As in `embed`.
    progress : None, False or callable(stage, done, total)
        As in `embed`, for later work with the embedding.

    Returns
    -------
    Embedding
        The embedding of that run.
    """
    arrays = open_store(store, storage_options, read_only=True)
    record = choose_run(arrays, run, str(store))
    parameters, keys = record.parameters, record.keys
    known = X is None or parameters.metric == PRECOMPUTED
    rows = None if known else open_input(X, parameters, storage_options)
    report = record.report
    assert report is not None  # a finished run has one
    columns, powers = parameters.sketching.n_columns, parameters.powers
    size = ProblemSize(report.n_rows, 0, report.n_neighbors, columns, len(powers), n_live=live_panels(powers))
    context = make_context(arrays, Workers(progress=Progress(progress)), size)
    graph = open_graph(context, keys.graph, rows)
    kernel = open_kernel(graph, context, keys.kernel)
    heat = open_heat(kernel, context, keys.heat)
    sketch = complete(SketchStage(heat, parameters.sketching, keys.sketch, is_known=True), context)
    tables: dict[Power, Table] = {power: arrays.open_table(record.arrays[power]) for power in parameters.powers}
    return _embedding(heat, tables, sketch, parameters, report, Labels.stored(arrays, rows))


def _embedding(
    heat: HeatKernel,
    tables: dict[Power, Table],
    sketch: SketchResult,
    parameters: Parameters,
    report: Report,
    labels: Labels,
) -> Embedding:
    points, graph = {power: table.array for power, table in tables.items()}, heat.kernel.graph
    assert graph is not None  # only a kernel from the user's own matrix has none
    for stage, result in (("graph", graph), ("kernel", heat.kernel), ("heat", heat)):
        if stage in report.stage_seconds:
            heat.context.seconds[result.name] = report.stage_seconds[stage]  # the same as in the report
    return Embedding(
        points=points if parameters.several else points[parameters.powers[0]],
        graph=graph,
        kernel=heat.kernel,
        heat=heat,
        parameters=parameters.as_dict(),
        report=report.as_dict(),
        settings=parameters,
        names=labels.names,
        feature_names=labels.feature_names,
        annotations=labels.annotations,
        _columns=sketch.columns,
        _axes=sketch.axes(parameters.sketching, heat.context),
    )


# --- before the run -------------------------------------------------------------------------------


def open_input(X: Any, parameters: Parameters, storage_options: StorageOptions | None) -> InputRows:
    """The rows of an input that are embedded."""
    return open_rows(
        X,
        parameters.metric,
        storage_options=storage_options,
        missing=parameters.missing,
        numeric_only=parameters.numeric_only,
    )


def _of_kept(values: Any, rows: InputRows | None) -> Any:
    """Of one value for each row of the input, those of the rows that are kept."""
    if rows is None or values is None:
        return values
    values, dropped = checks.in_order_of(rows.names, values, "sample_weight"), rows.dropped
    return values if dropped is None else checks.check_row_values(values, rows.n_rows, "sample_weight", dropped)


def _check_where(X: Any, store: Any, storage_options: StorageOptions | None, n_jobs: int | None, resume: bool) -> None:
    """Check the arguments that say where and how to compute."""
    check_options({} if isinstance(X, InputRows) else storage_options, store, X)
    if not isinstance(resume, bool):
        raise TypeError(Message(f"`resume` must be True or False; got {resume!r}."))
    count_jobs(n_jobs)


def _given_distances(X: Any, neighbors: Any, n_neighbors: int | None) -> Any:
    """The lists of ``metric="precomputed"``: X holds distances."""
    if X is None or neighbors is not None:
        raise ValueError(Message("`metric='precomputed'` needs the distances as X, without `neighbors=`."))
    return distance_lists(X, n_neighbors)


def plan_memory(parameters: Parameters, source: GraphStage, workers: Workers, store: Any) -> MemoryPlan:
    """Make the memory plan of a run; refuse a limit that is too small."""
    size = ProblemSize(
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_neighbors=source.n_neighbors,
        n_components=parameters.sketching.n_columns,
        n_powers=len(parameters.powers),
        n_live=live_panels(parameters.powers),
        itemsize=parameters.sketching.sketch.dtype.itemsize,
        weighted=parameters.sample_weight is not None,
    )
    resources = measure_resources(parameters.memory_limit, workers, store, resident_input=source.resident)
    plan = MemoryPlan(size, resources)
    plan.check()
    if (text := plan.limit_warning()) is not None:
        warn(text, GPEWarning)
    return plan


def _make_keys(source: GraphStage, parameters: Parameters) -> Keys:
    """Names of the results: each depends on its own parameters and on the result before it."""
    kernel = kernel_name(source.name, parameters.epsilon)
    heat = heat_name(kernel, parameters.normalization, SINKHORN_TOL, SINKHORN_PRODUCTS, parameters.sample_weight)
    sketch = parameters.sketching.name(heat)
    horizon = (parameters.horizon,) if ALL in parameters.powers else ()
    rotated = ("axes", parameters.axes) if parameters.sketching.is_rotated else ()
    wide = rotated if parameters.n_sketch is None else ("n_sketch", parameters.n_sketch)
    first = choose_first_power(parameters.first_power, source.n_rows)
    later = ("first_power", first) if ALL in parameters.powers and first > 1 else ()
    run = run_key(sketch, parameters.n_components, parameters.power, *horizon, *wide, *later)
    return Keys(to_json(source.source), source.name, kernel, heat, sketch, run)


# --- results --------------------------------------------------------------------------------------


def _open_sound(store: ArrayStore, name: str) -> Table:
    """Open a published array and check that every shard can be read; a damaged one is published again."""
    table = store.open_table(name)
    damaged = [start for start in range(0, table.shape[0], table.shard_rows) if not table.has(start)]
    if damaged:
        raise DamageError(f"array {name!r} is damaged: rows from {damaged[0]} on cannot be read", name)
    return table


# --- the store ------------------------------------------------------------------------------------


def with_repairs(store: ArrayStore, work: Callable[[], Embedding]) -> Embedding:
    """Run `work`; stages that turn out to be damaged are recomputed."""
    for _ in range(_REPAIRS):
        try:
            return work()
        except DamageError as error:
            if store.read_only:
                raise
            logger.warning("%s", error)
            store.repair(error.array, error.part)
    return work()


@contextmanager
def _opened(path: Any, storage_options: StorageOptions | None) -> Iterator[ArrayStore]:
    """Open the store of a run, and lock it against other processes until the run ends.

    One that cannot be written to, as on a read-only mount, needs no lock: its finished runs can be read.
    """
    store = open_store(path, storage_options, read_only=is_read_only(path))
    if store.read_only:
        yield store
        return
    with store.exclusive():
        yield store


def _check_writable(store: ArrayStore) -> None:
    """Refuse a store that cannot be written to and does not hold the finished run."""
    if store.read_only:
        raise StoreError(
            Message(
                f"store {str(store)!r} cannot be written to, and holds no finished run with these arguments. Pass "
                "another `store=`, or the arguments of a run that it holds."
            )
        )


@contextmanager
def _nothing_left(store: ArrayStore, graph: str | None) -> Iterator[None]:
    """Remove what a refused input has left: a new store, or a new `graph` beside the one that it was to replace."""
    try:
        yield
    except (ValueError, TypeError):
        if not store.read_only and not any(store.names(group) for group in GROUPS):
            store.discard()
        if graph is not None and {f"graph/{one}" for one in store.names("graph")} - {graph}:
            store.remove(graph)
            store.remove(input_name(graph))
        raise
