"""Point sets: the paper's manifolds, and larger sets generated block by block.

Each row is a function of ``(random_state, row)`` and the parameters of its set. ``rows=`` generates any rows alone,
with the values that they have in the whole set, and a longer set begins with the rows of a shorter one.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks
from scalable_gpe.checks import Seed
from scalable_gpe.errors import Message

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Selection: TypeAlias = slice | npt.ArrayLike | None

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
# each use of random numbers has its own key; sketch_matrix uses none of these
_PLACE, _NOISE, _SHAPE = 0xA5B85C5E198ED849, 0xC2B2AE3D27D4EB4F, 0x27D4EB2F165667C5


def circle(n_rows: int, *, noise: float = 0.0, random_state: Seed = 0, rows: Selection = None) -> Array:
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
    return _points(_angles_to(_on_circle, 1), n_rows, 2, noise, random_state, rows, "float64")


def circle_with_outliers(
    n_rows: int, outliers: npt.ArrayLike = ((0.0, 3.0), (3.0, 0.0)), *, random_state: Seed = 0, rows: Selection = None
) -> Array:
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
    extra = np.asarray(outliers, np.float64)
    if extra.ndim != 2 or extra.shape[1] != 2:
        raise ValueError(Message(f"`outliers` must have 2 columns; got shape {extra.shape}. Pass points of the plane."))
    checks.check_finite(extra, "outliers")
    n_circle = checks.check_count(n_rows, "n_rows", minimum=len(extra) + 1) - len(extra)
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
    place = partial(_on_torus, checks.check_positive(ratio, "ratio"))
    frame = np.eye(4) if d == 4 else _frame(seed, 0, 4, d)
    return _points(_angles_to(place, 2, frame), n_rows, d, noise, seed, rows, dtype)


def klein_bottle(
    n_rows: int, *, a: float = 10.0, b: float = 5.0, random_state: Seed = 0, rows: Selection = None
) -> Array:
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
    place = partial(_on_klein_bottle, checks.check_positive(a, "a"), checks.check_positive(b, "b"))
    return _points(_angles_to(place, 2), n_rows, 4, 0.0, random_state, rows, "float64")


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
    directions = _normals(_shape_key(seed, 0), np.arange(count), d)
    centres = checks.check_positive(separation, "separation") * _unit(directions)

    def place(seed: int, ids: Ids) -> Array:
        return centres[(_uniforms(seed, ids, 1)[:, 0] * count).astype(np.int64)]

    return _points(place, n_rows, d, np.sqrt(d), seed, rows, dtype)


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
    place = _Patches(seed, d, u_dim, checks.check_count(n_patches, "n_patches"))
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
    return _points(_Branches(seed, d), n_rows, d, noise, seed, rows, dtype)


def branches_truth(
    n_rows: int, n_features: int = 30, *, random_state: Seed = 0, rows: Selection = None
) -> tuple[npt.NDArray[np.str_], Array]:
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
    return _Branches(seed, d).truth(seed, ids)


class Dataset(Protocol):
    """A function of this module: rows of a point set."""

    def __call__(self, n_rows: int, /, *, random_state: Seed = 0, rows: Selection = None) -> npt.NDArray[Any]: ...


def blocks(dataset: Dataset, n_rows: int, *, block_rows: int = 65_536, **parameters: Any) -> Iterator[npt.NDArray[Any]]:
    """Generate a point set block by block; the stacked blocks are the whole set.

    Parameters
    ----------
    dataset : callable
        A function of this module.
    n_rows : int
        Number of points of the whole set.
    block_rows : int
        Rows per block.
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
    make: Callable[..., npt.NDArray[Any]] = partial(dataset, n_rows, random_state=seed, **parameters)
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
    dataset : callable
        A function of this module.
    n_rows : int
        Number of points.
    block_rows : int
        Rows held in memory at a time; also the chunk length of a zarr array.
    **parameters
        Other arguments of the function.

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
        raise ValueError(Message(f"`path` must end in .npy or .zarr; got {str(path)!r}. Choose one of these formats."))
    if target.exists():
        raise ValueError(Message(f"`path` must not exist yet; {str(path)!r} does. Remove it, or choose another name."))
    pieces = blocks(dataset, n_rows, block_rows=block_rows, **parameters)
    first = next(pieces)
    shape, start = (n_rows, first.shape[1]), 0
    if target.suffix == ".npy":
        header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
        with target.open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in itertools.chain([first], pieces):
                block.tofile(file)
        return shape
    import zarr

    array = zarr.create_array(str(target), shape=shape, chunks=first.shape, dtype=first.dtype)
    for block in itertools.chain([first], pieces):
        array[start : start + len(block)] = block
        start += len(block)
    return shape


def _points(
    place: Callable[[int, Ids], Array],
    n_rows: int,
    n_features: int,
    noise: float,
    random_state: Seed,
    rows: Selection,
    dtype: str,
) -> npt.NDArray[Any]:
    """Generate rows of a set block by block: ``place(seed, ids)``, then noise."""
    seed = checks.check_random_state(random_state)
    ids = checks.check_selection(rows, checks.check_count(n_rows, "n_rows"), "rows")
    scale = _check_noise(noise) / np.sqrt(n_features)
    out = np.empty((ids.size, n_features), dtype=checks.check_choice(dtype, ("float32", "float64"), "dtype"))
    for start in range(0, ids.size, _BLOCK):
        some = ids[start : start + _BLOCK]
        block = place(seed, some)
        if scale:
            block = block + scale * _normals(seed ^ _NOISE, some, n_features)
        out[start : start + _BLOCK] = block
    return out


def _check_noise(noise: object) -> float:
    return 0.0 if noise == 0 and not isinstance(noise, bool) else checks.check_positive(noise, "noise")


def _angles_to(
    surface: Callable[[Array], Array], n_angles: int, frame: Array | None = None
) -> Callable[[int, Ids], Array]:
    """Map uniform angles to a surface, and the surface into space by a frame."""

    def place(seed: int, ids: Ids) -> Array:
        points = surface(2 * np.pi * _uniforms(seed, ids, n_angles))
        return points if frame is None else _sum_of_axes(points, frame)

    return place


def _sum_of_axes(points: Array, frame: Array) -> Array:
    # not a matrix product, whose rounding depends on the number of rows
    out = np.zeros((len(points), frame.shape[1]))
    for axis, direction in enumerate(frame):
        out += points[:, axis, None] * direction
    return out


def _on_circle(angles: Array) -> Array:
    return np.hstack([np.cos(angles), np.sin(angles)])


def _on_torus(ratio: float, angles: Array) -> Array:
    u, v = angles[:, :1], angles[:, 1:]
    return np.hstack([np.cos(u), np.sin(u), ratio * np.cos(v), ratio * np.sin(v)])


def _on_klein_bottle(a: float, b: float, angles: Array) -> Array:
    u, v = angles[:, :1], angles[:, 1:]
    tube, lift = a + b * np.cos(v), b * np.sin(v)
    return np.hstack([tube * np.cos(u), tube * np.sin(u), lift * np.cos(u / 2), lift * np.sin(u / 2)])


class _Patches:
    """A random union of patches: maps row numbers to points on it."""

    def __init__(self, seed: int, n_features: int, dimension: int, n_patches: int) -> None:
        n_waves, numbers = 2 * dimension, np.arange(n_patches)
        self.dimension = dimension
        self.frames = np.stack([_frame(seed, m, dimension + n_waves, n_features) for m in range(n_patches)])
        waves = _normals(_shape_key(seed, 0), numbers, n_waves * dimension)
        self.frequencies = 4.0 * waves.reshape(n_patches, n_waves, dimension)
        self.phases = 2 * np.pi * _uniforms(_shape_key(seed, 1), numbers, n_waves)
        weights = 0.5 + _uniforms(_shape_key(seed, 2), numbers, 1)[:, 0]
        self.cumulative = np.cumsum(weights / weights.sum())
        self.centres = np.zeros((n_patches, n_features))
        self._join(_uniforms(_shape_key(seed, 3), numbers, 2 * dimension + 1))

    def _join(self, numbers: Array) -> None:
        """Move every patch so that one of its points lies on a point of an earlier patch."""
        here, there = numbers[:, 1 : self.dimension + 1] - 0.5, numbers[:, self.dimension + 1 :] - 0.5
        for m in range(1, len(self.centres)):
            earlier = int(numbers[m, 0] * m)
            self.centres[m] = self.at(there[m : m + 1], earlier) - self.at(here[m : m + 1], m)

    def at(self, coordinates: Array, patch: int | Ids) -> Array:
        """Return the points at these coordinates of a patch, or of one patch for each."""
        from scalable_gpe.loops.patches import fill_patches

        out = np.empty((len(coordinates), self.centres.shape[1]))
        numbers = np.broadcast_to(np.asarray(patch, dtype=np.int64), len(coordinates)).copy()
        shape = self.frames, self.centres, self.frequencies, self.phases
        fill_patches(out, np.ascontiguousarray(coordinates), numbers, *shape, 0.1)
        return out

    def __call__(self, seed: int, ids: Ids) -> Array:
        numbers = _uniforms(seed, ids, self.dimension + 1)
        patch = np.searchsorted(self.cumulative[:-1], numbers[:, 0], side="right")
        return self.at(numbers[:, 1:] - 0.5, patch)


class _Branches:
    """A loop and a tree of curves: maps row numbers to points on them."""

    # each curve: its name, the curve at whose end it begins, its share of the points
    CURVES = (
        ("stem", None, 0.15),
        ("branch a", 0, 0.12),
        ("branch b", 0, 0.15),
        ("branch c", 1, 0.12),
        ("branch d", 1, 0.12),
    )
    ENDS = (("end b", 2), ("end c", 3), ("end d", 4))
    _OF_CYCLE, _OF_END = 0.22, 0.04
    _STEPS = 1000  # of the sums that give lengths

    def __init__(self, seed: int, n_features: int) -> None:
        n_curves = len(self.CURVES)
        vectors = _unit(_normals(_shape_key(seed, 1), np.arange(5 * n_curves), n_features))
        self.steps = 4.0 * vectors[:n_curves]
        self.waves = vectors[n_curves:].reshape(n_curves, 4, n_features)
        self.frame = _frame(seed, 0, 4, n_features)
        self.starts, self.times = np.zeros((n_curves, n_features)), np.zeros(n_curves)
        self.lengths = np.array([self._length(partial(self._curve, k)) for k in range(n_curves)])
        self.around = self._length(self._cycle)
        for k, (_, parent, _) in enumerate(self.CURVES):
            if parent is not None:
                self.starts[k] = self.starts[parent] + self.steps[parent]
                self.times[k] = self.times[parent] + self.lengths[parent]
        shares = [self._OF_CYCLE, *(share for *_, share in self.CURVES), *[self._OF_END] * len(self.ENDS)]
        self.cumulative = np.cumsum(shares) / np.sum(shares)
        names = ["cycle", *(name for name, *_ in self.CURVES), *(name for name, _ in self.ENDS)]
        self.names = np.array(names)

    def _curve(self, number: int, t: Array) -> Array:
        wave = np.sin(np.pi * t[:, None] * np.arange(1, 5)) * 7 / np.sqrt(np.arange(1, 5))
        path: Array = self.starts[number] + t[:, None] * self.steps[number]
        return path + _sum_of_axes(wave, self.waves[number])

    def _cycle(self, t: Array) -> Array:
        angle = 2 * np.pi * t
        turns = [6 * (np.cos(angle) - 1), 6 * np.sin(angle), 3 * (np.cos(2 * angle) - 1), 3 * np.sin(2 * angle)]
        return _sum_of_axes(np.stack(turns, axis=1), self.frame)

    def _length(self, curve: Callable[[Array], Array]) -> float:
        points = curve(np.linspace(0, 1, self._STEPS))
        return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())

    def _places(self, seed: int, ids: Ids) -> tuple[Ids, Array]:
        """The part of each row, and how far it is along it."""
        numbers = _uniforms(seed, ids, 2)
        part = np.searchsorted(self.cumulative[:-1], numbers[:, 0], side="right")
        # a density that falls from 3 to 1 along a branch, and is even on the cycle
        return part, np.where(part == 0, numbers[:, 1], 1.5 - np.sqrt(2.25 - 2 * numbers[:, 1]))

    def __call__(self, seed: int, ids: Ids) -> Array:
        part, along = self._places(seed, ids)
        out = np.empty((len(ids), self.starts.shape[1]))
        out[part == 0] = self._cycle(along[part == 0])
        for k in range(len(self.CURVES)):
            out[part == k + 1] = self._curve(k, along[part == k + 1])
        for e, (_, k) in enumerate(self.ENDS):
            out[part == len(self.CURVES) + 1 + e] = self.starts[k] + self.steps[k]
        return out

    def truth(self, seed: int, ids: Ids) -> tuple[npt.NDArray[np.str_], Array]:
        """The names of the parts, and the distances from the exit of the cycle."""
        part, along = self._places(seed, ids)
        time = self.around * np.minimum(along, 1 - along)
        for k in range(len(self.CURVES)):
            time[part == k + 1] = self.times[k] + self.lengths[k] * along[part == k + 1]
        for e, (_, k) in enumerate(self.ENDS):
            time[part == len(self.CURVES) + 1 + e] = self.times[k] + self.lengths[k]
        return self.names[part], time


def _frame(seed: int, number: int, n_axes: int, n_features: int) -> Array:
    """Random orthonormal axes; with more axes than features, a random projection."""
    numbers = _normals(_shape_key(seed, number + 4), np.arange(n_axes), n_features)
    return np.linalg.qr(numbers.T)[0].T if n_axes <= n_features else numbers / np.sqrt(n_features)


def _shape_key(seed: int, purpose: int) -> int:
    return seed ^ _SHAPE ^ purpose << 32


def _unit(vectors: Array) -> Array:
    lengths: Array = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def _normals(key: int, ids: Ids, n_columns: int) -> Array:
    from scalable_gpe.loops.random import fill_gaussian

    out = np.empty((ids.size, n_columns))
    fill_gaussian(out, ids, np.arange(n_columns), np.uint64(key))
    return out


def _uniforms(key: int, ids: Ids, n_columns: int) -> Array:
    from scalable_gpe.loops.random import fill_uniform

    out = np.empty((ids.size, n_columns))
    fill_uniform(out, ids, np.arange(n_columns), np.uint64(key ^ _PLACE))
    return out


def __dir__() -> list[str]:
    return __all__
