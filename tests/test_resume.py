"""A run that is killed and started again gives the same bytes as an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

WORKER = Path(__file__).with_name("killed_run.py")


def worker(store, *arguments, wait=True):
    command = [sys.executable, str(WORKER), str(store), *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    return process if not wait else (*process.communicate(timeout=300), process.returncode)


def arrays(store):
    """All chunk files of the results (not the commits, which hold times) as {name: bytes}."""
    files = sorted(path for path in Path(store).rglob("*") if path.is_file() and "c" in path.relative_to(store).parts)
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    store = tmp_path_factory.mktemp("reference") / "run.zarr"
    out, err, code = worker(store)
    assert code == 0, err
    return arrays(store), json.loads(out)


def resumed(store):
    out, err, code = worker(store)
    assert code == 0, err
    return json.loads(out)


def moments(n_kills, n_events):
    """Progress events at which to kill: spread over the run, and around the boundaries of stages."""
    return sorted({int(event) for event in np.linspace(2, n_events, n_kills)})


def kill_and_resume(tmp_path, reference, event):
    store = tmp_path / "run.zarr"
    _, _, code = worker(store, event)
    assert code == -signal.SIGKILL
    stages = resumed(store)
    assert arrays(store) == reference[0]
    return stages


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_killed_at_an_event_the_bytes_are_the_same(tmp_path, reference, share):
    _, events = reference
    event = max(2, int(share * len(events)))
    stages = kill_and_resume(tmp_path, reference, event)
    finished = events[: event - 1]
    if "kernel" in finished:  # the graph was committed before the kernel began
        assert not {"points", "lists", "edges", "recall"} & set(stages)
    if "sketch" in finished:
        assert "heat" not in stages


def test_killed_twice_and_from_outside(tmp_path, reference):
    store = tmp_path / "run.zarr"
    began = time.monotonic()
    process = worker(store, wait=False)
    while not (store / "graph").exists() and time.monotonic() - began < 120:
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    worker(store, 30)
    resumed(store)
    assert arrays(store) == reference[0]


def test_leftovers_of_a_kill_are_removed(tmp_path, reference):
    store = tmp_path / "run.zarr"
    worker(store, len(reference[1]) // 2)
    (store / "graph" / "0.0123456789.partial").write_bytes(b"half a chunk")
    resumed(store)
    assert not list(store.rglob("*.partial"))
    assert not list(store.rglob("saved"))
    assert not list(store.rglob("search"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_killed_at_forty_moments(tmp_path, reference, number):
    events = reference[1]
    boundaries = [i + 1 for i in range(1, len(events)) if events[i] != events[i - 1]]
    chosen = (boundaries + moments(40, len(events)))[:40]
    kill_and_resume(tmp_path, reference, max(2, chosen[number]))
