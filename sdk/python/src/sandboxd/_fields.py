"""Parsers for the fields of JSON objects. A value of another type raises a ValueError that names the field."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, cast

T = TypeVar("T")


class Fields:
    """The fields of a JSON object."""

    def __init__(self, value: object) -> None:
        self._fields = json_object(value)

    def required(self, name: str, parse: Callable[[Any], T]) -> T:
        """The value of a field."""
        if name not in self._fields:
            raise ValueError(f"`{name}` is missing")
        return self._parsed(name, parse)

    def optional(self, name: str, parse: Callable[[Any], T]) -> Optional[T]:
        """The value of a field; None if the field is absent or null."""
        if self._fields.get(name) is None:
            return None
        return self._parsed(name, parse)

    def _parsed(self, name: str, parse: Callable[[Any], T]) -> T:
        try:
            return parse(self._fields[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError("not a string")
    return value


def integer(value: object) -> int:
    """An integer."""
    # A bool is an int in Python, but not in JSON.
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("not an integer")
    return value


def number(value: object) -> float:
    """A number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError("not a number")
    return value


def boolean(value: object) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise ValueError("not a boolean")
    return value


def json_object(value: object) -> Mapping[str, Any]:
    """An object with any values."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return cast("Mapping[str, Any]", value)


def any_value(value: object) -> Any:
    """Any value."""
    return value


def array_of(parse: Callable[[Any], T]) -> Callable[[Any], List[T]]:
    """An array of values that `parse` accepts."""

    def parsed(value: object) -> List[T]:
        if not isinstance(value, list):
            raise ValueError("not an array")
        return [parse(item) for item in cast("Sequence[Any]", value)]

    return parsed


def map_of(parse: Callable[[Any], T]) -> Callable[[Any], Dict[str, T]]:
    """An object whose values `parse` accepts."""

    def parsed(value: object) -> Dict[str, T]:
        return {name: parse(item) for name, item in json_object(value).items()}

    return parsed
