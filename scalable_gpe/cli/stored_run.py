"""scalable-gpe audit, report, export and transform: what is done with a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalable_gpe.cli.command import caution, command, is_given, progress, say, show, tell
from scalable_gpe.cli.options import (
    AUDIT,
    COLOR,
    FILE,
    OVERWRITE,
    POINTS,
    RUN,
    VALUES_INDEX,
    Argument,
    count_or,
    number_or_word,
    option,
    switch_off,
    take,
)

if TYPE_CHECKING:
    from scalable_gpe.accuracy import Audit
    from scalable_gpe.embedding import Embedding
    from scalable_gpe.io.points import Points
    from scalable_gpe.storage.backends import StorageOptions

from typing import TYPE_CHECKING

from scalable_gpe.cli.options import count, several

if TYPE_CHECKING:
    from scalable_gpe.embedding import Embedding


def open_run(
    store: str,
    storage_options: "StorageOptions | None" = None,
    run: str | None = None,
    points: "Points | None" = None,
) -> "Embedding":
    """Open a finished run of a store; later work on it shows progress bars."""
    import scalable_gpe as gpe
    from scalable_gpe.storage.zarr_store import ZarrStore

    if run is None and len(ZarrStore(store, read_only=True, storage_options=storage_options).names("runs")) > 1:
        caution(f"{store} holds several runs; this is the latest. --run chooses another, info lists them.")
    return gpe.open(store, points, run=run, storage_options=storage_options, progress=progress())


def measure(result: "Embedding", *, n_exact: int, **given: Any) -> "Audit":
    """Audit an embedding; say so first, as it may take longer than the embedding."""
    import scalable_gpe as gpe

    if not is_given("quiet"):
        say(f"comparing {n_exact} rows with exact diffusion distances; fewer (--n-exact) take less time ...")
    return gpe.audit(result, n_exact=n_exact, **given)


def read_colors(
    result: "Embedding", color: str | None = None, column: str | None = None, index: str | None = None
) -> dict[str, Any]:
    """Read a column of a file: the arguments `color` and `color_label` of pictures."""
    if color is not None:
        return {"color": read_values(result, color, column, index), "color_label": column or Path(color).stem}
    for name, value in (("column", column), ("index", index)):
        if value is not None:
            raise ValueError(f"--{name} names a column of the file of --color, which was not given.")
    return {}


def read_values(result: "Embedding", path: str, column: str | None, index: str | None, **reading: Any) -> Any:
    """Read one value for each row of an embedding, with their names where the file has them; say which."""
    from scalable_gpe.io.columns import read_row_values

    values, remark = read_row_values(path, column, result.names, index, **reading)
    if remark is not None:
        tell(f"{path}: {remark}")
    return values


def show_written(path: Path) -> None:
    """Print what was written."""
    tell(f"written: {path}", {"written": str(path)})


@command(
    *RUN,
    *AUDIT,
    *POINTS,
    option("x --input", "FILE", "the points, for a run that was computed from neighbours alone", type=FILE),
    examples=("scalable-gpe audit run.zarr", "scalable-gpe audit run.zarr --json > audit.json"),
)
def audit(x: str | None = None, **given: Any) -> None:
    """Measure how accurate the embedding of a store is, with 95 % intervals."""
    import scalable_gpe as gpe

    run, reading = take(given, RUN), take(given, POINTS)
    points = None if x is None else gpe.read_points(x, storage_options=run.get("storage_options"), **reading)
    figures = measure(open_run(**run, points=points), **given)
    show(str(figures), figures)


@command(
    *RUN,
    Argument("path", "PAGE", "the page, such as page.html"),
    *COLOR,
    *AUDIT,
    switch_off("audit", "skip the audit, which takes most of the time"),
    examples=(
        "scalable-gpe report run.zarr page.html",
        "scalable-gpe report run.zarr page.html --color labels.csv --column kind --no-audit",
    ),
)
def report(path: str, audit: bool, **given: Any) -> None:
    """Write one HTML page about a run, which needs no network: report, audit, spectrum, interactive picture."""
    import scalable_gpe as gpe
    from scalable_gpe.accuracy import LEAST_POINTS
    from scalable_gpe.plot.pages import check_path

    check_path(path)  # before the audit, which takes a while
    result = open_run(**take(given, RUN))
    colors = read_colors(result, **take(given, COLOR))
    enough = result.graph.storage_order.n_points >= LEAST_POINTS
    figures = measure(result, **given) if audit and enough else False
    show_written(gpe.write_report(result, path, audit=figures, **colors))


@command(
    *RUN,
    Argument("path", "OUT", "the file; its ending chooses the format: .h5ad, .zarr, .npy, .parquet or .csv"),
    option("--power", "P", "which power of several (all, or the largest; AnnData: each)", type=count_or("all")),
    switch_off("graph", "leave out distances and connectivities"),
    OVERWRITE,
    examples=(
        "scalable-gpe export run.zarr cells.h5ad    # obsm X_gpe, obsp distances and connectivities, for scanpy",
        "scalable-gpe export run.zarr embedding.npy --power 64",
    ),
)
def export(path: str, **given: Any) -> None:
    """Write the embedding of a store for other tools: AnnData (.h5ad, .zarr), .npy, .parquet or .csv."""
    import scalable_gpe as gpe

    show_written(gpe.export(open_run(**take(given, RUN)), path, **given))


@command(
    *RUN,
    Argument("labels", "LABELS", "labels of the rows, by name or in their order: .npy, .csv, .parquet or .h5ad"),
    Argument("path", "OUT", "the file for the probabilities: .npy, .parquet or .csv"),
    option("--column", "NAME", "which column of LABELS (.npy: its number; .h5ad: a column of obs)"),
    VALUES_INDEX,
    option("--method", "NAME", "spreading, harmonic or poisson (spreading)"),
    option("--horizon", "T", "average steps of a walk, for spreading (100)", type=number_or_word),
    option("--tol", "T", "relative error of the solution (1e-5 for spreading, 1e-6 for others)", type=number_or_word),
    OVERWRITE,
    resumes="store",
    examples=(
        "scalable-gpe propagate run.zarr labels.npy probabilities.npy    # labels of -1 are unknown",
        "scalable-gpe propagate run.zarr cells.h5ad types.parquet --column cell_type --method poisson",
    ),
)
def propagate(
    labels: str, path: str, overwrite: bool, column: str | None = None, index: str | None = None, **given: Any
) -> None:
    """Write class probabilities of all rows of a store, from the labels of some: .npy, .parquet or .csv."""
    from scalable_gpe.exports import export_probabilities, row_labels
    from scalable_gpe.io.files import check_target

    check_target(path)
    run = take(given, RUN)
    result = open_run(**run)
    values = read_values(result, labels, column, index, missing="")
    options = run.get("storage_options")
    propagation = result.propagate(values, store=run["store"], storage_options=options, **given)
    written = export_probabilities(propagation, path, row_labels(result), overwrite=overwrite)
    about = {"classes": [str(one) for one in propagation.classes], "n_unreached": propagation.n_unreached}
    about |= {"iterations": propagation.iterations, "residual": propagation.residual}
    tell(f"written: {written}", {"written": str(written), **about})


@command(
    *RUN,
    Argument("x", "INPUT", "new rows: .npy, .zarr, .csv, .tsv, .parquet or .h5ad"),
    Argument("path", "OUT", "the file for their embedding: .npy, .parquet or .csv"),
    *POINTS,
    option("--power", "P", "which power of several (all, or the largest)", type=count_or("all")),
    option("--missing", "NAME", "drop rows with missing values (error)", type=click.Choice(["error", "drop"])),
    OVERWRITE,
    examples=(
        "scalable-gpe transform run.zarr new.npy placed.npy",
        "scalable-gpe transform run.zarr new.csv placed.csv --index name",
    ),
)
def transform(x: str, path: str, **given: Any) -> None:
    """Embed new rows among those of a store, some at a time, and write their embedding: .npy, .parquet or .csv."""
    from scalable_gpe.checks import NotFiniteError
    from scalable_gpe.exports import export_transformed
    from scalable_gpe.io.files import check_target, read_features

    check_target(path)  # before a table is converted, which takes a while
    run, reading = take(given, RUN), take(given, POINTS)
    result = open_run(**run)
    names = [] if result.feature_names is None else result.feature_names.tolist()
    points = read_features(x, names, storage_options=run.get("storage_options"), **reading)
    try:
        show_written(export_transformed(result, points, path, **given))
    except NotFiniteError as error:
        raise ValueError(f"{error} missing='drop' leaves out those with NaN.") from None


# --- picture --------------------------------------------------------------------------------------

Axes = Any  # matplotlib has no types
_PICTURES = ("powers", "scatter", "epsilon", "spectrum", "audit")
_OF_POINTS = (
    *COLOR,
    several("--components", "C", "two columns (the principal axes)", type=click.IntRange(min=0)),
    option("--power", "P", "one power only (powers: each; scatter: all, or the largest)", type=count_or("all")),
    option("--max-labels", "L", "keep the L most frequent labels and join the others", type=count),
)


@command(
    *RUN,
    Argument("path", "OUT", "the picture: .png, .pdf, .svg or another format of matplotlib"),
    option("--what", "NAME", f"{', '.join(_PICTURES)} (powers)", type=click.Choice(_PICTURES), default="powers"),
    *_OF_POINTS,
    option("--theme", "NAME", "light or dark background (light)", type=click.Choice(["light", "dark"])),
    option("--title", "TITLE", "title of the picture"),
    option("--dpi", "DPI", "dots per inch (120)", type=count, default=120),
    *AUDIT,
    examples=(
        "scalable-gpe plot run.zarr picture.png",
        "scalable-gpe plot run.zarr picture.pdf --what scatter --components 0 1 --power 256",
        "scalable-gpe plot run.zarr picture.png --color labels.csv --column kind",
        "scalable-gpe plot run.zarr epsilon.png --what epsilon",
    ),
)
def plot(path: str, what: str, dpi: int, theme: str = "light", title: str | None = None, **given: Any) -> None:
    """Draw a run: the embedding, the choice of epsilon, the spectrum or the audit."""
    from scalable_gpe.io.files import check_target

    target = Path(path)
    target = target if target.suffix else target.with_name(f"{target.name}.png")  # as matplotlib does
    check_target(target)
    run, sizes = take(given, RUN), take(given, AUDIT)
    if what in ("powers", "scatter"):
        result = open_run(**run)
        colors = read_colors(result, **take(given, COLOR))
        figure = _figure(_draw_points(what, result, theme=theme, title=title, **given, **colors))
    else:
        if name := next(iter(given), ""):
            raise ValueError(f"--{name.replace('_', '-')} is for --what powers and scatter; got --what {what}.")
        result = open_run(**run)
        figure = _figure(_draw_diagnostic(what, result, sizes))
        if title:
            (figure.axes[0].set_title if len(figure.axes) == 1 else figure.suptitle)(title)
    figure.savefig(target, dpi=dpi)
    show_written(target)


def _figure(axes: Axes) -> Any:
    import numpy as np

    return np.ravel(axes)[0].figure


def _draw_points(
    what: str, result: "Embedding", *, power: int | str | None = None, components: Any = "principal", **options: Any
) -> Axes:
    from scalable_gpe import plot

    if what == "powers" and power is None:
        return plot.powers(result, components=components, **options)
    return plot.scatter(result, components=components, power=power, **options)


def _draw_diagnostic(what: str, result: "Embedding", sizes: dict[str, int]) -> Axes:
    from scalable_gpe import epsilon_sweep, plot, spectrum

    if what == "epsilon":
        return plot.epsilon_sweep(epsilon_sweep(result.graph), epsilon=result.kernel.epsilon)
    if what == "audit":
        return plot.audit(measure(result, **sizes))
    k, powers = result.parameters["n_components"], [one for one in result.by_power if isinstance(one, int)]
    return plot.spectrum(spectrum(result.heat), n_components=k, marks=powers)
