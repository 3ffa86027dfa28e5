"""The neighbour search against pynndescent, and data larger than memory.

    python benchmarks/graph.py                     Fashion-MNIST (Debian's dataset-fashion-mnist), patches 1M x 50
    python benchmarks/graph.py --points 20000 --no-pynndescent --no-fashion
    python benchmarks/graph.py --beyond 10000000 --memory-limit 2GB

Both searches run in one process, one after the other, after compilation. Recall is measured on the same sampled rows.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from measure import Row, show, timed
from scalable_gpe.execution import memory_plan

FASHION = Path("/usr/share/datasets/fashion-mnist")
_K = 15
_BEYOND = """
import json, sys
import scalable_gpe as gpe
given = json.loads(sys.argv[1])
result = gpe.embed(given.pop("X"), progress=False, **given)
print(json.dumps(result.report))
"""


def main() -> None:
    options = _options()
    rows = []
    for name, X, part_rows in _data(options):
        rows += compare(name, X, part_rows, options)
    if options.beyond:
        rows += beyond(options)
    print(show(rows))


def fashion() -> np.ndarray:
    """Read Fashion-MNIST, 70,000 x 784."""
    files = [FASHION / f"{part}-images-idx3-ubyte.gz" for part in ("train", "t10k")]
    images = [gzip.decompress(file.read_bytes())[16:] for file in files]
    return np.frombuffer(b"".join(images), np.uint8).reshape(-1, 784).astype(np.float32)


def _data(options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, int | None]]:
    if FASHION.exists() and not options.no_fashion:
        X = fashion()
        centred = X - X.mean(axis=0)
        turns = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :50]
        yield "Fashion-MNIST 70,000 x 50", np.ascontiguousarray(centred @ turns), None
        yield "Fashion-MNIST 70,000 x 784", X, None
        yield "Fashion-MNIST 70,000 x 784, parts of 10,000 rows, one held at a time", X, 10_000
    yield f"patches {options.points:,} x 50", gpe.datasets.patches(options.points, 50), None


def compare(name: str, X: np.ndarray, part_rows: int | None, options: argparse.Namespace) -> list[Row]:
    gpe.neighbor_graph(X[:3000], _K, method="cells")  # compiles
    standard, memory_plan.PART_ROWS = memory_plan.PART_ROWS, part_rows or memory_plan.PART_ROWS
    ours, found = timed(lambda: gpe.neighbor_graph(X, _K, method="cells"))
    memory_plan.PART_ROWS = standard
    detail = f"{ours:.1f} s, recall {_recall(X, found.indices):.4f}"
    if options.no_pynndescent:
        return [Row(f"{name}: cells / pynndescent", None, "x", "", detail)]
    theirs, indices = _pynndescent(X)
    detail += f"; pynndescent {theirs:.1f} s, recall {_recall(X, indices):.4f}"
    return [Row(f"{name}: cells / pynndescent", ours / theirs, "x", "<= 2" if part_rows else "<= 1", detail)]


def _pynndescent(X: np.ndarray) -> tuple[float, np.ndarray]:
    from pynndescent import NNDescent

    def search(points: np.ndarray) -> Any:
        return NNDescent(points, n_neighbors=_K + 1, random_state=0).neighbor_graph

    search(X[:3000].copy())  # compiles
    seconds, graph = timed(lambda: search(X))
    return seconds, graph[0][:, 1:]


def _recall(X: np.ndarray, indices: np.ndarray, n_sampled: int = 500) -> float:
    from sklearn.neighbors import NearestNeighbors

    rows = np.random.default_rng(7).choice(len(X), min(n_sampled, len(X)), replace=False)
    model = NearestNeighbors(n_neighbors=_K + 1, algorithm="brute").fit(X)
    reach = model.kneighbors(X[rows])[0][:, -1]
    found = np.linalg.norm(X[rows][:, None, :].astype(np.float64) - X[indices[rows]], axis=2)
    return float((found <= reach[:, None] * (1 + 1e-5)).mean())


def beyond(options: argparse.Namespace) -> list[Row]:
    """Embed points of a zarr array in a fresh process under a memory limit."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        source, store = Path(folder) / "points.zarr", Path(folder) / "run.zarr"
        gpe.datasets.write(source, gpe.datasets.patches, options.beyond, n_features=16, dimension=4)
        given: dict[str, Any] = {"X": str(source), "store": str(store), "memory_limit": options.memory_limit}
        given |= {"n_neighbors": 16, "n_components": 16, "power": 64}
        done = subprocess.run([sys.executable, "-c", _BEYOND, json.dumps(given)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        report = json.loads(done.stdout.splitlines()[-1])
        files = [file for file in store.rglob("*") if file.is_file()]
        disk = sum(file.stat().st_size for file in files)
    peak = report["peak_memory"]
    what = f"{options.beyond:,} x 16 under {options.memory_limit}"
    stages = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in report["stage_seconds"].items())
    return [
        Row(f"{what}: peak memory", peak / 1e6, "MB", f"<= {options.memory_limit}", stages),
        Row(f"{what}: recall", report["recall"], "", ">= 0.95", f"+- {report['recall_error']:.4f}"),
        Row(f"{what}: store", disk / 1e9, "GB", "", f"{len(files)} files"),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--points", type=number, default=1_000_000)
    parser.add_argument("--no-pynndescent", action="store_true")
    parser.add_argument("--no-fashion", action="store_true")
    parser.add_argument("--beyond", type=number, default=0, help="points of a run under a memory limit")
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--scratch", help="where the points and the store of that run go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
