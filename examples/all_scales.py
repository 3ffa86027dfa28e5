"""One data set at three powers and at all scales: what each embedding keeps of near and far.

    python examples/all_scales.py --out all-scales.png

The data are a tree of five branches. Each point is of one of two kinds (dark and light), which lie side by side along
the whole tree. Rows of the picture: the principal plane of each embedding; the same of a piece of the green branch;
and the distance of each point from the root (the star) in the embedding, against the distance along the tree.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe

SCALES = [16, 256, 4096, "all"]
_GAP, _WIDTH = 0.3, 0.06  # between the kinds, and of each branch


@dataclass(frozen=True)
class Tree:
    """Points in six dimensions, their branch and kind, and their distance from the root along the tree."""

    X: np.ndarray
    branch: np.ndarray
    kind: np.ndarray
    distance: np.ndarray


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    tree = make_tree(options.points)
    result = gpe.embed(tree.X, n_components=32, power=SCALES)
    print(f"horizon {result.report['horizon']}, {result.report['sweeps']['sketch']} sweeps")
    for scale in SCALES:
        kinds, order = same_kind(result.at(scale), tree), rank_correlation(result.at(scale), tree)
        print(f"{scale!s:>5}: same kind {kinds:.3f}, order of distances {order:.3f}")
    draw(tree, result).savefig(options.out, dpi=110, facecolor="white")


def make_tree(n_rows: int, random_state: int = 0) -> Tree:
    """Make a trunk that splits in two, one of which splits again; the third coordinate tells the two kinds apart."""
    rng = np.random.default_rng(random_state)
    parents, angles = (-1, 0, 0, 1, 1), np.deg2rad([90, 145, 40, 185, 110])
    lengths = (1.0, 1.0, 1.9, 1.0, 1.0)
    branch = rng.choice(len(parents), n_rows, p=np.array(lengths) / sum(lengths))
    place, kind = rng.random(n_rows), rng.integers(0, 2, n_rows)
    points, distance = np.empty(n_rows, complex), np.empty(n_rows)
    starts = list[tuple[complex, float]]()
    for number, parent in enumerate(parents):
        start, before = (0j, 0.0) if parent < 0 else _end(starts[parent], lengths[parent], angles[parent])
        starts.append((start, before))
        rows = branch == number
        along = place[rows] * lengths[number]
        points[rows] = start + along * np.exp(1j * angles[number])
        distance[rows] = before + along
    X = _WIDTH * rng.standard_normal((n_rows, 6))
    X[:, :3] += np.stack([points.real, points.imag, _GAP * kind], axis=1)
    return Tree(X, branch, kind, distance)


def _end(start: tuple[complex, float], length: float, angle: float) -> tuple[complex, float]:
    return start[0] + length * np.exp(1j * angle), start[1] + length


def same_kind(points: np.ndarray, tree: Tree) -> float:
    """Share of the 10 nearest points that are of the same kind."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=10).fit(points).kneighbors(return_distance=False)
    return float((tree.kind[near] == tree.kind[:, None]).mean())


def rank_correlation(points: np.ndarray, tree: Tree) -> float:
    """Spearman's correlation of distances from the root with those along the tree."""
    from scipy.stats import spearmanr

    return float(spearmanr(from_root(points, tree), tree.distance)[0])


def from_root(points: np.ndarray, tree: Tree) -> np.ndarray:
    """Distances from the root, in units of nearly the largest."""
    distances: np.ndarray = np.linalg.norm(points - points[tree.distance.argmin()], axis=1)
    return distances / np.quantile(distances, 0.996)


def plane(points: np.ndarray) -> np.ndarray:
    """The principal plane."""
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ axes.T


def draw(tree: Tree, result: gpe.Embedding) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 5, figsize=(15, 9.4), constrained_layout=True, height_ratios=(1.1, 0.7, 1))
    tones = plt.get_cmap("tab20")(2 * tree.branch + tree.kind)  # a dark and a light tone of each branch
    root, piece = tree.distance.argmin(), (tree.branch == 2) & (np.abs(tree.distance - 2) < 0.3)
    titles = ["the data", *(f"power {scale}" if scale != "all" else "all scales" for scale in SCALES)]
    for column, title in enumerate(titles):
        points = tree.X if column == 0 else result.at(SCALES[column - 1])
        whole, part, distances = axes[:, column]
        # the data are seen from the side, so that both kinds show
        seen = tree.X[:, :2] + tree.X[:, 2:3] * [0.5, -0.35] if column == 0 else plane(points)
        _scatter(whole, seen, tones)
        whole.plot(*seen[root], "k*", markersize=13)
        whole.set_title(title, fontsize=16, fontweight="bold" if title == "all scales" else None)
        _scatter(part, plane(points[piece]), tones[piece])
        part.set_title(f"same kind nearby: {same_kind(points, tree):.2f}", fontsize=12)
        distances.scatter(tree.distance, from_root(points, tree), c=tones, s=4, linewidths=0)
        distances.set(xticks=[0, 1, 2, 3], yticks=[0], ylim=(-0.03, 1.05), xlabel="distance along the tree")
        distances.set_title(f"order of distances: {rank_correlation(points, tree):.2f}", fontsize=12)
    for axis, text in zip(
        axes[:, 0], ("whole tree", "piece of the green branch", "distance from the root"), strict=True
    ):
        axis.set_ylabel(text, fontsize=12)
    return figure


def _scatter(axis: Any, points: np.ndarray, colors: np.ndarray) -> None:
    """Draw points without axes; strays are left out."""
    low, high = np.quantile(points, [0.01, 0.99], axis=0)
    inside = (np.abs(points - (low + high) / 2) <= 0.6 * (high - low).max()).all(axis=1)
    axis.scatter(*points[inside].T, c=colors[inside], s=6, linewidths=0)
    axis.set(xticks=[], yticks=[])
    axis.set_aspect("equal", adjustable="datalim")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("all-scales.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
