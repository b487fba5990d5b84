"""Records as lines of JSON: what `consume --json` writes, and `produce --input json` reads."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

from kafkalite.client.consumed import ConsumedRecord
from kafkalite.lazy_dataclass import dataclass
from kafkalite_cli.parameters import MAX_ID, MAX_LONG

#: Of a record that is to be sent: what a line may have; offset and topic are where it was.
_FIELDS = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition", "offset", "topic"}
)


class LineError(ValueError):
    """Why a line is no record, in a few words."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A record to send; None: not said. A `value` of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def encode_record(record: ConsumedRecord) -> bytes:
    """A record as one line of JSON. Keys and values that are not UTF-8 are key_base64 and value_base64."""
    reported: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            reported[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            reported[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if record.headers:
        reported["headers"] = [[name, _header_text(value)] for name, value in record.headers]
    return json.dumps(reported).encode() + b"\n"


def _header_text(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode()}


def decode_record(line: bytes) -> RecordLine:
    """A line of `encode_record`, or one that a person wrote. Raises LineError."""
    try:
        found = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except LineError:
        raise
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {str(error)[:80]}") from None
    if not isinstance(found, dict):
        raise LineError("not a JSON object")
    unknown = sorted(found.keys() - _FIELDS)
    if unknown:
        raise LineError(f"{unknown[0]!r} is not a field of a record: {', '.join(sorted(_FIELDS))}")
    if "value" not in found and "value_base64" not in found:
        raise LineError("no value (null for a tombstone)")
    return RecordLine(
        _bytes(found, "key"),
        _bytes(found, "value"),
        _headers(found.get("headers")),
        # Kafka's -1: the record has none.
        None if found.get("timestamp") == -1 else _number(found, "timestamp", MAX_LONG),
        _number(found, "partition", MAX_ID),
    )


def _bytes(found: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in found:
        return _from_base64(found[f"{name}_base64"], f"{name}_base64")
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value, name)
    # An object or a number is what its JSON is: nobody has to quote it.
    return _encoded(json.dumps(value, separators=(",", ":"), ensure_ascii=False), name)


def _no_number(name: str) -> float:
    raise LineError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise LineError(f"{text[:80]} is too large a number")
    return number


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LineError(f"{name} has half a surrogate pair, which is no text") from None


def _from_base64(value: object, name: str) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        raise LineError(f"{name} is not base64") from None


def _number(found: dict[str, Any], name: str, high: int) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= high:
        raise LineError(f"{name} is not a number from 0 to {high}")
    return value


def _headers(found: object) -> tuple[tuple[str, bytes | None], ...]:
    if found is None:
        return ()
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list):
        raise LineError("headers are neither an object nor a list of pairs")
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise LineError("a header is not a pair of name and value")
        name, value = pair
        if isinstance(value, dict) and value.keys() == {"base64"}:
            headers.append((name, _from_base64(value["base64"], "a header")))
        elif value is None or isinstance(value, str):
            headers.append((name, None if value is None else _encoded(value, "a header")))
        else:
            raise LineError(f"header {name!r} is neither text nor null")
    return tuple(headers)
