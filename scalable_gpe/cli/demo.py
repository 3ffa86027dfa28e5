"""scalable-gpe demo: from generated points to a picture, out of core."""

from pathlib import Path
from typing import Any

from scalable_gpe.cli.commands import bars, one_or_many, show_result
from scalable_gpe.cli.console import PROGRAM, say, tell
from scalable_gpe.formatting import in_bytes


def demo(given: Any) -> None:
    """Embed the points of a torus, print the report and draw a picture."""
    import scalable_gpe as gpe
    from scalable_gpe.execution.workers import parse_bytes
    from scalable_gpe.io.files import check_target

    check_target(given.picture)
    points = given.out / f"torus-{given.points}.zarr"
    store = given.out / f"embedding-{given.points}.zarr"
    given.resumes = given.out
    _write_torus(points, given)
    sizes = {
        "n_components": given.n_components,
        "n_neighbors": given.n_neighbors,
        "power": one_or_many(given.power),
    }
    if given.memory_limit is None:
        given.memory_limit = max(10**9, int(1.2 * gpe.estimate(given.points, 16, **sizes)["smallest_limit"]))
    tell(given, f"embedding into {store}, memory_limit {in_bytes(parse_bytes(given.memory_limit) or 0)} ...")
    result = gpe.embed(
        points,
        **sizes,
        tol=1e-3,  # far below the sampling error of a few dimensions, and half the sweeps of 1e-4
        store=store,
        memory_limit=given.memory_limit,
        n_jobs=given.n_jobs,
        progress=bars(given),
    )
    show_result(given, result, str(store))
    _draw(given, result, points)
    tell(given, f"next: {PROGRAM} report {store} page.html writes a page to zoom into, with an audit (a minute or so)")


def _write_torus(path: Path, given: Any) -> None:
    """Generate the points block by block, unless they are there."""
    import shutil

    from scalable_gpe import datasets

    if path.exists():
        tell(given, f"points are there: {path}")
        return
    tell(given, f"writing {given.points:,} points of a torus in 16 dimensions to {path} ...")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    datasets.write(unfinished, datasets.torus, given.points, n_features=16, noise=0.02, dtype="float32")
    unfinished.rename(path)


def _draw(given: Any, result: Any, points: Path) -> None:
    """One picture of each power, coloured by the leading coordinate of the input; without matplotlib, a hint."""
    try:
        from scalable_gpe import plot

        figure = plot.powers(result, color=_leading_coordinate(points), color_label="leading coordinate of the input")
    except ImportError as error:
        say(f"{PROGRAM}: no picture: {error}")
        return
    figure.savefig(given.picture, dpi=110)
    tell(given, f"picture: {given.picture}")


def _leading_coordinate(path: Path) -> Any:
    import numpy as np

    from scalable_gpe.io.rows import open_rows

    rows = open_rows(path)
    sample = rows.sample()
    mean = sample.mean(axis=0)
    axis = np.linalg.svd(sample - mean, full_matrices=False)[2][0]
    return np.concatenate([(rows.read(*piece) - mean) @ axis for piece in rows.steps(0, rows.n_rows)])
