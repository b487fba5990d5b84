"""Fields inside of objects: the types that read them, and the type with more of them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from kafkalite_pipelines.decoding.inner_fields import as_column, fields_of, grown, maps_at


def struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


LONG, TEXT = LongType(), StringType()


def test_how_many_fields() -> None:
    assert [fields_of(kind) for kind in (LONG, ArrayType(TEXT), struct(), MapType(TEXT, struct(a=LONG, b=LONG)))] == [
        1,
        1,
        0,
        1,
    ]
    assert fields_of(struct(a=LONG, b=ArrayType(struct(c=TEXT, d=struct(e=LONG, f=TEXT))))) == 4


def test_objects_of_a_level_as_maps() -> None:
    row = struct(a=LONG, b=ArrayType(ArrayType(struct(c=TEXT, d=struct(e=LONG)))), f=MapType(TEXT, struct(g=LONG)))
    maps = "map<string,string>"
    assert maps_at(row, 0) == maps
    assert maps_at(row, 1) == f"struct<`b`:array<array<{maps}>>>"
    assert maps_at(row, 2) == f"struct<`b`:array<array<struct<`d`:{maps}>>>>"
    assert maps_at(row, 3) is None and maps_at(struct(a=LONG), 1) is None


def test_the_type_with_what_is_new() -> None:
    known = struct(a=LONG, b=ArrayType(struct(c=TEXT)), d=TEXT)
    found = struct(e=LONG, b=ArrayType(struct(f=LONG, c=LONG)), a=TEXT, D=LONG)
    assert grown(known, found) == struct(a=LONG, b=ArrayType(struct(c=TEXT, f=LONG)), d=TEXT, e=LONG)
    assert grown(known, TEXT) == known


def test_what_no_column_can_have() -> None:
    twice = struct(A=LONG, a=TEXT, b=ArrayType(struct(x=struct(y=LONG, Y=TEXT))))
    assert as_column(twice) == struct(A=LONG, b=ArrayType(struct(x=struct(y=LONG))))
    assert grown(struct(z=LONG), struct(q=twice)) == struct(z=LONG, q=as_column(twice))


def test_objects_that_are_too_deep_are_text() -> None:
    def nested(levels: int, inner: Any) -> Any:
        return inner if levels == 0 else struct(x=ArrayType(nested(levels - 2, inner)))

    assert as_column(nested(14, LONG)) == nested(14, LONG)
    assert as_column(nested(400, LONG)) == nested(14, struct(x=TEXT))
    grew = grown(struct(x=ArrayType(struct(y=LONG))), nested(100, LONG))
    assert grew == struct(x=ArrayType(struct(y=LONG, x=ArrayType(nested(10, struct(x=TEXT))))))
