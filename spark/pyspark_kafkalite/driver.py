"""For a driver program: batch writes as short as with Spark's Kafka sink.

Spark takes no Python data source for a batch write without a mode, nor from a thread that has no active session. Both are
decided in the JVM before anything of ours is asked, so they are mended in the driver's Python, if it asks for that.
"""

from __future__ import annotations

import functools
from typing import Any

_NAME = "kafkalite"


def like_kafka() -> None:
    """From now on `df.write.format("kafkalite").save()` appends when no mode was given, and works in every thread.

    It replaces `DataFrameWriter.save` in this process; other formats are not touched. Not for Spark Connect, whose server
    needs no active session: give `.mode("append")` there.
    """
    from pyspark.sql.readwriter import DataFrameWriter

    original = DataFrameWriter.save
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        *args: Any,
        **options: Any,
    ) -> None:
        if (format or self._jwrite.source()).lower() == _NAME:
            _activate(self._spark)
            if mode is None and self._jwrite.curmode().name() == "ErrorIfExists":
                mode = "append"
        original(self, path, format, mode, *args, **options)

    DataFrameWriter.save = save


def _activate(spark: Any) -> None:
    """Make `spark` the active session of the JVM's thread that serves this one."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
