"""What Spark sees: `format("kafkalite")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_kafkalite.option_parsing import include_headers, read_options, write_options
from pyspark_kafkalite.options import OptionError
from pyspark_kafkalite.worker_memory import keep_modules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_kafkalite.reader import KafkaliteReader
    from pyspark_kafkalite.refused import RefusedStreamReader
    from pyspark_kafkalite.stream_reader import KafkaliteStreamReader
    from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter
    from pyspark_kafkalite.writer import KafkaliteWriter


class KafkaliteDataSource(DataSource):  # type: ignore[misc]
    """Topics as tables: batch and streams, both ways. Options are those of Spark's Kafka source (see `options`).

    Built again in another process for every plan, so it keeps nothing but its options; what a use needs is imported
    at that use.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkalite"

    def schema(self) -> StructType:
        from pyspark_kafkalite.columns import spark_schema

        schema = spark_schema(include_headers=include_headers(self.options))
        keep_modules()
        return schema

    def reader(self, schema: StructType) -> KafkaliteReader:
        from pyspark_kafkalite.columns import columns_of
        from pyspark_kafkalite.reader import KafkaliteReader

        return KafkaliteReader(read_options(self.options, streaming=False), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> KafkaliteWriter:  # noqa: FBT001 - Spark calls it
        from pyspark_kafkalite.row_shape import row_shape
        from pyspark_kafkalite.writer import KafkaliteWriter

        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode append, or delete the topic and create it again")
        options = write_options(self.options)
        return KafkaliteWriter(options, row_shape(schema, options.topic))

    def streamReader(self, schema: StructType) -> KafkaliteStreamReader | RefusedStreamReader:
        from pyspark_kafkalite.columns import columns_of
        from pyspark_kafkalite.refused import RefusedStreamReader
        from pyspark_kafkalite.stream_reader import KafkaliteStreamReader

        try:
            return KafkaliteStreamReader(read_options(self.options, streaming=True), columns_of(schema))
        except OptionError as error:
            return RefusedStreamReader(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaliteStreamWriter:  # noqa: FBT001 - Spark calls it
        from pyspark_kafkalite.row_shape import row_shape
        from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter

        # overwrite is output mode complete: every batch appends the whole result, as in Spark's Kafka sink
        options = write_options(self.options, streaming=True)
        return KafkaliteStreamWriter(options, row_shape(schema, options.topic))
