"""scalable-gpe plot: a picture of a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalable_gpe.cli.command import command
from scalable_gpe.cli.options import AUDIT, COLOR, RUN, Argument, count, count_or, option, several, take
from scalable_gpe.cli.stored_run import measure, open_run, read_colors, show_written

if TYPE_CHECKING:
    from scalable_gpe.embedding import Embedding

Axes = Any  # matplotlib has no types
_PICTURES = ("powers", "scatter", "epsilon", "spectrum", "audit")
_OF_POINTS = (
    *COLOR,
    several("--components", "C", "two columns (the principal axes)", type=click.IntRange(min=0)),
    option("--power", "P", "one power only (powers: each; scatter: all, or the largest)", type=count_or("all")),
    option("--max-labels", "L", "keep the L most frequent labels and join the others", type=count),
)


@command(
    *RUN,
    Argument("path", "OUT", "the picture: .png, .pdf, .svg or another format of matplotlib"),
    option("--what", "NAME", f"{', '.join(_PICTURES)} (powers)", type=click.Choice(_PICTURES), default="powers"),
    *_OF_POINTS,
    option("--theme", "NAME", "light or dark background (light)", type=click.Choice(["light", "dark"])),
    option("--title", "TITLE", "title of the picture"),
    option("--dpi", "DPI", "dots per inch (120)", type=count, default=120),
    *AUDIT,
    examples=(
        "scalable-gpe plot run.zarr picture.png",
        "scalable-gpe plot run.zarr picture.pdf --what scatter --components 0 1 --power 256",
        "scalable-gpe plot run.zarr picture.png --color labels.csv --column kind",
        "scalable-gpe plot run.zarr epsilon.png --what epsilon",
    ),
)
def plot(path: str, what: str, dpi: int, theme: str = "light", title: str | None = None, **given: Any) -> None:
    """Draw a run: the embedding, the choice of epsilon, the spectrum or the audit."""
    from scalable_gpe.io.files import check_target

    target = Path(path)
    target = target if target.suffix else target.with_name(f"{target.name}.png")  # as matplotlib does
    check_target(target)
    run, sizes = take(given, RUN), take(given, AUDIT)
    if what in ("powers", "scatter"):
        result = open_run(**run)
        colors = read_colors(result, **take(given, COLOR))
        figure = _figure(_draw_points(what, result, theme=theme, title=title, **given, **colors))
    else:
        if name := next(iter(given), ""):
            raise ValueError(f"--{name.replace('_', '-')} is for --what powers and scatter; got --what {what}.")
        result = open_run(**run)
        figure = _figure(_draw_diagnostic(what, result, sizes))
        if title:
            (figure.axes[0].set_title if len(figure.axes) == 1 else figure.suptitle)(title)
    figure.savefig(target, dpi=dpi)
    show_written(target)


def _figure(axes: Axes) -> Any:
    """The figure of one or several axes."""
    import numpy as np

    return np.ravel(axes)[0].figure


def _draw_points(
    what: str, result: "Embedding", *, power: int | str | None = None, components: Any = "principal", **options: Any
) -> Axes:
    from scalable_gpe import plot

    if what == "powers" and power is None:
        return plot.powers(result, components=components, **options)
    return plot.scatter(result, components=components, power=power, **options)


def _draw_diagnostic(what: str, result: "Embedding", sizes: dict[str, int]) -> Axes:
    from scalable_gpe import epsilon_sweep, plot, spectrum

    if what == "epsilon":
        return plot.epsilon_sweep(epsilon_sweep(result.graph), epsilon=result.kernel.epsilon)
    if what == "audit":
        return plot.audit(measure(result, **sizes))
    k, powers = result.parameters["n_components"], [one for one in result.by_power if isinstance(one, int)]
    return plot.spectrum(spectrum(result.heat), n_components=k, marks=powers)
