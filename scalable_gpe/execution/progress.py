"""Progress of long work: a bar in a terminal or notebook, a callback for programs, or nothing."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from scalable_gpe.errors import logger

Callback = Callable[[str, int, int], Any]

_SWEEPS = {"heat", "interval", "sketch", "audit"}  # stages whose pieces are sweeps over K


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
