"""Sampled rows against all rows: recall, lost mass and trustworthiness; and against the dense kernel."""

from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe.accuracy.exact_rows import ExactRows
from scalable_gpe.accuracy.statistics import distances
from scalable_gpe.embedding import Embedding
from scalable_gpe.graph.recall import scan_blocks, scan_points
from scalable_gpe.heat.kernel import row_masses
from scalable_gpe.storage.protocol import ranges, take_rows

_N_NEIGHBORS = 10  # of the trustworthiness


class Dense:
    """Rows of the dense kernel's A^p at the same epsilon."""

    def __init__(self, embedding: Embedding, points: Any, exact: ExactRows) -> None:
        self._embedding, self._points, self._exact = embedding, points, exact

    @cached_property
    def _operator(self) -> np.ndarray:
        from scalable_gpe import exact

        embedding, storage_order = self._embedding, self._embedding.graph.storage_order
        X = self._points.read(0, storage_order.n_points)[storage_order.position].astype(np.float64)
        kernel, normalization = embedding.kernel, embedding.heat.normalization
        if kernel.sigma is not None:
            K = exact.local_affinity(X, kernel.sigma)
            return exact.symmetric(K) if normalization == "symmetric" else exact.bistochastic(K)
        assert kernel.epsilon is not None
        return exact.heat_kernel(X, kernel.epsilon, normalization)

    def compare(self, power: int, covariance: np.ndarray) -> dict[str, float]:
        """Diffusion distances of the truncated kernel against those of the dense one."""
        rows, n_rows = self._exact.rows, self._exact.n_rows
        columns = np.zeros((n_rows, len(rows)))
        columns[rows, np.arange(len(rows))] = 1
        if self._embedding.heat.is_centred:
            columns -= 1 / n_rows
        for _ in range(power):
            columns = self._operator @ columns
        above = np.triu_indices(len(rows), 1)
        dense, sparse = distances(columns.T @ columns)[above], distances(covariance)[above]
        errors = np.abs(sparse[dense > 0] / dense[dense > 0] - 1)
        if not errors.size:
            return {"median": 0.0, "bound_95": 0.0, "max": 0.0}
        bound = float(np.quantile(errors, 0.95))
        return {"median": float(np.median(errors)), "bound_95": bound, "max": float(errors.max())}


class Probes:
    """Sampled points, scanned exactly against all points."""

    def __init__(self, embedding: Embedding, points: Any, n_probes: int, seed: int) -> None:
        from scalable_gpe.loops import probes as kernels

        self._graph, self._kernel, self._context = embedding.graph, embedding.kernel, embedding.graph.context
        self.points = points
        storage_order = self._graph.storage_order
        self.n_points = storage_order.n_points
        drawn = np.random.default_rng([seed, 1]).choice(self.n_points, min(n_probes, self.n_points), replace=False)
        self.own = np.sort(storage_order.by_user[drawn])
        self.n_probes = len(self.own)
        self._samples = points.take(self.own)
        squares, ids = self._empty(self._graph.n_neighbors)
        scan_points(
            points, self.own, self._samples, lambda *given: kernels.nearest_rows(*given), (squares, ids), self._context
        )
        self._nearest = squares

    def _embedded_blocks(self, values: Any) -> Any:
        """Embedded points, each distinct one once, with their storage numbers."""
        storage_order = self._graph.storage_order
        firsts = storage_order.user_row[storage_order.by_user]
        for start, stop in ranges(self.n_points, max(1024, min(65_536, 2**22 // values.shape[1]))):
            rows = firsts[start:stop]
            block = np.asarray(values[int(rows[0]) : int(rows[-1]) + 1])[rows - rows[0]]
            yield storage_order.by_user[start:stop].astype(np.int64), np.ascontiguousarray(block)

    def _empty(self, n_keep: int) -> tuple[np.ndarray, np.ndarray]:
        """Room for the nearest rows of each probe: squared distances and numbers."""
        return np.full((self.n_probes, n_keep), np.inf, np.float32), np.full((self.n_probes, n_keep), -1, np.int64)

    def recall(self) -> dict[str, float]:
        """Share of true neighbours in the lists; a neighbour counts when it is no further than the true last one."""
        found = self._graph.list_distances.take(self.own).astype(np.float64)
        reach = np.sqrt(self._nearest[:, -1].astype(np.float64)) * (1 + 1e-5)
        shares = (found <= reach[:, None]).mean(axis=1)
        value = float(shares.mean())
        if self.n_probes == self.n_points:
            return {"value": value, "low": value, "high": value}
        # with no miss among n trials, 3 / n is the 95 % bound of the share of misses
        error = max(1.96 * float(shares.std(ddof=1)) / np.sqrt(self.n_probes), 3 / found.size)
        return _share(value, error)

    def lost_mass(self) -> dict[str, float]:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out; error of a ratio."""
        dense, kept = row_masses(self._kernel, self.points, self.own)
        if not dense.sum() > 0:
            return {"value": 0.0, "low": 0.0, "high": 0.0}
        share = kept.sum() / dense.sum()
        spread = float((kept - share * dense).std(ddof=1)) / dense.mean() / np.sqrt(self.n_probes)
        error = 1.96 * spread * np.sqrt(1 - self.n_probes / self.n_points)
        return _share(max(0.0, 1 - share), error)

    def trustworthiness(self, values: Any) -> dict[str, float] | None:
        """``1 - 2 / (m (2n - 3m - 1)) * mean sum (rank in X - m)`` over the m nearest in the embedding."""
        from scalable_gpe.loops import probes as kernels

        m = min(_N_NEIGHBORS, (self.n_points - 1) // 2)
        if m < 1:
            return None
        storage_order = self._graph.storage_order
        samples = take_rows(values, storage_order.user_row[self.own])
        squares, near = self._empty(m)
        scan_blocks(
            self._embedded_blocks(values), self.own, samples, kernels.nearest_rows, (squares, near), self._context
        )
        unique, places = np.unique(near, return_inverse=True)
        others = self.points.take(unique)[places.reshape(near.shape)]
        limits = np.empty(near.shape, np.float32)
        kernels.pair_squares(self._samples, others, limits)
        limits.sort(axis=1)
        counts = np.zeros(near.shape, np.int64)
        scan_points(
            self.points,
            self.own,
            self._samples,
            lambda *given: kernels.count_closer(*given),
            (limits, counts),
            self._context,
        )
        ranks = np.cumsum(counts, axis=1) + 1
        penalty = np.maximum(ranks - m, 0).sum(axis=1)
        each = 1 - 2 * penalty / (m * (2 * self.n_points - 3 * m - 1))
        error = 1.96 * float(each.std(ddof=1)) * np.sqrt((1 - self.n_probes / self.n_points) / self.n_probes)
        return {**_share(each.mean(), error), "n_neighbors": m}


def _share(value: Any, error: Any) -> dict[str, float]:
    """A figure between 0 and 1 with its interval."""
    return {"value": float(value), "low": float(max(0.0, value - error)), "high": float(min(1.0, value + error))}
