"""The first call on a machine: another process compiles the loops of the sketch while this one compiles the graph's.

numba compiles one loop at a time in a process, and keeps machine code on disk, where this process finds it.
"""

import contextlib
import json
import subprocess
import sys
import threading
import warnings

from scalable_gpe.execution.workers import Workers

_begun: list[subprocess.Popen[bytes]] = []


def compile_ahead(workers: Workers, normalization: str, sketch: str, precision: str, power: int | str) -> None:
    """Begin to compile the loops of the heat kernel and the sketch, unless they are known or no core is free."""
    from scalable_gpe.loops import random
    from scalable_gpe.loops.compiled import is_compiled

    alone = workers.remote or workers.n_jobs < 2 or not sys.executable or getattr(sys, "frozen", False)
    if _begun or alone or is_compiled(random.fill_gaussian if sketch == "gaussian" else random.fill_bernoulli):
        return
    given = {"normalization": normalization, "sketch": sketch, "precision": precision, "power": power}
    command = [sys.executable, "-m", __name__, json.dumps(given)]
    with contextlib.suppress(OSError):  # then this process compiles them
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _begun.append(process)
        threading.Thread(target=process.wait, name="gpe-compile", daemon=True).start()  # else it stays as a zombie


def finish() -> None:
    """Wait until the other process is done."""
    for process in _begun:
        process.wait()


def _compile(normalization: str, sketch: str, precision: str, power: int | str) -> None:
    """Sketch the heat kernel of a small chain."""
    import scipy.sparse

    import scalable_gpe as gpe

    warnings.simplefilter("ignore")
    chain = scipy.sparse.diags([0.5, 1.0, 0.5], [-1, 0, 1], shape=(64, 64))
    gpe.gp_embedding(gpe.heat_kernel(chain, normalization), 2, power, sketch=sketch, precision=precision)


if __name__ == "__main__":
    _compile(**json.loads(sys.argv[1]))
