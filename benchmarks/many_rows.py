"""All scales of many rows: the first power and the horizon of the sum, and a sample in place of all rows.

    python benchmarks/many_rows.py --markdown docs/developers/first-power-results.md                        half an hour
    python benchmarks/many_rows.py --vary horizon --data torus "swiss roll" --sizes 1e5          some minutes
    python benchmarks/many_rows.py --vary n_neighbors --sizes 1e5                                half an hour
    python benchmarks/many_rows.py --vary sample --data torus "swiss roll" --sizes 1e6 --seeds 2  a quarter of an hour
    python benchmarks/many_rows.py --data branching --sizes 1e6 --seeds 1

The figures are those of `quality.py`, of 10,000 sampled rows, with k = 32 and otherwise default parameters, as mean and
standard error over several random matrices. `truth.py` says which sets are for choosing and which only for reporting.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

import labels
import scalable_gpe as gpe
from quality import FIGURES, figures
from truth import Truth, load, role, sampled

VARIED = {
    "first_power": (1, 2, 4, 8, 16),
    "horizon": (4096, 16384, 32768),
    "n_neighbors": (16, 24, 32),
    "sample": (20_000, 100_000, 1_000_000),
}
SIZES = {
    "branching": (4_000, 100_000, 300_000),
    "nested clusters": (4_000, 100_000),
    "torus": (4_000, 100_000),
    "Fashion-MNIST": (20_000, 70_000),
    "noise": (3_000, 60_000),
    "swiss roll": (4_000, 100_000),
}
_STANDARD = {"Fashion-MNIST": 20_000, "noise": 3_000}  # rows of `truth.load` with share 1; 4,000 of all others
_SAMPLE = 10_000

Figures = dict[str, list[float]]
Points = Callable[[int, int], np.ndarray]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    shown = (*FIGURES, "seconds") if options.vary == "sample" else FIGURES
    head = ["data", "for", "rows", options.vary.replace("_", " "), *shown]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in lines:
        print(line, flush=True)
    for name in options.data:
        for n_rows in map(int, options.sizes or SIZES[name]):
            truth = load(name, n_rows / _STANDARD.get(name, 4_000), options.fashion)
            for value, found in study(truth, options.vary, options.seeds):
                use = {"choose": "choosing", "report": "reporting"}[role(name)]
                cells = [name, use, f"{len(truth.X):,}", str(value), *(_cell(found.get(one)) for one in shown)]
                lines.append("| " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


def study(truth: Truth, parameter: str, n_seeds: int) -> Iterator[tuple[int, Figures]]:
    """Yield each value of a parameter with its figures, one for each random matrix."""
    X = np.asarray(truth.X, np.float32)
    rows, known = sampled(truth, min(_SAMPLE, len(X)))
    points = _of_sample(X, rows) if parameter == "sample" else _of_parameter(X, rows, parameter)
    for value in VARIED[parameter]:
        found: Figures = {}
        for seed in range(n_seeds):
            began = time.perf_counter()
            embedded = points(value, seed)
            measured = {"seconds": time.perf_counter() - began, **figures(known, embedded)}
            for figure, one in measured.items():
                found.setdefault(figure, []).append(one)
        yield value, found


def _of_parameter(X: np.ndarray, rows: np.ndarray, parameter: str) -> Points:
    """The embedding of `rows`, by the value of a parameter of the sum."""

    @lru_cache(maxsize=1)
    def heat(n_neighbors: int | None) -> gpe.HeatKernel:
        return gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, n_neighbors)))

    def points(value: int, seed: int) -> np.ndarray:
        if parameter == "n_neighbors":
            return gpe.gp_embedding(heat(value), 32, "all", random_state=seed)[rows]
        return gpe.gp_embedding(heat(None), 32, "all", random_state=seed, **{parameter: value})[rows]

    return points


def _of_sample(X: np.ndarray, rows: np.ndarray) -> Points:
    """The embedding of `rows`, by the size of the sample that is embedded, and that they are placed by."""

    def points(size: int, seed: int) -> np.ndarray:
        if size >= len(X):
            return gpe.embed(X, random_state=seed, progress=False).points[rows]
        some = np.sort(np.random.default_rng(seed).choice(len(X), size, replace=False))
        return gpe.embed(X[some], random_state=seed, progress=False).transform(X)[rows]

    return points


def _cell(values: list[float] | None) -> str:
    """Mean and standard error; nothing for a figure that the data do not allow."""
    if not values:
        return ""
    mean, digits = np.mean(values), 3 if np.max(values) <= 1 else 1  # shares, or seconds
    numbers = [mean] if len(values) == 1 else [mean, np.std(values, ddof=1) / np.sqrt(len(values))]
    return " ± ".join(f"{number:.{digits}f}".removeprefix("0") for number in numbers)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--sizes", nargs="+", type=float, help="numbers of rows, in place of those of each set")
    parser.add_argument("--vary", default="first_power", choices=list(VARIED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fashion", type=Path, default=labels.FASHION, help="folder of Fashion-MNIST")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
