"""Power iteration: A^p applied to a panel of columns of G.

A panel is kept as Z = S x (times the multiplicities), for which one application of A is ``Z <- S^2 M K Z``: the inner
loop then multiplies by K alone. For a power p, Z is stored after p - 1 applications; the last application gives the
embedding, ``y = s (K Z) / sqrt(k)``, and the same formula embeds new points.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.sums import chunk_products, chunk_totals, row_pieces, sum_rows
from scalable_gpe.heat.normalization import HeatKernel, StepScale
from scalable_gpe.heat.sweep import Accumulator, ChebyshevStep, Product, sweep
from scalable_gpe.sketch.polynomial import PowerPlan
from scalable_gpe.sketch.random_matrix import Sketch

GROWTH = 1.1  # |T_j G| beyond this times |G| means an eigenvalue outside the interval


def column_means(heat: HeatKernel, sketch: Sketch, columns: np.ndarray) -> np.ndarray:
    """Means of the columns of G over the user's rows; zero if the columns are not centred."""
    if not heat.is_centred:
        return np.zeros(len(columns))

    def totals(start: int, stop: int) -> np.ndarray:
        return chunk_totals(_point_entries(heat, sketch, columns, start, stop))

    return sum_rows(heat.context, heat.kernel.storage_order.n_points, totals) / heat.shape[0]


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
        return chunk_totals(entries)

    sums = sum_rows(heat.context, n_points, sketch_rows)
    means = sums / heat.shape[0] if heat.is_centred else np.zeros(len(columns))
    with replaced(panel) as centred:

        def centre_rows(piece: tuple[int, int]) -> None:
            out = panel.rows(*piece)
            sparse.centre_rows(out, heat.weights[slice(*piece)], means, heat.scale_points[slice(*piece)])
            centred.put(piece[0], out)

        heat.context.workers.map(centre_rows, row_pieces(heat.context, n_points), count=False)
    return centred, means


def _point_entries(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, start: int, stop: int) -> np.ndarray:
    """``P'G``: entries of G, summed over the rows of each of some points."""
    storage_order = heat.kernel.storage_order
    rows, bounds = storage_order.rows_by_point
    entries = sketch.entries(rows[bounds[start] : bounds[stop]], columns)
    if storage_order.group is None:
        return entries
    return np.add.reduceat(entries, bounds[start:stop] - bounds[start], axis=0)


def multiply(heat: HeatKernel, source: Panel, target: Panel, purpose: str = "sketch") -> Panel:
    """``A source``, which replaces `target`."""
    with replaced(target) as fresh:
        sweep(heat.kernel, Product(StepScale(heat)), source, fresh, heat.context, purpose=purpose)
    return fresh


def chebyshev(
    heat: HeatKernel,
    current: Panel,
    previous: Panel,
    lower: float,
    sums: Sequence[tuple[Panel, float]],
    *,
    beginning: bool = False,
    purpose: str = "sketch",
) -> tuple[Panel, list[Panel]]:
    """Compute ``T_(j+1)`` on [lower, 1], which replaces T_(j-1), and add its share to each of `sums`.

    The first step makes T_1 from T_0 and zeros; it takes half of the recurrence.
    """
    half = 0.5 if beginning else 1.0
    loop = ChebyshevStep(StepScale(heat), half * 2 / (1 - lower), -half * (1 + lower) / (1 - lower))
    with ExitStack() as stack:
        fresh = stack.enter_context(replaced(previous))
        totals = [Accumulator(total, stack.enter_context(replaced(total)), share) for total, share in sums]
        sweep(heat.kernel, loop, current, fresh, heat.context, purpose=purpose, update=previous, sums=totals)
    return fresh, [total.new for total in totals]


@dataclass(frozen=True)
class IterationState:
    """Progress of an interrupted iteration: the powers left, and the squared lengths at the start."""

    powers: tuple[int, ...]
    phase: str
    step: int
    n_sweeps: int = 0
    began_with: tuple[int, ...] = ()
    length: tuple[float, ...] = ()
    grown: tuple[bool, ...] = ()


class PowerIteration:
    """Applies several powers to one panel; iterating yields ``(power, Z after power - 1 applications)``.

    Powers by plain products come first, in ascending order, then those by expansion. `start` makes the panel. `wrong`
    holds the columns for which the interval proved too short, once the first expanded power is yielded. `n_sweeps`
    counts all sweeps, including those before an interruption.
    """

    def __init__(
        self,
        heat: HeatKernel,
        start: Callable[[], Panel],
        plans: Sequence[PowerPlan],
        panels: Panels,
        purpose: str = "sketch",
    ) -> None:
        self._heat, self._start, self._panels, self._purpose = heat, start, panels, purpose
        self._plain = sorted(plan.power for plan in plans if not plan.coefficients)
        self._expanded = sorted((plan for plan in plans if plan.coefficients), key=lambda plan: plan.power)
        self.wrong = np.zeros(0, np.int64)
        self.n_sweeps = 0
        self.began_with = tuple(sorted(plan.power for plan in plans))

    def __iter__(self) -> Iterator[tuple[int, Panel]]:
        state, saved = self._saved()
        if self._plain:
            resumes = state is not None and state.phase == "plain"
            yield from self._multiply(state, saved) if resumes else self._multiply(None, {})
            state, saved = None, {}
        if self._expanded:
            sums = self._expand(state, saved)
            while self._expanded:
                power = self._expanded.pop(0).power
                yield power, sums.pop(power)

    def _saved(self) -> tuple[IterationState | None, dict[str, Panel]]:
        """Load the state that was saved for exactly these powers, if there is one."""
        found = self._panels.load(IterationState)
        if found is None or found[0].powers != self._powers():
            return None, {}
        self.n_sweeps = found[0].n_sweeps
        self.began_with = found[0].began_with or self.began_with
        return found

    def _powers(self) -> tuple[int, ...]:
        return (*self._plain, *(plan.power for plan in self._expanded))

    def _multiply(self, state: IterationState | None, saved: dict[str, Panel]) -> Iterator[tuple[int, Panel]]:
        """Apply plain products; a yielded panel is valid until the next one is requested."""
        panel = self._start() if state is None else saved["panel"]
        done, other = 0 if state is None else state.step, self._panels.new(panel.shape, panel.dtype)
        while self._plain:
            if done + 1 == self._plain[0]:
                self._plain.pop(0)
                yield done + 1, panel
                continue
            panel, other = multiply(self._heat, panel, other, self._purpose), panel
            done += 1
            self.n_sweeps += 1
            self._panels.offer(
                IterationState(self._powers(), "plain", done, self.n_sweeps, self.began_with), {"panel": panel}
            )

    def _expand(self, state: IterationState | None, saved: dict[str, Panel]) -> dict[int, Panel]:
        """Sum the Chebyshev series of each power (one interval for all), and check the growth of the vectors."""
        plans, lower = self._expanded, self._expanded[0].lower
        if state is not None:
            current, previous, done = saved["current"], saved["previous"], state.step
            sums = {plan.power: saved[f"sum-{plan.power}"] for plan in plans}
            length, grown = np.array(state.length), np.array(state.grown, bool)
        else:
            current = self._start()
            previous, sums = self._first_terms(current)
            length, grown, done = _squared_lengths(self._heat, current), np.zeros(current.shape[1], bool), 0
        for degree in range(done + 1, max(plan.degree for plan in plans) + 1):
            adding = [plan for plan in plans if plan.degree >= degree]
            terms = [(sums[plan.power], plan.coefficients[degree]) for plan in adding]
            fresh, totals = chebyshev(
                self._heat, current, previous, lower, terms, beginning=degree == 1, purpose=self._purpose
            )
            current, previous = fresh, current
            self.n_sweeps += 1
            sums |= {plan.power: total for plan, total in zip(adding, totals, strict=True)}
            if any(plan.degree == degree for plan in plans):
                # ~(<=) and not >, because a recurrence that overflowed ends in NaN
                grown |= ~(_squared_lengths(self._heat, current) <= GROWTH**2 * length)
            self._panels.offer(
                IterationState(
                    self._powers(),
                    "expand",
                    degree,
                    self.n_sweeps,
                    self.began_with,
                    tuple(length.tolist()),
                    tuple(grown.tolist()),
                ),
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
        context.workers.map(first_terms, row_pieces(context, current.shape[0]), count=False)
        return previous, sums


def _squared_lengths(heat: HeatKernel, panel: Panel) -> np.ndarray:
    """Squared lengths of the columns of x = Z / (s sqrt(m)), the vectors in which A is symmetric."""

    def lengths(start: int, stop: int) -> np.ndarray:
        rows = panel.rows(start, stop)
        return chunk_products(rows, rows, heat.step_scale[start:stop])

    return sum_rows(heat.context, panel.shape[0], lengths)
