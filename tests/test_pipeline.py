"""A scikit-learn pipeline under a grid search: candidates share the neighbour graph of their fold."""

import re
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import scalable_gpe as gpe
from scalable_gpe.graph import build

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
X, Y = (part[:160] for part in load_digits(return_X_y=True))


@pytest.fixture
def searches(monkeypatch):
    """The neighbour searches that were made: the number of points of each."""
    made, search = [], build.search
    monkeypatch.setattr(build, "search", lambda points, *more: made.append(points.n_rows) or search(points, *more))
    return made


def grid_search(grid, n_folds, memory=None):
    steps = [
        ("scale", StandardScaler()),
        ("reduce", PCA(10, random_state=0)),
        ("embed", gpe.GaussianProcessEmbedding(n_neighbors=10, memory=memory, progress=False)),
        ("classify", KNeighborsClassifier(3)),
    ]
    return GridSearchCV(Pipeline(steps), grid, cv=n_folds).fit(X, Y)


def check_reuse(grid, n_folds, folder, searches):
    kept = grid_search(grid, n_folds, folder)
    assert len(searches) == n_folds + 1  # one for each fold, and one for the last fit of all rows
    plain = grid_search(grid, n_folds)
    assert len(searches) == n_folds + 1 + len(kept.cv_results_["params"]) * n_folds + 1
    np.testing.assert_array_equal(kept.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    assert kept.best_score_ > 0.8 and kept.best_params_ == plain.best_params_
    assert (kept.predict(X) == plain.predict(X)).all()


def test_candidates_share_the_graph_of_their_fold(tmp_path, searches):
    check_reuse({"embed__power": [2, 16]}, 2, tmp_path / "made" / "here", searches)


@pytest.mark.slow
def test_a_whole_grid(tmp_path, searches):
    grid = {"embed__power": [2, 16, "all"], "embed__epsilon": ["global", "local"], "embed__n_components": [8, 16]}
    check_reuse(grid, 3, tmp_path, searches)


@pytest.mark.parametrize(
    "model", [gpe.GaussianProcessEmbedding(4, power=4), pytest.param(gpe.DiffusionMap(2), marks=pytest.mark.slow)]
)
def test_fits_of_the_same_rows_at_the_same_time(model, tmp_path, searches):
    """The second waits for the first; a store of its own would be refused."""
    model = model.set_params(progress=False, memory=tmp_path)
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(clone(model).set_params(epsilon=epsilon).fit, X) for epsilon in (100.0, 200.0)]
        found = [fit.result().embedding_[:] for fit in fits]
    assert len(searches) == 1
    for epsilon, embedding in zip((100.0, 200.0), found):
        plain = clone(model).set_params(epsilon=epsilon, memory=None).fit(X)
        np.testing.assert_array_equal(embedding, plain.embedding_)


def test_other_rows_and_other_metrics_have_stores_of_their_own(tmp_path, searches):
    model = gpe.GaussianProcessEmbedding(4, power=4, progress=False, memory=tmp_path)
    offset = X + 1e9  # the same rows once they are shifted
    for rows, metric in ((X, "euclidean"), (X, "cosine"), (offset, "euclidean")):
        model.set_params(metric=metric).fit(rows)
    assert len(searches) == len(list(tmp_path.glob("*.zarr"))) == 3
    model.set_params(metric="euclidean").fit(X)
    assert len(searches) == 3


def test_one_place_for_results(tmp_path):
    model = gpe.GaussianProcessEmbedding(4, memory=tmp_path / "a", store=tmp_path / "b.zarr")
    with pytest.raises(ValueError, match="memory and store both say where results are kept"):
        model.fit(X)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_example(capsys):
    path = Path(__file__).parents[1] / "examples" / "pipeline.py"
    if not path.exists():
        pytest.skip("examples/ is not beside the tests")
    runpy.run_path(str(path))["main"](["--rows", "500", "--folds", "2"])
    text = capsys.readouterr().out
    assert "25 fits, 3 neighbour graphs" in text
    assert float(re.search(r"other digits ([\d.]+)", text).group(1)) > 0.85
