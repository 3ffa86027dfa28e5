"""One sweep: a pass over all blocks of K with a compiled loop.

For every block of rows: read it, multiply, write the rows of the target. Sinkhorn, products, Chebyshev steps, Lanczos,
row sums, the audit and the last write all call this function, each with its own loop.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, RowValues
from scalable_gpe.graph.edges import Block, Edges
from scalable_gpe.storage.mapped import mapped

Result = TypeVar("Result")


class SweptKernel(Protocol):
    """A symmetric matrix in blocks, which tasks in other processes open by name."""

    @property
    def edges(self) -> Edges: ...


# a loop over one block: it fills or updates the last array from the first, and returns a small number or None
SweepLoop = Callable[[Block, np.ndarray, np.ndarray], Result]


class Shares(NamedTuple):
    """How many times a sum grows by the rows that are updated (as they were before), multiplied, and new."""

    updated: float
    multiplied: float
    new: float


@dataclass(frozen=True)
class Accumulator:
    """A sum that grows by shares of the rows of a sweep: `old` is read, `new` is written."""

    old: Panel
    new: Panel
    shares: Shares


def sweep(
    kernel: SweptKernel,
    loop: SweepLoop[Result],
    source: Panel,
    target: Panel,
    context: Context,
    *,
    purpose: str,
    update: Panel | None = None,
    sums: Sequence[Accumulator] = (),
) -> list[Result]:
    """Pass over all blocks of K once; return the loop's result for each block.

    `update` is a panel whose rows the loop changes; they are written to `target`, which replaces it. The sweep is
    counted under its `purpose`, and as one step of progress.
    """

    def visit(number: int) -> Result:
        from scalable_gpe.loops import sparse

        block = kernel.edges.block(number)
        rows = block.first, block.stop
        # rows that are not used again are read first, so that the cache evicts them first
        out = target.room(*rows) if update is None else update.rows(*rows)
        added = [accumulator.old.rows(*rows) for accumulator in sums]
        _expect_changes([out, *added])
        multiplied = source.whole(block.indices)
        for total, accumulator in zip(added, sums, strict=True):
            sparse.accumulate(total, out, accumulator.shares.updated)
            sparse.accumulate(total, multiplied[slice(*rows)], accumulator.shares.multiplied)
        result = loop(block, multiplied, out)
        target.put(block.first, out)
        for total, accumulator in zip(added, sums, strict=True):
            sparse.accumulate(total, out, accumulator.shares.new)
            accumulator.new.put(block.first, total)
        return result

    visit.__name__ = _snake_case(type(loop).__name__)  # the task's name on a dashboard
    results = context.workers.map_blocks(visit, kernel.edges.n_blocks)
    context.sweeps[purpose] += 1
    context.workers.progress.advance()
    return results


def _expect_changes(arrays: Sequence[np.ndarray]) -> None:
    # not in the task, which is sent to other processes with what it names
    for values in arrays:
        mapped.will_change(values)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class Product:
    """``out = diag(scale) K source``; `scale` gives some rows of the diagonal."""

    scale: RowValues

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> None:
        from scalable_gpe.loops import sparse

        scale = self.scale(block.first, block.stop)
        sparse.product(block.indptr, block.indices, block.values, source, scale, out)


@dataclass(frozen=True)
class RowSums:
    """``out = K source`` for a vector in double precision."""

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> None:
        from scalable_gpe.loops import sparse

        sparse.row_sums(block.indptr, block.indices, block.values, source, out)


@dataclass(frozen=True)
class SinkhornStep:
    """One damped step on v = m / d: ``out = m / sqrt(d * K v)``; returns the largest difference of a row sum from 1."""

    weights: RowValues

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> float:
        from scalable_gpe.loops import sparse

        weights = self.weights(block.first, block.stop)
        return float(sparse.sinkhorn_step(block.indptr, block.indices, block.values, source, weights, block.first, out))


@dataclass(frozen=True)
class RecurrenceStep:
    """A step of three terms: ``out <- factor * diag(scale) K source - before * out``, with one factor per column."""

    scale: RowValues
    factor: np.ndarray
    before: np.ndarray

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> None:
        from scalable_gpe.loops import sparse

        scale = self.scale(block.first, block.stop)
        sparse.recurrence_step(block.indptr, block.indices, block.values, source, out, scale, self.factor, self.before)
