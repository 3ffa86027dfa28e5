"""Choice of the powers that "all" sums: from a first power m on, with a horizon T that follows the data.

The slowest shape of the data has the eigenvalue l, the largest one below those that no power shrinks. It decays within
1 / (1 - l) steps, the relaxation time. A walk that stops after T steps on average multiplies it by 1 / (1 - l + 1 / T),
so the horizon is the smallest power of two from eight relaxation times on.

Small groups almost apart are slower than any shape, and a longer sum tells nothing more about them. So modes that
live on less than 1 % of the rows do not count. Where they are so many that no shape is seen, the rows that they live on
are held: heat that they would get stays where it is. Large groups almost apart show as a gap between the times of
the modes; beyond it the horizon is not extended. If all modes before it are of few rows, more modes are found first.

The first powers tell a row apart from all others, near or far. Let d be the dimension of the data. The largest
eigenvalues add about T^2 / N to a squared distance, and T grows with N^(2/d): in more than four dimensions that part
falls with N, while that of the first powers remains. The sketch's error is a share of the whole, so from many rows on
the sum begins later. `benchmarks/many_rows.py` measures where, and with which power.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.sums import row_pieces
from scalable_gpe.graph.edges import Block, component_roots
from scalable_gpe.heat.kernel import JOINED, shared_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import LEAST_SHARE, OrdinaryRows, in_small_groups
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.slow_modes import Mode, ModeSearch

SHORTEST, LONGEST = 64, 2**24  # beyond, the offsets between groups leave float32 no digits for near rows
PER_TIME = 8  # horizons per relaxation time
MANY_ROWS, FIRST_OF_MANY = 50_000, 8
N_MODES = 8
_MOST_STEPS, _SETTLED = 18, 0.05  # of the search; relative change of the relaxation time at which it may end
_MOST_ROUNDS, _MOST_HELD = 6, 0.5  # rounds in which rows are held; share of them that leaves a shape
_FEW_ROWS, _MIXED = 4 * LEAST_SHARE, 0.1  # share of rows of a mode, and of its decay that its residual may be
_LONG, _GAP = 4096, 64  # times beyond which a gap between modes ends the shape, and its factor
_CARRIED = 0.05  # share of a mode's largest square from which a row carries it


@dataclass(frozen=True)
class Horizon:
    """A horizon, and the relaxation time that it was chosen by (None if the user chose it, or if it has no end).

    `n_sweeps` passes over K measured it. With `is_bound`, only groups of few rows were found: no shape is slower than
    `relaxation_time`.
    """

    horizon: int
    relaxation_time: float | None = None
    is_bound: bool = False
    n_sweeps: int = 0


def choose_first_power(given: int | str, n_rows: int) -> int:
    """The first power that the user gave, or one by the number of rows."""
    if isinstance(given, int):
        return given
    return FIRST_OF_MANY if n_rows >= MANY_ROWS else 1


def measure_horizon(basis: CoarseBasis) -> Horizon:
    """Find the slowest shape; rows of slow modes on few rows are held until one is seen."""
    heat, before = basis.heat, basis.heat.context.sweeps["interval"]
    panels = Panels(heat.context)
    roots = _roots(heat, panels, JOINED)
    held = np.asarray(heat.isolated[:]) | in_small_groups(heat, roots)
    shape: Sequence[Mode] = ()
    modes: Sequence[Mode] = ()
    with heat.context.workers.progress.stage("interval", _MOST_STEPS):
        for _ in range(_MOST_ROUNDS):
            if heat.kernel.edges.n_points - int(held.sum()) < 2:
                break
            search = _search(basis, panels, held, roots)
            modes = search.modes()
            shape = _of_shape(modes)
            if not shape and _on_many(modes):
                search = _search(basis, panels, held, roots, 2 * N_MODES)
                modes = search.modes()
                shape = _of_shape(modes)
            if shape or not modes:
                break
            more = _carriers(search, modes) | in_small_groups(heat, _roots(heat, panels, 1 / modes[-1].time))
            n_before, held = int(held.sum()), held | more
            if int(held.sum()) == n_before or int(held.sum()) > _MOST_HELD * len(held):
                break
    panels.clear()
    n_sweeps = heat.context.sweeps["interval"] - before
    slowest = shape[-1].time if shape else min((mode.time for mode in modes), default=1.0)
    time = slowest if np.isfinite(slowest) and modes else None
    return Horizon(_horizon_for(slowest), time, bool(modes) and not shape, n_sweeps)


def _horizon_for(time: float) -> int:
    """The smallest power of two from eight relaxation times on."""
    return int(np.clip(2 ** np.ceil(np.log2(PER_TIME * max(time, 1.0))), SHORTEST, LONGEST))


def _search(
    basis: CoarseBasis, panels: Panels, held: np.ndarray, roots: Panel | None, n_modes: int = N_MODES
) -> ModeSearch:
    """The slow modes of the rows that are not held, until the time of the slowest shape has settled."""
    heat = basis.heat
    rows = OrdinaryRows.of(heat, panels, held if held.any() else None, roots)
    lost = _lost(heat, rows, panels) if held.any() else None
    search = ModeSearch(basis, rows, panels, lost)
    search.begin(min(n_modes, max(1, (heat.kernel.edges.n_points - int(held.sum()) - 1) // 3)))
    before = 0.0
    for _ in range(_MOST_STEPS):
        search.step()
        shape = _of_shape(search.modes())
        now = shape[-1].time if shape else float(search.decays[-1])
        change = abs(now - before)
        if shape and _is_doubtful(shape[-1]):
            pass  # it may become a mode of few rows
        elif change <= _SETTLED * abs(now) and _horizon_for(now - change) == _horizon_for(now + change):
            break
        before = now
    return search


def _is_doubtful(mode: Mode) -> bool:
    """Whether a mode that lives on hardly enough rows is still a mixture with others."""
    return mode.share < _FEW_ROWS and mode.residual > _MIXED * mode.decay


def _on_many(modes: Sequence[Mode]) -> list[Mode]:
    """The modes that live on many rows, the slowest one last."""
    return sorted((mode for mode in modes if mode.share >= LEAST_SHARE and mode.decay < 1), key=lambda mode: mode.time)


def _of_shape(modes: Sequence[Mode]) -> list[Mode]:
    """The modes that live on many rows before the first gap beyond `_LONG`, the slowest one last.

    Modes that were not found are faster than all others: beyond a gap from those, none is of the shape.
    """
    shape, before = list[Mode](), min((mode.time for mode in modes if mode.decay < 1), default=1.0)
    for mode in _on_many(modes):
        if mode.time > _LONG and mode.time > _GAP * before:
            break
        shape.append(mode)
        before = mode.time
    return shape


def _roots(heat: HeatKernel, panels: Panels, least: float) -> Panel | None:
    """First point of the component of each point, where entries of A below `least` do not join; None if all are one."""
    kernel = heat.kernel
    if least == JOINED:
        return None if kernel.n_connected_components == 1 else shared_components(kernel, panels)
    root = panels.of(heat.context.filled(len(heat.step_scale), np.float64, lambda a, b: np.sqrt(heat.step_scale[a:b])))

    def joins(block: Block) -> np.ndarray:
        whole = root.whole(block.indices)
        own = np.repeat(whole[block.first : block.stop], np.diff(block.indptr))
        joined: np.ndarray = block.values * own * whole[block.indices] >= least
        return joined

    return component_roots(kernel.edges, heat.context, panels, joins)


def _carriers(search: ModeSearch, modes: Sequence[Mode]) -> np.ndarray:
    """Mask of the rows that modes of few rows live on."""
    assert search.current is not None
    heat, vectors = search.basis.heat, search.current.vectors
    local = np.array([mode.share < LEAST_SHARE for mode in modes])

    def squares(piece: tuple[int, int]) -> np.ndarray:
        found: np.ndarray = vectors.rows(*piece)[:, local] ** 2 / heat.step_scale[slice(*piece)][:, None]
        return found

    blocks = row_pieces(heat.context, vectors.shape[0])
    largest = np.max([squares(piece).max(axis=0) for piece in blocks], axis=0)
    return np.concatenate([(squares(piece) > _CARRIED * largest).any(axis=1) for piece in blocks])


def _lost(heat: HeatKernel, rows: OrdinaryRows, panels: Panels) -> Panel:
    """The share of the heat of each row that goes to rows that are held."""
    shape = (heat.kernel.edges.n_points, 1)

    def ordinary(start: int, stop: int) -> Any:
        free = ~rows.are_held(start, stop)
        return (free * rows.top.rows(start, stop) * np.sqrt(heat.step_scale[start:stop]))[:, None]

    top, image = panels.filled(shape, np.float64, ordinary), panels.new(shape, np.float64)
    sweep(heat.kernel, Product(heat.step_rows), top, image, heat.context, purpose="interval")

    def lost(start: int, stop: int) -> Any:
        own = top.rows(start, stop)[:, 0]
        kept = np.divide(image.rows(start, stop)[:, 0], own, out=np.ones(len(own)), where=own > 0)
        return np.clip(1 - kept, 0.0, 1.0)

    return panels.filled(shape[:1], np.float64, lost)
