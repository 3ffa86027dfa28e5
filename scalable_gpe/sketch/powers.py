"""Sweeps that carry A^p to a panel of columns.

A panel is kept as Z = S x (times the multiplicities), for which one application of A is ``Z <- S^2 M K Z``: the
inner loop then multiplies by K alone. What is stored of a power p is Z after p - 1 applications; the last one
gives the embedding, ``y = s (K Z) / sqrt(k)``, and is the same formula that places new points.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.engine.checkpoint import Checkpoint
from scalable_gpe.engine.numbering import CHUNK
from scalable_gpe.engine.tables import ranges
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.polynomial import Plan

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
        from scalable_gpe.engine.kernels import random

        out = np.empty((len(rows), len(columns)))
        fill = random.fill_gaussian if self.kind == "gaussian" else random.fill_bernoulli
        fill(out, np.asarray(rows, dtype=np.int64), columns, np.uint64(self.seed))
        return out


def column_means(heat: HeatKernel, sketch: Sketch, columns: np.ndarray) -> np.ndarray:
    """Means of the columns of G over the user's rows (zero where nothing is removed), in chunks of a fixed size."""
    if not heat.is_centred:
        return np.zeros(len(columns))
    n_rows = heat.shape[0]
    partial = heat.run.workers.map(
        # each column by itself: numpy adds up a single column in another order than several side by side
        lambda piece: np.ascontiguousarray(sketch.entries(np.arange(*piece), columns).T).sum(axis=1),
        ranges(n_rows, CHUNK),
        count=False,
    )
    total = np.zeros(len(columns))
    for part in partial:
        total += part
    return total / n_rows


def start_panel(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, means: np.ndarray) -> np.ndarray:
    """``Z = S P'(G - 1 m')``: the sketch summed over equal rows, in storage order."""
    numbering = heat.kernel.numbering
    panel = np.empty((numbering.n_points, len(columns)), sketch.dtype)
    rows_of, bounds = _rows_of_points(numbering)

    def one(piece: tuple[int, int]) -> None:
        start, stop = piece
        if bounds is None:
            values = sketch.entries(numbering.user_row[start:stop], columns) - means
        else:
            entries = sketch.entries(rows_of[bounds[start] : bounds[stop]], columns) - means
            values = np.add.reduceat(entries, bounds[start:stop] - bounds[start], axis=0)
        panel[start:stop] = heat.scale_points[start:stop, None] * values

    heat.run.workers.map(one, ranges(numbering.n_points, CHUNK), count=False)
    return panel


def _rows_of_points(numbering: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """All rows of the user, sorted by point (storage order), and where the rows of each point begin."""
    if numbering.group is None:
        return numbering.user_row, None
    rows = np.argsort(numbering.position, kind="stable")
    counts = np.bincount(numbering.position, minlength=numbering.n_points)
    return rows, np.concatenate([[0], np.cumsum(counts)])


class Sweeps:
    """Products of A with one panel, block by block, in place."""

    def __init__(self, heat: HeatKernel, kind: str = "sketch") -> None:
        self._heat, self._kind = heat, kind
        self._scale = heat.step_scale
        self._blocks = range(heat.kernel.edges.n_blocks)

    def _sweep(self, one: Callable[[int], None]) -> None:
        self._heat.run.workers.map(one, self._blocks, count=False)
        self._heat.run.count_sweep(self._kind)
        self._heat.run.workers.progress.advance()

    def product(self, source: np.ndarray, target: np.ndarray) -> None:
        """``target = A source``."""
        from scalable_gpe.engine.kernels import sparse

        def one(block: int) -> None:
            first, indptr, indices, weights = self._heat.kernel.edges.block(block)
            rows = slice(first, first + len(indptr) - 1)
            sparse.product(indptr, indices, weights, source, self._scale[rows], target[rows])

        self._sweep(one)

    def chebyshev(
        self,
        current: np.ndarray,
        previous: np.ndarray,
        lower: float,
        sums: Sequence[tuple[np.ndarray, float]],
        *,
        first: bool = False,
    ) -> None:
        """``previous <- T_(j+1)`` from T_j and T_(j-1) on [lower, 1], added to each of `sums` with its coefficient.

        The first step makes T_1 from T_0 and zeros, which is half of the recurrence.
        """
        from scalable_gpe.engine.kernels import sparse

        half = 0.5 if first else 1.0
        slope, shift = half * 2 / (1 - lower), -half * (1 + lower) / (1 - lower)

        def one(block: int) -> None:
            first, indptr, indices, weights = self._heat.kernel.edges.block(block)
            rows = slice(first, first + len(indptr) - 1)
            scale = self._scale[rows]
            sparse.chebyshev_step(indptr, indices, weights, current, previous, scale, first, slope, shift)
            for total, coefficient in sums:
                sparse.accumulate(total[rows], previous[rows], coefficient)

        self._sweep(one)


class Carry:
    """One panel on its way to several powers; iterating gives ``(power, Z after power - 1 applications)``.

    Powers that go by plain products come first, in ascending order, then those that are expanded. `start` makes the
    panel. Columns in which the interval proved too short stand in `wrong` once the first expanded power is given.
    """

    def __init__(
        self,
        heat: HeatKernel,
        start: Callable[[], np.ndarray],
        plans: Sequence[Plan],
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._heat, self._start, self._checkpoint = heat, start, checkpoint
        self._plain = sorted(plan.power for plan in plans if not plan.coefficients)
        self._expanded = sorted((plan for plan in plans if plan.coefficients), key=lambda plan: plan.power)
        self._sweeps = Sweeps(heat)
        self.wrong = np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        state, arrays = self._saved()
        if self._plain:
            yield from self._multiply(state, arrays) if state.get("phase") == "plain" else self._multiply({}, {})
            state, arrays = {}, {}
        if self._expanded:
            sums = self._expand(state, arrays)
            while self._expanded:
                power = self._expanded.pop(0).power
                yield power, sums.pop(power)

    def _saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The state that was saved for just these powers, or nothing."""
        found = self._checkpoint.load() if self._checkpoint else None
        if found is None or found[0]["powers"] != [*self._plain, *(plan.power for plan in self._expanded)]:
            return {}, {}
        return found

    def _offer(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if self._checkpoint:
            powers = [*self._plain, *(plan.power for plan in self._expanded)]
            self._checkpoint.offer({**state, "powers": powers}, arrays)

    def _multiply(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """Plain products."""
        panel = arrays["panel"] if arrays else self._start()
        done, other = state.get("step", 0), np.empty_like(panel)
        while self._plain:
            if done + 1 == self._plain[0]:
                self._plain.pop(0)
                yield done + 1, panel.copy() if self._plain else panel
                continue
            self._sweeps.product(panel, other)
            panel, other = other, panel
            done += 1
            self._offer({"phase": "plain", "step": done}, {"panel": panel})

    def _expand(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Sum the Chebyshev series of each power (one interval for all), watching the growth of the vectors."""
        plans, lower = self._expanded, self._expanded[0].lower
        if arrays:
            current, previous = arrays["current"], arrays["previous"]
            sums = {plan.power: arrays[f"sum-{plan.power}"] for plan in plans}
            length, grown, done = np.array(state["length"]), np.array(state["grown"], bool), state["step"]
        else:
            current = self._start()
            previous = np.zeros_like(current)
            sums = {plan.power: (current * current.dtype.type(plan.coefficients[0])) for plan in plans}
            length, grown, done = _lengths(self._heat, current), np.zeros(current.shape[1], bool), 0
        for degree in range(done + 1, max(plan.degree for plan in plans) + 1):
            terms = [(sums[plan.power], plan.coefficients[degree]) for plan in plans if plan.degree >= degree]
            self._sweeps.chebyshev(current, previous, lower, terms, first=degree == 1)
            current, previous = previous, current
            if any(plan.degree == degree for plan in plans):
                # not (<=): a recurrence that overflowed ends in NaN
                grown |= ~(_lengths(self._heat, current) <= GROWTH**2 * length)
            self._offer(
                {"phase": "expand", "step": degree, "length": length.tolist(), "grown": grown.tolist()},
                {"current": current, "previous": previous, **{f"sum-{power}": sums[power] for power in sums}},
            )
        self.wrong = np.flatnonzero(grown)
        return sums


def _lengths(heat: HeatKernel, panel: np.ndarray) -> np.ndarray:
    """Squared lengths of the columns of x = Z / (s sqrt(m)), the vectors in which A is symmetric."""
    return heat.kernel.numbering.inner(panel, panel, 1 / heat.step_scale, heat.run.workers)
