"""Records that have no text for Spark to read: decoded in Python by Spark's tasks, with columns of a registry or a schema file.

JSON of a registry is the exception: it has a schema id in front, and Spark reads the text behind that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite_pipelines.cluster import positions
from kafkalite_pipelines.decoding.readers import Reader
from kafkalite_pipelines.decoding.records import BODY, ERROR, Decoder, JsonDecoder
from kafkalite_pipelines.decoding.registry import RegistryAway, RegistryClient, RegistrySchema
from kafkalite_pipelines.definition import Pipeline, PipelineError, is_own

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PACKAGES = {"avro": ("fastavro",), "protobuf": ("google.protobuf", "proto_schema_parser"), "json": ()}


class RegistryDecoder:
    """Columns are those of the newest schema of `<topic>-value`: new columns appear with the first batch after it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._registry = RegistryClient.of(pipeline.decode)

    def decode(self, records: DataFrame) -> DataFrame:
        columns, readers = self._readers()
        return _decoded(records, columns, readers)

    def schemas(self) -> Mapping[str, int]:
        return _ids(self._pipeline, self._registry)

    def _readers(self) -> tuple[dict[str, str], dict[str, Reader]]:
        """The columns of all topics together, and how each topic's values are read."""
        found = {topic: self._reader(schema) for topic, schema in newest(self._pipeline, self._registry).items()}
        columns = together({topic: columns for topic, (columns, _) in found.items()})
        return columns, {topic: reader for topic, (_, reader) in found.items()}

    def _reader(self, schema: RegistrySchema) -> tuple[dict[str, str], Reader]:
        if self._pipeline.decode.format == "protobuf":
            from kafkalite_pipelines.decoding.protobuf_readers import registry_reader

            return registry_reader(self._registry, schema, self._pipeline.decode)
        from kafkalite_pipelines.decoding import avro

        return avro.columns(avro.parsed(schema)), avro.AvroReader(self._registry, schema)


class FileDecoder:
    """Values in the message of a .proto file or descriptor set; nothing is in front of them."""

    def __init__(self, pipeline: Pipeline) -> None:
        from kafkalite_pipelines.decoding.protobuf_readers import file_reader

        self._columns, self._reader = file_reader(pipeline)
        together({"": self._columns})

    def decode(self, records: DataFrame) -> DataFrame:
        return _decoded(records, self._columns, self._reader)

    def schemas(self) -> Mapping[str, int]:
        return {}


class RegistryJsonDecoder:
    """JSON with a schema id in front. Columns are those of decode.schema, or of the newest schema of `<topic>-value`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._registry = RegistryClient.of(pipeline.decode)

    def decode(self, records: DataFrame) -> DataFrame:
        decode = self._pipeline.decode
        if decode.columns:
            return JsonDecoder(decode.columns, debezium=decode.debezium, framed=True).decode(records)
        return JsonDecoder(self._columns(), framed=True).decode(records)

    def schemas(self) -> Mapping[str, int]:
        return {} if self._pipeline.decode.columns else _ids(self._pipeline, self._registry)

    def _columns(self) -> dict[str, str]:
        from kafkalite_pipelines.decoding import json_schema

        found = newest(self._pipeline, self._registry)
        return together({topic: json_schema.columns(schema) for topic, schema in found.items()})


def topics_of(pipeline: Pipeline) -> list[str]:
    source = pipeline.source
    if source.pattern is None:
        return sorted(source.topics)
    return sorted({each.topic for each in positions(pipeline, {})})


def newest(pipeline: Pipeline, registry: RegistryClient) -> dict[str, RegistrySchema]:
    """The newest schema of each topic. One that matches the pattern is left out until it has a schema: producers register it with
    their first record.

    Raises:
        PipelineError: a topic that the file names has no schema, or none has; the registry does not answer.
    """
    found: dict[str, RegistrySchema] = {}
    missing: PipelineError | None = None
    for topic in topics_of(pipeline):
        try:
            found[topic] = registry.latest(f"{topic}-value")
        except RegistryAway:
            raise
        except PipelineError as error:
            if pipeline.source.pattern is None:
                raise
            missing = error
    if missing is not None and not found:
        raise missing
    return found


def _ids(pipeline: Pipeline, registry: RegistryClient) -> dict[str, int]:
    return {topic: schema.id for topic, schema in newest(pipeline, registry).items()}


def together(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """The columns of several topics as those of one table. Raises PipelineError: they do not fit."""
    columns: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for topic, theirs in found.items():
        if not theirs:
            raise PipelineError(f"the schema of {topic} has no fields: they would be the columns")
        for name, kind in theirs.items():
            if is_own(name):
                raise PipelineError(f"the schema has a field {name}, and this name is the pipeline's own")
            if (other := spelt.setdefault(name.lower(), name)) != name:
                raise PipelineError(
                    f"the schema has the fields {other} and {name}, whose names differ in upper and lower case only: "
                    "to Spark they are the same"
                )
            if columns.setdefault(name, kind) != kind:
                raise PipelineError(
                    f"column {name} is {columns[name]} in one topic and {kind} in {topic}: use a pipeline for each"
                )
    if not columns:
        raise PipelineError("no topic matches source.pattern: the columns are not known")
    return columns


def _decoded(records: DataFrame, columns: dict[str, str], readers: dict[str, Reader] | Reader) -> DataFrame:
    body = f"struct<{','.join(f'`{name}`:{kind}' for name, kind in columns.items())}>"
    result = (
        f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in records.schema)}, {BODY} {body}, {ERROR} string"
    )

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from kafkalite_pipelines.decoding.registry_rows import rows

        for batch in batches:
            yield rows(batch, readers, body)

    return records.mapInArrow(tasks, result)


def registry_decoder(pipeline: Pipeline) -> Decoder:
    """Raises PipelineError: a package is missing, or the schema file is wrong."""
    decode = pipeline.decode
    try:
        for package in _PACKAGES[decode.format]:
            __import__(package)
    except ImportError as error:
        raise PipelineError(f"{decode.format} needs a package: pip install 'kafkalite[pipelines]' ({error})") from None
    if decode.format == "json":
        return RegistryJsonDecoder(pipeline)
    return FileDecoder(pipeline) if decode.schema_file is not None else RegistryDecoder(pipeline)
