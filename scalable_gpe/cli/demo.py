"""scalable-gpe demo: from generated points to a picture, out of core."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalable_gpe.cli.command import PROGRAM, command, progress, say, tell
from scalable_gpe.cli.new_run import show_result
from scalable_gpe.cli.options import N_JOBS, SIZES, count, option
from scalable_gpe.formatting import in_bytes

if TYPE_CHECKING:
    import numpy as np

    from scalable_gpe.embedding import Embedding

import tempfile
import time
import warnings
from functools import partial

from scalable_gpe.cli.command import show, table
from scalable_gpe.formatting import in_time

_N_FEATURES = 30
_SEED = 5
_PATH = click.Path(path_type=Path, readable=False)


@command(
    *SIZES,
    option("--points", "N", "points in 30 dimensions (200,000)", type=count, default=200_000),
    option("--out", "DIR", "folder for points and store (./gpe-demo)", type=_PATH, default="gpe-demo"),
    option("--picture", "FILE", "the picture (./gpe-demo.png)", type=_PATH, default="gpe-demo.png"),
    N_JOBS,
    resumes="out",
    examples=("scalable-gpe demo --points 1_000_000 --out /tmp/gpe-demo",),
)
def demo(
    points: int, out: Path, picture: Path, n_jobs: int | None = None, memory_limit: str | None = None, **sizes: Any
) -> None:
    """Embed generated points out of core, print the report and draw a picture."""
    import scalable_gpe as gpe
    from scalable_gpe.execution.resources import parse_bytes
    from scalable_gpe.io.files import check_target

    check_target(picture)
    path, store = out / f"branches-{points}.zarr", out / f"embedding-{points}.zarr"
    _write_points(path, points)
    least = gpe.estimate(points, _N_FEATURES, **sizes)["smallest_limit"]
    limit = parse_bytes(memory_limit) or int(max(10**9, 1.2 * least))
    tell(f"embedding into {store}, --memory-limit {in_bytes(limit)} ...")
    result = gpe.embed(path, store=store, memory_limit=limit, n_jobs=n_jobs, progress=progress(), **sizes)
    show_result(result, str(store))
    _draw(picture, result, path, points)
    tell(
        "next:\n"
        f"  {PROGRAM} report {store} page.html         one page about this run, with a picture to zoom into\n"
        f"  {PROGRAM} audit {store}                    how accurate it is\n"
        f"  {PROGRAM} embed your-points.npy run.zarr   your own points: .npy, .zarr, .csv, .parquet, .h5ad",
    )


def _write_points(path: Path, n_points: int) -> None:
    from scalable_gpe import datasets

    if path.exists():
        tell(f"points exist: {path}")
        return
    tell(f"writing {n_points:,} points in {_N_FEATURES} dimensions to {path} ...")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    datasets.write(unfinished, datasets.branches, n_points, n_features=_N_FEATURES, random_state=_SEED)
    unfinished.rename(path)


def _draw(picture: Path, result: "Embedding", points: Path, n_points: int) -> None:
    """Draw the points before and after; without matplotlib, print a hint."""
    import scalable_gpe as gpe
    from scalable_gpe import datasets

    parts, truth = datasets.branches_truth(n_points, _N_FEATURES, random_state=_SEED)
    try:
        figure = _picture(result, gpe.read_points(points).values, parts, truth)
    except ImportError as error:
        say(f"{PROGRAM}: no picture: {error}")
        return
    figure.savefig(picture, dpi=110)
    tell(f"picture: {picture}")


def _picture(result: "Embedding", points: Any, parts: Any, truth: "np.ndarray[Any, Any]") -> Any:
    """The plane of the data, that of the embedding at each power, and of all scales the pseudotime."""
    from scalable_gpe import plot
    from scalable_gpe.formatting import power_title
    from scalable_gpe.plot.figures import new_figure

    powers = result.by_power
    n_panels = 1 + len(powers) + ("all" in powers)
    figure = new_figure(4.3 * n_panels + 1.2, 4.4)
    first, *others = figure.subplots(1, n_panels)
    title = f"{points.shape[0]:,} points: two principal components"
    plot.scatter(points, color=parts, title=title, legend=False, ax=first)
    for ax, power in zip(others, powers, strict=False):
        title = f"the embedding: {power_title(power)}"
        plot.scatter(result, power=power, color=parts, title=title, legend=power == next(iter(powers)), ax=ax)
    if "all" in powers:
        time, _ = result.pseudotime(int(truth.argmin()))
        title, ax = "pseudotime, from the exit of the cycle", others[-1]
        plot.scatter(result, power="all", color=time, color_label="pseudotime", title=title, ax=ax)
    return figure


# --- warm up --------------------------------------------------------------------------------------


@command(examples=("scalable-gpe warm-up",))
def warm_up() -> None:
    """Compile all loops once, for an image or a login node: later processes find the machine code on disk."""
    from scalable_gpe.loops import sparse

    began = time.perf_counter()
    tell("compiling ...")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of points that were not made to be embedded
        _compile_all(Path(folder))
    seconds, cache = time.perf_counter() - began, sparse.product.stats.cache_path
    lines = [("time", in_time(seconds)), ("cache", str(cache))]
    show(table("all loops are compiled", lines), {"seconds": seconds, "cache": str(cache)})


def _compile_all(folder: Path) -> None:
    """Embed with each search, normalisation, bandwidth, sketch and precision; place new points; audit."""
    import numpy as np

    import scalable_gpe as gpe

    X = gpe.datasets.patches(3000, 20, random_state=0)
    embed = partial(gpe.embed, n_neighbors=10, progress=False)
    embed(X)
    hard = np.random.default_rng(0).standard_normal((3000, 20))  # trees alone do not find their neighbours
    result = embed(hard, method="cells", recall=1.0, power=[2, 64, "all"], n_sketch=32, store=folder / "cells.zarr")
    result.transform(hard[:100] + 0.01)
    gpe.audit(result, n_probes=50, n_exact=4)
    embed(X[:, :3], method="kdtree", epsilon="local", normalization="symmetric", sketch="bernoulli")
    local = embed(X, epsilon="local", precision="double", power=[16, "all"])
    local.transform(X[:100] + 0.01)
    embed(np.concatenate([X, X[:200]]), metric="cosine")
    gpe.diffusion_map(result.heat, 4)
    gpe.spectrum(result.heat)
    _compile_for_clusters(folder / "scratch.zarr")


def _compile_for_clusters(path: Path) -> None:
    """Write and read a scratch panel, as only the workers of a cluster do."""
    import numpy as np

    from scalable_gpe.loops import sparse
    from scalable_gpe.storage.zarr_store import ZarrStore

    table = ZarrStore(path).scratch_table("panel", (512, 16), np.float32, 512)
    table.write(0, np.ones((512, 16), np.float32))
    table.read(0, 256)
    sparse.touched(np.arange(512, dtype=np.int32), 256, np.zeros(2, np.bool_))
