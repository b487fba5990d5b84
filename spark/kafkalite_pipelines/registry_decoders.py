"""Records whose schema is in a registry, decoded in Python by Spark's tasks: no jar, and no schema in the pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite_pipelines.cluster import positions
from kafkalite_pipelines.decoding import BODY, ERROR
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Reader(Protocol):
    def read(self, value: bytes) -> Any:
        """A value as a dict of what pyarrow takes. Raises ValueError: why it cannot be read."""
        ...


class RegistryDecoder:
    """Columns are those of the newest schema of `<topic>-value`: new columns appear with the first batch after it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._registry = Registry.of(pipeline.decode)

    def decode(self, records: DataFrame) -> DataFrame:
        columns, readers = self._readers()
        body = f"struct<{','.join(f'`{name}`:{kind}' for name, kind in columns.items())}>"
        result = f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in records.schema)}, {BODY} {body}, {ERROR} string"

        def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from kafkalite_pipelines.registry_rows import rows

            for batch in batches:
                yield rows(batch, readers, body)

        return records.mapInArrow(tasks, result)

    def _topics(self) -> list[str]:
        source = self._pipeline.source
        if source.pattern is None:
            return sorted(source.topics)
        return sorted({each.topic for each in positions(self._pipeline, {})})

    def _readers(self) -> tuple[dict[str, str], dict[str, Reader]]:
        """The columns of all topics together, and how each topic's values are read."""
        from kafkalite_pipelines import avro

        columns: dict[str, str] = {}
        readers: dict[str, Reader] = {}
        for topic in self._topics():
            schema = self._registry.latest(f"{topic}-value")
            found, readers[topic] = avro.columns(avro.parsed(schema)), avro.AvroReader(self._registry, schema)
            for name, kind in found.items():
                if columns.setdefault(name, kind) != kind:
                    raise PipelineError(
                        f"column {name} is {columns[name]} in one topic and {kind} in {topic}: use a pipeline for each"
                    )
        if not columns:
            raise PipelineError("no topic matches source.pattern: the columns are not known")
        return columns, readers


def registry_decoder(pipeline: Pipeline) -> RegistryDecoder:
    """Raises PipelineError: a package is missing."""
    try:
        __import__("fastavro" if pipeline.decode.format == "avro" else "google.protobuf")
    except ImportError as error:
        raise PipelineError(
            f"{pipeline.decode.format} needs a package: pip install 'kafkalite[pipelines]' ({error})"
        ) from None
    return RegistryDecoder(pipeline)
