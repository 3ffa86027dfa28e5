"""Sweeps that carry A^p to a panel of columns.

A panel is kept as Z = S x (times the multiplicities), for which one application of A is ``Z <- S^2 M K Z``: the
inner loop then multiplies by K alone. What is stored of a power p is Z after p - 1 applications; the last one
gives the embedding, ``y = s (K Z) / sqrt(k)``, and is the same formula that places new points.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.execution.panels import CHUNK, Panel, Panels, add_up, chunk_sums, pieces_of, replaced
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.polynomial import Plan
from scalable_gpe.storage.protocol import ranges

GROWTH = 1.1  # |T_j G| beyond this times |G| means an eigenvalue outside the interval


@dataclass(frozen=True)
class Sketch:
    """Which random matrix: kind, seed, and the type of the panels that carry it."""

    kind: str
    seed: int
    precision: str

    @property
    def dtype(self) -> Any:
        """Type of a panel."""
        return np.float32 if self.precision == "single" else np.float64

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries of G for some of the user's rows."""
        from scalable_gpe.loops import random

        out = np.empty((len(rows), len(columns)))
        fill = random.fill_gaussian if self.kind == "gaussian" else random.fill_bernoulli
        fill(out, np.asarray(rows, dtype=np.int64), columns, np.uint64(self.seed))
        return out


def column_means(heat: HeatKernel, sketch: Sketch, columns: np.ndarray) -> np.ndarray:
    """Means of the columns of G over the user's rows; zero where nothing is removed."""
    if not heat.is_centred:
        return np.zeros(len(columns))
    n_points = heat.kernel.storage_order.n_points
    sums = add_up(heat.context, n_points, lambda a, b: _chunk_totals(_point_entries(heat, sketch, columns, a, b)))
    return sums / heat.shape[0]


def start_panel(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels) -> tuple[Panel, np.ndarray]:
    """``Z = S P'(G - 1 m')``, the sketch summed over equal rows, in storage order; and the means m of G's columns."""
    from scalable_gpe.loops import sparse

    n_points = heat.kernel.storage_order.n_points
    panel = panels.new((n_points, len(columns)), sketch.dtype)

    def sketch_rows(start: int, stop: int) -> np.ndarray:
        entries = _point_entries(heat, sketch, columns, start, stop)
        out = panel.room(start, stop)
        out[:] = entries
        panel.put(start, out)
        return _chunk_totals(entries)

    sums = add_up(heat.context, n_points, sketch_rows)
    means = sums / heat.shape[0] if heat.is_centred else np.zeros(len(columns))
    with replaced(panel) as centred:

        def centre_rows(piece: tuple[int, int]) -> None:
            out = panel.rows(*piece)
            sparse.centre_rows(out, heat.weights[slice(*piece)], means, heat.scale_points[slice(*piece)])
            centred.put(piece[0], out)

        heat.context.workers.map(centre_rows, pieces_of(heat.context, n_points), count=False)
    return centred, means


def _point_entries(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, start: int, stop: int) -> np.ndarray:
    """``P'G``: entries of G, summed over the rows of each of some points."""
    storage_order = heat.kernel.storage_order
    rows, bounds = storage_order.rows_by_point
    entries = sketch.entries(rows[bounds[start] : bounds[stop]], columns)
    return (
        entries if storage_order.group is None else np.add.reduceat(entries, bounds[start:stop] - bounds[start], axis=0)
    )


def _chunk_totals(values: np.ndarray) -> np.ndarray:
    """Sums of the columns of each chunk of rows."""
    from scalable_gpe.loops import sparse

    out = np.empty((-(-len(values) // CHUNK), values.shape[1]))
    for number, (start, stop) in enumerate(ranges(len(values), CHUNK)):
        sparse.column_sums(values[start:stop], out[number])
    return out


class Sweeps:
    """Products of A with one panel, block by block."""

    def __init__(self, heat: HeatKernel, kind: str = "sketch") -> None:
        self._heat, self._kind = heat, kind

    def _sweep(self, task: Callable[[int], None]) -> None:
        context = self._heat.context
        context.workers.map(task, range(self._heat.kernel.edges.n_blocks), count=False)
        context.count_sweep(self._kind)
        context.workers.progress.advance()

    def product(self, source: Panel, target: Panel) -> Panel:
        """``A source``, in the place of `target`."""
        from scalable_gpe.loops import sparse

        heat = self._heat
        with replaced(target) as fresh:

            def multiply(block: int) -> None:
                first, indptr, indices, weights = heat.kernel.edges.block(block)
                stop = first + len(indptr) - 1
                out = fresh.room(first, stop)
                sparse.product(indptr, indices, weights, source.whole(indices), heat.step_scale[first:stop], out)
                fresh.put(first, out)

            self._sweep(multiply)
        return fresh

    def chebyshev(
        self,
        current: Panel,
        previous: Panel,
        lower: float,
        sums: Sequence[tuple[Panel, float]],
        *,
        beginning: bool = False,
    ) -> tuple[Panel, list[Panel]]:
        """``T_(j+1)`` from T_j and T_(j-1) on [lower, 1], in the place of T_(j-1); each of `sums` with its share of it.

        The first step makes T_1 from T_0 and zeros, which is half of the recurrence.
        """
        from scalable_gpe.loops import sparse

        heat = self._heat
        half = 0.5 if beginning else 1.0
        slope, shift = half * 2 / (1 - lower), -half * (1 + lower) / (1 - lower)
        with ExitStack() as stack:
            fresh = stack.enter_context(replaced(previous))
            totals = [(total, share, stack.enter_context(replaced(total))) for total, share in sums]

            def chebyshev_step(block: int) -> None:
                first, indptr, indices, weights = heat.kernel.edges.block(block)
                stop = first + len(indptr) - 1
                # in this order: what is used no more was used first, and is forgotten first
                out, scale = previous.rows(first, stop), heat.step_scale[first:stop]
                added = [total.rows(first, stop) for total, *_ in totals]
                dense = current.whole(indices)
                sparse.chebyshev_step(indptr, indices, weights, dense, out, scale, first, slope, shift)
                fresh.put(first, out)
                for rows, (_, share, after) in zip(added, totals, strict=True):
                    sparse.accumulate(rows, out, share)
                    after.put(first, rows)

            self._sweep(chebyshev_step)
        return fresh, [after for *_, after in totals]


class PowerIteration:
    """One panel on its way to several powers; iterating gives ``(power, Z after power - 1 applications)``.

    Powers that go by plain products come first, in ascending order, then those that are expanded. `start` makes the
    panel. Columns in which the interval proved too short stand in `wrong` once the first expanded power is given.
    """

    def __init__(self, heat: HeatKernel, start: Callable[[], Panel], plans: Sequence[Plan], panels: Panels) -> None:
        self._heat, self._start, self._panels = heat, start, panels
        self._plain = sorted(plan.power for plan in plans if not plan.coefficients)
        self._expanded = sorted((plan for plan in plans if plan.coefficients), key=lambda plan: plan.power)
        self._sweeps = Sweeps(heat)
        self.wrong = np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[tuple[int, Panel]]:
        state, saved = self._saved()
        if self._plain:
            yield from self._multiply(state, saved) if state.get("phase") == "plain" else self._multiply({}, {})
            state, saved = {}, {}
        if self._expanded:
            sums = self._expand(state, saved)
            while self._expanded:
                power = self._expanded.pop(0).power
                yield power, sums.pop(power)

    def _saved(self) -> tuple[dict[str, Any], dict[str, Panel]]:
        """The state that was saved for just these powers, or nothing."""
        found = self._panels.load()
        if found is None or found[0]["powers"] != self._powers():
            return {}, {}
        return found

    def _powers(self) -> list[int]:
        return [*self._plain, *(plan.power for plan in self._expanded)]

    def _offer(self, state: dict[str, Any], panels: dict[str, Panel]) -> None:
        self._panels.offer({**state, "powers": self._powers()}, panels)

    def _multiply(self, state: dict[str, Any], saved: dict[str, Panel]) -> Iterator[tuple[int, Panel]]:
        """Plain products; a panel that is given is to be used before the next one is asked for."""
        panel = saved["panel"] if saved else self._start()
        done, other = state.get("step", 0), self._panels.new(panel.shape, panel.dtype)
        while self._plain:
            if done + 1 == self._plain[0]:
                self._plain.pop(0)
                yield done + 1, panel
                continue
            panel, other = self._sweeps.product(panel, other), panel
            done += 1
            self._offer({"phase": "plain", "step": done}, {"panel": panel})

    def _expand(self, state: dict[str, Any], saved: dict[str, Panel]) -> dict[int, Panel]:
        """Sum the Chebyshev series of each power (one interval for all), watching the growth of the vectors."""
        plans, lower = self._expanded, self._expanded[0].lower
        if saved:
            current, previous = saved["current"], saved["previous"]
            sums = {plan.power: saved[f"sum-{plan.power}"] for plan in plans}
            length, grown, done = np.array(state["length"]), np.array(state["grown"], bool), state["step"]
        else:
            current = self._start()
            previous, sums = self._first_terms(current)
            length, grown, done = _lengths(self._heat, current), np.zeros(current.shape[1], bool), 0
        for degree in range(done + 1, max(plan.degree for plan in plans) + 1):
            adding = [plan for plan in plans if plan.degree >= degree]
            terms = [(sums[plan.power], plan.coefficients[degree]) for plan in adding]
            fresh, totals = self._sweeps.chebyshev(current, previous, lower, terms, beginning=degree == 1)
            current, previous = fresh, current
            sums |= {plan.power: total for plan, total in zip(adding, totals, strict=True)}
            if any(plan.degree == degree for plan in plans):
                # not (<=): a recurrence that overflowed ends in NaN
                grown |= ~(_lengths(self._heat, current) <= GROWTH**2 * length)
            self._offer(
                {"phase": "expand", "step": degree, "length": length.tolist(), "grown": grown.tolist()},
                {"current": current, "previous": previous, **{f"sum-{power}": sums[power] for power in sums}},
            )
        self.wrong = np.flatnonzero(grown)
        return sums

    def _first_terms(self, current: Panel) -> tuple[Panel, dict[int, Panel]]:
        """Zeros in place of T_(-1), and the constant term of each series."""
        previous = self._panels.new(current.shape, current.dtype)
        sums = {plan.power: self._panels.new(current.shape, current.dtype) for plan in self._expanded}
        shares = {plan.power: current.dtype.type(plan.coefficients[0]) for plan in self._expanded}

        def first_terms(piece: tuple[int, int]) -> None:
            zeros = previous.room(*piece)
            zeros[:] = 0
            previous.put(piece[0], zeros)
            for power, total in sums.items():
                out = total.room(*piece)
                np.multiply(current.rows(*piece), shares[power], out=out)
                total.put(piece[0], out)

        context = self._heat.context
        context.workers.map(first_terms, pieces_of(context, current.shape[0]), count=False)
        return previous, sums


def _lengths(heat: HeatKernel, panel: Panel) -> np.ndarray:
    """Squared lengths of the columns of x = Z / (s sqrt(m)), the vectors in which A is symmetric."""

    def lengths(start: int, stop: int) -> np.ndarray:
        rows = panel.rows(start, stop)
        return chunk_sums(rows, rows, heat.step_scale[start:stop])

    return add_up(heat.context, panel.shape[0], lengths)
