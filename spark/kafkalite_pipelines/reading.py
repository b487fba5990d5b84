"""From a pipeline file (TOML) to a `Pipeline`, or to one clear line per mistake. Pure but for `load`, which reads the file."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from kafkalite.model import INTERNAL_TOPICS
from kafkalite_pipelines.definition import (
    DeadLetters,
    DeltaSink,
    IcebergSink,
    Maintenance,
    ParquetSink,
    Pipeline,
    PipelineError,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TopicSink,
)
from kafkalite_pipelines.reading_decode import COLUMN, read_decode
from kafkalite_pipelines.reading_whole import check_whole
from kafkalite_pipelines.redaction import secrets_in, without
from kafkalite_pipelines.sections import Section, kind, shown
from kafkalite_pipelines.sinks.partitions import PARTITION_BY
from kafkalite_pipelines.sql import no_query, reads_input

#: What a pipeline, a topic and an Iceberg table may be called.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)?")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
#: `str.isdigit` is true of superscripts, which `int` does not take.
_PORT, _PARTITION = re.compile(r"[0-9]{1,5}"), re.compile(r"[0-9]{1,10}")
#: A name or an IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]")
_THREADS = r"(\*|[1-9][0-9]*)"
_MASTER = re.compile(
    rf"local(\[{_THREADS}(, *[0-9]+)?\])?|local-cluster\[.+\]|spark://[^\s,/:]+:[0-9]+(,[^\s,/:]+:[0-9]+)*|yarn|k8s://.+"
)
SINKS = ("iceberg", "delta", "parquet", "topic")
#: The key that says where a sink writes.
_PLACES = {"iceberg": "table", "delta": "path", "parquet": "path", "topic": "topic"}
_SINK_KEYS = (
    *("table", "path", "topic", "warehouse", "catalog", "storage", "partition_by", "key", "properties", "evolve"),
    *("maintenance", "key_column", "delivery"),
)
#: pyiceberg's names.
_CATALOGS = ("sql", "rest", "hive", "glue", "dynamodb", "bigquery")
_DELIVERIES = ("exactly-once", "at-least-once")
#: A pipeline sets these options of the source itself.
_OURS = {"group.id": "name", "auto.offset.reset": "source.start"}


def load(path: Path) -> Pipeline:
    """The pipeline in a file.

    Raises:
        PipelineError: the file cannot be read or has mistakes, all of them in `problems`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{path}: is not UTF-8 text") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path}: is not TOML: {error}") from None
    pipeline = parse(values, path.resolve().parent)
    if pipeline.decode.schema_file is not None:
        _check_schema_file(pipeline)
    return pipeline


def _check_schema_file(pipeline: Pipeline) -> None:
    """Raises PipelineError: the file is wrong, or it has no such message."""
    try:
        from kafkalite_pipelines.decoding.protobuf_readers import file_reader

        file_reader(pipeline)
    except ImportError as error:
        raise PipelineError(f"protobuf needs a package: pip install 'kafkalite[pipelines]' ({error})") from None


def parse(values: Mapping[str, Any], directory: Path = Path()) -> Pipeline:
    """The pipeline that a file's values describe.

    Raises:
        PipelineError: one line for each mistake.
    """
    problems: list[str] = []
    top = Section(values, "", problems)
    name = (
        top.text("name", "", required="the pipeline's name, which is also the consumer group that shows its lag") or ""
    )
    if name and not NAME.fullmatch(name):
        top.problem("name", f"must be letters, digits, '.', '_' and '-', 200 at most, not {name!r}")
    kafka = _kafka(top)
    source = _source(top)
    dead = _dead_letters(top)
    decode = read_decode(top, has_dead_letters=dead is not None)
    steps = tuple(step for each in top.sections("steps") if (step := _step(each)) is not None)
    if "sinks" not in top or top.any("sinks") == []:
        top.missing("sinks", "at least one [[sinks]] with a format")
    sinks = tuple(sink for each in top.sections("sinks") if (sink := _sink(each)) is not None)
    _check_settings(top, kafka, writes=dead is not None or any(isinstance(sink, TopicSink) for sink in sinks))
    pipeline = Pipeline(
        name=name,
        kafka=kafka,
        source=source,
        sinks=sinks,
        decode=decode,
        steps=steps,
        dead_letters=dead,
        every_s=_trigger(top),
        checkpoint=top.text("checkpoint") or "",
        watermark=_watermark(top),
        spark=top.texts("spark"),
        master=_master(top),
        directory=directory,
    )
    top.done()
    check_whole(pipeline, top)
    if problems:
        secrets = list(secrets_in(values))
        raise PipelineError(*(without(secrets, problem) for problem in problems))
    return pipeline


def _kafka(top: Section) -> dict[str, str]:
    if "kafka" not in top:
        top.missing("kafka", 'a table [kafka] with bootstrap.servers = "host:9092"')
    kafka = top.texts("kafka")
    for key in [key for key in kafka if key.startswith("kafka.")]:  # as options of Spark's source are written
        top.problem(f"kafka.{key}", f'in [kafka] it is written "{key.removeprefix("kafka.")}"')
    servers = kafka.get("bootstrap.servers", "")
    given = top.any("kafka")
    named = ("kafka.bootstrap", "kafka.kafka.bootstrap")
    if isinstance(given, Mapping) and not servers and not any(p.startswith(named) for p in top.problems):
        close = difflib.get_close_matches("bootstrap.servers", kafka, 1)
        instead = f"; there is {close[0]}" if close else ""
        top.problem("kafka.bootstrap.servers", f'is missing: "host:9092", several separated by commas{instead}')
    for server in filter(None, servers.split(",")):
        host, _, port = server.strip().rpartition(":")
        if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            top.problem("kafka.bootstrap.servers", f"{server.strip()!r} is not host:port")
    for key, instead in _OURS.items():
        if key in kafka:
            top.problem(f"kafka.{key}", f"a pipeline sets this itself; use {instead}")
    return kafka


def _check_settings(top: Section, kafka: dict[str, str], *, writes: bool) -> None:
    """What the source (and the sink, if topics are written) say of the clients' settings: their own checks, if Spark is installed."""
    if "bootstrap.servers" not in kafka or any(problem.startswith("kafka.") for problem in top.problems):
        return
    try:
        from pyspark_kafkalite.option_parsing import read_options, write_options
        from pyspark_kafkalite.options import OptionError
    except ImportError:
        return
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    for key in kafka:
        family = key.partition(".")[0].upper()
        if family in ("SASL", "SSL") and family not in protocol:
            uses = "SASL_SSL or SASL_PLAINTEXT" if family == "SASL" else "SSL or SASL_SSL"
            top.problem(f"kafka.{key}", f"is not used with security.protocol {protocol}, but with {uses}")
            return
    options = {f"kafka.{key}": value for key, value in kafka.items()}
    try:
        read_options(options | {"subscribe": "any"}, streaming=True)
        if writes:
            write_options(options | {"topic": "any"})
    except OptionError as error:
        top.problem("kafka", " ".join(str(error).split()))


def _source(top: Section) -> Source:
    section = top.section("source")
    if section is None:
        if "source" not in top:
            top.missing("source", "a table [source] with topics or a pattern")
        return Source()
    topics, pattern = section.names("topics"), section.text("pattern")
    for topic in topics:
        if not TOPIC.fullmatch(topic):
            section.problem("topics", f"{topic!r} is not a topic's name; for a pattern use source.pattern")
    if not topics and "pattern" not in section and ("topics" not in section or section.any("topics") == []):
        section.missing("topics", 'topics = ["a"] or pattern = "a.*"')
    if topics and pattern is not None:
        section.problem("pattern", "cannot be combined with topics")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            section.problem("pattern", f"is not a regular expression: {error}")
    source = Source(
        topics=topics,
        pattern=pattern,
        start=_start(section, topics),
        max_records=section.number("max_records"),
        max_bytes=section.size("max_bytes"),
        fail_on_data_loss=section.boolean("fail_on_data_loss", default=True),
    )
    section.done()
    return source


def _start(section: Section, topics: tuple[str, ...]) -> str | datetime | dict[str, dict[str, int]]:
    value = section.any("start")
    if value is None or value in ("earliest", "latest"):
        return value or "earliest"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            section.problem(
                "start", f"must be earliest, latest, a time such as 2026-11-22T08:00:00Z, or offsets, not {value!r}"
            )
            return "earliest"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            section.problem("start", "the time has no time zone: 2026-11-22T08:00:00Z")
        elif value.timestamp() < 0:
            section.problem("start", "the time is before 1970, when the timestamps of records begin")
        return value
    if isinstance(value, Mapping):
        return _offsets(section, value, topics)
    if isinstance(value, date):
        section.problem("start", f"must be a time with its zone, {value}T00:00:00Z, not a date alone")
        return "earliest"
    section.problem("start", f"must be earliest, latest, a time or a table of offsets, not {kind(value)}")
    return "earliest"


def _offsets(section: Section, value: Mapping[str, Any], topics: tuple[str, ...]) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = {}
    for topic, numbers in value.items():
        if topic not in topics:
            section.problem(f"start.{topic}", "is not one of source.topics")
        if not isinstance(numbers, Mapping):
            section.problem(f"start.{topic}", f'must be offsets by partition, {{ "0" = 23 }}, not {kind(numbers)}')
            continue
        for partition, offset in numbers.items():
            if (
                not _PARTITION.fullmatch(partition)
                or isinstance(offset, bool)
                or not isinstance(offset, int)
                or offset < -2
            ):
                section.problem(f"start.{topic}.{partition}", f"must be partition = offset, not {shown(offset)}")
            else:
                offsets.setdefault(topic, {})[str(int(partition))] = offset
    return offsets


def _dead_letters(top: Section) -> DeadLetters | None:
    section = top.section("dead_letters")
    if section is None:
        return None
    topic = section.text("topic", "", required="the topic for records that cannot be decoded") or ""
    _check_written(section, topic)
    dead = DeadLetters(topic, section.choice("delivery", _DELIVERIES, "exactly-once"))
    section.done()
    return dead


def _step(section: Section) -> Step | None:
    sql, function = section.text("sql"), section.text("python")
    if "sql" not in section and "python" not in section:
        section.missing("sql", "a step has sql or python")
    elif sql is not None and function is not None:
        section.problem("python", "a step has sql or python, not both")
    section.done()
    if (sql is None) == (function is None):
        return None
    if sql is not None:
        if (problem := no_query(sql)) is not None:
            section.problem("sql", problem)
        elif not reads_input(sql):
            section.problem("sql", "reads from input, the rows of the step before: SELECT … FROM input")
        return SqlStep(sql)
    assert function is not None
    if not _FUNCTION.fullmatch(function) or ".py:" in function:
        section.problem("python", f"must be module:function, without .py, not {function!r}")
    return PythonStep(function)


def _sink(section: Section) -> Sink | None:
    if section.any("format") is None:
        section.missing("format", ", ".join(SINKS))
        section.done(_SINK_KEYS)
        return None
    format_ = section.choice("format", SINKS, "")
    if not format_:
        section.done(_SINK_KEYS)
        return None
    sink = {"iceberg": _iceberg, "delta": _delta, "parquet": _parquet, "topic": _topic}[format_](section)
    place = _PLACES[format_]
    for key in {*_PLACES.values()} - {place}:
        if key in section and place not in section:
            section.instead(key, place, f"a sink of format {format_} has {place} instead")
    section.done()
    return sink


def _iceberg(section: Section) -> Sink:
    table = section.text("table", "", required='the table\'s name, "flights" or "namespace.flights"') or ""
    if table and not TABLE.fullmatch(table):
        section.problem("table", f"{table!r} is not a name or namespace.name")
    catalog = section.texts("catalog")
    if catalog.get("type", "sql") not in _CATALOGS:
        section.problem("catalog.type", f"must be {', '.join(_CATALOGS)}, not {catalog['type']!r}")
    return IcebergSink(
        table=table,
        warehouse=section.text("warehouse", "tables") or "tables",
        catalog=catalog,
        partition_by=_partition_by(section),
        key=_key(section),
        properties=section.texts("properties"),
        maintenance=_maintenance(section),
        evolve=section.boolean("evolve", default=True),
    )


def _delta(section: Section) -> Sink:
    return DeltaSink(
        path=section.text("path", "", required="the table's directory or URI") or "",
        storage=section.texts("storage"),
        partition_by=_partition_by(section),
        key=_key(section),
        properties=section.texts("properties"),
        maintenance=_maintenance(section),
        evolve=section.boolean("evolve", default=True),
    )


def _parquet(section: Section) -> Sink:
    if "key" in section:
        section.problem("key", "plain files cannot be changed; use iceberg or delta")
        section.any("key")
    return ParquetSink(
        path=section.text("path", "", required="the directory or URI of the files") or "",
        partition_by=_partition_by(section),
    )


def _topic(section: Section) -> Sink:
    topic = section.text("topic", "", required="the topic to write to") or ""
    _check_written(section, topic)
    key_column = section.text("key_column")
    return TopicSink(topic, key_column, section.choice("delivery", _DELIVERIES, "exactly-once"))


def _check_written(section: Section, topic: str) -> None:
    """A topic that the pipeline writes; "": it has its own line."""
    if topic and not TOPIC.fullmatch(topic):
        section.problem("topic", f"{topic!r} is not a topic's name")
    elif topic in INTERNAL_TOPICS:
        section.problem("topic", f"{topic} is one of the brokers' own topics")


def _key(section: Section) -> tuple[str, ...]:
    key = section.names("key")
    for column in key:
        if not COLUMN.fullmatch(column):
            section.problem("key", f"{column!r} is not a column's name")
    return key


def _partition_by(section: Section) -> tuple[str, ...]:
    fields = section.names("partition_by")
    for each in fields:
        if not PARTITION_BY.fullmatch(each):
            section.problem("partition_by", f"{each!r} is not a column, year(c), month(c), day(c) or hour(c)")
    return fields


def _maintenance(section: Section) -> Maintenance | None:
    if section.any("maintenance") is False:
        return None
    inner = section.section("maintenance")
    if inner is None:
        return Maintenance()
    defaults = Maintenance()
    compact = inner.any("compact_below")
    expire = inner.any("expire_after")
    maintenance = Maintenance(
        every_s=int(inner.seconds("every", defaults.every_s, least=1) or 0),
        compact_below=None if compact is False else inner.size("compact_below", defaults.compact_below),
        target_bytes=inner.size("target_size", defaults.target_bytes) or defaults.target_bytes,
        expire_after_s=None if expire is False else int(inner.seconds("expire_after", defaults.expire_after_s) or 0),
    )
    inner.done()
    if maintenance.compact_below is not None and maintenance.compact_below > maintenance.target_bytes:
        inner.problem("compact_below", "must not be larger than target_size")
    return maintenance


def _trigger(top: Section) -> float | None:
    value = top.any("trigger")
    if value is None:
        return 0.0
    if value == "available-now":
        return None
    return top.seconds("trigger", 0.0, examples='"10s", or "available-now"')


def _master(top: Section) -> str | None:
    master = top.text("master")
    if master is not None and master.startswith("sc://"):
        top.problem("master", f"Spark Connect is chosen by `run --remote {master}`")
    elif master is not None and not _MASTER.fullmatch(master):
        top.problem("master", f"must be local, local[N], spark://host:port, yarn or k8s://…, not {master!r}")
    return master


def _watermark(top: Section) -> tuple[str, str] | None:
    section = top.section("watermark")
    if section is None:
        return None
    column = section.text("column", "", required="the column with the time of the event") or ""
    seconds = section.seconds("delay")
    if "delay" not in section:
        section.missing("delay", 'how late rows may be, such as "10m"')
    section.done()
    return column, f"{int((seconds or 0) * 1000)} milliseconds"
