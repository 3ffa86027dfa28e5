"""The embedding in a scikit-learn pipeline, its parameters chosen by a grid search.

    python examples/pipeline.py

Handwritten digits: scale, reduce to principal components, embed, classify by nearest neighbours.
"""

import argparse
from collections.abc import Sequence

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import scalable_gpe as gpe

GRID = {"embed__power": [4, 64, "all"], "embed__epsilon": ["global", "local"], "embed__n_components": [16, 32]}


def make_pipeline() -> Pipeline:
    steps = [
        ("scale", StandardScaler()),
        ("reduce", PCA(20, random_state=0)),
        ("embed", gpe.GaussianProcessEmbedding(progress=False)),
        ("classify", KNeighborsClassifier(5)),
    ]
    return Pipeline(steps)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    X, y = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        X[: options.rows], y[: options.rows], test_size=0.25, random_state=0
    )
    search = GridSearchCV(make_pipeline(), GRID, cv=options.folds).fit(train, train_labels)
    print(f"best: {search.best_params_}, accuracy {search.best_score_:.3f}")
    print(f"accuracy on other digits {search.score(test, test_labels):.3f}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--folds", type=int, default=3)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
