"""The cache of compiled loops: processes that fill it at once do not mix their code."""

import functools
import importlib
import itertools
import pkgutil
import threading

import pytest
from numba.core.dispatcher import Dispatcher

from scalable_gpe import loops
from scalable_gpe.loops.compiled import CacheFile, compiling, njit

STAMP = (1.0, 100)
KEYS = ("float32", "float64")
STEPS = ("_load_index", "_save_index", "_save_data")
# all orders in which two processes can make three steps each
ORDERS = sorted(set(itertools.permutations([0, 0, 0, 1, 1, 1])))


def stepwise(cache):
    """Let each step of a cache wait until it is allowed, and tell when it is done."""
    allowed, done = threading.Semaphore(0), threading.Semaphore(0)

    def step(real, *arguments):
        assert allowed.acquire(timeout=60)
        try:
            return real(*arguments)
        finally:
            done.release()

    for name in STEPS:
        setattr(cache, name, functools.partial(step, getattr(cache, name)))
    return allowed, done


def saved_at_once(folder, order):
    """Save an entry for each key, the steps of both in a given order; return what is loaded then."""
    savers = [CacheFile(str(folder), "module.loop-1.py311", STAMP) for _ in KEYS]
    gates = [stepwise(saver) for saver in savers]
    threads = [
        threading.Thread(target=saver.save, args=(key, f"code for {key}"))
        for saver, key in zip(savers, KEYS, strict=True)
    ]
    for thread in threads:
        thread.start()
    for which in order:
        gates[which][0].release()
        assert gates[which][1].acquire(timeout=60)
    for thread in threads:
        thread.join()
    fresh = CacheFile(str(folder), "module.loop-1.py311", STAMP)
    return [fresh.load(key) for key in KEYS]


@pytest.mark.parametrize("order", ORDERS)
def test_two_processes_do_not_mix_their_code(order, tmp_path):
    for key, code in zip(KEYS, saved_at_once(tmp_path, order), strict=True):
        assert code in (None, f"code for {key}")


def test_a_changed_source_leaves_no_files_behind(tmp_path):
    for stamp in range(3):
        cache = CacheFile(str(tmp_path), "module.loop-1.py311", (stamp, 100))
        cache.save("float32", f"code {stamp}")
        cache.save("float64", f"code {stamp}")
        assert cache.load("float32") == cache.load("float64") == f"code {stamp}"
        assert len(list(tmp_path.iterdir())) == 3


def test_every_loop_uses_this_cache():
    modules = [
        importlib.import_module(f"scalable_gpe.loops.{one.name}") for one in pkgutil.iter_modules(loops.__path__)
    ]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
    assert len(found) > 40
    assert all(isinstance(loop._cache._cache_file, CacheFile) for loop in found)


def test_the_compiler_is_announced_once_for_a_loop_with_its_own_loops():
    @njit()
    def inner(x):
        return x + 1

    @njit()
    def outer(x):
        return inner(x) * 2

    told = []
    with compiling(told.append):
        assert outer(3) == 8
        assert told == [True, False]
        assert outer(4) == 10  # compiled already
    outer(1.5)  # nobody listens any more
    assert told == [True, False]
