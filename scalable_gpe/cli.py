"""The command line: scalable-gpe embed | estimate | info | audit | plot | report | export | demo."""

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalable_gpe import __version__
from scalable_gpe.words import in_bytes, in_time, plain, report_lines

PROGRAM = "scalable-gpe"

_EXAMPLES = """\
examples:
  scalable-gpe demo                                          points, embedding, report and picture
  scalable-gpe embed points.npy run.zarr                     with defaults, through a store
  scalable-gpe embed table.csv run.zarr --index name         row names are kept with the embedding
  scalable-gpe embed cells.h5ad run.zarr --key obsm/X_pca --power 16 64 256 --memory-limit 2GB
  scalable-gpe embed s3://bucket/points.zarr s3://bucket/run.zarr --storage-options '{"profile": "mine"}'
  scalable-gpe info run.zarr                                 parameters, stages, sizes, report
  scalable-gpe audit run.zarr                                how exact is it
  scalable-gpe plot run.zarr picture.png                     the embedding at each power
  scalable-gpe report run.zarr page.html                     all of this on one page
  scalable-gpe export run.zarr cells.h5ad                    for scanpy; also .zarr, .npy, .parquet
  scalable-gpe estimate 100_000_000 16 --memory-limit 8GB    before you start

An interrupted run goes on where it stopped when the same command is given again.
exit status: 0 done, 1 an error (one line says which), 2 a wrong command line, 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status says how it ended."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        with _plain_warnings():
            given.run(given)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        _say(f"{PROGRAM}: interrupted. {given.resume_hint}{_again(given, arguments)}")
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if given.debug:
            raise
        known = isinstance(error, ValueError | TypeError | OSError | ImportError)
        text = " ".join(str(error).split())
        _say(f"{PROGRAM}: error: {text if known and text else f'{type(error).__name__}: {text} (--debug shows where)'}")
        return 1


# --- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Gaussian process embeddings: coordinates whose straight-line distances approximate the diffusion "
        "distance of the data.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_embed, _add_estimate, _add_info, _add_audit, _add_plot, _add_report, _add_export, _add_demo):
        add(commands)
    return parser


def _command(commands: Any, name: str, run: Callable[[Any], None], help: str, *examples: str) -> Any:
    command = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:].replace("%%", "%") + ".",
        epilog="\n  ".join([f"example{'s' * (len(examples) > 1)}:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run, resume_hint="Nothing was left behind.")
    command.add_argument("-q", "--quiet", action="store_true", help="no progress bars, no report")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--debug", action="store_true", help="show where an error comes from")
    return command


def _add_embed(commands: Any) -> None:
    command = _command(
        commands,
        "embed",
        _embed,
        "embed the rows of a file into a store, in bounded memory, going on where an earlier call stopped",
        "scalable-gpe embed points.npy run.zarr --components 32 --power 16 64 --memory-limit 2GB",
        "scalable-gpe embed table.csv run.zarr --index name",
        "scalable-gpe embed cells.h5ad run.zarr --key obsm/X_pca",
        "scalable-gpe embed - run.zarr --neighbors-file lists.npz",
    )
    command.add_argument(
        "input",
        metavar="INPUT",
        help="points: .npy, .zarr, .csv, .tsv, .parquet or .h5ad; - for none (--neighbors-file)",
    )
    command.add_argument("store", metavar="STORE", help="a zarr store (path or URL), made when it is not there")
    add = command.add_argument
    add("--key", help="array of an .h5ad or .zarr file (obsm/X_pca if there, else X); list column of a .parquet file")
    add("--index", metavar="COLUMN", help="column of a .csv or .parquet file that holds the names of the rows")
    _add_sizes(command)
    add(
        "--epsilon",
        type=_number_or_text,
        default="auto",
        metavar="E",
        help="bandwidth: a number, auto, global, local or bgh",
    )
    add("--normalization", default="bistochastic", metavar="NAME", help="bistochastic or symmetric (bistochastic)")
    add("--sketch", default="gaussian", metavar="NAME", help="gaussian or bernoulli (gaussian)")
    add("--metric", default="euclidean", metavar="NAME", help="euclidean or cosine (euclidean)")
    add(
        "--neighbors-file",
        metavar="FILE",
        help="neighbours in place of a search: scipy sparse .npz of distances, or .h5ad",
    )
    add("--random-state", type=int, default=0, metavar="SEED", help="seed of everything random (0)")
    add("--precision", default="single", metavar="NAME", help="single or double (single)")
    add("--tol", type=float, default=1e-4, metavar="T", help="error of distances left to the polynomial (1e-4)")
    add("--method", default="auto", metavar="NAME", help="auto, kdtree, brute, cells or pynndescent (auto)")
    add("--recall", type=float, default=0.95, metavar="R", help="share of true neighbours to aim at (0.95)")
    _add_options(command)
    add("--n-jobs", type=int, metavar="J", help="threads (all cores)")
    add("--no-resume", dest="resume", action="store_false", help="start over: forget what the store holds")


def _add_options(command: Any) -> None:
    command.add_argument(
        "--storage-options",
        type=_options,
        metavar="JSON",
        help='how to reach URLs, as fsspec wants it: {"endpoint_url": "..."}',
    )


def _add_sizes(command: Any, components: int = 16, power: tuple[int, ...] = (16,)) -> None:
    shown = " ".join(map(str, power))
    add = command.add_argument
    add("-k", "--components", type=_count, default=components, metavar="K", help=f"dimensions ({components})")
    add("--neighbors", type=_count, metavar="M", help="neighbours of each row (32)")
    add("--power", type=_power, nargs="+", default=list(power), metavar="P", help=f"powers of A, or auto ({shown})")
    add("--memory-limit", metavar="BYTES", help="resident memory of the process, such as 2GB")


def _add_estimate(commands: Any) -> None:
    command = _command(
        commands,
        "estimate",
        _estimate,
        "say what a run through a store will take, before it starts",
        "scalable-gpe estimate 100_000_000 16 --memory-limit 8GB",
    )
    command.add_argument("n_rows", type=_count, metavar="N", help="rows")
    command.add_argument("n_features", type=_count, metavar="D", help="columns")
    _add_sizes(command)


def _add_info(commands: Any) -> None:
    command = _command(
        commands,
        "info",
        _info,
        "say what a store holds: parameters, finished stages, sizes, reports",
        "scalable-gpe info run.zarr --json",
    )
    command.add_argument("store", metavar="STORE", help="a zarr store: a path or URL")
    _add_options(command)
    command.add_argument("--verify", action="store_true", help="read every chunk and name any damage (exit code 1)")


def _add_store(command: Any) -> None:
    command.add_argument("store", metavar="STORE", help="the store of a finished run: a path or URL")
    _add_options(command)


def _add_audit(commands: Any) -> None:
    command = _command(
        commands,
        "audit",
        _audit,
        "measure how exact the embedding of a store is, with 95 %% intervals",
        "scalable-gpe audit run.zarr",
        "scalable-gpe audit run.zarr --json > audit.json",
    )
    _add_store(command)
    _add_audit_sizes(command)
    command.add_argument("--input", metavar="FILE", help="the points, where the run was made from neighbours alone")


def _add_audit_sizes(command: Any) -> None:
    add = command.add_argument
    add("--probes", type=_count, default=1000, metavar="N", help="rows whose neighbours are searched exactly (1000)")
    add("--exact", type=_count, default=32, metavar="N", help="rows whose diffusion distances are computed (32)")
    add("--random-state", type=int, default=0, metavar="SEED", help="seed of the samples (0)")


def _add_plot(commands: Any) -> None:
    command = _command(
        commands,
        "plot",
        _plot,
        "draw a run: the embedding, the choice of epsilon, the spectrum or the audit",
        "scalable-gpe plot run.zarr picture.png",
        "scalable-gpe plot run.zarr picture.pdf --what scatter --components 0 1 2 --power 256",
        "scalable-gpe plot run.zarr picture.png --color labels.csv --column kind",
        "scalable-gpe plot run.zarr epsilon.png --what epsilon",
    )
    _add_store(command)
    add = command.add_argument
    add("picture", metavar="OUT", help="the picture: .png, .pdf, .svg or what else matplotlib writes")
    add("--what", choices=list(_PICTURES), default="powers", help="what to draw (powers: the embedding at each power)")
    add("--components", type=_whole, nargs="+", metavar="C", help="two or three columns (the principal axes)")
    add("--power", type=_count, metavar="P", help="one power only (powers: all; scatter: the largest)")
    _add_color(command)
    add("--title", help="title of the picture")
    add("--dpi", type=_count, default=120, help="dots per inch (120)")
    _add_audit_sizes(command)


def _add_color(command: Any) -> None:
    add = command.add_argument
    add("--color", metavar="FILE", help="colours: a column of a .npy, .csv, .parquet or .h5ad file, in the rows' order")
    add("--column", metavar="NAME", help="which column of that file (of .npy its number, of .h5ad one of obs)")


def _add_report(commands: Any) -> None:
    command = _command(
        commands,
        "report",
        _report,
        "write one page (HTML, no network needed) about a run: figures, audit, spectrum, pictures to zoom into",
        "scalable-gpe report run.zarr page.html",
        "scalable-gpe report run.zarr page.html --color labels.csv --column kind --no-audit",
    )
    _add_store(command)
    add = command.add_argument
    add("page", metavar="PAGE", help="the page, such as page.html")
    _add_color(command)
    add("--no-audit", dest="audit", action="store_false", help="leave the audit out: it takes most of the time")
    _add_audit_sizes(command)


def _add_export(commands: Any) -> None:
    command = _command(
        commands,
        "export",
        _export,
        "write the embedding of a store for other tools: AnnData (.h5ad, .zarr), .npy or .parquet",
        "scalable-gpe export run.zarr cells.h5ad        # obsm X_gpe, obsp distances and connectivities, for scanpy",
        "scalable-gpe export run.zarr embedding.npy --power 64",
    )
    _add_store(command)
    add = command.add_argument
    add("out", metavar="OUT", help="the file, by its ending: .h5ad, .zarr, .npy or .parquet")
    add("--power", type=_count, metavar="P", help="which power of several (the largest; AnnData: all)")
    add("--no-graph", dest="graph", action="store_false", help="leave distances and connectivities out")
    add("--overwrite", action="store_true", help="replace what stands at OUT")


def _add_demo(commands: Any) -> None:
    command = _command(
        commands,
        "demo",
        _demo,
        "embed generated points out of core, print the report and draw a picture",
        "scalable-gpe demo --points 1_000_000 --out /tmp/gpe-demo",
    )
    add = command.add_argument
    add("--points", type=_count, default=200_000, metavar="N", help="points of a torus in 16 dimensions (200,000)")
    add("--out", type=Path, default=Path("gpe-demo"), metavar="DIR", help="where points and store go (./gpe-demo)")
    add("--picture", type=Path, default=Path("gpe-demo.png"), metavar="FILE", help="the picture (./gpe-demo.png)")
    add("--n-jobs", type=int, metavar="J", help="threads (all cores)")
    _add_sizes(command, power=(64, 512, 4096))


def _count(text: str) -> int:
    value = float(text) if "e" in text.lower() else int(text)
    if value != int(value) or value < 1:
        raise ValueError(text)
    return int(value)


_count.__name__ = "positive whole number"


def _options(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


_options.__name__ = "JSON object"


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else _count(text)


_whole.__name__ = "whole number"


def _power(text: str) -> int | str:
    return text if text == "auto" else _count(text)


_power.__name__ = "positive whole number (or auto)"


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# --- commands -------------------------------------------------------------------------------------


def _embed(given: Any) -> None:
    import scalable_gpe as gpe
    from scalable_gpe.engine.place import is_url

    given.resume_hint = _how_to_resume(given.store)
    options = {"key": given.key, "index": given.index, "storage_options": given.storage_options}
    points = None if given.input == "-" else gpe.read_points(given.input, **options)
    if points is not None and points.source != given.input:
        _tell(given, f"points: {points.source}")
    result = gpe.embed(
        points,
        n_components=given.components,
        n_neighbors=given.neighbors,
        epsilon=given.epsilon,
        power=_one_or_many(given.power),
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
        progress=_progress(given),
    )
    _show_result(given, result, given.store)


def _estimate(given: Any) -> None:
    import scalable_gpe as gpe

    plan = gpe.estimate(
        given.n_rows,
        given.n_features,
        n_neighbors=given.neighbors,
        n_components=given.components,
        power=_one_or_many(given.power),
        memory_limit=given.memory_limit,
    )
    if given.json:
        print(json.dumps(plan, indent=2))
        return
    _print_pairs(
        f"{given.n_rows:,} rows x {given.n_features} columns to {given.components} dimensions",
        [
            ("memory", in_bytes(plan["memory"])),
            ("smallest memory_limit", in_bytes(plan["smallest_limit"])),
            ("store on disk", in_bytes(plan["disk"])),
            ("sweeps over K", f"{plan['sweeps']} in {plan['panels']} panel{'s' * (plan['panels'] > 1)} of columns"),
            ("time, roughly", f"{in_time(plan['seconds'])} on two cores"),
        ],
    )


def _info(given: Any) -> None:
    from scalable_gpe.engine.run import open_home

    if given.verify:
        _verify(given)
        return
    home: Any = open_home(given.store, given.storage_options, read_only=True)
    runs = [_describe_run(home, name, facts) for name in home.names("runs") if (facts := home.record(f"runs/{name}"))]
    runs.sort(key=lambda run: (run["report"] or {}).get("finished_at", 0))
    sizes = home.sizes()
    if given.json:
        print(json.dumps({"store": str(given.store), "bytes": sizes, "runs": runs}, indent=2))
        return
    _print_pairs(f"store {given.store}", [(name, in_bytes(size)) for name, size in sizes.items()])
    for run in runs:
        parameters = [(name, plain(value)) for name, value in run["parameters"].items() if name != "powers"]
        _print_pairs(f"run {run['name']}: {'finished' if run['finished'] else 'unfinished'}", parameters)
        _print_pairs("stages", [(stage, "done" if done else "to do") for stage, done in run["stages"].items()])
        if run["report"]:
            _print_pairs("report", report_lines(run["report"], run["parameters"].get("memory_limit")))
    if not runs:
        print("no run was finished here: give its embed command again, and it goes on from what there is")


def _verify(given: Any) -> None:
    """Read everything; what is damaged loses its mark, so that the next run makes it again."""
    from scalable_gpe.engine.errors import StoreError
    from scalable_gpe.engine.store import Store

    Store(given.store, read_only=True, storage_options=given.storage_options)
    store = Store(given.store, storage_options=given.storage_options)
    store.lock()
    try:
        damage = store.verify()
        for array, what in damage:
            store.repair(array, what)
    finally:
        store.unlock()
    if given.json:
        print(json.dumps([{"array": array, "damage": what} for array, what in damage], indent=2))
    for array, what in damage if not given.json else []:
        print(f"{array}: {what}")
    if damage:
        raise StoreError(f"{len(damage)} damaged pieces in {given.store}. Run embed again: it makes their stages anew")
    if not given.json:
        print(f"store {given.store}: every chunk reads back and matches its checksum")


def _open(given: Any) -> Any:
    """The finished run of a store, with bars for what is done with it."""
    import scalable_gpe as gpe
    from scalable_gpe.engine.blocks import Workers
    from scalable_gpe.engine.progress import Progress

    result = gpe.open(given.store, getattr(given, "input", None), storage_options=given.storage_options)
    result.graph.run.workers = Workers(progress=Progress(_progress(given)))
    return result


def _made(given: Any, path: Any) -> None:
    """Say what was written."""
    if given.json:
        print(json.dumps({"written": str(path)}))
    else:
        _tell(given, f"written: {path}")


def _measure(given: Any, result: Any) -> Any:
    import scalable_gpe as gpe

    return gpe.audit(result, n_probes=given.probes, n_exact=given.exact, random_state=given.random_state)


def _audit(given: Any) -> None:
    found = _measure(given, _open(given))
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print(found)


def _plot(given: Any) -> None:
    from scalable_gpe import plot

    result = _open(given)
    components = "principal" if given.components is None else tuple(given.components)
    what = "scatter" if given.what == "powers" and given.power is not None else given.what
    figure = _PICTURES[what](plot, result, components, _colors(given), given)
    if given.title and what not in ("powers", "scatter"):
        (figure.axes[0].set_title if len(figure.axes) == 1 else figure.suptitle)(given.title)
    if not Path(given.picture).suffix:
        given.picture += ".png"  # as matplotlib does
    figure.savefig(given.picture, dpi=given.dpi)
    _made(given, given.picture)


def _draw_powers(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.powers(result, components=components, title=given.title, **colors)


def _draw_scatter(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.scatter(result, components=components, power=given.power, title=given.title, **colors).figure


def _draw_epsilon(plot: Any, result: Any, *_: Any) -> Any:
    from scalable_gpe.heat.bandwidth import epsilon_sweep

    return plot.epsilon_sweep(epsilon_sweep(result.graph), epsilon=result.kernel.epsilon).figure


def _draw_spectrum(plot: Any, result: Any, *_: Any) -> Any:
    from scalable_gpe.sketch.spectrum import spectrum

    return plot.spectrum(spectrum(result.heat), n_components=result.parameters["n_components"]).figure


def _draw_audit(plot: Any, result: Any, components: Any, colors: dict[str, Any], given: Any) -> Any:
    return plot.audit(_measure(given, result))


_PICTURES: dict[str, Callable[..., Any]] = {
    "powers": _draw_powers,
    "scatter": _draw_scatter,
    "epsilon": _draw_epsilon,
    "spectrum": _draw_spectrum,
    "audit": _draw_audit,
}


def _colors(given: Any) -> dict[str, Any]:
    """The column to colour by, and what to call it."""
    if given.color is None:
        return {}
    from scalable_gpe.engine.files import read_column

    return {"color": read_column(given.color, given.column), "color_label": given.column or Path(given.color).stem}


def _report(given: Any) -> None:
    import scalable_gpe as gpe
    from scalable_gpe.page import check_path

    check_path(given.page)  # before the audit, which takes a while
    colors = _colors(given)
    result = _open(given)
    found = _measure(given, result) if given.audit else False
    _made(given, gpe.write_report(result, given.page, audit=found, **colors))


def _export(given: Any) -> None:
    import scalable_gpe as gpe

    how = {"power": given.power, "graph": given.graph, "overwrite": given.overwrite}
    _made(given, gpe.export(_open(given), given.out, **how))


def _demo(given: Any) -> None:
    import scalable_gpe as gpe

    given.resume_hint = _how_to_resume(given.out)
    points = given.out / f"torus-{given.points}.zarr"
    store = given.out / f"embedding-{given.points}.zarr"
    _write_torus(points, given)
    if given.memory_limit is None:
        plan = gpe.estimate(
            given.points,
            16,
            n_neighbors=given.neighbors,
            n_components=given.components,
            power=_one_or_many(given.power),
        )
        given.memory_limit = max(10**9, int(1.2 * plan["smallest_limit"]))
    _tell(given, f"embedding into {store}, memory_limit {in_bytes(_parsed(given.memory_limit))} ...")
    result = gpe.embed(
        points,
        n_components=given.components,
        n_neighbors=given.neighbors,
        power=_one_or_many(given.power),
        tol=1e-3,  # far below the sampling error of a few dimensions, and half the sweeps of 1e-4
        store=store,
        memory_limit=given.memory_limit,
        n_jobs=given.n_jobs,
        progress=_progress(given),
    )
    _show_result(given, result, str(store))
    _draw_demo(given, result, points)
    _tell(given, f"next: {PROGRAM} report {store} page.html --no-audit writes a page about this run, to zoom into")


def _write_torus(path: Path, given: Any) -> None:
    """Generate the points block by block, unless they are there."""
    from scalable_gpe import datasets

    if path.exists():
        _tell(given, f"points are there: {path}")
        return
    import shutil

    _tell(given, f"writing {given.points:,} points of a torus in 16 dimensions to {path} ...")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    datasets.write(unfinished, datasets.torus, given.points, n_features=16, noise=0.02, dtype="float32")
    unfinished.rename(path)


def _draw_demo(given: Any, result: Any, points: Path) -> None:
    """One picture of each power, coloured by the leading coordinate of the input; without matplotlib, a hint."""
    try:
        from scalable_gpe import plot

        figure = plot.powers(result, color=_leading_coordinate(points), color_label="leading coordinate of the input")
    except ImportError as error:
        _say(f"{PROGRAM}: no picture: {error}")
        return
    figure.savefig(given.picture, dpi=110)
    _tell(given, f"picture: {given.picture}")


def _leading_coordinate(path: Path) -> Any:
    import numpy as np

    from scalable_gpe.engine.rows import open_rows

    rows = open_rows(path)
    sample = rows.sample()
    mean = sample.mean(axis=0)
    axis = np.linalg.svd(sample - mean, full_matrices=False)[2][0]
    return np.concatenate([(rows.read(*piece) - mean) @ axis for piece in rows.steps(0, rows.n_rows)])


def _describe_run(home: Any, name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """One run of a store, as plain numbers and texts."""
    keys, parameters = facts["keys"], facts["parameters"]
    stages = {stage: home.facts(keys[stage]) is not None for stage in ("graph", "kernel", "heat")}
    stages["sketch"] = facts["finished"] or all(
        any("-" in one for one in home.names(f"{keys['sketch']}/{power}")) for power in parameters["powers"]
    )
    stages["write"] = facts["finished"]
    return {
        "name": name,
        "finished": facts["finished"],
        "parameters": parameters,
        "stages": stages,
        "arrays": facts.get("arrays"),
        "report": facts.get("report"),
    }


def _read_neighbors(path: str | None) -> Any:
    if path is None:
        return None
    from scalable_gpe.engine.files import read_distances

    return read_distances(path)


def _one_or_many(powers: list[Any]) -> Any:
    if "auto" in powers and len(powers) > 1:
        raise ValueError(f"--power is auto alone, or one or more numbers; got {plain(powers)}.")
    return powers[0] if len(powers) == 1 else powers


# --- what is printed ------------------------------------------------------------------------------


def _show_result(given: Any, result: Any, store: str) -> None:
    if given.json:
        print(json.dumps({"store": store, "parameters": result.parameters, "report": result.report}, indent=2))
    elif not given.quiet:
        shape = f"{result.report['n_rows']:,} rows in {result.parameters['n_components']} dimensions"
        _print_pairs(f"{shape}, in {store}", report_lines(result.report, result.parameters["memory_limit"]))


def _print_pairs(title: str, pairs: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in pairs), default=0)
    print("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs), ""]))


def _parsed(limit: Any) -> int:
    from scalable_gpe.engine.blocks import parse_bytes

    return parse_bytes(limit) or 0


def _progress(given: Any) -> Any:
    return False if given.quiet else None


def _how_to_resume(store: Any) -> str:
    return f"What is finished stays in {store}: give the same command again to go on."


def _again(given: Any, arguments: Sequence[str] | None) -> str:
    """The command to give again, unless it holds what should not be repeated in a log."""
    # without --no-resume, which would begin from nothing
    words = [word for word in (sys.argv[1:] if arguments is None else arguments) if word != "--no-resume"]
    if "again" not in given.resume_hint or getattr(given, "storage_options", None):
        return ""
    return f"\n  {PROGRAM} {shlex.join(words)}"


def _tell(given: Any, text: str) -> None:
    if not given.quiet and not given.json:
        print(text, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the line of code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"{PROGRAM}: warning: {' '.join(str(message).split())}")
        yield


if __name__ == "__main__":
    sys.exit(main())
