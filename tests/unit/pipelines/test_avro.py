"""Avro values of an older schema, read as the newest one has them: logical types that came, changed or went. Without Spark."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro")

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from kafkalite_pipelines.decoding.avro import AvroReader, columns, parsed
from kafkalite_pipelines.decoding.registry import RegistryClient, RegistrySchema
from kafkalite_pipelines.decoding.types import arrow_type

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
ID = {"type": "string", "logicalType": "uuid"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
AT = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
NUMBER = 1_700_000_000_123
UUID = "123e4567-e89b-12d3-a456-426614174000"


class Registry(RegistryClient):
    """One schema, without a network."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema(self, schema_id: int) -> RegistrySchema:
        return RegistrySchema(schema_id, "AVRO", self._text)


def read(writer: Any, reader: Any, value: Any) -> tuple[str, Any]:
    """The column's type, and the value as Arrow has it."""
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": writer}]}
    schemaless_writer(out, parse_schema(json.loads(json.dumps(schema))), {"a": value})
    newest = RegistrySchema(2, "AVRO", json.dumps(schema | {"fields": [{"name": "a", "type": reader}]}))
    [kind] = columns(parsed(newest)).values()
    found = AvroReader(Registry(json.dumps(schema)), newest).read(b"\0\0\0\0\1" + out.getvalue())
    return kind, pa.array([found["a"]], arrow_type(kind)).to_pylist()[0]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "kind", "found"),
    [
        ("long", MILLIS, NUMBER, "timestamp", AT),
        ("int", MILLIS, 1_000, "timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("long", MICROS, NUMBER * 1000, "timestamp", AT),
        ("long", MILLIS | {"logicalType": "local-timestamp-millis"}, NUMBER, "timestamp_ntz", AT.replace(tzinfo=None)),
        (MILLIS, "long", NUMBER, "bigint", NUMBER),
        (MICROS, "long", NUMBER, "bigint", NUMBER),
        (MILLIS, MICROS, NUMBER, "timestamp", AT),
        (MICROS, MILLIS, NUMBER * 1000, "timestamp", AT),
        ("int", DAY, 19_000, "date", date(2022, 1, 8)),
        (DAY, "int", 19_000, "int", 19_000),
        ("int", TIME, 1_234, "string", "00:00:01.234000"),
        (TIME, "long", 1_234, "bigint", 1_234),
        (ID, "string", UUID, "string", UUID),
        ("string", ID, UUID, "string", UUID),
        ("bytes", PRICE, b"\xff\x83", "decimal(10,2)", Decimal("-1.25")),
        (PRICE, "bytes", Decimal("-1.25"), "binary", b"\x83"),
        (PRICE | {"precision": 8}, PRICE, Decimal("1.25"), "decimal(10,2)", Decimal("1.25")),
        (["null", "long"], ["null", MILLIS], NUMBER, "timestamp", AT),
        (["null", MILLIS], ["null", "long"], NUMBER, "bigint", NUMBER),
        (["null", MILLIS], ["null", MILLIS], None, "timestamp", None),
        ({"type": "array", "items": "long"}, {"type": "array", "items": MILLIS}, [NUMBER], "array<timestamp>", [AT]),
        (
            {"type": "map", "values": "long"},
            {"type": "map", "values": MILLIS},
            {"x": NUMBER},
            "map<string,timestamp>",
            [("x", AT)],
        ),
        ("string", {"type": "string", "logicalType": "timestamp-millis"}, "x", "string", "x"),
        ("null", "null", None, "string", None),
    ],
)
def test_a_logical_type_is_the_reader_s(writer: Any, reader: Any, value: Any, kind: str, found: Any) -> None:
    """A long that became a timestamp-millis was a thousandth of its time, without a word."""
    assert read(writer, reader, value) == (kind, found)


@pytest.mark.parametrize(
    ("writer", "reader", "value"), [("long", MILLIS, 2**62), ("int", TIME, 86_400_000), ("int", TIME, -1)]
)
def test_what_is_no_time_is_an_error_of_its_record(writer: Any, reader: Any, value: int) -> None:
    with pytest.raises(ValueError, match=r"^is not Avro of schema 1: ValueError .* no time"):
        read(writer, reader, value)
