"""A dask cluster on this host against one worker and against threads, all measured in one run.

    python benchmarks/cluster.py       a million points, and sweeps at up to sixteen million; a quarter of an hour
    python benchmarks/cluster.py --points 20000 --sweep-points 40000 --model-points 20000 --traffic-rows 2048

It prints one table and writes it to cluster.json (--json): points to embedding with two single-threaded workers
against one worker and against two threads; sweeps of the sketch; a model of their seconds against the measurement; and
the bytes that a sweep sends through the scheduler.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from measure import Row, show, timed
from scalable_gpe.execution.cluster import Cluster, active_client
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.loops import sparse
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.zarr_store import ZarrStore

_BLOCKS = 8  # blocks of the sweeps whose bytes are counted
_SWEPT = {"n_neighbors": 8, "power": 8}  # parameters of the timed sweeps: plain products


def main() -> None:
    options = _options()
    print(f"{options.points:,} x {options.features} points, {os.cpu_count()} cores, {platform.processor()}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows = measure_all(Path(folder), options)
    print(show(rows))
    facts = {"points": options.points, "features": options.features, "neighbors": options.neighbors}
    facts |= {"cores": os.cpu_count(), "version": gpe.__version__, "rows": [asdict(row) for row in rows]}
    options.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def measure_all(folder: Path, options: argparse.Namespace) -> list[Row]:
    np.save(folder / "X.npy", gpe.datasets.patches(options.points, options.features))
    warm_up(folder)
    runs = {0: run(folder, options)}
    sizes = {options.sweep_points, *options.model_points}
    swept = {n_points: Swept(n_points, folder).make() for n_points in sorted(sizes)}
    wide, seconds, models, sent, held = {}, {}, {}, [], []
    for n_workers in (1, 2):
        with workers(n_workers, folder) as client:
            runs[n_workers] = run(folder, options)
            wide[n_workers] = swept[options.sweep_points].seconds(options.columns)
            if n_workers == 2:
                for n_points in options.model_points:
                    seconds[n_points] = swept[n_points].seconds(options.model_columns)
                    models[n_points] = model(client, swept[n_points], options.model_columns)
                sent = traffic(folder, options)
    if options.share_points:
        np.save(folder / "share.npy", gpe.datasets.patches(options.share_points, 16))
        held = [row for n_workers in options.share_workers for row in share(folder, n_workers, options)]
    return [*compared(runs, options), *ratio(wide, options), *beside(seconds, models, options), *sent, *held]


@contextmanager
def workers(n_workers: int, folder: Path) -> Iterator[Any]:
    """Start single-threaded workers on this host, run every stage once, and give the active client."""
    from distributed import Client, LocalCluster

    kind = {"processes": True, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=n_workers, **kind) as cluster, Client(cluster) as client:
        warm_up(folder)
        yield client


def warm_up(folder: Path) -> None:
    """Load or compile the loops of all stages, on few points."""
    how = {"n_neighbors": 8, "power": [2, 32], "method": "cells", "resume": False, "progress": False}
    gpe.embed(gpe.datasets.patches(3000, 12), store=folder / "warm.zarr", client=active_client(), **how)


# --- from points to embedding ---------------------------------------------------------------------


def run(folder: Path, options: argparse.Namespace) -> tuple[float, str]:
    """Measure the seconds of one run from points to embedding, in all and by stage."""
    how = {"n_neighbors": options.neighbors, "n_components": options.components, "power": options.power}
    how |= {"method": "cells", "store": folder / "run.zarr", "resume": False, "n_jobs": 2, "progress": False}
    seconds, result = timed(lambda: gpe.embed(folder / "X.npy", client=active_client(), **how))
    stages = result.report["stage_seconds"].items()
    return seconds, f"{seconds:.1f} s ({', '.join(f'{stage} {value:.1f}' for stage, value in stages)})"


def compared(runs: dict[int, tuple[float, str]], options: argparse.Namespace) -> list[Row]:
    (threads, of_threads), (one, of_one), (two, of_two) = (runs[number] for number in (0, 1, 2))
    what = f"{options.points:,} x {options.features} points to embedding"
    return [
        Row(f"{what}: one worker / two", one / two, "x", ">= 1.5", f"{of_one}, {of_two}"),
        Row(f"{what}: two workers / two threads", two / threads, "x", "<= 1.4", of_threads),
    ]


# --- sweeps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Swept:
    """Points of a torus whose heat kernel is stored, so that only the sketch remains to be computed."""

    n_points: int
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / f"{self.n_points}.zarr"

    @property
    def points(self) -> Path:
        return self.folder / f"{self.n_points}.npy"

    def make(self) -> "Swept":
        np.save(self.points, gpe.datasets.torus(self.n_points, random_state=0))
        gpe.embed(self.points, store=self.store, n_components=1, progress=False, **_SWEPT, client=active_client())
        return self

    def sketch(self, n_columns: int, note: Any) -> None:
        """Compute the sketch again; call `note` after each sweep."""
        for group in ("runs", "embedding", "sketch"):
            ZarrStore(self.store).remove(group)

        def progress(stage: str, *_: int) -> None:
            if stage == "sketch":
                note()

        gpe.embed(
            self.points, store=self.store, n_components=n_columns, progress=progress, **_SWEPT, client=active_client()
        )

    def seconds(self, n_columns: int) -> float:
        """Measure one product: the median.

        The first two are left out, because they create the files that others overwrite; so is the last one, which
        publishes.
        """
        times: list[float] = []
        self.sketch(n_columns, lambda: times.append(time.perf_counter()))
        products = np.diff(times)[2:-1]
        return float(np.median(products))


def ratio(seconds: dict[int, float], options: argparse.Namespace) -> list[Row]:
    what = f"sweep, {options.sweep_points:,} points, {options.columns} columns: one worker / two"
    return [Row(what, seconds[1] / seconds[2], "x", ">= 1.5", f"{seconds[1]:.3f} s, {seconds[2]:.3f} s")]


def beside(measured: dict[int, float], models: dict[int, dict[str, float]], options: argparse.Namespace) -> list[Row]:
    rows = []
    for n_points, parts in models.items():
        split = " + ".join(f"{name} {value:.3f}" for name, value in parts.items())
        what = f"sweep, {n_points:,} points, {options.model_columns} columns, two workers: model / measured"
        detail = f"{split} s, measured {measured[n_points]:.3f} s"
        rows.append(Row(what, sum(parts.values()) / measured[n_points], "x", "", detail))
    return rows


# --- what a worker holds and reads -----------------------------------------------------------------


def share(folder: Path, n_workers: int, options: argparse.Namespace) -> list[Row]:
    """Run under the smallest limit; measure the memory of the workers, and what they read in a sweep of the sketch."""
    how = {"n_neighbors": 16, "n_components": options.columns, "power": 64}
    read: list[float] = []
    with workers(n_workers, folder) as client:
        limit = gpe.estimate(options.share_points, 16, client=client, **how)["smallest_limit"]
        before = max(client.run(_resident).values())

        def progress(stage: str, *_: int) -> None:
            if stage == "sketch":
                read.append(max(client.run(_bytes_read).values()))

        given = {"store": folder / "share.zarr", "resume": False, "memory_limit": limit, "progress": progress}
        seconds, result = timed(lambda: gpe.embed(folder / "share.npy", client=client, **how, **given))
        peak = max(client.run(_peak).values())
    panel = options.share_points * options.columns * 4 / result.report["n_panels"]
    what = f"{options.share_points:,} points, {options.columns} columns, workers: {n_workers}"
    stages = ", ".join(f"{stage} {value:.0f} s" for stage, value in result.report["stage_seconds"].items())
    memory = f"of {limit / 1e6:.0f} MB; {(peak - before) / 1e6:.0f} MB beyond what an idle worker holds"
    return [
        Row(f"{what}: peak memory of a worker", peak / 1e6, "MB", f"<= {limit / 1e6:.0f} MB", memory),
        Row(
            f"{what}: read in a sweep / panel", np.median(np.diff(read)) / panel, "", "<= 0.3", "of the busiest worker"
        ),
        Row(f"{what}: time", seconds, "s", "", f"{stages}; panels: {result.report['n_panels']}"),
    ]


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _peak() -> int:
    from scalable_gpe.report import peak_memory

    return peak_memory()


def _bytes_read() -> int:
    from scalable_gpe.execution.panels import CachedPanel  # that of the worker: this function is sent by its code

    return CachedPanel.bytes_read


# --- the model ------------------------------------------------------------------------------------


def model(client: Any, swept: Swept, n_columns: int) -> dict[str, float]:
    """Predict the seconds of one product by the formula of docs/developers/cluster-costs.md, from rates measured here.

    ``barrier + F / read + (N/W) c b / write + operations / W`` with K in memory, c columns of b bytes, W workers, and F
    the bytes of other workers' rows, in runs, that the blocks of one worker need.
    """
    edges = gpe.open(swept.store).kernel.edges
    pool, n_workers = Cluster(client), len(client.nthreads())
    row, blocks = n_columns * 4, range(edges.n_blocks)
    panel = ZarrStore(swept.store).scratch_table("none", (edges.n_points, n_columns), np.float32, edges.block_rows)
    read, write = _rates(pool, swept.folder / "rates.zarr", n_workers, edges.block_rows, n_columns)
    return {
        "barrier": float(np.median([timed(lambda: pool.map(_nothing, blocks))[0] for _ in range(9)])),
        "read": _foreign(edges, n_workers, panel.run_rows) * row / read,
        "write": edges.n_points / n_workers * row / write,
        "operations": _operations(pool, swept, n_workers, n_columns) / n_workers,
    }


def _foreign(edges: Any, n_workers: int, run_rows: int) -> int:
    """Count the rows of others, in whole runs, that the blocks of one worker need: the largest number of any worker."""
    found = []
    for worker in range(n_workers):
        touched = np.zeros(-(-edges.n_points // run_rows), np.bool_)
        mine = [block for block in range(edges.n_blocks) if block * n_workers // edges.n_blocks == worker]
        for block in mine:
            sparse.touched(edges.block(block).indices, run_rows, touched)
        touched[edges.rows_of(mine[0])[0] // run_rows : -(-edges.rows_of(mine[-1])[1] // run_rows)] = False
        found.append(int(np.count_nonzero(touched)) * run_rows)
    return max(found)


def _nothing(block: int) -> None:
    pass


def _rates(pool: Cluster, path: Path, n_workers: int, shard_rows: int, n_columns: int) -> tuple[float, float]:
    """Measure the bytes per second that each worker reads from and writes to a table while all of them do."""
    store, n_shards = ZarrStore(path), 16
    store.lock()
    store.remove("work")
    shape = (n_workers * n_shards * shard_rows, n_columns)
    table = store.scratch_table("work/panel", shape, np.float32, shard_rows)
    values = shard_rows * n_columns * 4

    def move(worker: int) -> tuple[float, float]:
        mine = ranges(shape[0], shard_rows)[worker * n_shards : (worker + 1) * n_shards]
        noise = np.random.default_rng(worker).standard_normal((shard_rows, n_columns)).astype(np.float32)
        writing = timed(lambda: [table.write(start, noise) for start, _ in mine])[0]
        reading = timed(lambda: [table.read_into(start, noise) for start, _ in mine])[0]
        return reading, writing

    slowest = np.max(pool.map(move, range(n_workers)), axis=0)
    store.remove("work")
    store.unlock()
    return tuple(n_shards * values / slowest)


def _operations(pool: Cluster, swept: Swept, n_workers: int, n_columns: int) -> float:
    """Estimate the seconds of all blocks on one thread while all workers multiply, from some blocks."""

    def multiply(worker: int) -> float:
        edges = gpe.open(swept.store).kernel.edges
        source = np.ones((edges.n_points, n_columns), np.float32)
        seconds, n_entries = 0.0, 0
        first = edges.n_blocks * worker // n_workers
        for block in range(first, min(first + 4, edges.n_blocks)):
            _, indptr, indices, weights = edges.block(block)
            out, scale = np.empty((len(indptr) - 1, n_columns), np.float32), np.ones(len(indptr) - 1)
            sparse.product(indptr, indices, weights, source, scale, out)
            seconds += timed(lambda: sparse.product(indptr, indices, weights, source, scale, out))[0]  # noqa: B023
            n_entries += len(indices)
        return seconds / n_entries * edges.nnz

    return float(np.mean(pool.map(multiply, range(n_workers), count=False)))


# --- bytes through the scheduler ------------------------------------------------------------------


def traffic(folder: Path, options: argparse.Namespace) -> list[Row]:
    """Count the bytes of one sweep at two numbers of points, in the same number of blocks."""
    found = {}
    for rows in (1024, options.traffic_rows):
        swept = Swept(_BLOCKS * rows, folder)
        with block_sizes(block_rows=rows):
            swept.make()
            with counted() as sizes:
                sums: list[int] = []
                swept.sketch(options.columns, lambda sums=sums, sizes=sizes: sums.append(sum(sizes)))
        found[swept.n_points] = float(np.median(np.diff(sums))), max(sizes)
    (few, (low, _)), (many, (high, largest)) = found.items()
    panel = many * options.columns * 4
    detail = f"{low:.0f} and {high:.0f} bytes, no message above {largest}; the panel has {panel}"
    what = f"bytes through the scheduler per sweep, {_BLOCKS} blocks: {many:,} points / {few:,}"
    return [Row(what, high / low, "x", "<= 1.2", detail)]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Record the bytes of each message of this process; it runs client and scheduler, so some messages count twice."""
    from distributed.comm import tcp

    sizes: list[int] = []
    to_frames, from_frames = tcp.to_frames, tcp.from_frames

    async def outgoing(*args: Any, **kwargs: Any) -> Any:
        frames = await to_frames(*args, **kwargs)
        sizes.append(sum(memoryview(frame).nbytes for frame in frames))
        return frames

    async def incoming(frames: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.append(sum(memoryview(frame).nbytes for frame in frames))
        return await from_frames(frames, *args, **kwargs)

    tcp.to_frames, tcp.from_frames = outgoing, incoming
    try:
        yield sizes
    finally:
        tcp.to_frames, tcp.from_frames = to_frames, from_frames


def _options() -> argparse.Namespace:
    def number(text: str) -> int:
        return int(float(text))

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=number, default=1_000_000, help="of the run from points to embedding")
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--power", type=int, default=64)
    parser.add_argument("--sweep-points", type=number, default=4_000_000, help="of the sweeps on one and two workers")
    parser.add_argument("--model-points", type=number, nargs="+", default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--model-columns", type=int, default=16, help="of the panels of these sweeps")
    parser.add_argument("--columns", type=int, default=64, help="of the sweeps on one and two workers")
    parser.add_argument("--share-points", type=number, default=4_000_000, help="of runs under the smallest limit")
    parser.add_argument("--share-workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--traffic-rows", type=number, default=16_384, help="of a block; the other run has 1,024")
    parser.add_argument("--scratch", help="where points and stores go")
    parser.add_argument("--json", type=Path, default=Path("cluster.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
