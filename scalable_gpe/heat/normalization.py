"""Both normalisations as one diagonal scaling: A = S K S."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConvergenceWarning, warn
from scalable_gpe.execution.context import Context, Named
from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.heat.kernel import SparseKernel, apply, from_scipy, to_scipy

NORMALIZATIONS = ("bistochastic", "symmetric")
_SAVE_SECONDS = 2.0


@dataclass(frozen=True)
class HeatKernel(Named):
    """The operator A = S K S; never formed, ``@`` multiplies in the user's order.

    ``residual`` is the largest difference of a row sum from 1 (bistochastic), 0 for the symmetric form.
    """

    kernel: SparseKernel
    name: str
    normalization: str
    scale_points: np.ndarray
    n_iter: int
    residual: float
    converged: bool

    def _before(self) -> SparseKernel:
        return self.kernel

    @staticmethod
    def _open(context: Context, name: str, before: Any) -> "HeatKernel":
        return open_heat(before, context, name)

    @property
    def context(self) -> Context:
        """Where it runs."""
        return self.kernel.context

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
        return self.kernel.storage_order.spread(self.scale_points)

    @property
    def weights(self) -> np.ndarray:
        """Multiplicities of the points (storage order)."""
        return self.kernel.storage_order.weights

    @cached_property
    def step_scale(self) -> np.ndarray:
        """Diagonal of S^2 M: with Z = S x, one application of A to x is ``Z <- S^2 M K Z``."""
        return self.scale_points**2 * self.weights

    @property
    def n_isolated(self) -> int:
        """Rows that keep more than 0.99 of their heat to themselves (and their duplicates)."""
        alone = self.step_scale > 0.99
        return int(self.weights[alone].sum())

    @property
    def is_centred(self) -> bool:
        """Whether the constant vector is an eigenvector of eigenvalue 1, so that it may be removed."""
        return self.normalization == "bistochastic" and self.converged

    def __matmul__(self, other: Any) -> np.ndarray:
        return apply(self.kernel, other, self.scale_points)

    def to_scipy(self) -> Any:
        """Give the whole matrix as a scipy CSR matrix, rows and columns in the user's order."""
        return to_scipy(self.kernel, self.scale_points)


def heat_kernel(
    kernel: Any, normalization: str = "bistochastic", *, tol: float = 1e-8, max_iter: int = 1000
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
        Products after which the iteration gives up (with a warning; the result is still usable).

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
    return make_heat(
        kernel, normalization, tol, max_iter, kernel.context, f"heat/{kernel.name}/{normalization}-{tol}-{max_iter}"
    )


def make_heat(
    kernel: SparseKernel, normalization: str, tol: float, max_iter: int, context: Context, name: str
) -> HeatKernel:
    """Find the scale, and mark it under `name`."""
    if normalization == "symmetric":
        scale, n_iter, residual, warning = _symmetric(kernel, context), 2, 0.0, None
    else:
        scale, n_iter, residual, warning = _bistochastic(kernel, tol, max_iter, context, name)
    table = context.store.table(f"{name}/scale", scale.shape, np.float64)
    for start in range(0, len(scale), table.shard_rows):
        table.write(start, scale[start : start + table.shard_rows])
    metadata = {"normalization": normalization, "n_iter": n_iter, "residual": residual, "converged": warning is None}
    if warning is not None:
        metadata["warning"] = warning
    context.store.commit(name, metadata)
    return open_heat(kernel, context, name)


def open_heat(kernel: SparseKernel, context: Context, name: str) -> HeatKernel:
    """Heat kernel that is marked complete under `name`."""
    metadata = context.store.metadata(name)
    if metadata is None:
        raise KeyError(name)
    scale = context.store.open_table(f"{name}/scale").read(0, kernel.edges.n_points)
    known = {key: metadata[key] for key in ("normalization", "n_iter", "residual", "converged")}
    return HeatKernel(kernel=kernel, name=name, scale_points=scale, **known)


def row_sums(kernel: SparseKernel, vector: np.ndarray, context: Context, kind: str) -> np.ndarray:
    """``K vector`` for a float64 vector in storage order: one sweep."""
    from scalable_gpe.loops import sparse

    panels = Panels(context, context.scratch())
    source, target = panels.of(vector), panels.new(vector.shape, np.float64)

    def sum_rows(block: int) -> None:
        first, indptr, indices, weights = kernel.edges.block(block)
        out = target.room(first, first + len(indptr) - 1)
        sparse.row_sums(indptr, indices, weights, source.whole(indices), out)
        target.put(first, out)

    context.workers.map(sum_rows, range(kernel.edges.n_blocks), count=False)
    context.count_sweep(kind)
    sums = target.rows(0, len(vector))
    panels.clear()
    return sums


def _symmetric(kernel: SparseKernel, context: Context) -> np.ndarray:
    m = kernel.storage_order.weights
    with context.workers.progress.stage("heat", 2):
        q = row_sums(kernel, m, context, "heat")
        context.workers.progress.advance()
        v = row_sums(kernel, m / q, context, "heat") / q
        context.workers.progress.advance()
    return 1 / (q * np.sqrt(v))


def _bistochastic(
    kernel: SparseKernel, tol: float, max_iter: int, context: Context, name: str
) -> tuple[np.ndarray, int, float, str | None]:
    """Damped Sinkhorn: ``d <- sqrt(d * K(m / d))`` until ``K(m/d)/d`` is 1 to `tol`; kept as v = m / d.

    Gives the scale, the sweeps, the residual, and a warning where it did not get there.
    """
    m = kernel.storage_order.weights
    panels = Panels(context, f"{name}/saved", _SAVE_SECONDS)
    saved = panels.load()
    done, v = (saved[0]["n_iter"], saved[1]["v"]) if saved else (0, panels.of(m.copy()))
    spare = panels.new(m.shape, np.float64)
    residual, converged, n_iter = np.inf, False, done
    with context.workers.progress.stage("heat", max_iter):
        context.workers.progress.advance(done)
        for n_iter in range(done + 1, max_iter + 1):
            with replaced(spare) as after:
                residual = _sinkhorn(kernel, v, after, context)
            converged = residual <= tol
            if converged:
                break
            v, spare = after, v
            context.workers.progress.advance()
            panels.offer({"n_iter": n_iter}, {"v": v})
    scale = v.rows(0, len(m)) / m
    panels.clear()
    warning = None
    if not converged:
        warning = warn(
            f"the bistochastic scaling stopped after {max_iter} products at a residual of {residual:.1e} (tol={tol:g})."
            " Raise max_iter, or use normalization='symmetric'.",
            ConvergenceWarning,
        )
    return scale, n_iter, residual, warning


def _sinkhorn(kernel: SparseKernel, v: Panel, after: Panel, context: Context) -> float:
    """One damped step from v to `after`: one sweep; gives the residual of v."""
    from scalable_gpe.loops import sparse

    def sinkhorn_step(block: int) -> float:
        first, indptr, indices, weights = kernel.edges.block(block)
        out = after.room(first, first + len(indptr) - 1)
        worst = sparse.sinkhorn_step(
            indptr, indices, weights, v.whole(indices), kernel.storage_order.weights, first, out
        )
        after.put(first, out)
        return float(worst)

    residuals = context.workers.map(sinkhorn_step, range(kernel.edges.n_blocks), count=False)
    context.count_sweep("heat")
    return float(np.max(residuals))
