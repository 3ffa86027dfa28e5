"""scalable-gpe info and repair: what a store holds, whether it is sound, and what can be computed again."""

from dataclasses import asdict

from scalable_gpe.cli.console import show, show_json, show_pairs
from scalable_gpe.cli.options import InfoOptions, RepairOptions
from scalable_gpe.cli.points import read_points
from scalable_gpe.cli.store_info import Damage, RunInfo, find_damage, read_info
from scalable_gpe.errors import Message, StoreError
from scalable_gpe.formatting import in_bytes, plain, report_lines


def info(options: InfoOptions) -> None:
    """Print what a store holds."""
    if options.verify:
        _verify(options)
        return
    found = read_info(options)
    if options.json:
        show_json({"store": options.store, "bytes": found.n_bytes, "runs": [asdict(run) for run in found.runs]})
        return
    show_pairs(f"store {options.store}", [(name, in_bytes(size)) for name, size in found.n_bytes.items()])
    latest = next((run for run in reversed(found.runs) if run.finished), None)
    for run in found.runs:
        _show_run(run, is_latest=run is latest and len(found.runs) > 1)
    if not found.runs or not found.runs[-1].finished:
        show(f"{_how_far(found.runs)} Give the embed command again to resume it.")


def _show_run(run: RunInfo, *, is_latest: bool) -> None:
    parameters = [(name, plain(value)) for name, value in run.parameters.items() if name != "powers"]
    state = "finished" if run.finished else "unfinished"
    show_pairs(f"run {run.name}: {state}{', the latest: other commands take it' if is_latest else ''}", parameters)
    show_pairs("stages", [(stage, "done" if done else "to do") for stage, done in run.stages.items()])
    if run.report:
        show_pairs("report", report_lines(run.report, run.parameters.get("memory_limit")))


def _how_far(runs: list[RunInfo]) -> str:
    if not runs:
        return "No stage is complete: a run is still in its first stage, graph, or stopped there."
    return f"The run is still in stage {runs[-1].next_stage}, or stopped there."


def _verify(options: InfoOptions) -> None:
    damage = find_damage(options)
    if options.json:
        show_json({"store": options.store, "sound": not damage, "damage": [asdict(one) for one in damage]})
    elif damage:
        show("\n".join(f"{one.array}: {one.damage}" for one in damage))
    else:
        show(f"store {options.store}: every chunk reads back and matches its checksum")
    if damage:
        raise StoreError(f"{len(damage)} damages in {options.store}. `repair` computes what it can again.")


def repair(options: RepairOptions) -> None:
    """Compute the damaged stages of a store again."""
    import scalable_gpe as gpe

    points = None if options.input is None else read_points(options.input, options, options.storage_options)
    found = gpe.repair(
        options.store,
        points,
        storage_options=options.storage_options,
        n_jobs=options.n_jobs,
        progress=options.progress,
    )
    damage, left = ([Damage(one.array, one.what) for one in some] for some in found)
    if options.json:
        listed = {"damage": [asdict(one) for one in damage], "left": [asdict(one) for one in left]}
        show_json({"store": options.store, **listed})
    else:
        lines = [f"{one.array}: {one.damage}{' (left)' if one in left else ''}" for one in damage]
        show("\n".join(lines) or f"store {options.store}: nothing is damaged")
    if left:
        raise StoreError(
            Message(
                f"{len(left)} damages are left in {options.store}. Pass the points as `X`, or run embed again with the "
                "arguments of the run."
            )
        )
