"""scalable-gpe audit, report, export and transform: what is done with a finished run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.console import caution, say, show, show_json, tell
from scalable_gpe.cli.options import (
    AuditOptions,
    ColorOptions,
    ExportOptions,
    PlotOptions,
    ReportOptions,
    RunOptions,
    TransformOptions,
)
from scalable_gpe.cli.points import read_points
from scalable_gpe.cli.store_info import open_run

if TYPE_CHECKING:
    import numpy as np

    from scalable_gpe.accuracy import Audit
    from scalable_gpe.embedding import Embedding


def audit(options: AuditOptions) -> None:
    """Measure how accurate an embedding is."""
    points = None if options.input is None else read_points(options.input, options, options.storage_options)
    found = measure(options, open_run(options, points))
    if options.json:
        show_json(found)
    else:
        show(str(found))


def measure(options: AuditOptions | PlotOptions | ReportOptions, result: "Embedding") -> "Audit":
    """Audit an embedding with the sizes of the options; say so first, as it may take longer than the embedding."""
    import scalable_gpe as gpe

    if options.progress is not False:
        say(f"comparing {options.n_exact} rows with exact diffusion distances; fewer (--n-exact) take less time ...")
    return gpe.audit(result, n_probes=options.n_probes, n_exact=options.n_exact, random_state=options.random_state)


def report(options: ReportOptions) -> None:
    """Write the page of a run."""
    import scalable_gpe as gpe
    from scalable_gpe.accuracy import LEAST_POINTS
    from scalable_gpe.plot.document import check_path

    check_path(options.page)  # before the audit, which takes a while
    colors = read_colors(options)
    result = open_run(options)
    enough = result.graph.storage_order.n_points >= LEAST_POINTS
    found = measure(options, result) if options.audit and enough else False
    path = gpe.write_report(result, options.page, audit=found, color=colors.values, color_label=colors.label)
    show_written(options, path, result)


def export(options: ExportOptions) -> None:
    """Write an embedding for other tools."""
    import scalable_gpe as gpe

    result = open_run(options)
    path = gpe.export(result, options.out, power=options.power, graph=options.graph, overwrite=options.overwrite)
    show_written(options, path, result)


def transform(options: TransformOptions) -> None:
    """Place new rows among those of a run."""
    from scalable_gpe.exports import export_transformed
    from scalable_gpe.io.files import check_target

    check_target(options.out)  # before a table is converted, which takes a while
    points = read_points(options.input, options, options.storage_options)
    result = open_run(options)
    path = export_transformed(result, points, options.out, power=options.power, overwrite=options.overwrite)
    show_written(options, path, result)


def show_written(options: RunOptions, path: Path, result: "Embedding") -> None:
    """Print what was written, and the warnings of the run as its report holds them."""
    for text in result.report.get("warnings", []):
        caution(text)
    if options.json:
        show_json({"written": str(path)}, indent=None)
    else:
        tell(options, f"written: {path}")


@dataclass(frozen=True)
class Colors:
    """One value for each row, and the name of the column."""

    values: "np.ndarray[Any, Any] | None" = None
    label: str = ""


def read_colors(options: ColorOptions) -> Colors:
    """Read the column that the options name."""
    from scalable_gpe.io.columns import read_column

    if options.color is not None:
        return Colors(read_column(options.color, options.column), options.column or Path(options.color).stem)
    if options.column is not None:
        raise ValueError("--column names a column of the file of --color, which was not given.")
    return Colors()
