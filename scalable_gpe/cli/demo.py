"""scalable-gpe demo: from generated points to a picture, out of core."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.console import PROGRAM, say, tell
from scalable_gpe.cli.new_run import show_result
from scalable_gpe.cli.options import DemoOptions
from scalable_gpe.formatting import in_bytes

if TYPE_CHECKING:
    import numpy as np

    from scalable_gpe.embedding import Embedding

_N_FEATURES = 30
_SEED = 5


def demo(options: DemoOptions) -> None:
    """Embed a cycle with branches that no plane shows, print the report and draw a picture."""
    import scalable_gpe as gpe
    from scalable_gpe.io.files import check_target

    check_target(options.picture)
    points = options.out / f"branches-{options.points}.zarr"
    store = options.out / f"embedding-{options.points}.zarr"
    _write_points(points, options)
    memory_limit = _memory_limit(options)
    tell(options, f"embedding into {store}, --memory-limit {in_bytes(memory_limit)} ...")
    result = gpe.embed(
        points,
        n_components=options.n_components,
        n_neighbors=options.n_neighbors,
        power=options.one_or_several_powers,
        horizon=options.horizon,
        n_sketch=options.n_sketch,
        store=store,
        memory_limit=memory_limit,
        n_jobs=options.n_jobs,
        progress=options.progress,
    )
    show_result(options, result, str(store))
    _draw(options, result, points)
    tell(
        options,
        "next:\n"
        f"  {PROGRAM} report {store} page.html         one page about this run, with a picture to zoom into\n"
        f"  {PROGRAM} audit {store}                    how accurate it is\n"
        f"  {PROGRAM} embed your-points.npy run.zarr   your own points: .npy, .zarr, .csv, .parquet, .h5ad",
    )


def _memory_limit(options: DemoOptions) -> int:
    """The limit that was given, or 1 GB, or what this many points need."""
    import scalable_gpe as gpe
    from scalable_gpe.execution.memory_plan import parse_bytes

    given = parse_bytes(options.memory_limit)
    if given is not None:
        return given
    plan = gpe.estimate(
        options.points,
        _N_FEATURES,
        n_components=options.n_components,
        n_neighbors=options.n_neighbors,
        power=options.one_or_several_powers,
        horizon=options.horizon,
        n_sketch=options.n_sketch,
    )
    return int(max(10**9, 1.2 * plan["smallest_limit"]))


def _write_points(path: Path, options: DemoOptions) -> None:
    """Generate the points block by block, unless they exist."""
    from scalable_gpe import datasets

    if path.exists():
        tell(options, f"points exist: {path}")
        return
    tell(options, f"writing {options.points:,} points in {_N_FEATURES} dimensions to {path} ...")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    datasets.write(unfinished, datasets.branches, options.points, n_features=_N_FEATURES, random_state=_SEED)
    unfinished.rename(path)


def _draw(options: DemoOptions, result: "Embedding", points: Path) -> None:
    """Draw the points before and after; without matplotlib, print a hint."""
    from scalable_gpe import datasets

    parts, truth = datasets.branches_truth(options.points, _N_FEATURES, random_state=_SEED)
    try:
        figure = _picture(result, _principal_plane(points), parts, truth)
    except ImportError as error:
        say(f"{PROGRAM}: no picture: {error}")
        return
    figure.savefig(options.picture, dpi=110)
    tell(options, f"picture: {options.picture}")


def _picture(result: "Embedding", plane: "np.ndarray[Any, Any]", parts: Any, truth: "np.ndarray[Any, Any]") -> Any:
    """The plane of the data, that of the embedding at each power, and of all scales the pseudotime."""
    from scalable_gpe import plot
    from scalable_gpe.formatting import power_title
    from scalable_gpe.plot.figures import new_figure

    powers = result.by_power
    n_panels = 1 + len(powers) + ("all" in powers)
    figure = new_figure(4.3 * n_panels + 1.2, 4.4)
    first, *others = figure.subplots(1, n_panels)
    title = f"{len(plane):,} points: two principal components"
    plot.scatter(plane, color=parts, title=title, legend=False, ax=first)
    for ax, power in zip(others, powers, strict=False):
        title = f"the embedding: {power_title(power)}"
        plot.scatter(result, power=power, color=parts, title=title, legend=power == next(iter(powers)), ax=ax)
    if "all" in powers:
        time, _ = result.pseudotime(int(truth.argmin()))
        title, ax = "pseudotime, from the exit of the cycle", others[-1]
        plot.scatter(result, power="all", color=time, color_label="pseudotime", title=title, ax=ax)
    return figure


def _principal_plane(path: Path) -> "np.ndarray[Any, Any]":
    """Project the points on the two leading principal axes of a sample."""
    import numpy as np

    from scalable_gpe.io.rows import open_rows

    rows = open_rows(path)
    sample = rows.sample()
    mean = sample.mean(axis=0)
    axes = np.linalg.svd(sample - mean, full_matrices=False)[2][:2]
    return np.concatenate([(rows.read(*piece) - mean) @ axes.T for piece in rows.steps(0, rows.n_rows)])
