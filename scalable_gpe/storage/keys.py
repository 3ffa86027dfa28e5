"""Names of results: graph -> kernel -> heat -> sketch -> run.

The name of a result is a digest of its own parameters and of the name of the result that it was made from. So a second
epsilon never overwrites the first, and all functions find the same results.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from scalable_gpe.storage.records import to_json

GROUPS = (
    *("runs", "embedding", "labels", "sketch", "heat", "kernel", "graph", "inputs"),
    *("names", "feature_names", "annotations"),
)
RUNS, NAMES, FEATURE_NAMES, ANNOTATIONS = "runs", "names", "feature_names", "annotations"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _key(name: str) -> str:
    """The digest in a name."""
    return name.rpartition("/")[2]


def graph_name(source: object, search: object) -> str:
    """Name of a graph: of its input and of the parameters of the search, both records; rows without scale as ever."""
    chosen = {name: value for name, value in to_json(search).items() if name != "scale" or value is not None}
    return f"graph/{_digest(to_json(source), chosen)}"


def input_name(graph: str) -> str:
    """Name of the record of a graph's input."""
    return f"inputs/{_key(graph)}"


def kernel_name(graph: str, epsilon: float | str) -> str:
    """Name of the kernel of a graph."""
    return f"kernel/{_digest(_key(graph), epsilon)}"


def matrix_name(content: bytes) -> str:
    """Name of a kernel that is the user's own matrix."""
    return f"kernel/matrix-{hashlib.sha256(content).hexdigest()[:12]}"


def heat_name(kernel: str, normalization: str, tol: float, max_iter: int, weights: str | None = None) -> str:
    """Name of the heat kernel of a kernel; `weights` is a checksum of the sample weights."""
    more = () if weights is None else ("sample_weight", weights)
    return f"heat/{_digest(_key(kernel), normalization, tol, max_iter, *more)}"


def sketch_name(heat: str, kind: str, seed: int, precision: str, tol: float | str) -> str:
    """Name of the sketches of a heat kernel: all powers and columns."""
    return f"sketch/{_digest(_key(heat), kind, seed, precision, tol)}"


def filter_name(sketch: str, name: str) -> str:
    """Name of one filter of a sketch: a power, or all powers up to a horizon ("all-1024")."""
    return f"{sketch}/{name}"


def columns_name(sketch: str, name: str, first: int, stop: int) -> str:
    """Name of a range of columns of one filter."""
    return f"{filter_name(sketch, name)}/{first}-{stop}"


def axes_name(sketch: str, name: str, n_sketch: int) -> str:
    """Name of the principal axes of the first columns of one filter."""
    return f"{filter_name(sketch, name)}/axes-{n_sketch}"


def horizon_name(sketch: str) -> str:
    """Name of the horizon that was chosen for the sum of all powers."""
    return f"{sketch}/horizon"


def labels_name(heat: str, labels: str, method: str, horizon: float | None, tol: float) -> str:
    """Name of the class probabilities that labels (a checksum) lead to."""
    return f"labels/{_digest(_key(heat), labels, method, horizon, tol)}"


def run_key(sketch: str, n_components: int, power: Any, *more: Any) -> str:
    """Key of a run: its sketch, the number of columns, and the powers (and `more`) as the user wrote them."""
    return _digest(_key(sketch), n_components, power, *more)


def embedding_name(power: int | str, key: str = "") -> str:
    """Name of a published embedding; with a key if another run has the short name."""
    return f"embedding/{power}-{key}" if key else f"embedding/{power}"


@dataclass(frozen=True)
class Keys:
    """Names of all results of a run, and the fingerprint of its input."""

    input: Any
    graph: str
    kernel: str
    heat: str
    sketch: str
    run: str

    @property
    def run_name(self) -> str:
        """Name of the record of the run."""
        return f"{RUNS}/{self.run}"
