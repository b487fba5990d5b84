"""From a sink of the pipeline's file to one that is connected. A format's package is loaded only for a sink that needs it."""

from __future__ import annotations

from kafkalite_pipelines.definition import DeltaSink, IcebergSink, ParquetSink, Pipeline, Sink, TopicSink
from kafkalite_pipelines.sinks.sink import OpenSink


def open_sink(pipeline: Pipeline, sink: Sink) -> OpenSink:
    """The sink, connected. Raises PipelineError: a package is missing, or the table cannot be used as it is described."""
    if isinstance(sink, IcebergSink):
        if sink.key:
            from kafkalite_pipelines.sinks.iceberg_keyed import KeyedIcebergTable

            return KeyedIcebergTable(pipeline, sink)
        from kafkalite_pipelines.sinks.iceberg import IcebergTable

        return IcebergTable(pipeline, sink)
    if isinstance(sink, DeltaSink):
        if sink.key:
            from kafkalite_pipelines.sinks.delta_keyed import KeyedDeltaTable

            return KeyedDeltaTable(pipeline, sink)
        from kafkalite_pipelines.sinks.delta import DeltaSinkTable

        return DeltaSinkTable(pipeline, sink)
    if isinstance(sink, ParquetSink):
        from kafkalite_pipelines.sinks.parquet import ParquetFiles

        return ParquetFiles(pipeline, sink)
    assert isinstance(sink, TopicSink)
    from kafkalite_pipelines.sinks.topics import TopicWriter

    return TopicWriter(pipeline, sink)
