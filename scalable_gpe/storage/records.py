"""Records: frozen dataclasses that a store keeps as JSON with the arrays of a result."""

import dataclasses
import json
import types
import typing
from typing import Any, TypeVar

Record = TypeVar("Record")


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
