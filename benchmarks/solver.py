"""All scales by the two-level solver: how many products with A they take, and how far distances are from exact ones.

    python benchmarks/solver.py --markdown docs/developers/solver-results.md        a quarter of an hour
    python benchmarks/solver.py --data torus hubs --share 0.1            seconds
    python benchmarks/solver.py --data torus branching --share 250 --columns 32     a million rows

For each set: the horizon that "auto" takes, the cycles, and the products of the width of the sketch in all, with those
that chose the horizon and measured the cycles: a product of c columns counts c / k, and a pass over K to make the
coarse level counts one. The errors are those of distances between random pairs and between neighbours, root mean
square, against a solution to 1e-8 in double precision from the same random matrix.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import scalable_gpe as gpe
from labels import FASHION
from scalable_gpe.execution.panels import Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.horizon import N_MODES, choose_first_power, measure_horizon
from scalable_gpe.multilevel.solver import PROBES, measure_plan
from truth import DATA, load

N_PAIRS = 20_000
PASSES = 3  # over K, which make the coarse level
LIMITS = {"products": 45.0, "random pairs": 0.02, "neighbours": 0.03}
SHARES = {"branching": 25, "nested clusters": 10, "rings": 10, "swiss roll": 25, "torus": 25, "uneven clusters": 10}


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    names = ("rows", "horizon", "levels", "contraction", "cycles", "products", "random pairs", "neighbours", "seconds")
    lines = ["| " + " | ".join(("data", "normalisation", *names)) + " |", "|---|---" + "|---:" * len(names) + "|"]
    print("\n".join(lines), flush=True)
    for name in options.data:
        share = options.share or SHARES.get(name, 1)
        X = OTHERS[name](share) if name in OTHERS else load(name, share, options.fashion).X
        graph = gpe.neighbor_graph(np.asarray(X, np.float32))
        for normalization in options.normalizations:
            heat = gpe.heat_kernel(gpe.gaussian_kernel(graph), normalization)
            measured = study(heat, options)
            cells = [name, normalization, *(_cell(measured[one], LIMITS.get(one)) for one in names)]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def study(heat: HeatKernel, options: argparse.Namespace) -> dict[str, float]:
    """Horizon, cycles, products and errors of one heat kernel."""
    k, n_rows, began = options.columns, heat.shape[0], time.perf_counter()
    panels = Panels(heat.context)
    basis = CoarseBasis.of(heat, panels)
    chosen = measure_horizon(basis)
    plan = measure_plan(basis, chosen.horizon, options.tol)
    panels.clear()
    first = choose_first_power("auto", n_rows)
    products = PASSES + (N_MODES * chosen.n_sweeps + PROBES * plan.n_sweeps) / k + plan.n_cycles - 1 + first
    found = {
        "rows": n_rows,
        "horizon": chosen.horizon,
        "levels": plan.n_levels,
        "contraction": plan.contraction,
        "cycles": plan.n_cycles,
        "products": products,
    }
    how = {"horizon": chosen.horizon, "first_power": first}
    points = gpe.gp_embedding(heat, k, "all", tol=options.tol, **how)
    found["seconds"] = time.perf_counter() - began
    exact = gpe.gp_embedding(heat, k, "all", tol=1e-8, precision="double", **how)
    return found | errors(heat, points, exact)


def errors(heat: HeatKernel, points: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Root mean square errors of distances between random pairs, and between neighbours; equal points are left out."""
    rng, K = np.random.default_rng(0), heat.kernel.to_scipy()
    rows = rng.integers(0, K.shape[0], N_PAIRS)
    random = np.stack([rows, rng.integers(0, K.shape[0], N_PAIRS)])
    starts, lengths = K.indptr[rows], np.diff(K.indptr)[rows]
    neighbors = np.stack([rows, K.indices[starts + (rng.random(N_PAIRS) * lengths).astype(np.int64)]])
    found = {}
    for kind, (one, other) in (("random pairs", random), ("neighbours", neighbors)):
        true, ours = (np.linalg.norm(np.float64(Y[one]) - np.float64(Y[other]), axis=1) for Y in (exact, points))
        apart = true > 1e-9 * true.max()
        found[kind] = float(np.sqrt(np.mean((ours[apart] / true[apart] - 1) ** 2)))
    return found


# --- sets that are hard for a solver --------------------------------------------------------------


def _directions(share: float) -> np.ndarray:
    """Make unit vectors as word embeddings have them: many directions of falling weight, and of uneven length."""
    rng = np.random.default_rng(11)
    topics = rng.standard_normal((int(20_000 * share), 60)) @ (
        rng.standard_normal((60, 100)) / np.arange(1, 61)[:, None]
    )
    words = topics + 0.5 * rng.standard_normal(topics.shape)
    return words * rng.gamma(2.0, 1.0, (len(words), 1))


def _hubs(share: float) -> np.ndarray:
    """Make rows around a few centres that are near to all of them."""
    rng = np.random.default_rng(12)
    rows = rng.standard_normal((int(20_000 * share), 40))
    rows *= rng.uniform(0.8, 1.2, (len(rows), 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.vstack([rows, 0.05 * rng.standard_normal((20, 40))])


def _components(share: float) -> np.ndarray:
    """Make fifty surfaces that no neighbour connects, from 20 rows to half of all."""
    sizes = np.geomspace(20, 10_000 * share, 50).astype(int)
    return np.vstack([gpe.datasets.torus(n, random_state=i) + 100.0 * i for i, n in enumerate(sizes)])


def _strays(share: float) -> np.ndarray:
    """Make a branching tree with one row in ten far from all others."""
    X = load("branching", 5 * share).X
    rng = np.random.default_rng(13)
    return np.vstack([X, rng.uniform(-15, 15, (len(X) // 10, X.shape[1]))])


OTHERS: dict[str, Callable[[float], np.ndarray]] = {
    "directions": _directions,
    "hubs": _hubs,
    "components": _components,
    "10 % outliers": _strays,
}


def _cell(value: float, limit: float | None) -> str:
    text = f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"**{text}**" if limit is not None and value > limit else text


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=[*DATA, *OTHERS], default=[*DATA, *OTHERS])
    parser.add_argument("--normalizations", nargs="+", default=["bistochastic", "symmetric"])
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--share", type=float, help="of the rows of a set; each set has its own otherwise")
    parser.add_argument("--fashion", type=Path, default=FASHION)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
