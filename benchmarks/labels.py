"""How often the nearest rows share a label: raw data, embeddings and diffusion maps.

    python benchmarks/labels.py                                     all data sets, some minutes
    python benchmarks/labels.py --data fashion --seeds 5 --json fashion.json
    python benchmarks/labels.py --data digits --kernels local:1 local:7 local:16      other neighbours than the seventh

It prints one table per data set: the share of the 10 nearest rows that have the row's label, as mean and standard
deviation over random matrices, for each kernel, power and number of components k. The manifolds are cut into 50 cells,
which are their labels. The graph is searched once and used for all kernels and powers. Embeddings with fewer components
are the first columns of those with more.
"""

import argparse
import gzip
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from measure import Row
from scalable_gpe.heat import local

FASHION = Path("/usr/share/datasets/fashion-mnist")
COMPONENTS = (8, 16, 32)
_NEAREST = 10
_CELLS = 50

Labelled = tuple[np.ndarray, np.ndarray]


def main() -> None:
    options = _options()
    rows = []
    for name in options.data:
        if name == "fashion" and not FASHION.exists():
            print("fashion: left out, its files are not there")
            continue
        for row in study(name, options):
            rows.append(row)
            print(_line(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def study(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the lines of the table of one data set."""
    X, labels = DATA[name]()
    rows = np.sort(np.random.default_rng(0).choice(len(X), min(options.rows, len(X)), replace=False))
    graph = gpe.neighbor_graph(X, options.neighbors)
    raw = agreement(X, labels, rows)
    yield {"data": name, "kernel": "", "what": "raw data", "mean": [raw] * 3, "sd": [0.0] * 3}
    for epsilon in options.kernels:
        heat = _heat(X, graph, epsilon)
        if name in options.maps:
            yield _figures(name, epsilon, "diffusion map", [_prefixes(_map(heat), labels, rows)])
        embeddings = [
            gpe.gp_embedding(heat, COMPONENTS[-1], options.powers, random_state=seed) for seed in range(options.seeds)
        ]
        for power in options.powers:
            found = [_prefixes(points[power], labels, rows) for points in embeddings]
            yield _figures(name, epsilon, f"power {power}", found)


def _heat(X: np.ndarray, graph: gpe.NeighborGraph, epsilon: str) -> gpe.HeatKernel:
    """Make the heat kernel of one bandwidth; "local:4" uses the fourth neighbour, with its own graph."""
    rule, _, rank = epsilon.partition(":")
    if not rank:
        return gpe.heat_kernel(gpe.gaussian_kernel(graph, rule))
    usual, local.RANK = local.RANK, int(rank)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, graph.n_neighbors), rule))
    local.RANK = usual
    return heat


def _map(heat: gpe.HeatKernel) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly converged eigenvectors are good enough
        return gpe.diffusion_map(heat, COMPONENTS[-1])[0]


def _prefixes(points: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> list[float]:
    return [agreement(points[:, :k], labels, rows) for k in COMPONENTS]


def _figures(name: str, kernel: str, what: str, found: list[list[float]]) -> dict[str, Any]:
    mean, sd = np.mean(found, axis=0), np.std(found, axis=0)
    return {"data": name, "kernel": kernel, "what": what, "mean": mean.tolist(), "sd": sd.tolist()}


def _line(row: dict[str, Any]) -> str:
    cells = [f"{mean:.3f} +- {sd:.3f}" for mean, sd in zip(row["mean"], row["sd"], strict=True)]
    return f"| {row['data']} | {row['kernel']} | {row['what']} | " + " | ".join(cells) + " |"


def agreement(points: np.ndarray, labels: np.ndarray, rows: np.ndarray | None = None) -> float:
    """Measure the share of the ten nearest other points of some rows (all by default) that have the row's label."""
    from sklearn.neighbors import NearestNeighbors

    rows = np.arange(len(points)) if rows is None else rows
    near = NearestNeighbors(n_neighbors=_NEAREST + 1).fit(points).kneighbors(points[rows], return_distance=False)
    itself = near == rows[:, None]
    itself[~itself.any(axis=1), -1] = True  # more than ten equal rows: any of them may be left out
    others = near[~itself].reshape(len(rows), _NEAREST)
    return float((labels[others] == labels[rows][:, None]).mean())


# --- data -----------------------------------------------------------------------------------------


def fashion(folder: Path = FASHION) -> Labelled:
    """Read Fashion-MNIST, 70,000 x 784, with its labels."""
    parts = {
        kind: b"".join(
            gzip.decompress((folder / f"{part}-{kind}-ubyte.gz").read_bytes())[start:] for part in ("train", "t10k")
        )
        for kind, start in (("images-idx3", 16), ("labels-idx1", 8))
    }
    X, labels = (np.frombuffer(part, np.uint8) for part in parts.values())
    return X.reshape(-1, 784).astype(np.float32), labels.astype(np.int64)


def digits() -> Labelled:
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    return X.astype(np.float32), labels


def breast_cancer() -> Labelled:
    from sklearn.datasets import load_breast_cancer

    X, labels = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), labels


def swiss_roll() -> Labelled:
    """Make a swiss roll; its labels are cells along the roll, not in the space around it."""
    from sklearn.datasets import make_swiss_roll

    X, angle = make_swiss_roll(5000, noise=0.3, random_state=1)
    length = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2
    return X, _cells(np.stack([length, X[:, 1]], axis=1))


def manifold(make: Callable[..., np.ndarray], n_rows: int, **parameters: Any) -> Labelled:
    X = make(n_rows, random_state=1, **parameters)
    return X, _cells(X)


def clusters(least: float = 1.0, most: float = 1.0) -> Labelled:
    """Make twenty Gaussian clusters in ten dimensions, with widths from least to most (even on a log scale)."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 6000)
    widths = np.geomspace(least, most, 20)
    centres = 4 * rng.standard_normal((20, 10))
    return centres[labels] + widths[labels][:, None] * rng.standard_normal((6000, 10)), labels


def uneven_curve() -> Labelled:
    """Make an arc on which the density falls by a factor of thousands; labels are equal shares of the points."""
    place = np.random.default_rng(0).random(5000)
    angle = 5.5 * place**4
    order = np.argsort(np.argsort(place))
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), order * _CELLS // len(order)


def _cells(points: np.ndarray) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(_CELLS, n_init=1, random_state=0).fit_predict(points)


DATA: dict[str, Callable[[], Labelled]] = {
    "fashion": fashion,
    "digits": digits,
    "circle": lambda: manifold(gpe.datasets.circle, 5000),
    "torus": lambda: manifold(gpe.datasets.torus, 5000),
    "torus, 50,000": lambda: manifold(gpe.datasets.torus, 50_000, n_features=16, noise=0.02),
    "klein bottle": lambda: manifold(gpe.datasets.klein_bottle, 5000),
    "swiss roll": swiss_roll,
    "clusters": clusters,
    "uneven clusters": lambda: clusters(0.01, 3.0),
    "uneven curve": uneven_curve,
    "breast cancer": breast_cancer,
}


# --- rows of benchmarks/run.py --------------------------------------------------------------------


def label_agreement(n_components: int = 16, power: int = 16) -> list[Row]:
    X, labels = digits()
    embedding = gpe.embed(X, n_components=n_components, power=power, progress=False)
    coordinates, _ = gpe.diffusion_map(embedding.heat, n_components, power=1)
    spaces = {
        "raw data, 64 columns": X,
        f"embedding, {n_components} columns, power {power}": embedding.points,
        f"diffusion map, {n_components} columns": coordinates,
    }
    return [Row(f"digits, 10-NN label agreement: {name}", agreement(Y, labels), "") for name, Y in spaces.items()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA), metavar="NAME")
    parser.add_argument("--kernels", nargs="+", default=["global", "local"], metavar="EPSILON")
    parser.add_argument("--powers", type=int, nargs="+", default=[4, 8, 16, 32, 64, 128, 256])
    parser.add_argument(
        "--maps",
        nargs="*",
        default=["fashion", "digits"],
        metavar="NAME",
        help="data with diffusion maps; thousands of points of a curve keep an eigensolver busy for long",
    )
    parser.add_argument("--neighbors", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000, help="rows whose nearest are looked at")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
