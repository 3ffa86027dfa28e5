"""The decorator of all compiled loops: numba's `njit`, with a cache on disk that several processes can fill at once."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import IndexDataCacheFile


class CacheFile(IndexDataCacheFile):
    """The cache of one loop: an index from argument types to files of machine code, each named by what it holds.

    numba numbers these files. Two processes that compile for different types at once can both write number 1, and the
    index of one then names the code of the other. Here the worst that can happen is that a loop is compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        """Save machine code, then the index that names it."""
        stamp = repr((key, self._source_stamp, self._version))
        base = self._index_name.removesuffix(".nbi")
        name = f"{base}.{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.nbc"
        self._save_data(name, data)
        overloads = self._load_index()
        if not overloads:  # of another version of this loop, or of none
            _remove_others(Path(self._cache_path), base, name)
        self._save_index({**overloads, key: name})


def _remove_others(folder: Path, base: str, name: str) -> None:
    for file in folder.glob(f"{base}.*.nbc"):
        if file.name != name:
            file.unlink(missing_ok=True)


def njit(**options: Any) -> Callable[[Any], Any]:
    """Decorate a loop, as numba's `njit` does."""
    decorate = numba.njit(**{"no_cfunc_wrapper": True, **options})

    def compiled(function: Any) -> Any:
        loop = decorate(function)
        cache = getattr(loop, "_cache", None)  # none if the user has switched compilation off
        if cache is not None and hasattr(cache, "_cache_file"):
            stamp = cache._impl.locator.get_source_stamp()
            cache._cache_file = CacheFile(cache.cache_path, cache._impl.filename_base, stamp)
        return loop

    return compiled


def is_compiled(loop: Any) -> bool:
    """Whether a loop is compiled, in this process or on disk, or never will be."""
    cache = getattr(loop, "_cache", None)
    if cache is None or not hasattr(cache, "_cache_file") or loop.signatures:
        return True
    return Path(cache._cache_file._index_path).exists()


# the search: loops that compile faster without unused wrappers; `inner` ones are called by other loops alone
_SEARCH = {"nogil": True, "cache": True, "no_cfunc_wrapper": True}
search_loop = njit(**_SEARCH, error_model="numpy")
inner_loop = njit(**_SEARCH, error_model="numpy", no_cpython_wrapper=True)


class _Listener(event.Listener):
    """Tells when the compiler begins and ends; loops that call others are compiled within each other."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell, self._depth = tell, 0

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._tell(True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._tell(False)


@contextmanager
def compiling(tell: Callable[[bool], None]) -> Iterator[None]:
    """Call ``tell(True)`` when the compiler begins to work on a loop, and ``tell(False)`` when it is done."""
    with event.install_listener("numba:compile", _Listener(tell)):
        yield
