"""Class probabilities of all rows from a few labelled ones."""

import contextlib
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import ConnectivityWarning, ConvergenceWarning, warn
from scalable_gpe.execution.cluster import on_cluster
from scalable_gpe.execution.context import Context, open_store
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.propagation.labels import GivenLabels, Sources, check_labels
from scalable_gpe.propagation.solutions import (
    HARMONIC,
    METHODS,
    N_LIVE,
    POISSON,
    SPREADING,
    USUAL_STEPS,
    Problem,
    Scores,
    Solved,
)
from scalable_gpe.sketch.gaussian_process import heat_identity
from scalable_gpe.sketch.publish import write_columns
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import labels_name
from scalable_gpe.storage.store import ArrayStore, MemoryStore, read_whole, write_whole

# scikit-learn's LabelSpreading stops at 1e-3; for the others labels are few, and far: small differences decide
_TOL = {SPREADING: 1e-5, HARMONIC: 1e-6, POISSON: 1e-6}
HORIZON = 100.0  # of spreading: alpha = .99, as Zhou et al. (2004)
_REMEDIES = "Raise tol, or use method='spreading'.", "Raise tol, or pass a smaller horizon."
_ENTRIES = 2**20  # of a matrix that are normalised at once


@dataclass(frozen=True)
class Propagation:
    """Class probabilities of all rows, in the order of the input.

    Attributes
    ----------
    probabilities : array (N, n_classes) of float32
        numpy, or zarr in a store; NaN in rows that no label reaches.
    classes : ndarray (n_classes,)
        The class of each column.
    entropy : array (N,) of float32
        Entropy of each row, in nats: 0 where the class is certain.
    n_unreached : int
        Number of rows in components of the kernel without a label, or too far from one for the horizon.
    iterations : int
        Steps of conjugate gradients.
    residual : float
        Estimated relative error of the solution, of the class where it is largest.
    converged : bool
        Whether that is at most `tol`.
    method : str
        "spreading", "harmonic" or "poisson".
    horizon : float or None
        The horizon of "spreading".
    """

    probabilities: Any = field(repr=False)
    classes: np.ndarray
    entropy: Any = field(repr=False)
    n_unreached: int
    iterations: int
    residual: float
    converged: bool
    method: str
    horizon: float | None

    @property
    def codes(self) -> np.ndarray:
        """Number of the most probable class of each row; -1 where no label reaches it."""
        found = np.empty(self.probabilities.shape[0], np.int32)
        for start, stop in ranges(len(found), max(1, _ENTRIES // len(self.classes))):
            rows = np.asarray(self.probabilities[start:stop])
            reached = ~np.isnan(rows[:, 0])
            found[start:stop] = np.where(reached, np.where(reached[:, None], rows, 0).argmax(axis=1), -1)
        return found


@dataclass(frozen=True)
class PropagationMetadata:
    """What a store keeps of a result."""

    method: str
    horizon: float | None
    classes: tuple[str, ...]
    n_unreached: int
    iterations: int
    residual: float
    converged: bool
    warnings: tuple[str, ...] = ()


def propagate(
    heat: HeatKernel,
    labels: Any,
    *,
    method: str = SPREADING,
    horizon: Any = "auto",
    tol: float | str = "auto",
    store: Any = None,
    storage_options: StorageOptions | None = None,
) -> Propagation:
    r"""Class probabilities of all rows from a few labelled ones, along the graph.

    .. math::
        \text{spreading:}\quad & (I - cA)\, F = Y, \qquad c = 1 - 1/T \\
        \text{harmonic:}\quad & (I - P)\, F = 0 \text{ on rows without a label},\quad F = Y \text{ on the others} \\
        \text{poisson:}\quad & (I - A)\, F = Y - \bar y \text{ on labelled rows, } 0 \text{ on the others}

    Y holds a one for the class of each labelled row. Rows of F are divided by their sum; for "poisson" they are
    differences from a mean, and :math:`\exp(F_{ij} / r)` is, with the root mean square r of F.

    "spreading" is scikit-learn's LabelSpreading with alpha = c. "harmonic" gives the probability that a walk from a row
    reaches each class first: P is A with its rows divided by their sums, and for the symmetric normalisation
    :math:`D^{-1} A D` with its top eigenvector :math:`D 1`, so that rows sum to 1 too. "poisson" (Calder et al. 2020)
    is best for very few labels; classes count as much as they have labels. Each component of the kernel is a problem of
    its own, in which classes without a label there have probability 0.

    Equal rows share their labels. With sample weights, a labelled row counts as often as its weight says.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    labels : array-like (N,)
        Numbers or texts; -1, None, NaN and empty texts are rows without a label.
    method : {"spreading", "harmonic", "poisson"}
        The problem that is solved.
    horizon : float or "auto"
        T, above 1, for "spreading": a walk stops after T steps on average. "auto" is 100, that is alpha = 0.99.
    tol : float or "auto"
        Relative error of F that the solver may leave. "auto" is 1e-5 for "spreading" and 1e-6 for the others.
    store : path or URL, optional
        A zarr store for the result. By default that of the heat kernel, if it can be written to; there an interrupted
        call resumes.
    storage_options : dict, optional
        Options of fsspec for the URL of `store`.

    Returns
    -------
    Propagation

    Examples
    --------
    >>> import numpy as np, scalable_gpe as gpe
    >>> X, labels = gpe.datasets.circle(300), np.full(300, -1)
    >>> labels[[0, 150]] = [0, 1]
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)))
    >>> found = gpe.propagate(heat, labels, method="harmonic")
    >>> found.probabilities[[0, 150]].tolist(), found.n_unreached
    ([[1.0, 0.0], [0.0, 1.0]], 0)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel returns it; got {type(heat).__name__}.")
    checks.check_choice(method, METHODS, "method")
    tol = _TOL[method] if tol == "auto" else checks.check_positive(tol, "tol")
    horizon = _check_horizon(horizon, method)
    graph = heat.kernel.graph
    given = check_labels(labels, heat.shape[0], dropped=None if graph is None else graph.dropped)
    check_options(storage_options, store)
    arrays = _open(heat, store, storage_options)
    context = Context(arrays, heat.context.workers, heat.context.plan)
    with on_cluster(heat.context):  # of the run, if it is there
        is_locked = arrays.location == heat.context.store.location and heat.context.workers.remote
        with contextlib.nullcontext() if is_locked else arrays.exclusive():
            return _found_or_made(heat, given, method, horizon, tol, context)


def _check_horizon(horizon: Any, method: str) -> float | None:
    if isinstance(horizon, str) and horizon == "auto":
        return HORIZON if method == SPREADING else None
    if not isinstance(horizon, Real) or isinstance(horizon, bool) or not 1 < float(horizon) < np.inf:
        raise ValueError(f"horizon must be a number above 1, or 'auto'; got {horizon!r}.")
    if method != SPREADING:
        raise ValueError(f"horizon is for method='spreading'; got {horizon!r} with {method!r}.")
    return float(horizon)


def _open(heat: HeatKernel, store: Any, storage_options: StorageOptions | None) -> ArrayStore:
    """The store of the result: that of the heat kernel, or memory where that can only be read."""
    if store is not None:
        return open_store(store, storage_options)
    own = heat.context.store
    return MemoryStore() if own.read_only else own


def _found_or_made(
    heat: HeatKernel, given: GivenLabels, method: str, horizon: float | None, tol: float, context: Context
) -> Propagation:
    same = context.store.location == heat.context.store.location
    identity = heat.name if same else heat_identity(heat)
    name = labels_name(identity, given.content, method, horizon, tol)
    metadata = context.store.read(name, PropagationMetadata)
    if metadata is None:
        problem = Problem(heat, Sources.of(heat, given), method, horizon or 1.0, tol, context, name)
        metadata = _make(problem, given, horizon, context, name)
    else:
        for text in metadata.warnings:  # as when it was made
            warn(text, ConnectivityWarning)
    return Propagation(
        probabilities=context.store.open_table(f"{name}/probabilities").array,
        classes=given.classes,
        entropy=context.store.open_table(f"{name}/entropy").array,
        n_unreached=metadata.n_unreached,
        iterations=metadata.iterations,
        residual=metadata.residual,
        converged=metadata.converged,
        method=method,
        horizon=horizon,
    )


def _make(
    problem: Problem, given: GivenLabels, horizon: float | None, context: Context, name: str
) -> PropagationMetadata:
    """Solve for all classes, some at a time; write the probabilities, and commit them."""
    heat, n_classes = problem.heat, len(given.classes)
    warnings = _warn_about(problem, heat.shape[0])
    solved, first = dict[int, Solved](), 0  # by the first class of a range
    with context.workers.progress.stage("labels", 3 * USUAL_STEPS):
        while first < n_classes:
            stored = context.store.read(f"{name}/scores/{first}", Solved)
            solved[first] = _solve(problem, first, n_classes, context, name) if stored is None else stored
            first = solved[first].stop
    n_unreached = _publish(problem, solved, n_classes, context, name)
    if n_unreached > problem.reached.count_rows()[0]:
        text = (
            f"walks of horizon={horizon:g} steps from {n_unreached} of {heat.shape[0]} rows meet a label too rarely "
            "to tell its class: their probabilities are NaN. Raise horizon, or use method='harmonic'."
        )
        warnings.append(warn(text, ConnectivityWarning))
    problem.clear()
    metadata = PropagationMetadata(
        method=problem.method,
        horizon=horizon,
        classes=tuple(map(str, given.classes.tolist())),
        n_unreached=n_unreached,
        iterations=max(part.iterations for part in solved.values()),
        residual=max(part.residual for part in solved.values()),
        converged=all(part.converged for part in solved.values()),
        warnings=tuple(warnings),
    )
    if not metadata.converged:
        warn(
            f"the solution has a relative error of about {metadata.residual:.1e} after {metadata.iterations} steps, "
            f"above the tol of {problem.tol:g}. {_REMEDIES[problem.method == SPREADING]}",
            ConvergenceWarning,
        )
    context.store.remove(f"{name}/scores")
    context.store.commit(name, metadata)
    return metadata


def _warn_about(problem: Problem, n_rows: int) -> list[str]:
    unreached, single = problem.reached.count_rows()
    texts = []
    if unreached:
        texts.append(
            f"{unreached} of {n_rows} rows are in components of the kernel without a label: their probabilities are "
            "NaN. Label a row in each component, or raise n_neighbors."
        )
    if single:
        texts.append(
            f"{single} of {n_rows} rows are in components of the kernel with labels of one class only: they get it "
            "with probability 1. Label rows of other classes there, or raise n_neighbors."
        )
    return [warn(text, ConnectivityWarning) for text in texts]


def _solve(problem: Problem, first: int, n_classes: int, context: Context, name: str) -> Solved:
    """Solve for as many classes as fit in memory together, and store their scores in storage order."""
    edges, plan = problem.heat.kernel.edges, context.plan
    touched = edges.blocks_touched() if plan.maps_arrays else 0
    size = edges.n_points, N_LIVE, 8, 8 * edges.longest_block, n_classes - first, touched
    stop = first + plan.panel_columns(*size)
    with problem.solve(first, stop) as scores:
        _write_scores(problem, scores, (first, stop), context, f"{name}/scores/{first}")
    context.store.commit(f"{name}/scores/{first}", scores.solved)
    return scores.solved


def _write_scores(problem: Problem, scores: Scores, columns: tuple[int, int], context: Context, name: str) -> None:
    """Write ``g = x / u + along``; NaN where there is no label, and the least score for classes without one."""
    heat, reached, top = problem.heat, problem.reached, problem.rows.top
    absent = reached.shares[:, slice(*columns)] == 0
    single = (reached.shares > 0).sum(axis=1) == 1
    least, (solution, along, noise, _) = -np.inf if problem.method == POISSON else 0.0, scores
    if problem.method == POISSON:
        squares = reached.among(*problem.rows.mean_squares(solution))
        write_whole(context.store.table(f"{name}/squares", squares.shape, np.float64), squares)

    table = context.store.table(f"{name}/columns", solution.shape, np.float32)

    def write(piece: tuple[int, int]) -> None:
        number = reached.number(*piece)
        out = solution.rows(*piece) / (np.sqrt(heat.step_scale[slice(*piece)]) * top.rows(*piece))[:, None]
        out += along[number]
        out[out < noise] = 0
        out = np.maximum(out, least)
        out[single[number]] = 1.0  # certain, however far the label is
        out[absent[number]] = least
        out[number < 0] = np.nan
        table.write(piece[0], out.astype(np.float32))

    heat.context.workers.map(write, ranges(table.shape[0], table.shard_rows), count=False)


def _publish(problem: Problem, solved: dict[int, Solved], n_classes: int, context: Context, name: str) -> int:
    """Put the scores into the user's order, and normalise them; return the number of rows without any."""
    heat, in_place = problem.heat, not context.store.persistent
    shape = heat.shape[0], n_classes
    scores_name = f"{name}/probabilities" if in_place else context.scratch()
    scores, scale = context.store.table(scores_name, shape, np.float32), np.ones(0)
    if problem.method == POISSON:
        squares = [read_whole(context.store.open_table(f"{name}/scores/{first}/squares")) for first in solved]
        scale = np.sqrt(np.concatenate(squares, axis=1).mean(axis=1))
    for first in solved:
        panels = Panels(heat.context)
        part = panels.open(context.store.open_table(f"{name}/scores/{first}/columns"))
        if problem.method == POISSON:
            part = _likelihoods(problem, part, scale, panels)
        write_columns(heat, part, first, scores, context)
        panels.clear()
    out = context.store.table(f"{name}/probabilities", shape, np.float32)
    entropies = context.store.table(f"{name}/entropy", shape[:1], np.float32, out.shard_rows)
    logarithms = problem.method == POISSON

    def normalise(piece: tuple[int, int]) -> int:
        rows, entropy = scores.read(*piece), np.empty(piece[1] - piece[0], np.float32)
        for start, stop in ranges(len(rows), max(1, _ENTRIES // n_classes)):
            rows[start:stop], entropy[start:stop] = normalised(rows[start:stop].astype(np.float64), logarithms)
        out.write(piece[0], rows)
        entropies.write(piece[0], entropy)
        return int(np.isnan(rows[:, 0]).sum())

    counts = context.workers.map(normalise, ranges(shape[0], out.shard_rows), count=False)
    if not in_place:
        context.store.remove(scores_name)
    return sum(counts)


def _likelihoods(problem: Problem, scores: Panel, scale: np.ndarray, panels: Panels) -> Panel:
    """Scores in units of their root mean square in the component of the row."""
    units, number = np.where(scale > 0, scale, 1.0), problem.reached.number

    def divide(start: int, stop: int) -> Any:
        return scores.rows(start, stop) / units[number(start, stop)][:, None]

    return panels.filled(scores.shape, np.float32, divide)


def normalised(scores: np.ndarray, logarithms: bool) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of rows of scores, or of their logarithms; and the entropy."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if logarithms:
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = scores / scores.sum(axis=1, keepdims=True)
        entropy = -np.where(shares > 0, shares * np.log(shares), shares * 0).sum(axis=1)
    return shares, np.maximum(entropy, 0.0)
