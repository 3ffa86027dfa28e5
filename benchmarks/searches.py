"""Recall against time of neighbour searches: ours, pynndescent, faiss and PiPNN, on five data sets.

    python benchmarks/searches.py --json benchmarks/searches.json --picture docs/developers/figures/searches.png
    python benchmarks/searches.py --rows 20000 --data gaussian hard
    python benchmarks/searches.py --json benchmarks/searches.json --picture x.png --draw     draw what was measured

Each search runs with several settings, in this process, after one run on few rows that compiles it; all threads.
Seconds include building and searching. Recall is measured on the same 500 sampled rows. A search that is not installed
is left out by name (``pip install pynndescent faiss-cpu pipnn``). What is in the file of results is not measured again.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import scalable_gpe as gpe
from graph import FASHION, fashion, hard, measured_recall
from measure import timed

_K = 15
_FEW = 3000  # rows of the run that compiles

Search = Callable[[np.ndarray], np.ndarray]


class Setting(NamedTuple):
    """One point of a curve."""

    method: str
    name: str
    needs: str
    search: Search


def cells(recall: float, X: np.ndarray) -> np.ndarray:
    return np.asarray(gpe.neighbor_graph(X, _K, method="cells", recall=recall).indices)


def pynndescent(length: int, X: np.ndarray) -> np.ndarray:
    from pynndescent import NNDescent

    found: np.ndarray = NNDescent(X, n_neighbors=length, random_state=0).neighbor_graph[0]
    return found[:, 1 : _K + 1]


def inverted_file(n_lists: int, X: np.ndarray) -> np.ndarray:
    import faiss

    index = faiss.index_factory(X.shape[1], f"IVF{max(1, int(4 * len(X) ** 0.5))},Flat")
    index.train(X)
    index.add(X)
    index.nprobe = n_lists
    found: np.ndarray = index.search(X, _K + 1)[1]
    return found[:, 1:]


def small_world(effort: int, X: np.ndarray) -> np.ndarray:
    import faiss

    index = faiss.IndexHNSWFlat(X.shape[1], 16)
    index.hnsw.efConstruction, index.hnsw.efSearch = 64, effort
    index.add(X)
    found: np.ndarray = index.search(X, _K + 1)[1]
    return found[:, 1:]


def pipnn(runs: int, X: np.ndarray) -> np.ndarray:
    from pipnn import self_knn_graph

    found: np.ndarray = self_knn_graph(X, _K, runs=runs)[0]
    return found[:, 1:]


SETTINGS = [
    *(Setting("cells", f"recall={recall}", "scalable_gpe", partial(cells, recall)) for recall in (0.5, 0.95, 0.99)),
    *(Setting("pynndescent", f"lists of {n}", "pynndescent", partial(pynndescent, n)) for n in (_K + 1, 24, 31)),
    *(Setting("faiss IVF", f"nprobe {n}", "faiss", partial(inverted_file, n)) for n in (4, 16, 64)),
    *(Setting("faiss HNSW", f"efSearch {n}", "faiss", partial(small_world, n)) for n in (16, 64, 128)),
    *(Setting("PiPNN", f"runs {n}", "pipnn", partial(pipnn, n)) for n in (1, 2)),
]


def _gaussian(n_rows: int, options: argparse.Namespace) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n_rows, 20)).astype(np.float32)


def _fashion(n_rows: int, options: argparse.Namespace) -> np.ndarray:
    X = fashion(options.fashion)
    return X[np.random.default_rng(2).permutation(len(X))[:n_rows]]


DATA: dict[str, tuple[str, Callable[[int, argparse.Namespace], np.ndarray]]] = {
    "patches": ("smooth patches x 50", lambda n, _: gpe.datasets.patches(n, 50)),
    "branches": ("branches x 30", lambda n, _: gpe.datasets.branches(n)),
    "gaussian": ("Gaussian x 20", _gaussian),
    "hard": ("24 latent dimensions x 100", lambda n, _: hard(n)),
    "fashion": ("Fashion-MNIST x 784", _fashion),
}


def main() -> None:
    options = _options()
    known: dict[str, list[Any]] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for data in [] if options.draw else options.data:
        if data == "fashion" and not options.fashion.exists():
            print("fashion: left out, its files are not there")
            continue
        X = np.ascontiguousarray(DATA[data][1](options.rows, options), np.float32)
        for one in SETTINGS:
            key = f"{data}, {len(X)}, {one.method}, {one.name}"
            if key in known:
                continue
            if find_spec(one.needs) is None:
                print(f"{key}: left out, {one.needs} is not installed")
                continue
            known[key] = measure(X, one)
            print(f"{key}: {known[key][0]:.1f} s, recall {known[key][1]:.4f}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    if options.picture:
        draw(known, options.picture)


def measure(X: np.ndarray, one: Setting) -> list[float]:
    one.search(X[:_FEW].copy())  # compiles
    seconds, indices = timed(lambda: one.search(X))
    return [seconds, measured_recall(X, np.asarray(indices, np.int64))]


def draw(known: dict[str, list[Any]], path: Path) -> None:
    """Draw one panel per data set: the share of neighbours that are missing against seconds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    curves: dict[tuple[str, str], dict[str, list[list[float]]]] = {}
    for key, point in known.items():
        data, n_rows, method, _ = key.split(", ", 3)
        curves.setdefault((data, n_rows), {}).setdefault(method, []).append(point)
    n_lines = -(-(len(curves) + 1) // 3)
    figure = Figure(figsize=(10.5, 3.3 * n_lines), layout="constrained")
    panels = figure.subplots(n_lines, 3, squeeze=False).ravel()
    colors = dict(zip(dict.fromkeys(one.method for one in SETTINGS), _COLORS, strict=False))
    for axes, ((data, n_rows), methods) in zip(panels, curves.items(), strict=False):
        for method, points in methods.items():
            seconds, recall = np.array(sorted(points)).T
            missing = np.maximum(100 * (1 - recall), 0.01)
            axes.plot(seconds, missing, "o-", label=method, color=colors[method], lw=2.5 if method == "cells" else 1.2)
        axes.set(xscale="log", yscale="log", title=f"{int(n_rows):,} rows: {DATA[data][0]}", xlabel="seconds")
        axes.invert_yaxis()
        for axis, ticks in ((axes.xaxis, (1, 2, 5, 10, 20, 50, 100)), (axes.yaxis, (0.01, 0.1, 1, 10))):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[::3]:
        axes.set_ylabel("% of neighbours missing (up is better)")
    for axes in panels[len(curves) :]:
        axes.axis("off")
    panels[len(curves)].legend(*panels[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.savefig(path, dpi=110)


_COLORS = ("#087adb", "#f5a11c", "#2fa84f", "#8b2fa8", "#8c8c8c")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=70_000)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder of Fashion-MNIST")
    parser.add_argument("--json", type=Path, help="file of results; what it holds is not measured again")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
