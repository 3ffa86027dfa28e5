"""Text of an audit: headline and table."""

from collections.abc import Callable
from typing import Any

from scalable_gpe.checks import Power
from scalable_gpe.formatting import power_title

Line = tuple[str, str]

_ERRORS = ("median_error", "bound_95")
_TINY = 0.001  # p-values below this one have another cause than chance


def headline(audit: dict[str, Any], power: Power) -> str:
    """The error of distances at one power, in one sentence."""
    figures = audit["powers"][power]
    median, bound = (_interval(figures[name]) for name in _ERRORS)
    alone = {name: _percent(share) for name, share in figures["sketch"].items()}
    return (
        f"{power_title(power).capitalize()}: relative error of distances: median {median}, 95 % of pairs within "
        f"{bound}; from the sketch alone: standard deviation {alone['standard_deviation']}, median "
        f"{alone['median_error']}, 95 % within {alone['bound_95']}."
    )


def table(audit: dict[str, Any]) -> list[Line]:
    """Name and text of each line: rows, graph, each power, warnings."""
    reasons = audit["reasons"]
    lines = [
        ("rows", f"{audit['n_rows']} in {audit['n_components']} dimensions"),
        ("recall", _graph_figure(audit["recall"], "true neighbours found", reasons.get("recall", ""))),
        (
            "lost mass",
            _graph_figure(audit["lost_mass"], "of the dense kernel not in the lists", reasons.get("lost_mass", "")),
        ),
    ]
    for power, figures in audit["powers"].items():
        pairs = f"{figures['n_pairs']} pairs of {audit['n_exact']} rows against exact diffusion distances"
        lines += [(power_title(power), pairs), *_power_lines(figures)]
        if figures["dense"]:
            lines.append(("  dense kernel", _dense(figures["dense"], audit["lost_mass"])))
        elif "dense" in reasons:
            lines.append(("  dense kernel", f"not compared: {reasons['dense']}"))
        if trust := figures["trustworthiness"]:
            share = _interval(trust, "{:.4f}".format)
            lines.append(("  trustworthiness", f"{share}, {trust['n_neighbors']} neighbours"))
    return lines + [("warning", text) for text in audit.get("warnings", [])]


def _graph_figure(figure: Any, meaning: str, reason: str) -> str:
    return f"{_interval(figure)} {meaning}" if figure else reason


def _power_lines(figures: Any) -> list[Line]:
    law, alone = figures["law"], figures["sketch"]
    median, bound = (f"{_interval(figures[name])}; the sketch alone {_percent(alone[name])}" for name in _ERRORS)
    ratio = f"mean {law['ratio_mean']:.3f}, sd {law['ratio_sd']:.3f}; chi-square: 1 and {law['expected_sd']:.3f}"
    return [
        ("  median error", median),
        ("  95 % within", bound),
        ("  squared ratio", ratio),
        ("  law of the sketch", _law(law["size_pvalue"], law["ks_pvalue"])),
    ]


def _law(size: float, shape: float | None) -> str:
    """The p-values of the test, and what they say."""
    shown = "shape not tested: not normal" if shape is None else f"{shape:.2g} (shape)"
    as_expected = min(size, 1.0 if shape is None else shape) >= _TINY
    verdict = "errors match random-projection noise" if as_expected else "larger errors than a random projection makes"
    return f"p = {size:.2g} (size), {shown}: {verdict}"


def _dense(figures: Any, lost_mass: Any) -> str:
    """Distances of the truncated kernel against those of the dense one."""
    median, bound = _percent(figures["median"]), _percent(figures["bound_95"])
    text = f"median {median}, 95 % within {bound} (kernel, not sketch)"
    if figures["median"] > 0.5 and lost_mass:
        text += f": the lists miss {_percent(lost_mass['value'])} of the dense kernel"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{share:.2g} times"


def _interval(figure: Any, write: Callable[[float], str] = _percent) -> str:
    value, low = write(figure["value"]), write(figure["low"])
    if figure["high"] is None:
        return f"{value} (at least {low}; too few exact rows for an upper end)"
    return f"{value} ({low} to {write(figure['high'])})"
