"""The parameters of a run: checked once, before any work, and never changed."""

from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.execution.resources import parse_bytes
from scalable_gpe.graph.neighbors import check_n_neighbors, check_search
from scalable_gpe.graph.precomputed import PRECOMPUTED
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
            self.n_components, self.powers, sketch, self.tol, self.horizon, self.n_sketch, self.first_power, self.axes
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


_OF_SEARCH = ("n_neighbors", "metric", "method", "recall", "scale")
_OF_SKETCH = ("n_components", "power", "sketch", "precision", "tol", "horizon", "n_sketch", "first_power", "axes")


def check_parameters(given: dict[str, Any]) -> Parameters:
    """Check all arguments of `embed`, except the data and where to run."""
    seed, choices = checks.check_random_state(given["random_state"]), (*METRICS, PRECOMPUTED)
    sketching = check_sketch(seed=seed, **{name: given[name] for name in _OF_SKETCH})
    searched = {name: given[name] for name in _OF_SEARCH}
    search = check_search(random_state=seed, n_rows=None, choices=choices, **searched)
    if not isinstance(given["numeric_only"], bool):
        raise TypeError(f"numeric_only must be True or False; got {given['numeric_only']!r}.")
    one_power = isinstance(given["power"], Integral | str)
    of_sketch = {**vars(sketching), "sketch": sketching.sketch.kind, "precision": sketching.sketch.precision}
    return Parameters(
        **vars(search),
        **of_sketch,
        power=sketching.powers[0] if one_power else sketching.powers,
        epsilon=check_epsilon(given["epsilon"]),
        normalization=checks.check_choice(given["normalization"], NORMALIZATIONS, "normalization"),
        memory_limit=parse_bytes(given["memory_limit"]),
        missing=checks.check_choice(given["missing"], MISSING, "missing"),
        numeric_only=given["numeric_only"],
    )
