"""A scikit-learn pipeline under a grid search: candidates share the neighbour graph of their fold."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
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


def grid_search(memory, *embedding):
    steps = [StandardScaler(), PCA(10, random_state=0), *embedding, KNeighborsClassifier(3)]
    names = ["scale", "reduce", "neighbors", "embed", "classify"]
    named = list(zip(names if len(embedding) == 2 else names[:2] + names[3:], steps, strict=True))
    return GridSearchCV(Pipeline(named, memory=memory), {"embed__power": [2, 16]}, cv=2).fit(X, Y)


def test_candidates_share_the_graph_of_their_fold(tmp_path, monkeypatch):
    """The cache of a pipeline keeps the neighbours; the embedding of their distances is that of the rows."""
    searches, search = [], build.search
    monkeypatch.setattr(build, "search", lambda points, *more: searches.append(1) or search(points, *more))
    of_distances = gpe.GaussianProcessEmbedding(metric="precomputed", progress=False)
    found = grid_search(str(tmp_path), gpe.KNeighborsTransformer(10), of_distances)
    assert len(searches) == 3  # one for each fold, and one for the last fit of all rows
    plain = grid_search(None, gpe.GaussianProcessEmbedding(n_neighbors=10, progress=False))
    assert found.best_score_ > 0.8 and found.best_params_ == plain.best_params_
    assert np.mean(found.predict(X) == plain.predict(X)) > 0.99


@pytest.mark.slow
def test_the_example(capsys):
    path = Path(__file__).parents[1] / "examples" / "pipeline.py"
    if not path.exists():
        pytest.skip("examples/ is not beside the tests")
    runpy.run_path(str(path))["main"](["--rows", "500", "--folds", "2"])
    text = capsys.readouterr().out
    assert float(re.search(r"other digits ([\d.]+)", text).group(1)) > 0.85
