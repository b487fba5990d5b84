"""Fields inside of objects: what Spark's text for variants says, which are new, the type with them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from kafkalite_pipelines.decoding.inner_fields import fields_of_variants, grown, has_new


def struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


LONG, TEXT = LongType(), StringType()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("BIGINT", {}),
        ("VOID", {}),
        ("", {}),
        ("OBJECT<>", {}),
        ("OBJECT<a: BIGINT, b: DECIMAL(3,1)>", {"a": {}, "b": {}}),
        ("OBJECT<a: OBJECT<b: STRING, c: ARRAY<BIGINT>>, d: VARIANT>", {"a": {"b": {}, "c": {}}, "d": {}}),
        ("ARRAY<OBJECT<a: ARRAY<ARRAY<OBJECT<b: VOID>>>, z: DOUBLE>>", {"a": {"b": {}}, "z": {}}),
        ("OBJECT<`a, b`: BIGINT, `c``d>`: OBJECT<`: `: STRING>, e: BOOLEAN>", {"a, b": {}, "c`d>": {": ": {}}, "e": {}}),
        ("OBJECT<a: " * 3000, {}),
    ],
)  # fmt: skip
def test_fields_of_variants(text: str, wanted: object) -> None:
    assert fields_of_variants(text) == wanted


def test_what_is_new_and_the_type_with_it() -> None:
    known = struct(a=LONG, b=ArrayType(struct(c=TEXT)), d=TEXT)
    for text in (
        "OBJECT<a: BIGINT>",
        "OBJECT<A: BIGINT, b: BIGINT, d: OBJECT<x: BIGINT>>",
        "BIGINT",
        "OBJECT<``: BIGINT>",
    ):
        assert not has_new(fields_of_variants(text), known), text
    for text in ("OBJECT<e: BIGINT>", "OBJECT<b: ARRAY<OBJECT<e: BIGINT>>>"):
        assert has_new(fields_of_variants(text), known), text
    found = struct(e=LONG, b=ArrayType(struct(f=LONG, c=LONG)), a=TEXT, D=LONG)
    assert grown(known, found) == struct(a=LONG, b=ArrayType(struct(c=TEXT, f=LONG)), d=TEXT, e=LONG)
    assert grown(known, TEXT) == known
