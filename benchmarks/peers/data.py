"""The data: rows written once for all methods, a sample on which all are judged, and what is known about it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import labels
import scalable_gpe as gpe
from graph import measured_recall
from quality import figures, rank_correlation
from truth import Truth, branching, load, sampled

DATA = ("branching", "Fashion-MNIST", "swiss roll", "torus")
TIMES: tuple[int | str, ...] = (1, 16, 64, "all")
EXACT_ROWS = 5000
SAMPLE = 10_000
_STABILITY_PAIRS = 500
_STANDARD = {"Fashion-MNIST": 20_000, "swiss roll": 4000, "torus": 4000}  # rows of `truth.load` with share 1
_FASHION_ROWS = 70_000


@dataclass(frozen=True)
class Sample:
    """Rows on which all methods are judged, what is known about them, and exact distances of few rows.

    `truth` has the sampled rows only. `pairs` are pairs of sampled rows whose distances are compared between seeds,
    and `exact` their diffusion distances by power.
    """

    rows: np.ndarray
    truth: Truth
    pairs: np.ndarray
    root: int | None
    exact: dict[str, np.ndarray]


@dataclass(frozen=True)
class Quality:
    """Figures by time of the diffusion ("" if a method has none), and distances of few pairs."""

    figures: dict[str, dict[str, float]]
    distances: list[float]


def prepare(name: str, n_rows: int, folder: Path, fashion: Path = labels.FASHION) -> tuple[Path, Sample]:
    """Write the rows of a data set, and sample them."""
    truth, root = _load(name, n_rows, fashion)
    X = np.asarray(truth.X, np.float32)
    path = folder / f"{name.replace(' ', '-')}-{n_rows}.npy"
    np.save(path, X)
    rows, known = sampled(truth, SAMPLE, root)
    pairs = np.random.default_rng(1).integers(0, len(rows), (2, _STABILITY_PAIRS))
    exact = _exact(X, rows[pairs]) if n_rows <= EXACT_ROWS else {}
    np.save(path.with_suffix(".rows.npy"), rows)
    return path, Sample(rows, known, pairs, root, exact)


def available_rows(name: str, n_rows: int) -> bool:
    return name != "Fashion-MNIST" or n_rows <= _FASHION_ROWS


def _load(name: str, n_rows: int, fashion: Path) -> tuple[Truth, int | None]:
    if name != "branching":
        return load(name, n_rows / _STANDARD[name], fashion), None
    X, branch, time = branching(n_rows)
    root = int(time.argmin())
    others = np.delete(np.arange(n_rows), root)
    others = np.random.default_rng(2).permutation(others)[:SAMPLE]
    return Truth(X, branch, True, np.stack([np.full(len(others), root), others]), time[others] - time[root]), root


def _exact(X: np.ndarray, pairs: np.ndarray) -> dict[str, np.ndarray]:
    """Diffusion distances of pairs of rows by the dense heat kernel, without truncation and sketch."""
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X))
    K = gpe.exact.affinity(X, kernel.epsilon) if kernel.sigma is None else gpe.exact.local_affinity(X, kernel.sigma)
    values, vectors = np.linalg.eigh(gpe.exact.bistochastic(K))
    values, vectors = values[:-1], vectors[:, :-1]  # the last one is constant
    differences = vectors[pairs[0]] - vectors[pairs[1]]
    return {str(t): np.linalg.norm(differences * _weights(values, t), axis=1) for t in TIMES[1:]}


def judge(found: dict[str, np.ndarray], sample: Sample, path: Path) -> Quality:
    """Compute all figures of what a method has found."""
    result: dict[str, dict[str, float]] = {}
    distances = np.zeros(0)
    if "neighbors" in found:
        result[""] = {"recall": measured_recall(np.load(path), found["neighbors"])}
    if "points" in found:
        points, eigenvalues = found["points"], found.get("eigenvalues")
        for time in TIMES if eigenvalues is not None else ("",):
            scaled = points if eigenvalues is None else points * _weights(np.maximum(eigenvalues, 0), time)
            distances = np.linalg.norm(scaled[sample.pairs[0]] - scaled[sample.pairs[1]], axis=1)
            result[str(time)] = _figures(scaled, sample)
    if "pseudotime" in found and sample.truth.pairs is not None and sample.truth.distances is not None:
        time = found["pseudotime"][:, None]
        result["pseudotime"] = {"rho": rank_correlation(time, sample.truth.pairs, sample.truth.distances)}
    return Quality(result, [float(f"{one:.4g}") for one in distances])


def _figures(points: np.ndarray, sample: Sample) -> dict[str, float]:
    if not np.isfinite(points).all():
        return {}
    found = figures(sample.truth, points)
    for power, distances in sample.exact.items():
        found[f"diffusion {power}"] = rank_correlation(points, sample.pairs, distances)
    return found


def _weights(eigenvalues: np.ndarray, time: int | str) -> np.ndarray:
    """What a time leaves of each eigenvector; "all" is the sum of all times, the weights of diffusion pseudotime."""
    if isinstance(time, int):
        return eigenvalues**time
    return eigenvalues / np.maximum(1 - eigenvalues, 1e-12)
