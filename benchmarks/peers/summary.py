"""All runs by data, size and method, with means over seeds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from peers.methods import METHODS
from peers.records import Record, Results

FLOOR = "neighbours alone"
HEADINGS = {
    "labels": "labels",
    "NMI": "NMI",
    "few": "few labels",
    "rho": "order of true distances",
    "diffusion 16": "exact, power 16",
    "diffusion 64": "exact, power 64",
    "diffusion all": "exact, pseudotime",
}


@dataclass(frozen=True)
class Value:
    """Mean over seeds, and its standard error (None for one seed)."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Value":
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        return cls(float(np.mean(values)), error)

    def text(self, form: Callable[[float], str]) -> str:
        return form(self.mean) + ("" if self.error is None else f" ± {form(self.error)}")


@dataclass(frozen=True)
class Runs:
    """The runs of one method on one data set of one size: one per seed."""

    records: tuple[Record, ...]

    @property
    def done(self) -> list[Record]:
        return [one for one in self.records if one.status == "done"]

    @property
    def stop(self) -> Record | None:
        """The run that did not end well, if any."""
        return next((one for one in self.records if one.status != "done"), None)

    def value(self, of: Callable[[Record], float]) -> Value | None:
        return Value.of([of(one) for one in self.done]) if self.done else None

    def least(self, of: Callable[[Record], float]) -> float | None:
        """The smallest of all seeds: other work on the machine only adds to a time."""
        return min(map(of, self.done), default=None)

    def figure(self, figure: str, time: str | None = None) -> Value | None:
        """One figure, at one time of the diffusion (None: the best one)."""
        found = [
            [at[figure] for t, at in one.figures.items() if figure in at and time in (t, None)] for one in self.done
        ]
        values = [max(one) for one in found if one]
        return Value.of(values) if values else None

    @property
    def times(self) -> list[str]:
        return [time for time in self.done[0].figures if time != "pseudotime"] if self.done else []

    @property
    def stability(self) -> Value | None:
        """Spearman's correlation of the distances of the same pairs between seeds."""
        from scipy.stats import spearmanr

        lists = [one.distances for one in self.done if one.distances]
        if len(lists) < 2:
            return None
        pairs = [(a, b) for number, a in enumerate(lists) for b in lists[:number]]
        return Value(float(np.mean([spearmanr(a, b)[0] for a, b in pairs])), None)


Table = dict[tuple[str, int, str], Runs]


def tabulate(results: Results) -> Table:
    """Group runs by data, number of rows and method."""
    grouped = defaultdict(list)
    for key, record in sorted(results.records.items()):
        if key.method in METHODS:
            grouped[key.data, key.n_rows, key.method].append(record)
    return {key: Runs(tuple(records)) for key, records in grouped.items()}


def main_data(table: Table) -> str:
    """The data set with the most sizes: that of the time."""
    sizes = defaultdict(set)
    for data, n_rows, _ in table:
        sizes[data].add(n_rows)
    return max(sizes, key=lambda data: (len(sizes[data]), max(sizes[data])))


def methods_of(keys: Iterable[tuple[str, int, str]]) -> list[str]:
    known = {key[2] for key in keys}
    return [name for name in METHODS if name in known]


def quality_size(table: Table, name: str) -> int | None:
    """The size with most methods, the largest of them, among those with several seeds if there are any."""
    methods = {n: [table[key] for key in table if key[:2] == (name, n)] for n in {key[1] for key in table}}
    counts = {n: sum(bool(one.done) for one in runs) for n, runs in methods.items() if runs}
    repeated = {n for n, runs in methods.items() if any(len(one.done) > 1 for one in runs)}
    return max(repeated or counts, key=lambda n: (counts[n], n), default=None)
