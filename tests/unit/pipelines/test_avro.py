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

from kafkalite_pipelines import PipelineError
from kafkalite_pipelines.decoding.avro import AvroReader, columns, parsed
from kafkalite_pipelines.decoding.registry import RegistryClient, RegistrySchema
from kafkalite_pipelines.decoding.types import arrow_type

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
ID = {"type": "string", "logicalType": "uuid"}
BINARY_ID = {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"}
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
    return read_field([field("a", writer)], field("a", reader), {"a": value})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind} | more


def written(fields: list[Any], value: Any) -> tuple[dict[str, Any], bytes]:
    """The schema, and the value with the id 1 in front."""
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": fields}
    schemaless_writer(out, parse_schema(json.loads(json.dumps(schema))), value)
    return schema, b"\0\0\0\0\1" + out.getvalue()


def read_field(fields: list[Any], reader: Any, value: Any) -> tuple[str, Any]:
    schema, content = written(fields, value)
    newest = RegistrySchema(2, "AVRO", json.dumps(schema | {"fields": [reader]}))
    [kind] = columns(parsed(newest)).values()
    found = AvroReader(Registry(json.dumps(schema)), newest).read(content)
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
        (BINARY_ID, BINARY_ID, bytes.fromhex(UUID.replace("-", "")), "string", UUID),
        (MILLIS, "double", NUMBER, "double", float(NUMBER)),
        (DAY, "float", 19_000, "float", 19_000.0),
    ],
)
def test_a_logical_type_is_the_reader_s(writer: Any, reader: Any, value: Any, kind: str, found: Any) -> None:
    """A long that became a timestamp-millis was a thousandth of its time, and a UUID of 16 bytes was the text b'\\x12…', without a word."""
    assert read(writer, reader, value) == (kind, found)


@pytest.mark.parametrize(
    ("writer", "reader", "value"), [("long", MILLIS, 2**62), ("int", TIME, 86_400_000), ("int", TIME, -1)]
)
def test_what_is_no_time_is_an_error_of_its_record(writer: Any, reader: Any, value: int) -> None:
    with pytest.raises(ValueError, match=r"^is not Avro of schema 1: ValueError .* no time"):
        read(writer, reader, value)


FIXED_PRICE = {"type": "fixed", "name": "price", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}


@pytest.mark.parametrize(
    ("reader", "default", "found"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        ({"type": "fixed", "name": "f", "size": 2}, "\u0001\u00fe", b"\1\xfe"),
        (PRICE, "\u0000", Decimal("0.00")),
        (PRICE, "\u00ff", Decimal("-0.01")),
        (FIXED_PRICE, "\u0001\u0002", Decimal("25.8")),
        ({"type": "array", "items": PRICE}, ["\u0005"], [Decimal("0.05")]),
        ({"type": "map", "values": "bytes"}, {"x": "\u00ff"}, [("x", b"\xff")]),
        (
            {
                "type": "record",
                "name": "i",
                "fields": [field("x", "int", default=3), field("y", "bytes", default="\u00fe")],
            },
            {},
            {"x": 3, "y": b"\xfe"},
        ),
        (BINARY_ID, "\u0012" * 16, "12121212-1212-1212-1212-121212121212"),
        (DAY, 19_000, date(2022, 1, 8)),
        (MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("double", 1, 1.0),
    ],
)
def test_a_new_field_has_its_default_in_older_records(reader: Any, default: Any, found: Any) -> None:
    """No record of an older schema could be read after a version with a default of bytes, or of an object in short."""
    _, value = read_field([field("n", "int")], field("a", reader, default=default), {"n": 1})
    assert value == found


def test_a_default_within_an_object() -> None:
    inner = {"type": "record", "name": "i", "fields": [field("x", "int")]}
    more = {"type": "record", "name": "i", "fields": [field("x", "long"), field("y", "bytes", default="\u00ff")]}
    assert read(["null", inner], ["null", more], {"x": 1})[1] == {"x": 1, "y": b"\xff"}


def test_a_value_that_is_longer_or_shorter_than_its_schema_says() -> None:
    """What was behind a value was passed over: a record with the id of another schema became a row with a part of it."""
    schema, content = written([field("n", "int"), field("name", "string")], {"n": 1, "name": "x"})
    text = json.dumps(schema)
    reader = AvroReader(Registry(text), RegistrySchema(2, "AVRO", text))
    with pytest.raises(ValueError, match=r"^has 3 more bytes than a value of schema 1"):
        reader.read(content + b"abc")
    for much in (5, 6, 7):
        with pytest.raises(ValueError, match=r"^is not Avro of schema 1: it ends within a value$"):
            reader.read(content[:much])


def test_a_decimal_that_no_column_can_have() -> None:
    schema = {"type": "record", "name": "r", "fields": [field("a", PRICE | {"precision": 40})]}
    with pytest.raises(PipelineError, match=r"^a is a decimal of 40 digits, and a column has at most 38"):
        columns(parsed(RegistrySchema(2, "AVRO", json.dumps(schema))))
