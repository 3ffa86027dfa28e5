"""The estimators: scikit-learn's own checks, and typical uses of a transformer."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import scalable_gpe as gpe
from scalable_gpe.errors import GPEWarning

ESTIMATORS = [gpe.GaussianProcessEmbedding, gpe.DiffusionMap]


@pytest.mark.some(60)
@parametrize_with_checks([estimator() for estimator in [*ESTIMATORS, gpe.GraphClassifier]])
def test_what_scikit_learn_asks_for(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPEWarning)
        check(estimator)


@pytest.fixture(scope="module")
def rows():
    X = gpe.datasets.torus(700, random_state=4)
    return X[:600], X[600:]


@pytest.fixture(params=ESTIMATORS)
def model(request):
    return request.param(4, n_neighbors=12)


def test_gaussian_process_embedding_is_embed(rows):
    train, new = rows
    model = gpe.GaussianProcessEmbedding(5, power=9, epsilon=0.1, random_state=3)
    result = gpe.embed(train, n_components=5, power=9, epsilon=0.1, random_state=3)
    assert (model.fit_transform(train) == result.points).all()
    assert (model.embedding_ == result.points).all()
    assert (model.transform(new) == result.transform(new)).all()
    assert model.epsilon_ == 0.1
    assert model.power_ == 9
    assert model.report_["n_rows"] == 600


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_diffusion_map_is_diffusion_map(rows, normalization):
    train, new = rows
    model = gpe.DiffusionMap(3, power=2, normalization=normalization).fit(train)
    graph = gpe.neighbor_graph(train)
    points, eigenvalues = gpe.diffusion_map(gpe.heat_kernel(gpe.gaussian_kernel(graph), normalization), 3, power=2)
    np.testing.assert_allclose(model.eigenvalues_, eigenvalues, rtol=1e-7)
    np.testing.assert_allclose(model.embedding_, points, atol=1e-6 * np.abs(points).max())
    assert (model.transform(train) == model.embedding_).all()
    # Nystrom: close to the embedding of its neighbours
    nearest = np.argmin(((new[:, None] - train[None]) ** 2).sum(axis=2), axis=1)
    spread = np.abs(model.embedding_).max()
    assert np.median(np.abs(model.transform(new) - model.embedding_[nearest])) < 0.1 * spread


def test_nystrom_of_nearly_a_training_row(rows):
    """A row moved by a millionth satisfies the eigenvector equation up to the weight of the last neighbour."""
    train, _ = rows
    model = gpe.DiffusionMap(3, n_neighbors=40, epsilon="global").fit(train)
    moved = train + 1e-6
    scale = np.abs(model.embedding_).max()
    assert np.abs(model.transform(moved) - model.embedding_).max() < 0.01 * scale


def test_clone_and_parameters(model):
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(n_neighbors=7).n_neighbors == 7


def test_parameters_are_those_of_embed():
    import inspect

    ours = inspect.signature(gpe.GaussianProcessEmbedding).parameters
    theirs = inspect.signature(gpe.embed).parameters
    # a transformer returns a row for each row, and pipelines choose columns
    assert set(ours) == set(theirs) - {"X", "neighbors", "sample_weight", "missing", "numeric_only"}
    assert all(ours[name].default == theirs[name].default for name in ours)


def test_pickling(model, rows):
    train, new = rows
    model.fit(train)
    again = pickle.loads(pickle.dumps(model))
    assert again.transform(new).tobytes() == model.transform(new).tobytes()
    assert pickle.loads(pickle.dumps(again)).transform(new).tobytes() == model.transform(new).tobytes()


def test_pickling_with_a_store(rows, tmp_path):
    train, new = rows
    model = gpe.GaussianProcessEmbedding(4, power=4, store=tmp_path / "run.zarr").fit(train)
    again = pickle.loads(pickle.dumps(model))
    assert again.transform(new).tobytes() == model.transform(new).tobytes()


def test_names_pandas_and_pipelines(model, rows):
    pandas = pytest.importorskip("pandas")
    train, new = rows
    frame = pandas.DataFrame(train, columns=list("abcd"), index=[f"row {i}" for i in range(len(train))])
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    out = pipeline.fit_transform(frame)
    names = {"GaussianProcessEmbedding": [f"gpe_{i}" for i in range(1, 5)]}.get(
        type(model).__name__, [f"diffusionmap{i}" for i in range(4)]
    )
    assert list(out.columns) == names == list(pipeline.get_feature_names_out())
    assert list(out.index) == list(frame.index)
    assert pipeline.transform(pandas.DataFrame(new, columns=list("abcd"))).shape == (100, 4)
    model.fit(frame)
    assert list(model.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[["b", "a", "c", "d"]])


def test_inputs_that_are_not_loaded_whole(rows, tmp_path, model):
    """Dask, zarr, memory-mapped arrays and paths give the same result as the array."""
    da = pytest.importorskip("dask.array")
    zarr = pytest.importorskip("zarr")
    train, new = (part.astype(np.float32) for part in rows)
    expected = model.fit(train).transform(new)
    np.save(tmp_path / "train.npy", train)
    stored = zarr.create_array(tmp_path / "train.zarr", data=train, chunks=(100, 4))
    lazy = da.from_array(train, chunks=(150, 4))
    for source in (lazy, stored, np.load(tmp_path / "train.npy", mmap_mode="r"), str(tmp_path / "train.npy")):
        other = clone(model).fit(source)
        assert other.n_features_in_ == 4
        assert other.transform(da.from_array(new, chunks=(7, 4))).tobytes() == expected.tobytes()
        assert pickle.loads(pickle.dumps(other)).transform(new).tobytes() == expected.tobytes()
    with pytest.raises(ValueError, match="features"):
        model.transform(lazy[:, :3])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_more_neighbors_than_rows_are_refused_as_in_embed(estimator):
    X = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(ValueError, match="n_neighbors must be between 1 and 5, the number of other rows; got 32"):
        estimator(2, n_neighbors=32).fit(X)
    assert estimator(2).fit_transform(X).shape == (6, 2)


def test_more_eigenvectors_than_rows_warn():
    X = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.warns(GPEWarning, match="n_components=9 is more than 5"):
        model = gpe.DiffusionMap(9).fit(X)
    assert model.embedding_.shape == (6, 5)
    assert len(model.get_feature_names_out()) == 5


def test_several_powers_are_for_embed(rows):
    with pytest.raises(ValueError, match="power must be one int"):
        gpe.GaussianProcessEmbedding(2, power=(2, 4)).fit(rows[0])
