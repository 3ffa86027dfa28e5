"""Options of each command, declared once; every option of `embed` has the name of its argument."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from scalable_gpe.cli.parser import (
    CHARACTER,
    COUNT,
    COUNT_OR_AUTO,
    COUNT_OR_PATH,
    INDEX,
    JSON_OBJECT,
    NUMBER_OR_WORD,
    ONE_POWER,
    POWER,
    argument,
    option,
)

if TYPE_CHECKING:
    from scalable_gpe.storage.backends import StorageOptions

THEMES = ("light", "dark")
PICTURES = ("powers", "scatter", "epsilon", "spectrum", "audit")


# --- shared parts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConsoleOptions:
    """What every command prints."""

    quiet: Annotated[bool, option("-q", "--quiet", action="store_true", help="no progress bars, no text but tables")]
    json: Annotated[bool, option("--json", action="store_true", help="print the result as JSON")]
    debug: Annotated[bool, option("--debug", action="store_true", help="show where an error comes from")]

    @property
    def progress(self) -> bool | None:
        """The `progress` argument of the library."""
        return False if self.quiet else None

    @property
    def resumable(self) -> str | None:
        """Path or URL of the work that the same command resumes after an interruption."""
        return None


@dataclass(frozen=True)
class RemoteOptions:
    """How to reach URLs."""

    storage_options: Annotated[
        "StorageOptions | None",
        option(
            "--storage-options",
            type=JSON_OBJECT,
            metavar="JSON",
            help='what fsspec needs to reach URLs: {"endpoint_url": "..."}',
        ),
    ]


@dataclass(frozen=True)
class StoreOptions(RemoteOptions):
    """A store that is read."""

    store: Annotated[str, argument(metavar="STORE", help="a zarr store: a path or URL")]


@dataclass(frozen=True)
class RunOptions(StoreOptions, ConsoleOptions):
    """A finished run of a store."""

    run: Annotated[
        str | None, option("--run", metavar="NAME", help="which run of several, as info lists them (the latest)")
    ]


@dataclass(frozen=True)
class PointsOptions:
    """Which part of a file holds the points."""

    key: Annotated[
        str | None,
        option(
            "--key",
            help="array of an .h5ad or .zarr file (obsm/X_pca if present, else X); list column of a .parquet file",
        ),
    ]
    index: Annotated[
        str | None,
        option("--index", metavar="COLUMN", help="column of a .csv or .parquet file that holds the names of the rows"),
    ]
    columns: Annotated[
        list[str] | None,
        option(
            "--columns",
            nargs="+",
            metavar="COLUMN",
            help="columns of a .csv or .parquet file, by name or by number from 0 (all but the index)",
        ),
    ]
    drop: Annotated[
        list[str] | None,
        option("--drop", nargs="+", metavar="COLUMN", help="columns to leave out, instead of --columns"),
    ]
    header: Annotated[
        bool | None,
        option(
            "--header",
            action=argparse.BooleanOptionalAction,
            help="whether the first line of a .csv file names the columns (decided from the file)",
        ),
    ]
    sep: Annotated[
        str | None,
        option(
            "--sep",
            "--delimiter",
            type=CHARACTER,
            metavar="C",
            help="character between the cells of a .csv file, or tab (a comma; in a .tsv file a tab)",
        ),
    ]


@dataclass(frozen=True)
class SizeOptions:
    """The parameters that decide what a run costs."""

    n_components: Annotated[
        int, option("-k", "--n-components", "--components", type=COUNT, default=32, metavar="K", help="dimensions (32)")
    ]
    n_neighbors: Annotated[
        int | None, option("--n-neighbors", "--neighbors", type=COUNT, metavar="M", help="neighbours of each row (32)")
    ]
    power: Annotated[
        list[int | str],
        option("--power", type=POWER, nargs="+", default=["all"], metavar="P", help="all, powers of A, or auto (all)"),
    ]
    horizon: Annotated[
        int | str,
        option(
            "--horizon",
            type=COUNT_OR_AUTO,
            default="auto",
            metavar="T",
            help="average steps of a walk in --power all (auto)",
        ),
    ]
    n_sketch: Annotated[
        int | None,
        option("--n-sketch", type=COUNT, metavar="S", help="compute S columns and keep their K principal axes"),
    ]
    memory_limit: Annotated[
        str | None, option("--memory-limit", metavar="BYTES", help="resident memory of the process, such as 2GB")
    ]

    @property
    def one_or_several_powers(self) -> int | str | list[int | str]:
        """The `power` argument of the library."""
        if "auto" in self.power and len(self.power) > 1:
            given = " ".join(map(str, self.power))
            raise ValueError(f"--power must be auto alone, all, or one or more numbers; got --power {given}.")
        return self.power[0] if len(self.power) == 1 else self.power


@dataclass(frozen=True)
class AuditSizeOptions:
    """How many rows an audit looks at."""

    n_probes: Annotated[
        int,
        option(
            "--n-probes",
            "--probes",
            type=COUNT,
            default=1000,
            metavar="N",
            help="rows with an exact neighbour search (1000)",
        ),
    ]
    n_exact: Annotated[
        int,
        option(
            "--n-exact", "--exact", type=COUNT, default=64, metavar="N", help="rows with exact diffusion distances (64)"
        ),
    ]
    random_state: Annotated[
        int, option("--random-state", type=int, default=0, metavar="SEED", help="seed of the samples (0)")
    ]


@dataclass(frozen=True)
class ColorOptions:
    """What a picture is coloured by."""

    color: Annotated[
        str | None,
        option(
            "--color",
            metavar="FILE",
            help="colours: a column of a .npy, .csv, .parquet or .h5ad file, in the rows' order",
        ),
    ]
    column: Annotated[
        str | None,
        option("--column", metavar="NAME", help="which column of that file (.npy: its number; .h5ad: a column of obs)"),
    ]


# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmbedOptions(PointsOptions, RemoteOptions, SizeOptions, ConsoleOptions):
    """Options of `embed`."""

    input: Annotated[
        str,
        argument(
            stands_for="X",
            metavar="INPUT",
            help="points: .npy, .zarr, .csv, .tsv, .parquet or .h5ad; - for none (--neighbors-file)",
        ),
    ]
    store: Annotated[str, argument(metavar="STORE", help="a zarr store (path or URL), created if it does not exist")]
    epsilon: Annotated[
        float | str,
        option(
            "--epsilon",
            type=NUMBER_OR_WORD,
            default="auto",
            metavar="E",
            help="bandwidth: a number, auto, global, local or bgh (auto)",
        ),
    ]
    first_power: Annotated[
        int | str,
        option(
            "--first-power",
            type=COUNT_OR_AUTO,
            default="auto",
            metavar="M",
            help="smallest power of --power all (auto: 4 from 50,000 rows on, else 1)",
        ),
    ]
    normalization: Annotated[
        str,
        option(
            "--normalization", default="bistochastic", metavar="NAME", help="bistochastic or symmetric (bistochastic)"
        ),
    ]
    sketch: Annotated[
        str, option("--sketch", default="gaussian", metavar="NAME", help="gaussian or bernoulli (gaussian)")
    ]
    metric: Annotated[
        str,
        option(
            "--metric",
            default="euclidean",
            metavar="NAME",
            help="euclidean, cosine, correlation, hamming or jaccard (euclidean)",
        ),
    ]
    neighbors_file: Annotated[
        str | None,
        option(
            "--neighbors-file",
            stands_for="neighbors",
            metavar="FILE",
            help="precomputed neighbours: scipy sparse .npz of distances, or .h5ad",
        ),
    ]
    sample_weight: Annotated[
        str | None,
        option("--sample-weight", metavar="FILE", help="a weight above 0 for each row: .npy (1 each)"),
    ]
    random_state: Annotated[
        int, option("--random-state", type=int, default=0, metavar="SEED", help="seed of everything random (0)")
    ]
    precision: Annotated[str, option("--precision", default="single", metavar="NAME", help="single or double (single)")]
    tol: Annotated[
        float | str,
        option(
            "--tol",
            type=NUMBER_OR_WORD,
            default="auto",
            metavar="T",
            help="error of distances left to the polynomial or solver (1e-4, all scales 1e-2)",
        ),
    ]
    method: Annotated[
        str, option("--method", default="auto", metavar="NAME", help="auto, kdtree, brute, cells or pynndescent (auto)")
    ]
    recall: Annotated[
        float,
        option("--recall", type=float, default=0.95, metavar="R", help="share of true neighbours to aim at (0.95)"),
    ]
    n_jobs: Annotated[int | None, option("--n-jobs", type=int, metavar="J", help="threads (all cores)")]
    resume: Annotated[
        bool,
        option(
            "--no-resume",
            action="store_false",
            help="start over: replace what the store holds once the new graph and kernel are complete",
        ),
    ]

    @property
    def resumable(self) -> str | None:
        """The store."""
        return self.store


@dataclass(frozen=True)
class EstimateOptions(SizeOptions, ConsoleOptions):
    """Options of `estimate`."""

    n_rows: Annotated[
        int | str, argument(type=COUNT_OR_PATH, metavar="N", help="rows; or a file, for a trial with some of its rows")
    ]
    n_features: Annotated[int | None, argument(type=COUNT, nargs="?", metavar="D", help="columns; not with a file")]


@dataclass(frozen=True)
class InfoOptions(StoreOptions, ConsoleOptions):
    """Options of `info`."""

    verify: Annotated[
        bool, option("--verify", action="store_true", help="read every chunk and list any damage (exit status 1)")
    ]


@dataclass(frozen=True)
class RepairOptions(PointsOptions, StoreOptions, ConsoleOptions):
    """Options of `repair`."""

    input: Annotated[
        str | None,
        option("--input", stands_for="X", metavar="FILE", help="the points of the runs: a damaged graph needs them"),
    ]
    n_jobs: Annotated[int | None, option("--n-jobs", type=int, metavar="J", help="threads (all cores)")]

    @property
    def resumable(self) -> str | None:
        """The store."""
        return self.store


@dataclass(frozen=True)
class AuditOptions(PointsOptions, AuditSizeOptions, RunOptions):
    """Options of `audit`."""

    input: Annotated[
        str | None,
        option(
            "--input",
            stands_for="X",
            metavar="FILE",
            help="the points, for a run that was computed from neighbours alone",
        ),
    ]


@dataclass(frozen=True)
class PlotOptions(AuditSizeOptions, ColorOptions, RunOptions):
    """Options of `plot`."""

    picture: Annotated[
        str,
        argument(
            stands_for="path", metavar="OUT", help="the picture: .png, .pdf, .svg or another format of matplotlib"
        ),
    ]
    what: Annotated[str, option("--what", choices=PICTURES, default="powers", help="what to draw (powers: all powers)")]
    components: Annotated[
        list[int] | None,
        option("--components", type=INDEX, nargs="+", metavar="C", help="two or three columns (the principal axes)"),
    ]
    power: Annotated[
        int | str | None,
        option(
            "--power", type=ONE_POWER, metavar="P", help="one power only (powers: each; scatter: all, or the largest)"
        ),
    ]
    theme: Annotated[str, option("--theme", choices=THEMES, default="light", help="background: light or dark (light)")]
    max_labels: Annotated[
        int | None,
        option("--max-labels", type=COUNT, metavar="L", help="keep the L most frequent labels and join the others"),
    ]
    title: Annotated[str | None, option("--title", help="title of the picture")]
    dpi: Annotated[int, option("--dpi", type=COUNT, default=120, help="dots per inch (120)")]


@dataclass(frozen=True)
class ReportOptions(AuditSizeOptions, ColorOptions, RunOptions):
    """Options of `report`."""

    page: Annotated[str, argument(stands_for="path", metavar="PAGE", help="the page, such as page.html")]
    audit: Annotated[
        bool, option("--no-audit", action="store_false", help="skip the audit, which takes most of the time")
    ]


@dataclass(frozen=True)
class ExportOptions(RunOptions):
    """Options of `export`."""

    out: Annotated[
        str,
        argument(
            stands_for="path",
            metavar="OUT",
            help="the file; its ending chooses the format: .h5ad, .zarr, .npy, .parquet or .csv",
        ),
    ]
    power: Annotated[
        int | str | None,
        option(
            "--power", type=ONE_POWER, metavar="P", help="which power of several (all, or the largest; AnnData: each)"
        ),
    ]
    graph: Annotated[bool, option("--no-graph", action="store_false", help="leave out distances and connectivities")]
    overwrite: Annotated[bool, option("--overwrite", action="store_true", help="replace OUT if it exists")]


@dataclass(frozen=True)
class TransformOptions(PointsOptions, RunOptions):
    """Options of `transform`."""

    input: Annotated[
        str,
        argument(stands_for="X X_new", metavar="INPUT", help="new rows: .npy, .zarr, .csv, .tsv, .parquet or .h5ad"),
    ]
    out: Annotated[
        str,
        argument(stands_for="path", metavar="OUT", help="the file for their embedding: .npy, .parquet or .csv"),
    ]
    power: Annotated[
        int | str | None,
        option("--power", type=ONE_POWER, metavar="P", help="which power of several (all, or the largest)"),
    ]
    overwrite: Annotated[bool, option("--overwrite", action="store_true", help="replace OUT if it exists")]


@dataclass(frozen=True)
class DemoOptions(SizeOptions, ConsoleOptions):
    """Options of `demo`."""

    points: Annotated[
        int,
        option("--points", type=COUNT, default=200_000, metavar="N", help="points in 30 dimensions (200,000)"),
    ]
    out: Annotated[
        Path,
        option(
            "--out", type=Path, default=Path("gpe-demo"), metavar="DIR", help="folder for points and store (./gpe-demo)"
        ),
    ]
    picture: Annotated[
        Path,
        option(
            "--picture", type=Path, default=Path("gpe-demo.png"), metavar="FILE", help="the picture (./gpe-demo.png)"
        ),
    ]
    n_jobs: Annotated[int | None, option("--n-jobs", type=int, metavar="J", help="threads (all cores)")]

    @property
    def resumable(self) -> str | None:
        """The folder of points and store."""
        return str(self.out)
