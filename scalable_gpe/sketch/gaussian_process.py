"""The Gaussian process embedding Y = A^p G / sqrt(k) of a heat kernel."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from scalable_gpe import checks
from scalable_gpe.execution.context import Context, open_store
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.columns import make_columns, plan_powers
from scalable_gpe.sketch.publish import publish
from scalable_gpe.sketch.random_matrix import KINDS, Sketch
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.keys import sketch_name

PRECISIONS = ("single", "double")


@dataclass(frozen=True)
class SketchParameters:
    """What a sketch is asked for."""

    n_components: int
    powers: tuple[int, ...]
    sketch: Sketch
    tol: float

    def name(self, heat: str) -> str:
        """Name of the sketches of a heat kernel."""
        return sketch_name(heat, self.sketch.kind, self.sketch.seed, self.sketch.precision, self.tol)


def gp_embedding(
    heat: HeatKernel,
    n_components: int = 16,
    power: Any = 16,
    *,
    sketch: str = "gaussian",
    random_state: Any = 0,
    precision: str = "single",
    tol: float = 1e-4,
    store: Any = None,
    storage_options: StorageOptions | None = None,
) -> Any:
    r"""Gaussian process embedding of a heat kernel.

    .. math:: Y = A^p G / \sqrt{k}, \qquad E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    For a converged bistochastic kernel the columns of G are centred, which shifts all points alike.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    n_components : int
        Dimension k of the embedding.
    power : int or sequence of int
        The power p; several share their products.
    sketch : {"gaussian", "bernoulli"}
        Entries of G.
    random_state : int, None or numpy generator
        Seed of G; entry (i, j) does not depend on anything else.
    precision : {"single", "double"}
        Type of the panels that are multiplied.
    tol : float
        Relative error of distances that the polynomial may make.
    store : path or URL, optional
        A zarr store for the result.
    storage_options : dict, optional
        What fsspec needs to reach the URL of `store`.

    Returns
    -------
    ndarray of float32, (N, k), or a dict of them for a sequence of powers; zarr arrays with a store.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> gpe.gp_embedding(heat, 2, power=8).shape
    (300, 2)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel makes it; got {type(heat).__name__}.")
    parameters = check_sketch(n_components, power, sketch, checks.check_random_state(random_state), precision, tol)
    check_options(storage_options, store)
    arrays = heat.context.store if store is None else open_store(store, storage_options)
    context = Context(arrays, heat.context.workers, heat.context.plan)
    name = parameters.name(heat.name if str(arrays) == str(heat.context.store) else _identity(heat))
    k = parameters.n_components
    with arrays.exclusive():
        plans = plan_powers(heat, parameters.sketch, parameters.powers, parameters.tol, context, name)
        columns = make_columns(heat, parameters.sketch, k, plans, context, name)
        points = {}
        for one in parameters.powers:
            place = f"{name}/points-{k}/{one}"
            publish(heat, columns[one], k, context, place)
            points[one] = arrays.detach(place)
    return points[parameters.powers[0]] if isinstance(power, Integral) else points


def _identity(heat: HeatKernel) -> str:
    """Name of a heat kernel in a store that does not hold it: its content counts, not only sampled rows of X."""
    graph = heat.kernel.graph
    return heat.name if graph is None else f"{heat.name}-{graph.metadata.content}"


def check_sketch(n_components: Any, power: Any, sketch: str, seed: int, precision: str, tol: Any) -> SketchParameters:
    """Check what a sketch is asked for."""
    kind = checks.check_choice(sketch, KINDS, "sketch")
    return SketchParameters(
        n_components=checks.check_count(n_components, "n_components"),
        powers=checks.check_powers(power),
        sketch=Sketch(kind, seed, checks.check_choice(precision, PRECISIONS, "precision")),
        tol=checks.check_positive(tol, "tol"),
    )
