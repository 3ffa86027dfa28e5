"""Diffusion maps: the top eigenvectors of A."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConnectivityWarning, ConvergenceWarning, Message, warn
from scalable_gpe.execution.panels import Panels
from scalable_gpe.heat.kernel import kernel_components
from scalable_gpe.heat.normalization import HeatKernel, RootScale, top_eigenvector
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.spectral.chebyshev import series

Multiply = Callable[[np.ndarray], np.ndarray]

_TOL = 1e-7
_FILTERS = (65, 65, 257, 1025, 4097, 4097)  # odd, to keep the order of the eigenvalues
_DENSE = 200  # up to this many points a dense solver is used
_DENSE_IF_NEEDED = 2000  # and up to this many if no iteration converges


class _Map(NamedTuple):
    points: np.ndarray
    eigenvalues: np.ndarray


class DiffusionCoordinates(_Map):
    """A diffusion map: the pair (points, eigenvalues), with the number of connected components of K beside it."""

    n_kernel_components: int


def diffusion_map(heat: HeatKernel, n_components: int = 2, power: float = 1) -> DiffusionCoordinates:
    r"""Diffusion map :math:`(\lambda_1^t v_1, \dots, \lambda_k^t v_k)`, without the known top eigenvector.

    The top eigenvector u (constant for the bistochastic kernel, :math:`\sqrt v` for the symmetric one) is removed from
    the operator exactly before anything is solved, so it cannot mix with others when the graph is disconnected.

    A kernel of c connected components has the eigenvalue 1 c times: u, and c - 1 vectors that tell components apart.
    These come first, in a fixed order: the j-th one is a positive multiple of u on the j-th largest component, a
    negative one on all smaller components, and 0 on larger ones. (Largest by number of rows; of equal ones, the one
    with the first row.) An isolated row is a component.

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
        With sample weights w, eigenvectors are divided by sqrt(w): the sum of w_i v_i^2 is 1, as for repeated rows.
    eigenvalues : ndarray (k,)
        In descending order. The pair that holds both has the attribute ``n_kernel_components``, the number of
        components c (weights below 1e-12 of the diagonal do not connect rows).

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
    n_kernel_components = heat.kernel.n_connected_components
    if n_kernel_components > k:
        warn(
            f"the kernel has {n_kernel_components} connected components: all of the `n_components={k}` coordinates "
            "only tell components apart. Raise `n_neighbors` or epsilon, leave isolated rows out, or map the "
            "components one by one.",
            ConnectivityWarning,
        )
    vectors, values = _top(heat, k)
    storage_order = heat.kernel.storage_order
    points = storage_order.spread(vectors / np.sqrt(heat.weights)[:, None])
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(k)])
    factors = np.sign(values) ** (int(power) if float(power).is_integer() else 1) * np.abs(values) ** power
    found = DiffusionCoordinates(points * (signs * factors), values)
    found.n_kernel_components = n_kernel_components
    return found


@dataclass(frozen=True)
class _KnownVectors:
    """Eigenvectors with eigenvalue 1: the parts of `top` on the connected components of K.

    Points are in the user's order. `component` numbers the component of each point, 0 for the largest.
    """

    top: np.ndarray
    component: np.ndarray

    @cached_property
    def shares(self) -> np.ndarray:
        """Squared length of each eigenvector; their sum is 1."""
        return np.bincount(self.component, self.top**2)

    def part(self, columns: np.ndarray) -> np.ndarray:
        """Part of one vector, or of each column, in the span of the eigenvectors."""
        if len(self.shares) == 1:
            alone: np.ndarray = np.multiply.outer(self.top, self.top @ columns)
            return alone
        weighted = (columns.T * self.top).reshape(-1, len(self.top))
        sums = np.stack([np.bincount(self.component, row) for row in weighted]) / self.shares
        along: np.ndarray = (sums[:, self.component] * self.top).T
        return along.reshape(columns.shape)

    def contrasts(self, n_vectors: int) -> np.ndarray:
        """Unit vectors, orthogonal to `top` and to each other: each component against all smaller ones."""
        vectors = np.zeros((len(self.top), n_vectors))
        for j in range(n_vectors):
            own, rest = self.shares[j], self.shares[j + 1 :].sum()
            here, smaller = self.component == j, self.component > j
            vectors[here, j] = np.sqrt(rest / (own * (own + rest))) * self.top[here]
            vectors[smaller, j] = -np.sqrt(own / (rest * (own + rest))) * self.top[smaller]
        return vectors


def _known_vectors(heat: HeatKernel) -> _KnownVectors:
    """Known eigenvectors; the components count only where the scaling is exact enough to know theirs."""
    by_user = heat.kernel.storage_order.by_user
    top = top_eigenvector(heat)[by_user]
    if heat.kernel.n_connected_components == 1 or heat.residual > _TOL:
        return _KnownVectors(top, np.zeros(len(top), np.int64))
    roots = kernel_components(heat.kernel)[by_user]
    _, first, number = np.unique(roots, return_index=True, return_inverse=True)
    sizes = np.bincount(number, heat.weights[by_user])
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(len(first))
    return _KnownVectors(top, rank[number])


def _top(heat: HeatKernel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of distinct points, without the top one; sums run in the user's order."""
    storage_order = heat.kernel.storage_order
    known = _known_vectors(heat)
    n_known = min(len(known.shares) - 1, k)
    vectors, values = known.contrasts(n_known), np.ones(n_known)
    if n_known < k:
        others, lower = _others(heat, known, k - n_known)
        vectors, values = np.hstack([vectors, others]), np.concatenate([values, lower])
    out = np.empty_like(vectors)
    out[storage_order.by_user] = vectors
    return out, values


def _others(heat: HeatKernel, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of distinct points (the user's order), without all known ones."""
    storage_order = heat.kernel.storage_order
    n_points = storage_order.n_points

    def multiply(vectors: np.ndarray) -> np.ndarray:
        columns = vectors.reshape(n_points, -1)
        stored = np.empty_like(columns, dtype=np.float64)
        stored[storage_order.by_user] = columns - known.part(columns)
        image = symmetric_product(heat, stored)[storage_order.by_user]
        left: np.ndarray = image - known.part(image)
        return left.reshape(vectors.shape)

    solve = _dense if n_points <= max(_DENSE, 3 * k) else _solve
    return solve(multiply, known, k)


def _dense(multiply: Multiply, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Solve as a dense matrix."""
    identity = np.eye(len(known.top))
    # known vectors are moved below the spectrum, where they cannot be mistaken for an eigenvalue 0
    values, vectors = np.linalg.eigh(multiply(identity) - 2 * known.part(identity))
    order = np.argsort(values)[::-1][:k]
    return vectors[:, order], values[order]


def _solve(multiply: Multiply, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Solve with ARPACK, which is fast, or by block iteration if eigenvalues coincide, as those of equal clusters."""
    n_points = len(known.top)
    found = _arpack(multiply, known, k)
    if found is not None:
        return found
    n_left = n_points - len(known.shares) - k
    block = np.random.default_rng(0).standard_normal((n_points, k + min(k + 4, 16, n_left)))
    for power in _FILTERS:
        block, _ = np.linalg.qr(_filtered(multiply, power)(block))
        vectors, values, residual = _ritz(multiply, block, k)
        if residual <= _TOL:
            return vectors, values
    if n_points <= _DENSE_IF_NEEDED:
        return _dense(multiply, known, k)
    warn(
        f"the eigensolver reached a residual of {residual:.1e}, above {_TOL:g}: many eigenvalues lie close to 1, as in "
        "a nearly disconnected graph. Raise `n_neighbors` or epsilon, or use gp_embedding: it needs no eigenvectors.",
        ConvergenceWarning,
    )
    return vectors, values


def _arpack(multiply: Multiply, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Eigenvectors from one start vector, or None if it has not found all of them."""

    def lowered(vector: np.ndarray) -> np.ndarray:
        vector = np.ravel(vector)
        image: np.ndarray = multiply(vector) - 2 * known.part(vector)
        return image

    n_points = len(known.top)
    start, again = (np.random.default_rng(seed).standard_normal(n_points) for seed in (0, 1))
    basis = _lanczos_basis(lowered, start, k, 1e-10)
    if basis is None:
        return None
    vectors, values, residual = _ritz(multiply, basis, k)
    if residual > _TOL:
        return None

    def remaining(vector: np.ndarray) -> np.ndarray:
        vector = np.ravel(vector)
        image: np.ndarray = lowered(vector) - vectors @ ((values + 1) * (vectors.T @ vector))
        return image

    # one start vector sees one eigenvector of each eigenvalue: a second one must find nothing above
    other = _lanczos_basis(remaining, again, 1, max(0.1 * (1 - values[-1]), _TOL))
    if other is None or float(other[:, 0] @ remaining(other[:, 0])) > values[-1] + _TOL:
        return None
    return vectors, values


def _lanczos_basis(multiply: Multiply, start: np.ndarray, k: int, tol: float) -> np.ndarray | None:
    """Top eigenvectors by ARPACK, or None if it does not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n_points = len(start)
    operator = LinearOperator((n_points, n_points), matvec=multiply, dtype=np.float64)
    n_vectors = min(n_points - 1, max(2 * k + 20, 40))
    try:
        _, basis = eigsh(operator, k, which="LA", v0=start, ncv=n_vectors, tol=tol, maxiter=20)
    except ArpackNoConvergence:
        return None
    return np.asarray(basis)


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
