"""What Spark's processes import of ours: executors to read a partition and to write one, over real sockets, and those on the
driver that only plan; each in an interpreter of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.option_parsing import read_options, write_options
from pyspark_kafkalite.reader import KafkaliteReader
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.writer import KafkaliteWriter

READ = "rows = sum(batch.num_rows for batch in task.read(work))"
WRITE = "import pyarrow; rows = task.write(iter([pyarrow.RecordBatch.from_pydict({'value': work})])).rows"
#: A worker brings pyspark and what its own worker module needs before anything of ours.
CODE = """
import pickle, sys
import pyspark.sql.datasource, pyspark.sql.types, pyspark.cloudpickle, numpy, pyarrow
before = set(sys.modules)
task, work = pickle.load(sys.stdin.buffer)
{act}
ours = sorted(set(sys.modules) - before)
print(rows, *ours)
"""

#: The server, its tasks and their packages; and the whole other half of the source.
SERVER = {
    "asyncio", "uvloop", "aiozk", "structlog", "h11", "prometheus_client", "rich", "click",
    "kafkalite.node", "kafkalite.controller", "kafkalite.replica", "kafkalite.log", "kafkalite.kafka",
    "kafkalite.coordination", "kafkalite.env", "kafkalite.telemetry", "kafkalite.config", "kafkalite.client.async_client",
}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "other_half"),
    [
        ("read", {"pandas", "pyspark_kafkalite.sending", "pyspark_kafkalite.encode", "pyspark_kafkalite.exactly_once"}),
        ("write", {"pyspark_kafkalite.fetching", "pyspark_kafkalite.decode", "pyspark_kafkalite.cluster"}),
    ],
)
def test_a_task_imports_nothing_of_the_server(served, what: str, other_half: set[str]) -> None:
    served.log.add_topic("t", 1)
    given = {"kafka.bootstrap.servers": served.address}
    task: Any
    work: Any
    if what == "read":
        served.log.put("t", 0, (b"k", b"v"), (b"k", b"w"))
        reader = KafkaliteReader(
            read_options({**given, "subscribe": "t"}, streaming=False), columns_of(spark_schema(include_headers=True))
        )
        task, work, act = reader, reader.partitions()[0], READ
    else:
        shape = row_shape(StructType([StructField("value", BinaryType())]), "t")
        task, work, act = KafkaliteWriter(write_options({**given, "topic": "t"}), shape), [b"v", b"w"], WRITE
    assert pickle.loads(cloudpickle.dumps((task, work)))
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(act=act)],
        input=cloudpickle.dumps((task, work)), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    rows, *modules = done.stdout.decode().split()
    assert int(rows) == 2
    assert (SERVER | other_half).isdisjoint(modules)


#: What Spark's planning processes do with a source; they bring less than a worker.
PLAN = """
import sys
import pyspark.sql.datasource, pyspark.sql.types
before = set(sys.modules)
from pyspark_kafkalite import KafkaliteDataSource

source = KafkaliteDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "topic": "t"})
schema = source.schema()
source.reader(schema)
source.writer(schema, False)
source.streamWriter(schema, False)
print(*sorted(set(sys.modules) - before))
"""


def test_planning_imports_no_arrow_no_messages_and_not_what_tasks_do() -> None:
    """Spark starts several such processes per job."""
    done = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    modules = set(done.stdout.decode().split())
    assert "pyspark_kafkalite.stream_writer" in modules
    assert {"pyarrow", "numpy", "msgpack", "kafkalite.rpc.messages", "pyspark_kafkalite.sending"}.isdisjoint(modules)
