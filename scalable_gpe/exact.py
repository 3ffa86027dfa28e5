"""Dense reference implementation of the paper, in float64.

::

    K_ij = exp(-|x_i - x_j|^2 / epsilon)
    A    = S K S with a diagonal S        (symmetric or bistochastic)
    Y    = A^p G / sqrt(k)

The rest of the library is tested against this module, whose formulas use only numpy and scipy. It holds N x N matrices:
use it for up to some thousands of points.

References
----------
A. Gilbert and K. O'Neill, "Sketching the Heat Kernel: Using Gaussian Processes to Embed Data".
"""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from scalable_gpe import checks

Array = npt.NDArray[np.float64]

__all__ = [
    "affinity",
    "local_affinity",
    "symmetric",
    "bistochastic",
    "heat_kernel",
    "gp_embedding",
    "diffusion_map",
    "diffusion_distances",
    "bilipschitz",
]


def affinity(X: npt.ArrayLike, epsilon: float) -> Array:
    r"""Gaussian affinity of all pairs of rows.

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \qquad K_{ii} = 1

    Parameters
    ----------
    X : array_like, N x d
        One point per row.
    epsilon : float
        Squared length scale. Other libraries write :math:`2\epsilon`, :math:`4\epsilon` or
        :math:`\epsilon^2` where this one writes :math:`\epsilon`.

    Returns
    -------
    ndarray, N x N
        Symmetric, entries in [0, 1].

    Examples
    --------
    >>> from scalable_gpe import exact
    >>> exact.affinity([[0.0], [2.0]], epsilon=4.0).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """
    return _gaussian(_matrix(X, "X", 2), checks.check_positive(epsilon, "epsilon"))


def local_affinity(X: npt.ArrayLike, sigma: npt.ArrayLike) -> Array:
    r"""Gaussian affinity with one length scale per row, for data of uneven density.

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / (\sigma_i \sigma_j)), \qquad K_{ii} = 1

    Equivalent to ``affinity(X, s**2)`` when all length scales are s. A kernel made with ``epsilon="local"`` has its
    length scales in ``sigma``.

    Parameters
    ----------
    X : array_like, N x d
        One point per row.
    sigma : array_like, N
        Length scale of each row, above 0.

    Returns
    -------
    ndarray, N x N
        Symmetric, entries in [0, 1].

    Examples
    --------
    >>> from scalable_gpe import exact
    >>> exact.local_affinity([[0.0], [2.0]], sigma=[1.0, 4.0]).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """
    points = _matrix(X, "X", 2)
    scales = _one_per_row(sigma, len(points), "sigma")
    return _gaussian(points, np.outer(scales, scales))


def symmetric(K: npt.ArrayLike, *, sample_weight: npt.ArrayLike | None = None) -> Array:
    r"""Symmetric normalisation of an affinity matrix (the paper's Algorithm 1).

    .. math:: q = K 1, \quad v_i = \sum_j K_{ij} / (q_i q_j), \quad
              A_{ij} = \frac{K_{ij}}{q_i q_j \sqrt{v_i v_j}}

    The spectrum lies in [-1, 1]; the top eigenvector is :math:`\sqrt{v}` with eigenvalue 1.

    Parameters
    ----------
    K : array_like, N x N
        Symmetric, non-negative, with a positive diagonal.
    sample_weight : array_like, N, optional
        Weight of each row, above 0. The sums over j are weighted by w_j, and A is multiplied by
        :math:`\sqrt{w_i w_j}`.

    Returns
    -------
    ndarray, N x N

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import exact
    >>> A = exact.symmetric(exact.affinity([[0.0], [1.0], [3.0]], 1.0))
    >>> bool(np.isclose(np.linalg.eigvalsh(A)[-1], 1.0))
    True
    """
    K = _kernel(K)
    w = np.ones(len(K)) if sample_weight is None else _one_per_row(sample_weight, len(K), "sample_weight")
    q = (K * w).sum(axis=1)
    v = (K * w / np.outer(q, q)).sum(axis=1)
    return _scale(K, np.sqrt(w) / (q * np.sqrt(v)))


def bistochastic(
    K: npt.ArrayLike, tol: float = 1e-8, *, max_iter: int = 1000, sample_weight: npt.ArrayLike | None = None
) -> Array:
    r"""Bistochastic normalisation of an affinity matrix: all row and column sums are 1.

    .. math:: A = D^{-1} K D^{-1}, \qquad A 1 = 1

    The scaling is the limit of the damped iteration :math:`d \leftarrow \sqrt{d \cdot K(1/d)}`. The paper's
    :math:`d \leftarrow K(1/d)` has the same limit, for the geometric means of consecutive iterates; it takes hundreds
    or thousands of products, the damped iteration some twenty.

    Parameters
    ----------
    K : array_like, N x N
        Symmetric, non-negative, with a positive diagonal.
    tol : float
        Largest deviation of a row sum from 1.
    max_iter : int
        Largest number of products with K. If that is not enough, the last matrix is returned with a
        ``RuntimeWarning``.
    sample_weight : array_like, N, optional
        Weight of each row, above 0: :math:`A = W^{1/2} D^{-1} K D^{-1} W^{1/2}` with :math:`d = K(w/d)`, so that
        :math:`A \sqrt w = \sqrt w`.

    Returns
    -------
    ndarray, N x N

    Examples
    --------
    >>> from scalable_gpe import exact
    >>> exact.bistochastic([[4.0]]).tolist()
    [[1.0]]
    >>> exact.bistochastic(exact.affinity([[0.0], [1.0], [3.0]], 1.0)).sum(axis=1).round(7).tolist()
    [1.0, 1.0, 1.0]
    """
    K, tol = _kernel(K), checks.check_positive(tol, "tol")
    w = np.ones(len(K)) if sample_weight is None else _one_per_row(sample_weight, len(K), "sample_weight")
    d = np.ones(len(K))
    for _ in range(checks.check_count(max_iter, "max_iter")):
        product = K @ (w / d)
        residual = np.abs(product / d - 1).max()
        if residual <= tol:
            break
        d = np.sqrt(d * product)
    else:
        warnings.warn(
            f"bistochastic did not reach tol={tol:g} in max_iter={max_iter} products: before the last step "
            f"a row sum was off by {residual:.2g}. Raise max_iter, or raise tol if it is close to rounding.",
            RuntimeWarning,
            stacklevel=2,
        )
    return _scale(K, np.sqrt(w) / d)


def heat_kernel(
    X: npt.ArrayLike,
    epsilon: float,
    normalization: str = "bistochastic",
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> Array:
    r"""Heat kernel of a point set: its affinity, normalised.

    .. math:: A = S K S, \qquad K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon)

    Equivalent to ``bistochastic(affinity(X, epsilon))`` or ``symmetric(affinity(X, epsilon))``.

    Parameters
    ----------
    X : array_like, N x d
        One point per row.
    epsilon : float
        Squared length scale.
    normalization : {"bistochastic", "symmetric"}
        How K is scaled.
    sample_weight : array_like, N, optional
        Weight of each row, above 0. Integer weights have the effect of repeated rows; the rows of
        :math:`W^{-1/2} A^p` then have the distances that the repeated rows have.

    Returns
    -------
    ndarray, N x N

    Examples
    --------
    >>> from scalable_gpe import exact
    >>> exact.heat_kernel([[0.0], [0.0]], 1.0).round(3).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    checks.check_choice(normalization, ("bistochastic", "symmetric"), "normalization")
    K = affinity(X, epsilon)
    if normalization == "symmetric":
        return symmetric(K, sample_weight=sample_weight)
    return bistochastic(K, sample_weight=sample_weight)


def gp_embedding(
    A: npt.ArrayLike, G: npt.ArrayLike, power: int | str, horizon: int | None = None, first_power: int = 1
) -> Array:
    r"""Gaussian process embedding: a sketch of a power of the heat kernel (Algorithms 4 and 5).

    .. math:: Y = A^p G / \sqrt{k}, \qquad E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    Y is not centred, as in the paper.

    Parameters
    ----------
    A : array_like, N x N
        A heat kernel.
    G : array_like, N x k
        Independent N(0, 1) or symmetric Bernoulli entries, for instance
        :func:`scalable_gpe.sketch_matrix`.
    power : int or "all"
        p, at least 1; or "all", the sum of all powers from the first power m on,
        :math:`f(A) = A^m (I - (1 - 1/T) A)^{-1}`, in place of :math:`A^p`. Nothing is removed from G.
    horizon : int, optional
        T; needed for "all".
    first_power : int
        m, for "all".

    Returns
    -------
    ndarray, N x k

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import exact
    >>> exact.gp_embedding(np.diag([1.0, 0.5]), np.eye(2), power=2).round(4).tolist()
    [[0.7071, 0.0], [0.0, 0.1768]]
    """
    A, G = _square(A, "A"), _matrix(G, "G")
    if len(G) != len(A):
        raise ValueError(f"G must have one row per row of A ({len(A)}); got {len(G)}. Draw G with N rows.")
    Y: Array = G / np.sqrt(G.shape[1])
    if power == checks.ALL:
        return _all_powers(A, horizon, first_power) @ Y
    for _ in range(checks.check_count(power, "power")):
        Y = A @ Y
    return Y


def diffusion_map(A: npt.ArrayLike, n_components: int, time: float) -> Array:
    r"""Diffusion map: eigenvectors of the heat kernel, weighted by their eigenvalues (Algorithm 3).

    .. math:: y_i = (\lambda_1^t (v_1)_i, \ldots, \lambda_k^t (v_k)_i), \qquad
              \lambda_0 \ge \lambda_1 \ge \ldots

    The top eigenvector is left out. Each eigenvector has the sign that makes its largest entry positive. Vectors of a
    multiple eigenvalue are those that the solver returns: for disconnected data, any of eigenvalue 1 may be left out.

    Parameters
    ----------
    A : array_like, N x N
        A heat kernel.
    n_components : int
        k, from 1 to N - 1.
    time : float
        t > 0; must be whole if one of the k eigenvalues is negative.

    Returns
    -------
    ndarray, N x k

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import exact
    >>> exact.diffusion_map(np.diag([1.0, 0.5, 0.25]), n_components=2, time=2).tolist()
    [[0.0, 0.0], [0.25, 0.0], [0.0, 0.0625]]
    """
    A, time = _square(A, "A", min_rows=2), checks.check_positive(time, "time")
    k = checks.check_count(n_components, "n_components", maximum=len(A) - 1)
    ascending = eigh(A, subset_by_index=(len(A) - k - 1, len(A) - 2))
    values: Array = ascending[0][::-1]
    vectors: Array = ascending[1][:, ::-1]
    if values[-1] < 0 and time != int(time):
        raise ValueError(
            f"time must be a whole number here, because eigenvalue {values[-1]:.3g} is negative; got {time}. "
            "Round it, or lower n_components."
        )
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(k)])
    return np.asarray(values**time * vectors * signs)


def diffusion_distances(A: npt.ArrayLike, power: int | str, horizon: int | None = None, first_power: int = 1) -> Array:
    r"""Diffusion distances of all pairs, condensed, in the order of :func:`scipy.spatial.distance.pdist`.

    .. math:: d(i, j) = |(A^p)_i - (A^p)_j|
              = \Bigl(\sum_l \lambda_l^{2p} ((v_l)_i - (v_l)_j)^2\Bigr)^{1/2}

    Parameters
    ----------
    A : array_like, N x N
        A heat kernel.
    power : int or "all"
        p, at least 1; or "all", :math:`A^m (I - (1 - 1/T) A)^{-1}` in place of :math:`A^p`.
    horizon : int, optional
        T; needed for "all".
    first_power : int
        m, for "all".

    Returns
    -------
    ndarray, N (N - 1) / 2

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import exact
    >>> exact.diffusion_distances(np.diag([1.0, 0.5, 0.0]), power=1).round(4).tolist()
    [1.118, 1.0, 0.5]
    """
    A = _square(A, "A", min_rows=2)
    if power == checks.ALL:
        return np.asarray(pdist(_all_powers(A, horizon, first_power)))
    return np.asarray(pdist(np.linalg.matrix_power(A, checks.check_count(power, "power"))))


def _all_powers(A: Array, horizon: int | None, first_power: int) -> Array:
    """``A^m + c A^(m+1) + c^2 A^(m+2) + ... = A^m (I - c A)^-1`` with c = 1 - 1/T, by eigenvalues."""
    first_power, horizon = checks.check_count(first_power, "first_power"), checks.check_count(horizon, "horizon")
    values, vectors = np.linalg.eigh(A)
    sums = values**first_power / (1 - values + values / horizon)
    return np.asarray((vectors * sums) @ vectors.T)


def bilipschitz(Y: npt.ArrayLike, distances: npt.ArrayLike) -> float:
    r"""Bi-Lipschitz constant of an embedding up to scale: largest over smallest dilation.

    .. math:: L = \frac{\max_{i \ne j} |y_i - y_j| / d_{ij}}{\min_{i \ne j} |y_i - y_j| / d_{ij}}

    A perfect embedding has L = 1. L is infinite when the embedding collapses two distinct points or separates two
    identical ones. Pairs with distance 0 whose images coincide are left out.

    Parameters
    ----------
    Y : array_like, N x k
        The embedded points.
    distances : array_like, N (N - 1) / 2
        The distances, condensed, to which the straight-line distances of Y should be proportional.

    Returns
    -------
    float
        L, not its logarithm.

    Examples
    --------
    >>> from scalable_gpe import exact
    >>> exact.bilipschitz([[0.0], [1.0], [3.0]], [1.0, 3.0, 4.0])
    2.0
    """
    images, distances = pdist(_matrix(Y, "Y", 2)), np.asarray(distances, dtype=np.float64)
    if distances.shape != images.shape:
        raise ValueError(
            f"distances must be condensed, of shape {images.shape} for {len(np.asarray(Y))} rows of Y; got "
            f"shape {distances.shape}. scipy.spatial.distance.squareform converts a square matrix."
        )
    if not (np.isfinite(distances) & (distances >= 0)).all():
        raise ValueError("distances must be finite and non-negative; some are not. Remove these points.")
    distinct = (images > 0) | (distances > 0)
    if not distinct.any():
        raise ValueError("Y must hold at least two distinct points; all rows are equal. Pass other points.")
    with np.errstate(divide="ignore"):
        dilation = images[distinct] / distances[distinct]
        return float(dilation.max() / dilation.min()) if dilation.max() < np.inf else float("inf")


def _gaussian(points: Array, bandwidths: Array | float) -> Array:
    """``exp(-|x_i - x_j|^2 / bandwidth)``, in units of a power of two in which squares neither vanish nor overflow."""
    exponent = max(int(np.frexp(np.median(bandwidths))[1]) // 2, int(np.frexp(np.abs(points).max())[1]) - 500)
    squares = squareform(pdist(np.ldexp(points, -exponent), "sqeuclidean"))
    with np.errstate(over="ignore"):  # exp(-infinity) is 0
        return np.asarray(np.exp(-squares / np.maximum(np.ldexp(bandwidths, -2 * exponent), np.finfo(np.float64).tiny)))


def _scale(K: Array, s: Array) -> Array:
    # s_i s_j first: multiplication commutes, so the result is symmetric to the last bit
    return np.outer(s, s) * K


def _matrix(value: Any, name: str, min_rows: int = 1) -> Array:
    return checks.check_points(value, name, min_rows).astype(np.float64)


def _square(value: Any, name: str, min_rows: int = 1) -> Array:
    array = _matrix(value, name, min_rows)
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be square; got shape {array.shape}. Pass a heat kernel, N x N.")
    if np.abs(array - array.T).max() > 1e-10 * np.abs(array).max():
        raise ValueError(f"{name} must be symmetric; got an asymmetric matrix. Average it with its transpose.")
    return array


def _kernel(value: Any) -> Array:
    array = _square(value, "K")
    if (array < 0).any() or (np.diag(array) <= 0).any():
        raise ValueError("K must be non-negative with a positive diagonal. affinity(X, epsilon) makes such a matrix.")
    return array


def _one_per_row(value: npt.ArrayLike, n_rows: int, name: str) -> Array:
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.shape != (n_rows,) or not ((numbers > 0) & (numbers < np.inf)).all():
        raise ValueError(
            f"{name} must hold one finite number above 0 for each of the {n_rows} rows; got shape {numbers.shape}."
        )
    return numbers


def __dir__() -> list[str]:
    return __all__
