"""The neighbour search against pynndescent, and data larger than memory.

    python benchmarks/graph.py                     Fashion-MNIST, hard 300,000 x 100, patches 1M x 50
    python benchmarks/graph.py --fashion FOLDER    where its files are, if not where Debian's package puts them
    python benchmarks/graph.py --points 20000 --no-pynndescent --no-fashion

Both searches run in one process, one after the other, after compilation. Recall is measured on the same sampled rows.
pynndescent runs with lists of several lengths, cut to the same number of neighbours. A ratio at equal recall is that
of our time and the time that it takes to the same recall, interpolated between these.
"""

import argparse
import gzip
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import scalable_gpe as gpe
from measure import Row, show, timed
from scalable_gpe.execution.memory_plan import block_sizes

FASHION = Path("/usr/share/datasets/fashion-mnist")  # Debian: dataset-fashion-mnist
_K = 15
_LENGTHS = (_K + 1, 24, 31)  # of pynndescent's lists, the row itself included


def main() -> None:
    options = _options()
    rows = []
    for name, X, n_parts in _data(options):
        rows += compare(name, X, n_parts, options)
    print(show(rows))


def fashion(folder: Path = FASHION) -> np.ndarray:
    """Read Fashion-MNIST, 70,000 x 784."""
    files = [folder / f"{part}-images-idx3-ubyte.gz" for part in ("train", "t10k")]
    images = [gzip.decompress(file.read_bytes())[16:] for file in files]
    return np.frombuffer(b"".join(images), np.uint8).reshape(-1, 784).astype(np.float32)


def hard(n_rows: int, n_features: int = 100) -> np.ndarray:
    """Rows of 24 latent dimensions, bent, with noise: approximate searches miss many of their neighbours."""
    draw = np.random.default_rng(0)
    latent, mixing = draw.standard_normal((n_rows, 24)), draw.standard_normal((24, n_features)) / np.sqrt(24)
    rows: np.ndarray = np.tanh(latent @ mixing) + 0.05 * draw.standard_normal((n_rows, n_features))
    return rows.astype(np.float32)


def _data(options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, int | None]]:
    if options.fashion.exists() and not options.no_fashion:
        X = fashion(options.fashion)
        centred = X - X.mean(axis=0)
        turns = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :50]
        yield "Fashion-MNIST 70,000 x 50", np.ascontiguousarray(centred @ turns), None
        yield "Fashion-MNIST 70,000 x 784", X, None
        yield "Fashion-MNIST 70,000 x 784 in seven parts", X, 7
    n_hard = min(300_000, options.points)
    yield f"hard {n_hard:,} x 100", hard(n_hard), None
    yield f"patches {options.points:,} x 50", gpe.datasets.patches(options.points, 50), None


def compare(name: str, X: np.ndarray, n_parts: int | None, options: argparse.Namespace) -> list[Row]:
    gpe.neighbor_graph(X[:3000], _K, method="cells")  # compiles
    with block_sizes(n_parts=n_parts):
        ours = [_measured(X, partial(_cells, X, recall)) for recall in (0.5, 0.95)]
    detail = "; ".join(map(str, ours))
    if options.no_pynndescent:
        return [Row(f"{name}: cells / pynndescent", None, "x", "", detail)]
    _pynndescent(X[:3000].copy(), _K + 1)  # compiles
    theirs = [_measured(X, partial(_pynndescent, X, length)) for length in _LENGTHS]
    detail += "; pynndescent " + "; ".join(map(str, theirs))
    rows = []
    for one, asked in zip(ours, ("", ", default recall"), strict=True):
        ratio = one.seconds / _seconds_to(one.recall, theirs)
        rows.append(Row(f"{name}{asked}: cells / pynndescent at equal recall", ratio, "x", "", detail))
        detail = ""
    return [*rows, Row(f"{name}, defaults of both: cells / pynndescent", ours[1].seconds / theirs[0].seconds, "x", "")]


class Measured(NamedTuple):
    """The seconds and the recall of a search."""

    seconds: float
    recall: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s at {self.recall:.4f}"


def _seconds_to(recall: float, measured: list[Measured]) -> float:
    """Seconds to a recall, interpolated; those of the first search if it has that recall, up to 0.001."""
    if recall <= measured[0].recall + 0.001:
        return measured[0].seconds
    return float(np.interp(recall, [one.recall for one in measured], [one.seconds for one in measured]))


def _measured(X: np.ndarray, search: Callable[[], np.ndarray]) -> Measured:
    seconds, indices = timed(search)
    return Measured(seconds, measured_recall(X, indices))


def _cells(X: np.ndarray, recall: float) -> np.ndarray:
    return np.asarray(gpe.neighbor_graph(X, _K, method="cells", recall=recall).indices)


def _pynndescent(X: np.ndarray, length: int) -> np.ndarray:
    from pynndescent import NNDescent

    found: np.ndarray = NNDescent(X, n_neighbors=length, random_state=0).neighbor_graph[0]
    return found[:, 1 : _K + 1]


def measured_recall(X: np.ndarray, indices: np.ndarray, n_sampled: int = 500) -> float:
    """Share of 15 neighbours that are among the 15 nearest, by distance, of sampled rows."""
    from sklearn.neighbors import NearestNeighbors

    rows = np.random.default_rng(7).choice(len(X), min(n_sampled, len(X)), replace=False)
    model = NearestNeighbors(n_neighbors=_K + 1, algorithm="brute").fit(X)
    reach = model.kneighbors(X[rows])[0][:, -1]
    found = np.linalg.norm(X[rows][:, None, :].astype(np.float64) - X[indices[rows]], axis=2)
    return float((found <= reach[:, None] * (1 + 1e-5)).mean())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--points", type=number, default=1_000_000)
    parser.add_argument("--no-pynndescent", action="store_true")
    parser.add_argument("--no-fashion", action="store_true")
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder of Fashion-MNIST")
    return parser.parse_args()


if __name__ == "__main__":
    main()
