"""The stages of the pipeline against pynndescent alone, and the memory of a fresh process."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from measure import Row, timed

_AFTER = ("kernel", "heat", "sketch", "write")
_FRESH = """
import json, sys
import scalable_gpe as gpe
given = json.loads(sys.argv[1])
few = {**given, "X": given["X"] + ".few.npy", "store": given["store"] + ".few"}
gpe.embed(few.pop("X"), progress=False, method="cells", **few)  # compiles, or loads what was compiled
result = gpe.embed(given.pop("X"), progress=False, **given)
report = result.report
found = {"peak": report["peak_memory"], "limit": result.parameters["memory_limit"]}
print(json.dumps(found | {"seconds": sum(report["stage_seconds"].values())}))
"""


def compile_ours(options: argparse.Namespace) -> None:
    """Run everything once on few points, so that loops are compiled or loaded from numba's cache."""
    few = gpe.datasets.patches(3000, options.features)
    result = gpe.embed(few, n_neighbors=options.neighbors, power=[2, options.power], method="cells", progress=False)
    _ = result.heat @ np.ones((3000, 2), np.float32)


def pipeline(X: np.ndarray, options: argparse.Namespace) -> tuple[list[Row], Any]:
    embedding = gpe.embed(
        X,
        n_neighbors=options.neighbors,
        n_components=options.components,
        power=options.power,
        method="cells" if len(X) > 20_000 else "auto",
        progress=False,
    )
    report = embedding.report
    seconds = report["stage_seconds"]
    after = sum(seconds[stage] for stage in _AFTER)
    theirs = None if options.no_pynndescent else _pynndescent(X, options.neighbors)
    ratio = (lambda value: None) if theirs is None else (lambda value: value / theirs)
    split = ", ".join(f"{stage} {value:.1f} s" for stage, value in seconds.items())
    rows = [
        Row(
            "graph stage / pynndescent",
            ratio(seconds["graph"]),
            "x",
            "<= 0.8",
            f"recall {report['recall']:.4f}",
            "<= 1.3",
        ),
        Row("all after the graph / pynndescent", ratio(after), "x", "<= 0.25", split, "<= 0.5"),
        Row("the whole embedding / pynndescent", ratio(seconds["graph"] + after), "x", "<= 1", "", "<= 1.6"),
    ]
    return rows, embedding


def _pynndescent(X: np.ndarray, n_neighbors: int) -> float:
    """Measure a compiled search for as many neighbours; its lists include the row itself."""
    from pynndescent import NNDescent

    def search(points: np.ndarray) -> Any:
        return NNDescent(points, n_neighbors=n_neighbors + 1, random_state=0).neighbor_graph

    search(np.array(X[:5000]))
    return timed(lambda: search(np.array(X)))[0]


def fresh_process(X: np.ndarray, folder: Path, options: argparse.Namespace, in_memory: dict[str, Any]) -> list[Row]:
    """Measure the peak memory of a process that embeds the same points out of core, and its time against memory."""
    np.save(folder / "X.npy", X)
    np.save(folder / "X.npy.few.npy", X[:3000])
    given = {"X": str(folder / "X.npy"), "store": str(folder / "run.zarr"), "memory_limit": options.memory_limit}
    given |= {"n_neighbors": options.neighbors, "n_components": options.components, "power": options.power}
    command = [sys.executable, "-c", _FRESH, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    detail = f"{found['peak'] / 1e6:.0f} MB of {found['limit'] / 1e6:.0f} MB; X has {X.nbytes / 1e6:.0f} MB"
    here = sum(in_memory["stage_seconds"].values())
    times = f"{found['seconds']:.1f} s and {here:.1f} s, the graph included"
    return [
        Row("peak memory out of core / memory_limit", found["peak"] / found["limit"], "x", "<= 1", detail, "<= 1"),
        Row("out of core / in memory", found["seconds"] / here, "x", "<= 1.25", times, "<= 2"),
    ]
