"""The result of a run: points, everything that led to them, and what can be asked of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import ALL, Power, in_order_of
from scalable_gpe.errors import StoreError
from scalable_gpe.formatting import card_or_text, embedding_card, plain
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.heat.kernel import SparseKernel, kernel_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import ordinary_rows
from scalable_gpe.io.containers import MISSING
from scalable_gpe.io.labels import Annotations
from scalable_gpe.io.points import import_optional
from scalable_gpe.io.rows import InputRows
from scalable_gpe.parameters import Parameters
from scalable_gpe.propagation.labels import check_groups
from scalable_gpe.propagation.propagate import Propagation, propagate
from scalable_gpe.propagation.solutions import HARMONIC, SPREADING
from scalable_gpe.sketch.columns import SketchColumns
from scalable_gpe.sketch.publish import sketched_rows
from scalable_gpe.sketch.rotation import Axes, distance_error, principal_axes
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import RUNS
from scalable_gpe.transform.new_points import Extension, NewPoints, NewRows

_READ_ROWS = 65_536
_ERROR_ROWS = 256  # rows on which the error of kept axes is measured


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
    names : array of str or int, or None
        Labels of the rows, when the input had any; whole numbers stay so, also in exported tables.
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
    _run: str = field(default="", repr=False)

    @property
    def filters(self) -> dict[Power, Filter]:
        """The function of the eigenvalues of A that each power stands for."""
        every = Filter(self.report["horizon"] or 1, True, self.report["first_power"] or 1)
        return {power: every if isinstance(power, str) else Filter(power) for power in self.settings.powers}

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

    def sketch_columns(self, power: Power) -> list[SketchColumns]:
        """The columns of the sketch of one power, before the last application of A."""
        return self._columns[power]

    def columns_of(self, power: Power, points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Some columns of the sketch of some rows of the embedding, in float64; it must have all axes."""
        points = points.astype(np.float64)
        rotated = self.settings.sketching.is_rotated
        return self._axes[power].rotate_back(points, chosen) if rotated else points[:, chosen]

    @property
    def by_power(self) -> dict[Power, Any]:
        """The N x k array of each power."""
        self._check_there()
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
        by_power = self.by_power
        if power not in by_power:
            raise ValueError(f"power must be one of {list(by_power)}; got {power!r}.")
        return by_power[power]

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
        placed = self._new_points.apply(X_new, self._extensions(wanted), storage_options)
        every = self.settings.several and power is None
        points: Any = dict(zip(wanted, placed.values, strict=True)) if every else placed.values[0]
        if return_distance:
            return points, placed.distance
        placed.warn_if_far()
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
        powers = list(self.by_power)
        if power is None and len(powers) > 1:
            raise ValueError(f"power must be one of {powers}: the embedding has several.")
        points = self.at(powers[0] if power is None else power)
        n_axes = checks.check_count(n_axes, "n_axes", maximum=int(points.shape[1]))
        ordinary, here = self.ordinary, self.heat.context.workers.here
        axes = principal_axes(lambda a, b: points[a:b], len(ordinary), lambda a, b: ordinary[a:b], here)
        pieces = (points[start:stop] for start, stop in ranges(len(ordinary), _READ_ROWS))
        return np.concatenate([axes.rotate(np.asarray(piece), n_axes) for piece in pieces]), axes.shares[:n_axes]

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
            raise ValueError("pseudotime needs all scales: pass power='all' to embed.")
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
        tol: float | str = "auto",
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
            values = in_order_of(self.names, labels, "labels", partial=True, dropped=self.dropped)
        self._check_there()
        return propagate(
            self.heat, values, method=method, horizon=horizon, tol=tol, store=store, storage_options=storage_options
        )

    def fate(self, terminal: Any, *, tol: float | str = "auto", store: Any = None) -> Propagation:
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
        self._check_there()
        if isinstance(terminal, str):
            return propagate(self.heat, self._obs_column(terminal), method=HARMONIC, tol=tol, store=store)
        groups = check_groups(terminal, self.graph.n_rows, partial(self._row, name="terminal"), self.names)
        fates = propagate(self.heat, groups.codes, method=HARMONIC, tol=tol, store=store)
        return replace(fates, classes=np.array(groups.names))

    def _obs_column(self, name: str) -> np.ndarray:
        if self.annotations is None:
            raise ValueError(
                f"{name!r} would be a column of obs, which an AnnData input has; pass one value for each row."
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
        matrix = self.heat.to_scipy()
        matrix.setdiag(0)
        matrix.eliminate_zeros()
        return matrix / matrix.sum()

    def _row(self, root: Any, name: str = "root") -> int:
        """The number of a row that is given by number or name."""
        are_numbers = self.names is not None and self.names.dtype.kind == "i"
        if are_numbers and isinstance(root, int | np.integer) and root >= self.graph.n_rows:
            raise ValueError(f"{name} must be a row number, or the name of a row as a text: '{root}'.")
        return checks.check_row(root, self.graph.n_rows, self.names, name)

    def _check_there(self) -> None:
        """Refuse to go on if the store holds another run by now, whose arrays have the same places."""
        store = self.heat.context.store
        if store.persistent and self._run not in store.names(RUNS):
            raise StoreError(
                f"store {str(store)!r} no longer holds the run of this result. Open the store again with gpe.open."
            )

    def __getstate__(self) -> object:
        cached = ("_new_points", "row_components", "ordinary")
        return {name: value for name, value in vars(self).items() if name not in cached}

    @cached_property
    def _new_points(self) -> NewPoints:
        key = None if self.annotations is None else self.annotations.source
        return NewPoints(self.graph, self.heat, self.settings.metric, self.feature_names, key)

    def _transformed(self, X_new: Any, power: Power, missing: str = "error") -> tuple[InputRows, Iterator[NewRows]]:
        """The new rows, and what `transform` gives for them at one power, some rows at a time."""
        rows = self._new_points.open(X_new, missing=missing)
        return rows, self._new_points.batches(rows, self._extensions({power: self.at(power)}))

    def _extensions(self, points: dict[Power, Any]) -> list[Extension]:
        """The embeddings of the training rows, `points`, as functions that are extended to new rows, in their order."""
        width = self.settings.sketching.n_columns
        return [
            Extension(
                [part.table for part in self._columns[power]], values, width, 1 / np.sqrt(width), self._axes.get(power)
            )
            for power, values in points.items()
        ]

    def __repr__(self) -> str:
        shape = f"{self.report['n_rows']} rows in {self.settings.n_components} dimensions"
        return f"Embedding of {shape}, power {plain(self.report['power'])}"

    def _repr_html_(self) -> str:
        return card_or_text(lambda: embedding_card(self.report, self.parameters), type(self).__name__)
