"""Who runs the loop over blocks, and how much memory it may take."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from scalable_gpe import checks
from scalable_gpe.execution.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class BlockSizes:
    """Cuts that change no result; tests vary them, users never see them."""

    block_rows: int | None = None
    panel_columns: int | None = None
    resident_bytes: int | None = None
    save_seconds: float | None = None


_DEFAULT = BlockSizes()
_cuts: ContextVar[BlockSizes] = ContextVar("cuts", default=_DEFAULT)


@contextmanager
def block_sizes(**changes: Any) -> Iterator[None]:
    """Cut blocks and panels otherwise for a while."""
    token = _cuts.set(replace(_cuts.get(), **changes))
    try:
        yield
    finally:
        _cuts.reset(token)


def current_block_sizes() -> BlockSizes:
    """Cuts in force."""
    return _cuts.get()


def count_jobs(n_jobs: int | None) -> int:
    """Threads to use: all the cores this process may use for None or -1, never more than asked for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return cores
    jobs = checks.check_count(n_jobs, "n_jobs", minimum=-cores)
    if jobs == 0:
        raise ValueError("n_jobs must not be 0; pass None or -1 for all cores.")
    return jobs if jobs > 0 else cores + 1 + jobs


class Workers:
    """Threads that run one function over many pieces.

    ``map`` is the only loop over blocks in the library. It returns small results in the order of
    the pieces, counts them as progress, and leaves nothing running when a piece fails.
    """

    remote = False  # tasks run in this process and share its arrays

    def __init__(self, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        self.n_jobs = count_jobs(n_jobs)
        self.progress = progress or Progress(False)
        self._pool: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()

    @property
    def here(self) -> "Workers":
        """Threads of this process, for work on arrays that only this process has."""
        return self

    def memory_limit(self) -> int | None:
        """What a process may take where the user gave no limit; None: what is free."""
        return None

    def share_of(self, n_pieces: int) -> int:
        """How many pieces may go together into one task; threads share what a task holds."""
        return n_pieces

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

        `at_once` bounds how many pieces this process works on at the same time (they have threads of their own);
        `done` is told, in this process, of each piece as it is finished.
        """
        pieces = list(pieces)
        if len(pieces) == 1 or (at_once or self.n_jobs) == 1:
            return [self._one(function, piece, count, done) for piece in pieces]
        with self._pool_for(at_once) as pool:
            futures = [pool.submit(self._one, function, piece, count, done) for piece in pieces]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = next((f for f in futures if f.done() and f.exception() is not None), None)
                if failed is not None:
                    raise failed.exception()  # type: ignore[misc]
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()
                wait(futures)

    def _one(
        self, function: Callable[[Item], Result], piece: Item, count: bool, done: Callable[[Item], None] | None
    ) -> Result:
        result = function(piece)
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


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(value: Any, name: str = "memory_limit") -> int | None:
    """Bytes of a number or a text such as "2GB" (2e9) or "2GiB" (2**31).

    Examples
    --------
    >>> parse_bytes("1.5GB"), parse_bytes("512 MiB"), parse_bytes(None)
    (1500000000, 536870912, None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?i?)b?\s*", value.lower())
        if not found or found[1].count(".") > 1:
            raise ValueError(f"{name} must be bytes or a text such as '2GB'; got {value!r}.")
        return int(float(found[1]) * _UNITS[found[2]])
    return int(checks.check_positive(value, name))


def dask_rows(matrix: Any, rows: int) -> Any:
    """Dask array of CSR blocks of so many rows."""
    import dask
    import dask.array as da

    blocks = [
        da.from_delayed(
            dask.delayed(matrix[start : start + rows]),
            shape=(min(rows, matrix.shape[0] - start), matrix.shape[1]),
            dtype=matrix.dtype,
            meta=matrix[:0],
        )
        for start in range(0, matrix.shape[0], rows)
    ]
    return da.concatenate(blocks, axis=0)
