"""From a sink of the pipeline's file to one that is connected. A format's package is loaded only for a sink that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalite_pipelines.definition import (
    DeltaSink,
    IcebergSink,
    ParquetSink,
    Pipeline,
    PipelineError,
    Sink,
    TopicSink,
)
from kafkalite_pipelines.sinks.sink import OpenSink


def open_sink(pipeline: Pipeline, sink: Sink) -> OpenSink:
    """The sink, connected. Raises PipelineError: a package is missing, or the table cannot be used as it is described."""
    if isinstance(sink, IcebergSink):
        with _packages_of("Iceberg"):
            from kafkalite_pipelines.sinks.iceberg import IcebergTable
            from kafkalite_pipelines.sinks.iceberg_keyed import KeyedIcebergTable

        return (KeyedIcebergTable if sink.key else IcebergTable)(pipeline, sink)
    if isinstance(sink, DeltaSink):
        with _packages_of("Delta"):
            from kafkalite_pipelines.sinks.delta import DeltaSinkTable
            from kafkalite_pipelines.sinks.delta_keyed import KeyedDeltaTable

        return (KeyedDeltaTable if sink.key else DeltaSinkTable)(pipeline, sink)
    if isinstance(sink, ParquetSink):
        from kafkalite_pipelines.sinks.parquet import ParquetFiles

        return ParquetFiles(pipeline, sink)
    assert isinstance(sink, TopicSink)
    from kafkalite_pipelines.sinks.topics import TopicWriter

    return TopicWriter(pipeline, sink)


@contextmanager
def _packages_of(format_name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        text = f"{format_name} tables need a package: pip install 'kafkalite[pipelines]' ({error})"
        raise PipelineError(text) from None
