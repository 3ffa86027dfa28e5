"""Threads that run one function over many pieces, and their progress."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

from scalable_gpe import checks
from scalable_gpe.errors import logger
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import mapped

Callback = Callable[[str, int, int], Any]

_SWEEPS = {"heat", "interval", "sketch", "audit"}  # stages whose pieces are sweeps over K
Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Counts finished pieces of each stage; `show` is None (a bar in a terminal or notebook), False or a callable."""

    def __init__(self, show: Callback | bool | None = None) -> None:
        if show is not None and not isinstance(show, bool) and not callable(show):
            raise TypeError(f"progress must be None, False or a callable(stage, done, total); got {show!r}.")
        self._show = show
        self._guard = threading.Lock()
        self._stage, self._done, self._total = "", 0, 0
        self._bar: Any = None

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[None]:
        """Count the pieces of one stage."""
        outer = (self._stage, self._done, self._total, self._bar)
        self._stage, self._done, self._total, self._bar = name, 0, max(total, 1), self._make_bar(name, total)
        began = time.perf_counter()
        logger.info("%s: %d pieces", name, total)
        try:
            with self._compiling():
                yield
            if self._done < self._total:  # an iteration that converged early
                self.advance(self._total - self._done)
            logger.info("%s: done in %.2f s", name, time.perf_counter() - began)
        finally:
            if self._bar is not None:
                self._bar.close()
            self._stage, self._done, self._total, self._bar = outer

    def advance(self, pieces: int = 1) -> None:
        """Count finished pieces; called from any thread."""
        if not self._stage:  # between stages there is nothing to count
            return
        with self._guard:
            self._done = min(self._done + pieces, self._total)
            if self._bar is not None:
                self._bar.update(pieces)
            if callable(self._show):
                self._show(self._stage, self._done, self._total)

    def say(self, text: str) -> None:
        """Print a line to stderr; with ``progress=False`` log it instead."""
        if self._show is False:
            logger.info("%s", text)
        else:
            print(text, file=sys.stderr)

    def _compiling(self) -> AbstractContextManager[None]:
        """Say beside the bar while loops are compiled: a first run waits for seconds where nothing is counted."""
        bar = self._bar
        if bar is None:
            return nullcontext()
        from scalable_gpe.loops.compiled import compiling

        return compiling(lambda busy: bar.set_postfix_str("compiling" if busy else ""))

    def _make_bar(self, name: str, total: int) -> Any:
        if self._show is False or callable(self._show):
            return None
        if self._show is None and not (sys.stderr.isatty() or _in_notebook()):
            return None
        from tqdm.auto import tqdm

        unit = " sweeps" if name in _SWEEPS else " pieces"
        return tqdm(total=total, desc=name, unit=unit, leave=False, mininterval=0.2)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def count_jobs(n_jobs: int | None) -> int:
    """Number of threads: all cores that this process may use for None or -1, else as given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return cores
    jobs = checks.check_count(n_jobs, "n_jobs", minimum=-cores)
    if jobs == 0:
        raise ValueError("n_jobs must not be 0; -1 stands for all cores.")
    return jobs if jobs > 0 else cores + 1 + jobs


def task_name(function: Callable[..., Any]) -> str:
    """The name of a task on a dashboard."""
    return getattr(function, "__name__", type(function).__name__).strip("_<>")


def _each_block(function: Callable[[int], Result], blocks: tuple[int, int]) -> list[Result]:
    """Work on neighbouring blocks, one after the other."""
    results = []
    for number in range(*blocks):
        results.append(function(number))
        mapped.trim()
    return results


class Placement(NamedTuple):
    """Where the loops run: a description of the cluster, or None for threads of this process; and why."""

    cluster: str | None
    reason: str


class Workers:
    """Threads that run one function over many pieces.

    ``map`` is the only loop over blocks in the library. It returns small results in the order of
    the pieces, counts them as progress, and leaves nothing running when a piece fails.
    """

    remote = False  # tasks run in this process and share its arrays
    placement = Placement(None, "the workers are threads of this process")

    def __init__(self, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        self.n_jobs = count_jobs(n_jobs)
        self.progress = progress or Progress(False)
        self._pool: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()

    @property
    def threads_each(self) -> int:
        """Number of tasks that one process runs at the same time."""
        return self.n_jobs

    @property
    def here(self) -> "Workers":
        """Threads of this process, for work on arrays that only this process has."""
        return self

    def worker_memory(self) -> int | None:
        """Bytes that the smallest worker of a cluster may hold; None: what is free."""
        return None

    def on_each(self, function: Callable[[], Result]) -> list[Result]:
        """What a function returns in this process, and in each process that runs tasks."""
        return [function()]

    def share_of(self, n_pieces: int) -> int:
        """Number of pieces that may share one task; threads share what a task holds."""
        return n_pieces

    def blocks_per_task(self, n_blocks: int) -> int:
        """Number of neighbouring blocks that one task works on, one after the other."""
        return 1

    def map_blocks(self, function: Callable[[int], Result], n_blocks: int) -> list[Result]:
        """``[function(number) for number in range(n_blocks)]``; a task may own a run of blocks."""
        run = partial(_each_block, function)
        vars(run)["__name__"] = task_name(function)
        runs = self.map(run, ranges(n_blocks, self.blocks_per_task(n_blocks)), count=False)
        return [result for results in runs for result in results]

    def map(
        self,
        function: Callable[[Item], Result],
        pieces: Iterable[Item],
        *,
        count: bool = True,
        at_once: int | None = None,
        done: Callable[[Item], None] | None = None,
    ) -> list[Result]:
        """``[function(piece) for piece in pieces]``, several at a time; `count` them as progress.

        `at_once` limits how many pieces this process works on at the same time (each has its own threads); `done` is
        called, in this process, with each finished piece.
        """
        pieces = list(pieces)
        if len(pieces) == 1 or (at_once or self.n_jobs) == 1:
            return [self._one(function, piece, count, done) for piece in pieces]
        with self._pool_for(at_once) as pool:
            running = [pool.submit(self._one, function, piece, count, done) for piece in pieces]
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:  # nothing begins any more
                for future in running:
                    future.cancel()
                wait(running)
        return [future.result() for future in sorted(running, key=Future.cancelled)]

    def _one(
        self, function: Callable[[Item], Result], piece: Item, count: bool, done: Callable[[Item], None] | None
    ) -> Result:
        result = function(piece)
        mapped.trim()
        if done is not None:
            with self._guard:
                done(piece)
        if count:
            self.progress.advance()
        return result

    @contextmanager
    def _pool_for(self, at_once: int | None) -> Iterator[ThreadPoolExecutor]:
        if at_once is not None:
            with ThreadPoolExecutor(at_once, thread_name_prefix="gpe-part") as few:
                yield few
            return
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.n_jobs, thread_name_prefix="gpe")
        yield self._pool

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __getstate__(self) -> dict[str, int]:
        return {"n_jobs": self.n_jobs}  # threads and bars stay in their process

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state["n_jobs"])  # type: ignore[misc]

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
