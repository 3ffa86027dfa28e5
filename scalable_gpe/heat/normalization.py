"""Both normalisations as one diagonal scaling: A = S K S."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConvergenceWarning, DamageError, warn, wrong_numbers
from scalable_gpe.execution.context import Context, StoredResult, complete_alone
from scalable_gpe.execution.panels import Panels, replaced
from scalable_gpe.heat.given_matrix import from_scipy
from scalable_gpe.heat.kernel import SparseKernel, apply, to_scipy
from scalable_gpe.heat.sample_weight import check_sample_weight, weight_checksum
from scalable_gpe.heat.sweep import RowSums, SinkhornStep, sweep
from scalable_gpe.storage.mapped import pieces
from scalable_gpe.storage.records import heat_name
from scalable_gpe.storage.store import write_whole

NORMALIZATIONS = ("bistochastic", "symmetric")
SINKHORN_TOL, SINKHORN_PRODUCTS = 1e-8, 1000
ISOLATED = 0.99  # share of its heat that an isolated row keeps
_SAVE_SECONDS = 2.0


@dataclass(frozen=True)
class HeatMetadata:
    """Metadata of a heat kernel: how its scaling was found, and whether rows have weights."""

    normalization: str
    n_iter: int
    residual: float
    converged: bool
    warning: str | None = None
    weighted: bool = False


@dataclass(frozen=True, repr=False)
class HeatKernel(StoredResult):
    """The operator A = S K S, which is never formed; ``@`` multiplies in the user's order.

    With sample weights w, S holds their roots: ``A sqrt(w) = sqrt(w)`` for the bistochastic kernel.

    Attributes
    ----------
    kernel : SparseKernel
        K.
    normalization : str
        "bistochastic" or "symmetric".
    n_iter : int
        Sweeps over K that the scaling took.
    residual : float
        The largest difference of a row sum from 1 (bistochastic), or 0 (symmetric).
    converged : bool
        Whether the residual reached its tolerance.
    sample_weight : ndarray or None
        The sample weights, one number per row of the input; None without weights.
    """

    kernel: SparseKernel
    context: Context
    name: str
    normalization: str
    scale_points: np.ndarray
    n_iter: int
    residual: float
    converged: bool
    warning: str | None = None
    sample_weight: np.ndarray | None = None
    last_change: np.ndarray | None = None  # of an iteration that has not converged: d of the last step / d before it

    def _made_from(self) -> SparseKernel:
        return self.kernel

    @staticmethod
    def open(context: Context, name: str, made_from: SparseKernel) -> "HeatKernel":
        """Open a complete heat kernel."""
        metadata = context.store.read(name, HeatMetadata)
        if metadata is None:
            raise DamageError(f"the heat kernel {name!r} is not complete", name)
        scale = context.read_whole(context.store.open_table(f"{name}/scale"))
        n_points = made_from.storage_order.n_points
        if scale.shape != (n_points,) or not all(
            np.isfinite(scale[start:stop]).all() for start, stop in pieces(n_points)
        ):
            raise wrong_numbers(f"{name}/scale")
        is_open = metadata.normalization == "bistochastic" and not metadata.converged
        return HeatKernel(
            kernel=made_from,
            context=context,
            name=name,
            normalization=metadata.normalization,
            scale_points=scale,
            n_iter=metadata.n_iter,
            residual=metadata.residual,
            converged=metadata.converged,
            warning=metadata.warning,
            sample_weight=_open_weight(made_from, context, name) if metadata.weighted else None,
            last_change=context.read_whole(context.store.open_table(f"{name}/change")) if is_open else None,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """N x N."""
        return self.kernel.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the results of ``@``."""
        return np.dtype(np.float64)

    @property
    def scale(self) -> np.ndarray:
        """The diagonal of S, one number per row of the input."""
        scale = self.kernel.storage_order.spread(self.scale_points)
        return scale if self.sample_weight is None else scale * np.sqrt(self.sample_weight)

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights of the points (storage order): multiplicities, or sums of the sample weights of their rows."""
        return _point_weights(self.kernel, self.sample_weight)

    @cached_property
    def total_weight(self) -> float:
        """Sum of all weights: the number of rows without sample weights."""
        return float(self.shape[0] if self.sample_weight is None else self.sample_weight.sum())

    @cached_property
    def step_scale(self) -> np.ndarray:
        """Diagonal of S^2 M: with Z = S x, one application of A to x is ``Z <- S^2 M K Z``."""
        scale, weights = self.scale_points, self.weights
        return self.context.filled(
            len(scale), np.float64, lambda start, stop: scale[start:stop] ** 2 * weights[start:stop]
        )

    def step_rows(self, start: int, stop: int) -> np.ndarray:
        """Some entries of `step_scale`."""
        return self.step_scale[start:stop]

    @cached_property
    def diagonal(self) -> np.ndarray:
        """Diagonal of A between points (storage order), S^2 M K_ii: the share of its heat that each one keeps."""
        scale, own = self.step_scale, self.kernel.diagonal
        if own is None:
            return scale
        return self.context.filled(len(scale), np.float64, lambda start, stop: scale[start:stop] * own[start:stop])

    @cached_property
    def isolated(self) -> np.ndarray:
        """Mask (storage order) of the points that, with their duplicates, keep more than 0.99 of their heat."""
        kept = self.diagonal
        return self.context.filled(len(kept), np.bool_, lambda start, stop: kept[start:stop] > ISOLATED)

    @property
    def n_isolated(self) -> int:
        """Number of rows that keep more than 0.99 of their heat; equal rows share theirs."""
        weights, isolated = self.kernel.storage_order.weights, self.isolated
        return sum(_count(isolated[start:stop] & (weights[start:stop] == 1)) for start, stop in pieces(len(isolated)))

    @property
    def n_isolated_points(self) -> int:
        """Number of different rows that, with their duplicates, keep more than 0.99 of their heat."""
        isolated = self.isolated
        return sum(_count(isolated[start:stop]) for start, stop in pieces(len(isolated)))

    @property
    def is_centred(self) -> bool:
        """Whether the constant vector is an eigenvector with eigenvalue 1, so that it can be removed."""
        return self.normalization == "bistochastic" and self.converged

    def summary(self) -> list[tuple[str, str]]:
        """Names and values of what to know about the heat kernel."""
        found = f"{'converged' if self.converged else 'NOT converged'} in {self.n_iter} sweeps"
        scaling = f"{found}, residual {self.residual:.1e}" if self.normalization == "bistochastic" else "explicit"
        isolated = ("isolated rows", f"{self.n_isolated:,}")
        return [("normalization", self.normalization), ("scaling", scaling), isolated, *self.kernel.summary()]

    def __matmul__(self, other: Any) -> np.ndarray:
        return apply(self.kernel, other, self.scale)

    def to_scipy(self) -> Any:
        """Return the whole matrix as a scipy CSR matrix, rows and columns in the user's order."""
        return to_scipy(self.kernel, self.scale)


def _count(mask: np.ndarray) -> int:
    return int(np.count_nonzero(mask))


def heat_kernel(
    kernel: Any,
    normalization: str = "bistochastic",
    *,
    tol: float = 1e-8,
    max_iter: int = 1000,
    sample_weight: Any = None,
) -> HeatKernel:
    r"""Normalise a kernel to a discrete heat kernel :math:`A = S K S`.

    .. math::
        \text{symmetric:}\quad q = K 1,\ v_i = \sum_j K_{ij} / (q_i q_j),\ s = 1 / (q \sqrt v)
        \qquad \text{bistochastic:}\quad s = 1/d,\ d = K (1/d)

    The bistochastic scaling is found by the damped iteration :math:`d \leftarrow \sqrt{d \cdot K(1/d)}`.

    Parameters
    ----------
    kernel : SparseKernel or scipy sparse matrix
        Ours, or a symmetric matrix with positive diagonal and no negative entries.
    normalization : {"bistochastic", "symmetric"}
        Rows that sum to 1, or one explicit scaling.
    tol : float
        Largest difference of a row sum from 1.
    max_iter : int
        Largest number of products; then the iteration stops with a warning, and the result is still usable.
    sample_weight : array-like (N,), optional
        Weight of each row, above 0; a row of weight 3 counts as three equal rows. With :math:`W = diag(w)` the sums
        over j above are weighted by w_j, and :math:`A = W^{1/2} S K S W^{1/2}`.

    Returns
    -------
    HeatKernel

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(200), 8)))
    >>> bool(abs(heat @ ([1.0] * 200) - 1).max() < 1e-7), heat.converged
    (True, True)
    """
    checks.check_choice(normalization, NORMALIZATIONS, "normalization")
    tol = checks.check_positive(tol, "tol")
    max_iter = checks.check_count(max_iter, "max_iter")
    if not isinstance(kernel, SparseKernel):
        if not hasattr(kernel, "tocsr"):
            raise TypeError(f"kernel must be a SparseKernel or a scipy sparse matrix; got {type(kernel).__name__}.")
        kernel = from_scipy(kernel)
    weight = check_sample_weight(sample_weight, kernel.shape[0])
    return complete_alone(HeatStage(kernel, normalization, tol, max_iter, weight), kernel.context, ConvergenceWarning)


@dataclass(frozen=True)
class HeatStage:
    """Stage that makes the heat kernel of a kernel, with a scaling to within `tol`."""

    kernel: SparseKernel
    normalization: str
    tol: float = SINKHORN_TOL
    max_iter: int = SINKHORN_PRODUCTS
    sample_weight: np.ndarray | None = None

    @property
    def name(self) -> str:
        """Name of the heat kernel."""
        weights = weight_checksum(self.sample_weight)
        return heat_name(self.kernel.name, self.normalization, self.tol, self.max_iter, weights)

    def find(self, context: Context) -> HeatKernel | None:
        """Return the complete heat kernel, or None."""
        known = context.store.read(self.name, HeatMetadata)
        return None if known is None else HeatKernel.open(context, self.name, self.kernel)

    def make(self, context: Context) -> HeatKernel:
        """Compute the scale, and commit it."""
        given = self.sample_weight
        m = _point_weights(self.kernel, given)
        if self.normalization == "symmetric":
            scale, metadata, change = _symmetric(self.kernel, m, context), HeatMetadata("symmetric", 2, 0.0, True), None
        else:
            scale, metadata, change = _bistochastic(self.kernel, m, self.tol, self.max_iter, context, self.name)
        if change is not None:
            write_whole(context.store.table(f"{self.name}/change", change.shape, np.float64), change)
        write_whole(context.store.table(f"{self.name}/scale", scale.shape, np.float64), scale)
        if given is not None:
            write_whole(context.store.table(f"{self.name}/weights", given.shape, np.float64), given)
        context.store.commit(self.name, replace(metadata, weighted=given is not None))
        return HeatKernel.open(context, self.name, self.kernel)


def _open_weight(kernel: SparseKernel, context: Context, name: str) -> np.ndarray:
    values = context.read_whole(context.store.open_table(f"{name}/weights"))
    sound = values.shape == (kernel.shape[0],) and all(
        (np.isfinite(values[start:stop]) & (values[start:stop] > 0)).all() for start, stop in pieces(len(values))
    )
    if not sound:
        raise wrong_numbers(f"{name}/weights")
    return values


def _point_weights(kernel: SparseKernel, sample_weight: np.ndarray | None) -> np.ndarray:
    """Weights of the points: multiplicities, or sums of the sample weights of their rows, in the order of the rows."""
    order = kernel.storage_order
    if sample_weight is None and order.group is not None:
        return order.weights

    def sums(start: int, stop: int) -> np.ndarray | float:
        if sample_weight is None:
            return 1.0
        rows, points = order.members(start, stop)
        total = np.zeros(stop - start)
        np.add.at(total, points, sample_weight[rows])
        return total

    return kernel.context.filled(order.n_points, np.float64, sums)


def row_sums(kernel: SparseKernel, vector: np.ndarray, context: Context, purpose: str) -> np.ndarray:
    """``K vector`` for a float64 vector in storage order: one sweep."""
    panels = Panels(context)
    source, target = panels.of(vector), panels.new(vector.shape, np.float64)
    sweep(kernel, RowSums(), source, target, context, purpose=purpose)
    sums = context.filled(len(vector), np.float64, target.rows)
    panels.clear()
    return sums


def top_eigenvector(heat: HeatKernel) -> np.ndarray:
    """Unit eigenvector with eigenvalue 1, for distinct points: ``sqrt(m)``, or ``sqrt(m v)`` (symmetric).

    For A = S K S with S = 1 / (q sqrt(v)) it is sqrt(v), which is ``K (m/q) / q`` under the root. For a bistochastic
    scaling that has not converged it is ``sqrt(m) d' / d``, where d' is the last step from d.
    """
    weights, context = heat.weights, heat.context
    root_v = _root_v(heat) if heat.normalization == "symmetric" else heat.last_change

    def values(start: int, stop: int) -> np.ndarray:
        root: np.ndarray = np.sqrt(weights[start:stop])
        return root if root_v is None else root * root_v[start:stop]

    vector = context.filled(len(weights), np.float64, values)
    length = np.sqrt(sum(float(vector[start:stop] @ vector[start:stop]) for start, stop in pieces(len(vector))))
    for start, stop in pieces(len(vector)):
        vector[start:stop] /= length
    return vector


def _root_v(heat: HeatKernel) -> np.ndarray:
    q = row_sums(heat.kernel, heat.weights, heat.context, "heat")
    scale = heat.scale_points
    return heat.context.filled(len(q), np.float64, lambda start, stop: 1 / (q[start:stop] * scale[start:stop]))


def _symmetric(kernel: SparseKernel, m: np.ndarray, context: Context) -> np.ndarray:
    with context.workers.progress.stage("heat", 2):
        q = row_sums(kernel, m, context, "heat")
        divided = context.filled(len(m), np.float64, lambda start, stop: m[start:stop] / q[start:stop])
        image = row_sums(kernel, divided, context, "heat")

    def scale(start: int, stop: int) -> np.ndarray:
        v = image[start:stop] / q[start:stop]
        values: np.ndarray = 1 / (q[start:stop] * np.sqrt(v))
        return values

    return context.filled(len(m), np.float64, scale)


@dataclass(frozen=True)
class _SinkhornState:
    """Progress of an interrupted iteration."""

    n_iter: int


def _bistochastic(
    kernel: SparseKernel, m: np.ndarray, tol: float, max_iter: int, context: Context, name: str
) -> tuple[np.ndarray, HeatMetadata, np.ndarray | None]:
    """Damped Sinkhorn iteration ``d <- sqrt(d * K(m / d))`` until ``K(m/d)/d`` is 1 within `tol`; stores v = m / d.

    If it stops before, the last d divided by the one before it is returned too.
    """
    weights, panels = Panels(context), Panels(context, f"{name}/saved", _SAVE_SECONDS)
    step = SinkhornStep(weights.of(m).rows)
    saved = panels.load(_SinkhornState, lambda state: True)
    if saved is None:
        begun = context.filled(len(m), np.float64, lambda start, stop: m[start:stop])
        done, v = 0, panels.of(begun)
    else:
        done, v = saved[0].n_iter, saved[1]["v"]
    spare = panels.new(m.shape, np.float64)
    residual, converged, n_iter = np.inf, False, done
    with context.workers.progress.stage("heat", max_iter):
        context.workers.progress.advance(done)
        for n_iter in range(done + 1, max_iter + 1):
            with replaced(spare) as after:
                residuals = sweep(kernel, step, v, after, context, purpose="heat")
            residual = float(np.max(residuals))  # NaN propagates
            converged = residual <= tol
            if converged:
                break
            v, spare = after, v
            if n_iter == max_iter:  # what a resumed run would begin with has no step left, and no step before
                break
            panels.offer(_SinkhornState(n_iter), {"v": v})
    scale = context.filled(len(m), np.float64, lambda start, stop: v.rows(start, stop) / m[start:stop])
    change = None
    if not converged:
        change = context.filled(len(m), np.float64, lambda start, stop: spare.rows(start, stop) / v.rows(start, stop))
    weights.clear()
    panels.clear()
    warning = None
    if not converged:
        warning = warn(
            f"the bistochastic scaling stopped after {max_iter} products at a residual of {residual:.1e} "
            f"(tol={tol:g}). Raise max_iter, or use normalization='symmetric'.",
            ConvergenceWarning,
        )
    return scale, HeatMetadata("bistochastic", n_iter, residual, warning is None, warning), change
