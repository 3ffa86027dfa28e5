"""scalable-gpe info and repair: what a store holds, whether it is sound, and what can be computed again."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.command import command, progress, show, table
from scalable_gpe.cli.options import FILE, N_JOBS, POINTS, STORE, option, switch
from scalable_gpe.errors import StoreError
from scalable_gpe.formatting import in_bytes, plain, report_lines

if TYPE_CHECKING:
    from scalable_gpe.runs import RunRecord
    from scalable_gpe.storage.backends import StorageOptions
    from scalable_gpe.storage.zarr_store import ZarrStore


@command(
    *STORE,
    switch("--verify", "read every chunk and list any damage (exit status 1)"),
    examples=("scalable-gpe info run.zarr --json", "scalable-gpe info run.zarr --verify"),
)
def info(store: str, verify: bool, storage_options: "StorageOptions | None" = None) -> None:
    """Print what a store holds: parameters, finished stages, sizes, reports."""
    from scalable_gpe.io.labels import stored_feature_names
    from scalable_gpe.io.points import first_names
    from scalable_gpe.storage.records import FEATURE_NAMES
    from scalable_gpe.storage.zarr_store import ZarrStore

    stored = ZarrStore(store, read_only=True, storage_options=storage_options)
    if verify:
        _verify(store, stored)
        return
    runs = _runs(stored)
    sizes = {group: stored.backend.size(group) for group in stored.backend.folders()}
    latest = next((run for run in reversed(runs) if run["finished"]), None)
    columns = stored_feature_names(stored)
    lines = {name: in_bytes(size) for name, size in sizes.items()}
    if columns is not None:
        lines[FEATURE_NAMES] = first_names(columns, 40)
    texts = [table(f"store {store}", list(lines.items()))]
    for run in runs:
        texts += _tables(run, is_latest=run is latest and len(runs) > 1)
    if not runs or not runs[-1]["finished"]:
        texts.append(f"{_how_far(runs)} Give the embed command again to resume it.")
    show("\n".join(texts), {"store": store, "bytes": sizes, "columns": columns, "runs": runs})


def done_stages(store: str, storage_options: "StorageOptions | None") -> list[str]:
    """Which stages of an unfinished run a store holds; none without a store."""
    from scalable_gpe.storage.zarr_store import ZarrStore

    try:
        runs = _runs(ZarrStore(store, read_only=True, storage_options=storage_options))
    except OSError:  # embed names other faults
        return []
    unfinished = bool(runs) and not runs[-1]["finished"]
    return [stage for stage, done in runs[-1]["stages"].items() if done] if unfinished else []


def _runs(stored: "ZarrStore") -> list[dict[str, Any]]:
    """The runs of a store, the last used one last."""
    from scalable_gpe.runs import read_runs

    runs = sorted(read_runs(stored).items(), key=lambda one: one[1].last_used)
    return [_describe(name, record) for name, record in runs]


def _tables(run: dict[str, Any], *, is_latest: bool) -> list[str]:
    """What is printed of a run: parameters, stages, and the report if it is finished."""
    parameters = [(name, plain(value)) for name, value in run["parameters"].items() if name != "powers"]
    state = "finished" if run["finished"] else "unfinished"
    title = f"run {run['name']}: {state}{', the latest: other commands take it' if is_latest else ''}"
    stages = [(stage, "done" if done else "to do") for stage, done in run["stages"].items()]
    tables = [table(title, parameters), table("stages", stages)]
    if run["report"]:
        tables.append(table("report", report_lines(run["report"], run["parameters"].get("memory_limit"))))
    return tables


def _how_far(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "No stage is complete: a run is still in its first stage, graph, or stopped there."
    stage = next(name for name, done in runs[-1]["stages"].items() if not done)
    return f"The run is still in stage {stage}, or stopped there."


def _verify(path: str, store: "ZarrStore") -> None:
    """Read every chunk, and change nothing."""
    damage = _listed(store.verify())
    lines = [f"{chunk['array']}: {chunk['damage']}" for chunk in damage]
    text = "\n".join(lines) or f"store {path}: every chunk reads back and matches its checksum"
    show(text, {"store": path, "sound": not damage, "damage": damage})
    if damage:
        raise StoreError(f"{_count(damage)} in {path}. repair computes what it can again.")


def _count(damage: list[Any]) -> str:
    return f"{len(damage)} damaged chunk{'s' * (len(damage) > 1)}"


def _listed(damage: Iterable[Any]) -> list[dict[str, str]]:
    return [{"array": chunk.array, "damage": chunk.what} for chunk in damage]


def _describe(name: str, record: "RunRecord") -> dict[str, Any]:
    """Return one run; every part can be written as JSON."""
    from scalable_gpe.report import STAGES

    return {
        "name": name,
        "finished": record.finished,
        "parameters": record.parameters.as_dict() | {"powers": list(record.parameters.powers)},
        "stages": {stage: record.finished or stage in record.seconds for stage in STAGES},
        "arrays": {str(power): array for power, array in record.arrays.items()} or None,
        "report": None if record.report is None else record.report.as_dict(),
    }


@command(
    *STORE,
    *POINTS,
    option("x --input", "FILE", "the points of the runs: a damaged graph needs them", type=FILE),
    N_JOBS,
    resumes="store",
    examples=("scalable-gpe repair run.zarr", "scalable-gpe repair run.zarr --input points.npy"),
)
def repair(
    store: str,
    storage_options: "StorageOptions | None" = None,
    x: str | None = None,
    n_jobs: int | None = None,
    **reading: Any,
) -> None:
    """Find the damage of a store and compute the damaged stages of its runs again, where that is possible."""
    import scalable_gpe as gpe

    points = None if x is None else gpe.read_points(x, storage_options=storage_options, **reading)
    found = gpe.repair(store, points, storage_options=storage_options, n_jobs=n_jobs, progress=progress())
    damage, left = map(_listed, found)
    lines = [
        f"{chunk['array']}: {chunk['damage']} (left)"
        if chunk in left
        else f"{chunk['array']}: {chunk['damage'].replace(' is ', ' was ')}: repaired"
        for chunk in damage
    ]
    text = "\n".join(lines) or f"store {store}: nothing is damaged"
    show(text, {"store": store, "damage": damage, "left": left})
    if left:
        raise StoreError(
            f"{_count(left)} left in {store}. Pass the points as --input, or run embed again with its arguments."
        )
