"""Scikit-learn adapter of `propagate`."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from scalable_gpe.errors import ConnectivityWarning, warn
from scalable_gpe.estimators import GraphEstimator, extended, validated
from scalable_gpe.pipeline import embed
from scalable_gpe.propagation.labels import GivenLabels, check_labels

Array = npt.NDArray[Any]


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
