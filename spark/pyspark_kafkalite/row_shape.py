"""Which columns the sink takes, of which types. Spark's planning processes need this, and no Arrow.

Source: Spark's KafkaWriter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from pyspark_kafkalite.columns import HEADERS_SPARK
from pyspark_kafkalite.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_SPARK.simpleString(),),
}


@dataclass(frozen=True, slots=True)
class RowShape:
    """Positions of the sink's columns in the rows, by name; columns that the sink does not know are left aside."""

    positions: Mapping[str, int]


def row_shape(schema: StructType, topic: str | None) -> RowShape:
    """Check what a query wants to write.

    Raises:
        OptionError: no value, no topic, a type that cannot be written.
    """
    positions: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        name = column.name.lower()
        if name not in _ACCEPTED:
            continue
        if name in positions:
            raise OptionError(f"there are two columns called {name}")
        kind = column.dataType.simpleString()
        if kind not in _ACCEPTED[name]:
            raise OptionError(
                f"column {column.name} must be {' or '.join(_ACCEPTED[name])} to be written, it is {kind}"
            )
        positions[name] = position
    if "value" not in positions:
        raise OptionError(
            "there is no column value (string or binary); name the one to write, as in selectExpr('... AS value')"
        )
    if topic is None and "topic" not in positions:
        raise OptionError("no topic to write to: give the option topic or a column topic")
    return RowShape(positions)
