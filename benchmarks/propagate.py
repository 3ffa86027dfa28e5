"""Labels and fates along the graph: accuracy beside other packages, fates beside simulated walks, a million rows.

    python benchmarks/propagate.py --accuracy --markdown docs/labels-results.md      ten minutes
    python benchmarks/propagate.py --accuracy --draws 3                               seconds
    python benchmarks/propagate.py --fates --picture docs/figures/fates.png [--cellrank PYTHON]
    python benchmarks/propagate.py --million [--rows 100000]

Accuracy: rows without a label whose class is right, mean over draws of labelled rows; every method gets the same draws
and the same matrix A. LabelSpreading and graphlearning are given A; "nearest" is the nearest labelled row in the
embedding. Fates: a tree with three arms; walks that start at each cell say how often they end in each tip. PYTHON is an
interpreter with CellRank, which gets the same connectivities and terminal cells.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from labels import FASHION, clusters, digits, fashion, swiss_roll

RATES = (1, 5, 25)  # labels of each class
ALPHA = 0.99
TIPS, PLACES = 3, 10  # arms of the tree, and places of a walk on each
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    lines = []
    for part in ("accuracy", "fates", "million"):
        if getattr(options, part):
            for line in globals()[f"study_{part}"](options):
                print(line, flush=True)
                lines.append(line)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- accuracy -------------------------------------------------------------------------------------


def study_accuracy(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of a table: mean accuracy of each method for each number of labels."""
    sets = {"Fashion-MNIST": fashion} if FASHION.exists() else {}
    sets |= {"digits": digits, "uneven clusters": lambda: clusters(0.3, 3.0), "swiss roll": swiss_roll}
    yield "| data | labels of each class | method | accuracy | the same in | accuracy there | mean difference |"
    yield "|---|---:|---|---:|---|---:|---:|"
    for name, load in sets.items():
        if options.data and name not in options.data:
            continue
        X, classes = load()
        rows = np.sort(np.random.default_rng(0).choice(len(X), min(len(X), options.most), replace=False))
        yield from _accuracies(name, np.asarray(X, np.float32)[rows], classes[rows], options.draws)


def _accuracies(name: str, X: np.ndarray, classes: np.ndarray, n_draws: int) -> Iterator[str]:
    result = gpe.embed(X, progress=False)
    pairs = _methods(result)
    for rate in RATES:
        right: dict[str, list[float]] = {}
        for draw in range(n_draws):
            known = _draw(classes, rate, np.random.default_rng(draw))
            hidden = np.setdiff1d(np.arange(len(X)), known)
            for method, predict in {**pairs, "nearest": _nearest(result.points)}.items():
                found = predict(known, classes)
                right.setdefault(method, []).append(float(np.mean(found[hidden] == classes[hidden])))
        for method in ("spreading", "harmonic", "poisson", "nearest"):
            theirs = next((one for one in right if one.endswith(f": {method}")), None)
            cells = [name, str(rate), method, f"{np.mean(right[method]):.3f}", "", "", ""]
            if theirs is not None:
                difference = np.mean(np.subtract(right[method], right[theirs]))
                cells[4:] = [theirs.split(":")[0], f"{np.mean(right[theirs]):.3f}", f"{difference:+.4f}"]
            yield "| " + " | ".join(cells) + " |"


def _draw(classes: np.ndarray, rate: int, rng: np.random.Generator) -> np.ndarray:
    of_each = [rng.choice(np.flatnonzero(classes == one), rate, replace=False) for one in np.unique(classes)]
    return np.sort(np.concatenate(of_each))


def _methods(result: gpe.Embedding) -> dict[str, Predict]:
    """Our three methods, and theirs on the same matrix."""
    import graphlearning
    from sklearn.semi_supervised import LabelSpreading

    A = result.heat.to_scipy().astype(np.float64)
    horizon = 1 / (1 - ALPHA)

    class OnGraph(LabelSpreading):
        def _build_graph(self) -> Any:
            return A

    def ours(**how: Any) -> Predict:
        def predict(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
            found = result.propagate(_hidden(known, classes), **how)
            return np.where(found.codes >= 0, found.classes[found.codes], -1)

        return predict

    def spread(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
        model = OnGraph(alpha=ALPHA, max_iter=3000, tol=1e-4)
        return np.asarray(model.fit(np.zeros((len(classes), 1)), _hidden(known, classes)).transduction_)

    def learn(kind: Any, **how: Any) -> Predict:
        def predict(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
            labels, codes = np.unique(classes[known], return_inverse=True)
            return np.asarray(labels[kind(A, **how).fit_predict(known, codes).astype(int)])

        return predict

    return {
        "spreading": ours(horizon=horizon),
        "harmonic": ours(method="harmonic"),
        "poisson": ours(method="poisson"),
        "LabelSpreading: spreading": spread,
        "graphlearning, laplace: harmonic": learn(graphlearning.ssl.laplace),
        "graphlearning, poisson: poisson": learn(graphlearning.ssl.poisson, tol=1e-6),
    }


def _hidden(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
    labels = np.full(len(classes), -1)
    labels[known] = classes[known]
    return labels


def _nearest(points: np.ndarray) -> Predict:
    def predict(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
        from sklearn.neighbors import KNeighborsClassifier

        return np.asarray(KNeighborsClassifier(1).fit(points[known], classes[known]).predict(points))

    return predict


# --- fates ----------------------------------------------------------------------------------------


def tree(n_cells: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells on a trunk and three arms of length 1, in 20 dimensions: points, arms (-1: the trunk), places."""
    rng = np.random.default_rng(seed)
    arm, place = rng.integers(-1, TIPS, n_cells), rng.random(n_cells)
    axes = np.linalg.qr(rng.standard_normal((20, 2 + 2 * TIPS)))[0].T
    X = np.outer(np.where(arm < 0, place - 1, 0), axes[0])
    for tip in range(TIPS):
        own = place[arm == tip]
        X[arm == tip] += np.outer(np.sin(own), axes[1 + tip]) + np.outer(1 - np.cos(own), axes[1 + TIPS + tip])
    return X + 0.02 * rng.standard_normal(X.shape), arm, place


def walks(drift: float, n_walks: int, end: float, n_places: int = PLACES, seed: int = 0) -> np.ndarray:
    """Share of walks from each place of the trunk and of an arm that end in its tip and in each other one.

    A step leads forward with probability (1 + drift) / 2, else back; the root reflects. Rows: the trunk, then the arm.
    """
    rng, last = np.random.default_rng(seed), int(end * n_places)
    shares = np.empty((n_places + last, 2))
    for start in range(-n_places, last):
        at, arm = np.full(n_walks, start), np.zeros(n_walks, np.int64)
        going = np.ones(n_walks, bool)
        if start <= 0:
            arm[:] = rng.integers(0, TIPS, n_walks)
        while going.any():
            steps = np.where(rng.random(n_walks) < (1 + drift) / 2, 1, -1)
            at = np.where(going, np.maximum(at + steps, -n_places), at)
            forks = going & (at == 0)
            arm[forks] = rng.integers(0, TIPS, int(forks.sum()))
            going &= at < last
        shares[start + n_places] = np.mean(arm == 0), np.mean(arm == 1)
    return shares


def study_fates(options: argparse.Namespace) -> Iterator[str]:
    """Yield the correlation of fates with walks of several drifts, and CellRank's figures."""
    X, arm, place = tree(options.cells)
    end = 0.8
    result = gpe.embed(X, progress=False)
    began = time.process_time()
    fates = result.fate({f"tip {tip}": np.flatnonzero((arm == tip) & (place >= end)) for tip in range(TIPS)})
    seconds = time.process_time() - began
    found = np.asarray(fates.probabilities[:])
    yield "| walks | correlation of fates | mean absolute difference |"
    yield "|---|---:|---:|"
    for drift, name in ((0.0, "back as often as forward"), (0.1, "forward 55 of 100 steps"), (1.0, "only forward")):
        shares = walks(drift, options.walks, end)
        truth = _truth(shares, arm, place, end)
        if drift == 0.1:
            shown = truth
        correlation = np.corrcoef(truth.ravel(), found.ravel())[0, 1]
        yield f"| {name} | {correlation:.3f} | {np.abs(truth - found).mean():.3f} |"
    yield ""
    yield f"fates of {len(X):,} cells: {seconds:.2f} s of processor time, {fates.iterations} steps"
    if options.picture:
        _picture(X, found, shown, options.picture)
    if options.cellrank:
        yield from _beside_cellrank(result, X, arm, place, end, found, options.cellrank)


def _truth(shares: np.ndarray, arm: np.ndarray, place: np.ndarray, end: float) -> np.ndarray:
    """The shares of walks from the place of each cell, for each tip."""
    at = np.where(arm < 0, place * PLACES, PLACES + np.minimum(place, end) * PLACES)
    grid = np.arange(len(shares) + 1)
    own, other = (np.interp(at, grid, np.append(column, last)) for column, last in zip(shares.T, (1, 0), strict=True))
    truth = np.where(arm[:, None] == np.arange(TIPS), own[:, None], other[:, None])
    truth[arm < 0] = (own / TIPS + other * (TIPS - 1) / TIPS)[arm < 0, None]
    return truth


def _picture(X: np.ndarray, found: np.ndarray, truth: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    colors = np.array([[0.84, 0.37, 0.0], [0.0, 0.45, 0.7], [0.0, 0.62, 0.45]])
    centred = X - X.mean(axis=0)
    oblique = np.array([[1.0, 0.0], [0.0, 1.0], [-0.7, 0.5]])  # so that no arm is seen from its end
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:3].T @ oblique
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 4), constrained_layout=True)
    for axes, values, title in ((left, found, "fate"), (middle, truth, "walks")):
        axes.scatter(*plane.T, c=np.clip(values @ colors, 0, 1), s=2, rasterized=True)
        axes.set(title=title, xticks=[], yticks=[], aspect="equal")
    for tip in range(TIPS):
        right.scatter(truth[:, tip], found[:, tip], color=colors[tip], s=1, rasterized=True)
    right.plot([0, 1], [0, 1], color="0.6", lw=1)
    right.set(xlabel="share of walks", ylabel="fate", title="each cell and tip", aspect="equal")
    figure.savefig(path, dpi=110)


_CELLRANK = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import anndata, numpy as np, pandas as pd, cellrank as cr
adata = anndata.read_h5ad(sys.argv[1])
began = time.process_time(), time.perf_counter()
kernel = cr.kernels.ConnectivityKernel(adata).compute_transition_matrix()
model = cr.estimators.GPCCA(kernel)
model.set_terminal_states({one: list(adata.obs_names[adata.obs["end"] == one]) for one in adata.uns["tips"]})
model.compute_fate_probabilities(use_petsc=False, solver="gmres", tol=1e-6, show_progress_bar=False, n_jobs=1)
seconds = time.process_time() - began[0]
found = model.fate_probabilities
np.save(sys.argv[2], np.asarray(found[list(adata.uns["tips"])].X))
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""
_OURS = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import anndata, numpy as np, scalable_gpe as gpe
adata = anndata.read_h5ad(sys.argv[1])
began = time.process_time()
gpe.tl.fate(adata, {one: np.flatnonzero(adata.obs["end"] == one) for one in adata.uns["tips"]})
seconds = time.process_time() - began
np.save(sys.argv[2], adata.obsm["lineages_fwd"])
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def _beside_cellrank(
    result: gpe.Embedding,
    X: np.ndarray,
    arm: np.ndarray,
    place: np.ndarray,
    end: float,
    found: np.ndarray,
    interpreter: str,
) -> Iterator[str]:
    """The same connectivities and terminal cells in both, each in a process of its own."""
    import anndata

    adata = anndata.AnnData(np.asarray(X, np.float32))
    gpe.tl.neighbors(adata)
    tips = [f"tip {tip}" for tip in range(TIPS)]
    adata.obs["end"] = np.where((arm >= 0) & (place >= end), np.array(tips)[arm], "none")
    adata.uns["tips"] = tips
    values = {}
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/cells.h5ad"
        adata.write_h5ad(file)
        for name, python, code in (("CellRank", interpreter, _CELLRANK), ("gpe.tl.fate", sys.executable, _OURS)):
            done = subprocess.run(
                [python, "-c", code, file, f"{folder}/found.npy"], capture_output=True, text=True, check=True
            )
            used = json.loads(done.stdout.strip().splitlines()[-1])
            values[name] = np.load(f"{folder}/found.npy")
            yield f"{name}: {used['seconds']:.1f} s of processor time, {used['peak'] / 1e9:.2f} GB"
    correlation = np.corrcoef(values["CellRank"].ravel(), values["gpe.tl.fate"].ravel())[0, 1]
    yield f"correlation of both: {correlation:.4f}"


# --- a million rows -------------------------------------------------------------------------------


_PATCHES = """
import sys, numpy as np, scalable_gpe as gpe
np.save(sys.argv[2], gpe.datasets.patches(int(sys.argv[1]), 50, random_state=0).astype(np.float32))
"""  # in a process of its own, so that the peak is that of the run


def study_million(options: argparse.Namespace) -> Iterator[str]:
    """Yield the time of spreading ten classes, beside that of the default embedding's stages."""
    labels = np.full(options.rows, -1)
    known = np.sort(np.random.default_rng(0).choice(options.rows, 100, replace=False))
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/points.npy"
        subprocess.run([sys.executable, "-c", _PATCHES, str(options.rows), file], check=True)
        points = np.load(file, mmap_mode="r")
        labels[known] = np.argmax(points[known, :10], axis=1)
        store = f"{folder}/run.zarr" if options.memory_limit else None
        X = file if store else np.array(points)
        del points
        result = gpe.embed(X, store=store, memory_limit=options.memory_limit, progress=False)
        began = time.perf_counter()
        found = result.propagate(labels)
        seconds = time.perf_counter() - began
        graph = result.report["stage_seconds"]["graph"]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield f"{options.rows:,} rows x {len(found.classes)} classes: {seconds:.1f} s, {found.iterations} cycles,"
        yield f"error {found.residual:.1e}, horizon {found.horizon:g}; graph {graph:.1f} s; ratio {seconds / graph:.2f}"
        yield f"peak of the process: {peak / 1e9:.2f} GB"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for part in ("accuracy", "fates", "million"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--data", nargs="+", metavar="NAME")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--most", type=int, default=70_000, help="rows of each data set")
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--walks", type=int, default=10_000)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--cellrank", metavar="PYTHON")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory-limit")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
