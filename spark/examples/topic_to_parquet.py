"""A topic to Parquet files, as one batch: what the topic holds now."""

from __future__ import annotations

import sys

from flights import arguments, ensure_flights, parsed, session


def main(argv: list[str] | None = None) -> int:
    given = arguments(__doc__, argv, out="flights.parquet")
    spark = session("topic to Parquet")
    ensure_flights(spark, given)
    records = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        # the columns that are needed: Spark does not pass its own pruning to a Python source
        .schema("value binary")
        .load()
    )
    parsed(records).write.mode("overwrite").parquet(given.out)
    written = spark.read.parquet(given.out)
    print(f"{written.count():,} rows in {given.out}")
    written.groupBy("origin").count().orderBy("origin").show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
