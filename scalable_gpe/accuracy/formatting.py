"""An audit in words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{share:.2g} times"


def _interval(figure: dict[str, float], write: Callable[[float], str] = _percent) -> str:
    return f"{write(figure['value'])} ({write(figure['low'])} to {write(figure['high'])})"


def headline(found: Mapping[str, Any], power: int) -> str:
    """The error of distances at one power, in a sentence."""
    one = found["powers"][power]
    alone = one["sketch"]
    return (
        f"Power {power}: relative error of distances: median {_interval(one['median_error'])}, 95 % of pairs within "
        f"{_interval(one['bound_95'])}; from the sketch alone: standard deviation "
        f"{_percent(alone['standard_deviation'])}, median {_percent(alone['median_error'])}, 95 % within "
        f"{_percent(alone['bound_95'])}."
    )


def table(found: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The table, line by line."""
    lines = [("rows", f"{found['n_rows']} in {found['n_components']} dimensions")]
    for name, words in (("recall", "true neighbours found"), ("lost_mass", "of the dense kernel not in the lists")):
        reason = found["reasons"].get(name, "")
        lines.append((name.replace("_", " "), f"{_interval(found[name])} {words}" if found[name] else reason))
    for power, one in found["powers"].items():
        law, alone = one["law"], one["sketch"]
        lines += [
            (f"power {power}", f"{one['n_pairs']} pairs of {found['n_exact']} rows against exact diffusion distances"),
            ("  median error", f"{_interval(one['median_error'])}; the sketch alone {_percent(alone['median_error'])}"),
            ("  95 % within", f"{_interval(one['bound_95'])}; the sketch alone {_percent(alone['bound_95'])}"),
            (
                "  squared ratio",
                f"mean {law['ratio_mean']:.3f}, sd {law['ratio_sd']:.3f}; chi-square: 1 and {law['expected_sd']:.3f}",
            ),
            ("  law of the sketch", f"p = {law['size_pvalue']:.2g} (size), {law['ks_pvalue']:.2g} (shape)"),
            ("  rounding", f"{one['rounding']['measured']:.1e} measured, {one['rounding']['reported']:.1e} reported"),
        ]
        dense, trust = one["dense"], one["trustworthiness"]
        if dense:
            words = (
                f"median {_percent(dense['median'])}, 95 % within {_percent(dense['bound_95'])} (kernel, not sketch)"
            )
            lost = found["lost_mass"]
            if dense["median"] > 0.5 and lost:
                words += f": another kernel, which the lists miss {_percent(lost['value'])} of"
            lines.append(("  dense kernel", words))
        elif "dense" in found["reasons"]:
            lines.append(("  dense kernel", f"not compared: {found['reasons']['dense']}"))
        if trust:
            lines.append(
                ("  trustworthiness", f"{_interval(trust, lambda v: f'{v:.4f}')}, {trust['n_neighbors']} neighbours")
            )
    lines += [("warning", text) for text in found.get("warnings", [])]
    return lines
