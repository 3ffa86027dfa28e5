"""scalable-gpe info: what a store holds, and whether it is sound."""

from typing import Any

from scalable_gpe.cli.console import show_json, show_pairs
from scalable_gpe.formatting import in_bytes, plain, report_lines


def info(given: Any) -> None:
    """Say what a store holds."""
    from scalable_gpe.embedding import last_used
    from scalable_gpe.execution.context import open_store

    if given.verify:
        _verify(given)
        return
    store: Any = open_store(given.store, given.storage_options, read_only=True)
    found = [(name, metadata) for name in store.names("runs") if (metadata := store.record(f"runs/{name}"))]
    runs = [_describe(store, *one) for one in sorted(found, key=lambda one: last_used(one[1]))]
    sizes = store.sizes()
    if given.json:
        show_json({"store": str(given.store), "bytes": sizes, "runs": runs})
        return
    show_pairs(f"store {given.store}", [(name, in_bytes(size)) for name, size in sizes.items()])
    for run in runs:
        parameters = [(name, plain(value)) for name, value in run["parameters"].items() if name != "powers"]
        show_pairs(f"run {run['name']}: {'finished' if run['finished'] else 'unfinished'}", parameters)
        show_pairs("stages", [(stage, "done" if done else "to do") for stage, done in run["stages"].items()])
        if run["report"]:
            show_pairs("report", report_lines(run["report"], run["parameters"].get("memory_limit")))
    if not runs or not runs[-1]["finished"]:
        print(f"{_how_far(runs)} Give the embed command again, and it goes on from there.")


def _how_far(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "No stage is finished: a run is in its first one, graph, or was stopped in it."
    stage = next(name for name, done in runs[-1]["stages"].items() if not done)
    return f"The run is in its stage {stage}, or was stopped in it."


def _describe(store: Any, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """One run of a store, as plain numbers and texts."""
    keys, parameters = metadata["keys"], metadata["parameters"]
    stages = {stage: store.metadata(keys[stage]) is not None for stage in ("graph", "kernel", "heat")}
    stages["sketch"] = metadata["finished"] or all(
        any("-" in one for one in store.names(f"{keys['sketch']}/{power}")) for power in parameters["powers"]
    )
    stages["write"] = metadata["finished"]
    return {
        "name": name,
        "finished": metadata["finished"],
        "parameters": parameters,
        "stages": stages,
        "arrays": metadata.get("arrays"),
        "report": metadata.get("report"),
    }


def _verify(given: Any) -> None:
    """Read everything; what is damaged loses its mark, so that the next run makes it again."""
    from scalable_gpe.errors import StoreError
    from scalable_gpe.storage.zarr_store import ZarrStore

    ZarrStore(given.store, read_only=True, storage_options=given.storage_options)
    store = ZarrStore(given.store, storage_options=given.storage_options)
    store.lock()
    try:
        damage = store.verify()
        for array, what in damage:
            store.repair(array, what)
    finally:
        store.unlock()
    if given.json:
        found = [{"array": array, "damage": what} for array, what in damage]
        show_json({"store": str(given.store), "sound": not damage, "damage": found})
    else:
        print("\n".join(f"{array}: {what}" for array, what in damage), end="\n" * bool(damage))
    if damage:
        raise StoreError(f"{len(damage)} damaged pieces in {given.store}. Run embed again: it makes their stages anew")
    if not given.json:
        print(f"store {given.store}: every chunk reads back and matches its checksum")
