"""Threads of a search: ranges of rows, nodes or leaves that compiled loops work on at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scalable_gpe.execution.process import process


@dataclass(frozen=True)
class Threads:
    """Runs tasks on ranges; without a pool, one after the other."""

    n_threads: int = 1
    pool: ThreadPoolExecutor | None = None

    def cut(self, n: int, per_thread: int = 4) -> list[tuple[int, int]]:
        """Cut 0..n into ranges: one without threads, otherwise some for each."""
        n_ranges = min(n, per_thread * self.n_threads) if self.pool is not None else min(n, 1)
        bounds = [i * n // n_ranges for i in range(n_ranges + 1)] if n else [0]
        return list(pairwise(bounds))

    def each(self, task: Callable[..., Any], ranges: Sequence[Any]) -> list[Any]:
        """Run a task for each of some ranges, and return the results in their order."""
        return list((self.pool.map if self.pool is not None else map)(task, ranges))

    def loop(
        self,
        loop: Callable[..., Any],
        n: int,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        *,
        per_thread: int = 4,
    ) -> None:
        """Run a compiled loop over 0..n; it takes the bounds of its range between the other arguments."""
        self.each(lambda piece: loop(*before, *piece, *after), self.cut(n, per_thread))


ALONE = Threads()


@contextmanager
def threads(n_jobs: int | None) -> Iterator[Threads]:
    """Give threads, with BLAS limited to one thread each."""
    n_threads = n_jobs if n_jobs is not None and n_jobs > 0 else os.cpu_count() or 1
    with process.one_blas_thread():
        if n_threads == 1:
            yield ALONE
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                yield Threads(n_threads, pool)
