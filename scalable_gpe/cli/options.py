"""The commands and options of the command line; each option of `embed` has the name of its argument."""

import argparse
import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scalable_gpe import __version__
from scalable_gpe.cli import commands
from scalable_gpe.cli.console import PROGRAM
from scalable_gpe.cli.demo import demo
from scalable_gpe.cli.info import info

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


def parse(words: Sequence[str]) -> Any:
    """What was asked for; a word that no option knows is an error of its command."""
    given, unknown = _parser().parse_known_args(words)
    if unknown:
        known = [text for action in given.command._actions for text in action.option_strings]
        close = difflib.get_close_matches(unknown[0], known, 1)
        given.command.error(
            f"unrecognized arguments: {' '.join(unknown)}" + (f" (did you mean {close[0]}?)" if close else "")
        )
    # the argument of the library that each option stands for, as errors and warnings name it
    given.options = {
        action.dest: next(text for text in action.option_strings if text.startswith("--"))
        for action in given.command._actions
        if action.option_strings and action.nargs != 0  # what has no value is no argument
    } | {"neighbors": "--neighbors-file", "run": "--run"}
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Gaussian process embeddings: coordinates whose straight-line distances approximate the diffusion "
        "distance of the data.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_embed, _add_estimate, _add_info, _add_audit, _add_plot, _add_report, _add_export, _add_demo):
        add(subparsers)
    return parser


def _command(subparsers: Any, name: str, run: Callable[[Any], None], help: str, *examples: str) -> Any:
    command = subparsers.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:].replace("%%", "%") + ".",
        epilog="\n  ".join([f"example{'s' * (len(examples) > 1)}:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run, command=command)
    command.add_argument("-q", "--quiet", action="store_true", help="no progress bars, no report")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--debug", action="store_true", help="show where an error comes from")
    return command


def _add_embed(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "embed",
        commands.embed,
        "embed the rows of a file into a store, in bounded memory, going on where an earlier call stopped",
        "scalable-gpe embed points.npy run.zarr --n-components 32 --power 16 64 --memory-limit 2GB",
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
    add(
        "-k",
        "--n-components",
        "--components",
        type=_count,
        default=components,
        metavar="K",
        help=f"dimensions ({components})",
    )
    add("--n-neighbors", "--neighbors", type=_count, metavar="M", help="neighbours of each row (32)")
    add("--power", type=_power, nargs="+", default=list(power), metavar="P", help=f"powers of A, or auto ({shown})")
    add("--memory-limit", metavar="BYTES", help="resident memory of the process, such as 2GB")


def _add_estimate(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "estimate",
        commands.estimate,
        "say what a run through a store will take, before it starts",
        "scalable-gpe estimate 100_000_000 16 --memory-limit 8GB",
    )
    command.add_argument("n_rows", type=_count, metavar="N", help="rows")
    command.add_argument("n_features", type=_count, metavar="D", help="columns")
    _add_sizes(command)


def _add_info(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "info",
        info,
        "say what a store holds: parameters, finished stages, sizes, reports",
        "scalable-gpe info run.zarr --json",
    )
    command.add_argument("store", metavar="STORE", help="a zarr store: a path or URL")
    _add_options(command)
    command.add_argument("--verify", action="store_true", help="read every chunk and name any damage (exit code 1)")


def _add_store(command: Any) -> None:
    command.add_argument("store", metavar="STORE", help="the store of a finished run: a path or URL")
    command.add_argument(
        "--run", dest="run_name", metavar="NAME", help="which run of several, as info lists them (latest)"
    )
    _add_options(command)


def _add_audit(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "audit",
        commands.audit,
        "measure how exact the embedding of a store is, with 95 %% intervals",
        "scalable-gpe audit run.zarr",
        "scalable-gpe audit run.zarr --json > audit.json",
    )
    _add_store(command)
    _add_audit_sizes(command)
    command.add_argument("--input", metavar="FILE", help="the points, where the run was made from neighbours alone")


def _add_audit_sizes(command: Any) -> None:
    add = command.add_argument
    add(
        "--n-probes",
        "--probes",
        type=_count,
        default=1000,
        metavar="N",
        help="rows with an exact search of neighbours (1000)",
    )
    add(
        "--n-exact",
        "--exact",
        type=_count,
        default=32,
        metavar="N",
        help="rows with exact diffusion distances (32)",
    )
    add("--random-state", type=int, default=0, metavar="SEED", help="seed of the samples (0)")


def _add_plot(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "plot",
        commands.plot,
        "draw a run: the embedding, the choice of epsilon, the spectrum or the audit",
        "scalable-gpe plot run.zarr picture.png",
        "scalable-gpe plot run.zarr picture.pdf --what scatter --components 0 1 2 --power 256",
        "scalable-gpe plot run.zarr picture.png --color labels.csv --column kind",
        "scalable-gpe plot run.zarr epsilon.png --what epsilon",
    )
    _add_store(command)
    add = command.add_argument
    add("picture", metavar="OUT", help="the picture: .png, .pdf, .svg or what else matplotlib writes")
    add(
        "--what",
        choices=list(commands.PICTURES),
        default="powers",
        help="what to draw (powers: all powers)",
    )
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


def _add_report(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "report",
        commands.report,
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


def _add_export(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "export",
        commands.export,
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


def _add_demo(subparsers: Any) -> None:
    command = _command(
        subparsers,
        "demo",
        demo,
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
