"""The loop over blocks on the workers of a dask cluster.

Processes share nothing but the store: a task is a small function and the number of a block, it reads from and writes to
the store, and it returns a few numbers. A task that runs twice writes the same bytes.
"""

import atexit
import contextlib
import os
import pickle
import shutil
import socket
import sys
import tempfile
import time
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scalable_gpe.errors import GPEError, logger
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.memory_plan import block_sizes, current_block_sizes
from scalable_gpe.execution.panels import cached_panels
from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Item, Placement, Progress, Result, Workers, task_name
from scalable_gpe.storage.mapped import mapped

_ATTEMPTS = 100  # how often the tasks of dead workers are submitted again
_NEWS_SECONDS = 0.5  # seconds between checks for finished tasks
_LOOK_SECONDS = 2.0  # seconds between checks for new and departed workers
_TOGETHER = 256  # tasks in one message to the scheduler
_MOST_BYTES = 200_000  # larger tasks are logged
_LEAST_ROWS = 1_000_000  # from which a sweep takes longer than the barrier after it
_LOST = (
    "the connection to the dask scheduler was lost. Run the same line again with a connected client: finished results "
    "are in the store."
)


def active_client() -> Any:
    """Return the client that this process is connected to, or None; inside a task there is none."""
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


def check_client(client: Any) -> Any:
    """Check the argument `client`: None, False or a connected client."""
    if client is None or client is False:
        return client
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(client, distributed.Client):
        raise TypeError(
            f"client must be None, False or a distributed.Client, as Client(cluster) gives; got {client!r}."
        )
    if client.status != "running" or client.asynchronous:
        state = "an asynchronous one" if client.asynchronous else f"one that is {client.status}"
        raise ValueError(f"client must be connected and synchronous; got {state}. Make a new one.")
    return client


class Cluster(Workers):
    """Workers of a dask cluster, while a run holds the lock of its store; otherwise the threads of this process."""

    def __init__(self, client: Any, n_jobs: int | None = None, progress: Progress | None = None) -> None:
        super().__init__(n_jobs, progress)
        process.calls = True
        self._client = client
        self._here = Workers(n_jobs, self.progress)
        self._threads: dict[str, int] = {}  # of each worker
        self._looked = -_LOOK_SECONDS

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether tasks run in other processes."""
        return self._client is not None and self._client.status == "running"

    @property
    def here(self) -> Workers:
        """Threads of this process."""
        return self._here

    @property
    def threads_each(self) -> int:
        """Number of tasks that one worker runs at the same time: the most of any of them."""
        return max(self._client.nthreads().values(), default=1) if self.remote else self.n_jobs

    @property
    def n_threads(self) -> int:
        """Number of tasks that can run at the same time."""
        return max(1, sum(int(n) for n in self._client.nthreads().values()))

    @property
    def is_local(self) -> bool:
        """Whether all workers run on this host."""
        own = {"127.0.0.1", "localhost", *socket.gethostbyname_ex(socket.gethostname())[2]}
        with contextlib.suppress(OSError):
            import psutil

            own |= {address.address for some in psutil.net_if_addrs().values() for address in some}
        hosts = {info.get("host", "") for info in self._info().values()}
        return bool(hosts) and all(host in own or host == "" for host in hosts)

    def worker_memory(self) -> int | None:
        """Bytes that the smallest worker may hold: its limit or, on this host, its part of what is free."""
        info = self._info().values()
        limits = [worker["memory_limit"] for worker in info if worker.get("memory_limit")]
        if not limits and self.is_local:
            import psutil

            limits = [psutil.virtual_memory().available // max(1, len(info))]
        return min(limits, default=None)

    def on_each(self, function: Callable[[], Result]) -> list[Result]:
        """What a function returns in this process and on the workers; those that cannot be reached are left out."""
        return [function(), *self._on_workers(function)]

    def _on_workers(self, function: Callable[[], Result]) -> list[Result]:
        if self.remote:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError, ValueError):
                return list(self._client.run(function, on_error="ignore").values())
        return []

    def share_of(self, n_pieces: int) -> int:
        """Number of pieces per task at which every thread has two tasks."""
        return max(1, -(-n_pieces // (2 * self.n_threads))) if self.remote else super().share_of(n_pieces)

    def blocks_per_task(self, n_blocks: int) -> int:
        """Number of blocks per task at which every thread has four tasks or more: each costs the scheduler 1 ms."""
        return max(1, n_blocks // (4 * self.n_threads)) if self.remote else 1

    def __enter__(self) -> "Cluster":
        # for workers that are threads of this process
        self._limit = process.one_blas_thread()
        self._limit.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.__exit__(None, None, None)
        self.close()

    @contextlib.contextmanager
    def connected(self, client: Any) -> Iterator[None]:
        """Use a client inside the block."""
        self._client = client
        with self:
            yield

    def _info(self) -> Any:
        return self._client.scheduler_info(n_workers=-1)["workers"]

    def describe(self) -> str:
        """Describe the cluster in one line."""
        info = self._info()
        return f"{len(info)} workers, {sum(worker['nthreads'] for worker in info.values())} threads"

    def map(
        self,
        function: Callable[[Item], Result],
        pieces: Iterable[Item],
        *,
        count: bool = True,
        at_once: int | None = None,
        done: Callable[[Item], None] | None = None,
    ) -> list[Result]:
        """``[function(piece) for piece in pieces]``, one task per piece; tasks of lost workers run again."""
        if self._client is None:
            return self._here.map(function, pieces, count=count, at_once=at_once, done=done)
        if not self.remote:
            raise GPEError(_LOST)
        pieces = list(pieces)
        results: dict[int, Any] = {}
        for attempt in range(_ATTEMPTS):
            left = {number: piece for number, piece in enumerate(pieces) if number not in results}
            if not left:
                break
            if attempt:
                logger.warning("%s: workers were lost; %d tasks run again", task_name(function), len(left))

            def finished(number: int) -> None:
                if done is not None:
                    done(pieces[number])
                if count:
                    self.progress.advance()

            results |= self._run(function, left, finished, at_once)
        else:
            raise GPEError(
                f"workers died {_ATTEMPTS} times during {task_name(function)}. Check their logs: if they ran out of "
                "memory, lower memory_limit or give them more; if their folder for temporary files is full, set TMPDIR "
                "to a larger disk. Run the same line again to resume."
            )
        return [results[number] for number in range(len(pieces))]

    def _run(
        self,
        function: Callable[[Any], Any],
        pieces: dict[int, Any],
        finished: Callable[[int], None],
        at_once: int | None,
    ) -> dict[int, Any]:
        """Run tasks and return their results, without those of tasks whose worker died.

        Neighbouring pieces go to the same worker in every call, because it still caches what it read and wrote for
        them. With `at_once`, a piece goes to the next free worker, which works on so many of them at a time.
        """
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError, FuturesCancelledError
        from distributed.comm.core import CommClosedError

        batch = None
        try:
            addresses = self._worker_of_pieces(len(pieces)) if at_once is None else []
            batch = _Batch(self._client, _Task(function, at_once), pieces, addresses)
            for number, future in batch:
                if future.status == "error":
                    with contextlib.suppress(KilledWorker):
                        future.result()
                    batch.drop(number)
                else:
                    finished(number)
            return batch.results()
        except KilledWorker:
            return {}
        except (FutureCancelledError, FuturesCancelledError, CancelledError, CommClosedError) as error:
            raise GPEError(_LOST) from error
        finally:
            if batch is not None:
                batch.close()

    def _worker_of_pieces(self, n_pieces: int) -> list[str]:
        """The worker of each piece: neighbouring pieces together, in proportion to the threads of each worker."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._threads, self._looked = self._client.nthreads(), now
        slots = [address for address, n_threads in self._threads.items() for _ in range(n_threads)]
        return [slots[number * len(slots) // n_pieces] for number in range(n_pieces)] if slots else []

    def close(self) -> None:
        """End the threads and leave the cluster; the client stays open, because it is the user's."""
        super().close()
        self._here.close()
        cached_panels.clear()
        self._on_workers(_forget)
        self._client = None

    def __reduce__(self) -> Any:
        return Workers, (1,)


class _Batch:
    """Tasks that were submitted together; iterating yields number and future of each task as it ends.

    A task prefers the worker of its piece, and may run on another if that one is gone. Dask forgets this permission
    if at some moment there is no worker at all: such tasks are dropped, and submitted again with the next batch.
    """

    def __init__(self, client: Any, task: "_Task", pieces: dict[int, Any], addresses: list[str]) -> None:
        import dask

        self._client, self._prefers = client, bool(addresses)
        self._waiting: set[int] = set()  # tasks that were seen on no worker
        keys = [f"{task.name}-{number}" for number in pieces]
        where = {key: [address] for key, address in zip(keys, addresses, strict=False)}
        with dask.annotate(**({"workers": where.__getitem__, "allow_other_workers": True} if where else {})):
            futures = client.map(task, list(pieces.values()), key=keys, pure=False, batch_size=_TOGETHER)
        self.futures = dict(zip(pieces, futures, strict=True))

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        from distributed import wait

        left, looked = set(self.futures), time.monotonic()
        while left:
            with contextlib.suppress(TimeoutError), self._client.as_current():
                # one wait for all tasks costs less than one callback per task
                wait([self.futures[number] for number in left], timeout=_NEWS_SECONDS)
            ended = [number for number in left if self.futures[number].done()]
            for number in ended:
                left.remove(number)
                yield number, self.futures[number]
            if ended:
                looked = time.monotonic()
            elif time.monotonic() - looked > _LOOK_SECONDS:
                left -= self._drop_forgotten(left)
                looked = time.monotonic()

    def results(self) -> dict[int, Any]:
        """Results of the tasks; waits for tasks that dask runs again because their worker died meanwhile."""
        if all(future.type is type(None) for future in self.futures.values()):
            return dict.fromkeys(self.futures)
        return dict(zip(self.futures, self._client.gather(list(self.futures.values())), strict=True))

    def _drop_forgotten(self, left: set[int]) -> set[int]:
        """Drop tasks that no worker had in two checks in a row, although there are workers."""
        at_work = self._client.processing() if self._prefers else {}
        held = {key for keys in at_work.values() for key in keys}
        waiting = {number for number in left if self.futures[number].key not in held} if at_work else set()
        forgotten, self._waiting = waiting & self._waiting, waiting
        if forgotten:
            self._client.cancel([self.futures[number] for number in forgotten])
        for number in forgotten:
            self.drop(number)
        return forgotten

    def drop(self, number: int) -> None:
        """Forget a task."""
        self.futures.pop(number).release()

    def close(self) -> None:
        """Cancel unfinished tasks, which must not write during the next step, and release all results.

        Dask would rerun a task whose result is lost but not released, although its input may be gone by then.
        """
        left = [future for future in self.futures.values() if not future.done()]
        if left and self._client.status == "running":
            self._client.cancel(left)
        for future in self.futures.values():
            future.release()


class _Task:
    """A function as workers run it: unpickled once per process, BLAS in one thread, the caller's block sizes.

    With `at_once`, other threads of a process that already works on so many pieces wait.
    """

    def __init__(self, function: Callable[[Any], Any], at_once: int | None) -> None:
        from distributed.protocol.pickle import dumps

        self.content = dumps((function, current_block_sizes()))
        self.name, self._at_once = f"{task_name(function)}-{uuid.uuid4().hex[:8]}", at_once
        if len(self.content) > _MOST_BYTES:
            logger.debug("%s: a task has %d bytes; arrays should be in the store", self.name, len(self.content))

    def __call__(self, piece: Any) -> Any:
        process.become_worker()
        with contextlib.nullcontext() if self._at_once is None else process.turn(self.name, self._at_once):
            return self._run(piece)

    def _run(self, piece: Any) -> Any:
        function, sizes = process.once(("task", self.name), lambda: pickle.loads(self.content))
        try:
            with block_sizes(**vars(sizes)):
                return function(piece)
        finally:
            mapped.trim()


def _forget() -> None:
    """Free what a worker keeps between tasks."""
    cached_panels.clear()
    process.forget()


@contextlib.contextmanager
def on_cluster(context: Context) -> Iterator[None]:
    """Use the active cluster for a finished run, if there is one and the store is writable."""
    client, workers, store = active_client(), context.workers, context.store
    if client is None or not isinstance(workers, Cluster) or not store.persistent or store.read_only:
        yield
        return
    with store.exclusive(), workers.connected(client):
        yield


def workers_for(
    client: Any,
    n_jobs: int | None,
    progress: Progress | None = None,
    *,
    n_rows: int,
    is_dask: bool = False,
    has_store: bool = True,
) -> Workers:
    """The workers of a cluster, or threads of this process.

    A given client is used, and False means threads. None means the active client if some of its workers are on other
    hosts (which needs a store), and the input is a dask collection or has many rows: on one host threads are faster.
    """
    chosen = active_client() if check_client(client) is None else client or None
    cluster = None if chosen is None else Cluster(chosen, n_jobs, progress)
    if cluster is None:
        reason = "client=False" if client is False else "no dask client is active"
    elif client is not None:
        reason = "client was given"
    elif n_rows < _LEAST_ROWS and (cluster.is_local or not is_dask):
        cluster, reason = None, f"a cluster pays from {_LEAST_ROWS:,} rows on; pass client to use it"
    elif cluster.is_local:
        cluster, reason = None, "all workers are on this host, whose threads are faster; pass client to use them"
    elif not has_store:
        cluster, reason = None, "without store workers on other hosts cannot be used"
    else:
        many = "X is a dask collection" if is_dask else f"X has {_LEAST_ROWS:,} rows or more"
        reason = f"{many}, and workers are on other hosts"
    workers = cluster or Workers(n_jobs, progress)
    workers.placement = Placement(None if cluster is None else cluster.describe(), reason)
    return workers


def shared_store(workers: Workers, store: Any) -> Any:
    """Return a store that all workers can reach, and say where the work runs.

    Without a store, workers on this host share a temporary one, which is removed when this process ends.
    """
    if not isinstance(workers, Cluster):
        return store
    if store is None:
        if not workers.is_local:
            raise ValueError(
                "the workers of client run on other hosts: results must go to a store that all of them reach. "
                "Pass store= a path on a shared file system, or a URL such as 's3://bucket/run.zarr'."
            )
        folder = tempfile.mkdtemp(prefix="scalable-gpe-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        store = os.path.join(folder, "run.zarr")
    workers.progress.say(f"scalable_gpe: running on the dask cluster ({workers.describe()}), store {store}")
    return store


def dask_rows(matrix: Any, rows: int) -> Any:
    """Dask array for users: CSR blocks of `rows` rows each."""
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
