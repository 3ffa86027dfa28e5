"""scalable-gpe plot: a picture of a finished run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scalable_gpe.cli.options import PlotOptions
from scalable_gpe.cli.store_info import open_run
from scalable_gpe.cli.stored_run import Colors, measure, read_colors, show_written

if TYPE_CHECKING:
    from scalable_gpe.embedding import Embedding

Figure = Any  # matplotlib has no types


def plot(options: PlotOptions) -> None:
    """Draw a run."""
    from scalable_gpe.io.files import check_target

    path = Path(options.picture)
    path = path if path.suffix else path.with_name(f"{path.name}.png")  # as matplotlib does
    check_target(path)
    of_points = options.what in ("powers", "scatter")
    if not of_points:
        _refuse_ignored(options)
    colors = read_colors(options)
    result = open_run(options)
    figure = _draw_points(options, result, colors) if of_points else _DIAGNOSTICS[options.what](options, result)
    if options.title and not of_points:
        (figure.axes[0].set_title if len(figure.axes) == 1 else figure.suptitle)(options.title)
    figure.savefig(path, dpi=options.dpi)
    show_written(options, path, result)


def _refuse_ignored(options: PlotOptions) -> None:
    """Refuse options that a picture without points would ignore."""
    given = {
        "--color": options.color,
        "--column": options.column,
        "--components": options.components,
        "--power": options.power,
        "--max-labels": options.max_labels,
    }
    for flag, value in given.items():
        if value is not None:
            raise ValueError(f"{flag} is for --what powers and scatter; got --what {options.what}.")


def _draw_points(options: PlotOptions, result: "Embedding", colors: Colors) -> Figure:
    from scalable_gpe import plot

    components: Sequence[int] | Literal["principal"] = options.components or "principal"
    theme: Literal["light", "dark"] = "dark" if options.theme == "dark" else "light"
    if options.what == "powers" and options.power is None:
        return plot.powers(
            result,
            components=components,
            color=colors.values,
            color_label=colors.label,
            title=options.title,
            theme=theme,
            max_labels=options.max_labels,
        )
    axes = plot.scatter(
        result,
        components=components,
        power=options.power,
        color=colors.values,
        color_label=colors.label,
        title=options.title,
        theme=theme,
        max_labels=options.max_labels,
    )
    return axes.figure


def _draw_epsilon(options: PlotOptions, result: "Embedding") -> Figure:
    from scalable_gpe import epsilon_sweep, plot

    return plot.epsilon_sweep(epsilon_sweep(result.graph), epsilon=result.kernel.epsilon).figure


def _draw_spectrum(options: PlotOptions, result: "Embedding") -> Figure:
    from scalable_gpe import plot, spectrum
    from scalable_gpe.projection import powers_of

    k, powers = result.parameters["n_components"], [one for one in powers_of(result) if isinstance(one, int)]
    return plot.spectrum(spectrum(result.heat), n_components=k, marks=powers).figure


def _draw_audit(options: PlotOptions, result: "Embedding") -> Figure:
    from scalable_gpe import plot

    return plot.audit(measure(options, result))


_DIAGNOSTICS = {"epsilon": _draw_epsilon, "spectrum": _draw_spectrum, "audit": _draw_audit}
