"""Diffusion maps: the top eigenvectors of A."""

from collections.abc import Callable

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConvergenceWarning, Message, warn
from scalable_gpe.execution.panels import Panels
from scalable_gpe.heat.normalization import HeatKernel, RootScale, top_eigenvector
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.spectral.chebyshev import series

Multiply = Callable[[np.ndarray], np.ndarray]

_TOL = 1e-7
_FILTERS = (65, 65, 257, 1025, 4097, 4097)  # odd, to keep the order of the eigenvalues
_DENSE = 200  # up to this many points a dense solver is used


def diffusion_map(heat: HeatKernel, n_components: int = 2, power: float = 1) -> tuple[np.ndarray, np.ndarray]:
    r"""Diffusion map :math:`(\lambda_1^t v_1, \dots, \lambda_k^t v_k)`, without the known top eigenvector.

    The top eigenvector (constant for the bistochastic kernel, :math:`\sqrt v` for the symmetric one) is removed from
    the operator exactly before anything is solved, so it cannot mix with others when the graph is disconnected.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    n_components : int
        Number of eigenvectors.
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
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.torus(300), 16)))
    >>> points, eigenvalues = gpe.diffusion_map(heat, 2)
    >>> points.shape, bool(eigenvalues[0] < 1)
    ((300, 2), True)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel returns it; got {type(heat).__name__}.")
    n_points = heat.kernel.edges.n_points
    most = n_points - 1
    k = checks.check_count(n_components, "n_components")
    if k > most:
        raise ValueError(
            Message(f"`n_components` must be at most {most}, one less than the number of different rows; got {k}.")
        )
    power = checks.check_positive(power, "power")
    vectors, values = _top(heat, k)
    storage_order = heat.kernel.storage_order
    points = storage_order.spread(vectors / np.sqrt(heat.weights)[:, None])
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(k)])
    factors = np.sign(values) ** (int(power) if float(power).is_integer() else 1) * np.abs(values) ** power
    return points * (signs * factors), values


def _top(heat: HeatKernel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of distinct points, without the known one; sums run in the user's order."""
    storage_order = heat.kernel.storage_order
    n_points = storage_order.n_points
    known = top_eigenvector(heat)[storage_order.by_user]

    def multiply(vectors: np.ndarray) -> np.ndarray:
        columns = vectors.reshape(n_points, -1)
        stored = np.empty_like(columns, dtype=np.float64)
        stored[storage_order.by_user] = columns - np.outer(known, known @ columns)
        image = symmetric_product(heat, stored)[storage_order.by_user]
        left: np.ndarray = image - np.outer(known, known @ image)
        return left.reshape(vectors.shape)

    if n_points <= max(_DENSE, 3 * k):
        # the known vector is moved below the spectrum, where it cannot be mistaken for an eigenvalue 0
        values, vectors = np.linalg.eigh(multiply(np.eye(n_points)) - 2 * np.outer(known, known))
        order = np.argsort(values)[::-1][:k]
        values, vectors = values[order], vectors[:, order]
    else:
        values, vectors = _solve(multiply, known, k)
    out = np.empty_like(vectors)
    out[storage_order.by_user] = vectors
    return out, values


def _solve(multiply: Multiply, known: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Solve with ARPACK, which is fast, or by block iteration if eigenvalues coincide, as in disconnected graphs."""
    found = _arpack(multiply, known, k)
    if found is not None:
        return found
    block = np.random.default_rng(0).standard_normal((len(known), k + min(k + 4, 16, len(known) - 1 - k)))
    for power in _FILTERS:
        block, _ = np.linalg.qr(_filtered(multiply, power)(block))
        vectors, values, residual = _ritz(multiply, block, k)
        if residual <= _TOL:
            return values, vectors
    warn(
        f"the eigensolver reached a residual of {residual:.1e}, above {_TOL:g}: many eigenvalues lie close to 1, as in "
        "a nearly disconnected graph. Raise `n_neighbors` or epsilon, or use gp_embedding: it needs no eigenvectors.",
        ConvergenceWarning,
    )
    return values, vectors


def _arpack(multiply: Multiply, known: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray] | None:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n_points = len(known)

    def lowered(vector: np.ndarray) -> np.ndarray:
        vector = np.ravel(vector)
        image: np.ndarray = multiply(vector) - 2 * (known @ vector) * known
        return image

    operator = LinearOperator((n_points, n_points), matvec=lowered, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n_points)
    n_vectors = min(n_points - 1, max(2 * k + 20, 40))
    try:
        _, basis = eigsh(operator, k, which="LA", v0=start, ncv=n_vectors, tol=1e-10, maxiter=20)
    except ArpackNoConvergence:
        return None
    vectors, values, residual = _ritz(multiply, basis, k)
    return (values, vectors) if residual <= _TOL else None


def _ritz(multiply: Multiply, basis: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Best approximations to k eigenvectors in the span of a basis, and the largest residual."""
    image = multiply(basis)
    values, rotation = np.linalg.eigh(basis.T @ image)
    values, rotation = values[::-1][:k], rotation[:, ::-1][:, :k]
    vectors = basis @ rotation
    return vectors, values, float(np.abs(image @ rotation - vectors * values).max())


def _filtered(multiply: Multiply, power: int) -> Multiply:
    """``A^power`` by its Chebyshev series on [-1, 1], which separates the eigenvalues near 1."""
    coefficients = series(power, -1.0)
    degree = int(np.flatnonzero(np.abs(coefficients) > 1e-13)[-1])

    def apply(vector: np.ndarray) -> np.ndarray:
        before, now = vector, multiply(vector)
        total: np.ndarray = coefficients[0] * before + coefficients[1] * now
        for j in range(2, degree + 1):
            before, now = now, 2 * multiply(now) - before
            total += coefficients[j] * now
        return total

    return apply


def symmetric_product(heat: HeatKernel, vectors: np.ndarray) -> np.ndarray:
    """``A V`` for distinct points in storage order, float64: one sweep."""
    context = heat.context
    panels = Panels(context)
    source = panels.of(np.ascontiguousarray(np.sqrt(heat.step_scale)[:, None] * vectors))
    target = panels.new(source.shape, np.float64)
    sweep(heat.kernel, Product(RootScale(heat)), source, target, context, purpose="interval")
    result = target.rows(0, source.shape[0])
    panels.clear()
    return result
