"""The parameters of a run: checked once, before any work, and never changed."""

from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.errors import Message
from scalable_gpe.execution.resources import parse_bytes
from scalable_gpe.graph.distance_matrix import PRECOMPUTED
from scalable_gpe.graph.neighbors import check_n_neighbors, check_search
from scalable_gpe.graph.search import SearchParameters
from scalable_gpe.heat.bandwidth import check_epsilon
from scalable_gpe.heat.normalization import NORMALIZATIONS
from scalable_gpe.io.rows import METRICS, MISSING
from scalable_gpe.sketch.gaussian_process import AS_SKETCHED, SketchParameters, check_sketch
from scalable_gpe.sketch.random_matrix import Sketch

AUTO = "auto"


@dataclass(frozen=True)
class Parameters:
    """Checked arguments of `embed`; `power` is as the user wrote it, `powers` are the powers to compute.

    `sample_weight` is a checksum of the weights; None without weights.
    """

    n_components: int
    powers: tuple[Power, ...]
    sketch: str
    random_state: int
    precision: str
    tol: float | str
    metric: str
    method: str
    recall: float
    power: Power | tuple[Power, ...]
    epsilon: float | str
    normalization: str
    n_neighbors: int | None = None
    memory_limit: int | None = None
    horizon: int | str = AUTO
    first_power: int | str = AUTO
    n_sketch: int | None = None
    sample_weight: str | None = None
    axes: str = AS_SKETCHED  # of earlier versions
    scale: str | None = None
    missing: str = "error"
    numeric_only: bool = False

    @property
    def search(self) -> SearchParameters:
        """Parameters of the graph stage."""
        return SearchParameters(self.n_neighbors, self.metric, self.method, self.recall, self.random_state, self.scale)

    @property
    def sketching(self) -> SketchParameters:
        """Parameters of the sketch stage."""
        sketch = Sketch(self.sketch, self.random_state, self.precision)
        return SketchParameters(
            self.n_components,
            self.powers,
            sketch,
            self.tol,
            self.horizon,
            self.n_sketch,
            self.first_power,
            self.axes,
        )

    @property
    def several(self) -> bool:
        """Whether the user passed a sequence of powers."""
        return isinstance(self.power, tuple)

    def for_rows(self, n_rows: int | None) -> "Parameters":
        """Return a copy with n_neighbors checked against `n_rows`; unchanged for None (precomputed lists)."""
        return self if n_rows is None else replace(self, n_neighbors=check_n_neighbors(self.n_neighbors, n_rows))

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters as users see them."""
        shown = {name: value for name, value in asdict(self).items() if name != "powers"}
        return shown | {"power": list(self.power) if isinstance(self.power, tuple) else self.power}


def check_parameters(
    *,
    n_components: Any,
    n_neighbors: Any,
    epsilon: Any,
    power: Any,
    horizon: Any,
    first_power: Any,
    n_sketch: Any,
    axes: Any,
    scale: Any,
    missing: Any,
    numeric_only: Any,
    normalization: Any,
    sketch: Any,
    metric: Any,
    random_state: Any,
    precision: Any,
    tol: Any,
    method: Any,
    recall: Any,
    memory_limit: Any,
) -> Parameters:
    """Check all arguments of `embed`, except the data and where to run."""
    seed = checks.check_random_state(random_state)
    sketching = check_sketch(n_components, power, sketch, seed, precision, tol, horizon, n_sketch, first_power, axes)
    search = check_search(
        n_neighbors=n_neighbors,
        metric=metric,
        method=method,
        recall=recall,
        random_state=seed,
        n_rows=None,
        choices=(*METRICS, PRECOMPUTED),
        scale=scale,
    )
    if not isinstance(numeric_only, bool):
        raise TypeError(Message(f"`numeric_only` must be True or False; got {numeric_only!r}."))
    return Parameters(
        n_components=sketching.n_components,
        powers=sketching.powers,
        sketch=sketching.sketch.kind,
        random_state=seed,
        precision=sketching.sketch.precision,
        tol=sketching.tol,
        metric=search.metric,
        method=search.method,
        recall=search.recall,
        power=sketching.powers[0] if isinstance(power, Integral | str) else sketching.powers,
        epsilon=check_epsilon(epsilon),
        normalization=checks.check_choice(normalization, NORMALIZATIONS, "normalization"),
        n_neighbors=search.n_neighbors,
        memory_limit=parse_bytes(memory_limit),
        horizon=sketching.horizon,
        first_power=sketching.first_power,
        n_sketch=sketching.n_sketch,
        axes=sketching.axes,
        scale=search.scale,
        missing=checks.check_choice(missing, MISSING, "missing"),
        numeric_only=numeric_only,
    )
