"""The first call on a machine compiles the loops of the sketch in another process."""

import json
import os
import subprocess
import sys
import time

import pytest

import scalable_gpe as gpe
from scalable_gpe import compile_ahead
from scalable_gpe.execution.workers import Workers
from scalable_gpe.loops import compiled, random
from scalable_gpe.loops.compiled import is_compiled

CALL = """
import json, sys
import scalable_gpe as gpe
from scalable_gpe import compile_ahead
from scalable_gpe.loops import sparse
result = gpe.embed(gpe.datasets.circle(300), n_components=8, power=8, progress=False, n_jobs=int(sys.argv[1]))
compile_ahead.finish()
hits = sum(sparse.sinkhorn_step.stats.cache_hits.values())
codes = [process.returncode for process in compile_ahead._begun]
print(json.dumps({"codes": codes, "hits": hits, "points": result.points[0].tolist()}))
"""


@pytest.mark.slow
def test_another_process_compiles_and_nothing_else_changes(tmp_path):
    found = []
    for n_jobs in ("2", "2", "1"):
        cache = tmp_path / ("shared" if n_jobs == "2" else "own")
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        command = [sys.executable, "-W", "ignore", "-c", CALL, n_jobs]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    first, second, alone = found
    assert first["codes"] == [0] and second["codes"] == [] and alone["codes"] == []
    assert second["hits"] > 0 and alone["hits"] == 0
    assert first["points"] == second["points"] == alone["points"]


def test_the_other_process_is_no_zombie_when_it_has_ended(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(compiled, "is_compiled", lambda loop: False)
    monkeypatch.setattr(compile_ahead, "_begun", begun := [])
    compile_ahead.compile_ahead(Workers(2), "bistochastic", "gaussian", "single", 8)
    until = time.monotonic() + 60
    while begun[0].returncode is None and time.monotonic() < until:
        time.sleep(0.01)
    assert len(begun) == 1 and begun[0].returncode == 0


def test_no_process_where_loops_are_compiled(monkeypatch):
    gpe.embed(gpe.datasets.circle(100), n_components=8, power=4, progress=False)
    assert is_compiled(random.fill_gaussian)
    monkeypatch.setattr(compile_ahead, "_begun", begun := [])
    compile_ahead.compile_ahead(Workers(2), "bistochastic", "gaussian", "single", 8)
    assert begun == []
