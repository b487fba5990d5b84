"""How a znode's JSON is decoded strictly and encoded compactly: the grammar that all `*_znodes` modules share. Pure.

A person may write any bytes with a ZooKeeper shell. Every decoder raises ZnodeError for what it cannot use, and
nothing else: the caller reports it and leaves the znode alone. Unknown fields are skipped (newer writers).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from kafkalite.errors import KafkaliteError
from kafkalite.model import BrokerId, Replicas, TopicPartition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ZnodeError(KafkaliteError):
    """The znode at `path` does not hold what belongs there; `reason` is one line."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'znode'}: {reason}")
        self.path = path
        self.reason = reason


class JsonReader:
    """One JSON object of a znode: typed access that raises ZnodeError."""

    def __init__(self, path: str, value: object, where: str = "") -> None:
        if not isinstance(value, dict):
            raise ZnodeError(path, f"{where.rstrip('.') or 'value'}: not a JSON object")
        self.path = path
        self.where = where
        self.fields: dict[str, object] = value

    def fail(self, name: str, reason: str) -> ZnodeError:
        return ZnodeError(self.path, f"{self.where}{name}: {reason}")

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.fields.get(name, default)
        return integer(value, low, high, lambda reason: self.fail(name, reason))

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.fail(name, "not a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def items(self, name: str) -> list[object]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self.fail(name, "not a list")
        return value

    def integers(self, name: str) -> list[int]:
        return [integer(each, 0, INT32_MAX, lambda reason: self.fail(name, reason)) for each in self.items(name)]

    def version(self, *known: int) -> int:
        version = self.integer("version", 1, INT32_MAX)
        if known and version not in known:
            raise self.fail("version", f"{version} is not one of {', '.join(map(str, known))}")
        return version

    def replicas(self, name: str) -> Replicas:
        return replica_list(self.fields.get(name), lambda reason: self.fail(name, reason))

    def replica_map(self, name: str, *, required: bool, empty_lists: bool = False) -> dict[int, Replicas]:
        value = self.fields.get(name, None if required else {})
        if not isinstance(value, dict):
            raise self.fail(name, "not a JSON object")
        result: dict[int, Replicas] = {}
        for key, replicas in value.items():
            if not (key.isascii() and key.isdigit() and len(key) <= 10) or str(int(key)) != key or int(key) > INT32_MAX:
                raise self.fail(name, f"{key!r} is not a partition")
            if empty_lists and replicas == []:
                continue
            result[int(key)] = replica_list(replicas, partial(self.fail, f"{name}.{key}"))
        return dict(sorted(result.items()))

    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_name(), self.integer("partition", 0, INT32_MAX))

    def topic_name(self) -> str:
        name = self.text("topic")
        if not name:
            raise self.fail("topic", "empty")
        return name


def integer(value: object, low: int, high: int, fail: Callable[[str], ZnodeError]) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise fail("not an integer")
    if not low <= value <= high:
        raise fail(f"not within {low}..{high}")
    return value


def replica_list(value: object, fail: Callable[[str], ZnodeError]) -> Replicas:
    if not isinstance(value, list) or not value:
        raise fail("not a list of brokers")
    brokers = tuple(BrokerId(integer(broker, 0, INT32_MAX, fail)) for broker in value)
    if len(set(brokers)) != len(brokers):
        raise fail("a broker is there twice")
    return brokers


def parse(data: bytes, path: str) -> object:
    try:
        value: object = json.loads(data.decode())
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text: no path could hold it
        return value
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a number of absurd length, nested too deep
        raise ZnodeError(path, f"not JSON: {str(error)[:80]}") from None


def read(data: bytes, path: str) -> JsonReader:
    return JsonReader(path, parse(data, path))


def write(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def timestamp(reader: JsonReader) -> int | None:
    """When the znode was written (wall ms), as its `timestamp` says; None if the writer left it out."""
    value = reader.fields.get("timestamp")
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return integer(value, 0, INT64_MAX, lambda reason: reader.fail("timestamp", reason))
