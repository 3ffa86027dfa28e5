"""Threads that run the loops: order, errors, number, and results after they have ended."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Workers

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")


def test_workers_keep_order_and_give_the_first_error():
    with Workers(3) as workers:
        assert workers.map(lambda i: i * i, range(50)) == [i * i for i in range(50)]
        with pytest.raises(ZeroDivisionError):
            workers.map(lambda i: 1 // (i - 7), range(50))
        assert workers.map(lambda i: i, []) == []
        assert workers.map(str, [5]) == ["5"]


def test_one_job_starts_no_thread():
    code = (
        "import psutil, scalable_gpe as gpe\n"
        "X = gpe.datasets.torus(1500); how = {'n_neighbors': 8, 'power': 30, 'n_jobs': 1}\n"
        "gpe.embed(X, **how, progress=False)  # libraries may start threads of their own when they are first used\n"
        "threads = psutil.Process().num_threads; before = threads(); most = []\n"
        "gpe.embed(X, **how, progress=lambda *_: most.append(threads()))\n"
        "print(max(most) - before)"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert int(child.stdout) == 0


def test_results_stay_usable_after_the_threads_have_ended():
    X = gpe.datasets.torus(300, random_state=0)
    result = gpe.embed(X, n_neighbors=6, n_components=4, power=(3, 40), n_jobs=2)
    assert np.isfinite(result.heat @ np.ones(300)).all()
    assert gpe.gp_embedding(result.heat, 2, 5).shape == (300, 2)


def test_some_threads_of_a_worker_wait_for_their_turn():
    inside, most = [0], [0]
    guard = threading.Lock()

    def work(_):
        with process.turn("test", 2):
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            with guard:
                inside[0] -= 1

    with Workers(6) as workers:
        workers.map(work, range(12))
    assert most[0] == 2
