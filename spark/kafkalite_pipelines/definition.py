"""What a pipeline is, as values. A file (`reading.load`) and a program build the same objects. No import of Spark.

Pipeline(
    name="flights",
    kafka={"bootstrap.servers": "localhost:9092"},
    source=Source(topics=("flights",)),
    decode=Decode("json", columns={"number": "bigint", "carrier": "string"}),
    sinks=(IcebergSink(table="flights", warehouse="tables"),),
)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import INTERNAL_TOPICS

#: Columns that every decoded row has beside its own: where its record is in Kafka.
HIDDEN = ("_topic", "_partition", "_offset", "_timestamp")
#: Whether the record deletes its key: only where a sink has a key.
DELETED = "_deleted"
#: No field of a record can be a column of these names, in any case: they are the pipeline's own, some only while it decodes.
OWN_COLUMNS = frozenset({
    *HIDDEN, DELETED, "_key", "_value", "_headers", "_error", "_strange", "_body", "_event", "_corrupt_record", "_none", "__last",
})  # fmt: skip
#: And of names that begin so: partition values on their way to a table's files.
OWN_PREFIX = "__partition_"


def is_own(column: str) -> bool:
    """Whether a column's name is one of the pipeline's own."""
    return column.lower() in OWN_COLUMNS or column.lower().startswith(OWN_PREFIX)


class PipelineError(KafkaliteError):
    """A pipeline cannot be run as it is written. `problems` has one line for each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Source:
    """Which records are read, from where on, and how fast. One of `topics` and `pattern` is set."""

    topics: tuple[str, ...] = ()
    #: A Python regular expression that a whole topic name must match.
    pattern: str | None = None
    #: "earliest", "latest", a point in time (first records of that time or later), or topic -> partition -> offset.
    start: str | datetime | Mapping[str, Mapping[str, int]] = "earliest"
    #: Per micro-batch; None: all there is.
    max_records: int | None = None
    max_bytes: int | None = None
    #: False: records that retention has removed are skipped with a warning, and do not stop the pipeline.
    fail_on_data_loss: bool = True

    def reads(self, topic: str) -> bool:
        """Whether `topic` is one of its topics. A pattern never covers internal ones."""
        if self.pattern is None:
            return topic in self.topics
        return topic not in INTERNAL_TOPICS and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Decode:
    """How a record becomes a row: "json", "avro", "protobuf" or "raw" (key and value as they are)."""

    format: str = "json"
    #: Column -> Spark type. JSON without it: the columns are found in the records.
    columns: Mapping[str, str] = field(default_factory=dict)
    #: These may not be null.
    required: tuple[str, ...] = ()
    #: The record's key as text in this column.
    key_column: str | None = None
    #: Records are Debezium's change events: before, after, op.
    debezium: bool = False
    #: URL of a schema registry with Confluent's REST API, and who we are there.
    registry: str | None = None
    registry_user: str | None = None
    #: Environment variable that has the password.
    registry_password_env: str | None = None
    #: Protobuf without a registry: a .proto file or a descriptor set of protoc.
    schema_file: str | None = None
    #: Protobuf: the message's name, if the schema has several.
    message: str | None = None
    #: What happens to records that cannot be decoded: "dead-letters", "stop" or "skip".
    on_error: str = "stop"


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over `input`, the rows of the step before."""

    sql: str


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of one DataFrame that returns one: itself, or "module:function" (also found beside the pipeline file)."""

    function: str | Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What keeps a table fast. Times in seconds; None: not done."""

    #: Between two rounds, between batches.
    every_s: int = 3600
    #: Files below this size (bytes) are merged into files of about `target_bytes`.
    compact_below: int | None = 32 << 20
    target_bytes: int = 128 << 20
    #: Snapshots (Delta: versions' files) older than this are removed.
    expire_after_s: int | None = 7 * 86400


@dataclass(frozen=True, slots=True)
class IcebergSink:
    """An Iceberg table. Default catalog: SQLite in `warehouse`."""

    table: str
    warehouse: str = "tables"
    #: Properties of pyiceberg's catalog (type, uri, ...); empty: SQLite in the warehouse.
    catalog: Mapping[str, str] = field(default_factory=dict)
    #: Columns, or year(), month(), day(), hour() of a date or timestamp.
    partition_by: tuple[str, ...] = ()
    #: Rows replace rows with the same key; empty: rows are added.
    key: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    maintenance: Maintenance | None = Maintenance()
    #: False: a batch with other columns than the table's stops the pipeline.
    evolve: bool = True


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A Delta table in a directory or object store."""

    path: str
    #: Credentials and endpoint of the object store, as deltalake names them.
    storage: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    maintenance: Maintenance | None = Maintenance()
    evolve: bool = True


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Plain files: a directory per batch, which appears as a whole."""

    path: str
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic. Raw records, and rows of steps that have a column `value` (text or binary), are written as they are; others as JSON."""

    topic: str
    #: This column is the record's key.
    key_column: str | None = None
    #: "exactly-once" (kafkalite brokers) or "at-least-once".
    delivery: str = "exactly-once"


Step = SqlStep | PythonStep
Sink = IcebergSink | DeltaSink | ParquetSink | TopicSink


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where records go that cannot be decoded, unchanged, with headers that say why."""

    topic: str
    delivery: str = "exactly-once"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline. Its name is the consumer group of its progress, and its name in every table's commits."""

    name: str
    #: Settings of Kafka's clients: bootstrap.servers, security.protocol, ...
    kafka: Mapping[str, str]
    source: Source
    sinks: tuple[Sink, ...]
    decode: Decode = Decode()
    steps: tuple[Step, ...] = ()
    dead_letters: DeadLetters | None = None
    #: Seconds between micro-batches; 0: as fast as possible; None: what is there now, then end.
    every_s: float | None = 0.0
    #: Directory or URI of Spark's offsets and state; empty: checkpoints/<name>.
    checkpoint: str = ""
    #: Rows of a time-based aggregation, deduplication or join: event time column and how late rows may be (Spark's interval).
    watermark: tuple[str, str] | None = None
    #: Spark's settings, and its master (None: local).
    spark: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    #: Directory of the file: relative paths and Python steps are relative to it.
    directory: Path = Path()

    def __post_init__(self) -> None:
        if not self.checkpoint:
            object.__setattr__(self, "checkpoint", f"checkpoints/{self.name}")

    def place(self, path: str) -> str:
        """`path` as a URI or an absolute path."""
        return path if "://" in path else str((self.directory / path).resolve())

    @property
    def written_topics(self) -> tuple[str, ...]:
        """Those of the sinks, and that of the dead letters."""
        dead = () if self.dead_letters is None else (self.dead_letters.topic,)
        return (*(sink.topic for sink in self.sinks if isinstance(sink, TopicSink)), *dead)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which sinks replace and delete rows; empty if no sink does."""
        keys = [sink.key for sink in self.sinks if isinstance(sink, IcebergSink | DeltaSink)]
        return tuple(dict.fromkeys(column for key in keys for column in key))

    @property
    def keyed(self) -> bool:
        """Whether a sink replaces and deletes rows."""
        return bool(self.key)
