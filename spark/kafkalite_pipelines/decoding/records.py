"""From records to rows: a decoded DataFrame has the columns of the data, the hidden ones, and why a record did not become a row.

Beside these it has the record itself (`_key`, `_value`, `_headers`), for the dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite_pipelines.decoding.inner_fields import NEW, RESPELT, as_column, strange_names
from kafkalite_pipelines.decoding.misread import misread
from kafkalite_pipelines.decoding.registry import HEADER_BYTES, NO_ID
from kafkalite_pipelines.decoding.times import outside_of_years
from kafkalite_pipelines.decoding.types import ddl, ddl_of, quoted
from kafkalite_pipelines.definition import DELETED, OWN_COLUMNS, OWN_PREFIX, Decode, PipelineError, is_own

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

#: Null if the record became a row.
ERROR = "_error"
RECORD = ("_key", "_value", "_headers")
#: Names in the record that are no columns, where columns are found in the records.
STRANGE = "_strange"
BODY, _CORRUPT, _EVENT = "_body", "_corrupt_record", "_event"
#: While no column is known: Spark's from_json wants one.
NO_COLUMN = "_none"
_BINARY_KEY = "has a key with a zero byte in front, as numbers or a schema's id of a serializer: it must be text"
#: In the types of columns that have objects.
OBJECT = "struct<"
#: A deeper record is an error: some plans of Spark cannot have its type.
_OPTIONS = {"maxNestingDepth": "100"}


class Decoder(Protocol):
    """One format."""

    def decode(self, records: DataFrame) -> DataFrame:
        """`records` has the hidden columns and RECORD; adds BODY (a struct, null if it failed or there is no value),
        and ERROR."""
        ...

    def schemas(self) -> Mapping[str, int]:
        """The ids of the schemas in the registry that `decode` would read with now, by topic. None without a registry."""
        ...


def decoded(
    records: DataFrame, decode: Decode, decoder: Decoder, *, keyed: bool, key: tuple[str, ...] = ()
) -> DataFrame:
    """All records, decoded or with an error. `keyed`: a record without a value deletes its key. `key`: columns that are the
    key of a table, and must be there also then."""
    from pyspark.sql import functions as f

    headers = f.col("headers") if "headers" in records.columns else f.lit(None)
    # producers that count microseconds are in the year 50,000: no table can have that, and a watermark would never come back
    stamp = f.col("timestamp")
    outside = outside_of_years(stamp, records.schema["timestamp"].dataType)
    assert outside is not None, "it is a timestamp"
    named = records.select(
        f.col("topic").alias("_topic"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
        f.when(~outside, stamp).alias("_timestamp"),
        f.col("key").alias("_key"),
        f.col("value").alias("_value"),
        headers.alias("_headers"),
    )
    if decode.format == "raw":
        deleted = f.col("_value").isNull().alias(DELETED)
        return named.select(
            "*", f.col("_key").alias("key"), f.col("_value").alias("value"), _as_headers(records), deleted, _no_error()
        )
    rows = decoder.decode(named)
    return _flattened(rows, decode, key, keyed=keyed)


def _as_headers(records: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return (f.col("_headers") if "headers" in records.columns else f.lit(None)).alias("headers")


def _no_error() -> Column:
    from pyspark.sql import functions as f

    return f.lit(None).cast("string").alias(ERROR)


def _flattened(rows: DataFrame, decode: Decode, key: tuple[str, ...], *, keyed: bool) -> DataFrame:
    """The struct's fields as columns; Debezium's envelope opened; what must not be null checked."""
    from pyspark.sql import functions as f

    body, deleted, error = f.col(BODY), f.col("_value").isNull(), f.col(ERROR)
    inner = rows.schema[BODY].dataType
    names = inner.names
    if decode.debezium:
        envelope = f.col(f"{BODY}.payload") if "payload" in names else body
        inner = inner["payload"].dataType if "payload" in names else inner
        if not {"before", "after", "op"} <= set(inner.names):
            raise PipelineError("decode.debezium: the records have no before, after and op")
        operation = envelope["op"]
        body = f.when(operation == "d", envelope["before"]).otherwise(envelope["after"])
        deleted = operation == "d"
        # Debezium follows each deletion with a record without a value, for compaction: the row is gone already
        rows = rows.where(f.col("_value").isNotNull())
        error = f.coalesce(
            error,
            f.when(operation.isNull(), f.lit("is no change event: there is no op")),
            f.when(body.isNull(), f.lit("is a change event without the row: no after, or no before for a deletion")),
        )
        inner = inner["after"].dataType
        names = inner.names
    columns = {name: (body[name], inner[name].dataType) for name in names}
    if decode.key_column is not None:
        kind = _key_type(decode, inner)
        text = f.col("_key").cast("string")
        given = {decode.key_column: (text.try_cast(ddl_of(kind)), kind)}
        columns = given | columns | given  # it is the first
        # as a number it would be what stands behind the zeros: 53 of Kafka's LongSerializer is the text "5"
        is_binary = f.substring(f.col("_key"), 1, 1) == f.lit(b"\0")
        error = f.coalesce(error, f.when(is_binary, f.lit(_BINARY_KEY)))
        if ddl_of(kind) == "string":
            error = f.coalesce(error, f.when(~f.is_valid_utf8(text), f.lit("has a key that is not UTF-8 text")))
        else:
            is_none = text.isNotNull() & given[decode.key_column][0].isNull()
            error = f.coalesce(error, f.when(is_none, f.lit(f"has a key that is no {ddl_of(kind)}")))
    for name, (column, kind) in columns.items():
        if (outside := outside_of_years(column, kind)) is not None:
            reason = f.lit(f"has a time that is not in the years 1 to 9999: {name}")
            error = f.coalesce(error, f.when(outside, reason))
    if not keyed:
        error = f.coalesce(error, f.when(f.col("_value").isNull(), f.lit("has no value")))
        if decode.debezium:
            error = f.coalesce(error, f.when(deleted, f.lit("deletes a row: this needs a sink with a key")))
    for name in decode.required:
        if name in names:
            absent = body[name].isNull()
        elif STRANGE in rows.columns:  # not found yet: a record that has it is the first
            absent = ~f.array_contains(STRANGE, f"{NEW}{name}")
        else:  # the registry's newest schema has left it out
            absent = f.lit(True)
        missing = f.when(~deleted & absent, f.lit(f"column {name} is missing"))
        error = f.coalesce(error, missing)
    for name in [name for name in key if name in names or name == decode.key_column]:
        error = f.coalesce(error, f.when(columns[name][0].isNull(), f.lit(f"has no key: {name} is missing")))
    hidden = [f.col(name) for name in ("_topic", "_partition", "_offset", "_timestamp", *RECORD)]
    hidden += [f.col(STRANGE)] if STRANGE in rows.columns else []
    named = [column.alias(name) for name, (column, _) in columns.items()]
    return rows.select(*named, *hidden, f.coalesce(deleted, f.lit(False)).alias(DELETED), error.alias(ERROR))


def _key_type(decode: Decode, row: StructType) -> DataType:
    """Of the column that has the record's key: the one of the schema, or text."""
    from pyspark.sql.types import AtomicType, DataType, StringType

    assert decode.key_column is not None
    if decode.key_column in decode.columns:
        return DataType.fromDDL(decode.columns[decode.key_column])
    kind = row[decode.key_column].dataType if decode.key_column in row.names else None
    return kind if isinstance(kind, AtomicType) else StringType()


class JsonDecoder:
    """JSON objects with a known schema. A value that does not fit its column's type is an error of its record."""

    def __init__(
        self, columns: Mapping[str, str], *, debezium: bool = False, framed: bool = False, found: bool = False
    ) -> None:
        """`framed`: five bytes are in front of the text, a zero and the id of a schema. `found`: the columns are those of the
        records, so a field that can be none is an error of its record."""
        self._framed = framed
        self._found = found
        self.columns = dict(columns)
        row = ddl(self.columns)
        if debezium:
            event = f"before struct<{_inner(self.columns)}>, after struct<{_inner(self.columns)}>, op string"
            # with "schemas.enable" the event is in a field of its own
            self._ddl = f"{event}, payload struct<{_inner_event(self.columns)}>"
        else:
            self._ddl = row
        self._debezium = debezium

    def decode(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import DataType

        value = f.col("_value")
        text = f.substring(value, HEADER_BYTES + 1, 2**31 - 1) if self._framed else value
        parsed = f.from_json(
            text.cast("string"),
            f"{self._ddl}, {_CORRUPT} string",
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_OPTIONS},
        )
        rows = records.withColumn(_EVENT, parsed)
        wrong = f.col("_value").isNotNull() & (f.col(_EVENT).isNull() | f.col(f"{_EVENT}.{_CORRUPT}").isNotNull())
        error = f.when(wrong, _why_wrong(text.cast("string"), [] if self._debezium else list(self.columns)))
        if self._framed:
            is_framed = (f.length(value) >= HEADER_BYTES) & (f.substring(value, 1, 1) == f.lit(b"\0"))
            error = f.coalesce(f.when(value.isNotNull() & ~is_framed, f.lit(NO_ID)), error)
        error = f.coalesce(f.when(~f.is_valid_utf8(text.cast("string")), f.lit("is not UTF-8 text")), error)
        behind = f.when(_is_more_than_one(text.cast("string")), f.lit("has more text after its JSON object"))
        error = f.coalesce(error, behind, _has_half_a_character(text.cast("string")))
        row = DataType.fromDDL(self._ddl)
        if self._found:
            rows = rows.withColumn(STRANGE, strange_names(text.cast("string"), row))
        if (wrong := misread(text.cast("string"), row, found=self._found)) is not None:
            error = f.coalesce(error, wrong)
        if self._found:
            error = f.coalesce(error, _differs_in_case())
        if self._debezium:
            nested = f.col(f"{_EVENT}.payload")
            fields = [f.coalesce(nested[name], f.col(_EVENT)[name]).alias(name) for name in ("before", "after", "op")]
            body = f.struct(*fields)
        else:
            body = f.struct(*[f.col(_EVENT)[name].alias(name) for name in self.columns])
        return rows.withColumn(BODY, body).withColumn(ERROR, error.cast("string"))

    def schemas(self) -> Mapping[str, int]:
        return {}


def _why_wrong(text: Column, names: list[str]) -> Column:
    """What is wrong with a text that from_json did not take: the first column that it left empty and the text does not, if that can be said."""
    from pyspark.sql import functions as f

    def why(given: Column) -> Column:
        misfits = [
            f.when(f.col(_EVENT)[name].isNull() & f.try_element_at(given, f.lit(name)).isNotNull(), f.lit(f": {name}"))
            for name in names
        ]
        return f.when(given.isNull(), "is not a JSON object").otherwise(
            f.concat(f.lit("has a value that does not fit the type of its column"), f.coalesce(*misfits, f.lit("")))
        )

    # in an array of one, so that the text is read once more, not once more for each column
    read_again = f.array(f.from_json(text, "map<string,string>", _OPTIONS))
    return f.get(f.transform(read_again, why), 0)


def unknown_fields() -> Column:
    """How many decoded records that became rows have fields that could be columns, and are none yet."""
    from pyspark.sql import functions as f

    own = [f"{NEW}{name}" for name in sorted(OWN_COLUMNS)]

    def is_new(name: Column) -> Column:
        taken = f.lower(name).isin(own) | f.startswith(f.lower(name), f.lit(f"{NEW}{OWN_PREFIX}"))
        return f.startswith(name, f.lit(NEW)) & ~taken

    return f.count_if(f.col(ERROR).isNull() & f.exists(STRANGE, is_new))


def _differs_in_case() -> Column:
    """The error of a record with a field whose name differs from a column's, or a field's in its place, in case only; else null."""
    from pyspark.sql import functions as f

    names = f.filter(STRANGE, lambda name: f.startswith(name, f.lit(RESPELT)))
    why = f.lit(", whose name differs from a column's in upper and lower case only")
    return f.when(f.size(names) > 0, f.concat(f.lit("has the field "), f.substring(f.get(names, 0), 2, 2**31 - 1), why))


def _is_more_than_one(text: Column) -> Column:
    """Whether something stands behind the first JSON value of a text: Spark's from_json does not look at it. Null: no text."""
    from pyspark.sql import functions as f

    values = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]")))
    # json_array_length does not know the numbers without digits, which from_json takes
    is_strict = ~text.rlike("NaN|Inf|INF")
    return f.coalesce(values != 2, text.isNotNull() & is_strict)


#: In Java's regular expressions: an escape (not of a backslash) for one half of a character outside of the first 65,536, without the other half.
_HALF = (
    "(?<!\\\\)(?:\\\\\\\\)*(?:\\\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\\\u[dD][c-fC-F])"
    "|(?<!\\\\u[dD][89abAB][0-9a-fA-F]{2})\\\\u[dD][c-fC-F])"
)


def _has_half_a_character(text: Column) -> Column:
    """The error of a JSON text with an escape that is no character alone, for which Spark reads "?"; else null."""
    from pyspark.sql import functions as f

    why = f.lit("has an escape for half of a character (\\ud800 to \\udfff)")
    return f.when(f.contains(text, f.lit("\\u")) & text.rlike(_HALF), why)


def _inner(columns: Mapping[str, str]) -> str:
    return ",".join(f"{quoted(name)}:{type_}" for name, type_ in columns.items())


def _inner_event(columns: Mapping[str, str]) -> str:
    return f"before:struct<{_inner(columns)}>,after:struct<{_inner(columns)}>,op:string"


class RawDecoder:
    """Records as they are."""

    def decode(self, records: DataFrame) -> DataFrame:  # pragma: no cover - `decoded` opens raw records itself
        return records

    def schemas(self) -> Mapping[str, int]:
        return {}


def infer_columns(spark: Any, values: DataFrame) -> dict[str, str]:
    """The columns of JSON texts (a DataFrame of one string column), as name -> type, without the pipeline's own names."""
    found = spark.read.options(**_OPTIONS).json(values)
    return {
        column.name: ddl_of(as_column(column.dataType))
        for column in found.schema
        if column.name and not is_own(column.name)
    }
