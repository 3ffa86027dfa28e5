"""Neighbour search of one part that is in memory: k-d tree, brute force, pynndescent."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

METHODS = ("auto", "kdtree", "brute", "cells", "pynndescent")
EXACT = ("kdtree", "brute")

_TREE_FEATURES = 8
_BRUTE_ROWS = 20_000


class Found(NamedTuple):
    """Lists of a part, in its own numbering, without the rows themselves; `order` keeps neighbours together."""

    indices: np.ndarray
    order: np.ndarray


def choose_method(method: str, n_points: int, n_features: int, n_neighbors: int) -> str:
    """Search that suits a part: exact where that is affordable."""
    if method != "auto":
        return method
    if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points:
        return "kdtree" if n_features <= 3 and n_points > 1000 and 4 * n_neighbors < n_points else "brute"
    return "kdtree" if n_features <= _TREE_FEATURES else "cells"


def search_part(X: np.ndarray, n_neighbors: int, method: str, *, random_state: int, n_jobs: int) -> Found:
    """Lists of `n_neighbors` other rows for each row of X (float32, all distinct)."""
    searches: dict[str, Callable[..., Found]] = {"kdtree": _kdtree, "brute": _brute, "pynndescent": _pynndescent}
    return searches[method](X, n_neighbors, random_state, n_jobs)


def _kdtree(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> Found:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)
    _, found = tree.query(X, k=n_neighbors + 1, workers=n_jobs)
    return Found(drop_self(np.asarray(found)), np.asarray(tree.indices))


def _brute(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> Found:
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    # centred, so that the expanded square |x|^2 - 2xy + |y|^2 does not cancel
    centred = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    with threadpool_limits(n_jobs):
        model = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(centred)
        found = model.kneighbors(centred, return_distance=False)
    return Found(drop_self(found), np.arange(len(X)))


def _pynndescent(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> Found:
    from pynndescent import NNDescent

    writable = np.array(X, order="C")  # a read-only array makes it compile a second time
    index = NNDescent(writable, n_neighbors=n_neighbors + 1, random_state=random_state % 2**31, n_jobs=n_jobs)
    return Found(repair(X, drop_self(index.neighbor_graph[0])), locality(X))


def drop_self(found: np.ndarray) -> np.ndarray:
    """Lists of m + 1 rows without the row itself; without the last one where the row is not there."""
    own = found == np.arange(len(found))[:, None]
    own[~own.any(axis=1), -1] = True
    own &= np.cumsum(own, axis=1) == 1
    return found[~own].reshape(len(found), -1).astype(np.int32)


def repair(X: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Search rows anew, exactly, whose list has a -1, a repeat or the row itself."""
    ranked = np.sort(indices, axis=1)
    bad = (ranked[:, 0] < 0) | (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    bad |= (indices == np.arange(len(indices))[:, None]).any(axis=1)
    rows = np.flatnonzero(bad)
    if not len(rows):
        return indices
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=indices.shape[1] + 1, algorithm="brute").fit(X)
    found = model.kneighbors(X[rows], return_distance=False)
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    own &= np.cumsum(own, axis=1) == 1
    indices = indices.copy()
    indices[rows] = found[~own].reshape(len(rows), -1)
    return indices


def locality(X: np.ndarray) -> np.ndarray:
    """Leaf order of a k-d tree on the three leading directions of a sample: neighbours near each other."""
    from scipy.spatial import cKDTree

    if X.shape[1] > 3:
        sample = X[:: max(1, len(X) // 4096)].astype(np.float64)
        sample = sample - sample.mean(axis=0)
        directions = np.linalg.svd(sample, full_matrices=False)[2][:3]
        X = X @ directions.T.astype(np.float32)
    return np.asarray(cKDTree(X, balanced_tree=False, compact_nodes=False).indices)
