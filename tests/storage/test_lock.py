"""Locks survive what goes wrong around them."""

import json
import logging
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from scalable_gpe.errors import StoreError
from scalable_gpe.storage import lock
from scalable_gpe.storage.zarr_store import ZarrStore


@dataclass(frozen=True)
class Nothing:
    """An empty record."""


class FirstError(Exception):
    """The error that ended the work."""


@pytest.fixture(params=["directory", "objects"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.05)
    where = tmp_path / "run.zarr" if request.param == "directory" else f"memory://{tmp_path.name}/run.zarr"
    return ZarrStore(where)


def fail(monkeypatch, store, operation, error):
    def failing(*arguments, **keywords):
        raise error

    monkeypatch.setattr(store.backend, operation, failing)


def work_that_fails(monkeypatch, store, operation, error):
    """Fail while the lock is held; from then on an operation of the store fails too."""
    fail(monkeypatch, store, operation, error)
    raise FirstError


@pytest.fixture(autouse=True)
def warnings_are_logged(caplog):
    """A command line that was told to be quiet, in an earlier test, has silenced the logger of this process."""
    caplog.set_level(logging.WARNING, logger="scalable_gpe")


def is_locked(store):
    """Whether another process is refused (in memory: whether a lock object is left)."""
    if store.backend.network:
        return bool([name for name in store.backend.objects() if name.startswith("lock.")])
    code = f"from scalable_gpe.storage.zarr_store import ZarrStore; ZarrStore({str(store)!r}).lock()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode != 0


@pytest.mark.parametrize("error", [OSError(5, "injected"), RuntimeError("injected")])
def test_scratch_that_cannot_be_removed_releases_the_lock_and_keeps_the_first_error(store, monkeypatch, caplog, error):
    with pytest.raises(FirstError), store.exclusive():
        work_that_fails(monkeypatch, store, "remove", error)
    assert store.held_lock is None and not is_locked(store)
    assert "scratch arrays stay" in caplog.text and "injected" in caplog.text


def test_scratch_that_cannot_be_removed_before_the_work_releases_the_lock(store, monkeypatch):
    fail(monkeypatch, store, "remove", OSError(5, "injected"))
    with pytest.raises(OSError, match="injected"), store.exclusive():
        pytest.fail("the work must not begin")
    assert store.held_lock is None and not is_locked(store)


@pytest.mark.parametrize("store", ["objects"], indirect=True)
def test_a_lock_that_cannot_be_removed_keeps_the_first_error(store, monkeypatch, caplog):
    with pytest.raises(FirstError), store.exclusive():
        work_that_fails(monkeypatch, store, "delete", RuntimeError("injected"))
    assert "could not be removed: injected" in caplog.text


@pytest.mark.parametrize("store", ["objects"], indirect=True)
def test_heartbeats_continue_after_an_unexpected_error(store, monkeypatch, caplog):
    def beats():
        return json.loads(store.backend.read("lock.0"))["beat"]

    def wait(condition):
        until = time.monotonic() + 60
        while not condition() and time.monotonic() < until:
            time.sleep(0.01)
        assert condition()

    store.lock()
    with monkeypatch.context() as broken:
        fail(broken, store, "write", KeyError("unexpected"))
        wait(lambda: caplog.text.count("could not be renewed: 'unexpected'") > 1)
    before = beats()
    wait(lambda: beats() > before)
    store.held_lock.check()  # not lost
    with pytest.raises(StoreError, match="in use by another process"):
        ZarrStore(str(store)).lock()
    store.unlock()


@pytest.mark.parametrize("store", ["objects"], indirect=True)
@pytest.mark.parametrize("action", ["leave", "commit", "remove", "repair", "discard", "forget"])
def test_a_holder_that_lost_the_lock_removes_nothing(store, monkeypatch, caplog, action):
    """Also before a heartbeat tells it, as of a process that was stopped and continues."""
    monkeypatch.setattr(lock, "BEAT", 100.0)
    with store.exclusive():
        store.backend.write("lock.1", b'{"host": "elsewhere", "pid": 7, "since": "now", "token": "other"}')
        for name in ("work/a/0", "graph/a/zarr.json", ".damaged"):
            store.backend.write(name, b"of the winner")
        before = set(store.backend.files())
        actions = {
            "commit": lambda: store.commit("graph/a", Nothing()),
            "remove": lambda: store.remove("work"),
            "repair": lambda: store.repair("graph/a", "damaged"),
            "discard": store.discard,
            "forget": store.forget_damage,
        }
        if action != "leave":
            with pytest.raises(StoreError, match="taken over by host elsewhere, pid 7"):
                actions[action]()
    assert set(store.backend.files()) == before and "taken over by host elsewhere" in caplog.text


@pytest.mark.parametrize("store", ["directory"], indirect=True)
def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(store, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("data")
    (tmp_path / "run.zarr" / ".lock").symlink_to(precious)
    with pytest.raises(StoreError, match="is a link"):
        store.lock()
    assert precious.read_text() == "data"
