"""Peak memory of new processes stays below their limit, and below the projection."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scalable_gpe.execution import resources
from scalable_gpe.execution.memory_plan import MemoryPlan, block_sizes
from scalable_gpe.execution.process import kept_by_allocator
from scalable_gpe.execution.resources import ProblemSize, Resources

SCRIPT = """
import json, sys
import scalable_gpe as gpe
path, store, limit = sys.argv[1:]
run = gpe.embed(path, n_neighbors=12, n_components=16, power=24, store=store, memory_limit=int(limit), progress=False)
print(json.dumps({"peak": run.report["peak_memory"], "method": run.report["method"]}))
"""


def smallest_limit(n_rows, n_features):
    size = ProblemSize(n_rows=n_rows, n_features=n_features, n_neighbors=12, n_components=16)
    return MemoryPlan(size, Resources(n_jobs=2, persistent=True)).smallest_limit()


def peak_of(tmp_path, limit, folder=None, script=SCRIPT):
    """The peak memory of a run with the points of X.npy, and where its embedding is."""
    path, store = tmp_path / "X.npy", (folder or tmp_path) / f"{limit}.zarr"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(store), str(limit)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["peak"], store / "embedding" / "24" / "c"


def embedding_bytes(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_peak_stays_under_the_limit_whatever_it_is(tmp_path):
    import scalable_gpe as gpe

    np.save(tmp_path / "X.npy", gpe.datasets.patches(40_000, 16, dimension=4))
    smallest = smallest_limit(40_000, 16)
    results = []
    for limit in (int(1.1 * smallest), 900 * 10**6):
        peak, folder = peak_of(tmp_path, limit)
        assert peak <= limit
        results.append(embedding_bytes(folder))
    assert results[0] == results[1]


@pytest.mark.slow
def test_wide_rows_of_a_mapped_file(tmp_path):
    """A file larger than the limit: pages that stay mapped, and copies of a part while it is written, count too."""
    import scalable_gpe as gpe

    gpe.datasets.write(tmp_path / "X.npy", gpe.datasets.patches, 170_000, n_features=1000, dimension=3)
    limit = smallest_limit(170_000, 1000)
    assert limit < (tmp_path / "X.npy").stat().st_size
    assert peak_of(tmp_path, limit)[0] <= limit


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["smallest", 800 * 10**6, 2 * 10**9])
def test_peak_of_a_million_points(tmp_path, limit):
    """Four parts of a search, and a round near their borders."""
    import scalable_gpe as gpe

    np.save(tmp_path / "X.npy", gpe.datasets.patches(1_000_000, 16, dimension=4))
    limit = smallest_limit(1_000_000, 16) if limit == "smallest" else limit
    assert peak_of(tmp_path, limit)[0] <= limit


@pytest.mark.slow
def test_all_scales_of_a_million_points_keep_the_limit(tmp_path):
    """To state its error, the solver reads rows all over its panels, which are in files.

    The blocks that a block of this surface names are more than the plan counts: 2 % of the limit.
    """
    import scalable_gpe as gpe

    gpe.datasets.write(tmp_path / "X.npy", gpe.datasets.torus, 1_000_000)
    script = SCRIPT.replace("n_neighbors=12, n_components=16, power=24, ", "")
    assert peak_of(tmp_path, 500 * 10**6, script=script)[0] <= 1.05 * 500 * 10**6


def disk_used(store):
    """Bytes of the files of a store, and of unnamed files of this process."""
    files = {os.path.join(folder, name) for folder, _, names in os.walk(store) for name in names}
    files |= {f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")}
    used = {}
    for file in files:
        with contextlib.suppress(OSError):
            if not file.startswith("/proc") or "(deleted)" in os.readlink(file):
                found = os.stat(file)
                used[found.st_ino] = 512 * found.st_blocks
    return sum(used.values())


@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the files are those of /proc")
@pytest.mark.parametrize(("n_features", "maps", "save_seconds"), [(64, False, None), (16, True, 0.0)])
def test_the_estimate_of_the_disk_holds_for_the_whole_run(tmp_path, n_features, maps, save_seconds):
    """Noise on disk is searched in many rounds of several parts; states are saved."""
    import scalable_gpe as gpe

    X = np.random.default_rng(0).standard_normal((2 * 4096, n_features))
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    most, how = [0], {"n_neighbors": 12, "n_components": 16, "power": 24}

    def progress(*_):
        most[0] = max(most[0], disk_used(tmp_path / "run.zarr"))

    with block_sizes(maps_arrays=maps or None, save_seconds=save_seconds, n_parts=2):
        expected = gpe.estimate(*X.shape, **how)["disk"]
        gpe.embed(tmp_path / "X.npy", store=tmp_path / "run.zarr", method="cells", progress=progress, **how)
    assert expected / 3 < most[0] <= expected


def test_the_smallest_limit_is_a_number_that_messages_can_name():
    for n_rows in (1000, 123_457, 9_999_999):
        size = ProblemSize(n_rows=n_rows, n_features=16, n_neighbors=12, n_components=16)
        least = MemoryPlan(size, Resources(n_jobs=2, persistent=True)).smallest_limit()
        MemoryPlan(size, Resources(limit=least, n_jobs=2, persistent=True)).check()
        with pytest.raises(ValueError, match=rf"at least {least // 10**6} MB .* got {least // 10**6 - 1} MB"):
            MemoryPlan(size, Resources(limit=least - 1, n_jobs=2, persistent=True)).check()


def test_a_limit_that_is_too_small_says_what_fits():
    size = ProblemSize(n_rows=10**6, n_features=16, n_neighbors=32, n_components=64)
    in_memory = Resources(n_jobs=2, compiled=True)
    least = MemoryPlan(size, in_memory).smallest_limit()
    plan = MemoryPlan(size, replace(in_memory, limit=least - 10**8))
    with pytest.raises(
        ValueError, match=r"It is enough for n_components=\d+ or n_neighbors=\d+\. +With store="
    ) as raised:
        plan.check()
    found = re.search(r"n_components=(\d+) or n_neighbors=(\d+)", str(raised.value)).groups()
    for name, value in zip(("n_components", "n_neighbors"), map(int, found), strict=True):
        MemoryPlan(replace(size, **{name: value}), plan.resources).check()
        with pytest.raises(ValueError, match="memory_limit must be"):
            MemoryPlan(replace(size, **{name: 2 * value}), plan.resources).check()
    with pytest.raises(ValueError, match="do not help"):
        MemoryPlan(size, replace(in_memory, limit=10**7)).check()


def test_compiled_loops_need_less():
    size = ProblemSize(n_rows=1000, n_features=30)
    limits = [MemoryPlan(size, Resources(n_jobs=2, persistent=True, compiled=one)).smallest_limit() for one in (0, 1)]
    assert limits[1] < 280 * 10**6 < limits[0] < 360 * 10**6


def test_the_estimate_of_rows_in_memory_counts_them():
    import scalable_gpe as gpe

    X = np.random.default_rng(0).standard_normal((30_000, 100)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalable_gpe.planning._TRIAL_ROWS", 100)
        patch.setattr("scalable_gpe.planning._FIRST_ROWS", 100)
        assert gpe.estimate(X)["smallest_limit"] >= gpe.estimate(*X.shape)["smallest_limit"] + X.nbytes


TMPFS = "/dev/shm"


@pytest.mark.skipif(not resources._is_in_memory(TMPFS), reason="no tmpfs")
def test_a_store_in_memory_counts_against_the_limit(tmp_path):
    """What the process holds and what the files hold stay below it together; a lower limit is refused."""
    import scalable_gpe as gpe

    X = gpe.datasets.patches(40_000, 16, dimension=4).astype(np.float32)
    size = ProblemSize(n_rows=len(X), n_features=16, n_neighbors=12, n_components=16)
    here = {"n_jobs": 2, "persistent": True}
    limit = MemoryPlan(size, Resources(**here, store_in_memory=True, files_in_memory=True)).smallest_limit()
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        np.save(tmp_path / "X.npy", X)
        with pytest.raises(ValueError, match=r"in memory \(tmpfs\).* pass a path on a disk"):
            gpe.embed(tmp_path / "X.npy", n_neighbors=12, store=f"{folder}/run.zarr", memory_limit=limit - 1)
        assert not os.listdir(folder)
        peak, embedding = peak_of(tmp_path, limit, Path(folder))
        assert peak + disk_used(embedding.parents[2]) <= limit


@pytest.mark.parametrize("missing", ["storage.mapped._STATM", "execution.process._LIBRARY"])
def test_a_limit_that_cannot_be_held_is_called_a_plan(missing, monkeypatch):
    import scalable_gpe as gpe

    how = {"n_components": 8, "power": 2, "memory_limit": "4GB", "n_neighbors": 8}
    X = gpe.datasets.torus(300)
    assert ("peak_memory" in gpe.embed(X, **how).report["reasons"]) == (sys.platform != "linux")
    monkeypatch.setattr(f"scalable_gpe.{missing}", "/nowhere/libc.so.6")
    assert "is a plan here" in gpe.embed(X, **how).report["reasons"]["peak_memory"]


def test_the_parts_of_a_plan_fit_its_limit():
    """What a run holds beside each other, for many sizes and limits: all in memory, or mapped."""
    regimes = set()
    for n_rows in (10_000, 400_000, 5_000_000, 10**9):
        for k, m in ((2, 64), (16, 16), (128, 32)):
            size = ProblemSize(n_rows=n_rows, n_features=16, n_neighbors=m, n_components=k)
            least = MemoryPlan(size, Resources(n_jobs=2, persistent=True)).smallest_limit()
            for limit in (int(1.01 * least), 2 * least, 10 * least, 200 * least):
                plan = MemoryPlan(size, Resources(limit=limit, n_jobs=2, persistent=True))
                regimes.add(plan.maps_arrays)
                width = plan.panel_columns(n_rows, 1, 4, size.block_bytes, k)
                if plan.maps_arrays:
                    used = plan.mapped_bytes().kept + max(plan.part_bytes, plan._touched(width, 17))
                else:
                    assert width == k
                    used = size.vector_bytes + 8 * size.nnz + width * 12 * n_rows + 9 * size.block_bytes
                assert used <= plan.workspace, (n_rows, k, m, limit)
    assert regimes == {True, False}


def test_freed_memory_is_kept_where_there_is_room():
    size = ProblemSize(n_rows=10**7, n_features=16, n_neighbors=16, n_components=16)
    least = MemoryPlan(size, Resources(n_jobs=2, persistent=True)).smallest_limit()
    sizes = []
    for limit in (least, 2 * 10**9, 10**11):
        plan = MemoryPlan(size, Resources(limit=limit, n_jobs=2, persistent=True))
        sizes.append((plan.large_array(searching=True), plan.large_array(searching=False)))
        if plan.maps_arrays and limit > least:
            beside = plan.mapped_bytes().kept + plan.parts_at_once() * plan.part_bytes
            assert beside + kept_by_allocator(sizes[-1][0]) <= plan.workspace
    assert [round(searching / 2**20) for searching, _ in sizes] == [4, 32, 32]
    assert all(afterwards >= 16 * 2**20 for _, afterwards in sizes)


def printed_number(script, argument):
    done = subprocess.run([sys.executable, "-c", script, str(argument)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are those of glibc")
def test_pages_of_freed_arrays_are_used_again():
    """Arrays of 8 MB, one after the other: each gets new pages, or all the same ones."""
    script = (
        "import resource, sys, numpy as np\n"
        "from scalable_gpe.execution.process import map_large_arrays\n"
        "map_large_arrays(int(sys.argv[1]))\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "first = np.ones(2**20); del first; before = faults()\n"
        "for _ in range(20): np.ones(2**20)\n"
        "print(faults() - before)"
    )
    faults = [printed_number(script, large) for large in (4 * 2**20, 32 * 2**20)]
    assert faults[1] < 20 < faults[0]


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are those of glibc")
def test_threads_share_freed_memory_under_a_small_limit():
    """A run under a limit of 10 GB or 500 MB, then eight threads: glibc has memory for each, or one for all."""
    script = (
        "import ctypes, sys, tempfile, threading, scalable_gpe as gpe\n"
        "gpe.embed(gpe.datasets.torus(300), n_components=2, power=4, memory_limit=int(sys.argv[1]), progress=False)\n"
        "wait = threading.Barrier(8)\n"
        "def work():\n"
        "    held = [bytearray(10**4) for _ in range(100)]\n"
        "    wait.wait()\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "libc = ctypes.CDLL('libc.so.6'); libc.fopen.restype = ctypes.c_void_p\n"
        "with tempfile.NamedTemporaryFile() as out:\n"
        "    file = ctypes.c_void_p(libc.fopen(out.name.encode(), b'w'))\n"
        "    libc.malloc_info(0, file); libc.fclose(file)\n"
        "    print(out.read().decode().count('<heap nr='))"
    )
    n_heaps = [printed_number(script, limit) for limit in (10**10, 5 * 10**8)]
    assert n_heaps[1] <= 2 < n_heaps[0]


def test_the_smallest_limit_does_not_grow_with_the_number_of_rows():
    least = {
        n_rows: MemoryPlan(ProblemSize(n_rows, 16, 16, 16), Resources(n_jobs=2, persistent=True)).smallest_limit()
        for n_rows in (4 * 10**6, 16 * 10**6, 10**9)
    }
    assert max(least.values()) - min(least.values()) < 10**6
    assert max(least.values()) < 600 * 10**6


def test_a_worker_searches_as_many_parts_as_it_has_threads_and_room():
    size = ProblemSize(n_rows=10**7, n_features=100, n_neighbors=16, n_components=16)
    found = []
    for limit in (10**9, 2 * 10**9, 10**11):
        plan = MemoryPlan(size, Resources(limit=limit, n_jobs=16, persistent=True, remote=True))
        found.append(plan.parts_at_once())
        assert found[-1] * plan.part_bytes < plan.workspace
    assert 1 <= found[0] < found[1] < found[2] == 16


def test_a_search_is_one_part_where_memory_allows():
    """4 GB at most, halved until it fits the limit; on a cluster, parts that its tasks share."""
    for n_rows, expected in ((300_000, 1), (4_000_000, 1), (10_000_000, 4)):
        size = ProblemSize(n_rows=n_rows, n_features=30, n_neighbors=32)
        free = MemoryPlan(size, Resources(n_jobs=2, persistent=True))
        assert free.n_parts == expected and free.part_bytes <= 4e9
        for limit in (free.smallest_limit(), 10**9, 3 * 10**9, 10**10):
            plan = replace(free, resources=replace(free.resources, limit=max(limit, free.smallest_limit())))
            assert expected <= plan.n_parts <= size.most_parts
            assert plan.n_parts == size.most_parts or plan.part_bytes + size.vector_bytes < 0.9 * limit
        assert plan.n_parts == expected
        many = replace(free, resources=replace(free.resources, remote=True))
        assert many.n_parts == size.most_parts <= 1 + n_rows // 2**17


def test_panels_are_narrower_where_a_block_touches_all_others():
    size = ProblemSize(n_rows=10**7, n_features=100, n_neighbors=16, n_components=16)
    plan = MemoryPlan(size, Resources(limit=10**9, n_jobs=2, persistent=True))
    assert plan.panel_columns(10**7, 1, 4, size.block_bytes, 16, 17) == 16
    assert plan.panel_columns(10**7, 1, 4, size.block_bytes, 16, 153) == 8
