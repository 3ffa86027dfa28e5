"""Products of K: against scipy, against the memory bandwidth, and how many of them each method needs."""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe
from measure import Row, best_of
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.panels import Panel
from scalable_gpe.execution.workers import Workers
from scalable_gpe.heat.normalization import HeatKernel, row_sums
from scalable_gpe.sketch.columns import plan_powers
from scalable_gpe.sketch.polynomial import n_sweeps
from scalable_gpe.sketch.powers import multiply
from scalable_gpe.sketch.random_matrix import Sketch

_MOST_PRODUCTS = 300  # the paper's iteration is stopped after these
_PLAIN_COLUMNS = 4


def product(embedding: Any, options: argparse.Namespace) -> list[Row]:
    """Compare one product with scipy's on the matrix in the user's order, and with the memory bandwidth."""
    heat, width = embedding.heat, options.components
    ours = _sweep_seconds(heat, width)
    matrix = embedding.kernel.to_scipy()
    panel = np.ones((matrix.shape[1], width), np.float32)
    theirs = best_of(lambda: matrix @ panel, 3)
    moved = 8 * embedding.kernel.nnz + 4 * heat.kernel.edges.n_points + 2 * panel.nbytes
    bandwidth = _bandwidth(Workers().n_jobs)
    detail = f"{moved / 1e6:.0f} MB at least, memory copies at {bandwidth / 1e9:.1f} GB/s"
    return [
        Row(f"scipy / our product, {width} columns", theirs / ours, "x", ">= 6", f"{ours:.3f} s", ">= 3"),
        Row("bytes moved per product / memory bandwidth", moved / ours / bandwidth, "x", "", detail),
    ]


def _sweep_seconds(heat: HeatKernel, width: int) -> float:
    source = Panel(np.ones((heat.kernel.edges.n_points, width), np.float32))
    target = Panel(np.empty_like(source.values))
    return best_of(lambda: multiply(heat, source, target))


def _bandwidth(n_jobs: int) -> float:
    """Measure the bytes per second that so many threads together read and write when they copy."""
    source = np.ones((n_jobs, 2**24))
    target = np.empty_like(source)
    target[:] = 0
    with ThreadPoolExecutor(n_jobs) as pool:
        seconds = best_of(lambda: list(pool.map(lambda row: np.copyto(target[row], source[row]), range(n_jobs))))
    return 2 * source.nbytes / seconds


def sinkhorn(heat: HeatKernel) -> list[Row]:
    """Compare the sweeps to a residual of 1e-8 with those of the paper's iteration."""
    theirs = _paper_products(heat)
    more = "more than " if theirs > _MOST_PRODUCTS else ""
    detail = f"the paper's iteration: {more}{min(theirs, _MOST_PRODUCTS)}"
    return [Row("Sinkhorn to 1e-8", heat.n_iter, "sweeps", "<= 45", detail, "<= 45")]


def _paper_products(heat: HeatKernel) -> int:
    """Count products of d <- K(1/d) until the geometric mean of two iterates scales K to 1e-8; checked every tenth."""
    kernel, weights = heat.kernel, heat.weights
    d = np.ones(len(weights))
    for n_products in range(1, _MOST_PRODUCTS + 1):
        after = row_sums(kernel, weights / d, heat.context, "paper")
        if n_products % 10 == 0:
            mean = np.sqrt(d * after)
            if np.abs(row_sums(kernel, weights / mean, heat.context, "check") / mean - 1).max() <= 1e-8:
                return n_products
        d = after
    return _MOST_PRODUCTS + 1


def high_power(heat: HeatKernel, options: argparse.Namespace) -> list[Row]:
    """Compare the sweeps of a high power with plain products, and the distances that both give."""
    power = options.high_power
    sketch, name = Sketch("gaussian", 0), "sketch/benchmark"
    plans = plan_powers(heat, sketch, [power], 1e-4, heat.context, name)
    ours = gpe.gp_embedding(heat, _PLAIN_COLUMNS, power)
    theirs = _plain(heat, power)
    pairs = np.random.default_rng(0).integers(0, len(ours), (2, 100_000))
    pairs = pairs[:, pairs[0] != pairs[1]]
    one, other = (np.linalg.norm(points[pairs[0]] - points[pairs[1]], axis=1) for points in (ours, theirs))
    error = np.abs(one / other - 1)
    detail = f"distances differ by {error.max():.1e} at most"
    return [
        Row(
            f"sketch sweeps, power {power}",
            n_sweeps(list(plans.values())),
            "sweeps",
            "<= 150",
            f"plain powers: {power}",
            "<= 150",
        ),
        Row(f"median error of distances, power {power}", float(np.median(error)), "", "<= 1e-4", detail, "<= 1e-4"),
    ]


def _plain(heat: HeatKernel, power: int) -> np.ndarray:
    """Compute A^p G / sqrt(k) by p plain products in double precision (no row repeats): with Z = S x, Z <- S^2 K Z."""
    storage_order, scale = heat.kernel.storage_order, heat.scale_points[:, None]
    entries = gpe.sketch_matrix(heat.shape[0], _PLAIN_COLUMNS, random_state=0)
    source = np.ascontiguousarray(scale * (entries - entries.mean(axis=0))[storage_order.user_row])
    now, other = Panel(source), Panel(np.empty_like(source))
    for _ in range(power):
        multiply(heat, now, other)
        now, other = other, now
    return storage_order.spread(now.values / scale) / np.sqrt(_PLAIN_COLUMNS)


def out_of_core(embedding: Any, store: Path) -> list[Row]:
    """Compare sweeps over K in a mapped file, and read from the store, with those in memory."""
    with block_sizes(maps_arrays=True):
        mapped = gpe.open(store)
        mapped_ratio = _sweep_seconds(mapped.heat, 16) / _sweep_seconds(embedding.heat, 16)
    with block_sizes(resident_bytes=0):
        stored = gpe.open(store)
        ratios = {
            width: _sweep_seconds(stored.heat, width) / _sweep_seconds(embedding.heat, width) for width in (16, 64)
        }
    return [
        Row("sweep over K in a mapped file / in memory, 16 columns", mapped_ratio, "x", "<= 1.25", "", "<= 2"),
        *(
            Row(f"sweep from the store / in memory, {width} columns", ratio, "x", "", "", "<= 3.5")
            for width, ratio in ratios.items()
        ),
    ]
