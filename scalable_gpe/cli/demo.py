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

_N_FEATURES = 16


def demo(options: DemoOptions) -> None:
    """Embed the points of a torus, print the report and draw a picture."""
    import scalable_gpe as gpe
    from scalable_gpe.io.files import check_target

    check_target(options.picture)
    points = options.out / f"torus-{options.points}.zarr"
    store = options.out / f"embedding-{options.points}.zarr"
    _write_torus(points, options)
    memory_limit = _memory_limit(options)
    tell(options, f"embedding into {store}, --memory-limit {in_bytes(memory_limit)} ...")
    result = gpe.embed(
        points,
        n_components=options.n_components,
        n_neighbors=options.n_neighbors,
        power=options.one_or_several_powers,
        tol=1e-3,  # far below the sampling error of a few dimensions, and half the sweeps of 1e-4
        store=store,
        memory_limit=memory_limit,
        n_jobs=options.n_jobs,
        progress=options.progress,
    )
    show_result(options, result, str(store))
    _draw(options, result, points)
    tell(options, f"next: {PROGRAM} report {store} page.html writes an interactive page with an audit (about a minute)")


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
    )
    return int(max(10**9, 1.2 * plan["smallest_limit"]))


def _write_torus(path: Path, options: DemoOptions) -> None:
    """Generate the points block by block, unless they exist."""
    from scalable_gpe import datasets

    if path.exists():
        tell(options, f"points exist: {path}")
        return
    tell(options, f"writing {options.points:,} points of a torus in {_N_FEATURES} dimensions to {path} ...")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    datasets.write(unfinished, datasets.torus, options.points, n_features=_N_FEATURES, noise=0.02, dtype="float32")
    unfinished.rename(path)


def _draw(options: DemoOptions, result: "Embedding", points: Path) -> None:
    """Draw each power, coloured by the leading coordinate of the input; without matplotlib, print a hint."""
    try:
        from scalable_gpe import plot

        figure = plot.powers(result, color=_leading_coordinate(points), color_label="leading coordinate of the input")
    except ImportError as error:
        say(f"{PROGRAM}: no picture: {error}")
        return
    figure.savefig(options.picture, dpi=110)
    tell(options, f"picture: {options.picture}")


def _leading_coordinate(path: Path) -> "np.ndarray[Any, Any]":
    """Project the points on the leading principal axis of a sample."""
    import numpy as np

    from scalable_gpe.io.rows import open_rows

    rows = open_rows(path)
    sample = rows.sample()
    mean = sample.mean(axis=0)
    axis = np.linalg.svd(sample - mean, full_matrices=False)[2][0]
    return np.concatenate([(rows.read(*piece) - mean) @ axis for piece in rows.steps(0, rows.n_rows)])
