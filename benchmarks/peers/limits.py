"""A process with limits of time and memory, and the peak of its memory."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY = 0.05  # seconds between two looks at the memory
_REASON = 300  # characters of an error that are kept


@dataclass(frozen=True)
class Finished:
    """How a process ended: "done", "time", "memory" or "failed"; its peak in bytes, its output, and why it failed."""

    status: str
    seconds: float
    peak: int
    output: str
    reason: str


def run_limited(command: Sequence[str], *, seconds: float, memory: float) -> Finished:
    """Run a command; end it, with its children, when it takes longer or its resident memory grows larger."""
    with tempfile.TemporaryDirectory() as folder:
        out, error = Path(folder) / "out", Path(folder) / "error"
        with out.open("wb") as o, error.open("wb") as e:
            began = time.perf_counter()
            process = psutil.Popen(command, stdout=o, stderr=e, stdin=subprocess.DEVNULL, env=_environment())
            status, peak = _watch(process, began + seconds, memory)
            took = time.perf_counter() - began
        text = error.read_text(encoding="utf-8", errors="replace").strip()
        reason = _reason(text, process.returncode) if status == "failed" else ""
        return Finished(status, took, peak, out.read_text(encoding="utf-8", errors="replace"), reason)


def _environment() -> dict[str, str]:
    return {**os.environ, "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}


def _watch(process: psutil.Popen, until: float, memory: float) -> tuple[str, int]:
    peak = 0
    while True:
        peak = max(peak, _resident(process))
        over = "memory" if peak > memory else "time" if time.perf_counter() > until else ""
        if over:
            _end(process)
            return over, peak
        try:
            return ("failed" if process.wait(_EVERY) else "done"), peak
        except psutil.TimeoutExpired:
            continue


def _resident(process: psutil.Popen) -> int:
    """Resident memory of a process and its children; pages that they share are counted once for each."""
    total = 0
    try:
        for one in [process, *process.children(recursive=True)]:
            total += _one_resident(one)
    except psutil.Error:
        pass  # it has just ended
    return total


def _one_resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _end(process: psutil.Popen) -> None:
    try:
        family = process.children(recursive=True)
    except psutil.Error:
        family = []
    for one in [process, *family]:
        try:
            one.kill()
        except psutil.Error:
            continue
    process.wait()


def _reason(text: str, code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    return text.splitlines()[-1][:_REASON] if text else f"exit code {code}"
