"""The experiments of "Sketching the Heat Kernel", trial by trial.

A trial samples points, and all methods share them. Both normalisations use the same Gaussian and the same Bernoulli
matrix; target dimension k uses their first k columns. A trial records log L, where L is the ratio of the largest to the
smallest dilation of distances.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.distance import pdist

from scalable_gpe import datasets, exact, sketch_matrix

Array = np.ndarray
Measured = dict[str, list[float]]

NORMALIZATION = {"S": "symmetric", "B": "bistochastic"}
SKETCH = {"GP": "gaussian", "GPSB": "bernoulli"}
DM_AND_GP = ("DMS", "DMB", "GPS", "GPB")
ALL_METHODS = (*DM_AND_GP, "GPSBS", "GPSBB")


@dataclass(frozen=True)
class Experiment:
    """The parameters of one figure of the paper."""

    name: str
    title: str
    sample: Callable[..., Array]
    n_trials: int
    n_points: int
    epsilon: float
    dimensions: Sequence[int]
    powers: Sequence[int]
    methods: Sequence[str] = DM_AND_GP
    euclidean: bool = False
    parameters: dict[str, float] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        return "k" if len(self.powers) == 1 else "p"

    @property
    def values(self) -> Sequence[int]:
        return self.dimensions if self.axis == "k" else self.powers

    def points(self, trial: int) -> Array:
        return self.sample(self.n_points, random_state=trial, **self.parameters)


def _experiments() -> tuple[Experiment, ...]:
    torus, klein = {"ratio": 3.5}, {"a": 10.0, "b": 5.0}
    doubling = [2**j for j in range(1, 11)]
    return (
        Experiment("circle", "S¹", datasets.circle, 200, 300, 0.25, range(2, 9), [8]),
        Experiment("torus", "S¹ × 3.5 S¹", datasets.torus, 100, 500, 0.3, range(2, 13), [10], parameters=torus),
        Experiment(
            "klein", "Klein bottle", datasets.klein_bottle, 100, 500, 2.0, range(3, 21), [4], ALL_METHODS, False, klein
        ),
        Experiment("outliers", "S¹ with two outliers", datasets.circle_with_outliers, 100, 200, 0.5, range(2, 6), [4]),
        # the paper gives no parameters for its point clouds: these are the Klein bottle's
        Experiment(
            "clouds", "Point clouds", datasets.point_clouds, 100, 500, 2.0, range(3, 21), [4], ALL_METHODS, True
        ),
        Experiment("powers_torus", "S¹ × 3.5 S¹", datasets.torus, 100, 500, 0.3, [8], doubling, DM_AND_GP, True, torus),
        Experiment("powers_circle", "S¹", datasets.circle, 100, 300, 0.25, [2], doubling[:8], DM_AND_GP, True),
    )


EXPERIMENTS = {experiment.name: experiment for experiment in _experiments()}


def run_trial(name: str, trial: int) -> Measured:
    """Measure log L of every method at every value of the experiment's axis."""
    experiment = EXPERIMENTS[name]
    X = experiment.points(trial)
    measured: Measured = {}
    for letter, normalization in NORMALIZATION.items():
        A = exact.heat_kernel(X, experiment.epsilon, normalization)
        methods = [method for method in experiment.methods if method.endswith(letter)]
        measured |= _measure(experiment, methods, X, A, trial)
    return measured


def embedding(method: str, A: Array, power: int, n_components: int, trial: int) -> Array:
    """Compute one of DMS, DMB, GPS, GPB, GPSBS, GPSBB; A is the heat kernel that the last letter stands for."""
    if method.startswith("DM"):
        return exact.diffusion_map(A, n_components, power)
    kind = SKETCH[method[:-1]]
    G = sketch_matrix(len(A), n_components, kind=kind, random_state=trial)
    return exact.gp_embedding(A, G, power)


def _measure(experiment: Experiment, methods: list[str], X: Array, A: Array, trial: int) -> Measured:
    measured: Measured = {method: [] for method in methods}
    widest = max(experiment.dimensions)
    # all powers share the eigenvectors, and all sketches share A^p
    eigenvectors = embedding(methods[0], A, 1, widest, trial)
    for power, A_power in _powers(A, experiment.powers):
        distances = pdist(X) if experiment.euclidean else exact.diffusion_distances(A_power, 1)
        for method in methods:
            is_map = method.startswith("DM")
            Y = _at_time(eigenvectors, power) if is_map else embedding(method, A_power, 1, widest, trial)
            logs = [np.log(exact.bilipschitz(Y[:, :k], distances)) for k in experiment.dimensions]
            measured[method] += [float(value) for value in logs]
    return measured


def _at_time(map_at_1: Array, time: int) -> Array:
    """Compute the diffusion map at another time: a column at time 1 is lambda v, and its length is lambda."""
    return map_at_1 * np.linalg.norm(map_at_1, axis=0) ** (time - 1)


def _powers(A: Array, powers: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yield A^p for ascending powers, each from the one before."""
    last, out = 0, np.eye(len(A))
    for power in powers:
        last, out = power, out @ np.linalg.matrix_power(A, power - last) if power != 2 * last else out @ out
        yield power, out
