"""The random shapes of `datasets`, from manifolds to a tree of curves, and the random numbers of each row."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

# each use of random numbers has its own key; sketch_matrix uses none of these
_PLACE, NOISE, _SHAPE = 0xA5B85C5E198ED849, 0xC2B2AE3D27D4EB4F, 0x27D4EB2F165667C5
_BEND = 0.1  # half the height of the waves of a patch
_STEPS = 1000  # of the sums that give lengths

# each curve: its name, the curve at whose end it begins, its share of the points
_CURVES = (
    ("stem", None, 0.15),
    ("branch a", "stem", 0.12),
    ("branch b", "stem", 0.15),
    ("branch c", "branch a", 0.12),
    ("branch d", "branch a", 0.12),
)
_OF_CYCLE, _OF_END = 0.22, 0.04


Place = Callable[[int, Ids], Array]  # from a seed and row numbers to points


def on_circle(seed: int, ids: Ids) -> Array:
    """Uniform points on the unit circle."""
    (u,) = _angles(seed, ids, 1)
    return np.hstack([np.cos(u), np.sin(u)])


def on_torus(ratio: float, axes: Array, seed: int, ids: Ids) -> Array:
    """Uniform points on a stretched flat torus in the space of four axes."""
    u, v = _angles(seed, ids, 2)
    return sum_of_axes(np.hstack([np.cos(u), np.sin(u), ratio * np.cos(v), ratio * np.sin(v)]), axes)


def on_klein_bottle(a: float, b: float, seed: int, ids: Ids) -> Array:
    """Points on a Klein bottle in four dimensions."""
    u, v = _angles(seed, ids, 2)
    tube, lift = a + b * np.cos(v), b * np.sin(v)
    return np.hstack([tube * np.cos(u), tube * np.sin(u), lift * np.cos(u / 2), lift * np.sin(u / 2)])


def in_clouds(centres: Array, seed: int, ids: Ids) -> Array:
    """The centre of a random cloud for each row."""
    return centres[(uniforms(seed, ids, 1)[:, 0] * len(centres)).astype(np.int64)]


def _angles(seed: int, ids: Ids, n_angles: int) -> list[Array]:
    return np.hsplit(2 * np.pi * uniforms(seed, ids, n_angles), n_angles)


class Patches:
    """A random union of patches: maps row numbers to points on it."""

    def __init__(self, seed: int, n_features: int, dimension: int, n_patches: int) -> None:
        n_waves, numbers = 2 * dimension, np.arange(n_patches)
        self.dimension = dimension
        self.frames = np.stack([frame(seed, m, dimension + n_waves, n_features) for m in range(n_patches)])
        waves = normals(shape_key(seed, 0), numbers, n_waves * dimension)
        self.frequencies = 4.0 * waves.reshape(n_patches, n_waves, dimension)
        self.phases = 2 * np.pi * uniforms(shape_key(seed, 1), numbers, n_waves)
        weights = 0.5 + uniforms(shape_key(seed, 2), numbers, 1)[:, 0]
        self.cumulative = np.cumsum(weights / weights.sum())
        self.centres = np.zeros((n_patches, n_features))
        self._join(uniforms(shape_key(seed, 3), numbers, 2 * dimension + 1))

    def _join(self, numbers: Array) -> None:
        """Move every patch so that one of its points lies on a point of an earlier patch."""
        here, there = numbers[:, 1 : self.dimension + 1] - 0.5, numbers[:, self.dimension + 1 :] - 0.5
        for m in range(1, len(self.centres)):
            earlier = int(numbers[m, 0] * m)
            self.centres[m] = self._at(there[m : m + 1], earlier) - self._at(here[m : m + 1], m)

    def _at(self, coordinates: Array, m: int) -> Array:
        """The points at these coordinates of a patch."""
        angles = sum_of_axes(coordinates, self.frequencies[m].T, self.phases[m])
        return sum_of_axes(np.hstack([coordinates, _BEND * np.cos(angles)]), self.frames[m], self.centres[m])

    def __call__(self, seed: int, ids: Ids) -> Array:
        numbers = uniforms(seed, ids, self.dimension + 1)
        patch = np.searchsorted(self.cumulative[:-1], numbers[:, 0], side="right")
        out = np.empty((len(ids), self.centres.shape[1]))
        for m in range(len(self.centres)):
            out[patch == m] = self._at(numbers[patch == m, 1:] - 0.5, m)
        return out


@dataclass(frozen=True)
class _Part:
    """A curve with its share of the points, the time at its start, and its length."""

    name: str
    share: float
    curve: Callable[[Array], Array]
    time: float = 0.0
    length: float = 0.0


class Branches:
    """A loop and a tree of curves: maps row numbers to points on them."""

    def __init__(self, seed: int, n_features: int) -> None:
        n_curves = len(_CURVES)
        vectors = unit(normals(shape_key(seed, 1), np.arange(5 * n_curves), n_features))
        steps, waves = 4.0 * vectors[:n_curves], vectors[n_curves:].reshape(n_curves, 4, n_features)
        cycle = partial(_cycle, frame(seed, 0, 4, n_features))
        self.parts = [_Part("cycle", _OF_CYCLE, cycle, length=_length(cycle))]
        ends: dict[str | None, tuple[Array, float]] = {None: (np.zeros(n_features), 0.0)}
        for (name, parent, share), step, wave in zip(_CURVES, steps, waves, strict=True):
            start, time = ends[parent]
            length = _length(partial(_curve, 0.0, step, wave))
            self.parts.append(_Part(name, share, partial(_curve, start, step, wave), time, length))
            ends[name] = start + step, time + length
        for name in "bcd":
            start, time = ends[f"branch {name}"]
            self.parts.append(_Part(f"end {name}", _OF_END, partial(_curve, start, 0 * step, 0 * wave), time))
        shares = [part.share for part in self.parts]
        self.cumulative = np.cumsum(shares) / np.sum(shares)
        self.n_features = n_features

    def _places(self, seed: int, ids: Ids) -> tuple[Ids, Array]:
        """The part of each row, and how far it is along it."""
        numbers = uniforms(seed, ids, 2)
        part = np.searchsorted(self.cumulative[:-1], numbers[:, 0], side="right")
        # a density that falls from 3 to 1 along a branch, and is even on the cycle
        return part, np.where(part == 0, numbers[:, 1], 1.5 - np.sqrt(2.25 - 2 * numbers[:, 1]))

    def __call__(self, seed: int, ids: Ids) -> Array:
        numbers, along = self._places(seed, ids)
        out = np.empty((len(ids), self.n_features))
        for number, part in enumerate(self.parts):
            out[numbers == number] = part.curve(along[numbers == number])
        return out

    def truth(self, seed: int, ids: Ids) -> tuple[npt.NDArray[np.str_], Array]:
        """The names of the parts, and the distances from the exit of the cycle."""
        numbers, along = self._places(seed, ids)
        from_exit = np.where(numbers == 0, np.minimum(along, 1 - along), along)
        times, lengths = np.array([(part.time, part.length) for part in self.parts]).T
        return np.array([part.name for part in self.parts])[numbers], times[numbers] + lengths[numbers] * from_exit


def _curve(start: Array | float, step: Array, wave: Array, t: Array) -> Array:
    heights = np.sin(np.pi * t[:, None] * np.arange(1, 5)) * 7 / np.sqrt(np.arange(1, 5))
    path: Array = start + t[:, None] * step
    return path + sum_of_axes(heights, wave)


def _cycle(axes: Array, t: Array) -> Array:
    angle = 2 * np.pi * t
    turns = [6 * (np.cos(angle) - 1), 6 * np.sin(angle), 3 * (np.cos(2 * angle) - 1), 3 * np.sin(2 * angle)]
    return sum_of_axes(np.stack(turns, axis=1), axes)


def _length(curve: Callable[[Array], Array]) -> float:
    points = curve(np.linspace(0, 1, _STEPS))
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def sum_of_axes(points: Array, axes: Array, start: Array | float = 0.0) -> Array:
    """``start + points @ axes``, where the rounding of a row does not depend on the number of rows."""
    out = np.zeros((len(points), axes.shape[1])) + start
    for number, axis in enumerate(axes):
        out += points[:, number, None] * axis
    return out


def frame(seed: int, number: int, n_axes: int, n_features: int) -> Array:
    """Random orthonormal axes; with more axes than features, a random projection."""
    numbers = normals(shape_key(seed, number + 4), np.arange(n_axes), n_features)
    return np.linalg.qr(numbers.T)[0].T if n_axes <= n_features else numbers / np.sqrt(n_features)


def shape_key(seed: int, purpose: int) -> int:
    """Key of the random numbers of a shape."""
    return seed ^ _SHAPE ^ purpose << 32


def unit(vectors: Array) -> Array:
    """Vectors divided by their lengths."""
    lengths: Array = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def normals(key: int, ids: Ids, n_columns: int) -> Array:
    """Standard normal numbers; a row depends on the key and its number alone."""
    from scalable_gpe.loops.random import fill_gaussian

    out = np.empty((ids.size, n_columns))
    fill_gaussian(out, ids, np.arange(n_columns), np.uint64(key))
    return out


def uniforms(key: int, ids: Ids, n_columns: int) -> Array:
    """Uniform numbers in [0, 1); a row depends on the key and its number alone."""
    from scalable_gpe.loops.random import fill_uniform

    out = np.empty((ids.size, n_columns))
    fill_uniform(out, ids, np.arange(n_columns), np.uint64(key ^ _PLACE))
    return out
