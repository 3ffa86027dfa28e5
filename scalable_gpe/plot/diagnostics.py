"""Diagnostics: what an epsilon and a power mean, and how accurate an embedding is."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.formatting import power_title
from scalable_gpe.plot.figures import axes_for, new_figure
from scalable_gpe.spectral.lanczos import FEW_DIRECTIONS, Spectrum

Figure = dict[str, Any]  # of an audit: value, low and high, which is None where too few rows were measured to tell

_COUNTS = {
    "effective_neighbors": "effective neighbours (median row)",
    "n_connected_components": "connected components",
}
_SHARES = {"lost_mass": "lost mass", "last_weight": "last weight (median row)"}
_BELOW = {"fontsize": 8, "loc": "upper center", "ncols": 2, "frameon": False}  # a legend below the axes


def epsilon_sweep(table: Mapping[str, npt.ArrayLike], *, epsilon: float | None = None, ax: Any = None) -> Any:
    """Draw what each epsilon would mean: effective neighbours, lost mass and connected components.

    Parameters
    ----------
    table : dict of arrays
        The result of ``scalable_gpe.epsilon_sweep``.
    epsilon : float, optional
        A value to mark, such as ``embedding.kernel.epsilon``.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> ax = plot.epsilon_sweep(gpe.epsilon_sweep(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> ax.get_xscale()
    'log'
    """
    ax = axes_for(ax)
    x = np.asarray(table["epsilon"])
    for number, (name, label) in enumerate(_COUNTS.items()):
        ax.plot(x, table[name], "o-", ms=3, color=f"C{number}", label=label)
    most = max(float(np.max(table[name])) for name in _COUNTS)
    ax.set(xscale="log", yscale="log", xlabel="epsilon (squared units of X)", ylabel="number", ylim=(0.1, 2 * most))
    shares = ax.twinx()
    for number, (name, label) in enumerate(_SHARES.items()):
        values = np.asarray(table[name], dtype=float)
        if np.isfinite(values).any():
            shares.plot(x, np.maximum(values, 1e-12), "s--", ms=3, color=f"C{2 * number + 2}", label=label)
    shares.set(yscale="log", ylabel="share", ylim=(1e-6, 2))
    if epsilon is not None:
        ax.axvline(checks.check_positive(epsilon, "epsilon"), color="0.4", lw=1, label=f"epsilon = {epsilon:.3g}")
    handles = [*ax.get_legend_handles_labels()[0], *shares.get_legend_handles_labels()[0]]
    ax.legend(handles=handles, bbox_to_anchor=(0.5, -0.16), **_BELOW)
    ax.set_title("what each epsilon would mean")
    return ax


def spectrum(
    spectrum: Spectrum,
    *,
    powers: Sequence[int] | np.ndarray | None = None,
    n_components: int | None = None,
    marks: Sequence[int] = (),
    ax: Any = None,
) -> Any:
    """Draw the effective rank of A^p for every power p: how many directions are left to embed.

    A band marks fewer than four directions: little of the data can be told apart there.

    Parameters
    ----------
    spectrum : Spectrum
        The result of ``scalable_gpe.spectrum``.
    powers : sequence of int, optional
        Powers to draw; by default those which the quadrature resolves.
    n_components : int, optional
        A dimension k to mark.
    marks : sequence of int
        Powers to mark, such as those of an embedding.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> plot.spectrum(gpe.spectrum(heat), n_components=2).get_xlabel()
    'power p'
    """
    ax = axes_for(ax)
    if powers is None:
        powers = np.unique(np.geomspace(1, max(2, spectrum.n_sweeps**2 // 4), 60).astype(int))
    ax.plot(powers, spectrum.effective_rank(powers), "o-", ms=3, label="effective rank of $A^p$")
    if n_components is not None:
        k = checks.check_count(n_components, "n_components")
        ax.axhline(k, color="C1", ls="--", lw=1, label=f"k = {k} dimensions")
    few = f"fewer than {FEW_DIRECTIONS:g} directions left"
    ax.axhspan(min(ax.get_ylim()[0], 1.0), FEW_DIRECTIONS, color="0.6", alpha=0.25, lw=0, label=few)
    for number, power in enumerate(marks):
        # a label with an underscore is left out of the legend
        ax.axvline(power, color="0.4", lw=1, label="_" * (number > 0) + "powers of the embedding")
    ax.set(xscale="log", yscale="log", xlabel="power p", ylabel="effective rank")
    ax.set_title("effective dimension at each diffusion time")
    ax.legend(bbox_to_anchor=(0.5, -0.14), **_BELOW)
    return ax


def audit(found: dict[str, Any]) -> Any:
    """Draw an audit: the error of distances beside that of the sketch alone, and the shares that were measured.

    Bars are 95 % intervals. Where the error of distances lies at the mark of the sketch alone, only more components
    make it smaller.

    Parameters
    ----------
    found : Audit
        The result of ``scalable_gpe.audit``.

    Returns
    -------
    array of matplotlib axes (2,)
        ``axes[0].figure`` is their figure.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> found = gpe.audit(gpe.embed(gpe.datasets.torus(500), power=[4, 16], progress=False), n_probes=50)
    >>> plot.audit(found)[0].get_xlabel()
    'relative error of distances'
    """
    shares = _shares(found)
    figure = new_figure(width=11, height=1.9 + 0.5 * max(2 * len(found["powers"]), len(shares)))
    left, right = panels = figure.subplots(1, 2)
    _draw_errors(left, found["powers"])
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    _draw_shares(right, shares)
    for panel in panels:
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    figure.suptitle(f"audit of {found['n_rows']:,} rows in {found['n_components']} dimensions; bars are 95 % intervals")
    return panels


def _draw_errors(ax: Any, powers: dict[Power, Any]) -> None:
    """Errors of distances, two rows for each power: the median, and the bound of 95 % of the pairs."""
    for number, figures in enumerate(powers.values()):
        for color, shift, name in (("C0", -0.17, "median_error"), ("C1", 0.17, "bound_95")):
            _draw_interval(ax, figures[name], number + shift, color)
            ax.plot(figures["sketch"][name], number + shift, "D", ms=7, mfc="none", mec="0.35", zorder=3)
    for marker, face, edge, label in (
        ("o", "C0", "C0", "median"),
        ("o", "C1", "C1", "95 % of pairs within"),
        ("D", "none", "0.35", "sketch alone"),
    ):
        ax.plot([], [], marker, mfc=face, mec=edge, label=label)
    ax.set(xlabel="relative error of distances", xlim=(0, None), ylim=(len(powers) - 0.5, -0.5))
    ax.set_yticks(range(len(powers)), [power_title(power) for power in powers])


def _shares(audit: dict[str, Any]) -> list[tuple[str, Figure]]:
    """Figures that are 1 at best; those that were not measured are left out."""
    shares = [("recall", audit["recall"])] if audit["recall"] else []
    if lost := audit["lost_mass"]:
        shares.append(("mass kept", {"value": 1 - lost["value"], "low": 1 - lost["high"], "high": 1 - lost["low"]}))
    for power, figures in audit["powers"].items():
        if figures["trustworthiness"]:
            shares.append((f"trustworthiness, {power_title(power)}", figures["trustworthiness"]))
    return shares


def _draw_shares(ax: Any, shares: Sequence[tuple[str, Figure]]) -> None:
    for number, (_, share) in enumerate(shares):
        _draw_interval(ax, share, number, "C2")
        side = "right" if share["value"] > 0.99 else "center"
        style = {"xytext": (0, 7), "textcoords": "offset points", "ha": side, "fontsize": 8}
        ax.annotate(f"{share['value']:.4f}", (share["value"], number), **style)
    least = min((share["low"] for _, share in shares), default=0.0)
    ax.set(xlabel="share (1 is best)", xlim=(least - 0.05 * (1.02 - least) - 0.002, 1 + 0.05 * (1.02 - least)))
    ax.set_yticks(range(len(shares)), [name.replace(", ", ",\n") for name, _ in shares])
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylim(max(len(shares), 1) - 0.5, -0.6)
    if not shares:
        ax.text(0.5, 0.5, "not measured: there is no X", transform=ax.transAxes, ha="center")


def _draw_interval(ax: Any, figure: Figure, at: float, color: str) -> None:
    value, high = figure["value"], figure["high"]
    left = value - figure["low"]
    arms = [[left], [0.0 if high is None else high - value]]
    ax.errorbar([value], [at], xerr=np.maximum(arms, 0), fmt="o", ms=5, color=color, capsize=3)
    if high is None:
        ax.annotate("", (value + left, at), (value, at), arrowprops={"arrowstyle": "->", "color": color})
