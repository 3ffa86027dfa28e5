"""Figures of an embedding: labels of the nearest rows, clusters, few labels, and order of distances."""

import warnings
from functools import partial

import numpy as np

from truth import Truth

FIGURES = ("labels", "NMI", "few", "rho")
_NEAREST = 10
_LABELLED = 5
_DRAWS = 5
_SAMPLE = 2000
_BLOCK = 500


def figures(truth: Truth, points: np.ndarray) -> dict[str, float]:
    """Compute all figures that the truth allows.

    labels
        Share of the 10 nearest rows that have the row's label (fewer than 10 if the smallest class has fewer others).
    NMI
        Normalised mutual information of the classes with k-means of as many clusters.
    few
        Accuracy of the nearest labelled row, if 5 rows of each class are labelled (half of the smallest class if it
        has fewer than 10); mean of five draws.
    rho
        Spearman's correlation of distances in the embedding with the true ones.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # k-means of so few rows is many times slower on several threads
        return _figures(truth, points)


def _figures(truth: Truth, points: np.ndarray) -> dict[str, float]:
    rows = truth.rows
    known, found = np.asarray(points, np.float64)[rows], truth.labels[rows]
    n_nearest = min(_NEAREST, truth.smallest_class - 1)
    n_labelled = min(_LABELLED, max(truth.smallest_class // 2, 1))
    result = {"labels": label_share(known, found, n_nearest)}
    if truth.classes:
        result["NMI"] = cluster_agreement(known, found)
    result["few"] = few_labels(known, found, n_labelled)
    if truth.pairs is not None and truth.distances is not None:
        result["rho"] = rank_correlation(points, truth.pairs, truth.distances)
    return result


def label_share(points: np.ndarray, labels: np.ndarray, n_nearest: int) -> float:
    """Share of the nearest other rows of sampled rows that have the row's label."""
    rows = _sample(len(points))
    shares = []
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        squares = _squares(points[block], points)
        squares[np.arange(len(block)), block] = np.inf
        near = np.argpartition(squares, n_nearest, axis=1)[:, :n_nearest]
        shares.append((labels[near] == labels[block][:, None]).mean(axis=1))
    return float(np.concatenate(shares).mean())


def cluster_agreement(points: np.ndarray, labels: np.ndarray) -> float:
    """Normalised mutual information of the labels with k-means."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    n_clusters = len(np.unique(labels))
    scaled = (points / max(points.std(), 1e-300)).astype(np.float32)
    means = KMeans(n_clusters, n_init=10 if n_clusters < 100 else 1, max_iter=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer different points than clusters: the figure says it
        return float(normalized_mutual_info_score(labels, means.fit_predict(scaled)))


def few_labels(points: np.ndarray, labels: np.ndarray, n_labelled: int) -> float:
    """Accuracy of the label of the nearest labelled row, over sampled rows and several draws of labelled rows."""
    shares = []
    for draw in range(_DRAWS):
        rng = np.random.default_rng(draw)
        labelled = _labelled(labels, n_labelled, rng)
        others = np.setdiff1d(np.arange(len(points)), labelled)
        others = rng.permutation(others)[:_SAMPLE]
        nearest = labelled[_squares(points[others], points[labelled]).argmin(axis=1)]
        shares.append(float((labels[nearest] == labels[others]).mean()))
    return float(np.mean(shares))


def _labelled(labels: np.ndarray, n_labelled: int, rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return order[(starts[:, None] + np.arange(n_labelled)).ravel()]


def rank_correlation(points: np.ndarray, pairs: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's correlation of the distances of pairs with the true ones."""
    from scipy.stats import spearmanr

    distances = np.linalg.norm(points[pairs[0]] - points[pairs[1]], axis=1)
    return float(spearmanr(distances, truth)[0]) if np.ptp(distances) else 0.0


def _squares(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    norm = partial(np.einsum, "ij,ij->i")
    return norm(some, some)[:, None] - 2 * some @ others.T + norm(others, others)


def _sample(n_rows: int) -> np.ndarray:
    if n_rows <= _SAMPLE:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, _SAMPLE, replace=False))
