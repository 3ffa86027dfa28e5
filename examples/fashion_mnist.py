"""Fashion-MNIST with default parameters: how often neighbours in the embedding are the same kind of garment.

    python examples/fashion_mnist.py --out fashion.png

It reads the four files of Fashion-MNIST (Debian: dataset-fashion-mnist), embeds all 70,000 images and prints the
share of the ten nearest images with the same label, in the data and in the embedding.
"""

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.neighbors import NearestNeighbors

import scalable_gpe as gpe
from scalable_gpe import plot

FOLDER = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    X, labels = load(options.folder)
    X, labels = X[: options.rows], labels[: options.rows]

    result = gpe.embed(X, n_components=options.components)

    rows = np.random.default_rng(0).choice(len(X), min(options.sample, len(X)), replace=False)
    print(f"{len(X):,} images, power {result.report['power']}, recall {result.report['recall']:.3f}")
    print(f"same label among the 10 nearest, images:    {agreement(X, labels, rows):.3f}")
    print(f"same label among the 10 nearest, embedding: {agreement(result.points, labels, rows):.3f}")
    names = np.array(GARMENTS)[labels]
    ax = plot.scatter(result, color=names, color_label="garment", title="Fashion-MNIST")
    ax.figure.savefig(options.out, dpi=120)


def load(folder: Path = FOLDER) -> tuple[np.ndarray, np.ndarray]:
    """Read all 70,000 images as rows, and their labels."""
    images = [
        gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:] for part in ("train", "t10k")
    ]
    labels = [gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:] for part in ("train", "t10k")]
    X = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 784)
    return X.astype(np.float32), np.frombuffer(b"".join(labels), np.uint8).astype(np.int64)


def agreement(points: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> float:
    """Measure the share of the ten nearest points of some rows that have the row's label."""
    near = NearestNeighbors(n_neighbors=11).fit(points).kneighbors(points[rows], return_distance=False)
    return float((labels[near[:, 1:]] == labels[rows][:, None]).mean())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rows", type=int, default=70_000, help="only the first so many images")
    parser.add_argument("--components", type=int, default=32)
    parser.add_argument("--sample", type=int, default=10_000, help="images whose neighbours are looked at")
    parser.add_argument("--out", type=Path, default=Path("fashion.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
