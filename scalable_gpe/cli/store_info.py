"""What the commands need from a store besides the public functions of the library."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.console import caution
from scalable_gpe.cli.options import RunOptions, StoreOptions

if TYPE_CHECKING:
    from scalable_gpe.embedding import Embedding
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
    from scalable_gpe.embedding import last_used

    store = _open(options, read_only=True)
    found = [(name, metadata) for name in store.names("runs") if (metadata := store.record(f"runs/{name}"))]
    found.sort(key=lambda one: last_used(one[1]))
    return StoreInfo(store.sizes(), [_run_info(store, *one) for one in found])


def find_damage(options: StoreOptions) -> list[Damage]:
    """Read every chunk of a store; a damaged result is no longer complete, so that the next run computes it again."""
    _open(options, read_only=True)  # refuses a store that does not exist, instead of creating it
    store = _open(options)
    store.lock()
    try:
        damage = [Damage(array, what) for array, what in store.verify()]
        for one in damage:
            store.repair(one.array, one.damage)
    finally:
        store.unlock()
    return damage


def open_run(options: RunOptions, points: str | None = None) -> "Embedding":
    """Open a finished run of a store; later work on it shows progress bars."""
    import scalable_gpe as gpe
    from scalable_gpe.execution.progress import Progress
    from scalable_gpe.execution.workers import Workers

    if options.run is None and len(_open(options, read_only=True).names("runs")) > 1:
        caution(f"{options.store} holds several runs; this is the latest. --run chooses another, info lists them.")
    result = gpe.open(options.store, points, run=options.run, storage_options=options.storage_options)
    result.graph.context.workers = Workers(progress=Progress(options.progress))
    return result


def _open(options: StoreOptions, *, read_only: bool = False) -> "ZarrStore":
    from scalable_gpe.storage.zarr_store import ZarrStore

    return ZarrStore(options.store, read_only=read_only, storage_options=options.storage_options)


def _run_info(store: "ZarrStore", name: str, metadata: dict[str, Any]) -> RunInfo:
    keys, parameters, finished = metadata["keys"], metadata["parameters"], metadata["finished"]
    stages = {stage: store.metadata(keys[stage]) is not None for stage in ("graph", "kernel", "heat")}
    stages["sketch"] = finished or all(
        _has_columns(store, f"{keys['sketch']}/{power}") for power in parameters["powers"]
    )
    stages["write"] = finished
    return RunInfo(name, finished, parameters, stages, metadata.get("arrays"), metadata.get("report"))


def _has_columns(store: "ZarrStore", name: str) -> bool:
    """Whether a sketch holds finished columns; their names are ranges, such as 0-16."""
    return any("-" in one for one in store.names(name))
