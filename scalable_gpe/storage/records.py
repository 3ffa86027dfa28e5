"""Records, which a store keeps as JSON with the arrays of a result, and the names of results.

A record is a frozen dataclass. Names: graph -> kernel -> heat -> sketch -> run. The name of a result is a digest of its
own parameters and of the name of the result that it was made from. So a second epsilon never overwrites the first, and
all functions find the same results.
"""

import dataclasses
import hashlib
import json
import types
import typing
from typing import Any, TypeVar

Record = TypeVar("Record")
GROUPS = (
    *("runs", "embedding", "labels", "sketch", "heat", "kernel", "graph", "inputs"),
    *("names", "feature_names", "annotations"),
)
RUNS, NAMES, FEATURE_NAMES, ANNOTATIONS = "runs", "names", "feature_names", "annotations"


def to_json(record: object) -> dict[str, Any]:
    """Fields of a record as plain numbers, texts, lists and dicts."""
    content = dataclasses.asdict(record)  # type: ignore[call-overload]
    return dict(json.loads(json.dumps(content, default=_plain)))


def from_json(kind: type[Record], content: dict[str, Any]) -> Record:
    """Restore a record. Unknown fields are ignored; absent fields take their defaults.

    A value that its field cannot have raises a ValueError: what a store says is not trusted.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     shape: tuple[int, ...]
    ...     errors: dict[int, float] = dataclasses.field(default_factory=dict)
    >>> from_json(Size, {"shape": [3, 4], "errors": {"16": 0.5}, "color": "red"})
    Size(shape=(3, 4), errors={16: 0.5})
    """
    if not isinstance(content, dict):
        raise ValueError(f"{kind.__name__} must be an object; got {_short(content)}")
    hints = _hints(kind)
    fields = {name: _restore(hints[name], value, name) for name, value in content.items() if name in hints}
    try:
        return kind(**fields)
    except TypeError as error:  # a field is missing
        raise ValueError(f"{kind.__name__}: {error}") from None


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _restore(hint: Any, value: Any, name: str) -> Any:
    """Convert a value from JSON to the type of its field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        fitting = [argument for argument in arguments if _fits(argument, value)]
        return _restore(fitting[0] if fitting else arguments[0], value, name)
    if not _fits(hint, value):
        raise ValueError(f"{name} must be {getattr(hint, '__name__', hint)}; got {_short(value)}")
    if origin is tuple:
        inner = arguments[:-1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(inner) != len(value):
            raise ValueError(f"{name} must have {len(inner)} entries; got {len(value)}")
        return tuple(_restore(hint, item, name) for hint, item in zip(inner, value, strict=True))
    if origin is dict:
        return {_restore_key(arguments[0], key): _restore(arguments[1], item, name) for key, item in value.items()}
    return from_json(hint, value) if _is_record(hint) else value


def _restore_key(hint: Any, key: str) -> Any:
    """Convert the key of a JSON object, which is always a text, to an int where the type allows one."""
    if hint is int or (int in typing.get_args(hint) and key.isdigit()):
        return int(key)
    return key


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value from JSON has the kind of a type: a list is a tuple, an object a dict or a record."""
    origin = typing.get_origin(hint) or hint
    if origin in (tuple, list):
        return isinstance(value, list)
    if origin is dict or _is_record(hint):
        return isinstance(value, dict)
    if origin is float:  # NaN is a figure that was never measured
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (bool, str, types.NoneType):
        return isinstance(value, origin)
    return True


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


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


@dataclasses.dataclass(frozen=True)
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
