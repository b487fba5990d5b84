"""kafkalite for Spark: `spark.read.format("kafkalite")`, and likewise readStream, write and writeStream.

Spark imports every package whose name starts with pyspark_ to look for a `DefaultSource`, in every session: this
module therefore imports as little as it can.
"""

from pyspark_kafkalite.import_path import without_spark_core
from pyspark_kafkalite.source import KafkaliteDataSource

without_spark_core()

#: The name by which Spark finds the source.
DefaultSource = KafkaliteDataSource

__all__ = ["DefaultSource", "KafkaliteDataSource"]
