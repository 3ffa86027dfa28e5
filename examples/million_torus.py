"""A million points of a torus in 16 dimensions, embedded out of core; points, store and picture are in one folder.

    python examples/million_torus.py --out torus
    python examples/million_torus.py --points 10_000_000 --memory-limit 2GB --out torus

The same command given again opens the finished run, or resumes an interrupted one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import scalable_gpe as gpe
from scalable_gpe import plot


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    points = options.out / f"points-{options.points}.npy"
    if not points.exists():
        gpe.datasets.write(points, gpe.datasets.torus, options.points, n_features=16, noise=0.02, dtype="float32")
    result = gpe.embed(
        points,
        n_neighbors=16,
        power=options.powers,
        tol=1e-3,  # far below the sampling error of 16 components
        store=options.out / f"embedding-{options.points}.zarr",
        memory_limit=options.memory_limit,
    )

    report = result.report
    print(f"{report['n_rows']:,} points, recall {report['recall']:.3f}, lost mass {report['lost_mass']:.2%}")
    print(f"{report['total_seconds']:.0f} s, peak memory {report['peak_memory'] / 1e9:.2f} GB")
    around = np.load(points, mmap_mode="r") @ _first_axis(points)
    figure = plot.powers(result, color=around, color_label="leading coordinate of the input")[0].figure
    figure.savefig(options.out / "torus.png", dpi=110)


def _first_axis(points: Path) -> np.ndarray:
    """Compute the leading principal axis of some of the points."""
    sample = np.load(points, mmap_mode="r")[:20_000]
    return np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2][0]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--powers", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--memory-limit", default="1GB", help="resident memory, such as 2GB")
    parser.add_argument("--out", type=Path, default=Path("torus"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
