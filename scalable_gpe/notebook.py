"""What a notebook shows of an embedding: its figures and a small picture of the principal plane, in half a second."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from scalable_gpe.checks import Power
from scalable_gpe.formatting import in_time, plain, power_title, powers_text, report_lines
from scalable_gpe.markup import Html, card
from scalable_gpe.png import density_picture, limits_of, pixels
from scalable_gpe.spectral.filters import power_order

_MAX_ROWS = 50_000  # of the picture
_MAX_COLUMNS = 64
_N_PIECES = 16  # ranges of rows that are read from a store
_READ_SECONDS = 0.15  # then the picture is drawn from what was read
_SIDE = 180  # pixels of the picture
_MEASURED = ("rows", "graph", "connected components", "epsilon", "recall", "missing weight", "lost mass", "Sinkhorn")


def embedding_card(report: dict[str, Any], parameters: dict[str, Any], by_power: Mapping[Power, Any]) -> Html:
    """Parameters, measured figures, seconds and a picture of an embedding, as HTML."""
    measured = [line for line in report_lines(report, None) if line[0] in _MEASURED]
    seconds = ", ".join(f"{stage} {in_time(spent)}" for stage, spent in report["stage_seconds"].items())
    chosen = ("metric", "normalization", "n_sketch", "random_state")
    rows = [
        ("power", powers_text(report)),
        *measured,
        *((name, plain(parameters[name])) for name in chosen if parameters.get(name) is not None),
        ("time", f"{in_time(report['total_seconds'])} ({seconds})"),
        *(("warning", one) for one in report.get("warnings", [])[:3]),
    ]
    title = f"Embedding of {report['n_rows']:,} rows in {parameters['n_components']} dimensions"
    power, points = max(by_power.items(), key=lambda one: power_order(one[0]))
    if points.shape[1] < 2:
        return card(title, rows)
    sample = sampled_rows(points)
    return card(title, rows, picture=thumbnail(sample), caption=_caption(len(sample), report["n_rows"], power))


def _caption(n_shown: int, n_rows: int, power: Power) -> str:
    part = "" if n_shown == n_rows else f", {n_shown:,} of {n_rows:,} rows"
    return f"principal plane, {power_title(power)}{part}"


def sampled_rows(points: Any) -> np.ndarray:
    """At most 50,000 rows at even steps; of an array in a store, ranges of rows, as many as 0.15 s allow."""
    n_rows = int(points.shape[0])
    if isinstance(points, np.ndarray) or n_rows <= _MAX_ROWS:
        return np.asarray(points[:: -(-n_rows // _MAX_ROWS), :_MAX_COLUMNS], np.float32)
    began, pieces = time.perf_counter(), []
    starts = np.linspace(0, n_rows - _MAX_ROWS // _N_PIECES, _N_PIECES).astype(int)
    for start in np.random.default_rng(0).permutation(starts):  # in random order: the rows may be sorted
        pieces.append(np.asarray(points[start : start + _MAX_ROWS // _N_PIECES, :_MAX_COLUMNS], np.float32))
        if time.perf_counter() - began > _READ_SECONDS:
            break
    return np.concatenate(pieces)


def thumbnail(points: np.ndarray) -> str:
    """Address that holds a picture: the density of some points along their two principal axes; "" without points."""
    known = points[np.isfinite(points).all(axis=1)].astype(np.float64)
    if not len(known):
        return ""
    centred = known - np.median(known, axis=0)
    squared = (centred**2).sum(axis=1)
    near = centred[squared <= np.quantile(squared, 0.99)]  # a few far rows would determine the axes alone
    plane = centred @ np.linalg.eigh(near.T @ near)[1][:, :-3:-1]
    inside, limits = limits_of(plane, 0.999)
    side = int(np.clip(3 * np.sqrt(len(plane)), 48, _SIDE))  # few rows would be lost among many pixels
    _, counts = pixels(plane[inside], limits, side)
    return density_picture(counts)
