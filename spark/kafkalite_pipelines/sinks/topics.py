"""Topics as sinks: rows, and records that could not be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite_pipelines.decoding.records import ERROR
from kafkalite_pipelines.decoding.types import quoted
from kafkalite_pipelines.definition import DELETED, HIDDEN, Pipeline, PipelineError, TopicSink
from kafkalite_pipelines.sinks.sink import Batch, Recorded
from kafkalite_pipelines.source import FORMAT, kafka_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What a row is written as, if its steps say so.
RECORD_COLUMNS = ("key", "value", "headers")
#: In a column's metadata: it is a field of the decoded records, whatever its name.
_FIELD = "kafkalite.field"
#: Spark's own format of times has milliseconds, and cuts off the rest.
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME}
#: A column that no step names.
_PROBE = "__partition_probe"


class TopicWriter:
    """A topic. The batch's number is the version of a transaction group: a batch that runs again writes nothing."""

    eager = False

    def __init__(self, pipeline: Pipeline, sink: TopicSink) -> None:
        self._pipeline = pipeline
        self._sink = sink

    @property
    def name(self) -> str:
        return f"topic {self._sink.topic}"

    def recorded(self) -> Recorded | None:
        return None

    def stage(self, rows: DataFrame, batch: Batch) -> _Rows:
        # a record's own field `value` must not make all others tombstones on the day on which it is found
        are_records = self._pipeline.decode.format == "raw" or bool(self._pipeline.steps)
        records = _as_records(rows, self._sink.key_column, are_records=are_records)
        return _Rows(self._pipeline, self._sink.topic, self._sink.delivery, records, batch)

    def maintain(self) -> str | None:
        return None


class _Rows:
    def __init__(self, pipeline: Pipeline, topic: str, delivery: str, records: DataFrame, batch: Batch) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._delivery = delivery
        self._records = records
        self._batch = batch

    def commit(self) -> int:
        write(self._pipeline, self._topic, self._delivery, self._records, self._batch)
        return 0

    def discard(self) -> None:
        """Nothing is written before the commit."""


def write(pipeline: Pipeline, topic: str, delivery: str, records: DataFrame, batch: Batch) -> None:
    """Write a batch's records to a topic, all of them or none (exactly-once)."""
    writer = records.write.format(FORMAT).mode("append").options(**kafka_options(pipeline)).option("topic", topic)
    writer = writer.option("deliveryGuarantee", delivery)
    if delivery == "exactly-once":
        writer = writer.option("txnAppId", f"{batch.pipeline}/{batch.query}/{topic}").option(
            "txnVersion", str(batch.number)
        )
    writer.save()


def _as_records(rows: DataFrame, key_column: str | None, *, are_records: bool) -> DataFrame:
    """Rows as records: `key`, `value` and `headers` as they are if there may be such columns and `value` is one, else JSON of the
    columns. A column that is a record's own field (`with_fields`) is none of the three."""
    from pyspark.sql import functions as f

    names = rows.columns
    if key_column is not None and key_column not in names:
        raise PipelineError(f"key_column: the rows have no column {key_column} ({', '.join(names)})")
    kinds = {
        column.name: column.dataType.typeName() for column in rows.schema if not column.metadata.get(_FIELD, False)
    }
    key: Column = f.lit(None).cast("string") if key_column is None else f.col(quoted(key_column)).cast("string")
    if are_records and kinds.get("value") in ("binary", "string"):
        kept = [name for name in RECORD_COLUMNS if name in kinds]
        if key_column is not None:
            return rows.select(key.alias("key"), *[name for name in kept if name != "key"])
        return rows.select(*kept)
    data = [quoted(name) for name in names if name not in (*HIDDEN, DELETED)]
    value = f.to_json(f.struct(*data), _JSON)
    if DELETED in names:
        value = f.when(~f.col(DELETED), value)
    return rows.select(key.alias("key"), value.alias("value"))


def with_fields(decoded: DataFrame, steps: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """The rows that `steps` make of `decoded`. Columns of theirs that only came through a `*` are marked as fields of the records: a
    producer that begins to send a field `value` must not make it the record of all rows."""
    rows = steps(decoded)
    for name in RECORD_COLUMNS:
        if name in decoded.columns and name in rows.columns and _came_through(decoded, steps, name):
            rows = rows.withMetadata(name, {_FIELD: True})
    return rows


def _came_through(decoded: DataFrame, steps: Callable[[DataFrame], DataFrame], name: str) -> bool:
    """Whether a `*` takes the column along, and no step makes one of this name: the steps are asked, on rows with other names."""
    from pyspark.sql import functions as f

    without = _columns(steps, decoded.withColumnRenamed(name, _PROBE))
    if without is not None:
        return name not in without
    return _PROBE in (_columns(steps, decoded.withColumn(_PROBE, f.lit(None))) or ())


def _columns(steps: Callable[[DataFrame], DataFrame], rows: DataFrame) -> list[str] | None:
    """None: the steps cannot be without a column, or with one more."""
    try:
        return list(steps(rows).columns)
    except Exception:  # noqa: BLE001 - a step in Python raises what it likes
        return None


def dead_letters(pipeline: Pipeline, bad: DataFrame) -> DataFrame:
    """The records of a decoded DataFrame that became no rows: as they were, with headers that say from where and why."""
    from pyspark.sql import functions as f

    def header(name: str, value: Column) -> Column:
        return f.struct(f.lit(f"kafkalite.{name}").alias("key"), f.encode(value.cast("string"), "UTF-8").alias("value"))

    own = f.array(
        header("pipeline", f.lit(pipeline.name)),
        header("error", f.col(ERROR)),
        header("topic", f.col("_topic")),
        header("partition", f.col("_partition")),
        header("offset", f.col("_offset")),
        header("timestamp", f.unix_millis("_timestamp")),
    )
    kind = "array<struct<key:string,value:binary>>"
    headers = f.concat(f.coalesce(f.col("_headers").cast(kind), f.array().cast(kind)), own.cast(kind))
    return bad.select(f.col("_key").alias("key"), f.col("_value").alias("value"), headers.alias("headers"))
