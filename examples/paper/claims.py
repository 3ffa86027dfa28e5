"""The claims of the paper about its experiments, checked by measurement.

One method beats another when the mean of log L over the trials is lower by more than two standard errors of the
paired difference (all methods of a trial share its points and its sketches).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from experiments import EXPERIMENTS

Results = dict[str, dict[str, np.ndarray]]
HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"


@dataclass(frozen=True)
class Verdict:
    """A sentence of the paper, what was measured, and whether it holds."""

    claim: str
    measured: str
    outcome: str

    def __str__(self) -> str:
        return f"- **{self.claim}** {self.measured} *{self.outcome.capitalize()}.*"


class Curves:
    """Means of log L of one experiment, by method and value of k or p."""

    def __init__(self, results: Results, name: str) -> None:
        self.logs, self.experiment = results[name], EXPERIMENTS[name]
        self.values = list(self.experiment.values)

    def mean(self, method: str, value: int) -> float:
        return float(self._column(method, value).mean())

    def gap(self, better: str, worse: str, value: int) -> float:
        """Return how much lower the first method is."""
        return self.mean(worse, value) - self.mean(better, value)

    def beats(self, better: str, worse: str, value: int) -> bool:
        difference = self._column(worse, value) - self._column(better, value)
        return bool(difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(len(difference)))

    def wins(self, better: str, worse: str, values: Iterable[int] | None = None) -> list[int]:
        return [value for value in values or self.values if self.beats(better, worse, value)]

    def apart(self, one: str, other: str) -> float:
        """Return the largest difference of the means, in standard deviations over the trials."""
        return max(
            abs(self.gap(one, other, value)) / max(self._column(one, value).std(), self._column(other, value).std())
            for value in self.values
        )

    def text(self, methods: Iterable[str], value: int) -> str:
        return ", ".join(f"{method} {self.mean(method, value):.2f}" for method in methods)

    def _column(self, method: str, value: int) -> np.ndarray:
        return self.logs[method][:, self.values.index(value)]


def verdicts(results: Results) -> Iterator[Verdict]:
    curves = {name: Curves(results, name) for name in results}
    yield from _circle(curves["circle"])
    yield from _torus(curves["torus"])
    yield _klein(curves["klein"], curves["torus"])
    yield from _outliers(curves["outliers"])
    yield from _bernoulli(curves)
    yield _normalizations(curves)
    yield from _powers(curves["powers_torus"], curves["powers_circle"])


def _circle(c: Curves) -> Iterator[Verdict]:
    wins = c.wins("DMS", "GPS")
    yield Verdict(
        "On the circle diffusion maps approximate the diffusion distance better than Gaussian processes.",
        f"DMS is lower at k = {_list(wins)} of {_list(c.values)}; at k = 2 log L is {c.text(('DMS', 'GPS'), 2)}.",
        _grade(len(wins) / len(c.values)),
    )
    top = c.values[-1]
    level = {k: float(np.exp(c.mean("GPS", k))) for k in c.values}
    near = [k for k in c.values if 2 <= level[k] <= 4]
    yield Verdict(
        "Gaussian processes reach L of about 3 on the circle in higher dimensions.",
        f"exp(mean log L) of GPS is {level[5]:.2f} at k = 5 and {level[top]:.2f} at k = {top}; it lies between "
        f"2 and 4 at k = {_list(near)}.",
        HOLDS if top in near else FAILS,
    )


def _torus(c: Curves) -> Iterator[Verdict]:
    methods = ("DMS", "DMB", "GPS", "GPB")
    level = [c.mean(method, 2) for method in methods]
    equal = max(level) - min(level) < 0.25 * min(level)
    yield Verdict(
        "On the torus all methods struggle about equally at k = 2.",
        f"log L at k = 2: {c.text(methods, 2)}; all L exceed {np.exp(min(level)):.0f}.",
        HOLDS if equal and min(level) > 5 else FAILS,
    )
    wins = c.wins("GPS", "DMS")
    yield Verdict(
        "On the torus Gaussian processes win from k = 3 on.",
        f"GPS is lower than DMS at k = {_list(wins)}; the gap is largest at k = {_widest(c)}.",
        HOLDS if 3 in wins and 2 not in wins else FAILS,
    )
    last, widest = c.values[-1], _widest(c)
    shrinks = c.gap("GPS", "DMS", last) < 0.5 * c.gap("GPS", "DMS", widest)
    caught = last not in wins
    yield Verdict(
        "Diffusion maps catch up in higher dimensions.",
        f"the gap DMS - GPS falls from {c.gap('GPS', 'DMS', widest):.2f} at k = {widest} to "
        f"{c.gap('GPS', 'DMS', last):.2f} at k = {last}{'' if caught else ': most of it, not all'}.",
        HOLDS if caught else IN_PART if shrinks else FAILS,
    )
    struggle = min(c.mean("DMS", k) for k in range(2, 8))
    yield Verdict(
        "Diffusion maps struggle on the torus for k <= 7.",
        f"mean log L of DMS stays above {struggle:.2f} (L above {np.exp(struggle):.0f}) for k <= 7 and is "
        f"{c.mean('DMS', last):.2f} (L = {np.exp(c.mean('DMS', last)):.0f}) at k = {last}.",
        HOLDS if struggle > c.mean("DMS", last) + 1 else FAILS,
    )
    worse = c.wins("DMS", "DMB")
    yield Verdict(
        "On the torus DMB fares worse than DMS.",
        f"DMB is higher at k = {_list(worse)}, by {c.gap('DMS', 'DMB', 4):.2f} at k = 4.",
        _grade(len(worse) / len(c.values)),
    )


def _klein(c: Curves, torus: Curves) -> Verdict:
    wins = c.wins("GPS", "DMS")
    widest = _widest(c)
    largest, before = c.gap("GPS", "DMS", widest), torus.gap("GPS", "DMS", _widest(torus))
    return Verdict(
        "On the Klein bottle the same happens, more extremely.",
        f"GPS is lower than DMS at k = {_list(wins)}; the largest gap is {largest:.2f} (k = {widest}) against "
        f"{before:.2f} on the torus, and diffusion maps have not caught up at k = {c.values[-1]}.",
        HOLDS if len(wins) == len(c.values) and largest > before else FAILS,
    )


def _outliers(c: Curves) -> Iterator[Verdict]:
    for dimensions, better, worse in (((2, 3), "GPS", "DMS"), ((4, 5), "DMS", "GPS")):
        wins = c.wins(better, worse, dimensions)
        name = {"GPS": "Gaussian processes", "DMS": "diffusion maps"}
        levels = "; ".join(f"k = {k}: {c.text(('DMS', 'DMB', 'GPS', 'GPB'), k)}" for k in dimensions)
        yield Verdict(
            f"With outliers {name[better]} win at k = {_list(dimensions)}.",
            f"log L at {levels}.",
            _grade(len(wins) / len(dimensions)),
        )


def _bernoulli(curves: dict[str, Curves]) -> Iterator[Verdict]:
    names = ("klein", "clouds")
    text = "; ".join(f"{_title(name)}: {_compare(curves[name], 'GPSBS', 'GPS')}" for name in names)
    yield Verdict(
        "Bernoulli sketches do as well as Gaussian ones.",
        f"{text}. At k = 20 on the Klein bottle log L is {curves['klein'].text(('GPSBS', 'GPS'), 20)}.",
        IN_PART if any(curves[name].wins("GPS", "GPSBS") for name in names) else HOLDS,
    )
    wins = [len(curves[name].wins("GPSBB", "GPB")) for name in names]
    losses = sum(len(curves[name].wins("GPB", "GPSBB")) for name in names)
    text = "; ".join(f"{_title(name)}: {_compare(curves[name], 'GPSBB', 'GPB')}" for name in names)
    yield Verdict(
        "With the bistochastic kernel GPSBB is perhaps slightly better than GPB.",
        f"{text}. At k = 20 on the Klein bottle log L is {curves['klein'].text(('GPSBB', 'GPB'), 20)}.",
        HOLDS if all(wins) and not losses else IN_PART if sum(wins) > losses else FAILS,
    )


def _normalizations(curves: dict[str, Curves]) -> Verdict:
    pairs = {"DM": ("DMS", "DMB"), "GP": ("GPS", "GPB")}
    alike = {
        kind: [name for name, c in curves.items() if c.apart(*pair) < 0.5 or _negligible(c, *pair)]
        for kind, pair in pairs.items()
    }
    count = len(curves)
    text = "; ".join(
        f"{kind}S and {kind}B in {len(names)} of {count} ({', '.join(_title(name) for name in names) or 'none'})"
        for kind, names in alike.items()
    )
    agree = [len(names) > count / 2 for names in alike.values()]
    return Verdict(
        "In most experiments the symmetric and the bistochastic kernel give very similar results.",
        f"means closer than half a standard deviation (or than 0.05) everywhere: {text}.",
        HOLDS if all(agree) else IN_PART if any(agree) else FAILS,
    )


def _powers(torus: Curves, circle: Curves) -> Iterator[Verdict]:
    lowest = sorted(torus.values, key=lambda p: torus.mean("GPS", p))[:2]
    wins = torus.wins("GPS", "DMS")
    yield Verdict(
        "On the torus (k = 8) GPS is nearly as bad as DMS at low powers and clearly better at p = 16, 32.",
        f"log L at p = 2: {torus.text(('DMS', 'GPS'), 2)}; lowest at p = {_list(sorted(lowest))}, with p = 16: "
        f"{torus.text(('DMS', 'GPS'), 16)}.",
        HOLDS if sorted(lowest) == [16, 32] and {16, 32} <= set(wins) else FAILS,
    )
    past = torus.wins("DMS", "GPS")
    top = torus.values[-1]
    yield Verdict(
        "Past that GPS gets worse with the power and eventually surpasses DMS.",
        f"GPS is the higher one at p = {_list(past)}; at p = {top}: {torus.text(('DMS', 'GPS'), top)}.",
        HOLDS if top in past else FAILS,
    )
    better = circle.wins("DMS", "GPS")
    lowest_power = min(circle.values, key=lambda p: circle.mean("GPS", p))
    yield Verdict(
        "On the circle (k = 2) GPS behaves alike, and DMS is better at every power.",
        f"DMS is lower at p = {_list(better)}; GPS dips at p = {lowest_power} to "
        f"{circle.mean('GPS', lowest_power):.2f} and is {circle.mean('GPS', circle.values[-1]):.2f} at the end.",
        _grade(len(better) / len(circle.values)),
    )


def _widest(c: Curves) -> int:
    return max(c.values, key=lambda k: c.gap("GPS", "DMS", k))


def _negligible(c: Curves, one: str, other: str) -> bool:
    return max(abs(c.gap(one, other, value)) for value in c.values) < 0.05


def _compare(c: Curves, one: str, other: str) -> str:
    return f"{one} is lower at k = {_list(c.wins(one, other))}, {other} at k = {_list(c.wins(other, one))}"


def _grade(share: float) -> str:
    return HOLDS if share == 1 else IN_PART if share > 0.5 else FAILS


def _title(name: str) -> str:
    e = EXPERIMENTS[name]
    return e.title + (" by power" if e.axis == "p" else "")


def _list(values: Iterable[int]) -> str:
    """Write 1, 2, 3, 4, 8 as "1..4, 8" (consecutive values), and an empty list as "none"."""
    numbers = list(values)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{r[0]}..{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(parts) or "none"
