"""The Gaussian process embedding Y = A^p G / sqrt(k) of a heat kernel."""

import hashlib
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import ALL, Power
from scalable_gpe.errors import ConvergenceWarning, DamageError, GPEWarning, VanishingWarning, warn
from scalable_gpe.execution.context import Context, complete, open_store
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.errors import SolverError
from scalable_gpe.multilevel.horizon import Horizon, choose_first_power
from scalable_gpe.sketch.all_scales import AllScales, ScalesPlan
from scalable_gpe.sketch.columns import Plan, SketchColumns, make_columns, plan_powers, sweeps_of
from scalable_gpe.sketch.polynomial import PowerPlan
from scalable_gpe.sketch.publish import publish
from scalable_gpe.sketch.random_matrix import KINDS, Sketch, sketch_matrix
from scalable_gpe.sketch.rotation import Axes, find_axes
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.records import axes_name, sketch_name

PRECISIONS = ("single", "double")
PRINCIPAL, AS_SKETCHED = AXES = ("principal", "sketch")
TOL_OF_POWERS, TOL_OF_ALL = 1e-4, 1e-2  # of all scales, more would be far below the error of the sketch
FEW_COMPONENTS = 8  # below, the sketch alone changes a distance by more than a quarter


@dataclass(frozen=True)
class SketchParameters:
    """Parameters of a sketch."""

    n_components: int
    powers: tuple[Power, ...]
    sketch: Sketch
    tol: float | str = "auto"
    horizon: int | str = "auto"
    n_sketch: int | None = None
    first_power: int | str = "auto"
    axes: str = AS_SKETCHED

    @property
    def is_rotated(self) -> bool:
        """Whether the result has principal axes: with n_sketch it always has."""
        return self.axes == PRINCIPAL or self.n_sketch is not None

    @property
    def n_columns(self) -> int:
        """Number of columns that are computed."""
        return self.n_components if self.n_sketch is None else self.n_sketch

    def tol_of(self, power: Power) -> float:
        """Largest relative error of distances: as given, or by default more for all scales than for a power."""
        if not isinstance(self.tol, str):
            return self.tol
        return TOL_OF_ALL if power == ALL else TOL_OF_POWERS

    def name(self, heat: str) -> str:
        """Name of the sketches of a heat kernel."""
        return sketch_name(heat, self.sketch.kind, self.sketch.seed, self.sketch.precision, self.tol)


def gp_embedding(
    heat: HeatKernel,
    n_components: int = 32,
    power: Any = "all",
    *,
    horizon: Any = "auto",
    first_power: Any = "auto",
    n_sketch: Any = None,
    sketch: str = "gaussian",
    random_state: Any = 0,
    precision: str = "single",
    tol: Any = "auto",
    store: Any = None,
    storage_options: StorageOptions | None = None,
) -> Any:
    r"""Gaussian process embedding of a heat kernel.

    .. math:: Y = A^p G / \sqrt{k}, \qquad E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    Its columns are those of the formula (`embed` rotates them to principal axes). For a converged bistochastic kernel
    the columns of G are centred, which shifts all points by the same vector. If the
    heat kernel has sample weights, :math:`Y = W^{-1/2} A^p G / \sqrt{k}`.

    Parameters
    ----------
    heat : HeatKernel
        The operator A.
    n_components : int
        Dimension k of the embedding; distances have a relative standard deviation of sqrt(2/k) / 2, and below 8 a
        warning says so.
    power : int, "all", or a sequence of them
        The power p; several powers share their products. "all" is the sum of all powers from the first power m on,
        :math:`f(A) = A^m (I - c A)^{-1}` with :math:`c = 1 - 1/T`, in place of :math:`A^p`: near and far at once.
    horizon : int or "auto"
        The horizon T of "all"; by default a power of two from eight relaxation times of the slowest shape on.
    first_power : int or "auto"
        The first power m of "all"; by default 8 from 50,000 rows on, 1 below.
    n_sketch : int, optional
        Compute this many columns, and keep the n_components principal axes of them: ordered coordinates, and less
        noise in what is kept.
    sketch : {"gaussian", "bernoulli"}
        Entries of G.
    random_state : int, None or numpy generator
        Seed of G; entry (i, j) depends on nothing else.
    precision : {"single", "double"}
        Floating-point type of the panels.
    tol : float or "auto"
        Largest relative error of distances that the polynomial or the solver may cause: by default 1e-4 for powers,
        1e-2 for all scales.
    store : path or URL, optional
        A zarr store for the result.
    storage_options : dict, optional
        Options of fsspec for the URL of `store`.

    Returns
    -------
    ndarray of float32, (N, k), or a dict of them for a sequence of powers; zarr arrays with a store.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> gpe.gp_embedding(heat, 8, power=8).shape
    (300, 8)
    """
    if not isinstance(heat, HeatKernel):
        raise TypeError(f"heat must be a HeatKernel, as heat_kernel returns it; got {type(heat).__name__}.")
    seed = checks.check_random_state(random_state)
    parameters = check_sketch(n_components, power, sketch, seed, precision, tol, horizon, n_sketch, first_power)
    warn_if_few(parameters)
    check_options(storage_options, store)
    arrays = heat.context.store if store is None else open_store(store, storage_options)
    context = Context(arrays, heat.context.workers, heat.context.plan)
    name = parameters.name(heat.name if arrays.location == heat.context.store.location else heat_identity(heat))
    with arrays.exclusive():
        result = complete(SketchStage(heat, parameters, name), context)
        kept = f"{parameters.n_components}" + (f"-of-{n_sketch}" if parameters.n_sketch is not None else "")
        points = {}
        for one in parameters.powers:
            array_name = f"{name}/points-{kept}/{result.plans[one].filter.name}"
            result.publish(heat, parameters, one, context, array_name)
            points[one] = arrays.detach(array_name)
    return points[parameters.powers[0]] if isinstance(power, Integral | str) else points


def warn_if_few(parameters: SketchParameters) -> None:
    """Warn that the sketch alone changes distances in few dimensions much; once for each number of them."""
    k = parameters.n_components
    is_probe = k == 1 and parameters.powers == (1,)  # the cheapest sketch, for its heat kernel alone
    if k < FEW_COMPONENTS and parameters.n_sketch is None and not is_probe:
        warn_of_few(k)


@cache  # Python's own filter forgets what it has shown whenever a library changes the filters
def warn_of_few(k: int) -> None:
    """Warn about k dimensions, once in a process."""
    warn(
        f"distances in {k} dimension{'s' * (k > 1)} have a relative error of {(2 / k) ** 0.5 / 2:.0%}, from the sketch "
        "alone. Pass n_sketch=128, which keeps the principal axes of a wider sketch, or embed in 16 dimensions: "
        "its first two columns are the plane for pictures.",
        GPEWarning,
    )


@dataclass(frozen=True)
class SketchResult:
    """Result of the sketch stage: plan and columns of each power, and the horizon of "all"."""

    plans: dict[Power, Plan]
    columns: dict[Power, list[SketchColumns]]
    horizon: Horizon | None = None
    name: str = ""

    @property
    def scales(self) -> ScalesPlan | None:
        """The plan of "all", if it is one of the powers."""
        plan = self.plans.get(ALL)
        return plan if isinstance(plan, ScalesPlan) else None

    @property
    def solver_error(self) -> SolverError | None:
        """The error that the solver has left, of all columns; None without "all", or if no column was measured."""
        changes = [part.change for part in self.columns.get(ALL, []) if part.change is not None]
        if self.scales is None or not changes:
            return None
        return SolverError.of(changes, self.columns[ALL][-1].stop, self.scales.solver.remaining)

    def error(self, power: Power) -> float:
        """The relative error of distances by polynomial, solver and rounding."""
        plan, measured = self.plans[power], self.solver_error
        if isinstance(plan, PowerPlan):
            return plan.error
        return 0.0 if measured is None else measured.mean

    def publish(
        self,
        heat: HeatKernel,
        parameters: SketchParameters,
        power: Power,
        context: Context,
        name: str,
        owner: str | None = None,
    ) -> None:
        """Write the embedding of one power."""
        columns, k, axes = self.columns[power], parameters.n_components, self._axes_names(parameters).get(power)
        publish(heat, columns, k, context, name, n_columns=parameters.n_columns, axes_name=axes, owner=owner)

    def axes(self, parameters: SketchParameters, context: Context) -> dict[Power, Axes]:
        """The principal axes of a published embedding, which new points are rotated to, if it is."""
        names = self._axes_names(parameters)
        found = {one: find_axes(context, name) for one, name in names.items()}
        for one, axes in found.items():
            if axes is None:  # new points would not be rotated
                raise DamageError(f"the principal axes {names[one]!r} are missing", names[one])
        return {one: axes for one, axes in found.items() if axes is not None}

    def has_axes(self, parameters: SketchParameters, context: Context) -> bool:
        """Whether the principal axes of every power are stored, if there are any."""
        return all(find_axes(context, name) is not None for name in self._axes_names(parameters).values())

    def _axes_names(self, parameters: SketchParameters) -> dict[Power, str]:
        plans, width = self.plans if parameters.is_rotated else {}, parameters.n_columns
        return {power: axes_name(self.name, plan.filter.name, width) for power, plan in plans.items()}

    @property
    def n_panels(self) -> int:
        """Number of panels: groups of columns that share their sweeps."""
        return max((len(parts) for parts in self.columns.values()), default=0)

    @property
    def sweeps_per_panel(self) -> int:
        """Number of sweeps of a panel for all powers, including the last ones, which publish."""
        return sweeps_of(self.plans.values())


@dataclass(frozen=True)
class SketchStage:
    """Stage that makes A^(p-1) G for all powers of a sketch; stored columns are reused."""

    heat: HeatKernel
    parameters: SketchParameters
    name: str
    is_known: bool = False  # a finished run, whose report holds the warnings

    def find(self, context: Context) -> SketchResult | None:
        """Return None: `make` looks for stored columns itself, and adds those that are missing."""
        return None

    def make(self, context: Context) -> SketchResult:
        """Plan each power, and compute the columns that are missing."""
        heat, parameters = self.heat, self.parameters
        scales, powers = AllScales(heat, context, self.name), [one for one in parameters.powers if isinstance(one, int)]
        plans = plan_powers(heat, parameters.sketch, powers, parameters.tol_of(1), context, self.name)
        horizon = None
        if ALL in parameters.powers:
            horizon, first = (
                scales.horizon(parameters.horizon),
                choose_first_power(parameters.first_power, heat.shape[0]),
            )
            plans[ALL] = scales.plan(horizon, first, parameters.tol_of(ALL))
        plans = {power: plans[power] for power in parameters.powers}
        if not self.is_known:
            _warn_about(plans)
        columns = make_columns(heat, parameters.sketch, parameters.n_columns, plans, context, self.name, scales)
        scales.clear()
        return SketchResult(plans, columns, horizon, self.name)


def _warn_about(plans: dict[Power, Plan]) -> None:
    """Warn, before the sweeps, about powers that leave nothing of the data, and data that are hard to solve for."""
    for plan in plans.values():
        if plan.warning is not None:
            warn(plan.warning, VanishingWarning if isinstance(plan, PowerPlan) else ConvergenceWarning)


def heat_identity(heat: HeatKernel) -> str:
    """Name of a heat kernel in a store that does not hold it: a checksum of A times a fixed random vector."""
    image = heat @ sketch_matrix(heat.shape[0], 1)
    return f"heat/{hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:12]}"


def check_sketch(
    n_components: Any,
    power: Any,
    sketch: str,
    seed: int,
    precision: str,
    tol: Any,
    horizon: Any,
    n_sketch: Any,
    first_power: Any = "auto",
    axes: Any = None,
) -> SketchParameters:
    """Check the parameters of a sketch; its columns stay as they are without `axes`, except with `n_sketch`."""
    if axes == AS_SKETCHED and n_sketch is not None:
        raise ValueError("axes='sketch' keeps the columns of the sketch, n_sketch principal axes: pass one of them.")
    kept = checks.check_count(n_components, "n_components")
    kind, powers = checks.check_choice(sketch, KINDS, "sketch"), checks.check_powers(power)
    return SketchParameters(
        n_components=kept,
        powers=powers,
        sketch=Sketch(kind, seed, checks.check_choice(precision, PRECISIONS, "precision")),
        tol=tol if isinstance(tol, str) and tol == "auto" else checks.check_positive(tol, "tol"),
        horizon=checks.check_of_all(horizon, powers, "horizon"),
        n_sketch=None if n_sketch is None else _check_n_sketch(n_sketch, kept),
        first_power=checks.check_of_all(first_power, powers, "first_power"),
        axes=AS_SKETCHED if axes is None else checks.check_choice(axes, AXES, "axes"),
    )


def _check_n_sketch(n_sketch: Any, n_components: int) -> int:
    computed = checks.check_count(n_sketch, "n_sketch")
    if computed < n_components:
        raise ValueError(
            f"n_sketch must be at least n_components={n_components}: that many axes are kept; got {computed}."
        )
    return computed
