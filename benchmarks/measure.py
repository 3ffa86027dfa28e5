"""Rows of a benchmark table, and timing."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table: `value` in `unit` for `what`, the value to aim at, and the one that `--check` insists on.

    `limit` has a margin over the aim: the same loop varies by a half on a busy machine.
    """

    what: str
    value: float | None
    unit: str
    aim: str = ""
    detail: str = ""
    limit: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the value is beyond its limit; a row that was left out is not."""
        if self.value is None or not self.limit:
            return False
        sign, number = self.limit.split()
        return self.value > float(number) if sign == "<=" else self.value < float(number)


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Add the options of the points and of their embedding."""
    parser.add_argument("--points", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--power", type=int, default=64)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def check(rows: list[Row]) -> None:
    """Stop with an error that names the rows beyond their limits."""
    over = [f"{row.what}: {_value(row)}, limit {row.limit}" for row in rows if row.is_over]
    if over:
        raise SystemExit("beyond the limit:\n" + "\n".join(over))


def best_of(call: Callable[[], Any], n_times: int = 5) -> float:
    return min(timed(call)[0] for _ in range(n_times))


def show(rows: list[Row]) -> str:
    cells = [("what", "measured", "aim", "")] + [(row.what, _value(row), row.aim, row.detail) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(line[:3], widths, strict=True)), line[3]])
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _value(row: Row) -> str:
    return "left out" if row.value is None else f"{row.value:.3g} {row.unit}"
