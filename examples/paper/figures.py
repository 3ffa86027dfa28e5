"""The paper's figures: mean log L with its standard deviation, and sample embeddings."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments import EXPERIMENTS, embedding
from scalable_gpe import exact

Results = dict[str, dict[str, np.ndarray]]

STYLE = {
    "DMS": ("#1f4e9c", "o", "-"),
    "DMB": ("#6ea6e8", "s", "--"),
    "GPS": ("#b8391f", "^", "-"),
    "GPB": ("#f0975e", "v", "--"),
    "GPSBS": ("#2f7d3b", "D", "-"),
    "GPSBB": ("#93c47d", "P", "--"),
}
SKETCHED = ("GPS", "GPB", "GPSBS", "GPSBB")
PLOTS = (
    ("circle", "circle", ("DMS", "DMB", "GPS", "GPB")),
    ("torus", "torus", ("DMS", "DMB", "GPS", "GPB")),
    ("klein", "klein_bottle", ("DMS", "DMB", "GPS", "GPB")),
    ("outliers", "outliers", ("DMS", "DMB", "GPS", "GPB")),
    ("klein", "bernoulli_klein_bottle", SKETCHED),
    ("clouds", "bernoulli_point_clouds", SKETCHED),
    ("powers_torus", "powers_torus", ("DMS", "GPS")),
    ("powers_circle", "powers_circle", ("DMS", "GPS")),
)


def draw_all(results: Results, folder: Path) -> None:
    for name, file, methods in PLOTS:
        figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
        draw_curves(axes, results, name, methods)
        _save(figure, folder / f"{file}.png")
    draw_circle_sample(folder / "circle_sample.png")
    draw_outlier_samples(folder / "outliers_samples.png")


def draw_curves(axes: Axes, results: Results, name: str, methods: tuple[str, ...]) -> None:
    """Draw the mean of log L against k or p; the bars are one standard deviation over the trials."""
    experiment = EXPERIMENTS[name]
    values = np.array(experiment.values)
    for number, method in enumerate(methods):
        logs, (color, marker, line) = results[name][method], STYLE[method]
        # shifted sideways, so that no bar hides another
        shift = (number - (len(methods) - 1) / 2) * 0.09
        place = values * 2**shift if experiment.axis == "p" else values + shift
        style = {"color": color, "marker": marker, "linestyle": line, "capsize": 2, "markersize": 4, "linewidth": 1.2}
        axes.errorbar(place, logs.mean(axis=0), logs.std(axis=0), label=method, elinewidth=0.8, **style)
    if experiment.axis == "p":
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(value) for value in values])
    else:
        axes.set_xticks(values)
    distance = "Euclidean" if experiment.euclidean else "diffusion"
    axes.set_xlabel("power p" if experiment.axis == "p" else "target dimension k")
    axes.set_ylabel(f"log L ({distance} distance)")
    axes.set_title(_caption(name, len(next(iter(results[name].values())))), fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=9)


def draw_circle_sample(path: Path) -> None:
    """Draw the circle in the plane by GPS, coloured by its angle; it may cross itself."""
    experiment = EXPERIMENTS["circle"]
    X = experiment.points(0)
    A = exact.heat_kernel(X, experiment.epsilon, "symmetric")
    figure, axes = plt.subplots(figsize=(4.4, 4), layout="constrained")
    _scatter(axes, embedding("GPS", A, experiment.powers[0], 2, 0), np.arctan2(X[:, 1], X[:, 0]))
    axes.set_title("S¹ in the plane, one GPS sample", fontsize=10)
    _save(figure, path)


def draw_outlier_samples(path: Path) -> None:
    """Draw six panels: the points; DMS with the outliers and, enlarged, without them; three samples of GPS."""
    experiment = EXPERIMENTS["outliers"]
    X = experiment.points(0)
    A = exact.heat_kernel(X, experiment.epsilon, "symmetric")
    color = np.arctan2(X[:, 1], X[:, 0])
    dms = embedding("DMS", A, experiment.powers[0], 2, 0)
    gps = [embedding("GPS", A, experiment.powers[0], 2, sample) for sample in range(3)]
    figure, axes = plt.subplots(2, 3, figsize=(10, 6.6), layout="constrained")
    panels = [(X, "the points", 2), (dms, "DMS", 2), (dms[:-2], "DMS, outliers left out", 0)]
    panels += [(Y, f"GPS, sample {number}", 2) for number, Y in enumerate(gps, 1)]
    for panel, (Y, title, n_outliers) in zip(axes.flat, panels, strict=True):
        _scatter(panel, Y[: len(Y) - n_outliers], color[: len(Y) - n_outliers])
        if n_outliers:
            panel.scatter(*Y[-n_outliers:].T, marker="*", s=90, color="black", label="outliers")
        else:
            panel.set_aspect("auto")  # the loop is much longer than wide
        panel.set_title(title, fontsize=10)
    axes[0, 0].legend(fontsize=8)
    _save(figure, path)


def _scatter(axes: Axes, Y: np.ndarray, color: np.ndarray) -> None:
    axes.scatter(Y[:, 0], Y[:, 1], c=color, cmap="hsv", s=12, vmin=-np.pi, vmax=np.pi)
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(labelsize=7)
    axes.locator_params(nbins=5)


def _caption(name: str, n_trials: int) -> str:
    e = EXPERIMENTS[name]
    fixed = f"p = {e.powers[0]}" if e.axis == "k" else f"k = {e.dimensions[0]}"
    return f"{e.title}: {n_trials} trials, n = {e.n_points}, {fixed}, ε = {e.epsilon:g}"


def _save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)
