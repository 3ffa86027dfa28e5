"""Threads that run the loops: order, errors, number, and results after they have ended."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its BLAS is limited too)
import threadpoolctl

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
    assert int(child.stdout) <= 0  # one of a library may have ended


IN_PROCESS = """
import os, sys, warnings
import numpy as np, scipy.linalg
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_info, threadpool_limits
import scalable_gpe as gpe

calls = set()  # of functions of C libraries
sys.addaudithook(lambda event, arguments: calls.add(arguments[1]) if event == "ctypes.dlsym" else None)


def settings():
    blas = {info["filepath"]: info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}
    return blas, dict(os.environ)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    threadpool_limits(2)
    before = settings()
    X = gpe.datasets.torus(700)
    kind = {"processes": False, "n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(**kind) as cluster, Client(cluster) as client:
        for method in ("kdtree", "brute"):
            gpe.embed(X, n_components=2, power=3, method=method, client=client, progress=False)
    gpe.embed(gpe.datasets.torus(4000), n_components=2, power=3, method="brute", n_jobs=4, progress=False)
    changed = [(old, new) for old, new in zip(before, settings()) if old != new]
    allocator = ["mallopt" in calls]
    gpe.embed(X, n_components=2, power=3, memory_limit="4GB", progress=False)
    print(changed, set(before[0].values()), [*allocator, "mallopt" in calls])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are those of glibc")
def test_threads_and_workers_in_this_process_leave_its_settings_as_they_were(tmp_path):
    """Threads of BLAS, the environment, and malloc, which is told something only under a limit."""
    pytest.importorskip("distributed")
    (tmp_path / "run.py").write_text(IN_PROCESS)
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # set only where it is not
    child = subprocess.run([sys.executable, tmp_path / "run.py"], capture_output=True, text=True, check=False, env=env)
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines()[-1] == "[] {2} [False, True]"


def blas_threads():
    return {info["num_threads"] for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"}


def test_the_last_of_several_threads_restores_the_threads_of_blas():
    """As when two runs overlap: the first one to end must not free the other, which would restore its limit."""
    with threadpoolctl.threadpool_limits(3, "blas"):
        first, second = process.one_blas_thread(), process.one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {3}


def test_results_stay_usable_after_the_threads_have_ended():
    X = gpe.datasets.torus(300, random_state=0)
    result = gpe.embed(X, n_neighbors=6, n_components=4, power=(3, 40), n_jobs=2)
    assert np.isfinite(result.heat @ np.ones(300)).all()
    assert gpe.gp_embedding(result.heat, 2, 5).shape == (300, 2)


def test_some_threads_of_a_worker_wait_for_their_turn():
    inside, most = [0], [0]
    guard, both = threading.Lock(), threading.Barrier(2)

    def work(_):
        with process.turn("test", 2):
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            both.wait(60)
            time.sleep(0.02)  # a third one would come in
            with guard:
                inside[0] -= 1

    with Workers(6) as workers:
        workers.map(work, range(12))
    assert most[0] == 2


def test_results_that_are_opened_meanwhile_let_nobody_in_before_their_turn():
    entered = threading.Event()

    def enter():
        with process.turn("full", 1):
            entered.set()

    waiting = threading.Thread(target=enter)
    with process.turn("full", 1):
        for number in range(40):
            process.once(("opened", number), object)
        process.forget()
        waiting.start()
        assert not entered.wait(0.3)
    waiting.join(60)
    assert entered.is_set()
