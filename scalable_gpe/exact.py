"""Dense reference implementation of the paper, in float64.

::

    K_ij = exp(-|x_i - x_j|^2 / epsilon)
    A    = S K S with a diagonal S        (symmetric or bistochastic)
    Y    = A^p G / sqrt(k)

The rest of the library is tested against this module, which imports only numpy and scipy. It holds N x N matrices: use
it for up to some thousands of points.

References
----------
A. Gilbert and K. O'Neill, "Sketching the Heat Kernel: Using Gaussian Processes to Embed Data".
"""

import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

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
    "propagate",
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
    points, epsilon = _points(X, "X"), _positive(epsilon, "epsilon")
    squares, exponent = _squares(points, int(np.frexp(epsilon)[1]) // 2)
    return _gaussian(squares, np.ldexp(epsilon, -2 * exponent))


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
    points, scales = _points(X, "X"), np.asarray(sigma, dtype=np.float64)
    if scales.shape != (len(points),) or not ((scales > 0) & (scales < np.inf)).all():
        raise ValueError(
            f"sigma must hold one finite number above 0 for each of the {len(points)} rows; got shape {scales.shape}. "
            "affinity takes one epsilon for all rows."
        )
    squares, exponent = _squares(points, int(np.frexp(np.median(scales))[1]))
    scales = np.ldexp(scales, -exponent)
    return _gaussian(squares, np.outer(scales, scales))


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
    w = _weights(sample_weight, len(K))
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
    K, tol = _kernel(K), _positive(tol, "tol")
    w = _weights(sample_weight, len(K))
    d = np.ones(len(K))
    for _ in range(_count(max_iter, "max_iter")):
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
    if not isinstance(normalization, str) or normalization not in _NORMALIZATIONS:
        raise ValueError(
            f"normalization must be one of {sorted(_NORMALIZATIONS)}; got {normalization!r}. "
            "Leave it out for 'bistochastic'."
        )
    return _NORMALIZATIONS[normalization](affinity(X, epsilon), sample_weight=sample_weight)


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
    if isinstance(power, str):
        return _all_powers(A, power, horizon, first_power) @ Y
    for _ in range(_count(power, "power")):
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
    A, time = _square(A, "A", min_rows=2), _positive(time, "time")
    k = _count(n_components, "n_components")
    if k > len(A) - 1:
        raise ValueError(f"n_components must be at most N - 1 = {len(A) - 1}; got {k}. Lower it.")
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
    if isinstance(power, str):
        return np.asarray(pdist(_all_powers(A, power, horizon, first_power)))
    distances: Array = pdist(np.linalg.matrix_power(A, _count(power, "power")))
    return distances


def _all_powers(A: Array, power: str, horizon: int | None, first_power: int) -> Array:
    """``A^m + c A^(m+1) + c^2 A^(m+2) + ... = A^m (I - c A)^-1`` with c = 1 - 1/T, by eigenvalues."""
    if power != "all":
        raise ValueError(f"power must be a whole number or 'all'; got {power!r}.")
    if horizon is None:
        raise ValueError(
            "power='all' needs a horizon: the average number of steps of a walk. Pass an int, such as 1024."
        )
    values, vectors = np.linalg.eigh(A)
    sums = values ** _count(first_power, "first_power") / (1 - values + values / _count(horizon, "horizon"))
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
    images, distances = pdist(_points(Y, "Y")), np.asarray(distances, dtype=np.float64)
    if distances.shape != images.shape:
        raise ValueError(
            f"distances must be condensed, of shape {images.shape} for {len(np.asarray(Y))} rows of Y; got "
            f"shape {distances.shape}. scipy.spatial.distance.squareform converts a square matrix."
        )
    if not np.isfinite(distances).all() or (distances < 0).any():
        first = int(np.argmax(~(np.isfinite(distances) & (distances >= 0))))
        raise ValueError(
            f"distances must be finite and non-negative; entry {first} is {distances[first]}. Remove that point."
        )
    distinct = (images > 0) | (distances > 0)
    if not distinct.any():
        raise ValueError("Y must hold at least two distinct points; all rows are equal. Pass other points.")
    with np.errstate(divide="ignore"):
        dilation = images[distinct] / distances[distinct]
        return float(dilation.max() / dilation.min()) if dilation.max() < np.inf else float("inf")


def propagate(
    A: npt.ArrayLike,
    Y: npt.ArrayLike,
    method: str = "spreading",
    horizon: float | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> Array:
    r"""Class probabilities of all rows from those of labelled rows, by dense solves.

    .. math::
        \text{spreading:}\quad & (I - cA)\, F = Y, \qquad c = 1 - 1/T \\
        \text{harmonic:}\quad & (I - P)\, F = 0 \text{ on rows without a label},\quad F = Y \text{ on the others} \\
        \text{poisson:}\quad & L F = Y - \bar y \text{ on labelled rows, } 0 \text{ on the others}

    with :math:`P = U^{-1} A U` and :math:`L = U (I - A) U` for the top eigenvector U 1 of A, component by component.
    Rows are divided by their sums; for "poisson" those of :math:`\exp(F_{ij} / r)` are, with r the root mean square of
    F, weighted with u squared.

    Parameters
    ----------
    A : array_like, N x N
        A heat kernel.
    Y : array_like, N x C
        Class shares of labelled rows, such as ones and zeros; rows of zeros have no label.
    method : {"spreading", "harmonic", "poisson"}
        The problem.
    horizon : float, optional
        T; needed for "spreading".
    sample_weight : array_like, N, optional
        The weights that A was made with; a labelled row counts as often.

    Returns
    -------
    ndarray, N x C
        NaN in rows of components without a label.

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import exact
    >>> A = exact.bistochastic(exact.affinity([[0.0], [1.0], [2.0]], 1.0))
    >>> exact.propagate(A, [[1, 0], [0, 0], [0, 1]], "harmonic").round(6).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    A, Y = _square(A, "A"), _matrix(Y, "Y")
    root = np.sqrt(_weights(sample_weight, len(A)))
    if len(Y) != len(A):
        raise ValueError(f"Y must have one row per row of A ({len(A)}); got {len(Y)}. Rows of zeros have no label.")
    if method not in _PROBLEMS:
        raise ValueError(f"method must be one of {sorted(_PROBLEMS)}; got {method!r}. Leave it out for 'spreading'.")
    if (method == "spreading") != (horizon is not None):
        raise ValueError(f"horizon is for method='spreading', which needs it; got {horizon!r} with {method!r}.")
    scores = np.full(Y.shape, np.nan)
    n_components, component = connected_components(A > 1e-12)
    for number in range(n_components):
        own = np.flatnonzero(component == number)
        if Y[own].any():
            scores[own] = _PROBLEMS[method](A[np.ix_(own, own)], Y[own], root[own], horizon)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _spreading(A: Array, Y: Array, root: Array, horizon: float | None) -> Array:
    c = 1 - 1 / _positive(horizon, "horizon")
    return np.linalg.solve(np.eye(len(A)) - c * A, root[:, None] * Y) / root[:, None]


def _harmonic(A: Array, Y: Array, root: Array, horizon: float | None) -> Array:
    u, given = _top(A), Y.any(axis=1)
    P, F = A * u / u[:, None], Y / np.where(given, Y.sum(axis=1), 1)[:, None]
    left = np.eye(int((~given).sum())) - P[np.ix_(~given, ~given)]
    F[~given] = np.linalg.solve(left, P[np.ix_(~given, given)] @ F[given])
    return F


def _poisson(A: Array, Y: Array, root: Array, horizon: float | None) -> Array:
    u, weighted = _top(A), root[:, None] ** 2 * Y
    sources = weighted - weighted.sum(axis=1)[:, None] * weighted.sum(axis=0) / weighted.sum()
    x = np.linalg.solve(np.eye(len(A)) - A + np.outer(u, u), sources / u[:, None])
    scores = (x - np.outer(u, u @ x)) / u[:, None]
    scale = np.sqrt((u[:, None] ** 2 * scores**2).sum() / scores.shape[1]) or 1.0
    return np.where(Y.any(axis=0), np.exp((scores - scores.max(axis=1, keepdims=True)) / scale), 0.0)


def _top(A: Array) -> Array:
    """The top eigenvector of one component, of length 1 and positive."""
    return np.asarray(np.abs(eigh(A, subset_by_index=(len(A) - 1, len(A) - 1))[1][:, 0]))


def _squares(points: Array, exponent: int) -> tuple[Array, int]:
    """Squared distances in units of ``2**exponent``, or of a larger power of two if they would overflow; and which."""
    exponent = max(exponent, int(np.frexp(np.abs(points).max())[1]) - 500)
    found: Array = squareform(pdist(np.ldexp(points, -exponent), "sqeuclidean"))
    return found, exponent


def _gaussian(squares: Array, epsilon: npt.ArrayLike) -> Array:
    with np.errstate(over="ignore"):  # exp(-infinity) is 0
        return np.asarray(np.exp(-squares / np.maximum(epsilon, np.finfo(np.float64).tiny)))


def _scale(K: Array, s: Array) -> Array:
    # s_i s_j first: multiplication commutes, so the result is symmetric to the last bit
    return np.outer(s, s) * K


def _matrix(value: Any, name: str, min_rows: int = 1) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"dtype {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a real numeric array; got {error}. Convert it to float first.") from None
    if array.ndim != 2 or array.shape[0] < min_rows or array.shape[1] < 1:
        raise ValueError(
            f"{name} must be 2-D with at least {min_rows} row(s) and one column; got shape {array.shape}. "
            "Pass one point per row (reshape(-1, 1) for a single column)."
        )
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{name} must be finite; {bad.size} row(s) hold NaN or infinity, first {bad[:5].tolist()}. "
            "Drop or fill them."
        )
    return array


def _points(value: Any, name: str) -> Array:
    return _matrix(value, name, min_rows=2)


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
        raise ValueError(
            "K must be non-negative with a positive diagonal; got "
            f"smallest entry {array.min():g}, smallest diagonal entry {np.diag(array).min():g}. "
            "affinity(X, epsilon) makes such a matrix."
        )
    return array


def _weights(value: Any, n_rows: int) -> Array:
    """One weight per row; ones by default."""
    weights = np.ones(n_rows) if value is None else np.asarray(value, dtype=np.float64)
    if weights.shape != (n_rows,) or not ((weights > 0) & (weights < np.inf)).all():
        raise ValueError(
            f"sample_weight must hold one finite number above 0 for each of the {n_rows} rows; got shape "
            f"{weights.shape}. Drop rows without weight."
        )
    return weights


def _positive(value: Any, name: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a positive number; got {value!r}. Pass a float.")
    if not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number; got {value!r}. Choose one above 0.")
    return float(value)


def _count(value: Any, name: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a whole number; got {value!r}. Pass an int.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value!r}. Raise it.")
    return int(value)


_PROBLEMS: dict[str, Callable[..., Array]] = {"spreading": _spreading, "harmonic": _harmonic, "poisson": _poisson}
_NORMALIZATIONS: dict[str, Callable[..., Array]] = {
    "bistochastic": bistochastic,
    "symmetric": symmetric,
}


def __dir__() -> list[str]:
    return __all__
