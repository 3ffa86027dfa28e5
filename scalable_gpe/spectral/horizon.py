"""Choice of the powers that "all" sums: from a first power m on, up to the horizon T, as long as the data still change.

The slowest change of the data has the eigenvalue l, the largest one below those that no power shrinks (one for each
component of the kernel) and apart from isolated rows. It decays within 1 / (1 - l) steps, the relaxation time; the
horizon is the smallest power of two that is at least as long, within limits.

The first powers tell a row apart from all others, near or far. Let d be the dimension of the data. The largest
eigenvalues add about T^2 / N to a squared distance, and T grows with N^(2/d): in more than four dimensions that part
falls with N, while that of the first powers remains. The sketch's error is a share of the whole, so from many rows on
the sum begins later. `benchmarks/many_rows.py` measures where, and with which power.
"""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.spectral.lanczos import Lanczos, steps_for

SHORTEST, LONGEST = 64, 4096
MANY_ROWS, FIRST_OF_MANY = 50_000, 4


@dataclass(frozen=True)
class Horizon:
    """A horizon, and the relaxation time that it was chosen by (None if the user chose it)."""

    horizon: int
    relaxation_time: float | None = None
    capped: bool = False


def choose_first_power(given: int | str, n_rows: int) -> int:
    """The first power that the user gave, or one by the number of rows."""
    if isinstance(given, int):
        return given
    return FIRST_OF_MANY if n_rows >= MANY_ROWS else 1


def choose_horizon(lanczos: Lanczos, context: Context, name: str) -> Horizon:
    """Read the horizon of a heat kernel, or choose it and store it under `name`."""
    known = context.store.read(name, Horizon)
    if known is None:
        known = measure_horizon(lanczos)
        context.store.commit(name, known)
    return known


def measure_horizon(lanczos: Lanczos) -> Horizon:
    """Take more Lanczos steps until they resolve the relaxation time, or until it exceeds the longest horizon."""
    horizon = SHORTEST
    while True:
        slowest = float(lanczos.spectrum(steps_for(horizon)).nodes.max())
        time = 1 / (1 - slowest) if slowest < 1 else np.inf
        if time > LONGEST:
            return Horizon(LONGEST, time if np.isfinite(time) else None, capped=True)
        if time <= horizon:
            return Horizon(horizon, time)
        horizon *= 2
