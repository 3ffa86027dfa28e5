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

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     shape: tuple[int, ...]
    ...     errors: dict[int, float] = dataclasses.field(default_factory=dict)
    >>> from_json(Size, {"shape": [3, 4], "errors": {"16": 0.5}, "color": "red"})
    Size(shape=(3, 4), errors={16: 0.5})
    """
    hints = _hints(kind)
    known = {name: _restore(hints[name], value) for name, value in content.items() if name in hints}
    return kind(**known)


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _restore(hint: Any, value: Any) -> Any:
    """Convert a value from JSON to the type of its field."""
    if value is None:
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _restore(_alternative(arguments, value), value)
    if origin is tuple:
        return tuple(_restore(arguments[0], one) for one in value)
    if origin is dict:
        return {_restore_key(arguments[0], key): _restore(arguments[1], one) for key, one in value.items()}
    return from_json(hint, value) if dataclasses.is_dataclass(hint) and isinstance(hint, type) else value


def _restore_key(hint: Any, key: str) -> Any:
    """Convert the key of a JSON object, which is always a text, to an int where the type allows one."""
    if hint is int or (int in typing.get_args(hint) and key.isdigit()):
        return int(key)
    return key


def _alternative(arguments: tuple[Any, ...], value: Any) -> Any:
    """The member of a union that fits a value from JSON: a list is a tuple, an object a dict or a record."""
    for one in arguments:
        origin = typing.get_origin(one)
        if isinstance(value, list) and origin in (tuple, list):
            return one
        if isinstance(value, dict) and (origin is dict or dataclasses.is_dataclass(one)):
            return one
    return object


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
