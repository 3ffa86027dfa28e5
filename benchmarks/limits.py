"""Runs of many rows under memory limits, each in a fresh process.

    python benchmarks/limits.py                                      ten million rows under 600 MB, 2 GB and 4 GB
    python benchmarks/limits.py --rows 16e6 --limits smallest        the smallest limit that is possible
    python benchmarks/limits.py --rows 11e6 --features 3 --limits 700MB
    python benchmarks/limits.py --rows 50e6 --features 8 --limits 3GB --kill sketch
    python benchmarks/limits.py --limits 2GB --against OTHER/bin/python    the same with another installation

Rows are those of `datasets.patches` in a zarr array; 16 neighbours, 16 components, power 64. Each run is measured from
outside: seconds, the share of them that the system took, and the largest resident memory. All results must have the
same bytes. With `--kill`, the process is killed in the middle of a stage, and the same call resumes.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import scalable_gpe as gpe
from measure import Row, show

HOW = {"n_neighbors": 16, "n_components": 16, "power": 64}
_RUN = """
import json, sys
import scalable_gpe as gpe
given = json.loads(sys.argv[1])
result = gpe.embed(given.pop("X"), progress=True, **given)
print(json.dumps(result.report))
"""


class Usage(NamedTuple):
    """What finished child processes have used: seconds of the user and of the system."""

    user: float
    system: float

    @staticmethod
    def now() -> "Usage":
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Usage(used.ru_utime, used.ru_stime)


def main() -> None:
    measure(_options())


def measure(options: argparse.Namespace) -> list[Row]:
    """Run under each limit with each installation; print the table as it grows."""
    rows: list[Row] = []
    digests: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        source, store = Path(folder).resolve() / "points.zarr", Path(folder).resolve() / "run.zarr"
        dimension = min(4, options.features - 1)
        gpe.datasets.write(source, gpe.datasets.patches, options.rows, n_features=options.features, dimension=dimension)
        for python in [sys.executable, *options.against]:
            for limit in options.limits:
                number = _smallest(options) if limit == "smallest" else limit
                name = f"{options.rows:,} x {options.features} under {_text(number)}"
                name += "" if python == sys.executable else f" with {python}"
                given = {"X": str(source), "store": str(store), "memory_limit": number, **HOW}
                rows += _rows(name, number, _run(python, given, options.kill), store)
                digests.setdefault(python, set()).add(_digest(store))
                print(show(rows), flush=True)
                shutil.rmtree(store)
    if any(len(found) > 1 for found in digests.values()):
        raise SystemExit(f"results under different limits differ: {digests}")
    return rows


def _smallest(options: argparse.Namespace) -> int:
    """The smallest limit that the plan allows."""
    shape = options.rows, options.features
    return int(gpe.estimate(*shape, n_neighbors=16, n_components=16, power=64)["smallest_limit"])


def _text(limit: int | str) -> str:
    return limit if isinstance(limit, str) else f"{limit / 1e6:.0f} MB"


def _run(python: str, given: dict[str, Any], kill: str | None) -> dict[str, Any]:
    """Run in a fresh process; return its report, with what was measured from outside."""
    found: dict[str, Any] = {}
    if kill is not None:
        began = time.perf_counter()
        found["killed_after"] = _killed(python, given, kill) - began
    before, began, stolen = Usage.now(), time.perf_counter(), _stolen()
    # not from the folder of this code, which another installation would import
    elsewhere = Path(given["store"]).parent
    done = subprocess.run([python, "-c", _RUN, json.dumps(given)], capture_output=True, text=True, cwd=elsewhere)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = Usage.now()
    used = Usage(after.user - before.user, after.system - before.system)
    seconds = time.perf_counter() - began
    report = json.loads(done.stdout.splitlines()[-1])
    return {**report, **found, "seconds": seconds, "used": used, "stolen": _stolen() - stolen}


def _killed(python: str, given: dict[str, Any], stage: str) -> float:
    """Start a run, kill it some time after its progress names a stage, and return when that was."""
    command = [python, "-c", _RUN, json.dumps(given)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    text = b""
    while stage.encode() not in text:
        read = os.read(process.stderr.fileno(), 4096)
        if not read:
            raise SystemExit(f"the run ended before its stage {stage!r}: {text[-2000:].decode()}")
        text = text[-4096:] + read
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    time.sleep(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return time.perf_counter()


def _stolen() -> float:
    """Seconds that the host of a virtual machine has kept for others, of all cores."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def _digest(store: Path) -> str:
    """Checksum of the embedding."""
    array, digest = gpe.open(store).points, hashlib.sha256()
    for start in range(0, array.shape[0], 2**18):
        digest.update(array[start : start + 2**18].tobytes())
    return digest.hexdigest()[:16]


def _rows(name: str, limit: int | str, found: dict[str, Any], store: Path) -> list[Row]:
    files = [file for file in store.rglob("*") if file.is_file()]
    stages = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found["stage_seconds"].items())
    used: Usage = found["used"]
    share = used.system / (used.user + used.system)
    killed = f"; resumed after a kill at {found['killed_after']:.0f} s" if "killed_after" in found else ""
    return [
        Row(f"{name}: time", found["seconds"], "s", "", f"{stages}; {found['stolen']:.0f} s stolen{killed}"),
        Row(f"{name}: share of the system", share, "", "", f"user {used.user:.0f} s, system {used.system:.0f} s"),
        Row(
            f"{name}: peak memory",
            found["peak_memory"] / 1e6,
            "MB",
            f"<= {_text(limit)}",
            f"panels: {found.get('n_panels', 'not reported')}",  # the first release has no such figure
        ),
        Row(f"{name}: recall", found["recall"], "", ">= 0.95", f"+- {found['recall_error']:.4f}"),
        Row(f"{name}: store", sum(one.stat().st_size for one in files) / 1e9, "GB", "", f"{len(files)} files"),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--rows", type=number, default=10_000_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--limits", nargs="+", default=["600MB", "2GB", "4GB"])
    parser.add_argument("--kill", help="stage in which each run is killed once, such as sketch")
    parser.add_argument("--against", nargs="*", default=[], help="interpreters of other installations")
    parser.add_argument("--scratch", help="folder for rows and stores")
    return parser.parse_args()


if __name__ == "__main__":
    main()
