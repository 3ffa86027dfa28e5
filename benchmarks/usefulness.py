"""What embeddings are good for: neighbours, clusters, few labels and shape, for each power and for all scales.

    python benchmarks/usefulness.py --json usefulness.json --markdown docs/developers/usefulness-results.md   15 minutes
    python benchmarks/usefulness.py --quick                                                          a minute
    python benchmarks/usefulness.py --data digits torus --components 8 16 32 --seeds 10

`quality.py` defines the figures and `truth.py` the data sets, half of which are for choosing parameters and half only
for reporting. Graph, kernel and heat kernel of a data set are computed once, with default parameters, and used by all
embeddings and eigenvectors. Embeddings of fewer components are the first columns of those of more. Sketches are
repeated with several random matrices; all else is computed once. UMAP and PHATE run if they are installed. Of the
diffusion map, each figure is the best over several times.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np

import scalable_gpe as gpe
from labels import FASHION
from quality import FIGURES, figures
from truth import DATA, Truth, horizon_of, load, role

POWERS = (16, 64, 256, 1024, 4096)
HORIZONS = (1024, 4096, 16384)
TIMES = (1, 4, 16, 64)
COMPONENTS = 32
TOLERANCE = {"labels": 0.02, "NMI": 0.02, "few": 0.02, "rho": 0.04}
PEERS = ["UMAP", "PHATE"]
PARTS = ["sketches", "wide", "horizons", "eigenvectors", "parameters", *PEERS]
_PARTED = 1_000_000
_NOTHING = 1e-10  # the slowest change that is left of a power, below which nothing is
N_SKETCH = 128
WIDE = f"all, n_sketch={N_SKETCH}"
DECISIVE = ("branching", "digits", "Fashion-MNIST", "swiss roll", "torus")
PARAMETERS: dict[str, dict[str, object]] = {
    "defaults": {},
    "n_neighbors=24": {"n_neighbors": 24},
    "n_neighbors=32": {"n_neighbors": 32},
    "n_neighbors=64": {"n_neighbors": 64},
    'epsilon="global"': {"epsilon": "global"},
    'epsilon="local"': {"epsilon": "local"},
    'normalization="symmetric"': {"normalization": "symmetric"},
}
_SLOW = {"small clusters"}  # k-means with thousands of clusters takes long: one k, one horizon, default parameters
_METHODS = {
    "input": "input",
    "principal components": "PCA",
    **{f"power {power}": f"p = {power}" for power in POWERS},
    'power="all"': "**all**",
    WIDE: WIDE,
    "diffusion map": "diffusion map",
    "Laplacian eigenmaps": "eigenmaps",
    "UMAP": "UMAP",
    "PHATE": "PHATE",
}


_HORIZONS = [f"all, horizon {horizon}" for horizon in HORIZONS]


@dataclass(frozen=True)
class Figure:
    """One figure of one method: mean and standard error over random matrices (no error if nothing is random)."""

    data: str
    role: str
    n_components: int
    method: str
    figure: str
    mean: float
    error: float | None
    n_seeds: int

    def __str__(self) -> str:
        return _number(self.mean) if self.error is None else f"{_number(self.mean)} ± {_number(self.error)}"


@dataclass(frozen=True)
class Measured:
    """What is known of one data set beside the figures."""

    data: str
    role: str
    n_rows: int
    n_features: int
    n_classes: int
    horizon: int
    relaxation_time: float | None
    seconds: float

    def vanished(self, method: str) -> bool:
        """Whether rounding is all that the library, with a warning, leaves of a power."""
        number = method.removeprefix("power ")
        return number.isdigit() and _vanishes(self.relaxation_time, int(number))


@dataclass(frozen=True)
class Results:
    """Figures of all data sets, by what they are figures of; a later run replaces what an earlier one found."""

    data: dict[str, Measured]
    figures: dict[tuple[str, int, str, str], Figure]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Results":
        known = cls({}, {})
        for path in paths:
            content = json.loads(path.read_text(encoding="utf-8"))
            known.add([Measured(**one) for one in content["data"]], [Figure(**one) for one in content["figures"]])
        return known

    def add(self, measured: Iterable[Measured], found: Iterable[Figure]) -> None:
        self.data.update({one.data: one for one in measured})
        self.figures.update({(one.data, one.n_components, one.method, one.figure): one for one in found})

    def write(self, path: Path) -> None:
        content = {key: [asdict(one) for one in values.values()] for key, values in vars(self).items()}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")  # vanishing powers, isolated rows: the figures say it
    results = Results.read(options.merge)
    for name in options.data:
        if name == "Fashion-MNIST" and not options.fashion.exists():
            print("Fashion-MNIST: left out, its files are not there (Debian: dataset-fashion-mnist)")
            continue
        measured, found = study(name, load(name, options.share, options.fashion), options)
        results.add([measured], found)
        print(f"\n{name} ({measured.role}), {measured.seconds:.0f} s, horizon {measured.horizon}\n")
        print(_by_method(found), flush=True)
        if options.json:
            results.write(options.json)
    text = markdown(list(results.figures.values()), [results.data[name] for name in DATA if name in results.data])
    print("\n" + text)
    if options.json:
        results.write(options.json)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


# --- the study of one data set --------------------------------------------------------------------


def study(name: str, truth: Truth, options: argparse.Namespace) -> tuple[Measured, list[Figure]]:
    """Compute all figures of a data set."""
    began = time.perf_counter()
    choosing = role(name) == "choose" and name not in _SLOW
    components = [k for k in options.components if choosing or k == COMPONENTS]
    heat = _heat(truth)
    horizon = horizon_of(heat)
    values: dict[tuple[int, str, str], list[float]] = defaultdict(list)

    def add(k: int, method: str, points: np.ndarray) -> None:
        for figure, value in figures(truth, points[:, :k]).items():
            values[k, method, figure].append(value)

    raw = figures(truth, truth.X)
    for k in components:
        for figure, value in raw.items():
            values[k, "input", figure] = [value]
        for method, points in _others(truth, k, options):
            add(k, method, points)
    if "sketches" in options.parts:
        powers = [one for one in POWERS if not _vanishes(horizon.relaxation_time, one)]
        for method, points in _sketches(heat, max(components), powers, options.seeds):
            for k in components:
                add(k, method, points)
    if "eigenvectors" in options.parts:
        vectors, eigenvalues = _eigenvectors(heat, max(components))
        for k in components:
            add(k, "Laplacian eigenmaps", vectors)
            for figure, value in _best(truth, vectors[:, :k], eigenvalues[:k]).items():
                values[k, "diffusion map", figure].append(value)
    for method, points in _variants(name, truth, heat, options):
        add(COMPONENTS, method, points)
    measured = Measured(
        data=name,
        role=role(name),
        n_rows=len(truth.X),
        n_features=truth.X.shape[1],
        n_classes=len(np.unique(truth.labels[truth.rows])),
        horizon=horizon.horizon,
        relaxation_time=horizon.relaxation_time,
        seconds=time.perf_counter() - began,
    )
    return measured, [_figure(name, *key, value) for key, value in values.items()]


def _figure(name: str, k: int, method: str, figure: str, value: list[float]) -> Figure:
    error = float(np.std(value, ddof=1) / np.sqrt(len(value))) if len(value) > 1 else None
    return Figure(name, role(name), k, method, figure, float(np.mean(value)), error, len(value))


def _vanishes(relaxation_time: float | None, power: int) -> bool:
    return relaxation_time is not None and (1 - 1 / relaxation_time) ** power < _NOTHING


def _heat(truth: Truth, **parameters: object) -> gpe.HeatKernel:
    given = dict(parameters)
    graph = gpe.neighbor_graph(truth.X, given.pop("n_neighbors", None))
    kernel = gpe.gaussian_kernel(graph, given.pop("epsilon", "auto"))
    return gpe.heat_kernel(kernel, given.pop("normalization", "bistochastic"))


def _sketches(heat: gpe.HeatKernel, k: int, powers: list[int], n_seeds: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield embeddings of powers and of all scales, for each seed."""
    for seed in range(n_seeds):
        points = gpe.gp_embedding(heat, k, [*powers, "all"], random_state=seed)
        for power in powers:
            yield f"power {power}", points[power]
        yield 'power="all"', points["all"]


def _variants(
    name: str, truth: Truth, heat: gpe.HeatKernel, options: argparse.Namespace
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield embeddings of all scales by other horizons, from more columns, and with other parameters."""
    if "wide" in options.parts:
        for seed in range(options.seeds):
            yield WIDE, gpe.gp_embedding(heat, COMPONENTS, "all", n_sketch=N_SKETCH, random_state=seed)
    if "horizons" in options.parts and name not in _SLOW:
        for horizon, seed in product(HORIZONS, range(options.seeds)):
            points = gpe.gp_embedding(heat, COMPONENTS, "all", horizon=horizon, random_state=seed)
            yield f"all, horizon {horizon}", points
    if "parameters" in options.parts and name not in _SLOW:
        for method, parameters in PARAMETERS.items():
            if role(name) != "choose" and parameters.keys() - {"n_neighbors"}:
                continue
            other = _heat(truth, **parameters)
            for seed in range(options.seeds):
                yield method, gpe.gp_embedding(other, COMPONENTS, "all", random_state=seed)


def _eigenvectors(heat: gpe.HeatKernel, k: int) -> tuple[np.ndarray, np.ndarray]:
    points, eigenvalues = gpe.diffusion_map(heat, k)
    return points / np.where(eigenvalues == 0, 1, eigenvalues), eigenvalues


def _best(truth: Truth, vectors: np.ndarray, eigenvalues: np.ndarray) -> dict[str, float]:
    """The best of each figure over the times of a diffusion map; negative eigenvalues are left out."""
    every = [figures(truth, vectors * np.maximum(eigenvalues, 0) ** t) for t in TIMES]
    return {figure: max(one[figure] for one in every) for figure in every[0]}


def _others(truth: Truth, k: int, options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray]]:
    """Yield principal components; UMAP and PHATE with their own defaults, where they are installed and N is small."""
    from sklearn.decomposition import PCA

    n_rows, n_features = truth.X.shape
    if n_features > k:
        yield "principal components", PCA(k, random_state=0).fit_transform(truth.X)
    if k != COMPONENTS:
        return
    if "UMAP" in options.parts and n_rows <= options.umap_rows:
        import umap

        yield "UMAP", umap.UMAP(n_components=k, random_state=0, n_jobs=1).fit_transform(truth.X)
    if "PHATE" in options.parts and n_rows <= options.phate_rows:
        import phate

        yield "PHATE", phate.PHATE(n_components=k, random_state=0, verbose=0).fit_transform(truth.X)


def _installed(parts: list[str]) -> list[str]:
    """Leave out by name what is not installed."""
    missing = [name for name in PEERS if name in parts and find_spec(name.lower()) is None]
    for name in missing:
        print(f"{name}: left out, it is not installed")
    return [name for name in parts if name not in missing]


# --- tables ---------------------------------------------------------------------------------------


def markdown(found: list[Figure], measured: list[Measured]) -> str:
    """Write all tables as Markdown."""
    names = [one.data for one in measured]
    sections = [_data_table(measured)]
    known = {one.data: one for one in measured}
    usual = [
        figure
        for figure in found
        if figure.n_components == COMPONENTS
        and figure.method in _METHODS
        and not known[figure.data].vanished(figure.method)
    ]
    for name in FIGURES:
        rows = [figure for figure in usual if figure.figure == name]
        if rows:
            sections.append(f"### {_HEADINGS[name]}\n\n" + _by_data(rows, names, _METHODS))
    for method, heading in (('power="all"', "All scales"), (WIDE, f"All scales with `n_sketch={N_SKETCH}`")):
        if any(figure.method == method for figure in usual):
            sections.append(f"### {heading} minus the best single power\n\n" + _shortfall(usual, names, method))
    longest = [one.data for one in measured if one.horizon >= min(HORIZONS)]
    if any(figure.method in _HORIZONS for figure in found):
        sections.append("### The horizon, where it matters\n\n" + _horizon_table(found, longest))
    choosing = [one.data for one in measured if one.role == "choose"]
    ks = sorted({figure.n_components for figure in found})
    if len(ks) > 1:
        rows = [
            Figure(f.data, f.role, f.n_components, f"k = {f.n_components}", f.figure, f.mean, f.error, f.n_seeds)
            for f in found
            if f.method == 'power="all"' and f.data in choosing
        ]
        sections.append("### n_components\n\n" + _averages(rows, choosing, [f"k = {k}" for k in ks]))
    if any(figure.method in PARAMETERS for figure in found):
        rows = [figure for figure in found if figure.method in PARAMETERS]
        sections.append("### Other parameters, with all scales\n\n" + _averages(rows, choosing, list(PARAMETERS)))
        reporting = [one.data for one in measured if one.role != "choose"]
        lists = [name for name, given in PARAMETERS.items() if not given.keys() - {"n_neighbors"}]
        sections.append("### Neighbours, on the sets for reporting\n\n" + _averages(rows, reporting, lists))
    return "\n\n".join(sections) + "\n"


_HEADINGS = {
    "labels": "Labels: share of the 10 nearest rows with the row's label",
    "NMI": "NMI: k-means with the true number of classes",
    "few": "Few: accuracy of the nearest of 5 labelled rows per class",
    "rho": "Rho: order of distances along the surface, or of pseudotime",
}


def _data_table(measured: list[Measured]) -> str:
    lines = [
        [
            one.data,
            "choosing" if one.role == "choose" else "reporting",
            f"{one.n_rows:,} x {one.n_features}",
            f"{one.n_classes:,}",
            _time_text(one.relaxation_time),
            str(one.horizon),
        ]
        for one in measured
    ]
    head = ["data", "for", "size", "classes", "relaxation time", "horizon"]
    return _table(head, lines)


def _by_data(rows: Iterable[Figure], names: list[str], methods: dict[str, str]) -> str:
    known = {(figure.data, figure.method): figure for figure in rows}
    used = [method for method in methods if any((name, method) in known for name in names)]
    lines = [
        [name, *(str(known.get((name, method), "")) for method in used)]
        for name in names
        if any((name, method) in known for method in used)
    ]
    return _table(["data", *(methods[method] for method in used)], lines)


def _horizon_table(found: list[Figure], names: list[str]) -> str:
    """Figures of given horizons, of data sets with a relaxation time that is at least the half of the shortest."""
    known = {(figure.data, figure.figure, figure.method): figure for figure in found if figure.method in _HORIZONS}
    pairs = [(name, figure) for name, figure in product(names, FIGURES) if figure != "labels"]
    lines = [
        [name, figure, *(str(known[name, figure, method]) for method in _HORIZONS)]
        for name, figure in pairs
        if all((name, figure, method) in known for method in _HORIZONS)
    ]
    return _table(["data", "figure", *(method.replace("all, horizon", "T =") for method in _HORIZONS)], lines)


def _time_text(time: float | None) -> str:
    """A relaxation time; that of parts which almost no heat connects says no more than its size."""
    return f"{time:,.0f}" if time is not None and time < _PARTED else f"> {_PARTED:,}"


def _by_method(rows: list[Figure]) -> str:
    """The figures of one data set, for the eye while the benchmark runs."""
    known = {(figure.n_components, figure.method, figure.figure): figure for figure in rows}
    pairs = list(dict.fromkeys((figure.n_components, figure.method) for figure in rows))
    lines = [[str(k), method, *(str(known.get((k, method, figure), "")) for figure in FIGURES)] for k, method in pairs]
    return _table(["k", "method", *FIGURES], lines)


def _shortfall(rows: list[Figure], names: list[str], method: str) -> str:
    """How far a method is above the best power, in the mean of the seeds; names of the decisive data are bold."""
    known = {(figure.data, figure.method, figure.figure): figure.mean for figure in rows}
    lines = []
    for name in names:
        cells = [f"**{name}**" if name in DECISIVE else name]
        for figure in FIGURES:
            powers = [power for power in POWERS if (name, f"power {power}", figure) in known]
            if not powers or (name, method, figure) not in known:
                cells.append("")
                continue
            best = max(powers, key=lambda power: known[name, f"power {power}", figure])
            gain = known[name, method, figure] - known[name, f"power {best}", figure]
            text = f"{gain:+.3f} (p = {best})"
            cells.append(text if gain >= -TOLERANCE[figure] else f"**{text}**")
        lines.append(cells)
    return _table(["data", *FIGURES], lines)


def _averages(rows: list[Figure], names: list[str], methods: list[str]) -> str:
    """Means over the data sets for choosing that have a figure with every method, and the worst loss."""
    known = {(figure.data, figure.method, figure.figure): figure.mean for figure in rows}
    lines = []
    for method in methods:
        cells = [f"`{method}`" if "=" in method and " = " not in method else method]
        for figure in FIGURES:
            complete = [name for name in names if all((name, one, figure) in known for one in methods)]
            losses = {name: known[name, methods[0], figure] - known[name, method, figure] for name in complete}
            mean = np.mean([known[name, method, figure] for name in complete]) if complete else np.nan
            worst = max(losses, key=lambda name: losses[name], default="")
            lost = f" (worst {-losses[worst]:+.3f}, {worst})" if worst and losses[worst] > 0 else ""
            cells.append(f"{_number(float(mean))}{lost}")
        lines.append(cells)
    return _table(["", *FIGURES], lines)


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _number(value: float) -> str:
    return f"{value:.3f}".removeprefix("0").replace("-0.", "-.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA), metavar="NAME")
    parser.add_argument("--components", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="size of the data sets, relative to the usual one")
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder of the files of Fashion-MNIST")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="the input is always there")
    parser.add_argument("--umap-rows", type=int, default=10_000, help="largest data set for UMAP")
    parser.add_argument("--phate-rows", type=int, default=5_000, help="largest data set for PHATE")
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the size, two seeds, 32 components, no peers"
    )
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="JSON files of earlier runs to start from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.share, options.seeds, options.components = 0.25, 2, [COMPONENTS]
        options.parts = ["sketches", "wide", "eigenvectors"]
    options.parts = _installed(options.parts)
    if COMPONENTS not in options.components:
        parser.error(f"--components must include {COMPONENTS}")
    return options


if __name__ == "__main__":
    main()
