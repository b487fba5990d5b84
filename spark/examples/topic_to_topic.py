"""Topic to topic, as a stream: late flights go to a topic of their own, keyed by airline.

Exactly once: kill it as often as you like and start it again with the same checkpoint, each late flight is there once for
readers with read_committed (Spark's reader here is one).
"""

from __future__ import annotations

import sys

from flights import arguments, ensure_flights, ensure_topic, session
from pyspark.sql import functions as f


def main(argv: list[str] | None = None) -> int:
    given = arguments(__doc__, argv, out="late-flights", checkpoint="late.checkpoint")
    ensure_topic(given.bootstrap, given.out)
    spark = session("topic to topic")
    ensure_flights(spark, given)
    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = f.col("value").cast("string")
    late = records.where(f.get_json_object(value, "$.dep_delay").try_cast("double") > 60)
    query = (
        late.select(f.get_json_object(value, "$.carrier").alias("key"), "value")
        .writeStream.format("kafkalite")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("topic", given.out)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = spark.read.format("kafkalite").option("kafka.bootstrap.servers", given.bootstrap)
    found = written.option("subscribe", given.out).schema("key binary").load()
    print(f"{found.count():,} late flights in topic {given.out}")
    found.groupBy(f.col("key").cast("string").alias("airline")).count().orderBy(f.desc("count")).show(6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
