"""State that this process keeps between tasks: one object instead of several module globals."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from scalable_gpe.execution.allocator import keep_freed_memory, release_freed_memory
from scalable_gpe.execution.panel_cache import PanelCache

_MOST_OPENED = 16


class ProcessState:
    """Opened results, cached panels, and whether this process is a worker of a cluster, or calls one.

    `keeps_panels`: a worker keeps what its tasks write, because it is likely to read it next. `calls`: this process is
    the user's own, even if workers are threads of it; what lasts is not set there.
    """

    def __init__(self) -> None:
        self.panels = PanelCache()
        self.keeps_panels = self.calls = False
        self._opened: OrderedDict[Hashable, Any] = OrderedDict()
        self._opening = threading.RLock()
        self._turns: WeakValueDictionary[str, threading.BoundedSemaphore] = WeakValueDictionary()  # while used
        self._blas_limits: list[Any] = []
        self._n_limiting, self._limiting = 0, threading.Lock()

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, called once and shared by all threads; the latest few results are kept."""
        with self._opening:
            if key not in self._opened:
                made = make()
                while len(self._opened) >= _MOST_OPENED:
                    self._opened.popitem(last=False)
                self._opened[key] = made
            self._opened.move_to_end(key)
            return self._opened[key]

    @contextmanager
    def turn(self, name: str, at_once: int) -> Iterator[None]:
        """Wait until fewer than `at_once` threads of this process are inside such a block of that name."""
        with self._opening:
            turns = self._turns.setdefault(name, threading.BoundedSemaphore(at_once))
        with turns:
            yield

    @contextmanager
    def one_blas_thread(self) -> Iterator[None]:
        """Limit BLAS to one thread, until the last of such blocks ends in any thread.

        The limit is one of the whole process: blocks that overlap would each restore what another one has set.
        """
        import scipy.linalg  # noqa: F401  (its libraries must be loaded to be limited)
        from threadpoolctl import threadpool_limits

        with self._limiting:
            self._blas_limits.append(threadpool_limits(limits=1, user_api="blas"))
            self._n_limiting += 1
        try:
            yield
        finally:
            with self._limiting:
                self._n_limiting -= 1
                while self._blas_limits and not self._n_limiting:
                    self._blas_limits.pop().restore_original_limits()

    def become_worker(self) -> None:
        """Prepare a worker once: BLAS in one thread per task, freed memory kept for the next task, panels kept."""
        with self._opening:
            if self.keeps_panels or self.calls:
                self.keeps_panels = True
                return
            import scipy.linalg  # noqa: F401  (its libraries must be loaded to be limited)
            from threadpoolctl import threadpool_limits

            os.environ.setdefault("OMP_NUM_THREADS", "1")
            threadpool_limits(limits=1)
            keep_freed_memory()
            self.keeps_panels = True

    def forget(self) -> None:
        """Free everything that is kept between tasks."""
        with self._opening:
            self._opened.clear()
        self.panels.clear()
        release_freed_memory()


process = ProcessState()
