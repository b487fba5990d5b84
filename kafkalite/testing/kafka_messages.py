"""Random requests of the Kafka protocol that are well formed, and as sensible as names and types allow: for fuzzing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kafkalite.protocol.schema import Field, Schema, Struct
from kafkalite.protocol.structs import classes
from kafkalite.record.builder import RecordBatchBuilder

#: The first three are good names; a fuzzer may create them.
TOPICS = ("fuzz-0", "fuzz-1", "fuzz-2", "fuzz-3", "", "no such", "a" * 250)
_NAMES = ("g-1", "g-2", "txn-1", "txn-2", "member", "", "consumer", "range")
_COUNTS = ("num_partitions", "count", "replication_factor")
_INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
_TOPIC_FIELDS = ("topic", "name", "topic_name", "topic_names", "resource_name")
_KEYS = ("cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas", "no.such.key")
_WAITS_MS = (-1, 0, 1, 50, 2_000)


class MessageMaker:
    """Messages of one kind and version.

    Args:
        waits: what fields in milliseconds are drawn from.
    """

    def __init__(self, source: random.Random, schema: Schema, version: int, waits: Sequence[int] = _WAITS_MS) -> None:
        self._source = source
        self._waits = waits
        self._version = version
        self._classes = classes(schema.name)
        self._schema = schema

    def message(self) -> Any:
        return self._struct(self._schema.root)

    def _struct(self, owner: Struct) -> Any:
        live = [field for field in owner.fields if self._version in field.versions]
        return self._classes[owner.name](**{field.name: self._value(field, owner.name) for field in live})

    def _value(self, field: Field, owner: str) -> Any:
        if self._version in field.nullable and self._source.random() < 0.15:
            return None
        if field.is_array:
            return [self._one(field, owner) for _ in range(self._source.choice((0, 1, 1, 2, 5)))]
        return self._one(field, owner)

    def _one(self, field: Field, owner: str) -> Any:
        source = self._source
        if field.struct is not None:
            return self._struct(field.struct)
        match field.type:
            case "bool":
                return source.random() < 0.5
            case "string":
                if "onfig" in owner and field.name in ("name", "value"):
                    return source.choice(_KEYS if field.name == "name" else ("1", "100000", "delete", "x", ""))
                return source.choice(TOPICS if field.name in _TOPIC_FIELDS else _NAMES)
            case "bytes":
                return source.randbytes(source.choice((0, 4, 300)))
            case "records":
                return self._records()
            case "uuid":
                return source.choice((bytes(16), source.randbytes(16)))
            case "float64":
                return source.uniform(-1e9, 1e9)
            case kind:
                return self._number(field.name, _INTEGERS[kind])

    def _number(self, name: str, bits: int) -> int:
        source = self._source
        if name in _COUNTS:
            number = source.choice((-1, 1, 2, 3, 4, 2**63))
        elif name.endswith("_ms"):
            number = source.choice(self._waits)
        elif source.random() < 0.1:
            number = source.choice((2**63, -(2**63)))
        else:
            number = source.choice((-1, 0, 0, 1, 2, 3, source.randrange(1000)))
        lowest, highest = 0 if bits in (16, 32) else -(1 << bits), (1 << bits) - 1
        return max(lowest, min(number, highest))

    def _records(self) -> bytes:
        source = self._source
        if source.random() < 0.2:
            return source.randbytes(source.choice((0, 10, 61, 500)))
        is_producer = source.random() < 0.5
        builder = RecordBatchBuilder(
            producer_id=source.randrange(5) if is_producer else -1,
            producer_epoch=source.randrange(2) if is_producer else -1,
            base_sequence=source.randrange(3) if is_producer else -1,
            transactional=is_producer and source.random() < 0.5,
        )
        for _ in range(source.choice((1, 3))):
            builder.append(source.randbytes(4), source.randbytes(source.choice((0, 20, 5_000))), (), 1_000)
        batch = bytearray(builder.build())
        if source.random() < 0.2:
            batch[source.randrange(len(batch))] ^= 1 << source.randrange(8)
        return bytes(batch)
