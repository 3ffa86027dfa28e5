"""Other sums of powers than the plain one: a band of powers, and a weight that falls with the power.

    python benchmarks/weights.py

With all eigenvectors of a dense A every f(A) G is cheap. The table compares f(x) = x + x^2 + ... + x^T with its terms
from power 8 on, and with all terms weighted by t^(-1/2), on three data sets of about 2,000 rows; k = 16, five seeds.
"""

import numpy as np

import scalable_gpe as gpe
from quality import FIGURES, figures
from truth import Truth, horizon_of, load

_SEEDS = 5
_COMPONENTS = 16
_MOST_POWERS = 4096


def main() -> None:
    print("| data | f | " + " | ".join(FIGURES) + " |\n" + "|---" * (len(FIGURES) + 2) + "|")
    for name, share in (("branching", 0.5), ("digits", 1.0), ("torus", 0.5)):
        truth = load(name, share)
        for weighting, values in study(truth).items():
            cells = (
                f"{np.mean(values[f]):.3f} ± {np.std(values[f], ddof=1) / np.sqrt(_SEEDS):.3f}" if f in values else ""
                for f in FIGURES
            )
            print(f"| {name} | {weighting} | " + " | ".join(cells) + " |", flush=True)


def study(truth: Truth) -> dict[str, dict[str, list[float]]]:
    """Compute the figures of each weighting, for each seed."""
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(truth.X)))
    eigenvalues, vectors = np.linalg.eigh(heat.to_scipy().toarray())
    found: dict[str, dict[str, list[float]]] = {}
    for weighting, weights in weightings(horizon_of(heat).horizon).items():
        factors = sum(weight * eigenvalues**t for t, weight in weights.items())
        for seed in range(_SEEDS):
            G = gpe.sketch_matrix(len(vectors), _COMPONENTS, random_state=seed)
            points = vectors @ (factors[:, None] * (vectors.T @ (G - G.mean(axis=0))))
            for figure, value in figures(truth, points).items():
                found.setdefault(weighting, {}).setdefault(figure, []).append(value)
    return found


def weightings(horizon: int) -> dict[str, dict[int, float]]:
    """The weight of each power t in the sum."""
    powers = range(1, min(horizon, _MOST_POWERS) + 1)
    return {
        "all": dict.fromkeys(powers, 1.0),
        "8 and more": dict.fromkeys(powers[7:], 1.0),
        "weight t^(-1/2)": {t: t**-0.5 for t in powers},
    }


if __name__ == "__main__":
    main()
