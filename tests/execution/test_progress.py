"""Progress for a callback or a terminal, no progress, and the log."""

import contextlib
import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

import scalable_gpe as gpe
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.workers import Progress

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
X = gpe.datasets.torus(300, random_state=0)
OPTIONS = {"n_neighbors": 6, "n_components": 4, "power": (3, 40)}


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("method", ["brute", "cells"])
def test_a_callback_sees_every_stage_to_its_end(n_jobs, stored, method, tmp_path):
    calls = []
    with block_sizes(block_rows=64, panel_columns=3):
        gpe.embed(
            X,
            n_jobs=n_jobs,
            progress=lambda *call: calls.append(call),
            method=method,
            store=tmp_path / "run" if stored else None,
            **OPTIONS,
        )
    seen = [stage for stage, _, _ in calls]
    for stage in ("rows", "lists", "edges", "recall", "kernel", "heat", "interval", "sketch"):
        assert stage in seen, stage
    assert "" not in seen
    last = {}
    for stage, done, total in calls:
        assert 0 <= done <= total
        if done > 1 and last.get(stage, (0, total))[1] == total and last.get(stage, (0, 0))[0] != total:
            assert done >= last.get(stage, (0, 0))[0]
        last[stage] = (done, total)
    assert all(done == total for done, total in last.values()), last


def test_a_stage_that_ends_early_is_complete_and_one_that_fails_is_not():
    calls = []
    progress = Progress(lambda *call: calls.append(call))
    with progress.stage("short", 100):
        progress.advance(3)
    assert calls == [("short", 3, 100), ("short", 100, 100)]
    with pytest.raises(ZeroDivisionError), progress.stage("broken", 5):
        _ = progress.advance() or 1 / 0
    assert calls[-1] == ("broken", 1, 5)
    progress.advance()  # between stages nothing is counted
    assert calls[-1] == ("broken", 1, 5)


@pytest.mark.parametrize("progress", [False, None])
def test_nothing_is_printed(progress, capfd):
    gpe.embed(X, progress=progress, **OPTIONS)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


def read_all(terminal):
    """What is written to a terminal until its last writer has closed it, which Linux calls an error."""
    with contextlib.suppress(OSError):
        while content := os.read(terminal, 4096):
            yield content


def test_a_terminal_shows_a_bar():
    """A real terminal: the child's standard error is a pseudo-terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    code = (
        "import sys, scalable_gpe as gpe\n"
        "for progress in (None, False):\n"
        "    print('progress', progress, file=sys.stderr)\n"
        "    gpe.embed(gpe.datasets.circle(200), n_neighbors=5, power=3, method='kdtree', progress=progress)\n"
    )
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stderr=theirs) as child:
        os.close(theirs)
        # a slow run draws the bar so often that the terminal would be full if nobody read
        shown, silent = b"".join(read_all(ours)).decode().split("progress False")
        assert child.wait(120) == 0
    os.close(ours)
    assert "rows:" in shown and "kernel:" in shown
    assert silent.strip() == ""


def test_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="scalable_gpe"):
        gpe.embed(X, progress=False, **OPTIONS)
    text = caplog.text
    for stage in ("rows", "edges", "kernel", "heat", "sketch"):
        assert f"{stage}: done in" in text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="scalable_gpe"):
        gpe.embed(X, progress=False, **OPTIONS)
    assert caplog.text == ""


def test_a_failing_callback_ends_the_run():
    def fail(stage, done, total):
        if stage == "heat":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gpe.embed(X, progress=fail, n_jobs=2, **OPTIONS)
