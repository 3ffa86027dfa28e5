"""Ratios against pynndescent and scipy, all measured in one run on one machine.

    python benchmarks/run.py                       a million points, some minutes
    python benchmarks/run.py --points 20000        a quick look
    python benchmarks/run.py --check               fail if a value is far from what to aim at

It prints one table and writes it to benchmarks.json (--json). A row names what was measured, against what, and the
value to aim at. Seconds are not comparable between machines; ratios nearly are.
"""

import argparse
import json
import os
import platform
import tempfile
from dataclasses import asdict
from pathlib import Path

import scalable_gpe as gpe
import stages
import sweeps
from labels import label_agreement
from measure import Row, add_problem, check, show


def main() -> None:
    options = _options()
    print(f"{options.points:,} x {options.features} points, {os.cpu_count()} cores, {platform.processor()}", flush=True)
    rows = measure_all(options)
    print(show(rows))
    facts = {"points": options.points, "features": options.features, "neighbors": options.neighbors}
    facts |= {"cores": os.cpu_count(), "version": gpe.__version__, "rows": [asdict(row) for row in rows]}
    options.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if options.check:
        check(rows)


def measure_all(options: argparse.Namespace) -> list[Row]:
    X = gpe.datasets.patches(options.points, options.features)
    stages.compile_ours(options)
    rows, embedding = stages.pipeline(X, options)
    rows += sweeps.product(embedding, options)
    rows += sweeps.sinkhorn(embedding.heat)
    rows += sweeps.high_power(embedding.heat, options)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows += stages.fresh_process(X, Path(folder), options, embedding.report)
        rows += sweeps.out_of_core(embedding, Path(folder) / "run.zarr")
    return rows + label_agreement()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_problem(parser)
    parser.add_argument("--high-power", type=int, default=1024)
    parser.add_argument("--memory-limit", default="600MB", help="of the fresh process that works out of core")
    parser.add_argument("--no-pynndescent", action="store_true", help="leave out pynndescent, which compiles for 37 s")
    parser.add_argument("--scratch", help="where points and store of the fresh process go")
    parser.add_argument("--check", action="store_true", help="fail if a value is beyond its limit, which has a margin")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
