"""What the commands need from a store besides the public functions of the library."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.console import caution
from scalable_gpe.cli.options import RunOptions, StoreOptions

if TYPE_CHECKING:
    from scalable_gpe.checks import Power
    from scalable_gpe.embedding import Embedding
    from scalable_gpe.io.points import Points
    from scalable_gpe.run_log import RunRecord
    from scalable_gpe.storage.zarr_store import ZarrStore


@dataclass(frozen=True)
class RunInfo:
    """One run of a store; every part can be written as JSON."""

    name: str
    finished: bool
    parameters: dict[str, Any]
    stages: dict[str, bool]
    arrays: dict[str, str] | None
    report: dict[str, Any] | None

    @property
    def next_stage(self) -> str | None:
        """The first stage that is not complete."""
        return next((stage for stage, done in self.stages.items() if not done), None)


@dataclass(frozen=True)
class StoreInfo:
    """Bytes of each part of a store, and its runs; the run that was used last is the last one."""

    n_bytes: dict[str, int]
    runs: list[RunInfo]


@dataclass(frozen=True)
class Damage:
    """An array of a store that does not read back."""

    array: str
    damage: str


def read_info(options: StoreOptions) -> StoreInfo:
    """Read what a store holds, finished or not."""
    from scalable_gpe.run_log import read_runs

    store = _open(options, read_only=True)
    runs = sorted(read_runs(store).items(), key=lambda one: one[1].last_used)
    return StoreInfo(store.sizes(), [_run_info(store, *one) for one in runs])


def find_damage(options: StoreOptions) -> list[Damage]:
    """Read every chunk of a store, and change nothing."""
    return [Damage(one.array, one.what) for one in _open(options, read_only=True).verify()]


def open_run(options: RunOptions, points: "Points | None" = None) -> "Embedding":
    """Open a finished run of a store; later work on it shows progress bars."""
    import scalable_gpe as gpe

    if options.run is None and len(_open(options, read_only=True).names("runs")) > 1:
        caution(f"{options.store} holds several runs; this is the latest. --run chooses another, info lists them.")
    return gpe.open(
        options.store,
        points,
        run=options.run,
        storage_options=options.storage_options,
        progress=options.progress,
    )


def _open(options: StoreOptions, *, read_only: bool = False) -> "ZarrStore":
    from scalable_gpe.storage.zarr_store import ZarrStore

    return ZarrStore(options.store, read_only=read_only, storage_options=options.storage_options)


def _run_info(store: "ZarrStore", name: str, record: "RunRecord") -> RunInfo:
    from scalable_gpe.graph.neighbors import GraphMetadata
    from scalable_gpe.heat.kernel import KernelMetadata
    from scalable_gpe.heat.normalization import HeatMetadata

    keys = record.keys
    stages = {
        "graph": store.read(keys.graph, GraphMetadata) is not None,
        "kernel": store.read(keys.kernel, KernelMetadata) is not None,
        "heat": store.read(keys.heat, HeatMetadata) is not None,
        "sketch": record.finished or all(_has_columns(store, keys.sketch, power) for power in record.parameters.powers),
        "write": record.finished,
    }
    report = None if record.report is None else record.report.as_dict()
    arrays = {str(power): array for power, array in record.arrays.items()} or None
    parameters = record.parameters.as_dict() | {"powers": list(record.parameters.powers)}
    return RunInfo(name, record.finished, parameters, stages, arrays, report)


def _has_columns(store: "ZarrStore", sketch: str, power: "Power") -> bool:
    """Whether a sketch holds columns of a power; their names are ranges, such as 0-16."""
    from scalable_gpe.storage.keys import filter_name

    # "all" is stored with its horizon: all-1024
    names = [one for one in store.names(sketch) if one.partition("-")[0] == str(power)]
    ranges = [one for name in names for one in store.names(filter_name(sketch, name))]
    return any(one.partition("-")[0].isdigit() and "-" in one for one in ranges)
