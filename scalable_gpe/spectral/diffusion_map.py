"""Diffusion maps: the top eigenvectors of A."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConnectivityWarning, ConvergenceWarning, warn
from scalable_gpe.execution.panels import Panels
from scalable_gpe.heat.kernel import kernel_components, shared_components
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.slow_modes import ModeSearch

_SCALED = 1e-7  # residual of the scaling up to which the eigenvectors of components are known
_TOL, _LEAST_RESIDUAL = 1e-6, 1e-10  # of an eigenvector: a share of 1 - eigenvalue, and what rounding leaves
_CYCLES = 4  # of the solver in each step of the search
_MORE = 8  # vectors that are searched beside those that are wanted
_MOST_STEPS = 60
_DENSE = 512  # up to this many points a dense solver is used


class DiffusionCoordinates(NamedTuple):
    """A diffusion map: the pair (points, eigenvalues)."""

    points: np.ndarray
    eigenvalues: np.ndarray


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
        In descending order. Of the components, ``heat.kernel.n_connected_components`` is the number (weights below
        1e-12 of the diagonal do not connect rows).

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
    most = heat.kernel.edges.n_points - 1
    k = checks.check_count(n_components, "n_components")
    if k > most:
        raise ValueError(f"n_components must be at most {most}, one less than the number of different rows; got {k}.")
    power = checks.check_positive(power, "power")
    n_parts = heat.kernel.n_connected_components
    if n_parts > k:
        warn(
            f"the kernel has {n_parts} connected components: all of the n_components={k} coordinates "
            "only tell components apart. Raise n_neighbors or epsilon, leave isolated rows out, or map the "
            "components one by one.",
            ConnectivityWarning,
        )
    vectors, values = _top(heat, k)
    points = heat.kernel.storage_order.spread(vectors / np.sqrt(heat.weights)[:, None])
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(k)])
    factors = np.sign(values) ** (int(power) if float(power).is_integer() else 1) * np.abs(values) ** power
    return DiffusionCoordinates(points * (signs * factors), values)


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
    if heat.kernel.n_connected_components == 1 or heat.residual > _SCALED:
        return _KnownVectors(top, np.zeros(len(top), np.int64))
    roots = kernel_components(heat.kernel)[by_user]
    _, first, number = np.unique(roots, return_index=True, return_inverse=True)
    sizes = np.bincount(number, heat.weights[by_user])
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(len(first))
    return _KnownVectors(top, rank[number])


def _top(heat: HeatKernel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of distinct points (storage order), without the top one."""
    known = _known_vectors(heat)
    n_known = min(len(known.shares) - 1, k)
    vectors, values = np.empty((heat.kernel.edges.n_points, k)), np.ones(k)
    vectors[heat.kernel.storage_order.by_user, :n_known] = known.contrasts(n_known)
    if n_known < k:
        few = len(vectors) <= max(_DENSE, 4 * (k - n_known + _MORE))
        solve = _dense if few else _solve
        vectors[:, n_known:], values[n_known:] = solve(heat, known, k - n_known)
    return vectors, values


def _dense(heat: HeatKernel, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors without all known ones, of a dense matrix."""
    by_user, identity = heat.kernel.storage_order.by_user, np.eye(len(known.top))
    stored = np.empty_like(identity)
    stored[by_user] = identity - known.part(identity)
    panels = Panels(heat.context)
    source = panels.of(np.sqrt(heat.step_scale)[:, None] * stored)
    target = panels.new(source.shape, np.float64)
    loop = Product(lambda start, stop: np.sqrt(heat.step_rows(start, stop)))
    sweep(heat.kernel, loop, source, target, heat.context, purpose="interval")  # A times `stored`
    image = target.rows(0, len(stored))[by_user]
    panels.clear()
    # known vectors are moved below the spectrum, where they cannot be mistaken for an eigenvalue 0
    values, vectors = np.linalg.eigh(image - known.part(image) - 2 * known.part(identity))
    order = np.argsort(values)[::-1][:k]
    stored[by_user] = vectors
    return stored[:, order], values[order]


def _solve(heat: HeatKernel, known: _KnownVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors without all known ones, by LOBPCG with the cycles of the two-level solver."""
    panels = Panels(heat.context)
    roots = shared_components(heat.kernel, panels) if len(known.shares) > 1 else None
    basis, rows = CoarseBasis.of(heat, panels), OrdinaryRows.of(heat, panels, roots=roots)
    search = ModeSearch(basis, rows, panels, n_cycles=_CYCLES)
    search.begin(k + _MORE)
    for _ in range(_MOST_STEPS):
        search.step()
        worst = max(mode.residual / max(_TOL * mode.decay, _LEAST_RESIDUAL) for mode in search.modes()[:k])
        if worst <= 1:
            break
    else:
        residual = max(mode.residual for mode in search.modes()[:k])
        warn(
            f"the eigensolver reached a residual of {residual:.1e} in {_MOST_STEPS} steps. Ask for fewer "
            "n_components, raise n_neighbors or epsilon, or use gp_embedding: it needs no eigenvectors.",
            ConvergenceWarning,
        )
    assert search.current is not None
    root = np.sqrt(heat.step_scale)[:, None]
    vectors = search.current.vectors.rows(0, len(root))[:, :k] / root
    values = 1 - search.decays[:k]
    panels.clear()
    return vectors, values
