"""New points: the formula of the design by dense loops, training rows, batches, stores, far points, wrong input."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning, StoreError
from scalable_gpe.execution.memory_plan import MemoryPlan
from scalable_gpe.transform import new_points


def placed(result, X, new, power, k, kind="gaussian"):
    """The formula, dense and in float64, from the lists and the published scale."""
    K = result.kernel.to_scipy().astype(np.float64).toarray()
    s = result.heat.scale
    Z = gpe.sketch_matrix(len(X), k, kind=kind)
    if result.heat.is_centred:
        Z = Z - Z.mean(axis=0)
    for _ in range(power - 1):
        Z = s[:, None] * (K @ (s[:, None] * Z))
    distances = np.sqrt(((new[:, None].astype(float) - X[None].astype(float)) ** 2).sum(axis=2))
    first = result.graph.storage_order.user_row
    distinct = np.isin(np.arange(len(X)), first)
    held = distances.astype(np.float32) <= result.graph.distances[:, -1]
    for row in range(len(new)):
        nearest = [j for j in np.argsort(distances[row], kind="stable") if distinct[j]]
        reach = distances[row, nearest[result.graph.n_neighbors - 1]]
        held[row] |= distances[row] <= reach
    squares = distances**2
    k_row = np.where(held, np.exp(-(squares - squares.min(axis=1, keepdims=True)) / result.kernel.epsilon), 0)
    if result.heat.normalization == "bistochastic":
        scale = 1 / (k_row @ s)
    else:
        q, q_new = K.sum(axis=1), k_row.sum(axis=1)
        scale = 1 / (q_new * np.sqrt((k_row @ (1 / q)) / q_new))
    return scale[:, None] * (k_row @ (s[:, None] * Z)) / np.sqrt(k)


def relative(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


@pytest.fixture(scope="module")
def rows():
    """Training rows, some of them repeated, and new ones."""
    X = gpe.datasets.torus(900, random_state=4).astype(np.float32)
    rng = np.random.default_rng(0)
    train = np.concatenate([X[:700], X[rng.integers(0, 50, 80)]])[rng.permutation(780)]
    return train, X[700:]


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("sketch", ["gaussian", "bernoulli"])
def test_new_points_follow_the_formula(rows, normalization, sketch):
    train, new = rows
    options = {"n_components": 5, "power": (1, 9), "n_neighbors": 12, "epsilon": "auto", "axes": "sketch"}
    result = gpe.embed(train, normalization=normalization, sketch=sketch, **options)
    got = result.transform(new)
    for power in (1, 9):
        assert relative(got[power], placed(result, train, new, power, 5, sketch)) < 3e-6


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_training_rows_get_their_embedding(rows, normalization, metric):
    train, _ = rows
    result = gpe.embed(train, n_components=4, power=16, normalization=normalization, metric=metric)
    assert (result.transform(train) == result.points).all()


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_the_formula_itself_gives_training_rows_their_embedding(rows, normalization, monkeypatch):
    """Without the shortcut for known rows: a training row with weight 1 and its own list."""
    train, _ = rows
    train = np.unique(train, axis=0)
    result = gpe.embed(train, n_components=4, power=16, normalization=normalization)
    weigh = new_points.NewPoints._weigh

    def drop_last(self, chunk):
        """A row is not its own neighbour: of n_neighbors + 1 nearest, itself and n_neighbors others."""
        chunk.match[:] = -1
        return weigh(self, chunk)

    monkeypatch.setattr(new_points.NewPoints, "_weigh", drop_last)
    search = new_points.Leaves.search
    monkeypatch.setattr(new_points.Leaves, "search", lambda self, rows, n, order: search(self, rows, n + 1, order))
    assert relative(result.transform(train), result.points) < 1e-6


def test_a_row_alone_has_the_bytes_of_a_batch(rows):
    train, new = rows
    result = gpe.embed(train, n_components=5, power=9)
    together = result.transform(new)
    alone = np.concatenate([result.transform(new[i : i + 1]) for i in range(40)])
    assert together[:40].tobytes() == alone.tobytes()
    assert result.transform(new[::-1])[::-1].tobytes() == together.tobytes()


@pytest.mark.parametrize("held", [True, False])
def test_the_same_bytes_with_other_leaves_and_from_a_store(rows, held, tmp_path, monkeypatch):
    train, new = rows
    options = {"n_components": 5, "power": 9}
    expected = gpe.embed(train, **options).transform(new)
    monkeypatch.setattr(new_points, "_LEAF", 16)
    monkeypatch.setattr(new_points, "_BLOCK_LEAVES", 3)
    monkeypatch.setattr(new_points, "_BATCH_ROWS", 50)
    gpe.embed(train, **options, store=tmp_path / "run.zarr")
    result = gpe.open(tmp_path / "run.zarr")
    if not held:
        monkeypatch.setattr(MemoryPlan, "workspace", 0)
    assert result.transform(new).tobytes() == expected.tobytes()
    assert (result.transform(train) == result.points[:]).all()


def test_wide_numbers_with_a_large_offset(rows, tmp_path):
    """Rows far from the origin, in float64: new rows are shifted like the training rows, also from a store."""
    train, new = (part.astype(np.float64) + np.array([1e8, 0, -1e7, 3]) for part in rows)
    result = gpe.embed(train, n_components=5, power=9, store=tmp_path / "run.zarr")
    assert (result.transform(train) == result.points[:]).all()
    again = gpe.open(tmp_path / "run.zarr").transform(new)
    assert relative(again, gpe.embed(rows[0], n_components=5, power=9).transform(rows[1])) < 1e-2


def test_columns_of_several_panels(rows, tmp_path):
    """Columns are added to a store, then fewer are requested: new points use the first ones."""
    train, new = rows
    for k in (3, 8, 5):
        result = gpe.embed(train, n_components=k, power=9, store=tmp_path / "run.zarr")
        assert result.transform(new).tobytes() == gpe.embed(train, n_components=k, power=9).transform(new).tobytes()


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_far_points_are_finite(rows, normalization):
    train, _ = rows
    result = gpe.embed(train, n_components=5, power=9, normalization=normalization)
    far = np.array([[1e3, 0, 0, 0], [0, -1e6, 0, 0], [1e20, 1e20, 0, 0], [3e38, 3e38, -3e38, 3e38]], np.float32)
    got = result.transform(far)
    assert np.isfinite(got).all()
    # within the range of the training rows
    assert (np.abs(got) <= np.abs(result.points).max(axis=0) * 1.5).all()
    nearest = np.argmin(((train - far[0]) ** 2).sum(axis=1))
    spread = np.linalg.norm(result.points - result.points[nearest], axis=1)
    assert np.linalg.norm(got[0] - result.points[nearest]) < np.median(spread)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("epsilon", ["global", "local"])
@pytest.mark.filterwarnings("error::scalable_gpe.errors.ConnectivityWarning")
def test_distances_to_the_nearest_training_rows(rows, epsilon, metric):
    """Against brute force, with duplicates; near rows give no warning, and the points are those without distances."""
    train, new = rows
    result = gpe.embed(train, n_components=3, power=4, epsilon=epsilon, metric=metric)
    points, distance = result.transform(np.concatenate([new, train]), return_distance=True)
    assert points.tobytes() == result.transform(np.concatenate([new, train])).tobytes()
    unit = (lambda X: X / np.linalg.norm(X, axis=1, keepdims=True)) if metric == "cosine" else np.asarray
    lengths = cdist(unit(new.astype(np.float64)), unit(train.astype(np.float64)))
    nearest = lengths.argmin(axis=1)
    scale = np.sqrt(result.kernel.epsilon) if epsilon == "global" else result.kernel.sigma[nearest]
    np.testing.assert_allclose(distance[: len(new)], lengths.min(axis=1) / scale, rtol=1e-4)
    assert (distance[len(new) :] == 0).all()


@pytest.mark.parametrize("epsilon", ["global", "local"])
def test_far_rows_are_counted(rows, epsilon):
    """A row counts when the weight of its nearest training row would be below 1e-12."""
    train, new = rows
    result = gpe.embed(train, n_components=3, power=(2, 4), epsilon=epsilon)
    edge = train[train[:, 0].argmax()]  # nothing is nearer to the rows beyond it
    scale = np.sqrt(result.kernel.epsilon) if epsilon == "global" else result.kernel.sigma[train[:, 0].argmax()]
    steps = np.sqrt(12 * np.log(10)) * scale * np.array([0.98, 1.02, 3.0])
    beyond = edge + steps[:, None] * np.eye(4)[0]
    with pytest.warns(ConnectivityWarning, match=f"^2 of {len(new) + 3} new rows are far from all training rows"):
        placed = result.transform(np.concatenate([new, beyond]).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConnectivityWarning)
        both, distance = result.transform(beyond.astype(np.float32), return_distance=True)
        result.transform(beyond[:1].astype(np.float32))
    np.testing.assert_allclose(distance, steps / scale, rtol=1e-4)
    assert list(both) == [2, 4] and all((both[power] == placed[power][-3:]).all() for power in both)
    one, again = result.transform(beyond.astype(np.float32), power=4, return_distance=True)
    assert (one == both[4]).all() and (again == distance).all()


@pytest.mark.parametrize("estimator", [gpe.GaussianProcessEmbedding, gpe.DiffusionMap])
def test_estimators_count_far_rows(rows, estimator):
    train, new = rows
    model = estimator(2, n_neighbors=16).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConnectivityWarning)
        model.transform(new)
    with pytest.warns(ConnectivityWarning, match="^1 of 2 new rows are far"):
        model.transform(np.concatenate([new[:1], new[:1] + 1000]))


def test_wrong_input(rows):
    train, new = rows
    result = gpe.embed(train, n_components=3, power=4)
    with pytest.raises(ValueError, match="4 features of the training rows; got 3"):
        result.transform(new[:, :3])
    with pytest.raises(ValueError, match=r"X_new must be finite.*NaN, infinity"):
        result.transform(np.where(np.arange(4) == 2, np.nan, new))
    with pytest.raises(ValueError, match="2-D"):
        result.transform(new[0])
    alone = gpe.embed(neighbors=(result.graph.indices, result.graph.distances), n_components=3, power=4)
    with pytest.raises(ValueError, match="needs the training points"):
        alone.transform(new)


def test_all_new_rows_with_missing_values_are_counted(rows):
    """Few of them are among the rows that are looked at first, or read at once."""
    train, new = rows
    many = np.resize(new, (5000, 4))
    wrong = np.setdiff1d(np.arange(5000), np.linspace(0, 4999, 1024).astype(int))[::600]
    many[wrong, 2] = np.nan
    shown = ", ".join(map(str, wrong[:5]))
    result = gpe.embed(train, n_components=3, power=4)
    with pytest.raises(ValueError, match=f"X_new must be finite.* in rows {shown} and 2 more, column 2"):
        result.transform(many)


def test_precomputed_lists_with_points(rows):
    train, new = rows
    train = np.unique(train, axis=0)
    searched = gpe.embed(train, n_components=3, power=4)
    lists = (searched.graph.indices, searched.graph.distances)
    precomputed = gpe.embed(train, neighbors=lists, n_components=3, power=4)
    assert relative(precomputed.transform(new), searched.transform(new)) < 1e-5
    other = gpe.embed(train, neighbors=(lists[0], lists[1] ** 0.5), n_components=3, power=4)
    with pytest.raises(ValueError, match="straight-line distances"):
        other.transform(new)


def test_points_passed_when_a_store_is_opened(rows, tmp_path):
    train, new = rows
    train = np.unique(train, axis=0)
    searched = gpe.embed(train, n_components=3, power=4)
    lists = (searched.graph.indices, searched.graph.distances)
    gpe.embed(neighbors=lists, n_components=3, power=4, store=tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="needs the training points"):
        gpe.open(tmp_path / "run.zarr").transform(new)
    assert relative(gpe.open(tmp_path / "run.zarr", X=train).transform(new), searched.transform(new)) < 1e-5


def test_new_points_against_embedding_everything_again():
    """Diffusion distances among new rows: as exact as the sketch, on the torus and on digits."""
    from sklearn.datasets import load_digits

    digits = load_digits().data.astype(np.float32)
    for X, limit in ((gpe.datasets.torus(2000, random_state=1), 0.1), (digits, 0.35)):
        order = np.random.default_rng(2).permutation(len(X))
        train, new = X[order[:-200]], X[order[-200:]]
        k = 256
        result = gpe.embed(train, n_components=k, power=16, epsilon="global")
        again = gpe.embed(np.concatenate([train, new]), n_components=k, power=16, epsilon=result.kernel.epsilon)
        pairs = np.random.default_rng(0).integers(0, 200, (500, 2))
        got, expected = (
            np.linalg.norm(Y[pairs[:, 0]] - Y[pairs[:, 1]], axis=1)[pairs[:, 0] != pairs[:, 1]]
            for Y in (result.transform(new), again.points[-200:])
        )
        # distances of A^p scale as 1 / sqrt(N): compare shapes, not sizes
        ratio = got / expected / np.median(got / expected)
        assert np.median(np.abs(ratio - 1)) < limit, np.median(np.abs(ratio - 1))


def test_a_dense_kernel_gives_the_nystrom_extension():
    """With all neighbours, a(x, .) is the dense row, and the result one more product with the paper's operator."""
    X = gpe.datasets.circle(160, noise=0.02, random_state=3)
    result = gpe.embed(
        X[:150], n_neighbors=149, epsilon=0.3, power=3, n_components=4, precision="double", axes="sketch"
    )
    A = exact.heat_kernel(X[:150].astype(np.float32).astype(float), 0.3)
    G = gpe.sketch_matrix(150, 4)
    Z = np.linalg.matrix_power(A, 2) @ (G - G.mean(axis=0))
    k = np.exp(-((X[150:, None].astype(np.float32).astype(float) - X[None, :150].astype(np.float32)) ** 2).sum(2) / 0.3)
    s = result.heat.scale
    expected = (k @ (s[:, None] * Z)) / (k @ s)[:, None] / 2
    assert relative(result.transform(X[150:]), expected) < 1e-5


def test_one_power_of_several():
    X = gpe.datasets.torus(400)
    several = gpe.embed(X[:350], n_components=3, power=[2, 8])
    every = several.transform(X[350:])
    assert list(every) == [2, 8]
    for power, placed in every.items():
        np.testing.assert_array_equal(several.transform(X[350:], power=power), placed)
    with pytest.raises(ValueError, match=r"power must be one of \[2, 8\]; got 4"):
        several.transform(X[350:], power=4)
    single = gpe.embed(X[:350], n_components=3, power=8)
    np.testing.assert_array_equal(single.transform(X[350:], power=8), every[8])


def test_a_shifted_input_is_another_input(rows, tmp_path):
    """Rows that float32 cannot hold are shifted before they are stored; new rows must be shifted alike."""
    # 30 bits behind the point: more than float32 holds, and sums with 256 are exact
    train, new = (np.round(part.astype(np.float64) * 1.1 * 2**30) / 2**30 for part in rows)
    gpe.embed(train, n_components=5, power=9, store=tmp_path / "run.zarr")
    with pytest.raises(StoreError, match="shifted by a constant"):
        gpe.embed(train + 256, n_components=5, power=9, store=tmp_path / "run.zarr")
    shifted = gpe.embed(train + 256, n_components=5, power=9, store=tmp_path / "run.zarr", resume=False)
    unshifted = gpe.embed(train, n_components=5, power=9)
    assert relative(shifted.transform(new + 256), unshifted.transform(new)) < 1e-2


# --- names of the features ------------------------------------------------------------------------

FEATURES = ["height", "breadth", "depth", "weight"]


def named(kind, X, features, path):
    """Rows in a kind of input whose columns have names."""
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=FEATURES)[features]
    if kind == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "h5ad":
        anndata.AnnData(frame).write_h5ad(path)
    elif kind == "zarr":
        anndata.AnnData(frame).write_zarr(path)
    else:
        return frame if kind == "frame" else anndata.AnnData(frame)
    return path


@pytest.mark.parametrize("kind", ["frame", "object", "dask", "csv", "parquet", "h5ad", "zarr"])
def test_columns_in_another_order_are_refused_or_chosen_by_name(kind, tmp_path):
    X = gpe.datasets.torus(120).astype(np.float64)
    same = named(kind, X, FEATURES, tmp_path / f"same.{kind}")
    other = named(kind, X, FEATURES[::-1], tmp_path / f"other.{kind}")
    how = {"n_components": 4, "power": 4, "n_neighbors": 8, "progress": False}
    for result in (gpe.embed(same, store=tmp_path / "run.zarr", **how), gpe.open(tmp_path / "run.zarr")):
        assert result.feature_names.tolist() == FEATURES
        np.testing.assert_array_equal(result.transform(same), result.points[:])
        np.testing.assert_array_equal(result.transform(X), result.points[:])  # no names to compare
        if kind in ("frame", "dask", "csv", "parquet"):
            np.testing.assert_array_equal(result.transform(other), result.points[:])
            continue
        with pytest.raises(ValueError, match="column 0 is 'weight' instead of 'height'"):
            result.transform(other)


def test_columns_that_are_only_counted_have_no_names(rows, tmp_path):
    pd, (rows, _) = pytest.importorskip("pandas"), rows
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    for X in (rows, pd.DataFrame(rows), tmp_path / "rows.csv"):
        assert gpe.embed(X, n_components=2, power=1, n_neighbors=8).feature_names is None


def test_principal_components_of_cells_have_no_names(rows, tmp_path):
    """Names of the variables are those of X, not of what was made from it."""
    anndata, (rows, _) = pytest.importorskip("anndata"), rows
    adata = anndata.AnnData(np.ones_like(rows), obsm={"X_pca": rows})
    adata.write_h5ad(tmp_path / "cells.h5ad")
    for X in (adata, tmp_path / "cells.h5ad"):
        assert gpe.embed(X, n_components=2, power=1, n_neighbors=8).feature_names is None


def test_names_of_features_that_changed_replace_the_stored_ones(rows, tmp_path):
    pd, (rows, _) = pytest.importorskip("pandas"), rows
    how = {"n_components": 2, "power": 1, "n_neighbors": 8, "store": tmp_path / "run.zarr"}
    for columns in (FEATURES, ["a", "b", "c", "d"], [f"{name} in metres" for name in FEATURES]):
        gpe.embed(pd.DataFrame(rows, columns=columns), **how)
        assert gpe.open(tmp_path / "run.zarr").feature_names.tolist() == columns


@pytest.mark.parametrize("key", ["layers/counts", "raw/X"])
@pytest.mark.parametrize("kind", ["object", "h5ad", "zarr"])
def test_names_of_the_features_of_other_matrices(kind, key, rows, tmp_path):
    """`raw` has variables of its own."""
    anndata, (rows, _) = pytest.importorskip("anndata"), rows
    adata = anndata.AnnData(rows, layers={"counts": rows})
    adata.var_names = FEATURES
    adata.raw = adata
    adata = adata[:, 2:].copy()
    if kind != "object":
        getattr(adata, f"write_{kind}")(tmp_path / f"cells.{kind}")
    X = gpe.read_points(adata if kind == "object" else tmp_path / f"cells.{kind}", key=key)
    assert X.feature_names.tolist() == (FEATURES if key == "raw/X" else FEATURES[2:])
