"""Peers on the same data: time, memory and quality of each method, each run in a process of its own.

    pip install -e . -r benchmarks/peers/requirements.txt
    python benchmarks/peers/run.py                              10,000 to 1,000,000 rows: hours
    python benchmarks/peers/run.py --quick                      5,000 rows, the cheap methods: some minutes
    python benchmarks/peers/run.py --sizes 1e7 --methods "scalable_gpe, on disk"
    python benchmarks/peers/run.py --report docs/developers     the page of the documentation, with tables and pictures

Each run is one line of `--results` (JSON). A run that is there is not repeated, so an interrupted command resumes; one
that was stopped by a limit is repeated if the limit is higher now. A method that was stopped is not tried with more
rows. What is not installed is left out by name. The figures of quality are those of `benchmarks/quality.py`, of
10,000 sampled rows that are the same for all methods.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil

import labels
from peers.data import DATA, Sample, available_rows, judge, prepare
from peers.limits import run_limited
from peers.methods import METHODS
from peers.records import Key, Record, Results
from peers.report import write_report

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
CHEAP = [
    name
    for name in METHODS
    if not name.startswith(("PHATE", "datafold", "pyDiffMap", "SpectralEmbedding", "UMAP,")) and "disk" not in name
]
WORKER = Path(__file__).with_name("worker.py")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    results = Results.read(options.results)
    if options.report:
        write_report(results, options.report)
        return
    interpreters = _interpreters(options)
    for name, n_rows in _sets(options):
        wanted = [key for key in _keys(name, n_rows, list(interpreters), options) if _is_due(key, results, options)]
        if wanted:
            _measure_set(wanted, interpreters, results, options)


def _measure_set(
    wanted: list[Key], interpreters: dict[str, str], results: Results, options: argparse.Namespace
) -> None:
    """Measure all methods on one data set of one size."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        path, sample = prepare(wanted[0].data, wanted[0].n_rows, Path(folder), options.fashion)
        for key in wanted:
            if not _is_due(key, results, options):  # stopped with another seed
                continue
            record = _measure(key, interpreters[key.method], path, sample, options)
            results.add(record)
            print(record, flush=True)


def _measure(key: Key, interpreter: str, path: Path, sample: Sample, options: argparse.Namespace) -> Record:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / "found.npz"
        job = {
            "method": key.method,
            "path": str(path),
            "sample": str(path.with_suffix(".rows.npy")),
            "n_rows": key.n_rows,
            "seed": key.seed,
            "root": sample.root,
            "scratch": folder,
            "disk_memory": options.disk_memory,
            "out": str(out),
        }
        command = [interpreter, str(WORKER), json.dumps(job)]
        done = run_limited(command, seconds=options.seconds, memory=options.memory)
        common = {"machine": machine(), "limits": _limits(options)}
        if done.status != "done":
            return Record(key, done.status, peak=done.peak, reason=done.reason, process=done.seconds, **common)
        told = json.loads(done.output.splitlines()[-1])
        with np.load(out) as found:
            quality = judge(dict(found), sample, path)
    return Record(
        key,
        done.status,
        peak=max(done.peak, told["peak"]),
        process=done.seconds,
        seconds=told["seconds"],
        versions=told["versions"],
        figures=quality.figures,
        distances=quality.distances,
        **common,
    )


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu() -> str:
    """The name of the processor; /proc/cpuinfo has none on aarch64, lscpu has."""
    found = subprocess.run(["lscpu"], capture_output=True, text=True).stdout if shutil.which("lscpu") else ""
    names = [line.split(":", 1)[1].strip() for line in found.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.processor()


# --- what is to be done ---------------------------------------------------------------------------


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Yield data sets and sizes, small ones first; all but the first data set only up to a size."""
    for n_rows in sorted(options.sizes):
        for name in options.data:
            if name == "Fashion-MNIST" and not options.fashion.exists():
                print("Fashion-MNIST: left out, its files are not there (Debian: dataset-fashion-mnist; or --fashion)")
            elif available_rows(name, n_rows) and (name == options.data[0] or n_rows <= options.quality_rows):
                yield name, n_rows


def _keys(name: str, n_rows: int, methods: list[str], options: argparse.Namespace) -> list[Key]:
    n_seeds = options.seeds if n_rows <= options.quality_rows else 1
    return [Key(name, n_rows, method, seed) for method in methods for seed in range(n_seeds)]


def _is_due(key: Key, results: Results, options: argparse.Namespace) -> bool:
    """Whether a run is missing, was stopped by lower limits, or has not been stopped with fewer rows."""
    limits = _limits(options)
    known = results.records.get(key)
    if known is not None and not known.stopped_below(limits):
        return False
    return not any(other.rules_out(key, limits) for other in results.records.values())


def _limits(options: argparse.Namespace) -> dict[str, float]:
    return {"time": options.seconds, "memory": options.memory}


def _interpreters(options: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each method that is installed there; the others are named."""
    given = dict(text.split("=", 1) for text in options.interpreter)
    found = {}
    for name in options.methods:
        interpreter = given.get(name, sys.executable)
        missing = _missing(interpreter, METHODS[name].modules)
        if missing:
            print(f"{name}: left out, {', '.join(missing)} not installed; {METHODS[name].hint}")
        else:
            found[name] = interpreter
    return found


def _missing(interpreter: str, modules: tuple[str, ...]) -> list[str]:
    return [name for name in modules if not _is_installed(interpreter, name)]


@cache
def _is_installed(interpreter: str, module: str) -> bool:
    if interpreter == sys.executable:
        return find_spec(module) is not None
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([interpreter, "-c", code]).returncode == 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"), help="one line per run")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write tables and pictures, and measure nothing")
    parser.add_argument("--sizes", type=number, nargs="+", default=list(SIZES), help="numbers of rows")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA[:3]))
    parser.add_argument("--methods", nargs="+", metavar="METHOD", default=list(METHODS), help=", ".join(METHODS))
    parser.add_argument("--without", nargs="+", metavar="METHOD", default=[], help="methods that are left out")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method, up to --quality-rows")
    parser.add_argument(
        "--quality-rows", type=number, default=30_000, help="larger sizes: one seed, and the first data set only"
    )
    parser.add_argument("--seconds", type=float, default=600, help="limit of one run, compilation included")
    parser.add_argument("--memory", type=float, default=12e9, help="limit of one run in bytes")
    parser.add_argument("--disk-memory", type=number, default=2_000_000_000, help='limit that "on disk" works under')
    parser.add_argument("--fashion", type=Path, default=labels.FASHION, help="folder of Fashion-MNIST")
    parser.add_argument("--scratch", help="where rows and stores go; they are removed afterwards")
    parser.add_argument(
        "--interpreter", nargs="+", metavar="METHOD=PYTHON", default=[], help="environments of their own"
    )
    parser.add_argument("--quick", action="store_true", help="5,000 rows, one seed, cheap methods")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.seeds, options.methods = [5000], 1, CHEAP
    unknown = [name for name in options.methods if name not in METHODS]
    if unknown:
        parser.error(f"unknown methods {unknown}; known: {', '.join(METHODS)}")
    options.methods = [name for name in options.methods if name not in options.without]
    return options


if __name__ == "__main__":
    main()
