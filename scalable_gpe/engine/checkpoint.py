"""Saving a long iteration now and then, so that a killed run loses little."""

import time
from typing import Any

import numpy as np

from scalable_gpe.engine.blocks import current_cuts
from scalable_gpe.engine.errors import DamageError
from scalable_gpe.engine.run import Run
from scalable_gpe.engine.tables import ranges


class Checkpoint:
    """The state of one iteration in two slots, written in turn: one of them is always whole.

    ``offer`` saves when `seconds`, or a tenth of the time worked, have passed since the last time, whichever is longer.
    A home in memory saves nothing.
    """

    def __init__(self, run: Run, name: str, seconds: float) -> None:
        cut = current_cuts().save_seconds
        self._run, self._name = run, name
        self._seconds = seconds if cut is None else cut
        self._count = 0
        self._began = self._last = time.monotonic()

    def load(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """The latest state: its facts and its arrays."""
        if not self._run.home.stored:
            return None
        whole = [(facts["count"], slot, facts) for slot in (0, 1) if (facts := self._facts(slot)) is not None]
        for count, slot, facts in sorted(whole, reverse=True, key=lambda one: one[0]):
            arrays = self._arrays(slot, facts["arrays"])
            if arrays is not None:
                self._count = count
                return facts["state"], arrays
        return None

    def offer(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Save this state if it is time."""
        now = time.monotonic()
        if not self._run.home.stored or now - self._last < max(self._seconds, 0.1 * (now - self._began)):
            return
        self._count += 1
        slot = f"{self._name}/{self._count % 2}"
        self._run.home.remove(slot)
        for name, values in arrays.items():
            table = self._run.home.table(f"{slot}/{name}", values.shape, values.dtype)
            for start, stop in ranges(len(values), table.shard_rows):
                table.write(start, values[start:stop])
        facts = {"count": self._count, "state": state, "arrays": list(arrays)}
        self._run.home.mark(slot, facts)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Forget the states: the iteration is over."""
        if self._run.home.stored:
            self._run.home.remove(self._name)

    def _facts(self, slot: int) -> dict[str, Any] | None:
        try:
            return self._run.home.facts(f"{self._name}/{slot}")
        except DamageError:
            return None

    def _arrays(self, slot: int, names: list[str]) -> dict[str, np.ndarray] | None:
        try:
            tables = {name: self._run.home.open_table(f"{self._name}/{slot}/{name}") for name in names}
            return {name: np.ascontiguousarray(table.read(0, table.shape[0])) for name, table in tables.items()}
        except DamageError:
            return None
