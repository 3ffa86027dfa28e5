"""Scikit-learn adapters of `neighbor_graph` and `propagate`."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from scalable_gpe.checks import Seed, check_count
from scalable_gpe.errors import ConnectivityWarning, warn
from scalable_gpe.estimators import GraphEstimator, extended, validated
from scalable_gpe.graph.build import neighbor_graph
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import nearest_rows, own_row_first
from scalable_gpe.pipeline import embed
from scalable_gpe.propagation.labels import GivenLabels, check_labels
from scalable_gpe.storage.store import read_whole
from scalable_gpe.transform.new_points import nearest_points

# --- neighbors transformer ------------------------------------------------------------------------

# scikit-learn's distance is this multiple of our squared distance
_OF_SQUARES = {"cosine": 0.5, "correlation": 0.5, "hamming": 1.0, "jaccard": 1.0}
Array = npt.NDArray[Any]


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


# --- classifier -----------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class GraphClassifier(ClassifierMixin, GraphEstimator):
    r"""Classifier that spreads the labels of some rows along the neighbour graph of all; equivalent to `propagate`.

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon_{ij}), \quad A = S K S, \quad (I - cA)\, F = Y

    New rows get :math:`\sum_j a(x, x_j) F_j`, with the row of A that they would have had in training; a training row
    gets its own probabilities.

    Parameters
    ----------
    method : {"harmonic", "spreading", "poisson"}
        As in `propagate`. "harmonic", the default here, keeps given labels, so that it suits few labels and many.
    horizon : float or "auto"
        As in `propagate`, for "spreading".
    tol : float or "auto"
        As in `propagate`.
    n_neighbors, epsilon, normalization, metric, random_state, recall
        As in `embed`. The neighbour search is ``method="auto"``.
    store, memory_limit, n_jobs, progress
        As in `embed`.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    label_distributions_ : array (N, n_classes) of float32
        Class probabilities of the training rows; NaN where no label reaches.
    transduction_ : ndarray (N,)
        Class of each training row.
    result_ : Embedding
        Graph, kernel and heat kernel.
    propagation_ : Propagation
        The result of `propagate`.

    Examples
    --------
    >>> import numpy as np, scalable_gpe as gpe
    >>> X, y = gpe.datasets.torus(500), np.full(500, -1)
    >>> y[:20] = X[:20, 2] > 0
    >>> model = gpe.GraphClassifier().fit(X, y)
    >>> model.score(X, X[:, 2] > 0) > 0.8
    True
    """

    method: str = "harmonic"
    _: KW_ONLY
    horizon: float | str = "auto"
    tol: float | str = "auto"

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the graph of all rows, and the probabilities.

        Parameters
        ----------
        X : array-like (N, d)
            Any input that `embed` takes.
        y : array-like (N,)
            Labels; -1, None, NaN and empty texts are rows without one. If y holds -1 and one other number only, these
            are the two classes.

        Returns
        -------
        self
        """
        X = validated(self, X, reset=True)
        given = _checked(y, X.n_rows if hasattr(X, "n_rows") else X.shape[0])
        parameters = self.get_params(deep=False)
        of_labels = {name: parameters.pop(name) for name in ("method", "horizon", "tol")}
        self.result_ = embed(X, n_components=1, power=1, axes="sketch", **parameters)
        propagation = self.result_.propagate(given.by_row(self.result_.graph.n_rows), **of_labels)
        self.propagation_ = replace(propagation, classes=given.classes)
        self.classes_, self.label_distributions_ = given.classes, propagation.probabilities
        self.transduction_ = self._classes_of(np.asarray(self.label_distributions_[:]))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities of new rows; those of training rows that no label reaches do not count.

        Parameters
        ----------
        X : array-like (M, d)
            As in `fit`.

        Returns
        -------
        ndarray (M, n_classes) of float32
            The shares of the classes among all rows, with a warning, where no label reaches.
        """
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        values = extended(self.result_, X, np.nan_to_num(np.asarray(self.label_distributions_[:])))
        total = values.sum(axis=1, keepdims=True)
        return self._filled(np.divide(values, total, out=np.full_like(values, np.nan), where=total > 0))

    def predict(self, X: Any) -> Array:
        """Most probable classes of new rows.

        Parameters
        ----------
        X : array-like (M, d)
            As in `fit`.

        Returns
        -------
        ndarray (M,)
        """
        likely = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likely])

    def _classes_of(self, probabilities: Array) -> Array:
        return np.asarray(self.classes_[self._filled(probabilities).argmax(axis=1)])

    def _filled(self, probabilities: Array) -> Array:
        """Probabilities with the shares of the classes among all rows in place of NaN."""
        missing = np.isnan(probabilities[:, 0])
        if missing.any():
            warn(
                f"no label reaches {missing.sum()} of {len(missing)} rows: they get the shares of the classes among "
                "the rows that it reaches. Label more rows, or raise n_neighbors.",
                ConnectivityWarning,
            )
        return np.where(missing[:, None], np.nanmean(self.label_distributions_, axis=0), probabilities)


def _checked(y: Any, n_rows: int) -> GivenLabels:
    """Labels of the rows; -1 and one other number are two classes."""
    if y is None:
        raise ValueError("GraphClassifier requires y to be passed, but the target y is None.")
    values = column_or_1d(y, warn=True)
    if values.dtype.kind == "i" and (values == -1).any() and len(np.unique(values)) == 2:
        classes, codes = np.unique(values, return_inverse=True)
        return GivenLabels(classes, np.arange(len(codes)), codes.astype(np.int32))
    if values.dtype.kind == "f":
        assert_all_finite(values, allow_nan=True, input_name="y")
        check_classification_targets(np.nan_to_num(values, nan=-1))
    given = check_labels(values, n_rows, "y")
    check_classification_targets(given.classes[given.codes])
    return given
