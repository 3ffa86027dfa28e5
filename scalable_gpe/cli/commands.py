"""The commands of the command line, with their help."""

import argparse
from collections.abc import Sequence
from typing import Any

from scalable_gpe import __version__
from scalable_gpe.cli import options
from scalable_gpe.cli.console import PROGRAM
from scalable_gpe.cli.demo import demo
from scalable_gpe.cli.info import info, repair
from scalable_gpe.cli.new_run import embed, estimate
from scalable_gpe.cli.parser import Command
from scalable_gpe.cli.picture import plot
from scalable_gpe.cli.stored_run import audit, export, report, transform
from scalable_gpe.cli.warm_up import warm_up

COMMANDS: Sequence[Command[Any]] = (
    Command(
        "embed",
        options.EmbedOptions,
        embed,
        "embed the rows of a file into a store, in bounded memory; an interrupted run resumes",
        (
            "scalable-gpe embed points.npy run.zarr --n-components 32 --power 16 64 --memory-limit 2GB",
            "scalable-gpe embed table.csv run.zarr --index name",
            "scalable-gpe embed cells.h5ad run.zarr --key obsm/X_pca",
            "scalable-gpe embed - run.zarr --neighbors-file lists.npz",
        ),
    ),
    Command(
        "estimate",
        options.EstimateOptions,
        estimate,
        "print the memory, disk and time that a run with a store will need",
        (
            "scalable-gpe estimate 100_000_000 16 --memory-limit 8GB",
            "scalable-gpe estimate points.npy    # seconds from a trial with some of its rows",
        ),
    ),
    Command(
        "info",
        options.InfoOptions,
        info,
        "print what a store holds: parameters, finished stages, sizes, reports",
        ("scalable-gpe info run.zarr --json", "scalable-gpe info run.zarr --verify"),
    ),
    Command(
        "repair",
        options.RepairOptions,
        repair,
        "find the damage of a store and compute the damaged stages of its runs again, where that is possible",
        ("scalable-gpe repair run.zarr", "scalable-gpe repair run.zarr --input points.npy"),
    ),
    Command(
        "audit",
        options.AuditOptions,
        audit,
        "measure how accurate the embedding of a store is, with 95 %% intervals",
        ("scalable-gpe audit run.zarr", "scalable-gpe audit run.zarr --json > audit.json"),
    ),
    Command(
        "plot",
        options.PlotOptions,
        plot,
        "draw a run: the embedding, the choice of epsilon, the spectrum or the audit",
        (
            "scalable-gpe plot run.zarr picture.png",
            "scalable-gpe plot run.zarr picture.pdf --what scatter --components 0 1 2 --power 256",
            "scalable-gpe plot run.zarr picture.png --color labels.csv --column kind",
            "scalable-gpe plot run.zarr epsilon.png --what epsilon",
        ),
    ),
    Command(
        "report",
        options.ReportOptions,
        report,
        "write one HTML page about a run, which needs no network: report, audit, spectrum, interactive picture",
        (
            "scalable-gpe report run.zarr page.html",
            "scalable-gpe report run.zarr page.html --color labels.csv --column kind --no-audit",
        ),
    ),
    Command(
        "export",
        options.ExportOptions,
        export,
        "write the embedding of a store for other tools: AnnData (.h5ad, .zarr), .npy, .parquet or .csv",
        (
            "scalable-gpe export run.zarr cells.h5ad    # obsm X_gpe, obsp distances and connectivities, for scanpy",
            "scalable-gpe export run.zarr embedding.npy --power 64",
        ),
    ),
    Command(
        "transform",
        options.TransformOptions,
        transform,
        "embed new rows among those of a store, some at a time, and write their embedding: .npy, .parquet or .csv",
        (
            "scalable-gpe transform run.zarr new.npy placed.npy",
            "scalable-gpe transform run.zarr new.csv placed.csv --index name",
        ),
    ),
    Command(
        "demo",
        options.DemoOptions,
        demo,
        "embed generated points out of core, print the report and draw a picture",
        ("scalable-gpe demo --points 1_000_000 --out /tmp/gpe-demo",),
    ),
    Command(
        "warm-up",
        options.ConsoleOptions,
        warm_up,
        "compile all loops once, for an image or a login node: later processes find the machine code on disk",
        ("scalable-gpe warm-up",),
    ),
)

_EXAMPLES = """\
examples:
  scalable-gpe demo                                          points, embedding, report and picture
  scalable-gpe embed points.npy run.zarr                     with defaults, into a store
  scalable-gpe embed table.csv run.zarr --index name         keep row names with the embedding
  scalable-gpe embed cells.h5ad run.zarr --key obsm/X_pca --power 16 64 256 --memory-limit 2GB
  scalable-gpe embed s3://bucket/points.zarr s3://bucket/run.zarr --storage-options '{"profile": "mine"}'
  scalable-gpe info run.zarr                                 parameters, stages, sizes, report
  scalable-gpe audit run.zarr                                how accurate the embedding is
  scalable-gpe plot run.zarr picture.png                     the embedding at each power
  scalable-gpe report run.zarr page.html                     all of this on one page
  scalable-gpe export run.zarr cells.h5ad                    for scanpy; also .zarr, .npy, .parquet, .csv
  scalable-gpe transform run.zarr new.npy placed.npy         new rows, placed among the old ones
  scalable-gpe estimate 100_000_000 16 --memory-limit 8GB    what a run will need

Interrupted runs resume: give the same command again.
exit status: 0 done, 1 an error (one line says which), 2 a wrong command line, 130 interrupted"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Gaussian process embeddings: coordinates whose straight-line distances approximate the diffusion "
        "distance of the data.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(subparsers)
    return parser
