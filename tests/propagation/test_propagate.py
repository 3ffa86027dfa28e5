"""Class probabilities against dense solves: components, weights, duplicates, both normalisations; bad input."""

import warnings

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import scalable_gpe as gpe
from scalable_gpe.colors import color_column
from scalable_gpe.errors import ConnectivityWarning, ConvergenceWarning, GPEWarning
from scalable_gpe.execution.memory_plan import block_sizes

METHODS = ("spreading", "harmonic", "poisson")


def heat_of(X: np.ndarray, normalization: str, weight: np.ndarray | None = None) -> gpe.HeatKernel:
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 8))
    return gpe.heat_kernel(kernel, normalization, tol=1e-13, sample_weight=weight)


def circles(duplicates: bool) -> np.ndarray:
    """Three circles without edges between them; the third one has no label."""
    rng = np.random.default_rng(0)
    number = np.arange(240) % 3
    angle = 2 * np.pi * (np.arange(240) // 3 + rng.uniform(0, 0.8, 240)) / 80
    X = np.column_stack([np.cos(angle) + 10 * number, np.sin(angle)])
    if duplicates:
        X[30:60:3] = X[0]
        X[90:120:3] = X[63]
    return X


def some_labels() -> np.ndarray:
    """Three classes on the first circle, two on the second one."""
    labels = np.full(240, -1)
    labels[[0, 63, 120, 126, 180]] = [0, 1, 2, 2, 0]
    labels[[1, 61, 121]] = [1, 1, 0]
    return labels


def shared(X: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Mean indicators of equal rows: what their labels mean to the dense solution."""
    w = np.ones(len(X)) if weight is None else weight
    one_hot = np.where(labels[:, None] == np.arange(labels.max() + 1), 1.0, 0.0)
    _, number = np.unique(X, axis=0, return_inverse=True)
    total = np.bincount(number, w)
    means = np.stack([np.bincount(number, w * column) for column in one_hot.T], axis=1) / total[:, None]
    return means[number]


def dense_probabilities(
    A: np.ndarray, Y: np.ndarray, method: str, horizon: float | None, weight: np.ndarray | None
) -> np.ndarray:
    """Dense solves of each component; NaN in those without a label."""
    root = np.sqrt(np.ones(len(A)) if weight is None else weight)
    scores = np.full(Y.shape, np.nan)
    n_components, component = connected_components(A > 1e-12)
    for own in (np.flatnonzero(component == number) for number in range(n_components)):
        if Y[own].any():
            scores[own] = solved(A[np.ix_(own, own)], Y[own], root[own, None], method, horizon)
    return scores / scores.sum(axis=1, keepdims=True)


def solved(A: np.ndarray, Y: np.ndarray, root: np.ndarray, method: str, horizon: float | None) -> np.ndarray:
    """With P = A u_j / u_i and L = u_i (I - A) u_j for the top eigenvector u of one component."""
    if horizon is not None:
        return np.linalg.solve(np.eye(len(A)) - (1 - 1 / horizon) * A, root * Y) / root
    u = np.abs(np.linalg.eigh(A)[1][:, -1:])
    if method == "harmonic":
        given, P = Y.any(axis=1), A * u.T / u
        F = Y / np.where(given, Y.sum(axis=1), 1)[:, None]
        F[~given] = np.linalg.solve(
            np.eye(np.sum(~given)) - P[np.ix_(~given, ~given)], P[np.ix_(~given, given)] @ F[given]
        )
        return F
    weighted = root**2 * Y
    sources = weighted - weighted.sum(axis=1, keepdims=True) * weighted.sum(axis=0) / weighted.sum()
    x = np.linalg.solve(np.eye(len(A)) - A + u @ u.T, sources / u)
    F = (x - u @ (u.T @ x)) / u
    scale = np.sqrt((u**2 * F**2).sum() / F.shape[1]) or 1.0
    return np.where(Y.any(axis=0), np.exp((F - F.max(axis=1, keepdims=True)) / scale), 0.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("case", ["plain", "duplicates", "weights"])
def test_probabilities_are_those_of_a_dense_solve(method, normalization, case):
    X, labels = circles(case == "duplicates"), some_labels()
    weight = np.random.default_rng(1).uniform(0.2, 3, 240) if case == "weights" else None
    heat = heat_of(X, normalization, weight)
    horizon = 4000.0 if method == "spreading" else None
    with pytest.warns(ConnectivityWarning, match="80 of 240 rows are in components of the kernel without a label"):
        found = gpe.propagate(heat, labels, method=method, horizon=horizon or "auto", tol=1e-8)
    A = heat.to_scipy().toarray().astype(float)
    expected = dense_probabilities((A + A.T) / 2, shared(X, labels, weight), method, horizon, weight)
    assert np.isnan(expected).any(axis=1).sum() == found.n_unreached == 80
    np.testing.assert_allclose(found.probabilities, expected, rtol=2e-6, atol=1e-7)
    assert (found.codes[np.isnan(expected[:, 0])] == -1).all() and found.codes.max() == 2
    assert found.converged and found.residual <= 1e-8


def result_bytes(found: gpe.Propagation) -> tuple[bytes, bytes]:
    return np.asarray(found.probabilities[:]).tobytes(), np.asarray(found.entropy[:]).tobytes()


@pytest.fixture(scope="module")
def torus():
    X, labels = gpe.datasets.torus(500, random_state=0).astype(np.float32), np.full(500, -1)
    X[20:30] = X[3]
    labels[:40] = np.arange(40) % 5
    return X, labels


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bytes_for_any_blocks_panels_threads_and_store(method, torus, tmp_path):
    X, labels = torus
    how = {"n_neighbors": 8, "n_components": 2, "power": 1, "progress": False}
    expected = result_bytes(gpe.embed(X, **how).propagate(labels, method=method))
    for changes in ({"block_rows": 64, "panel_columns": 2}, {"maps_arrays": True, "panel_columns": 1}):
        with block_sizes(**changes):
            run = gpe.embed(X, n_jobs=1, store=tmp_path / f"{len(changes)}{changes.get('block_rows')}", **how)
            assert result_bytes(run.propagate(labels, method=method)) == expected


class Killed(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_solution_resumes(method, torus, tmp_path):
    X, labels = torus
    how = {"n_neighbors": 8, "n_components": 2, "power": 1}
    expected = result_bytes(gpe.embed(X, **how, progress=False).propagate(labels, method=method))
    left = [25]

    def count(stage: str, done: int, total: int) -> None:
        left[0] -= stage == "labels"
        if left[0] == 0:
            raise Killed

    with block_sizes(panel_columns=3, save_seconds=0.0):
        run = gpe.embed(X, store=tmp_path / "run", **how, progress=count)
        with pytest.raises(Killed):
            run.propagate(labels, method=method)
        (name,) = (one for one in run.heat.context.store.names("labels") if one != run.heat.name)
        again = gpe.open(tmp_path / "run").propagate(labels, method=method, store=tmp_path / "run")
    assert name and result_bytes(again) == expected
    before = dict(run.heat.context.sweeps)
    assert result_bytes(run.propagate(labels, method=method)) == expected  # found, not made
    assert run.heat.context.sweeps == before


def test_harmonic_probabilities_are_those_of_walks():
    """On a path with equal weights the probability is linear in the position."""
    from scipy.sparse import diags_array

    n = 101
    K = diags_array([np.full(n - 1, 0.5), np.ones(n), np.full(n - 1, 0.5)], offsets=[-1, 0, 1]).tocsr()
    heat = gpe.heat_kernel(K, "symmetric")
    labels = np.full(n, -1)
    labels[[0, -1]] = [0, 1]
    found = gpe.propagate(heat, labels, method="harmonic")
    q = np.asarray(K.sum(axis=1)).ravel()
    steps = np.concatenate([[0], np.cumsum(q[1:] * q[:-1])])  # resistances of K_ij / (q_i q_j)
    np.testing.assert_allclose(found.probabilities[:, 1], steps / steps[-1], atol=1e-5)
    np.testing.assert_allclose(found.entropy[0], 0, atol=1e-6)
    assert 0.6 < found.entropy[50] <= np.log(2) + 1e-6


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", None, "a", "", "b", float("nan")] + [None] * 494, ["a", "b"]),
        ([2.0, np.nan, -1.0, 1.0] + [np.nan] * 496, [1.0, 2.0]),
        (np.array([3, -1, 7] + [-1] * 497), [3, 7]),
        (np.arange(500) % 2 == 0, [False, True]),
    ],
)
def test_labels_of_all_kinds(labels, classes, torus):
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(torus[0], 8)))
    found = gpe.propagate(heat, labels, method="harmonic")
    assert found.classes.tolist() == classes
    assert found.probabilities.shape == (500, 2) and found.probabilities.dtype == np.float32


def test_bad_input_is_refused(torus):
    X, labels = torus
    result = gpe.embed(X, n_neighbors=8, n_components=2, power=1, progress=False)
    for wrong, message in (
        (np.full(500, -1), "at least two classes; there is none"),
        (np.where(labels == 0, 0, -1), "all 8 labelled rows have"),
        (labels[:-1], r"one value for each of the 500 rows; got shape \(499,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            result.propagate(wrong)
    with pytest.raises(TypeError, match="numbers or texts, not both"):
        result.propagate(["a", 1] + [None] * 498)
    for more, message in (
        ({"method": "nearest"}, "method must be one of"),
        ({"horizon": 1}, "horizon must be a number above 1"),
        ({"horizon": 8, "method": "poisson"}, "horizon is for method='spreading'"),
        ({"tol": 0}, "tol must be"),
    ):
        with pytest.raises(ValueError, match=message):
            result.propagate(labels, **more)
    with pytest.raises(TypeError, match="heat must be a HeatKernel"):
        gpe.propagate(result.kernel, labels)
    with pytest.raises(ValueError, match="would be a column of obs"):
        result.propagate("kind")
    for wrong, message in (
        ({"a": [0], "b": [0]}, "each row once; 'b' has row 0 again"),
        ({"a": [0]}, "two groups or more"),
        ({"a": [0], "b": []}, "'b' has none"),
        (["cell 1", 2], "terminal must be a row number or the name of one row; got 'cell 1'"),
    ):
        with pytest.raises(ValueError, match=message):
            result.fate(wrong)


def test_columns_that_are_no_classes(torus):
    result = gpe.embed(torus[0], n_neighbors=8, n_components=2, power=1, progress=False)
    few = np.where(np.arange(500) < 40, np.where(np.arange(500) % 2, "a", "b"), None)
    for word in ("Unknown", "unknown", "nan", "NaN", "None", "NA"):
        with pytest.warns(GPEWarning, match=f"'{word}' is a class of labels like any other: pass None, NaN or") as seen:
            found = result.propagate(np.where(np.equal(few, None), word, few))
        assert len(seen) == 1 and word in found.classes
    with warnings.catch_warnings():
        warnings.simplefilter("error", GPEWarning)
        result.propagate(few)
        result.propagate(np.where(np.arange(500) < 40, np.arange(500) // 10, np.nan))  # whole numbers with missing ones
    with pytest.raises(ValueError, match="labels holds 490 different floats, which look like measurements"):
        result.propagate(torus[0][:, 0].astype(np.float64))


def test_fates_of_masks_and_single_rows():
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(np.linspace(0, 1, 300)[:, None].astype(np.float32))
    adata.obs["kind"] = np.where(np.arange(300) < 20, "start", np.where(np.arange(300) >= 290, "end", "middle"))
    result = gpe.embed(adata, n_neighbors=8, n_components=2, power=1, progress=False)
    gpe.tl.neighbors(adata, 8)
    ends = {"left": list(range(20)), "right": list(range(290, 300))}
    masks = {"left": adata.obs["kind"] == "start", "right": (adata.obs["kind"] == "end").to_numpy()}
    single, numbers = {"left": 0, "right": "299"}, {"left": [0], "right": [299]}
    for given, expected in ((masks, ends), (single, numbers)):
        probabilities = result.fate(expected).probabilities
        np.testing.assert_array_equal(result.fate(given).probabilities, probabilities)
        gpe.tl.fate(adata, given)
        np.testing.assert_allclose(adata.obsm["lineages_fwd"], probabilities, atol=1e-4)
    for call in (result.fate, lambda terminal: gpe.tl.fate(adata, terminal)):
        with pytest.raises(ValueError, match=r"terminal must have masks of the 300 rows; got one of \(20,\)"):
            call({"left": np.ones(20, bool), "right": 299})


def test_rows_too_far_for_a_short_horizon_are_counted():
    line = np.linspace(0, 1, 400)[:, None]
    labels = np.full(400, -1)
    labels[[0, 20]] = [0, 1]
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(line, 4)))
    with pytest.warns(ConnectivityWarning, match=r"horizon=2 steps from \d+ of 400 rows meet a label too rarely"):
        found = gpe.propagate(heat, labels, horizon=2)
    assert 100 < found.n_unreached == np.isnan(found.entropy).sum() < 400


def test_one_class_in_a_component_is_certain_there():
    X = np.concatenate([gpe.datasets.circle(60), gpe.datasets.circle(60) + 50])
    labels = np.full(120, -1)
    labels[[0, 30, 60]] = [0, 1, 1]
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 6)))
    for method in METHODS:
        with pytest.warns(ConnectivityWarning, match="60 of 120 rows .* labels of one class only"):
            found = gpe.propagate(heat, labels, method=method)
        assert (found.probabilities[60:] == [0, 1]).all() and (found.entropy[60:] == 0).all()


def test_fates_by_name_and_by_column(tmp_path):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(np.linspace(0, 1, 300)[:, None].astype(np.float32))
    adata.obs["end"] = [{0: "left", 299: "right"}.get(i) for i in range(300)]
    adata.obs["end"] = adata.obs["end"].astype("category")
    adata.obs_names = [f"cell {i}" for i in range(300)]
    result = gpe.embed(adata, n_neighbors=8, n_components=2, power=1, store=tmp_path / "run", progress=False)
    by_column = result.fate("end")
    by_name = result.fate({"left": ["cell 0"], "right": [299]})
    again = gpe.open(tmp_path / "run").fate("end")
    assert by_column.classes.tolist() == by_name.classes.tolist() == ["left", "right"]
    for other in (by_name, again):
        np.testing.assert_array_equal(np.asarray(by_column.probabilities[:]), np.asarray(other.probabilities[:]))
    with pytest.raises(ValueError, match="must name one of obs"):
        result.fate("start")
    gpe.tl.neighbors(adata, 8)
    gpe.tl.fate(adata, "end")
    np.testing.assert_allclose(adata.obsm["lineages_fwd"], by_column.probabilities[:], atol=1e-4)
    assert adata.obs["term_states_fwd"].cat.categories.tolist() == ["left", "right"]
    gpe.tl.propagate(adata, "end", method="harmonic")
    assert (adata.obs["end_propagated"].iloc[:100] == "left").all()
    adata.write_h5ad(tmp_path / "a.h5ad")
    assert anndata.read_h5ad(tmp_path / "a.h5ad").uns["end_propagated"]["labels"] == "end"
    with pytest.raises(KeyError, match="key must be a column of obs"):
        gpe.tl.propagate(adata, "start")


def test_the_command_line_writes_what_propagate_gives(torus, tmp_path):
    from scalable_gpe.cli import main

    X, labels = torus
    store, file = str(tmp_path / "run.zarr"), str(tmp_path / "labels.npy")
    np.save(file, labels)
    result = gpe.embed(X, n_neighbors=8, n_components=8, store=store, progress=False)
    expected = np.asarray(result.propagate(labels).probabilities[:])
    out = tmp_path / "out.npy"
    assert main(["propagate", store, file, str(out), "--quiet"]) == 0
    np.testing.assert_array_equal(np.load(out), expected)
    assert main(["propagate", store, file, str(out), "--quiet"]) == 1  # it exists
    assert main(["propagate", store, file, str(tmp_path / "out.csv"), "--quiet", "--method", "harmonic"]) == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "0,1,2,3,4"


def test_labels_with_names_go_by_name(tmp_path):
    pandas = pytest.importorskip("pandas")
    from scalable_gpe.cli import main

    names = np.array([f"row {i}" for i in range(300)])
    frame = pandas.DataFrame(np.linspace(0, 1, 300)[:, None], index=names)
    labels = pandas.Series(np.where(np.arange(300) < 150, "low", "high"), index=names)
    result = gpe.embed(frame, n_neighbors=8, n_components=2, power=1, store=tmp_path / "run.zarr", progress=False)
    expected = np.asarray(result.propagate(labels.to_numpy()).probabilities[:])
    np.testing.assert_array_equal(result.propagate(labels[::-1]).probabilities[:], expected)
    some = labels.iloc[[20, 280, 3]]
    texts = np.full(300, "", object)
    texts[[20, 280, 3]] = some
    partial = np.asarray(result.propagate(texts).probabilities[:])
    np.testing.assert_array_equal(result.propagate(some).probabilities[:], partial)
    with pytest.raises(ValueError, match=r"labels goes by the names of rows, but 300 of them have no value"):
        result.propagate(labels.set_axis([f"cell {i}" for i in range(300)]))
    with pytest.raises(ValueError, match="but 3 of them stand in several rows"):
        result.propagate(pandas.concat([some, some]))
    column = color_column(labels[::-1].astype("category"), 300, embedding=result)
    assert column.labels == ("high", "low") and column.values[0] == 1

    out, file = tmp_path / "out.npy", tmp_path / "labels.csv"
    some.rename("kind").rename_axis("name").to_csv(file)
    assert main(["propagate", str(tmp_path / "run.zarr"), str(file), str(out), "--column", "kind"]) == 0
    np.testing.assert_array_equal(np.load(out), partial)


def test_a_file_of_labels_without_the_names_goes_by_position_and_says_so(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    from scalable_gpe.cli import main

    frame = pandas.DataFrame(np.linspace(0, 1, 300)[:, None], index=[f"row {i}" for i in range(300)])
    gpe.embed(frame, n_neighbors=8, n_components=2, power=1, store=tmp_path / "run.zarr", progress=False)
    kinds = np.where(np.arange(300) < 150, "low", "high")
    pandas.DataFrame({"id": [f"other {i}" for i in range(300)], "kind": kinds}).to_csv(tmp_path / "l.csv", index=False)
    command = ["propagate", str(tmp_path / "run.zarr"), str(tmp_path / "l.csv"), str(tmp_path / "o.npy")]
    assert main([*command, "--column", "kind"]) == 0
    assert "in the order of the rows: no column of it holds their names" in capsys.readouterr().out


@pytest.mark.parametrize("order", ["reversed", "same"])
def test_an_index_that_counts_is_not_taken_for_names(order):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.linspace(0, 1, 300)[:, None])
    result = gpe.embed(frame[::-1] if order == "reversed" else frame, n_neighbors=8, n_components=2, power=1)
    labels = pandas.Series(np.arange(300) < 150)
    if order == "same":
        np.testing.assert_array_equal(
            result.propagate(labels).probabilities, result.propagate(labels.to_numpy()).probabilities
        )
        return
    with pytest.raises(ValueError, match="the index 0 to 299, and the rows are named so in another order"):
        result.propagate(labels)
    by_number = labels.set_axis(list(range(300)))
    np.testing.assert_array_equal(
        result.propagate(by_number).probabilities, result.propagate(labels.to_numpy()[::-1].copy()).probabilities
    )


@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
def test_an_index_that_is_not_clear_is_refused():
    pandas = pytest.importorskip("pandas")
    X, labels = np.linspace(0, 1, 300)[:, None], pandas.Series(np.arange(300) < 150)
    plain = gpe.embed(pandas.DataFrame(X), n_neighbors=8, n_components=2, power=1)
    for call in (plain.propagate, lambda some: plain.fate({"low": some, "high": ~some})):
        with pytest.raises(ValueError, match=r"the numbers of the rows in another order\. Pass .*to_numpy"):
            call(labels.sample(frac=1, random_state=0))
    shared = gpe.embed(pandas.DataFrame(X, index=[f"row {i % 150}" for i in range(300)]), n_components=2, power=1)
    with pytest.raises(ValueError, match="2 of them stand in several rows"):
        shared.propagate(pandas.Series(["low", "high"], index=["row 0", "row 9"]))


def test_missing_values_in_a_list_of_texts_are_no_class(torus):
    X, labels = torus
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 8)))
    texts = [f"class {label}" if label >= 0 else float("nan") for label in labels]
    expected = gpe.propagate(heat, labels)
    found = gpe.propagate(heat, texts)
    assert found.classes.tolist() == [f"class {one}" for one in expected.classes]
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_spreading_says_whether_it_is_as_exact_as_asked():
    X, labels = gpe.datasets.patches(3000, 50, random_state=0), np.full(3000, -1)
    labels[np.random.default_rng(0).choice(3000, 60, replace=False)] = np.arange(60) % 20
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)))
    found, truth = gpe.propagate(heat, labels, tol=1e-6), gpe.propagate(heat, labels, tol=1e-11)
    assert found.converged and found.residual <= 1e-6
    change = np.linalg.norm(found.probabilities - truth.probabilities, axis=0)
    assert (change <= 2e-6 * np.linalg.norm(truth.probabilities, axis=0)).all()
    assert 1e-6 < gpe.propagate(heat, labels).residual <= 1e-5
    with pytest.warns(ConvergenceWarning, match=r"above the tol of 1e-30\. Raise tol, or pass a smaller horizon"):
        assert not gpe.propagate(heat, labels, tol=1e-30).converged
