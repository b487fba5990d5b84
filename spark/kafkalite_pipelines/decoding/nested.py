"""Predicates over values in any nesting."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Of a value and its Spark type, which is not nested. None: it is true of no value of the type.
Predicate = Callable[["Column", Any], "Column | None"]


def anywhere(value: Column, kind: Any, predicate: Predicate) -> Column | None:
    """Whether the predicate is true of `value` (of Spark's type `kind`) or of anything in it. None: it cannot be."""
    from pyspark.sql import functions as f

    match type(kind).__name__:
        case "ArrayType":
            return _any(value, kind.elementType, predicate)
        case "MapType":
            keys, values = f.map_keys(value), f.map_values(value)
            parts = [_any(keys, kind.keyType, predicate), _any(values, kind.valueType, predicate)]
        case "StructType":
            parts = [anywhere(value[field.name], field.dataType, predicate) for field in kind.fields]
        case _:
            return predicate(value, kind)
    found = [part for part in parts if part is not None]
    return functools.reduce(operator.or_, found) if found else None


def _any(values: Column, kind: Any, predicate: Predicate) -> Column | None:
    """The same of the elements of an array."""
    from pyspark.sql import functions as f

    if anywhere(f.get(values, 0), kind, predicate) is None:
        return None
    return f.exists(values, lambda value: anywhere(value, kind, predicate))
