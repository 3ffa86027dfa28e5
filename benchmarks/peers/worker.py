"""One measured call, in a process of its own: `run.py` starts it with a job as JSON.

It imports the packages, calls the method twice on few rows if it has anything to compile, then once on all rows. It
saves what was found for the sampled rows, and prints the seconds and versions as JSON.
"""

import json
import platform
import resource
import sys
import time
import warnings
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from peers.methods import METHODS, Found, Method, Task

BRUTE_ROWS = 20_000  # from which on the library does not search by brute force


def main() -> None:
    job = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    method = METHODS[job["method"]]
    began = time.perf_counter()
    for name in method.modules:
        import_module(name)
    seconds = {"import": time.perf_counter() - began}
    task = Task(
        path=Path(job["path"]),
        n_rows=job["n_rows"],
        seed=job["seed"],
        root=job["root"],
        scratch=Path(job["scratch"]),
        memory_limit=job["disk_memory"],
        large=job["n_rows"] > BRUTE_ROWS,
    )
    seconds |= _warm_up(method, task)
    began = time.perf_counter()
    found = method.run(task)
    seconds["call"] = time.perf_counter() - began
    _save(found, np.load(job["sample"]), Path(job["out"]))
    versions = {name: _version(name) for name in method.packages} | {"python": platform.python_version()}
    print("\n" + json.dumps({"seconds": seconds, "versions": versions, "peak": _peak()}))


def _version(package: str) -> str:
    """The version that was imported; an editable install may know an older one."""
    imported = sys.modules.get(package.replace("-", "_"))
    return str(getattr(imported, "__version__", None) or metadata.version(package))


def _peak() -> int:
    """Largest resident memory of this process; Linux's ru_maxrss would count that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _warm_up(method: Method, task: Task) -> dict[str, float]:
    """Seconds of a first and a second call on few rows."""
    if not method.warm_rows:
        return {}
    n_rows = min(method.warm_rows, task.n_rows)
    few = replace(task, n_rows=n_rows, root=None if task.root is None else 0, large=task.large and n_rows > 1000)
    found = {}
    for name in ("first", "second"):
        began = time.perf_counter()
        method.run(few)
        found[name] = time.perf_counter() - began
    return found


def _save(found: Found, sample: np.ndarray, out: Path) -> None:
    """Save points of the sampled rows, and all lists: recall is measured on rows of its own."""
    saved = {}
    if found.points is not None:
        saved["points"] = np.asarray(found.points[sample], np.float64)
    if found.pseudotime is not None:
        saved["pseudotime"] = found.pseudotime[sample]
    if found.eigenvalues is not None:
        saved["eigenvalues"] = np.real(found.eigenvalues)
    if found.neighbors is not None:
        saved["neighbors"] = found.neighbors.astype(np.int64)
    np.savez(out, **saved)


if __name__ == "__main__":
    main()
