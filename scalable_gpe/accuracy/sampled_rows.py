"""Comparison of sampled rows with all rows (recall, lost mass, trustworthiness), and with the dense kernel."""

from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe.accuracy.exact_rows import ExactRows
from scalable_gpe.accuracy.statistics import NOTHING, Interval, distances, share
from scalable_gpe.embedding import Embedding
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.recall import ExactSample, Scanned, nearest_points, scan_points
from scalable_gpe.heat.kernel import row_masses
from scalable_gpe.heat.normalization import top_eigenvector
from scalable_gpe.io.rows import Rows, open_rows
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.mapped import take_rows

_N_NEIGHBORS = 10  # of the trustworthiness


class Dense:
    """Rows of f(A) of the dense kernel at the same epsilon."""

    def __init__(self, embedding: Embedding, points: Rows, exact: ExactRows) -> None:
        self._embedding, self._points, self._exact = embedding, points, exact

    @cached_property
    def _eigenvectors(self) -> tuple[np.ndarray, np.ndarray]:
        from scalable_gpe import exact

        embedding, storage_order = self._embedding, self._embedding.graph.storage_order
        X = self._points.read(0, storage_order.n_points)[storage_order.position].astype(np.float64)
        kernel, heat = embedding.kernel, embedding.heat
        if kernel.scales is not None:
            K = exact.local_affinity(X, storage_order.spread(kernel.scales.sigma))
        else:
            K = exact.affinity(X, kernel.stored_epsilon)
        normalise = exact.symmetric if heat.normalization == "symmetric" else exact.bistochastic
        values, vectors = np.linalg.eigh(normalise(K, sample_weight=heat.sample_weight))
        return values, vectors

    def compare(self, wanted: Filter, covariance: np.ndarray) -> dict[str, float]:
        """Errors of the diffusion distances of the truncated kernel against those of the dense one."""
        rows, n_rows = self._exact.rows, self._exact.n_rows
        heat = self._embedding.heat
        root = np.ones(n_rows) if heat.sample_weight is None else np.sqrt(heat.sample_weight)
        columns = np.zeros((n_rows, len(rows)))
        columns[rows, np.arange(len(rows))] = 1 / root[rows]
        if heat.is_centred or wanted.cumulative:
            top = heat.kernel.storage_order.spread(top_eigenvector(heat) / np.sqrt(heat.weights))
            columns -= np.outer(top * root, top[rows])
        values, vectors = self._eigenvectors
        image = vectors @ (wanted(values)[:, None] * (vectors.T @ columns))
        above = np.triu_indices(len(rows), 1)
        dense, sparse = distances(image.T @ image)[above], distances(covariance)[above]
        errors = np.abs(sparse[dense > 0] / dense[dense > 0] - 1)
        errors = errors if errors.size else np.zeros(1)
        return {
            "median": float(np.median(errors)),
            "bound_95": float(np.quantile(errors, 0.95)),
            "max": float(errors.max()),
        }


class Probes:
    """Sampled points, scanned exactly against all points."""

    def __init__(self, embedding: Embedding, points: Rows, n_probes: int, seed: int) -> None:
        self._graph, self._kernel, self._context = embedding.graph, embedding.kernel, embedding.graph.context
        self.points = points
        storage_order = self._graph.storage_order
        self.n_points = storage_order.n_points
        drawn = np.random.default_rng([seed, 1]).choice(self.n_points, min(n_probes, self.n_points), replace=False)
        self.own = np.sort(storage_order.by_user[drawn]).astype(np.int64)
        self.n_probes = len(self.own)
        nearest = nearest_points(points, self.own, self._graph.n_neighbors, self._context)
        self._sample = ExactSample(self.own, *nearest, self.n_points)

    def recall(self) -> Interval:
        """Share of true neighbours in the lists; a neighbour counts when it is no further than the true last one."""
        found = self._graph.list_distances.take(self.own).astype(np.float64)
        return share(*self._sample.recall(found))

    def lost_mass(self) -> Interval:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out; error of a ratio."""
        dense, kept = row_masses(self._kernel, self.points, self.own)
        if not dense.sum() > 0:
            return NOTHING
        ratio = kept.sum() / dense.sum()
        spread = float((kept - ratio * dense).std(ddof=1)) / dense.mean() / np.sqrt(self.n_probes)
        return share(max(0.0, 1 - ratio), 1.96 * spread * np.sqrt(1 - self.n_probes / self.n_points))

    def trustworthiness(self, values: Any) -> dict[str, Any] | None:
        """``1 - 2 / (m (2n - 3m - 1)) * mean sum (rank in X - m)`` over the m nearest in the embedding."""
        m = min(_N_NEIGHBORS, (self.n_points - 1) // 2)
        if m < 1:
            return None
        from scalable_gpe.loops import scan

        limits = self._squares_of_nearest(values, m)

        def count(some: Scanned, counts: np.ndarray) -> None:
            scan.count_closer(*some[1:], limits[some.lane], counts[some.lane])

        counts = scan_points(self.points, self.own, lambda: np.zeros(limits.shape, np.int64), count, self._context)
        penalty = np.maximum(np.cumsum(counts, axis=1) + 1 - m, 0).sum(axis=1)
        each = 1 - 2 * penalty / (m * (2 * self.n_points - 3 * m - 1))
        error = 1.96 * float(each.std(ddof=1)) * np.sqrt((1 - self.n_probes / self.n_points) / self.n_probes)
        return {**asdict(share(float(each.mean()), error)), "n_neighbors": m}

    def _squares_of_nearest(self, values: Any, m: int) -> np.ndarray:
        """Squared distances in X of each probe to its m nearest points in the embedding, ascending."""
        from scalable_gpe.loops import scan

        storage_order = self._graph.storage_order
        first_rows = storage_order.user_row[storage_order.by_user]
        ranks = np.empty(self.n_points, np.int64)  # of each point among the first rows
        ranks[storage_order.by_user] = np.arange(self.n_points)
        order = np.argsort(ranks[self.own])
        own = ranks[self.own][order]
        # times a power of two, because a large power leaves values whose squares float32 cannot hold
        exponent = -int(np.frexp(np.abs(take_rows(values, first_rows[own])).max())[1])
        embedded = RowSubset(open_rows(values, name="points").with_units(None, None, exponent), first_rows)
        # the embedding may be an array of this process, so its threads scan it
        here = replace(self._context, workers=self._context.workers.here)
        found = nearest_points(embedded, own, m, here)
        nearest = np.empty((self.n_probes, m), np.int64)
        nearest[order] = storage_order.by_user[found.ids]
        unique, inverse = np.unique(nearest, return_inverse=True)
        others = self.points.take(unique)[inverse.ravel()]
        samples = np.repeat(self.points.take(self.own), m, axis=0)
        squares = np.empty(nearest.size, np.float32)
        scan.pair_squares(samples, others, squares)
        return np.sort(squares.reshape(nearest.shape), axis=1)
