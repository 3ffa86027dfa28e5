"""Scikit-learn adapters of `embed` and `diffusion_map`."""

import os
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from scalable_gpe.checks import Seed, check_whole
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.graph.precomputed import PRECOMPUTED
from scalable_gpe.io.anndata_input import is_anndata
from scalable_gpe.io.export import component_names
from scalable_gpe.io.rows import open_rows
from scalable_gpe.pipeline import embed
from scalable_gpe.spectral.diffusion_map import diffusion_map
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.store import MemoryTable
from scalable_gpe.transform.new_points import Extension

Array = npt.NDArray[Any]


@dataclass(kw_only=True, eq=False, repr=False)
class GraphEstimator(BaseEstimator):
    """Parameters of `embed` that all estimators have."""

    n_neighbors: int | None = None
    epsilon: float | str = "auto"
    normalization: str = "bistochastic"
    metric: str = "euclidean"
    random_state: Seed = 0
    recall: float = 0.95
    store: str | os.PathLike[str] | None = None
    memory_limit: int | str | None = None
    n_jobs: int | None = None
    progress: Callable[[str, int, int], object] | bool | None = None

    def __sklearn_tags__(self) -> Any:  # scikit-learn has no types
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class _Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GraphEstimator):
    """What both transformers share: checked input, a run of `embed`, new points."""

    scale: str | None = None
    method: str = "auto"
    client: Any = None
    storage_options: StorageOptions | None = None
    resume: bool = True
    _dtypes: ClassVar[tuple[str, ...]]

    # scikit-learn reads a `sample_weight` in this signature as a promise that weights and repeated rows give equal
    # numbers; for a random sketch they give equal expected distances
    def fit(self, X: Any, y: None = None, **weights: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array-like (N, d)
            Any input that `embed` takes, AnnData objects among them. Dask, zarr and memory-mapped arrays, paths, backed
            and lazy objects are read block by block. With ``metric="precomputed"``, an N x N matrix.
        y : None
            Ignored.
        sample_weight : array-like (N,), optional
            As in `embed`.

        Returns
        -------
        self
        """
        self._fit(validated(self, X, reset=True, storage_options=self.storage_options), **weights)
        return self

    def fit_transform(self, X: Any, y: None = None, **weights: Any) -> Array:
        """Fit the embedding and return it; equivalent to ``fit(X).transform(X)``.

        Parameters
        ----------
        X : array-like (N, d)
            As in `fit`.
        y : None
            Ignored.
        sample_weight : array-like (N,), optional
            As in `embed`.

        Returns
        -------
        ndarray (N, k)
        """
        return np.asarray(self.fit(X, **weights).embedding_[:])

    def transform(self, X: Any) -> Array:
        """Embed new rows; a training row gets its own embedding. A warning counts rows far from all training rows.

        Parameters
        ----------
        X : array-like (M, d)
            As in `fit`; not with ``metric="precomputed"``.

        Returns
        -------
        ndarray (M, k)
        """
        check_is_fitted(self)
        return np.asarray(self._transform(validated(self, X, reset=False, storage_options=self.storage_options)))

    def _embed(self, X: Any, **changes: Any) -> None:
        """Embed X with the parameters of the estimator, but for some."""
        self.result_: Embedding = embed(X, **(self.get_params(deep=False) | changes))
        self.epsilon_, self.report_ = self.result_.kernel.epsilon, self.result_.report

    def __sklearn_clone__(self) -> Self:
        """A clone with the same client, which cannot be copied."""
        plain = copy(self)
        plain.client = None
        made: Self = super(_Transformer, plain).__sklearn_clone__()
        made.client = self.client
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:  # scikit-learn has no types
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED
        tags.transformer_tags.preserves_dtype = list(self._dtypes)
        return tags


@dataclass(eq=False, repr=False)
class GaussianProcessEmbedding(_Transformer):
    r"""Gaussian process embedding as a scikit-learn transformer; equivalent to `embed`.

    .. math::
        K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon_{ij}), \quad A = S K S, \quad Y = A^p G / \sqrt{k}

    Parameters
    ----------
    n_components : int
        Dimension k of the embedding.
    power : int or "all"
        The power p of A, or the sum of all powers up to the horizon; a single one.
    horizon : int or "auto"
        The horizon of "all".
    first_power : int or "auto"
        The first power of "all".
    n_sketch : int, optional
        Columns that are computed; the n_components principal axes of them are kept.
    axes : {"principal", "sketch"}
        Principal axes, ordered by their variance; or the random columns of the sketch.
    scale : {None, "standard", "robust"}
        As in `embed`: columns are divided by their spread, also those of new rows.
    metric : str
        As in `embed`. "precomputed": X holds distances, all N x N or sparse ones of neighbours, as in scikit-learn.
    n_neighbors, epsilon, normalization, sketch, random_state, precision, tol, method, recall
        As in `embed`.
    client, store, storage_options, memory_limit, n_jobs, resume, progress
        As in `embed`. A clone has the same client.

    Attributes
    ----------
    embedding_ : array (N, k) of float32
        The embedding of the training rows; a zarr array when there is a store.
    result_ : Embedding
        The result of `embed`, with graph, kernel and heat kernel.
    epsilon_ : float
        The bandwidth; with local length scales, the median of sigma^2.
    power_ : int or "all"
        The power.
    horizon_ : int or None
        The horizon of "all".
    report_ : dict
        What the run measured.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> model = gpe.GaussianProcessEmbedding(n_components=4, power=16)
    >>> model.fit_transform(gpe.datasets.torus(500)).shape
    (500, 4)
    >>> model.get_feature_names_out()[0]
    'gpe_1'
    """

    _dtypes = ("float32",)

    n_components: int = 32
    _: KW_ONLY
    power: int | str = "all"
    horizon: int | str = "auto"
    first_power: int | str = "auto"
    n_sketch: int | None = None
    axes: str = "principal"
    sketch: str = "gaussian"
    precision: str = "single"
    tol: Any = "auto"

    def _fit(self, X: Any, sample_weight: Any = None) -> None:
        if np.ndim(self.power):
            raise ValueError(f"power must be one int for an estimator; got {self.power!r}. Use embed for several.")
        self._embed(X, sample_weight=sample_weight)
        self.power_, self.horizon_ = self.report_["power"], self.report_["horizon"]
        self.embedding_ = self.result_.points

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns, as exports have them.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.array(component_names(self._n_features_out), dtype=object)

    def _transform(self, X: Any) -> Array:
        return np.asarray(self.result_.transform(X))


@dataclass(eq=False, repr=False)
class DiffusionMap(_Transformer):
    r"""Diffusion map on the same kernel as a scikit-learn transformer; equivalent to `diffusion_map`.

    .. math:: (\lambda_1^t v_1, \dots, \lambda_k^t v_k)

    New rows are embedded by Nyström's formula, v(x) = sum_j a(x, x_j) v_j / lambda.

    Parameters
    ----------
    n_components : int
        Number of eigenvectors; fewer, with a warning, if there are not enough rows.
    power : float
        The time t, the exponent of the eigenvalues.
    n_neighbors, epsilon, normalization, scale, metric, random_state, method, recall
        As in `GaussianProcessEmbedding`.
    client, store, storage_options, memory_limit, n_jobs, resume, progress
        As in `GaussianProcessEmbedding`.

    Attributes
    ----------
    embedding_ : ndarray (N, k) of float64
        The diffusion map of the training rows.
    eigenvalues_ : ndarray (k,)
        In descending order, without the top one (1).
    result_ : Embedding
        Graph, kernel and heat kernel.
    epsilon_ : float
        The bandwidth; with local length scales, the median of sigma^2.
    report_ : dict
        What the run measured.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> model = gpe.DiffusionMap(2).fit(gpe.datasets.circle(400))
    >>> model.embedding_.shape, bool(model.eigenvalues_[0] < 1)
    ((400, 2), True)
    """

    _dtypes = ("float64",)

    n_components: int = 2
    _: KW_ONLY
    power: float = 1

    def _fit(self, X: Any, sample_weight: Any = None) -> None:
        # only the heat kernel is needed: the cheapest sketch is one column and one product
        self._embed(X, sample_weight=sample_weight, n_components=1, power=1, axes="sketch")
        heat = self.result_.heat
        n_components = self.n_components
        most = heat.kernel.edges.n_points - 1
        if isinstance(n_components, int | np.integer) and n_components > most:
            text = f"n_components={n_components} is more than {most}, one less than the number of different rows"
            warn(f"{text}: {most} are used.", GPEWarning)
            n_components = most
        self.embedding_, self.eigenvalues_ = diffusion_map(heat, n_components, self.power)

    def _transform(self, X: Any) -> Array:
        # Nyström divides by the eigenvalue; where it is 0 new rows get 0
        inverse = np.divide(1, self.eigenvalues_, out=np.zeros_like(self.eigenvalues_), where=self.eigenvalues_ != 0)
        return extended(self.result_, X, self.embedding_, inverse)


def extended(result: Embedding, X: Any, values: Array, factor: Array | float = 1.0) -> Array:
    """Values of new rows: a row of A times those of the training rows, which keep theirs; with a warning if far."""
    heat = result.heat
    weighted = values[heat.kernel.storage_order.user_row] * (heat.scale_points * heat.weights)[:, None] * factor
    placed = result._new_points.apply(X, [Extension([MemoryTable(weighted)], values, values.shape[1])])
    placed.warn_if_far()
    return np.asarray(placed.values[0])


def validated(estimator: BaseEstimator, X: Any, *, reset: bool, storage_options: StorageOptions | None = None) -> Any:
    """Let scikit-learn check an array in memory; any other input is checked block by block as it is read."""
    if isinstance(X, str | os.PathLike) or is_anndata(X):
        X = open_rows(X, min_rows=1, storage_options=storage_options)
    package = type(X).__module__.partition(".")[0]
    if package in ("dask", "zarr", "scalable_gpe") or isinstance(X, np.memmap):
        sized = SimpleNamespace(shape=(X.n_rows, X.n_features)) if hasattr(X, "n_rows") else X  # not loaded
        validate_data(estimator, sized, reset=reset, skip_check_array=True)
        return X
    check_whole(np.asarray(X) if isinstance(X, list) else X)  # scikit-learn converts to float64
    return validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_min_samples=2 if reset else 1,
    )
