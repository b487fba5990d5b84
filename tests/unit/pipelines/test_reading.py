"""A pipeline file: what it becomes, and one clear line for each mistake."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from kafkalite_cli.main import run
from kafkalite_cli.pipeline.targets import bound, targets
from kafkalite_pipelines import (
    DeadLetters,
    DeltaSink,
    IcebergSink,
    ParquetSink,
    Pipeline,
    PipelineError,
    PythonStep,
    Source,
    SqlStep,
    TopicSink,
    load,
    parse,
)
from kafkalite_pipelines.backfill import backfill_of, replay_of
from kafkalite_pipelines.batches import Batches
from kafkalite_pipelines.run import start
from kafkalite_pipelines.sql import no_query
from kafkalite_pipelines.steps import missing_functions
from kafkalite_pipelines.template import template

GOOD = """
name = "flights"
[kafka]
"bootstrap.servers" = "localhost:9092"
[source]
topics = ["flights"]
[decode]
schema = { number = "long", carrier = "string", delay = "double" }
[[sinks]]
format = "iceberg"
table = "flights"
"""


def problems(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(PipelineError) as raised:
        load(file)
    return list(raised.value.problems)


def test_the_shortest_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(GOOD)
    pipeline = load(file)
    assert pipeline.name == "flights" and pipeline.kafka == {"bootstrap.servers": "localhost:9092"}
    assert pipeline.sinks == (IcebergSink(table="flights"),) and pipeline.decode.on_error == "stop"
    assert pipeline.decode.columns == {"number": "bigint", "carrier": "string", "delay": "double"}
    assert pipeline.place("tables") == str(tmp_path / "tables") and pipeline.place("s3://a/b") == "s3://a/b"


def test_everything_that_a_file_can_say(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("""
name = "all"
trigger = "2m"
checkpoint = "s3://bucket/checkpoints/all"
master = "local[2]"
[kafka]
bootstrap.servers = "a:9092,b:9092"
security.protocol = "SSL"
[source]
pattern = "orders-.*"
start = 2026-11-22T08:00:00Z
max_records = 1000
max_bytes = "64MB"
fail_on_data_loss = false
[decode]
format = "json"
schema = { id = "int", tags = "array<string>", price = "decimal(10, 2)", at = "struct<x:double,y:double>" }
required = ["id"]
key_column = "id"
debezium = true
on_error = "skip"
[dead_letters]
topic = "dead"
delivery = "at-least-once"
[watermark]
column = "_timestamp"
delay = "10m"
[[steps]]
sql = "SELECT * FROM input"
[[steps]]
python = "cleaning:clean"
[[sinks]]
format = "iceberg"
table = "shop.orders"
partition_by = ["day(_timestamp)"]
key = ["id"]
catalog = { type = "rest", uri = "http://localhost:8181" }
maintenance = { every = "10m", compact_below = false, expire_after = "1d" }
[[sinks]]
format = "delta"
path = "s3://bucket/orders"
maintenance = false
[[sinks]]
format = "parquet"
path = "files"
[[sinks]]
format = "topic"
topic = "clean"
key_column = "id"
[spark]
spark.sql.shuffle.partitions = 4
""")
    pipeline = load(file)
    assert pipeline.every_s == 120 and pipeline.source.start == datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert pipeline.source.max_bytes == 64_000_000 and pipeline.watermark == ("_timestamp", "600000 milliseconds")
    assert pipeline.decode.columns["tags"] == "array<string>" and pipeline.decode.on_error == "skip"
    assert [type(step) for step in pipeline.steps] == [SqlStep, PythonStep]
    assert [type(sink) for sink in pipeline.sinks] == [IcebergSink, DeltaSink, ParquetSink, TopicSink]
    iceberg = pipeline.sinks[0]
    assert isinstance(iceberg, IcebergSink) and iceberg.maintenance is not None and pipeline.key == ("id",)
    assert iceberg.maintenance.compact_below is None and iceberg.maintenance.expire_after_s == 86_400
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4"}
    assert pipeline.place(pipeline.checkpoint) == "s3://bucket/checkpoints/all"


SCHEMA = 'schema = { number = "long", carrier = "string", delay = "double" }'
#: What follows format = "protobuf", and the line. The files are those of `proto_files`.
PROTOBUF = [
    ("", "decode.registry: is missing: protobuf needs a schema registry's URL, or schema_file"),
    ('\nregistry = "http://r:8081"\nschema_file = "good.proto"', "decode.registry: cannot be combined with schema_file"),
    ('\nschema_file = "x.txt"', "decode.schema_file: must be a .proto file or a descriptor set (.desc) of protoc, not 'x.txt'"),
    ('\nschema_file = "good.proto"\nmessage = "Nobody"', "decode.message: there is no message Nobody; there are: a.Flight, a.Other"),
    ('\nschema_file = "good.proto"', "decode.message is missing: the schema has the messages a.Flight, a.Other"),
    ('\nschema_file = "loop.proto"', "inner.again: Loop contains itself, and a column cannot"),
    ('\nschema_file = "empty.proto"', "the message Empty has no fields: they would be the columns"),
    ('\nschema_file = "torn.proto"', "decode.schema_file: torn.proto: not a .proto file: line 1, column 34: mismatched input '<EOF>' expecting '{'"),
    ('\nschema_file = "binary.proto"', "decode.schema_file: binary.proto: binary.proto is not UTF-8 text; a file of protoc --descriptor_set_out ends in .desc"),
    ('\nschema_file = "imports.proto"', "decode.schema_file: imports.proto: the import 'nowhere.proto' is not beside the file"),
    ('\nschema_file = "self.proto"', "decode.schema_file: self.proto: self.proto imports itself"),
    ('\nschema_file = "twice.proto"', "decode.schema_file: twice.proto: T: x and y have the same number 1"),
    ('\nschema_file = "unknown.proto"', "decode.schema_file: unknown.proto: the type 'Nothing' is not defined"),
    ('\nschema_file = "text.desc"', "decode.schema_file: text.desc: is no descriptor set with messages: protoc --include_imports --descriptor_set_out writes one"),
    ('\nschema_file = "part.desc"', "decode.schema_file: part.desc: does not contain common.proto: protoc --include_imports adds it"),
]  # fmt: skip


@pytest.fixture
def proto_files(tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    header = 'syntax = "proto3";\n'
    for name, text in {
        "good": "package a;\nmessage Flight { int32 n = 1; }\nmessage Other { int32 n = 1; }",
        "loop": "message Loop { Inner inner = 1; message Inner { Loop again = 1; } }",
        "empty": "message Empty {}",
        "imports": 'import "nowhere.proto";\nmessage A { int32 n = 1; }',
        "self": 'import "self.proto";\nmessage A { int32 n = 1; }',
        "twice": "message T { int32 x = 1; int32 y = 1; }",
        "unknown": "message T { Nothing x = 1; }",
    }.items():
        (tmp_path / f"{name}.proto").write_text(header + text)
    (tmp_path / "torn.proto").write_text('syntax = "proto3"; message Flight')
    (tmp_path / "binary.proto").write_bytes(b"\xff\xfe")
    (tmp_path / "text.desc").write_text("message Flight { int32 n = 1; }")
    part = FileDescriptorProto(name="part.proto", dependency=["common.proto"])
    part.message_type.add(name="T")
    (tmp_path / "part.desc").write_bytes(FileDescriptorSet(file=[part]).SerializeToString())


#: (what is replaced in the good file, by what, the one line that is reported); what follows \0 is added to the sink
WRONG = [
    ('name = "flights"', "", "name: is missing: the pipeline's name, which is also the consumer group that shows its lag"),
    ('name = "flights"', 'name = "a b"', "name: must be letters, digits, '.', '_' and '-', 200 at most, not 'a b'"),
    ('name = "flights"', 'name = "flights"\ntriger = "10s"', "triger: there is no such key; did you mean trigger?"),
    ('name = "flights"', 'name = "flights"\ntrigger = "10 seconds"', "trigger: must be a duration such as \"10s\", or \"available-now\", not '10 seconds'"),
    ('name = "flights"', 'name = "flights"\ntrigger = 10', 'trigger: must be a duration such as "10s", or "available-now", not 10'),
    ('[kafka]\n"bootstrap.servers" = "localhost:9092"', "", 'kafka: is missing: a table [kafka] with bootstrap.servers = "host:9092"'),
    ('"localhost:9092"', '"localhost"', "kafka.bootstrap.servers: 'localhost' is not host:port"),
    ('"localhost:9092"', '"localhost:9092"\n"group.id" = "x"', "kafka.group.id: a pipeline sets this itself; use name"),
    ('"localhost:9092"', '"localhost:9092"\n"securty.protocol" = "SSL"', "kafka: kafka.securty.protocol is no setting of Kafka's clients that is known here; did you mean kafka.security.protocol?"),
    ('[source]\ntopics = ["flights"]', "", "source: is missing: a table [source] with topics or a pattern"),
    ('topics = ["flights"]', "", 'source.topics: is missing: topics = ["a"] or pattern = "a.*"'),
    ('topics = ["flights"]', "topics = 7", 'source.topics: must be a list of names, such as ["a", "b"], not a number'),
    ('topics = ["flights"]', 'topics = ["fli ghts"]', "source.topics: 'fli ghts' is not a topic's name; for a pattern use source.pattern"),
    ('topics = ["flights"]', 'topics = ["flights"]\npattern = "f.*"', "source.pattern: cannot be combined with topics"),
    ('topics = ["flights"]', 'pattern = "f(.*"', "source.pattern: is not a regular expression: missing ), unterminated subpattern at position 1"),
    ('topics = ["flights"]', 'topics = ["flights"]\nstart = "erliest"', "source.start: must be earliest, latest, a time such as 2026-11-22T08:00:00Z, or offsets, not 'erliest'"),
    ('topics = ["flights"]', 'topics = ["flights"]\nstart = { fights = { "0" = 1 } }', "source.start.fights: is not one of source.topics"),
    ('topics = ["flights"]', 'topics = ["flights"]\nmax_records = 0', "source.max_records: must be 1 or more, not 0"),
    ('topics = ["flights"]', 'topics = ["flights"]\nmax_bytes = "lots"', "source.max_bytes: must be a size such as \"64MB\", not 'lots'"),
    ("[decode]", '[decode]\nformat = "jsn"', "decode.format: must be json or avro or protobuf or raw, not 'jsn'; did you mean json?"),
    ('schema = { number = "long", carrier = "string", delay = "double" }', 'format = "avro"', "decode.registry: is missing: avro needs a schema registry's URL"),
    ('"double" }', '"duble" }', "decode.schema.delay: 'duble' is not a type (bigint, binary, bool, boolean, byte, date, double, float, int, integer, long, short, smallint, string, timestamp, tinyint, decimal(P,S), array<>, map<,>, struct<name:type>)"),
    ("[decode]", '[decode]\non_error = "dead-letters"', "decode.on_error: dead-letters needs a table [dead_letters] with a topic"),
    ("[decode]", '[decode]\nrequired = ["nmber"]', "decode.required: 'nmber' is not in decode.schema"),
    (SCHEMA, 'format = "raw"\nregistry = "http://r:8081"', "decode.registry: raw records are not decoded; use json, avro or protobuf"),
    ("[decode]", '[decode]\nregistry = "r:8081"', "decode.registry: must be a URL (http://host:8081), not 'r:8081'"),
    ("[decode]", '[decode]\nregistry_user = "me"', "decode.registry_user: is for a registry"),
    ("[decode]", '[decode]\nschema_file = "x.proto"', "decode.schema_file: is for protobuf"),
    ("[decode]", '[decode]\nmessage = "X"', "decode.message: is for protobuf"),
    *((SCHEMA, f'format = "protobuf"{more}', line) for more, line in PROTOBUF),
    ("[[sinks]]", "[sinks]", "sinks: must be written [[sinks]], with two brackets, because there may be several"),
    ('format = "iceberg"', "", "sinks[1].format: is missing: iceberg, delta, parquet, topic"),
    ('format = "iceberg"', 'format = "hudi"', "sinks[1].format: must be iceberg or delta or parquet or topic, not 'hudi'"),
    ('table = "flights"', "", 'sinks[1].table: is missing: the table\'s name, "flights" or "namespace.flights"'),
    ('table = "flights"', 'table = "flights"\npartition_by = ["week(at)"]', "sinks[1].partition_by: 'week(at)' is not a column, year(c), month(c), day(c) or hour(c)"),
    ('table = "flights"', 'table = "flights"\nkey = ["id"]', "sinks[1]: column 'id' is not in decode.schema"),
    ('format = "iceberg"\ntable = "flights"', 'format = "parquet"\npath = "x"\nkey = ["number"]', "sinks[1].key: plain files cannot be changed; use iceberg or delta"),
    ('format = "iceberg"\ntable = "flights"', 'format = "topic"\ntopic = "flights"', "sinks: topic flights is also read by this pipeline, which would never end"),
    ("[[sinks]]", "[[steps]]\n[[sinks]]", "steps[1].sql: is missing: a step has sql or python"),
    ("[[sinks]]", '[[steps]]\nsql = "SELECT 1"\n[[sinks]]', "steps[1].sql: reads from input, the rows of the step before: SELECT … FROM input"),
    ("[[sinks]]", '[[steps]]\npython = "clean"\n[[sinks]]', "steps[1].python: must be module:function, without .py, not 'clean'"),
    ("[[sinks]]", '[watermark]\ncolumn = "_timestamp"\ndelay = "1m"\n[[sinks]]', 'watermark: with it records that cannot be decoded are left out; decode.on_error = "skip" says that this is meant'),
    ("[decode]", '[watermark]\ncolumn = "_timestamp"\n[decode]\non_error = "skip"', 'watermark.delay: is missing: how late rows may be, such as "10m"'),
    ("[decode]", '[watermark]\ncolumn = "when"\ndelay = "1m"\n[decode]\non_error = "skip"', "watermark.column: 'when' is not in decode.schema"),
    ("[decode]", '[watermark]\ncolumn = "number"\ndelay = "1m"\n[decode]\non_error = "skip"', "watermark.column: 'number' must be a timestamp, not bigint"),
    ('topics = ["flights"]', "topics = []", 'source.topics: is missing: topics = ["a"] or pattern = "a.*"'),
    ('table = "flights"', 'table = "flights"\ncatalog = { type = "glu" }', "sinks[1].catalog.type: must be sql, rest, hive, glue, dynamodb, bigquery, not 'glu'"),
    ("[[sinks]]", '[dead_letters]\ntopic = "d"\n[[sinks]]\nformat = "topic"\ntopic = "d"\n[[sinks]]', "dead_letters.topic: d is also the topic of a sink: dead letters need one of their own"),
    ("[[sinks]]", "[dead_letters]\n[[sinks]]", "dead_letters.topic: is missing: the topic for records that cannot be decoded"),
    ('topics = ["flights"]', 'pattern = "fl.*"\n[dead_letters]\ntopic = "fl.dead"', "dead_letters.topic: topic fl.dead matches source.pattern, which would never end"),
    ('topics = ["flights"]', 'topics = ["flights"]\n[[sinks]]\nformat = "topic"\ntopic = "out"\nkey_column = "nmber"', "sinks[1].key_column: 'nmber' is not in decode.schema"),
    ("[decode]", '[decode]\ntrigger = "10s"', "decode.trigger: there is no such key in [decode]: trigger stands above the first [table] of the file"),
    ('name = "flights"', 'name = "flights"\ntrigger = "once"', "trigger: must be a duration such as \"10s\", or \"available-now\", not 'once'"),
    ('name = "flights"', 'name = "flights"\ncheckpoint = "x"\n[[sinks]]\nformat = "delta"\npath = "./x"', "checkpoint: is also the path of sinks[1]"),
    ('"localhost:9092"', '"localhost:9²"', "kafka.bootstrap.servers: 'localhost:9²' is not host:port"),
    ('topics = ["flights"]', 'topics = ["flights"]\nstart = { flights = { "²" = 1 } }', "source.start.flights.²: must be partition = offset, not 1"),
    ('"localhost:9092"', '["localhost:9092"]', "kafka.bootstrap.servers: must be text or a number, not a list"),
    ('"localhost:9092"', '"localhost:9092"\n"sasl.username" = "me"', "kafka.sasl.username: is not used with security.protocol PLAINTEXT, but with SASL_SSL or SASL_PLAINTEXT"),
    ('"localhost:9092"', '"localhost:9092"\n"security.protocol" = "SASL_PLAINTEXT"\n"ssl.ca.location" = "ca.pem"', "kafka.ssl.ca.location: is not used with security.protocol SASL_PLAINTEXT, but with SSL or SASL_SSL"),
    ('topics = ["flights"]', 'topics = ["flights"]\nstart = 2026-11-22', "source.start: must be a time with its zone, 2026-11-22T00:00:00Z, not a date alone"),
    ('carrier = "string"', 'Number = "string"', "decode.schema.Number: differs from number in upper and lower case only: to Spark they are the same"),
    ("[decode]", '[decode]\nkey_column = "_offset"', "decode.key_column: a name of the pipeline's own columns"),
    (SCHEMA, 'format = "raw"\nkey_column = "id"', "decode.key_column: raw records have the column key"),
    (SCHEMA, 'format = "raw"\nrequired = ["id"]', "decode.required: raw records have no columns that could be missing; use json, avro or protobuf"),
    (SCHEMA, "debezium = true", "decode.schema: is missing: decode.debezium needs the columns"),
    (SCHEMA, 'on_error = "skip"\n[watermark]\ncolumn = "at"\ndelay = "1m"', "decode.schema: is missing: a watermark needs the columns"),
    ("[decode]", '[watermark]\ndelay = "1m"\n[decode]\non_error = "skip"', "watermark.column: is missing: the column with the time of the event"),
    ("[[sinks]]", "[sink]", "sink: there is no such key; did you mean sinks?"),
    ("[[sinks]]", "[[sink]]", "sink: there is no such key; did you mean sinks?"),
    ('format = "iceberg"', 'frmat = "iceberg"', "sinks[1].frmat: there is no such key in [sinks[1]]; did you mean format?"),
    ('table = "flights"', 'path = "flights"', "sinks[1].path: a sink of format iceberg has table instead"),
    ('format = "iceberg"', 'format = "delta"', "sinks[1].table: a sink of format delta has path instead"),
    ('format = "iceberg"\ntable = "flights"', 'format = "topic"\ntopic = "x"\npartition_by = ["number"]', "sinks[1].partition_by: there is no such key in [sinks[1]] (delivery, format, key_column, topic)"),
    ('table = "flights"', 'table = "flights"\npartition_by = ["day(carrier)"]', "sinks[1].partition_by: day(carrier): the column is string, not a timestamp or date"),
    ('carrier = "string"', 'carrier = "array<string>"\x00partition_by = ["carrier"]', "sinks[1].partition_by: 'carrier' is array<string>, which has no single value"),
    ('carrier = "string"', 'carrier = "array<string>"\x00key = ["carrier"]', "sinks[1].key: 'carrier' is array<string>, which has no single value"),
    ('carrier = "string"', 'carrier = "date"\x00partition_by = ["hour(carrier)"]', "sinks[1].partition_by: hour(carrier): a date has no hour; day(carrier)"),
    ('table = "flights"', 'table = "flights"\n[[sinks]]\nformat = "iceberg"\ntable = "default.flights"', "sinks: two sinks write to the same place"),
    ('table = "flights"', 'table = "flights"\n[spark]\nsql.shuffle.partitions = 4', 'spark.sql.shuffle.partitions: the names of Spark\'s settings begin with spark.; write "spark.sql.shuffle.partitions" = …'),
    ('table = "flights"', 'table = "flights"\n[spark]\n"spark.master" = "local[2]"', "spark.spark.master: has no effect here; it is the key master of the file"),
    ('table = "flights"', 'table = "flights"\n[spark]\n"spark.remote" = "sc://h"', "spark.spark.remote: has no effect here; a Spark Connect server is chosen by `run --remote`"),
    ('name = "flights"', 'name = "flights"\nmaster = "local[x]"', "master: must be local, local[N], spark://host:port, yarn or k8s://…, not 'local[x]'"),
    ('name = "flights"', 'name = "flights"\nmaster = "spark://h"', "master: must be local, local[N], spark://host:port, yarn or k8s://…, not 'spark://h'"),
    ("[[sinks]]", '[[steps]]\nsql = "DELETE FROM input"\n[[sinks]]', "steps[1].sql: a step is a query, SELECT … FROM input, and not DELETE"),
    ("[[sinks]]", '[[steps]]\nsql = "SELECT 1 FROM input; SELECT 2 FROM input"\n[[sinks]]', "steps[1].sql: a step is one query, and there is a semicolon within; each query has a [[steps]] of its own"),
    ('table = "flights"', 'table = "flights"\n[spark]\nmaster = "local[2]"', "spark.master: the names of Spark's settings begin with spark.; it is the key master of the file"),
    ("[[sinks]]", '[[steps]]\nsqll = "SELECT * FROM input"\n[[sinks]]', "steps[1].sqll: there is no such key in [steps[1]]; did you mean sql?"),
    ("[[sinks]]", '[[steps]]\npython = "cleaning.py:clean"\n[[sinks]]', "steps[1].python: must be module:function, without .py, not 'cleaning.py:clean'"),
    ('"localhost:9092"', '"kafka://localhost:9092"', "kafka.bootstrap.servers: 'kafka://localhost:9092' is not host:port"),
    ('topics = ["flights"]', 'topics = [".."]', "source.topics: '..' is not a topic's name; for a pattern use source.pattern"),
    ('topics = ["flights"]', 'topics = ["flights"]\nstart = 1969-12-31T00:00:00Z', "source.start: the time is before 1970, when the timestamps of records begin"),
    ('name = "flights"', 'name = "flights"\nmaster = "sc://h:15002"', "master: Spark Connect is chosen by `run --remote sc://h:15002`"),
    ('name = "flights"', 'name = "flights"\nmaster = "yarn-cluster"', "master: must be local, local[N], spark://host:port, yarn or k8s://…, not 'yarn-cluster'"),
    ('name = "flights"', 'name = "flights"\nsteps = ["SELECT * FROM input"]', "steps: must be tables ([[steps]]), not a list of other values"),
    ('"localhost:9092"', '"localhost:9092"\nacks = 1\n[dead_letters]\ntopic = "d"', "kafka: kafka.acks is '1': the sink writes with acks=all only, because a task that Spark counts as done must be durable"),
    ('"double" }', '"struct<x:double,X:int>" }', "decode.schema.delay: 'struct<x:double,X:int>': X differs from x in upper and lower case only: to Spark they are the same"),
    (SCHEMA, 'registry = "http://"', "decode.registry: must be a URL (http://host:8081), not 'http://'"),
    (SCHEMA, 'registry = "http://r:99999"', "decode.registry: must be a URL (http://host:8081), not 'http://r:99999'"),
    (SCHEMA, 'registry = "http://r r:1"', "decode.registry: must be a URL (http://host:8081), not 'http://r r:1'"),
    (SCHEMA, 'registry = "http://me:secret@r:1"', "decode.registry: must have no user in it; use registry_user and registry_password_env"),
    (SCHEMA, 'registry = "http://me:sec/ret@r:1"', "decode.registry: must be a URL (http://host:8081), not a text with an @"),
    (SCHEMA, 'registry = "http://r:1"\nregistry_user = "me"', "decode.registry_password_env: is missing: the environment variable with the password of registry_user"),
    (SCHEMA, 'registry = "http://r:1"\nregistry_password_env = "P"', "decode.registry_user: is missing: the user of registry_password_env"),
    ('format = "iceberg"', "format = 3", "sinks[1].format: must be text, not a number"),
    ('format = "iceberg"\ntable = "flights"', 'format = "topic"\ntopic = "__consumer_offsets"', "sinks[1].topic: __consumer_offsets is one of the brokers' own topics"),
    ('topics = ["flights"]', 'pattern = "__f.*"\n[dead_letters]\ntopic = "__f.dead"', "dead_letters.topic: topic __f.dead matches source.pattern, which would never end"),
    ("[[sinks]]", '[dead_letters]\ntopic = "_schemas"\n[[sinks]]', "dead_letters.topic: _schemas is one of the brokers' own topics"),
    ("[[sinks]]", '[[sinks]]\nformat = "delta"\npath = "a"\n[[sinks]]\nformat = "parquet"\npath = "a/b"\n[[sinks]]', "sinks[2].path: is inside the path of sinks[1]"),
    ("[[sinks]]", '[[sinks]]\nformat = "delta"\npath = "checkpoints"\n[[sinks]]', "checkpoint: is inside the path of sinks[1]"),
    ('"bootstrap.servers" = ', "bootstrap_servers = ", 'kafka.bootstrap.servers: is missing: "host:9092", several separated by commas; there is bootstrap_servers'),
    ('"bootstrap.servers" = ', '"kafka.bootstrap.servers" = ', 'kafka.kafka.bootstrap.servers: in [kafka] it is written "bootstrap.servers"'),
    ('"localhost:9092"', '"localhost:9092"\n"kafka.acks" = "all"', 'kafka.kafka.acks: in [kafka] it is written "acks"'),
    ('"double" }', '"map<int,double>" }', "decode.schema.delay: 'map<int,double>': the keys of a map are string, as names in JSON are"),
    ('topics = ["flights"]', 'pattern = ""', "source.pattern: is empty"),
    (SCHEMA, 'format = "avro"\nregistry = ["http://r:1"]', "decode.registry: must be text, not a list"),
    (SCHEMA, 'format = "protobuf"\nregistry = 5', "decode.registry: must be text, not a number"),
    (SCHEMA, 'format = "protobuf"\nschema_file = ["a.proto"]', "decode.schema_file: must be text, not a list"),
    ('table = "flights"', 'table = "flights"\npartition_by = [5]', 'sinks[1].partition_by: must be a list of names, such as ["a", "b"], not a list of other values'),
    ('topics = ["flights"]', 'topics = ["flights"]\nmax_records = 1.5', "source.max_records: must be a whole number, not 1.5"),
    ('name = "flights"', 'name = "flights"\ntrigger = "999999999d"', "trigger: must be 36500 days at most, not '999999999d'"),
    ("[[sinks]]", '[[steps]]\nsql = "SELECT \'input\' AS kind FROM flights"\n[[sinks]]', "steps[1].sql: reads from input, the rows of the step before: SELECT … FROM input"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_wrong_file_gets_one_clear_line(old: str, new: str, line: str, proto_files: None, tmp_path: Path) -> None:
    assert old in GOOD
    new, _, sink = new.partition("\0")
    assert problems(GOOD.replace(old, new, 1) + sink, tmp_path) == [line]


def test_a_list_of_no_sinks_is_none(tmp_path: Path) -> None:
    without = GOOD.partition("[[sinks]]")[0]
    line = "sinks: is missing: at least one [[sinks]] with a format"
    assert problems("sinks = []\n" + without, tmp_path) == [line] == problems(without, tmp_path)


def test_the_key_is_that_of_all_sinks() -> None:
    """A record without a column of any key is an error of its record, and does not stop the pipeline."""
    sinks = (IcebergSink("a"), IcebergSink("b", key=("id",)), DeltaSink("c", key=("region", "id")))
    assert Pipeline(name="p", kafka={}, source=Source(("t",)), sinks=sinks).key == ("id", "region")


def test_each_pipeline_of_a_program_has_its_own_checkpoint() -> None:
    """As that of a file has. They shared one, and the second was refused."""
    made = [Pipeline(name=name, kafka={}, source=Source(("t",)), sinks=()) for name in "pq"]
    assert [each.checkpoint for each in made] == ["checkpoints/p", "checkpoints/q"]


STEP = GOOD.replace("[[sinks]]", '[[steps]]\npython = "cleaning:clean"\n[[sinks]]')


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (None, "there is no module cleaning: neither cleaning.py beside the file, nor installed in this Python"),
        ("def celan(rows): ...", "cleaning.py has no function clean; did you mean celan?"),
        ("def clean(rows)", "cleaning.py is not Python: line 1, expected ':'"),
        ("def clean(rows): raise SystemExit", None),
        ("from elsewhere import clean", None),
        ("raise SystemExit\nfrom elsewhere import *", None),
        ("other = clean = print", None),
        ("clean = 5", "clean in cleaning.py is no function"),
        ("clean: list", "clean in cleaning.py is no function"),
        ("async def clean(rows): ...", "clean in cleaning.py is async: a step is a plain function"),
        ("def clean(): ...", "clean in cleaning.py must take one argument, a DataFrame"),
        ("def clean(rows, more): ...", "clean in cleaning.py must take one argument, a DataFrame"),
        ("def clean(rows, *, more): ...", "clean in cleaning.py must take one argument, a DataFrame"),
        ("class A:\n    def clean(self): ...", "cleaning.py has no function clean"),
        ("def outer():\n    clean = print", "cleaning.py has no function clean"),
        ("def clean(rows, more=1, *others, most=2): ...", None),
        ("def clean(*rows): ...", None),
        ("@step\ndef clean(): ...", None),
        ("def outer():\n    global clean\n    clean = print", None),
        ("try:\n    clean = None\n    from fast import clean\nexcept ImportError: ...", None),
        ("for clean in (len, print): ...", None),
        ("_, clean = 1, print", None),
    ],
)
def test_functions_of_steps_are_looked_for_without_running_them(
    module: str | None, line: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(STEP)
    if module is not None:
        (tmp_path / "cleaning.py").write_text(module)
    assert missing_functions(load(file)) == ([] if line is None else [f"steps[1].python: {line}"])


def test_a_file_may_begin_with_the_mark_of_windows(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(tmp_path / "pipeline.toml").name == "flights"


@pytest.mark.parametrize(
    ("topics", "pattern", "read"),
    [(("a", "b"), None, ["a", "b"]), ((), "a|c.*", ["a", "c1"]), ((), "(?i)C.", ["c1"]), ((), ".*", ["a", "b", "c1"])],
)
def test_which_topics_a_source_reads(topics: tuple[str, ...], pattern: str | None, read: list[str]) -> None:
    source = Source(topics=topics, pattern=pattern)
    internal = ["__transaction_state", "_schemas"]
    assert [topic for topic in ("a", "b", "c1", *internal) if source.reads(topic)] == read


def test_a_pattern_that_matches_what_the_pipeline_writes_is_refused_at_the_start_too() -> None:
    """A pipeline that a program made: it would read its own dead letters for ever."""
    pipeline = Pipeline(name="p", kafka={}, source=Source(pattern="p.*"), sinks=(), dead_letters=DeadLetters("p.dead"))
    spark: Any = None  # it is not asked
    with pytest.raises(PipelineError, match="topic p\\.dead is also read by this pipeline"):
        start(pipeline, spark)


def test_a_topic_is_written_to_once() -> None:
    """Each batch of it is one transaction: the rows of a sink would be taken for the dead letters once more, and be lost."""
    pipeline = Pipeline(name="p", kafka={}, source=Source(("t",)), sinks=(), dead_letters=DeadLetters("dead"))
    ours = backfill_of(pipeline, "again", (TopicSink("dead"),))
    spark: Any = None  # it is not asked
    with pytest.raises(PipelineError, match="topic dead is named twice"):
        Batches(ours, spark, [])


def test_a_range_does_not_go_into_a_topic_that_the_pattern_matches() -> None:
    """The pipeline that runs would read each of its records once more."""
    pipeline = Pipeline(name="p", kafka={}, source=Source(pattern="p.*"), sinks=())
    with pytest.raises(PipelineError, match="p-again is the one that is read"):
        replay_of(pipeline, "again", TopicSink("p-again"))
    with pytest.raises(click.UsageError, match="p-again is the topic that is read"):
        targets(pipeline, None, None, "p-again", same_sinks=False)


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("localhost:9092", "localhost").replace('"double" }', '"duble" }').replace("iceberg", "icebrg")
    assert len(problems(text, tmp_path)) == 3


def test_what_is_no_toml_or_no_file(tmp_path: Path) -> None:
    assert "is not TOML: " in problems("name = ", tmp_path)[0]
    with pytest.raises(PipelineError, match="No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="is not UTF-8"):
        load(tmp_path / "binary.toml")


def test_the_template_is_correct(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(template("new", "my-topic.v1", "localhost:9092"))
    pipeline = load(file)
    assert pipeline.source.topics == ("my-topic.v1",) and pipeline.sinks[0] == IcebergSink(
        table="my_topic_v1", warehouse="tables", partition_by=("day(_timestamp)",)
    )


def test_any_values_are_refused_in_words() -> None:
    for value in (7, True, "x", [1], datetime.now(UTC), {"a": 1}):
        for key in (
            "name",
            "kafka",
            "source",
            "decode",
            "steps",
            "sinks",
            "dead_letters",
            "watermark",
            "trigger",
            "spark",
        ):
            with pytest.raises(PipelineError) as raised:
                parse({key: value})
            assert all("\n" not in line and ": " in line for line in raised.value.problems)


@pytest.mark.parametrize("offset", ["Infinity", "NaN", "[]", '"x"'])
def test_offsets_that_are_none(offset: str) -> None:
    with pytest.raises(click.UsageError, match="is no JSON of offsets"):
        bound(f'{{"flights": {{"0": {offset}}}}}')


def test_a_stop_that_is_waited_for_in_vain_is_no_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 says that nothing was changed; the stop stays ordered."""
    file = str(tmp_path / "p.toml")
    assert run(["pipeline", "init", file]) == 0
    monkeypatch.setattr("kafkalite_pipelines.control.status", lambda _: {"state": "running"})
    monkeypatch.setattr("kafkalite_pipelines.control.request_stop", lambda *_: False)
    capsys.readouterr()
    assert run(["pipeline", "stop", file]) == 1
    assert "has not stopped within 120 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "sql",
    [
        "-- all of them\nSELECT * FROM input;",
        "/* SELECT */ (select * from input) union all (select * from input)",
        "WITH a AS (SELECT ';' AS b FROM input) SELECT * FROM a",
        "FROM input |> WHERE a > 1",
        "TABLE input",
    ],
)
def test_what_may_be_a_query(sql: str) -> None:
    assert no_query(sql) is None


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local[*, 4]", "spark://a:1,b:2", "yarn"])
def test_masters(master: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(f'master = "{master}"\n{GOOD}')
    assert load(tmp_path / "pipeline.toml").master == master
