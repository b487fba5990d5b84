"""A windowed aggregation of a stream: mean departure delay per airport and week, up to what the topic holds now.

Run it again after more flights have been written: the checkpoint knows what was read. With
`.trigger(processingTime="5 seconds")` in place of availableNow it would go on for ever.
"""

from __future__ import annotations

import sys

from flights import arguments, ensure_flights, parsed, session
from pyspark.sql import functions as f

from pyspark_kafkalite.progress import behind


def main(argv: list[str] | None = None) -> int:
    given = arguments(__doc__, argv, checkpoint="delays.checkpoint", out="delays.parquet")
    spark = session("windowed aggregation")
    ensure_flights(spark, given)
    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    delays = (
        parsed(records)
        # the records of one partition are in order of departure, those of different partitions only roughly
        .withWatermark("time_hour", "400 days")
        .groupBy(f.window("time_hour", "7 days"), "origin")
        .agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("delay"))
    )

    def save(result, batch: int) -> None:
        result.selectExpr("window.start week", "origin", "flights", "delay").write.mode("overwrite").parquet(given.out)

    query = (
        delays.writeStream.outputMode("complete")
        .foreachBatch(save)
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"batch {progress['batchId']}: {progress['numInputRows']:,} rows, {behind(progress['sources'][0])}")
    spark.read.parquet(given.out).orderBy("week", "origin").show(12)
    return 0


if __name__ == "__main__":
    sys.exit(main())
