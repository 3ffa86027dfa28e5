"""How good are the seconds of `estimate`: five data sets, estimated by a trial, then embedded.

python benchmarks/estimate.py                       some minutes
python benchmarks/estimate.py --share 0.1           a quick look
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

import scalable_gpe as gpe


def _hard(n_rows: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((n_rows, 24), np.float32)
    X = np.tanh(hidden @ (rng.standard_normal((24, 100), np.float32) / 24**0.5))
    return X + 0.05 * rng.standard_normal(X.shape, np.float32)


CASES: dict[str, tuple[int, Callable[[int], np.ndarray]]] = {
    "patches, 50 features": (1_000_000, lambda n: gpe.datasets.patches(n, 50)),
    "torus, 4 features": (1_000_000, gpe.datasets.torus),
    "branches, 30 features": (200_000, gpe.datasets.branches),
    "hard, 100 features": (100_000, _hard),
    "clouds, 784 features": (50_000, lambda n: gpe.datasets.point_clouds(n, 784)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    share = parser.parse_args().share
    print("| data | rows | trial | estimated | measured | estimated / measured |\n|---|---|---|---|---|---|")
    for name, (n_rows, make) in CASES.items():
        X = make(int(n_rows * share))
        began = time.perf_counter()
        expected = gpe.estimate(X)["seconds"]
        trial, began = time.perf_counter() - began, time.perf_counter()
        gpe.embed(X, progress=False)
        taken = time.perf_counter() - began
        print(f"| {name} | {len(X):,} | {trial:.1f} s | {expected:.1f} s | {taken:.1f} s | {expected / taken:.2f} |")


if __name__ == "__main__":
    main()
