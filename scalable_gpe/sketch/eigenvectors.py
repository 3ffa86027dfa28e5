"""Diffusion maps: the top eigenvectors of the same operator."""

from typing import Any

import numpy as np

from scalable_gpe.engine import checks
from scalable_gpe.engine.errors import GPEError
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.spectrum import symmetric_product

_TOL = 1e-7
_DENSE = 200  # points up to which all eigenvectors are found at once


def diffusion_map(heat: HeatKernel, n_components: int = 2, power: float = 1) -> tuple[np.ndarray, np.ndarray]:
    r"""Diffusion map :math:`(\lambda_1^t v_1, \dots, \lambda_k^t v_k)`, the known top eigenvector left out.

    The top eigenvector (constant for the bistochastic kernel, :math:`\sqrt v` for the symmetric one) is removed from
    the operator exactly before anything is solved, so it cannot mix with others when the graph is disconnected.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    n_components : int
        Eigenvectors to return.
    power : float
        The time t; eigenvalues are raised to it.

    Returns
    -------
    points : ndarray (N, k) of float64
        Columns of unit eigenvectors times their eigenvalue to the power t; the largest entry of each is positive.
    eigenvalues : ndarray (k,)
        In descending order.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> points, eigenvalues = gpe.diffusion_map(heat, 2)
    >>> points.shape, bool(eigenvalues[0] < 1)
    ((300, 2), True)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel makes it; got {type(heat).__name__}.")
    n_points = heat.kernel.edges.n_points
    most = n_points - 1
    k = checks.check_count(n_components, "n_components")
    if k > most:
        raise ValueError(f"n_components must be at most {most}, one less than the number of different rows; got {k}.")
    power = checks.check_positive(power, "power")
    vectors, values = _top(heat, k)
    numbering = heat.kernel.numbering
    points = numbering.spread(vectors / np.sqrt(heat.weights)[:, None])
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(k)])
    factors = np.sign(values) ** (int(power) if float(power).is_integer() else 1) * np.abs(values) ** power
    return points * (signs * factors), values


def _top(heat: HeatKernel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors, in the space of distinct points and the user's order of sums, without the known one."""
    numbering = heat.kernel.numbering
    n_points = numbering.n_points
    known = top_eigenvector(heat)[numbering.by_user]

    def multiply(vectors: np.ndarray) -> np.ndarray:
        columns = vectors.reshape(n_points, -1)
        stored = np.empty_like(columns, dtype=np.float64)
        stored[numbering.by_user] = columns
        image = symmetric_product(heat, stored)[numbering.by_user]
        # eigenvalue 1 of the known vector becomes -2, below the spectrum
        return (image - 3 * np.outer(known, known @ columns)).reshape(vectors.shape)

    if n_points <= max(_DENSE, 3 * k):
        values, vectors = np.linalg.eigh(multiply(np.eye(n_points)))
        order = np.argsort(values)[::-1][:k]
        values, vectors = values[order], vectors[:, order]
    else:
        values, vectors = _solve(multiply, n_points, k)
    out = np.empty_like(vectors)
    out[numbering.by_user] = vectors
    return out, values


def _solve(multiply: Any, n_points: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    operator = LinearOperator((n_points, n_points), matvec=multiply, matmat=multiply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n_points)
    n_vectors = min(n_points - 1, max(3 * k + 20, 40))
    try:
        values, vectors = eigsh(operator, k, which="LA", v0=start, ncv=n_vectors, tol=1e-9, maxiter=300)
    except ArpackNoConvergence as error:
        raise GPEError(
            f"the eigensolver found {len(error.eigenvalues)} of {k} eigenvectors and gave up. Ask for fewer, or use "
            "gp_embedding, which needs none."
        ) from None
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    residual = float(np.abs(multiply(vectors) - vectors * values).max())
    if residual > _TOL:
        raise GPEError(f"the eigensolver's residual is {residual:.1e}, above {_TOL:g}. Ask for fewer eigenvectors.")
    return values, vectors


def top_eigenvector(heat: HeatKernel) -> np.ndarray:
    """Unit eigenvector of eigenvalue 1 in the space of distinct points: ``sqrt(m)``, or ``sqrt(m v)``.

    For A = S K S with S = 1 / (q sqrt(v)) it is sqrt(v), which is ``K (m/q) / q`` under the root.
    """
    weights = heat.weights
    if heat.normalization == "bistochastic":
        vector = np.sqrt(weights)
    else:
        vector = np.sqrt(weights) * _root_v(heat)
    return vector / np.linalg.norm(vector)


def _root_v(heat: HeatKernel) -> np.ndarray:
    from scalable_gpe.heat.normalization import row_sums

    q = row_sums(heat.kernel, heat.weights, heat.run, "heat")
    return 1 / (q * heat.scale_points)
