"""Embed rows that were not part of training: digits, half of them held back.

    python examples/new_points.py --out new-points.png

``transform`` embeds the held-back digits; their ten nearest training digits classify them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import scalable_gpe as gpe
from scalable_gpe import plot


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    X, labels = load_digits(return_X_y=True)
    old, new, old_labels, new_labels = train_test_split(X, labels, test_size=options.held_back, random_state=0)

    result = gpe.embed(old, n_components=16, power=16)
    placed = result.transform(new)

    assert np.array_equal(result.transform(old), result.points)  # training rows get their own embedding
    names = KNeighborsClassifier(10).fit(result.points, old_labels).predict(placed)
    raw = KNeighborsClassifier(10).fit(old, old_labels).predict(new)
    print(f"{len(new)} new digits, named right: {np.mean(names == new_labels):.3f} in 16 dimensions")
    print(f"{len(new)} new digits, named right: {np.mean(raw == new_labels):.3f} in the 64 of the data")
    _draw(result, placed, new_labels, old_labels).savefig(options.out, dpi=110)


def _draw(result: gpe.Embedding, placed: np.ndarray, new_labels: np.ndarray, old_labels: np.ndarray) -> Any:
    """Draw training and new rows side by side, on the principal axes of the training rows."""
    from matplotlib.figure import Figure

    middle = result.points.mean(axis=0)
    axes = np.linalg.svd(result.points - middle, full_matrices=False)[2][:2].T
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.scatter((result.points - middle) @ axes, color=old_labels, title="training rows", legend=False, ax=left)
    plot.scatter((placed - middle) @ axes, color=new_labels, title="new rows", color_label="digit", ax=right)
    for ax in (left, right):
        ax.set(xlim=left.get_xlim(), ylim=left.get_ylim(), xlabel="principal axis 1", ylabel="principal axis 2")
    return figure


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-back", type=float, default=0.5, help="share of the digits that are new (0.5)")
    parser.add_argument("--out", type=Path, default=Path("new-points.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
