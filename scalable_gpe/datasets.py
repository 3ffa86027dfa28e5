"""Point sets: the paper's manifolds, and larger sets generated block by block.

Each row is a function of ``(random_state, row)`` and the parameters of its set. ``rows=`` generates any rows alone,
with the values that they have in the whole set, and a longer set begins with the rows of a shorter one.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks
from scalable_gpe import random_shapes as shapes
from scalable_gpe.checks import Seed

Selection: TypeAlias = slice | npt.ArrayLike | None
Dataset: TypeAlias = Callable[..., npt.NDArray[Any]]

__all__ = [
    "circle",
    "circle_with_outliers",
    "torus",
    "klein_bottle",
    "point_clouds",
    "patches",
    "branches",
    "branches_truth",
    "blocks",
    "write",
]

_BLOCK = 8_192


def circle(n_rows: int, *, noise: float = 0.0, random_state: Seed = 0, rows: Selection = None) -> shapes.Array:
    r"""Uniform points on the unit circle.

    .. math:: u \mapsto (\cos u, \sin u), \qquad u \text{ uniform on } [0, 2\pi)

    Parameters
    ----------
    n_rows : int
        Number of points of the whole set.
    noise : float
        Root mean square length of the Gaussian displacement of a point.
    random_state : int, None or numpy generator
        Seed.
    rows : slice or array of int, optional
        The rows to generate; all by default.

    Returns
    -------
    ndarray of float64, rows x 2

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import datasets
    >>> X = datasets.circle(300)
    >>> X.shape, bool(np.allclose((X**2).sum(axis=1), 1))
    ((300, 2), True)
    """
    return _points(shapes.on_circle, n_rows, 2, noise, random_state, rows, "float64")


def circle_with_outliers(
    n_rows: int, outliers: npt.ArrayLike = ((0.0, 3.0), (3.0, 0.0)), *, random_state: Seed = 0, rows: Selection = None
) -> shapes.Array:
    """Uniform points on the unit circle, followed by outliers, by default (0, 3) and (3, 0).

    Parameters
    ----------
    n_rows : int
        Total number of points, outliers included.
    outliers : array_like, m x 2
        The outliers.
    random_state, rows
        As in `circle`.

    Returns
    -------
    ndarray of float64, rows x 2

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> datasets.circle_with_outliers(200)[-2:].tolist()
    [[0.0, 3.0], [3.0, 0.0]]
    """
    extra = checks.check_points(outliers, "outliers", min_rows=1)
    n_circle = checks.check_count(n_rows, "n_rows", minimum=len(extra) + 1) - len(extra)
    if extra.shape[1] != 2:
        raise ValueError(f"outliers must have 2 columns; got shape {extra.shape}. Pass points of the plane.")
    ids = checks.check_selection(rows, n_rows, "rows")
    out = circle(n_rows, random_state=random_state, rows=ids)
    out[ids >= n_circle] = extra[ids[ids >= n_circle] - n_circle]
    return out


def torus(
    n_rows: int,
    n_features: int = 4,
    *,
    ratio: float = 3.5,
    noise: float = 0.0,
    random_state: Seed = 0,
    rows: Selection = None,
    dtype: str = "float64",
) -> npt.NDArray[Any]:
    r"""Uniform points on the stretched flat torus :math:`S^1 \times r S^1`.

    .. math:: (u, v) \mapsto (\cos u, \sin u, r \cos v, r \sin v)

    With more than four features the same torus lies in a random four-dimensional subspace; distances do not change.

    Parameters
    ----------
    n_features : int
        Dimension of the space, at least 4.
    ratio : float
        r, the radius of the second circle.
    noise : float
        Root mean square length of the Gaussian displacement of a point, in all dimensions of the space.
    n_rows, random_state, rows
        As in `circle`.
    dtype : {"float64", "float32"}
        Type of the result.

    Returns
    -------
    ndarray, rows x n_features

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_gpe import datasets
    >>> X = datasets.torus(500)
    >>> bool(np.allclose(np.hypot(X[:, 2], X[:, 3]), 3.5))
    True
    >>> datasets.torus(10**9, 50, rows=slice(5, 8)).shape
    (3, 50)
    """
    d = checks.check_count(n_features, "n_features", minimum=4)
    seed = checks.check_random_state(random_state)
    axes = np.eye(4) if d == 4 else shapes.frame(seed, 0, 4, d)
    place = partial(shapes.on_torus, checks.check_positive(ratio, "ratio"), axes)
    return _points(place, n_rows, d, noise, seed, rows, dtype)


def klein_bottle(
    n_rows: int, *, a: float = 10.0, b: float = 5.0, random_state: Seed = 0, rows: Selection = None
) -> shapes.Array:
    r"""Points on a Klein bottle in four dimensions, uniform in its two angles.

    .. math:: (u, v) \mapsto ((a + b\cos v)\cos u,\ (a + b\cos v)\sin u,\
              b \sin v \cos\tfrac u2,\ b \sin v \sin\tfrac u2)

    Parameters
    ----------
    a, b : float
        Radius of the ring, and of the tube.
    n_rows, random_state, rows
        As in `circle`.

    Returns
    -------
    ndarray of float64, rows x 4

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> datasets.klein_bottle(500).shape
    (500, 4)
    """
    place = partial(shapes.on_klein_bottle, checks.check_positive(a, "a"), checks.check_positive(b, "b"))
    return _points(place, n_rows, 4, 0.0, random_state, rows, "float64")


def point_clouds(
    n_rows: int,
    n_features: int = 3,
    *,
    n_clouds: int = 4,
    separation: float = 4.0,
    random_state: Seed = 0,
    rows: Selection = None,
    dtype: str = "float64",
) -> npt.NDArray[Any]:
    r"""Gaussian point clouds: a mixture, in equal parts, of standard normal distributions.

    .. math:: x = c_m + z, \qquad m \text{ uniform}, \quad z \sim N(0, I), \quad c_m = s\,g_m / |g_m|

    The centres lie at distance ``separation`` from the origin in random directions. The paper shows results
    for Gaussian point clouds without describing them; these defaults are our choice.

    Parameters
    ----------
    n_features : int
        Dimension of the space.
    n_clouds : int
        Number of clouds.
    separation : float
        s, the distance of the centres from the origin; the clouds have standard deviation 1.
    n_rows, random_state, rows, dtype
        As in `torus`.

    Returns
    -------
    ndarray, rows x n_features

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> datasets.point_clouds(500).shape
    (500, 3)
    """
    d, count = checks.check_count(n_features, "n_features"), checks.check_count(n_clouds, "n_clouds")
    seed = checks.check_random_state(random_state)
    directions = shapes.normals(shapes.shape_key(seed, 0), np.arange(count), d)
    centres = checks.check_positive(separation, "separation") * shapes.unit(directions)
    return _points(partial(shapes.in_clouds, centres), n_rows, d, np.sqrt(d), seed, rows, dtype)


def patches(
    n_rows: int,
    n_features: int = 50,
    *,
    dimension: int = 4,
    n_patches: int = 8,
    noise: float = 0.01,
    random_state: Seed = 0,
    rows: Selection = None,
    dtype: str = "float32",
) -> npt.NDArray[Any]:
    r"""Union of curved patches of a given intrinsic dimension, rows in random order.

    .. math:: x = c_m + Q_m^T \bigl(u,\ \tfrac1{10}\cos(F_m u + \phi_m)\bigr) + \text{noise},
              \qquad u \text{ uniform on } [-\tfrac12, \tfrac12]^{dimension}

    Each patch m bends along 2 x dimension random waves of frequency 4 in its own random frame Q. Each patch passes
    through a point of an earlier one: the union is connected, and a point near a crossing has neighbours on two
    patches. Patches differ in their number of points by a factor of up to three.

    Parameters
    ----------
    n_features : int
        Dimension of the space, above ``dimension``.
    dimension : int
        Intrinsic dimension of the patches.
    n_patches : int
        Number of patches.
    noise : float
        Root mean square length of the Gaussian displacement of a point; a patch is about 1 wide.
    n_rows, random_state, rows, dtype
        As in `torus`.

    Returns
    -------
    ndarray, rows x n_features

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> X = datasets.patches(1000)
    >>> bool((datasets.patches(1000, rows=[17]) == X[17]).all())
    True
    """
    u_dim = checks.check_count(dimension, "dimension")
    d = checks.check_count(n_features, "n_features", minimum=u_dim + 1)
    seed = checks.check_random_state(random_state)
    place = shapes.Patches(seed, d, u_dim, checks.check_count(n_patches, "n_patches"))
    return _points(place, n_rows, d, noise, seed, rows, dtype)


def branches(
    n_rows: int,
    n_features: int = 30,
    *,
    noise: float = 2.0,
    random_state: Seed = 0,
    rows: Selection = None,
    dtype: str = "float32",
) -> npt.NDArray[Any]:
    r"""A loop, a stem that branches twice, and clusters at the three ends; rows in random order.

    The shape of a differentiation of cells: a cycle that some leave, decisions, final states. Each part is a curve that
    winds through the space,

    .. math:: x(t) = a + t (b - a) + \sum_{m=1}^4 \tfrac{7}{\sqrt m} \sin(\pi m t) v_m + \text{noise}, \qquad
              0 \le t \le 1

    with random unit vectors v, so that no plane shows how the parts are connected; the noise is as wide as the curves
    are apart in such a plane. Points are rarer towards the end of a branch.

    Parameters
    ----------
    n_features : int
        Dimension of the space, at least 8.
    noise : float
        Root mean square length of the Gaussian displacement of a point; a branch is about 20 long.
    n_rows, random_state, rows, dtype
        As in `torus`.

    Returns
    -------
    ndarray, rows x n_features

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> datasets.branches(1000).shape
    (1000, 30)
    """
    d = checks.check_count(n_features, "n_features", minimum=8)
    seed = checks.check_random_state(random_state)
    return _points(shapes.Branches(seed, d), n_rows, d, noise, seed, rows, dtype)


def branches_truth(
    n_rows: int, n_features: int = 30, *, random_state: Seed = 0, rows: Selection = None
) -> tuple[npt.NDArray[np.str_], shapes.Array]:
    """The part of each point of `branches`, and its distance from the cycle's exit along the curves.

    Parameters
    ----------
    n_rows, n_features, random_state, rows
        As for `branches`.

    Returns
    -------
    parts : ndarray of str
        "cycle", "stem", "branch a" to "branch d", "end b" to "end d".
    time : ndarray of float64
        Distance along the curves from the point where the stem leaves the cycle: a true pseudotime.

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> parts, time = datasets.branches_truth(1000)
    >>> bool(time[parts == "stem"].max() < time[parts == "end d"].min())
    True
    """
    d = checks.check_count(n_features, "n_features", minimum=8)
    seed = checks.check_random_state(random_state)
    ids = checks.check_selection(rows, checks.check_count(n_rows, "n_rows"), "rows")
    return shapes.Branches(seed, d).truth(seed, ids)


def blocks(dataset: Dataset, n_rows: int, *, block_rows: int = 65_536, **parameters: Any) -> Iterator[npt.NDArray[Any]]:
    """Generate a point set block by block; the stacked blocks are the whole set.

    Parameters
    ----------
    dataset : callable
        A function of this module.
    n_rows, block_rows : int
        Number of points of the whole set, and of a block.
    **parameters
        Other arguments of the function.

    Yields
    ------
    ndarray, at most block_rows x n_features

    Examples
    --------
    >>> from scalable_gpe import datasets
    >>> [len(block) for block in datasets.blocks(datasets.torus, 10, block_rows=4)]
    [4, 4, 2]
    """
    n_rows, step = checks.check_count(n_rows, "n_rows"), checks.check_count(block_rows, "block_rows")
    # all blocks share one seed, also when random_state is None or a generator
    seed = checks.check_random_state(parameters.pop("random_state", 0))
    make = partial(dataset, n_rows, random_state=seed, **parameters)
    return (make(rows=slice(start, start + step)) for start in range(0, n_rows, step))


def write(
    path: str | Path, dataset: Dataset, n_rows: int, *, block_rows: int = 65_536, **parameters: Any
) -> tuple[int, int]:
    """Write a point set to a ``.npy`` file or a ``.zarr`` array, holding one block at a time.

    Equivalent to ``numpy.save(path, dataset(n_rows, **parameters))`` in bounded memory.

    Parameters
    ----------
    path : str or Path
        The file or folder; it must not exist.
    dataset, n_rows, block_rows, parameters
        As in `blocks`; block_rows is also the chunk length of a zarr array.

    Returns
    -------
    tuple of int
        The shape written.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from scalable_gpe import datasets
    >>> folder = tempfile.mkdtemp()
    >>> datasets.write(folder + "/X.npy", datasets.patches, 1000, n_features=12)
    (1000, 12)
    >>> np.load(folder + "/X.npy", mmap_mode="r").shape
    (1000, 12)
    """
    target = Path(path)
    if target.suffix not in (".npy", ".zarr"):
        raise ValueError(f"path must end in .npy or .zarr; got {str(path)!r}. Choose one of these formats.")
    if target.exists():
        raise ValueError(f"path must not exist yet; {str(path)!r} does. Remove it, or choose another name.")
    pieces = blocks(dataset, n_rows, block_rows=block_rows, **parameters)
    first = next(pieces)
    shape = (n_rows, first.shape[1])
    array: Any
    if target.suffix == ".npy":
        array = np.lib.format.open_memmap(target, "w+", first.dtype, shape)
    else:
        import zarr

        array = zarr.create_array(str(target), shape=shape, chunks=first.shape, dtype=first.dtype)
    for start, block in zip(range(0, n_rows, block_rows), itertools.chain([first], pieces), strict=True):
        array[start : start + len(block)] = block
    return shape


def _points(
    place: shapes.Place, n_rows: int, n_features: int, noise: float, random_state: Seed, rows: Selection, dtype: str
) -> npt.NDArray[Any]:
    """Generate rows of a set block by block: ``place(seed, ids)``, then noise."""
    seed = checks.check_random_state(random_state)
    ids = checks.check_selection(rows, checks.check_count(n_rows, "n_rows"), "rows")
    scale = checks.check_positive(noise, "noise") / np.sqrt(n_features) if noise else 0.0
    out = np.empty((ids.size, n_features), dtype=checks.check_choice(dtype, ("float32", "float64"), "dtype"))
    for start in range(0, ids.size, _BLOCK):
        some = ids[start : start + _BLOCK]
        block = place(seed, some)
        if scale:
            block = block + scale * shapes.normals(seed ^ shapes.NOISE, some, n_features)
        out[start : start + _BLOCK] = block
    return out


def __dir__() -> list[str]:
    return __all__
