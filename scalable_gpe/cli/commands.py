"""What the commands do: each reads its input, calls the library once and prints the result."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalable_gpe.cli.console import caution, show_json, show_pairs, tell
from scalable_gpe.formatting import in_bytes, in_time, plain, report_lines


def embed(given: Any) -> None:
    """Embed the rows of a file into a store."""
    import scalable_gpe as gpe
    from scalable_gpe.storage.backends import is_url

    given.resumes = given.store
    options = {"key": given.key, "index": given.index, "storage_options": given.storage_options}
    points = None if given.input == "-" else gpe.read_points(given.input, **options)
    if points is not None and points.source != given.input:
        tell(given, f"points: {points.source}")
    result = gpe.embed(
        points,
        n_components=given.n_components,
        n_neighbors=given.n_neighbors,
        epsilon=given.epsilon,
        power=one_or_many(given.power),
        normalization=given.normalization,
        sketch=given.sketch,
        metric=given.metric,
        neighbors=_read_neighbors(given.neighbors_file),
        random_state=given.random_state,
        precision=given.precision,
        tol=given.tol,
        method=given.method,
        recall=given.recall,
        store=given.store,
        storage_options=given.storage_options if is_url(given.store) else None,
        memory_limit=given.memory_limit,
        n_jobs=given.n_jobs,
        resume=given.resume,
        progress=bars(given),
    )
    show_result(given, result, given.store)


def estimate(given: Any) -> None:
    """Say what a run will take."""
    import scalable_gpe as gpe

    plan = gpe.estimate(
        given.n_rows,
        given.n_features,
        n_neighbors=given.n_neighbors,
        n_components=given.n_components,
        power=one_or_many(given.power),
        memory_limit=given.memory_limit,
    )
    if given.json:
        show_json(plan)
        return
    show_pairs(
        f"{given.n_rows:,} rows x {given.n_features} columns to {given.n_components} dimensions",
        [
            ("memory", in_bytes(plan["memory"])),
            ("smallest --memory-limit", in_bytes(plan["smallest_limit"])),
            ("store on disk", in_bytes(plan["disk"])),
            ("sweeps over K", f"{plan['sweeps']} in {plan['panels']} panel{'s' * (plan['panels'] > 1)} of columns"),
            ("time, roughly", f"{in_time(plan['seconds'])} on two cores"),
        ],
    )


def _open(given: Any) -> Any:
    """The finished run of a store, with bars for what is done with it."""
    import scalable_gpe as gpe
    from scalable_gpe.execution.context import open_store
    from scalable_gpe.execution.progress import Progress
    from scalable_gpe.execution.workers import Workers

    store: Any = open_store(given.store, given.storage_options, read_only=True)
    if given.run_name is None and len(store.names("runs")) > 1:
        caution(f"{given.store} holds several runs: this is the latest. --run chooses, info lists them.", {})
    points = getattr(given, "input", None)
    result = gpe.open(given.store, points, run=given.run_name, storage_options=given.storage_options)
    result.graph.context.workers = Workers(progress=Progress(bars(given)))
    return result


def _made(given: Any, path: Any, result: Any) -> None:
    """Say what was written, and what was amiss with the run that it shows."""
    for text in result.report.get("warnings", []):
        caution(text, given.options)
    if given.json:
        print(json.dumps({"written": str(path)}))
    else:
        tell(given, f"written: {path}")


def _measure(given: Any, result: Any) -> Any:
    import scalable_gpe as gpe

    return gpe.audit(result, n_probes=given.n_probes, n_exact=given.n_exact, random_state=given.random_state)


def audit(given: Any) -> None:
    """Measure how exact an embedding is."""
    found = _measure(given, _open(given))
    if given.json:
        show_json(found)
    else:
        print(found)


def plot(given: Any) -> None:
    """Draw a run."""
    from scalable_gpe import plot
    from scalable_gpe.io.files import check_target

    if not Path(given.picture).suffix:
        given.picture += ".png"  # as matplotlib does
    check_target(given.picture)
    result = _open(given)
    if given.what not in ("powers", "scatter"):
        for option in ("color", "column", "components", "power"):
            if getattr(given, option) is not None:
                raise ValueError(f"--{option} is for --what powers and scatter; got --what {given.what}.")
    components = "principal" if given.components is None else tuple(given.components)
    what = "scatter" if given.what == "powers" and given.power is not None else given.what
    figure = PICTURES[what](plot, result, components, _colors(given), given)
    if given.title and what not in ("powers", "scatter"):
        (figure.axes[0].set_title if len(figure.axes) == 1 else figure.suptitle)(given.title)
    figure.savefig(given.picture, dpi=given.dpi)
    _made(given, given.picture, result)


def _draw_powers(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.powers(result, components=components, title=given.title, **colors)


def _draw_scatter(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.scatter(result, components=components, power=given.power, title=given.title, **colors).figure


def _draw_epsilon(plot: Any, result: Any, *_: Any) -> Any:
    from scalable_gpe.heat.bandwidth import epsilon_sweep

    return plot.epsilon_sweep(epsilon_sweep(result.graph), epsilon=result.kernel.epsilon).figure


def _draw_spectrum(plot: Any, result: Any, *_: Any) -> Any:
    from scalable_gpe.projection import powers_of
    from scalable_gpe.spectral.density import spectrum

    k, powers = result.parameters["n_components"], list(powers_of(result))
    return plot.spectrum(spectrum(result.heat), n_components=k, marks=powers).figure


def _draw_audit(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.audit(_measure(given, result))


PICTURES: dict[str, Callable[..., Any]] = {
    "powers": _draw_powers,
    "scatter": _draw_scatter,
    "epsilon": _draw_epsilon,
    "spectrum": _draw_spectrum,
    "audit": _draw_audit,
}


def _colors(given: Any) -> dict[str, Any]:
    """The column to colour by, and what to call it."""
    if given.color is None:
        if given.column is not None:
            raise ValueError("--column names a column of the file of --color, which was not given.")
        return {}
    from scalable_gpe.io.columns import read_column

    return {"color": read_column(given.color, given.column), "color_label": given.column or Path(given.color).stem}


def report(given: Any) -> None:
    """Write the page of a run."""
    import scalable_gpe as gpe
    from scalable_gpe.accuracy import LEAST_POINTS
    from scalable_gpe.html_report.page import check_path

    check_path(given.page)  # before the audit, which takes a while
    colors = _colors(given)
    result = _open(given)
    enough = result.graph.storage_order.n_points >= LEAST_POINTS
    found = _measure(given, result) if given.audit and enough else False
    _made(given, gpe.write_report(result, given.page, audit=found, **colors), result)


def export(given: Any) -> None:
    """Write an embedding for other tools."""
    import scalable_gpe as gpe

    how = {"power": given.power, "graph": given.graph, "overwrite": given.overwrite}
    result = _open(given)
    _made(given, gpe.export(result, given.out, **how), result)


def _read_neighbors(path: str | None) -> Any:
    if path is None:
        return None
    from scalable_gpe.io.distances import read_distances

    return read_distances(path)


def one_or_many(powers: list[Any]) -> Any:
    """What `power` is to be."""
    if "auto" in powers and len(powers) > 1:
        raise ValueError(f"--power is auto alone, or one or more numbers; got {plain(powers)}.")
    return powers[0] if len(powers) == 1 else powers


def show_result(given: Any, result: Any, store: str) -> None:
    """Print what a run measured."""
    if given.json:
        show_json({"store": store, "parameters": result.parameters, "report": result.report})
    elif not given.quiet:
        shape = f"{result.report['n_rows']:,} rows in {result.parameters['n_components']} dimensions"
        show_pairs(f"{shape}, in {store}", report_lines(result.report, result.parameters["memory_limit"]))


def bars(given: Any) -> Any:
    """What `progress` is to be."""
    return False if given.quiet else None
