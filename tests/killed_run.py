"""Runs that may be killed: reads one request (JSON) per line, forks a process for it, and answers with what it did.

A forked process has the library loaded and its loops compiled, so that two hundred kills take minutes. Sizes are small:
the search has several parts, K several blocks, the sketch several panels; nothing stays in memory between sweeps, or
all arrays are mapped, and the state is saved at every sweep.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
import warnings

import scalable_gpe as gpe
from scalable_gpe.errors import GPEWarning
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.storage import lock

RUNS = {
    "powers": {"power": [3, 40], "n_components": 6},
    "wide": {"power": [3, "all"], "first_power": 4, "n_components": 3, "n_sketch": 6, "epsilon": "local"},
    # few requests to an object store
    "small": {"power": [3, "all"], "horizon": 16, "n_components": 2, "n_sketch": 4, "method": "kdtree", "n_rows": 400},
}
SHARED = {"n_neighbors": 10, "method": "cells", "recall": 0.9}
CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"}


def points(n_rows):
    X = gpe.datasets.patches(n_rows, 12, dimension=3, random_state=5)
    X[40:60] = X[7]
    return X


def run(kind, **more):
    parameters = {"progress": False, "n_rows": 1500, **SHARED, **RUNS[kind], **more}
    kept = {"maps_arrays": True} if kind == "wide" else {"resident_bytes": 0}
    with block_sizes(block_rows=256, panel_columns=3, save_seconds=0.0, n_parts=2, **kept):
        return gpe.embed(points(parameters.pop("n_rows")), **parameters)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def serve(request, answer):
    """Run one request in this process; write the stages of its events and the number of file operations."""
    stages, n_files, at = [], [0], request.get("kill") or {}

    def event(stage, done, total):
        stages.append(stage)
        if len(stages) == at.get("event"):
            die()

    def operation(name, arguments):
        if name in CHANGES and str(arguments[0]).startswith(request["store"]):
            n_files[0] += 1
            if n_files[0] == at.get("file"):
                die()

    sys.addaudithook(operation)
    os.fsync = lambda handle: None  # for power cuts only: a killed process loses nothing that it has written
    lock.BEAT, lock.STALE = 0.1, 0.5
    with contextlib.ExitStack() as stack:
        client = None
        if "scheduler" in request:
            from distributed import Client

            client = stack.enter_context(Client(request["scheduler"]))
        where = {"store": request["store"], "storage_options": request.get("options"), "client": client}
        run(request["run"], progress=event, **where)
    answered = {"stages": stages, "n_files": n_files[0]}
    os.write(answer, json.dumps(answered).encode())


def forked(request):
    """Serve a request in a process of its own, killed after some seconds if asked; return exit code and answer."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        code = 1
        try:
            serve(request, writes)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    os.close(writes)
    if "seconds" in request and not select.select([reads], [], [], request["seconds"])[0]:
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reads) as answer:
        content = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"code": code, **json.loads(content or "{}")}


if __name__ == "__main__":
    warnings.simplefilter("ignore", GPEWarning)
    for kind in RUNS:  # loads what the forks need
        run(kind, n_jobs=1)
    assert threading.active_count() == 1  # a fork has only the thread that forks
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), flush=True)
