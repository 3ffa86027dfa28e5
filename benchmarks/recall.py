"""What an embedding loses if the search misses some of the true neighbours.

    python benchmarks/recall.py --json recall.json --markdown recall.md       some 25 minutes
    python benchmarks/recall.py --data hard Gaussian --json recall.json       adds to that file, or replaces
    python benchmarks/recall.py --data --search 100000                        seconds and recall by what is asked for
    python benchmarks/recall.py --quick                                       seconds

Graphs of lower recall come from the search by cells itself, with fewer comparisons: smaller leaves, fewer samples, and
fewer steps of the descent. Of a ladder of such searches, those nearest to some recalls are taken. Beside them, true
neighbours are deleted at random. Everything else is as by default, and random numbers are the same.

Errors are relative ones of diffusion distances, against the embedding of the exact graph, for random pairs and for
pairs of true neighbours, in medians. Both embeddings have 256 columns of the same random matrix and the same horizon.
The yardstick is the error of 32 of these columns against all 256. `scale` is the common factor by which distances grow,
and `shape` is the error that is left without it. Figures of use (`quality.py`) are means over embeddings of 32 columns.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import scalable_gpe as gpe
import truth
from graph import hard
from labels import FASHION
from measure import timed
from quality import FIGURES, figures
from scalable_gpe.graph import cells, descent
from scalable_gpe.graph.parts import SearchPlan
from truth import Truth, horizon_of
from usefulness import _number, _table

ROWS = 10_000
COLUMNS, KEPT = 256, 32
RECALLS = (0.6, 0.75, 0.85, 0.95, 0.99)
DELETED = (0.85, 0.95)
POWERS: tuple[int | str, ...] = (16, "all")
PAIRS = ("random", "near")
ERRORS = tuple(f"{power}, {pairs}" for power, pairs in product(POWERS, PAIRS))
EXACT, SEARCH, DELETION, YARDSTICK = "exact", "search", "deleted", "32 columns"
_N_PAIRS = 8000
_N_SKETCHES = 3  # embeddings whose figures are averaged


class Weakened(NamedTuple):
    """A search with fewer comparisons than the usual one."""

    leaf_rows: int
    n_sampled: int
    n_steps: int


LADDER = (
    *(Weakened(leaf_rows, 4, 0) for leaf_rows in (64, 100, 150, 200, 300)),
    *(Weakened(150, 8, n_steps) for n_steps in (1, 2, 3)),
    *(Weakened(300, 12, n_steps) for n_steps in (1, 2, 3, 4)),
    *(Weakened(300, n_sampled, 20) for n_sampled in (3, 4, 5, 6, 8, 10, 12, 16, 20, 28)),
)


@dataclass(frozen=True)
class Loss:
    """What one graph costs: errors of distances by power and pairs, and figures of use."""

    data: str
    graph: str
    recall: float
    target: float | None = None
    missing_weight: float | None = None
    search: Weakened | None = None
    n_connected_components: int = 1
    errors: dict[str, float] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    shape: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Searched:
    """A search of the usual kind, with its `recall` asked for."""

    data: str
    n_rows: int
    n_neighbors: int
    asked: float
    recall: float
    missing_weight: float
    seconds: float


def main(arguments: Sequence[str] | None = None) -> str:
    """Run the study, print its tables and return them."""
    options = _options(arguments)
    warnings.simplefilter("ignore")  # low recall, isolated rows: the figures say it
    losses, searched = _read(options.json)
    for name in options.data:
        if name == "Fashion-MNIST" and not options.fashion.exists():
            print("Fashion-MNIST: left out, its files are not there (Debian: dataset-fashion-mnist)")
            continue
        found = list(study(name, _load(name, options), options))
        losses = [one for one in losses if one.data != name] + found
        print(f"\n{name}\n\n{_losses_table(found)}", flush=True)
        _write(options.json, losses, searched)
    for n_rows in options.search:
        found_by_search = list(searches(n_rows))
        searched = [one for one in searched if one.n_rows != n_rows] + found_by_search
        _write(options.json, losses, searched)
    text = markdown(losses, searched)
    print("\n" + text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    return text


# --- data -----------------------------------------------------------------------------------------


def _unlabelled(X: np.ndarray) -> Truth:
    return Truth(X, np.full(len(X), -1))


def _gaussian(n_rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_rows, 20)).astype(np.float32)


def _branches(n_rows: int) -> Truth:
    """Branches with their parts as classes, and with distances along the curves from the first row."""
    parts, along = gpe.datasets.branches_truth(n_rows)
    others = np.flatnonzero(np.arange(n_rows) != along.argmin())
    pairs = np.stack([np.full(len(others), along.argmin()), others])
    found = np.unique(parts, return_inverse=True)[1]
    return Truth(gpe.datasets.branches(n_rows), found, True, pairs, along[others] - along.min())


DATA: dict[str, Callable[[int], Truth]] = {
    "patches": lambda n_rows: _unlabelled(gpe.datasets.patches(n_rows, 50)),
    "branches": _branches,
    "nested clusters": lambda n_rows: truth.load("nested clusters", n_rows / 4000),
    "Fashion-MNIST": lambda n_rows: truth.load("Fashion-MNIST", n_rows / 20_000),
    "Gaussian": lambda n_rows: _unlabelled(_gaussian(n_rows)),
    "hard": lambda n_rows: _unlabelled(hard(n_rows)),
}


def _load(name: str, options: argparse.Namespace) -> Truth:
    if name == "Fashion-MNIST":
        return truth.load(name, options.rows / 20_000, options.fashion)
    return DATA[name](options.rows)


# --- graphs ---------------------------------------------------------------------------------------


@contextmanager
def weakened(by: Weakened) -> Iterator[None]:
    """Search by cells with fewer comparisons."""
    usual = cells.plan_search

    def plan(*sizes: int, **more: Any) -> SearchPlan:
        standard = usual(*sizes, **more)
        return replace(standard, leaf_rows=by.leaf_rows, n_sampled=by.n_sampled)

    with mock.patch.object(cells, "plan_search", plan), mock.patch.object(descent, "MAX_STEPS", by.n_steps):
        yield


def poor_graphs(
    X: np.ndarray, ladder: Sequence[Weakened], recalls: Sequence[float]
) -> Iterator[tuple[float, Weakened, gpe.NeighborGraph]]:
    """Yield the graph that is nearest to each recall, as (that recall, search, graph); each graph once."""
    found = []
    for by in ladder:
        with weakened(by):
            found.append((by, gpe.neighbor_graph(X, method="cells", recall=0.01)))
    taken = set[Weakened]()
    for recall in recalls:
        by, graph = min(found, key=lambda one: abs(one[1].recall - recall))
        if by not in taken:
            taken.add(by)
            yield recall, by, graph


def deleted(X: np.ndarray, exact: gpe.NeighborGraph, recall: float) -> gpe.NeighborGraph:
    """The exact lists without some entries, which are drawn at random."""
    lost = np.random.default_rng(2).random(exact.indices.shape) > recall
    lists = np.where(lost, -1, exact.indices), np.where(lost, np.inf, exact.distances)
    return gpe.embed(X, neighbors=lists, n_components=1, power=1, progress=False).graph


# --- the study of one data set --------------------------------------------------------------------


class Embedded(NamedTuple):
    """The wide embeddings of a graph, by power, and the kernel they come from."""

    kernel: gpe.SparseKernel
    points: dict[int | str, np.ndarray]


def study(name: str, data: Truth, options: argparse.Namespace) -> Iterator[Loss]:
    """Yield what graphs of each recall cost on one data set; the exact graph and the yardstick come first."""
    exact = gpe.neighbor_graph(data.X, method="brute")
    heat = gpe.heat_kernel(gpe.gaussian_kernel(exact))
    horizon = horizon_of(heat).horizon
    true = _embedded(exact, horizon, options.columns)
    pairs = _pairs(exact)
    yield Loss(name, EXACT, 1.0, missing_weight=true.kernel.missing_weight, figures=_use(data, true))
    narrow = {power: points[:, :KEPT] * np.sqrt(options.columns / KEPT) for power, points in true.points.items()}
    yield _compared(Loss(name, YARDSTICK, 1.0), narrow, true.points, pairs)

    def loss(made: gpe.NeighborGraph, **known: Any) -> Loss:
        seconds, found = timed(lambda: _embedded(made, horizon, options.columns))
        one = Loss(
            data=name,
            recall=float(made.recall or 0),
            missing_weight=found.kernel.missing_weight,
            n_connected_components=made.n_connected_components,
            figures=_use(data, found),
            seconds=seconds,
            **known,
        )
        return _compared(one, found.points, true.points, pairs)

    for target, by, graph in poor_graphs(data.X, options.ladder, options.recalls):
        yield loss(graph, graph=SEARCH, target=target, search=by)
    for target in options.deleted:
        yield loss(deleted(data.X, exact, target), graph=DELETION, target=target)


def _embedded(graph: gpe.NeighborGraph, horizon: int, n_columns: int) -> Embedded:
    kernel = gpe.gaussian_kernel(graph)
    return Embedded(kernel, gpe.gp_embedding(gpe.heat_kernel(kernel), n_columns, POWERS, horizon=horizon))


def _pairs(exact: gpe.NeighborGraph) -> dict[str, np.ndarray]:
    """Random pairs of rows, and pairs of a row and one of its true neighbours."""
    rng, n_rows = np.random.default_rng(1), exact.n_rows
    random, rows = rng.integers(0, n_rows, (2, _N_PAIRS)), rng.integers(0, n_rows, _N_PAIRS)
    near = exact.indices[rows, rng.integers(0, exact.n_neighbors, _N_PAIRS)]
    return {"random": random[:, random[0] != random[1]], "near": np.stack([rows, near])}


def _compared(
    loss: Loss,
    points: dict[int | str, np.ndarray],
    true: dict[int | str, np.ndarray],
    pairs: dict[str, np.ndarray],
) -> Loss:
    """Add errors of distances."""
    errors, scale, shape = dict[str, float](), dict[str, float](), dict[str, float]()
    for name, (power, which) in zip(ERRORS, product(POWERS, PAIRS), strict=True):
        known = _distances(true[power], pairs[which])
        ratios = _distances(points[power], pairs[which])[known > 0] / known[known > 0]
        scale[name] = float(np.median(ratios))
        errors[name] = float(np.median(np.abs(ratios - 1)))
        shape[name] = float(np.median(np.abs(ratios / scale[name] - 1)))
    return replace(loss, errors=errors, scale=scale, shape=shape)


def _distances(points: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(points[pairs[0]].astype(np.float64) - points[pairs[1]], axis=1)
    return lengths


def _use(data: Truth, found: Embedded) -> dict[str, float]:
    """Figures of embeddings of all scales in 32 columns, each from other columns; none without labels."""
    if not len(data.rows):
        return {}
    points = found.points["all"]
    narrow = [points[:, start : start + KEPT] for start in range(0, points.shape[1] - KEPT + 1, KEPT)][:_N_SKETCHES]
    every = [figures(data, one) for one in narrow]
    return {figure: float(np.mean([one[figure] for one in every])) for figure in every[0]}


# --- what is asked for ----------------------------------------------------------------------------


def searches(n_rows: int) -> Iterator[Searched]:
    """Yield seconds and recall of searches with the usual plan."""
    for name, make in (("hard", hard), ("Gaussian", _gaussian)):
        X = make(n_rows)
        gpe.neighbor_graph(X[:3000], method="cells")  # compiles
        for n_neighbors, asked in product((16, 32), (0.85, 0.95)):
            search = partial(gpe.neighbor_graph, X, n_neighbors, method="cells", recall=asked)
            seconds, graph = timed(search)
            weight = gpe.gaussian_kernel(graph).missing_weight
            yield Searched(name, n_rows, n_neighbors, asked, graph.recall or 0.0, weight or 0.0, seconds)


# --- tables ---------------------------------------------------------------------------------------


def markdown(losses: list[Loss], searched: list[Searched]) -> str:
    """Write all tables as Markdown."""
    poor = [one for one in losses if one.graph == SEARCH]
    sections = []
    if poor:
        sections += ["## By data set", _losses_table(losses)]
        sections += ["## By recall: median over the data sets", _by_recall(losses)]
        sections += ["## How well a figure of the graph predicts the error", _prediction(poor)]
    if searched:
        sections += ["## What asking for more recall gives", _searched_table(searched)]
    return "\n\n".join(sections) + "\n"


def _losses_table(losses: list[Loss]) -> str:
    head = ["data", "graph", "recall", "missing weight", *(f"p = {name}" for name in ERRORS), *FIGURES]
    lines = []
    for one in losses:
        weight = "" if one.missing_weight is None else f"{one.missing_weight:.1%}"
        parts = "" if one.n_connected_components == 1 else f" ({one.n_connected_components} components)"
        errors = [f"{one.errors[name]:.1%}" if one.errors else "" for name in ERRORS]
        use = [_number(one.figures[figure]) if figure in one.figures else "" for figure in FIGURES]
        lines.append([one.data, one.graph + parts, _number(one.recall), weight, *errors, *use])
    return _table(head, lines)


def _by_recall(losses: list[Loss]) -> str:
    head = ["", "data sets", "missing weight", *(f"p = {name} (shape)" for name in ERRORS), *FIGURES]
    groups = {
        f"search, about {target}": [one for one in losses if one.target == target and one.graph == SEARCH]
        for target in RECALLS
    }
    groups |= {
        f"deleted at random, {target}": [one for one in losses if one.target == target and one.graph == DELETION]
        for target in DELETED
    }
    groups |= {YARDSTICK: [one for one in losses if one.graph == YARDSTICK]}
    true = {one.data: one.figures for one in losses if one.graph == EXACT}
    lines = []
    for name, some in groups.items():
        if not some:
            continue
        weights = [one.missing_weight for one in some if one.missing_weight is not None]
        cells = [name, str(len(some)), f"{np.median(weights):.1%}" if weights else ""]
        for error in ERRORS:
            middle, shape = (np.median([getattr(one, kind)[error] for one in some]) for kind in ("errors", "shape"))
            cells.append(f"{middle:.1%} ({shape:.1%})")
        for figure in FIGURES:
            gains = [one.figures[figure] - true[one.data][figure] for one in some if figure in one.figures]
            cells.append(f"{np.mean(gains):+.3f}" if gains else "")
        lines.append(cells)
    return _table(head, lines)


def _prediction(poor: list[Loss]) -> str:
    """Rank correlation over all data sets and recalls, and the error as a multiple of the figure."""
    from scipy.stats import spearmanr

    lines = []
    known = {
        "missing weight": np.array([one.missing_weight for one in poor], float),
        "1 - recall": 1 - np.array([one.recall for one in poor]),
    }
    for figure, values in known.items():
        for name in ERRORS:
            errors = np.array([one.errors[name] for one in poor])
            multiples = errors[values > 0] / values[values > 0]
            low, middle, high = np.quantile(multiples, (0.1, 0.5, 0.9))
            rank = float(spearmanr(values, errors)[0])
            lines.append([figure, f"p = {name}", f"{rank:.2f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
    return _table(["figure", "error", "rank correlation", "error / figure, median", "10 % to 90 %"], lines)


def _searched_table(searched: list[Searched]) -> str:
    lines = [
        [
            f"{one.data}, {one.n_rows:,} rows",
            str(one.n_neighbors),
            str(one.asked),
            _number(one.recall),
            f"{one.missing_weight:.1%}",
            f"{one.seconds:.1f} s",
        ]
        for one in searched
    ]
    return _table(["data", "n_neighbors", "asked", "recall", "missing weight", "time"], lines)


# --- files and options ----------------------------------------------------------------------------


def _read(path: Path | None) -> tuple[list[Loss], list[Searched]]:
    if path is None or not path.exists():
        return [], []
    content = json.loads(path.read_text(encoding="utf-8"))
    losses = [Loss(**one | {"search": one["search"] and Weakened(*one["search"])}) for one in content["losses"]]
    return losses, [Searched(**one) for one in content["searched"]]


def _write(path: Path | None, losses: list[Loss], searched: list[Searched]) -> None:
    if path is not None:
        content = {"losses": [asdict(one) for one in losses], "searched": [asdict(one) for one in searched]}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA), metavar="NAME")
    parser.add_argument("--rows", type=number, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS, help="of the embeddings that are compared")
    parser.add_argument("--recalls", type=float, nargs="+", default=RECALLS)
    parser.add_argument("--deleted", type=float, nargs="*", default=DELETED, help="recalls by deletion at random")
    parser.add_argument("--search", type=number, nargs="*", default=[], help="rows of searches by what is asked for")
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder of the files of Fashion-MNIST")
    parser.add_argument("--quick", action="store_true", help="nested clusters alone: few rows, columns and searches")
    parser.add_argument("--json", type=Path, help="results; what is there is kept, except of the same data")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    options.ladder = LADDER
    if options.quick:
        options.data, options.rows, options.columns, options.ladder = ["nested clusters"], 1000, 48, LADDER[:3]
        options.recalls, options.deleted = (0.75, 0.95), (0.85,)
    return options


if __name__ == "__main__":
    main()
