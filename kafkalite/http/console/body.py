"""What a page sends with an action: fields of a JSON object, checked. Pure; everything raises ValueError."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from kafkalite.model import TopicPartition

Values = Mapping[str, Any]
_TYPES: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}
#: Most numbers have 32 bits in requests.
_INT_END = 2**31
_LONG_END = 2**63


def object_of(body: bytes) -> dict[str, Any]:
    """The object in a body."""
    try:
        values = json.loads(body)
    except RecursionError:
        raise ValueError("the body is nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    except ValueError:
        raise ValueError("the body has a number with too many digits") from None
    if not isinstance(values, dict):
        raise ValueError("the body is not a JSON object")
    return values


def value(values: Values, name: str, kind: type, default: Any = None) -> Any:
    """It is there, and of this type."""
    found = values.get(name, default)
    if found is None:
        raise ValueError(f"{name} is missing")
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise ValueError(f"{name} is not {_TYPES[kind]}")
    if kind is int and isinstance(found, int) and not -_INT_END <= found < _INT_END:
        raise ValueError(f"{name} is out of range")
    return found


def long(values: Values, name: str, default: int | None = None) -> int:
    """A whole number that has 64 bits in requests: an offset, a time, bytes."""
    found = values.get(name, default)
    if type(found) is int and not -_LONG_END <= found < _LONG_END:
        raise ValueError(f"{name} is out of range")
    return found if type(found) is int else int(value(values, name, int, default))


def texts(values: Values, name: str) -> dict[str, str]:
    return {str(key): str(each) for key, each in value(values, name, dict, {}).items()}


def numbers(values: Values, name: str) -> list[int]:
    """A list of whole numbers."""
    found: list[int] = value(values, name, list)
    if not all(type(each) is int and -_INT_END <= each < _INT_END for each in found):
        raise ValueError(f"{name} is not a list of whole numbers")
    return found


def partition(values: Values) -> TopicPartition:
    return TopicPartition(value(values, "topic", str), value(values, "partition", int))


def confirmed(values: Values, name: str) -> str:
    """The name was given twice."""
    wanted: str = value(values, name, str)
    if values.get("confirm") != wanted:
        raise ValueError(f"to delete {wanted}, confirm must be its name")
    return wanted


def binary(values: Values, name: str) -> bytes:
    """From base64."""
    text = value(values, name, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{name} is not base64") from None
