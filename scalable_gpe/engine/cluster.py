"""The loop over blocks on the workers of a dask cluster.

The store is the only thing that processes share: a task is a small function and the number of a block, what it reads
and writes stands in the store, and it returns a few numbers. A task that is run twice writes the same bytes.
"""

import atexit
import contextlib
import itertools
import os
import pickle
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scalable_gpe.engine.blocks import Cuts, Item, Result, Workers, current_cuts, cuts
from scalable_gpe.engine.errors import GPEError
from scalable_gpe.engine.panels import forget_panels, keep_panels
from scalable_gpe.engine.progress import Progress, logger
from scalable_gpe.engine.run import Run, forget, give_back, locked, once

_ATTEMPTS = 100  # times that the tasks of workers that died are handed out again
_MOST_BYTES = 200_000  # of a task
_SHARE = 0.7  # of a worker's memory: dask moves data to disk above, and stops workers at 0.95
_LOST = (
    "the connection to the dask scheduler was lost. Run the same line again, with a client that is connected: the "
    "store holds what was finished."
)


def active_client() -> Any:
    """The client that this process is connected to, or None; inside a task of a worker there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    with contextlib.suppress(ValueError):
        distributed.get_worker()
        return None  # a task uses the threads of its worker
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return client if client.status == "running" and not client.asynchronous else None


class Cluster(Workers):
    """Workers of a dask cluster, while a run holds the lock of its store; otherwise the threads of this process."""

    def __init__(self, client: Any, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        super().__init__(n_jobs, progress)
        self._client = client
        self._here = Workers(n_jobs, self.progress)

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether tasks run in other processes."""
        return self._client is not None and self._client.status == "running"

    @property
    def here(self) -> Workers:
        """Threads of this process."""
        return self._here

    @property
    def n_threads(self) -> int:
        """Tasks that can run at the same time."""
        return max(1, sum(self._client.nthreads().values()))

    @property
    def is_local(self) -> bool:
        """Whether all workers run on this host."""
        own = {"127.0.0.1", "localhost", *socket.gethostbyname_ex(socket.gethostname())[2]}
        with contextlib.suppress(OSError):
            import psutil

            own |= {address.address for some in psutil.net_if_addrs().values() for address in some}
        hosts = {info.get("host", "") for info in self._info().values()}
        return bool(hosts) and all(host in own or host == "" for host in hosts)

    def memory_limit(self) -> int | None:
        """What a task may take where the user gave no limit: a safe share of the smallest worker's."""
        info = self._info().values()
        limits = [one["memory_limit"] for one in info if one.get("memory_limit")]
        if not limits and self.is_local:
            import psutil

            limits = [psutil.virtual_memory().available // max(1, len(info))]
        return int(_SHARE * min(limits)) if limits else None

    def share_of(self, n_pieces: int) -> int:
        """How many pieces may go together into one task, so that every thread has two tasks."""
        return max(1, -(-n_pieces // (2 * self.n_threads))) if self.remote else super().share_of(n_pieces)

    def _info(self) -> dict[str, Any]:
        return self._client.scheduler_info(n_workers=-1)["workers"]

    def describe(self) -> str:
        """One line about where the work goes."""
        info = self._info()
        return f"{len(info)} workers, {sum(one['nthreads'] for one in info.values())} threads"

    def map(
        self,
        function: Callable[[Item], Result],
        pieces: Iterable[Item],
        *,
        count: bool = True,
        at_once: int | None = None,
        done: Callable[[Item], None] | None = None,
    ) -> list[Result]:
        """``[function(piece) for piece in pieces]``, one task per piece; lost workers' tasks are run again."""
        if self._client is None:
            return self._here.map(function, pieces, count=count, at_once=at_once, done=done)
        if not self.remote:
            raise GPEError(_LOST)
        pieces = list(pieces)
        results: dict[int, Any] = {}
        for attempt in range(_ATTEMPTS):
            left = [number for number in range(len(pieces)) if number not in results]
            if not left:
                break
            if attempt:
                logger.warning("%s: workers were lost; %d tasks are run again", _name(function), len(left))
            for number, result in self._finished(function, {number: pieces[number] for number in left}):
                results[number] = result
                if done is not None:
                    done(pieces[number])
                if count:
                    self.progress.advance()
        else:
            raise GPEError(
                f"workers died {_ATTEMPTS} times during {_name(function)}. Look at their logs; if they ran out of "
                "memory, lower memory_limit or give them more. Run the same line again to resume."
            )
        return [results[number] for number in range(len(pieces))]

    def _finished(self, function: Callable[[Any], Any], pieces: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Results of tasks as they come; those of tasks that took their workers with them are left out."""
        from distributed import KilledWorker, as_completed
        from distributed.client import FutureCancelledError

        batch = uuid.uuid4().hex[:8]
        task = _Task(function, f"{_name(function)}-{batch}")
        keys = [f"{_name(function)}-{batch}-{number}" for number in pieces]
        # on any worker: a task that asks for one waits for ever when all workers die and others come in their place
        futures = self._client.map(task, list(pieces.values()), key=keys, pure=False)
        numbers = dict(zip((future.key for future in futures), pieces, strict=True))
        try:
            for future in as_completed(futures):
                try:
                    result = future.result()  # of a worker that died meanwhile: waits until it was run again
                except KilledWorker:
                    continue
                except FutureCancelledError as error:
                    raise GPEError(_LOST) from error
                yield numbers[future.key], result
        finally:
            # a task that is still running must not write while the next step does
            if left := [future for future in futures if not future.done()]:
                self._client.cancel(left)

    def close(self) -> None:
        """End the threads, and leave the cluster; the client is the user's."""
        super().close()
        self._here.close()
        if self.remote:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError, ValueError):
                self._client.run(_forget, on_error="ignore")
        self._client = None

    def __reduce__(self) -> Any:
        return Workers, (1,)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__).strip("_<>")


class _Task:
    """A function as workers run it: unpickled once in a process, BLAS in one thread, and the cuts of the caller."""

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        from distributed.protocol.pickle import dumps

        self.content = dumps((function, current_cuts()))
        self.name = name
        if len(self.content) > _MOST_BYTES:
            logger.warning("%s: a task has %d bytes; arrays belong into the store", name, len(self.content))

    def __call__(self, piece: Any) -> Any:
        _limit_threads()
        keep_panels()
        function, in_force = once(("task", self.name), lambda: pickle.loads(self.content))
        if in_force == Cuts():
            return function(piece)
        with cuts(**vars(in_force)):
            return function(piece)


def _forget() -> None:
    """Free what a worker has kept for its tasks."""
    forget()
    forget_panels()
    give_back()


_limited = itertools.count()


def _limit_threads() -> None:
    """Keep BLAS to one thread per task, once for each process."""
    if next(_limited) == 0:
        import scipy.linalg  # noqa: F401  (its libraries must be there to be limited)
        from threadpoolctl import threadpool_limits

        os.environ.setdefault("OMP_NUM_THREADS", "1")
        threadpool_limits(limits=1)


@contextlib.contextmanager
def on_cluster(run: Run) -> Iterator[None]:
    """Let a finished run use the cluster again, where there is one and its store may be written to."""
    client = active_client()
    workers = run.workers
    home: Any = run.home
    if client is None or not isinstance(workers, Cluster) or not run.home.stored or home.read_only:
        yield
        return
    with locked(home):
        workers._client = client
        try:
            yield
        finally:
            workers.close()


def workers_for(n_jobs: int | None, progress: Progress | None = None) -> Workers:
    """The workers of the client that is active, else threads."""
    client = active_client()
    return Workers(n_jobs, progress) if client is None else Cluster(client, n_jobs, progress)


def shared_store(workers: Workers, store: Any) -> Any:
    """The store that all workers reach; says where the work goes.

    Without a store, workers of this host share a temporary one, which is removed with this process.
    """
    if not isinstance(workers, Cluster):
        return store
    if store is None:
        if not workers.is_local:
            raise ValueError(
                "a dask client is active and its workers run on other hosts: results must go to a store that all of "
                "them reach. Pass store= a path on a shared file system, or a URL such as 's3://bucket/run.zarr'."
            )
        folder = tempfile.mkdtemp(prefix="scalable-gpe-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        store = os.path.join(folder, "run.zarr")
    print(f"scalable_gpe: running on the dask cluster ({workers.describe()}), store {store}", file=sys.stderr)
    return store
