"""Choice of the powers that "all" sums: from a first power m on, up to the horizon T, as long as the data still change.

The slowest change of the data has the eigenvalue l, the largest one below those that no power shrinks (one for each
component of the kernel) and apart from isolated rows. It decays within 1 / (1 - l) steps, the relaxation time; the
horizon is the smallest power of two that is at least as long, within limits.

Products grow with the square root of the horizon, and their cost with N. Fewer rows may have a longer horizon, so that
the sum costs no more than that of 300,000 rows with the shortest cap. A shape, however long, has changes of all speeds;
clusters that are almost apart, or a row far out, are much slower than all else, and a longer sum tells nothing more
about them. So beyond the shortest cap a horizon must be reached without a gap between the times. If A is not centred
(symmetric normalisation), clusters differ by more than their slow changes, and long sums hide all else: the cap stays.

The first powers tell a row apart from all others, near or far. Let d be the dimension of the data. The largest
eigenvalues add about T^2 / N to a squared distance, and T grows with N^(2/d): in more than four dimensions that part
falls with N, while that of the first powers remains. The sketch's error is a share of the whole, so from many rows on
the sum begins later. `benchmarks/many_rows.py` measures where, and with which power.
"""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.spectral.lanczos import Lanczos, steps_for

SHORTEST, CAP, LONGEST = 64, 4096, 32768  # the cap is that of many rows; few rows have the longest
_CAPPED_ROWS = 300_000
_GAP = 64  # of the times of a change and of the next but one: 9 on a line; 25 as long as they are not resolved
_MARGIN = 4  # steps that resolve the changes before a gap: what is not resolved yet looks faster than it is
MANY_ROWS, FIRST_OF_MANY = 50_000, 4
_MANY_SLOWER = 4  # on a torus and a swiss roll, 4 to 9 leave an order of long distances of .45 to .7, 1 to 2 one of .82


@dataclass(frozen=True)
class Horizon:
    """A horizon, and the relaxation time that it was chosen by (None if the user chose it, or if it has no end).

    It is `capped` if changes of a shape are slower, about `n_slower` of them. Those of parts that almost no heat
    connects do not count.
    """

    horizon: int
    relaxation_time: float | None = None
    capped: bool = False
    n_slower: float | None = None

    @property
    def warning(self) -> str | None:
        """What to do about a horizon that is far too short, or None."""
        if self.n_slower is None or self.n_slower < _MANY_SLOWER:
            return None
        return (
            f"`horizon={self.horizon}`, the longest that 'auto' takes here, is too short for these data: about "
            f"{self.n_slower:.0f} of their directions change more slowly. Near rows are right, but the order of long "
            "distances is lost. If these matter, embed a sample of the rows and place the others with transform(), or "
            "pass a longer `horizon`: time grows with its square root."
        )


def choose_first_power(given: int | str, n_rows: int) -> int:
    """The first power that the user gave, or one by the number of rows."""
    if isinstance(given, int):
        return given
    return FIRST_OF_MANY if n_rows >= MANY_ROWS else 1


def longest_horizon(n_rows: int) -> int:
    """The longest horizon that "auto" takes: a power of two."""
    affordable = CAP * (_CAPPED_ROWS / n_rows) ** 2
    return int(np.clip(2 ** np.floor(np.log2(affordable)), CAP, LONGEST))


def choose_horizon(lanczos: Lanczos, context: Context, name: str) -> Horizon:
    """Read the horizon of a heat kernel, or choose it and store it under `name`."""
    known = context.store.read(name, Horizon)
    if known is None:
        known = measure_horizon(lanczos)
        context.store.commit(name, known)
    return known


def measure_horizon(lanczos: Lanczos) -> Horizon:
    """Take more Lanczos steps until they resolve the relaxation time, or show that the longest horizon is too short."""
    horizon, longest = SHORTEST, longest_horizon(lanczos.n_rows) if lanczos.is_centred else CAP
    while True:
        times = [_times(nodes) for nodes in lanczos.nodes(steps_for(horizon))]
        slowest, reach = max(float(each[-1]) for each in times), max(map(_reach, times))
        if slowest <= horizon:
            return Horizon(horizon, slowest)
        parted = slowest > CAP and reach <= horizon / _MARGIN
        if parted or reach > longest or slowest > CAP == longest or horizon == longest:
            chosen = int(max(2 ** np.ceil(np.log2(min(reach, longest))), CAP))
            n_slower = None if parted else _count_slower(lanczos, chosen)
            return Horizon(chosen, slowest if np.isfinite(slowest) else None, not parted, n_slower)
        horizon *= 2


def _count_slower(lanczos: Lanczos, horizon: int) -> float:
    """About how many eigenvalues have a relaxation time longer than the horizon."""
    spectrum = lanczos.spectrum(steps_for(horizon))
    return float(spectrum.n_points * spectrum.weights[spectrum.nodes > 1 - 1 / horizon].sum())


def _times(eigenvalues: np.ndarray) -> np.ndarray:
    """The steps within which changes decay, the slowest one last."""
    left = 1 - np.sort(eigenvalues)
    times: np.ndarray = np.divide(1.0, left, out=np.full(len(left), np.inf), where=left > 0)
    return times


def _reach(times: np.ndarray) -> float:
    """The longest time before the first gap beyond the cap; the longest one of all if there is none.

    While a slow change is not resolved, its time moves through the gap: one time is left out.
    """
    gaps = np.flatnonzero((times[2:] > CAP) & (times[2:] > _GAP * times[:-2]))
    return float(times[gaps[0]] if len(gaps) else times[-1])
