"""Data sets with known truth: classes, distances along the surface, or pseudotime from a root.

The sets are split by name, in alphabetical order and by turns: the first is for choosing, the second only for
reporting, and so on. The split was made before any figure was computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import labels
import scalable_gpe as gpe
from scalable_gpe.execution.panels import Panels
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.horizon import Horizon, measure_horizon

N_PAIRS = 20_000
_CELLS = 50
_UNLABELLED = -1


@dataclass(frozen=True)
class Truth:
    """Points and what is known about them.

    `labels` are -1 for rows that have no class; such rows are embedded, but no figure counts them. `classes` is False
    where labels are cells of a surface, which no clustering can find. `pairs` are rows (2, n) and `distances` the
    true distances between them.
    """

    X: np.ndarray
    labels: np.ndarray
    classes: bool = True
    pairs: np.ndarray | None = None
    distances: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """The rows that have a label."""
        return np.flatnonzero(self.labels != _UNLABELLED)

    @property
    def smallest_class(self) -> int:
        """The number of rows of the smallest class."""
        return int(np.bincount(self.labels[self.rows]).min())


def load(name: str, share: float = 1.0, fashion: Path = labels.FASHION) -> Truth:
    """Make or read one data set; `share` makes it smaller."""
    if name == "Fashion-MNIST":
        return _fashion(share, fashion)
    return DATA[name](share)


def sampled(truth: Truth, n_rows: int, root: int | None = None) -> tuple[np.ndarray, Truth]:
    """Sample rows so that they contain both rows of each pair that is kept; all pairs may begin at one root."""
    kept, distances = truth.pairs, truth.distances
    chosen = np.random.default_rng(3).permutation(len(truth.X))
    if kept is not None and distances is not None:
        n_pairs = min(kept.shape[1], n_rows - 1 if root is not None else n_rows // 2)
        kept, distances = kept[:, :n_pairs], distances[:n_pairs]
        first = np.unique(kept)
        chosen = np.concatenate([first, np.setdiff1d(chosen, first, assume_unique=True)])
    rows = np.sort(chosen[:n_rows])
    inside = None if kept is None else np.searchsorted(rows, kept)
    return rows, Truth(truth.X[rows], truth.labels[rows], truth.classes, inside, distances)


def horizon_of(heat: gpe.HeatKernel) -> Horizon:
    """The horizon of all scales that a heat kernel has by default."""
    return measure_horizon(CoarseBasis.of(heat, Panels(heat.context)))


def role(name: str) -> str:
    """Return "choose" or "report"."""
    return "report" if sorted(DATA, key=str.lower).index(name) % 2 else "choose"


# --- real data ------------------------------------------------------------------------------------


def _fashion(share: float, folder: Path = labels.FASHION) -> Truth:
    """20,000 images of Fashion-MNIST, as 50 principal components."""
    from sklearn.decomposition import PCA

    images, kinds = labels.fashion(folder)
    rows = np.sort(np.random.default_rng(0).choice(len(images), int(20_000 * share), replace=False))
    return Truth(PCA(50, svd_solver="randomized", random_state=0).fit_transform(images[rows]), kinds[rows])


def _digits(share: float) -> Truth:
    return Truth(*labels.digits())


def _breast_cancer(share: float) -> Truth:
    return Truth(*labels.breast_cancer())


def _wine(share: float) -> Truth:
    from sklearn.datasets import load_wine

    X, kinds = load_wine(return_X_y=True)
    return Truth((X - X.mean(axis=0)) / X.std(axis=0), kinds)


# --- surfaces and trajectories --------------------------------------------------------------------


def _swiss_roll(share: float) -> Truth:
    """Make a swiss roll whose density falls by a factor of about eight along the roll."""
    n_rows = int(4000 * share)
    rng = np.random.default_rng(1)
    angle = 1.5 * np.pi * (1 + 2 * rng.random(n_rows) ** 1.5)
    height = 21 * rng.random(n_rows)
    X = np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], axis=1)
    X += 0.3 * rng.standard_normal(X.shape)
    length = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2
    flat = np.stack([length, height], axis=1)
    one, other = pairs = _pairs(n_rows)
    return Truth(X, _cells(flat), False, pairs, np.linalg.norm(flat[one] - flat[other], axis=1))


def _torus(share: float) -> Truth:
    """Make a stretched flat torus; angles come from the coordinates."""
    n_rows, ratio = int(4000 * share), 3.5
    X = gpe.datasets.torus(n_rows, ratio=ratio, random_state=1)
    angles = np.stack([np.arctan2(X[:, 1], X[:, 0]), np.arctan2(X[:, 3], X[:, 2])], axis=1)
    one, other = pairs = _pairs(n_rows)
    turns = np.abs(angles[one] - angles[other])
    arcs = np.minimum(turns, 2 * np.pi - turns) * [1, ratio]
    return Truth(X, _cells(X), False, pairs, np.linalg.norm(arcs, axis=1))


def branching(
    n_rows: int, n_features: int = 30, noise: float = 0.25, random_state: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a differentiation tree of five branches; return points, branches and pseudotime.

    A trunk splits in two, and both of these split again or go on; each branch is a smooth curve in its own directions.
    Branches differ in their number of rows by a factor of five, and along each of them rows become rarer. The row
    with the smallest pseudotime is the root.
    """
    rng = np.random.default_rng(random_state)
    parents, shares = (-1, 0, 0, 1, 1), np.array([0.3, 0.3, 0.2, 0.14, 0.06])
    branch = rng.choice(len(parents), n_rows, p=shares)
    along = rng.beta(1.0, 1.5, n_rows)
    X, time = np.empty((n_rows, n_features)), np.empty(n_rows)
    ends, starts = list[np.ndarray](), list[float]()
    for number, parent in enumerate(parents):
        begin = np.zeros(n_features) if parent < 0 else ends[parent]
        start = 0.0 if parent < 0 else starts[parent] + 1
        straight, bend = np.linalg.qr(rng.standard_normal((n_features, 2)))[0].T
        rows = branch == number
        s = along[rows, None]
        X[rows] = begin + 5 * s * straight + 1.5 * s**2 * bend
        time[rows] = start + along[rows]
        ends.append(begin + 5 * straight + 1.5 * bend)
        starts.append(start)
    return X + noise * rng.standard_normal(X.shape), branch, time


def _branching(share: float) -> Truth:
    X, branch, time = branching(int(4000 * share))
    root = int(time.argmin())
    others = np.flatnonzero(np.arange(len(X)) != root)
    return Truth(X, branch, True, np.stack([np.full(len(others), root), others]), time[others] - time[root])


def _pairs(n_rows: int) -> np.ndarray:
    pairs = np.random.default_rng(0).integers(0, n_rows, (2, N_PAIRS))
    return pairs[:, pairs[0] != pairs[1]]


def _cells(points: np.ndarray) -> np.ndarray:
    from sklearn.cluster import KMeans

    found: np.ndarray = KMeans(_CELLS, n_init=1, random_state=0).fit_predict(points)
    return found


# --- clusters -------------------------------------------------------------------------------------


def _blobs(
    n_rows: int, n_clusters: int, n_features: int, spread: float, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(random_state)
    found = np.arange(n_rows) * n_clusters // n_rows
    centres = spread * rng.standard_normal((n_clusters, n_features))
    return centres[found] + rng.standard_normal((n_rows, n_features)), found


def _noise(share: float) -> Truth:
    """Make ten clusters in 10 dimensions, and 190 dimensions of noise beside them."""
    X, found = _blobs(int(3000 * share), 10, 10, 2.5, 2)
    return Truth(np.hstack([X, np.random.default_rng(3).standard_normal((len(X), 190))]), found)


def _nested(share: float) -> Truth:
    """Make five groups of five clusters in 10 dimensions; labels are the clusters."""
    rng = np.random.default_rng(4)
    n_rows = int(4000 * share)
    found = np.arange(n_rows) * 25 // n_rows
    centres = 8 * rng.standard_normal((5, 1, 10)) + 1.6 * rng.standard_normal((5, 5, 10))
    return Truth(centres.reshape(25, 10)[found] + rng.standard_normal((n_rows, 10)), found)


def _outliers(share: float) -> Truth:
    """Make eight clusters and one row in fifty that belongs to none of them."""
    X, found = _blobs(int(3000 * share), 8, 10, 2.0, 5)
    strays = np.random.default_rng(6).uniform(-40, 40, (len(X) // 50, 10))
    return Truth(np.vstack([X, strays]), np.concatenate([found, np.full(len(strays), _UNLABELLED)]))


def _rings(share: float) -> Truth:
    """Make four rings around each other in a plane, with noise in 10 dimensions."""
    rng = np.random.default_rng(7)
    n_rows = int(4000 * share)
    found = np.arange(n_rows) * 4 // n_rows
    angle = 2 * np.pi * rng.random(n_rows)
    X = 0.12 * rng.standard_normal((n_rows, 10))
    X[:, 0] += (1 + found) * np.cos(angle)
    X[:, 1] += (1 + found) * np.sin(angle)
    return Truth(X, found)


def _small_clusters(share: float) -> Truth:
    """Make two thousand clusters of five rows in 10 dimensions."""
    n_clusters = int(2000 * share)
    return Truth(*_blobs(5 * n_clusters, n_clusters, 10, 4.0, 8))


def _uneven_clusters(share: float) -> Truth:
    """Make twenty clusters with widths from 0.01 to 3."""
    X, found = labels.clusters(0.01, 3.0)
    n_rows = int(len(X) * 2 / 3 * share)
    return Truth(X[:n_rows], found[:n_rows])


DATA: dict[str, Callable[[float], Truth]] = {
    "branching": _branching,
    "breast cancer": _breast_cancer,
    "digits": _digits,
    "Fashion-MNIST": _fashion,
    "nested clusters": _nested,
    "noise": _noise,
    "outliers": _outliers,
    "rings": _rings,
    "small clusters": _small_clusters,
    "swiss roll": _swiss_roll,
    "torus": _torus,
    "uneven clusters": _uneven_clusters,
    "wine": _wine,
}
