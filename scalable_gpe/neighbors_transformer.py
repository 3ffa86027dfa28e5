"""Nearest neighbours behind scikit-learn's interface, for scanpy and others that take such a transformer."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from scalable_gpe.checks import Seed, check_count
from scalable_gpe.estimators import validated
from scalable_gpe.graph.build import neighbor_graph
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import nearest_rows, own_row_first
from scalable_gpe.storage.store import read_whole
from scalable_gpe.transform.new_points import nearest_points

# scikit-learn's distance is this multiple of our squared distance
_OF_SQUARES = {"cosine": 0.5, "correlation": 0.5, "hamming": 1.0, "jaccard": 1.0}


@dataclass(eq=False, repr=False)
class KNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Sparse matrix of the distances to the nearest neighbours, as scikit-learn's transformer of this name.

    Equivalent to ``sklearn.neighbors.KNeighborsTransformer(mode="distance")``, with the search of `neighbor_graph`. For
    scanpy: ``sc.pp.neighbors(adata, transformer=gpe.KNeighborsTransformer(15))``.

    Parameters
    ----------
    n_neighbors : int
        Number of neighbours; a row of the matrix holds one more, because a training row is its own nearest one. scanpy
        counts that one too: its graph has ``n_neighbors - 1`` others of each cell.
    metric : {"euclidean", "cosine", "correlation", "hamming", "jaccard"}
        The distance, as scikit-learn defines it: "cosine" is 1 - cos, "hamming" the share of entries that differ.
        `transform` does not know "jaccard".
    method, recall, random_state, n_jobs
        As in `neighbor_graph`.

    Attributes
    ----------
    graph_ : NeighborGraph
        The neighbour lists of the training rows; ``graph_.recall`` is their measured recall.
    n_samples_fit_ : int
        Number of training rows, which is the number of columns of the matrix.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> distances = gpe.KNeighborsTransformer(15).fit_transform(gpe.datasets.torus(500))
    >>> distances.shape, distances.nnz
    ((500, 500), 8000)
    """

    n_neighbors: int = 15
    _: KW_ONLY
    metric: str = "euclidean"
    method: str = "auto"
    recall: float = 0.95
    random_state: Seed = 0
    n_jobs: int | None = None

    def fit(self, X: Any, y: None = None) -> Self:
        """Find the neighbours of the training rows.

        Parameters
        ----------
        X : array-like (N, d)
            Any input that `neighbor_graph` takes.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        check_count(self.n_neighbors, "n_neighbors")  # None would not tell scanpy how many there are
        self.graph_: NeighborGraph = neighbor_graph(validated(self, X, reset=True), **self.get_params())
        self.n_samples_fit_ = self._n_features_out = self.graph_.n_rows
        return self

    def fit_transform(self, X: Any, y: None = None) -> csr_matrix:
        """Fit, and return the lists of the training rows.

        Equivalent to ``fit(X).transform(X)`` where the lists are complete: `transform` searches exactly.

        Parameters
        ----------
        X : array-like (N, d)
            As in `fit`.
        y : None
            Ignored.

        Returns
        -------
        csr_matrix (N, N)
            In each row the row itself, with distance 0, and its `n_neighbors` nearest others, nearest first.
        """
        graph = self.fit(X).graph_
        order, lists, distances = graph.storage_order, read_whole(graph.lists), graph.list_distances
        own = np.arange(order.n_points, dtype=lists.dtype)[:, None]
        points = np.concatenate([own, lists], axis=1)
        lengths = graph.in_user_units(np.concatenate([np.zeros(own.shape, np.float32), read_whole(distances)], axis=1))
        rows, lengths = nearest_rows(order.spread(points), order.spread(lengths), order, self._width)
        return self._matrix(own_row_first(rows), lengths)

    def transform(self, X: Any) -> csr_matrix:
        """Find the nearest training rows of any rows, exactly.

        Parameters
        ----------
        X : array-like (M, d)
            As in `fit`, with the same features.

        Returns
        -------
        csr_matrix (M, N)
            In each row the ``n_neighbors + 1`` nearest training rows, nearest first.
        """
        check_is_fitted(self)
        points, lengths = nearest_points(validated(self, X, reset=False), self.graph_, self._width, self.metric)
        return self._matrix(*nearest_rows(points, lengths, self.graph_.storage_order, self._width))

    @property
    def _width(self) -> int:
        return self.graph_.n_neighbors + 1

    def _matrix(self, rows: np.ndarray, lengths: np.ndarray) -> csr_matrix:
        """The matrix of lists of training rows; -1 is left out."""
        factor = _OF_SQUARES.get(self.metric)
        values = lengths if factor is None else lengths * lengths * lengths.dtype.type(factor)
        listed = rows >= 0
        pointers = np.concatenate([[0], np.cumsum(listed.sum(axis=1))])
        return csr_matrix((values[listed], rows[listed], pointers), shape=(len(rows), self.n_samples_fit_))

    def __sklearn_tags__(self) -> Any:  # scikit-learn has no types
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
