"""What `bench.spark_versions` runs in the environment of each Spark, where kafkalite is the wheel: reader, writer, streams.

    spark_versions_job.py MASTER BOOTSTRAP PREFIX SCRATCH       MASTER: local[2], spark://…, or sc://… (Spark Connect)

One line of JSON per check, {"check": NAME, "error": null or one line}. No import of this repository but the wheel's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

ROWS = 1_000


def main(master: str, bootstrap: str, prefix: str, scratch: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    spark = (builder.remote(master) if master.startswith("sc://") else builder.master(master)).getOrCreate()
    where = {"kafka.bootstrap.servers": bootstrap}

    def read(topic: str, options: dict[str, str]) -> Any:
        return spark.read.format("kafkalite").options(**where, **options, subscribe=topic).load()

    def numbers(topic: str, **options: str) -> tuple[int, int]:
        found = read(topic, options).selectExpr("count(*)", "sum(CAST(CAST(value AS string) AS bigint))").collect()[0]
        return int(found[0]), int(found[1] or 0)

    def writes() -> None:
        rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "CAST(id AS string) AS key", "CAST(id AS string) AS value")
        halves = [rows.where(f"id {sign} {ROWS // 2}").select("key", "value") for sign in ("<", ">=")]
        first, second = (half.write.format("kafkalite").options(**where, topic=f"{prefix}-in") for half in halves)
        first.mode("append").save()
        with ThreadPoolExecutor(1) as other:  # as Spark's own Kafka sink: from any thread, without a mode
            other.submit(second.save).result()

    def reads() -> None:
        found = numbers(f"{prefix}-in")
        assert found == (ROWS, sum(range(ROWS))), found

    def streams() -> None:
        source = spark.readStream.format("kafkalite").options(
            **where, subscribe=f"{prefix}-in", startingOffsets="earliest"
        )
        inputs = []
        for _ in range(2):  # the second run finds nothing new
            sink = source.load().select("key", "value").writeStream.format("kafkalite")
            sink = sink.options(**where, topic=f"{prefix}-out", deliveryGuarantee="exactly-once")
            sink = sink.option("checkpointLocation", f"{scratch}/{prefix}").queryName(prefix)
            query = sink.trigger(availableNow=True).start()
            assert query.awaitTermination(300), "has not ended"
            inputs.append(sum(progress.numInputRows for progress in query.recentProgress))
        found = numbers(f"{prefix}-out")
        if found != (ROWS, sum(range(ROWS))):  # not read, not written, or not visible yet?
            written = numbers(f"{prefix}-out", **{"kafka.isolation.level": "read_uncommitted"})
            later = numbers(f"{prefix}-out")
            raise AssertionError(
                f"{found}, then {later}; with read_uncommitted {written}; the queries had read {inputs}"
            )

    for name, check in (("writer", writes), ("reader", reads), ("stream", streams)):
        print(json.dumps({"check": name, "error": failure(check)}), flush=True)
    spark.stop()


def failure(check: Callable[[], None]) -> str | None:
    """What it raised, as one line."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - it is what this program reports
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
