"""The type of a Delta column that takes the table's values and a batch's: wider numbers, objects with more fields. Pure.

Arrow types, as Spark hands them over: `plain` gives those of deltalake the same form.
"""

from __future__ import annotations

from typing import Any


def merged(present: Any, rows: Any) -> Any | None:
    """The type for the values of both, equal to `plain(present)` if the table's type takes the rows'. None: there is none.

    Fields of objects are merged one by one, also in arrays and maps; those that only the rows have come last.
    """
    import pyarrow as pa

    present, rows = plain(present), plain(rows)
    if present == rows or _goes_into(rows, present):
        return present
    if _goes_into(present, rows):
        return rows
    if pa.types.is_struct(present) and pa.types.is_struct(rows):
        return _merged_fields(present, rows)
    if pa.types.is_list(present) and pa.types.is_list(rows):
        element = merged(present.value_type, rows.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(present) and pa.types.is_map(rows):
        key, value = merged(present.key_type, rows.key_type), merged(present.item_type, rows.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    return None


def _merged_fields(present: Any, rows: Any) -> Any | None:
    import pyarrow as pa

    kinds = {field.name: field.type for field in present}
    for field in rows:
        known = kinds.get(field.name)
        kind = field.type if known is None else merged(known, field.type)
        if kind is None:
            return None
        kinds[field.name] = kind
    return pa.struct(list(kinds.items()))


def has_only_more_fields(present: Any, wanted: Any) -> bool:
    """Whether a type differs from the present one by fields of objects alone: files need not be written again."""
    import pyarrow as pa

    if present == wanted:
        return True
    if pa.types.is_struct(present):
        return all(has_only_more_fields(field.type, wanted.field(field.name).type) for field in present)
    return bool(pa.types.is_list(present)) and has_only_more_fields(present.value_type, wanted.value_type)


def plain(kind: Any) -> Any:
    """The type as Spark hands it over: 32-bit lengths, every field may be null."""
    import pyarrow as pa

    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return kind


def shown(kind: Any) -> str:
    """The type in words: Delta's name, or that of an object, array or map with all that is in it."""
    import pyarrow as pa
    from deltalake import Schema

    if pa.types.is_nested(kind):
        return str(kind)
    [field] = Schema.from_arrow(pa.schema([("column", kind)])).fields
    return str(getattr(field.type, "type", kind))


def _goes_into(kind: Any, wider: Any) -> bool:
    """Whether values of a number's type go into a column of another one."""
    import pyarrow as pa

    if pa.types.is_signed_integer(kind):
        if pa.types.is_float64(wider):
            return bool(kind.bit_width <= 32)
        return bool(pa.types.is_signed_integer(wider) and kind.bit_width <= wider.bit_width)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wider):
        digits, more = kind.precision - kind.scale, wider.precision - wider.scale
        return bool(kind.scale <= wider.scale and digits <= more)
    return bool(pa.types.is_float32(kind) and pa.types.is_float64(wider))
