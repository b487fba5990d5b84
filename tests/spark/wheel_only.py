"""The executors' Python has the wheel and five packages, none of the server's. `make sparks` runs it.

KAFKALITE_WORKER_PYTHON names a Python with those five only, KAFKALITE_WHEEL the wheel: unpacked as an installation would,
and sent along with --py-files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.spark.conftest import PATIENCE

JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
address, scratch, how = sys.argv[1:]
if how == "py-files":  # Spark looks for sources before it knows these files
    from pyspark_kafkalite import KafkaliteDataSource

    spark.dataSource.register(KafkaliteDataSource)

def here(batches):
    import importlib.util
    for name in ("aiozk", "uvloop", "structlog", "h11", "click", "rich", "prometheus_client"):
        assert importlib.util.find_spec(name) is None, f"{name} is there"
    yield from batches

def source(reader):
    return reader.format("kafkalite").option("kafka.bootstrap.servers", address).option("subscribe", "t")

rows = spark.range(0, 500, 1, 2).mapInArrow(here, "id long").selectExpr("cast(id as string) key", "cast(id as string) value")
rows.write.format("kafkalite").option("kafka.bootstrap.servers", address).option("topic", "t").mode("append").save()
assert source(spark.read).load().selectExpr("sum(cast(cast(value as string) as int))").first()[0] == sum(range(500))
if how == "py-files":  # nor do its processes on the driver that plan streams
    writer = source(spark.read).load().select("key", "value").write.mode("append")
else:
    writer = source(spark.readStream).option("startingOffsets", "earliest").load().select("key", "value").writeStream
    writer = writer.option("checkpointLocation", scratch + "/checkpoint").trigger(availableNow=True)
writer = writer.format("kafkalite").option("kafka.bootstrap.servers", address).option("topic", "once")
writer = writer.option("deliveryGuarantee", "exactly-once")
if how == "py-files":
    writer.save()
else:
    assert writer.start().awaitTermination(300)
"""


@pytest.mark.parametrize("how", ["installed", "py-files"])
def test_both_ways_with_the_wheel_alone(served, tmp_path: Path, how: str) -> None:
    import pyspark

    from pyspark_kafkalite.java import java_home

    served.log.add_topic("t", 2)
    served.log.add_topic("once", 2)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    python = os.environ["KAFKALITE_WORKER_PYTHON"]
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    wheel = os.environ["KAFKALITE_WHEEL"]
    if how == "installed":
        zipfile.ZipFile(wheel).extractall(tmp_path / "site")
        environment["PYTHONPATH"] = str(tmp_path / "site")
    if how == "py-files":  # Spark knows no .whl
        wheel = shutil.copy(wheel, str(tmp_path / "kafkalite.zip"))
    given = ["--py-files", str(wheel)] if how == "py-files" else []
    command = [
        f"{environment['SPARK_HOME']}/bin/spark-submit",
        "--master",
        "local[2]",
        *given,
    ]
    for name, value in ({"spark.ui.enabled": "false"} | PATIENCE).items():
        command += ["--conf", f"{name}={value}"]
    command += ["--conf", f"spark.local.dir={tmp_path}", "--conf", f"spark.sql.warehouse.dir={tmp_path}"]
    done = subprocess.run(
        [*command, str(job), served.address, str(tmp_path), how],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found = sorted(int(r.value) for partition in (0, 1) for r in served.log.records("once", partition))
    assert found == list(range(500))
