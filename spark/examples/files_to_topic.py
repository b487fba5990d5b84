"""Files to a topic: 336,776 flights from a CSV file, keyed by aircraft, as JSON."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from flights import arguments, ensure_topic, flights_csv, session
from pyspark.sql import functions as f


def main(argv: list[str] | None = None) -> int:
    given = arguments(__doc__, argv, rows="all")
    ensure_topic(given.bootstrap, given.topic)
    spark = session("files to topic")
    with tempfile.TemporaryDirectory() as directory:
        rows = spark.read.csv(str(flights_csv(Path(directory))), header=True)
        if given.rows != "all":
            rows = rows.limit(int(given.rows))
        began = time.monotonic()
        (
            rows.select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))
            .write.format("kafkalite")
            .option("kafkalite.bootstrap.servers", given.bootstrap)
            .option("topic", given.topic)
            .mode("append")
            .save()
        )
        print(f"{rows.count():,} rows to topic {given.topic} in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
