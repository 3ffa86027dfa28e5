"""One data set at several scales: groups of clusters of small clusters; the power chooses the scale.

    python examples/multiscale.py --out multiscale.png

After few steps heat is still within its small cluster; later it fills the cluster, then the group. All powers share
their products with the kernel, so several powers cost little more than the largest one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import scalable_gpe as gpe
from scalable_gpe import plot

POWERS = [16, 128, 512, 4096]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    X, clusters = nested_clusters(options.points)

    result = gpe.embed(X, n_components=32, power=POWERS, epsilon="local", precision="double")

    spectrum = gpe.spectrum(result.heat)
    for power, rank in zip(POWERS, spectrum.effective_rank(POWERS), strict=True):
        print(f"power {power:>5}: {rank:8.1f} directions are left")
    print(f"sweeps over the kernel for all of them: {result.report['sweeps']['sketch']}")
    plot.powers(result, color=clusters, color_label="cluster")[0].figure.savefig(options.out, dpi=110)


def nested_clusters(n_rows: int, random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make three groups of three clusters of four small clusters in the plane; the labels are the clusters."""
    rng = np.random.default_rng(random_state)
    centres = np.zeros(1, complex)
    for count, width in ((3, 3.2), (3, 1.3), (4, 0.6)):
        ring = width * np.exp(2j * np.pi * np.arange(count) / count)
        centres = (centres[:, None] + ring).ravel()
    which = rng.integers(0, len(centres), n_rows)
    corners = np.stack([centres.real, centres.imag], axis=1)
    return corners[which] + 0.25 * rng.standard_normal((n_rows, 2)), which // 4


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("multiscale.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
