"""The same data by Gaussian process embeddings (all scales, and one), diffusion map and UMAP, side by side.

    pip install umap-learn
    python examples/compare.py --out docs/figures/compare.png

It draws one row of pictures for each data set. For each method, in 2 and in 32 dimensions, it prints the share of the
ten nearest rows with the same label, and Spearman's correlation of distances with those along the surface, where these
are known. Without umap-learn, the column of UMAP is left out.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.neighbors import NearestNeighbors

import scalable_gpe as gpe
from scalable_gpe import plot


@dataclass(frozen=True)
class Data:
    """Points and their colours; where the surface is known, its flat coordinates, and their periods if it is closed."""

    name: str
    X: np.ndarray
    color: np.ndarray
    flat: np.ndarray | None = None
    sides: np.ndarray | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    data = [digits(options.rows), swiss_roll(options.rows), torus(options.rows)]
    figure = Figure(figsize=(3.6 * len(METHODS), 3.5 * len(data)), layout="constrained")
    panels = figure.subplots(len(data), len(METHODS), squeeze=False)
    for one, row in zip(data, panels, strict=True):
        for (method, embed), panel in zip(METHODS.items(), row, strict=True):
            wide = embed(one, 32)
            plane = embed(one, 2)
            print(f"{one.name:11} {method:13} " + "; ".join(figures(one, points) for points in (plane, wide)))
            plot.scatter(plane, color=one.color, title=f"{one.name}: {method}", legend=False, ax=panel)
            panel.set(xlabel="", ylabel="", xticks=[], yticks=[], aspect="auto")
    figure.savefig(options.out, dpi=80)


def gaussian_process(data: Data, n_components: int, power: int | str) -> np.ndarray:
    """Embed the points with default parameters but the power; in two dimensions, the principal plane."""
    result = gpe.embed(data.X, power=power, progress=False)
    return result.points if n_components > 2 else result.principal(n_components)[0]


def diffusion_map(data: Data, n_components: int) -> np.ndarray:
    """Compute eigenvectors of the same kernel."""
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(data.X)))
    return gpe.diffusion_map(heat, n_components)[0]


def umap(data: Data, n_components: int) -> np.ndarray:
    """Run UMAP with its own defaults."""
    from umap import UMAP

    return UMAP(n_components=n_components, random_state=0, n_jobs=1).fit_transform(data.X)


METHODS: dict[str, Callable[[Data, int], np.ndarray]] = {
    "all scales": partial(gaussian_process, power="all"),
    "power 64": partial(gaussian_process, power=64),
    "diffusion map": diffusion_map,
}
if find_spec("umap"):
    METHODS["UMAP"] = umap


def figures(data: Data, points: np.ndarray) -> str:
    """Format the figures of one embedding."""
    labels = data.color if data.flat is None else _cells(data.flat)
    near = NearestNeighbors(n_neighbors=10).fit(points).kneighbors(return_distance=False)
    shared = (labels[near] == labels[:, None]).mean()
    text = f"{points.shape[1]:2} dimensions: labels {shared:.3f}"
    if data.flat is None:
        return text
    rows = np.random.default_rng(0).choice(len(points), min(600, len(points)), replace=False)
    order = spearmanr(pdist(points[rows]), _along(data.flat[rows], data.sides)).statistic
    return f"{text}, distances {order:.3f}"


def _along(flat: np.ndarray, sides: np.ndarray | None) -> np.ndarray:
    """Compute distances along the surface: a flat sheet, or one whose sides are glued together."""
    steps = np.abs(flat[:, None] - flat)
    if sides is not None:
        steps = np.minimum(steps, sides - steps)
    return np.sqrt((steps**2).sum(axis=2))[np.triu_indices(len(flat), 1)]


def _cells(flat: np.ndarray) -> np.ndarray:
    """Make labels from flat coordinates: cells of a grid of ten by five."""
    place = (flat - flat.min(axis=0)) / np.ptp(flat, axis=0) * [10, 5]
    cells = np.minimum(place.astype(int), [9, 4])
    return cells[:, 0] * 5 + cells[:, 1]


def digits(n_rows: int) -> Data:
    X, labels = load_digits(return_X_y=True)
    return Data("digits", X[:n_rows], labels[:n_rows])


def swiss_roll(n_rows: int) -> Data:
    X, angle = make_swiss_roll(n_rows, noise=0.2, random_state=0)
    length = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2
    return Data("swiss roll", X, angle, flat=np.stack([length, X[:, 1]], axis=1))


def torus(n_rows: int) -> Data:
    X = gpe.datasets.torus(n_rows)
    angles = np.arctan2(X[:, [1, 3]], X[:, [0, 2]])
    radii = np.linalg.norm(X[:, :2], axis=1).mean(), np.linalg.norm(X[:, 2:], axis=1).mean()
    return Data("torus", X, angles[:, 1], flat=angles * radii, sides=2 * np.pi * np.array(radii))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3000, help="points of each data set, at most")
    parser.add_argument("--out", type=Path, default=Path("compare.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
