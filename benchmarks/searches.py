"""Time against recall of neighbour searches: ours, pynndescent, faiss and PiPNN, on seven data sets.

    python benchmarks/searches.py --json benchmarks/searches.json --picture docs/developers/figures/searches.png
    python benchmarks/searches.py --json benchmarks/searches.json --data smooth --runs 5 --methods cells pynndescent
    python benchmarks/searches.py --data hard unit --rows 20000 --runs 1
    python benchmarks/searches.py --json benchmarks/searches.json --picture x.png --draw     draw what was measured

Each search runs with several settings, in this process, after one run on few rows that compiles it; all threads. Runs
are interleaved: every setting once, then every setting again. Seconds are medians, and include building and searching.
Recall is measured on the same 500 sampled rows. A search that is not installed is left out by name (``pip install
pynndescent faiss-cpu pipnn``). The file of results is written after every run, and what it holds is not measured again.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import scalable_gpe as gpe
from graph import FASHION, fashion, hard, measured_recall
from measure import timed

_K = 15
_FEW = 3000  # rows of the run that compiles
_TARGETS = (0.7, 0.8, 0.9, 0.95, 0.99, 0.999)

Search = Callable[[np.ndarray], np.ndarray]
Known = dict[str, dict[str, Any]]


class Setting(NamedTuple):
    """One point of a curve."""

    method: str
    name: str
    needs: str
    search: Search


def cells(recall: float, X: np.ndarray) -> np.ndarray:
    return np.asarray(gpe.neighbor_graph(X, _K, method="cells", recall=recall).indices)


def pynndescent(length: int, n_iters: int | None, X: np.ndarray) -> np.ndarray:
    from pynndescent import NNDescent

    found: np.ndarray = NNDescent(X, n_neighbors=length, n_iters=n_iters, random_state=0).neighbor_graph[0]
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


_LISTS = ((_K + 1, 2), (_K + 1, 4), (_K + 1, None), (24, None), (31, None), (46, None))  # length and steps
SETTINGS = [
    *(Setting("cells", f"recall={recall}", "scalable_gpe", partial(cells, recall)) for recall in _TARGETS),
    *(
        Setting("pynndescent", f"lists of {n}, {steps or 'all'} steps", "pynndescent", partial(pynndescent, n, steps))
        for n, steps in _LISTS
    ),
    *(Setting("faiss IVF", f"nprobe {n}", "faiss", partial(inverted_file, n)) for n in (4, 16, 64)),
    *(Setting("faiss HNSW", f"efSearch {n}", "faiss", partial(small_world, n)) for n in (16, 64, 128)),
    *(Setting("PiPNN", f"runs {n}", "pipnn", partial(pipnn, n)) for n in (1, 2)),
]
METHODS = tuple(dict.fromkeys(one.method for one in SETTINGS))


class Data(NamedTuple):
    """A data set: its title, its number of rows, and how it is made."""

    title: str
    n_rows: int
    make: Callable[[int, argparse.Namespace], np.ndarray]


def _fashion(n_rows: int, options: argparse.Namespace) -> np.ndarray:
    X = fashion(options.fashion)
    return X[np.random.default_rng(2).permutation(len(X))[:n_rows]]


def _principal_fashion(n_rows: int, options: argparse.Namespace) -> np.ndarray:
    X = _fashion(n_rows, options)
    X = X - X.mean(axis=0)
    return X @ np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :50]


def unit_vectors(n_rows: int, n_features: int = 100) -> np.ndarray:
    """Unit vectors around centres of very different size, as vectors of words are: some rows are in very many lists."""
    draw = np.random.default_rng(3)
    centres = draw.standard_normal((400, n_features))
    X = 0.6 * centres[draw.zipf(1.5, n_rows) % 400] + draw.standard_normal((n_rows, n_features))
    rows: np.ndarray = X / np.linalg.norm(X, axis=1, keepdims=True)
    return rows.astype(np.float32)


DATA: dict[str, Data] = {
    "smooth": Data("smooth patches x 50", 1_000_000, lambda n, _: gpe.datasets.patches(n, 50)),
    "branches": Data("branches x 30", 1_000_000, lambda n, _: gpe.datasets.branches(n)),
    "fashion50": Data("Fashion-MNIST x 50", 70_000, _principal_fashion),
    "fashion": Data("Fashion-MNIST x 784", 70_000, _fashion),
    "hard": Data("24 latent dimensions x 100", 300_000, lambda n, _: hard(n)),
    "unit": Data("unit vectors x 100", 200_000, lambda n, _: unit_vectors(n)),
    "many": Data("smooth patches x 16", 4_000_000, lambda n, _: gpe.datasets.patches(n, 16)),
}


def main() -> None:
    options = _options()
    known: Known = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in [] if options.draw else options.data:
        if name.startswith("fashion") and not options.fashion.exists():
            print(f"{name}: left out, its files are not there")
            continue
        n_rows = min(DATA[name].n_rows, options.rows or DATA[name].n_rows)
        X = np.ascontiguousarray(DATA[name].make(n_rows, options), np.float32)
        for key in measured(name, X, known, options):
            print(f"{key}: {known[key]['seconds'][-1]:.1f} s, recall {known[key]['recall']:.4f}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    for line in ratios(known):
        print(line)
    if options.picture:
        draw(known, options.picture)


def measured(name: str, X: np.ndarray, known: Known, options: argparse.Namespace) -> Iterator[str]:
    """Run every setting once, then every one again; yield the key of each run after it was added to `known`."""
    settings = [one for one in SETTINGS if one.method in options.methods]
    for needs in dict.fromkeys(one.needs for one in settings):
        if find_spec(needs) is None:
            print(f"{needs} is not installed: left out")
    settings = [one for one in settings if find_spec(one.needs) is not None]
    compiled = set[str]()
    for run in range(options.runs):
        for one in settings:
            key = f"{name}, {len(X)}, {one.method}, {one.name}"
            if len(known.get(key, {"seconds": []})["seconds"]) > run:
                continue
            if one.method not in compiled:
                one.search(X[:_FEW].copy())
                compiled.add(one.method)
            seconds, indices = timed(partial(one.search, X))
            entry = known.setdefault(key, {"seconds": [], "recall": None})
            if entry["recall"] is None:
                entry["recall"] = measured_recall(X, np.asarray(indices, np.int64))
            entry["seconds"].append(seconds)
            yield key


def curves(known: Known) -> dict[tuple[str, int], dict[str, np.ndarray]]:
    """Recall and median seconds of every method on every set, by ascending seconds."""
    points: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = {}
    for key, entry in known.items():
        name, n_rows, method, _ = key.split(", ", 3)
        of_set = points.setdefault((name, int(n_rows)), {})
        of_set.setdefault(method, []).append((median(entry["seconds"]), entry["recall"]))
    return {one: {method: np.array(sorted(some)) for method, some in of.items()} for one, of in points.items()}


def ratios(known: Known) -> Iterator[str]:
    """Yield a line per set: our time as a share of pynndescent's time to the same recall, for each of our settings."""
    for (name, n_rows), of_set in curves(known).items():
        if not {"cells", "pynndescent"} <= of_set.keys():
            continue
        theirs = of_set["pynndescent"]
        best = np.maximum.accumulate(theirs[:, 1])  # what takes longer and finds less is on no curve
        shares = [
            f"{seconds / _seconds_to(recall, theirs[:, 0], best):.2f} at {recall:.4f}"
            for seconds, recall in of_set["cells"]
            if recall <= best[-1] + 0.001
        ]
        yield f"{name}, {n_rows:,} rows, ours / pynndescent: {'; '.join(shares) or 'no common recall'}"


def _seconds_to(recall: float, seconds: np.ndarray, found: np.ndarray) -> float:
    """Seconds to a recall, interpolated in the logarithm of what is missing; never below those of the first setting."""
    missing = np.log10(np.maximum(1 - np.array([recall, *found]), 1e-5))
    return float(np.exp(np.interp(-missing[0], -missing[1:], np.log(seconds))))


def draw(known: Known, path: Path) -> None:
    """Draw one panel per data set: the share of neighbours that are missing against seconds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    sets = curves(known)
    n_lines = -(-(len(sets) + 1) // 3)
    figure = Figure(figsize=(10.5, 3.3 * n_lines), layout="constrained")
    panels = figure.subplots(n_lines, 3, squeeze=False).ravel()
    colors = dict(zip(METHODS, _COLORS, strict=True))
    lines: dict[str, Any] = {}
    for axes, ((name, n_rows), of_set) in zip(panels, sets.items(), strict=False):
        for method, (seconds, recall) in ((one, some.T) for one, some in of_set.items()):
            missing, width = np.maximum(100 * (1 - recall), 0.01), 2.5 if method == "cells" else 1.2
            lines[method] = axes.plot(seconds, missing, "o-", label=method, color=colors[method], lw=width)[0]
        axes.set(xscale="log", yscale="log", title=f"{n_rows:,} rows: {DATA[name].title}", xlabel="seconds")
        axes.invert_yaxis()
        for axis, ticks in ((axes.xaxis, (1, 2, 5, 10, 20, 50, 100, 200, 500)), (axes.yaxis, (0.01, 0.1, 1, 10))):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[::3]:
        axes.set_ylabel("% of neighbours missing (up is better)")
    for axes in panels[len(sets) :]:
        axes.axis("off")
    panels[-1].legend(lines.values(), lines.keys(), loc="center", frameon=False)
    figure.savefig(path, dpi=110)


_COLORS = ("#087adb", "#f5a11c", "#2fa84f", "#8b2fa8", "#8c8c8c")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), help="at most so many rows of each set")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder of Fashion-MNIST")
    parser.add_argument("--json", type=Path, help="file of results; what it holds is not measured again")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
