"""For a driver program whose environment does not have the wheel installed: batch writes as short as with Spark's Kafka sink."""

from __future__ import annotations

import sys


def like_kafka() -> None:
    """From now on `df.write.format("kafkalite").save()` appends when no mode was given, and works in every thread.

    It replaces `DataFrameWriter.save` in this process; other formats are not touched. Where the wheel is installed this has happened
    already (`kafkalite_spark_start`, docs/adr/0055); a second call does nothing. With Spark Connect a write needs no mode either.
    """
    import pyspark.sql.readwriter  # noqa: F401

    import kafkalite_spark_start

    for name in kafkalite_spark_start.WRITERS:
        if name in sys.modules:  # Spark Connect's only if the program uses it
            kafkalite_spark_start.like_kafka(sys.modules[name].DataFrameWriter)
