"""The file that `kafkalite pipeline init` writes: complete, with every choice in a comment."""

from __future__ import annotations

TEMPLATE = """\
# A pipeline of kafkalite: docs/pipelines.md. Check it with `kafkalite pipeline check FILE`.
name = "{name}"            # also the consumer group that shows how far behind the pipeline is
trigger = "10s"            # a batch every 10 s; "0s": as fast as possible; "available-now": what is there, then end
checkpoint = "checkpoints/{name}"

[kafka]                    # settings of Kafka's clients: security.protocol, sasl.*, ssl.*
"bootstrap.servers" = "{bootstrap}"

[source]
topics = ["{topic}"]       # or pattern = "orders-.*"
start = "earliest"         # "latest", a time (2026-11-22T08:00:00Z), or offsets: {{ {topic} = {{ "0" = 23 }} }}
# max_records = 1000000    # per batch
# max_bytes = "256MB"

[decode]
format = "json"            # "avro", "protobuf" (both with registry = "http://…"), "raw"
# schema = {{ number = "long", name = "string", at = "timestamp" }}    # without it: found in the records
# required = ["number"]    # records without it go to the dead letters
# debezium = true          # records are change events

[dead_letters]             # without it a record that cannot be decoded stops the pipeline
topic = "{name}.dead"

# [[steps]]                # SQL over the rows of the step before; _topic, _partition, _offset, _timestamp are columns
# sql = "SELECT * FROM input WHERE number > 0"

# [[steps]]                # a function of a DataFrame, in cleaning.py beside this file
# python = "cleaning:clean"

[[sinks]]                  # one or more: iceberg, delta, parquet, topic
format = "iceberg"
table = "{table}"
warehouse = "tables"       # a directory; [sinks.catalog] names another catalog (rest, hive, sql)
partition_by = ["day(_timestamp)"]
# key = ["number"]         # rows replace rows with this key; records without a value delete them
"""


def template(name: str, topic: str, bootstrap: str) -> str:
    """A file for one topic."""
    table = "".join(character if character.isalnum() else "_" for character in topic)
    return TEMPLATE.format(
        name=name, topic=topic, bootstrap=bootstrap, table=table if table[:1].isalpha() else f"t_{table}"
    )
