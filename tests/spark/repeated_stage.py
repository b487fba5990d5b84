"""A batch write whose stage Spark repeats, as a driver of its own: python repeated_stage.py DIRECTORY BOOTSTRAP TOPIC.

The first task has written half of its rows when the shuffle files disappear, so that another task fails to fetch them and Spark repeats the
stage. The first attempt of the first task then comes to its end; after that, the second one writes, and only then the last task. Files in DIRECTORY
say how far each is. Spark takes the message of the first attempt.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS = 400
#: Rows are large, so that pipes between Spark's processes do not keep them.
_PADDING = 20_000


def in_steps(directory: str, batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows, each task at its time."""
    from pyspark import TaskContext

    here, task = Path(directory), TaskContext.get().partitionId()

    def wait_for(name: str) -> None:
        deadline = time.monotonic() + 120
        while not (here / name).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(name)
            time.sleep(0.05)

    rows = list(batches)
    if task == 0 and not (here / "first-began").exists():
        (here / "first-began").touch()
        yield from rows[: len(rows) // 2]
        (here / "first-half").touch()
        wait_for("second-began")
        yield from rows[len(rows) // 2 :]
        (here / "first-ended").touch()
        return
    if task == 0:
        (here / "second-began").touch()
        wait_for("first-ended")
        yield from rows
        wait_for("never")  # Spark stops it when the others have ended
    if task == 1 and not (here / "lost").exists():
        wait_for("first-half")
        for each in (here / "local").glob("**/shuffle_*"):
            each.unlink()
        (here / "lost").touch()
    if task == 3:
        wait_for("second-wrote")
    yield from rows


def watch(directory: str, bootstrap: str, topic: str) -> None:
    """Say when the topic has more records than three tasks write."""
    from pyspark_kafkalite.columns import columns_of, spark_schema
    from pyspark_kafkalite.option_parsing import read_options
    from pyspark_kafkalite.reader import KafkaliteReader

    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_uncommitted",
    }
    reader = KafkaliteReader(read_options(given, streaming=False), columns_of(spark_schema(include_headers=False)))
    while sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each)) <= 3 * ROWS // 4:
        time.sleep(0.5)
    (Path(directory) / "second-wrote").touch()


def main(directory: str, bootstrap: str, topic: str) -> None:
    """Write, or raise as Spark does."""
    from pyspark.sql import SparkSession

    from pyspark_kafkalite import KafkaliteDataSource

    local = Path(directory) / "local"
    local.mkdir()
    settings = {
        "spark.local.dir": str(local),
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.sql.adaptive.enabled": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.dataSource.register(KafkaliteDataSource)
    frame = spark.range(0, ROWS, 1, 2).repartition(4)
    frame = frame.selectExpr("cast(id as string) as key", f"rpad(cast(id as string), {_PADDING}, ' ') as value")
    frame = frame.mapInArrow(lambda batches: in_steps(directory, batches), "key string, value string")
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "deliveryGuarantee": "exactly-once"}
    given["kafka.buffer.memory"] = "1"  # what a task has taken is sent
    threading.Thread(target=watch, args=(directory, bootstrap, topic), daemon=True).start()
    # the checkout has no hook that appends where no mode is given; the wheel has
    frame.write.format("kafkalite").options(**given).mode("append").save()
    spark.stop()
    shutil.rmtree(local, ignore_errors=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark_kafkalite.java import java_home

    os.environ["JAVA_HOME"] = java_home()
    main(*sys.argv[1:])
