"""What `kafkalite pipeline check` looks at beside the file: this Python's modules, pyiceberg's configuration, and Spark if asked to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_pipelines.definition import DeltaSink, IcebergSink, ParquetSink, Pipeline, PipelineError, SqlStep
from kafkalite_pipelines.steps import missing_functions, step_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: pyiceberg's types of catalogs that are found by their address.
_WITH_URI = {"rest": "http://host:8181", "hive": "thrift://host:9083", "sql": "postgresql+psycopg2://host/db"}
#: What pyarrow opens, which keeps checkpoints and writes plain files.
_ARROW = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_DELTA = (*_ARROW, "s3a", "az", "azure", "adl", "https")
_ICEBERG = (*_ARROW, "s3a", "s3n", "oss", "wasb", "wasbs", "hf")


def problems_around(pipeline: Pipeline) -> list[str]:
    """A line for each mistake that is found without Spark and without a connection."""
    return [*missing_functions(pipeline), *_wrong_places(pipeline), *_catalogs_without_address(pipeline)]


def _wrong_places(pipeline: Pipeline) -> list[str]:
    places: list[tuple[str, str, tuple[str, ...]]] = [("checkpoint", pipeline.checkpoint, _ARROW)]
    for number, sink in enumerate(pipeline.sinks, 1):
        if isinstance(sink, ParquetSink):
            places.append((f"sinks[{number}].path", sink.path, _ARROW))
        elif isinstance(sink, DeltaSink):
            places.append((f"sinks[{number}].path", sink.path, _DELTA))
        elif isinstance(sink, IcebergSink):
            places.append((f"sinks[{number}].warehouse", sink.warehouse, _ICEBERG))
    problems = []
    for key, place, known in places:
        scheme, separator, _ = place.partition("://")
        if not separator and (file := _file_on_the_way(Path(pipeline.place(place)))) is not None:
            problems.append(f"{key}: {file} is a file, and a directory is needed there")
        if separator and scheme not in known:
            problems.append(f"{key}: {scheme}:// is not a file system that can be written to ({', '.join(known)})")
    return problems


def _file_on_the_way(place: Path) -> Path | None:
    """The file, if any, in whose place there would have to be a directory."""
    return next((each for each in (place, *place.parents) if each.exists() and not each.is_dir()), None)


def _catalogs_without_address(pipeline: Pipeline) -> list[str]:
    problems = []
    for number, sink in enumerate(pipeline.sinks, 1):
        if not isinstance(sink, IcebergSink) or not sink.catalog or "uri" in sink.catalog:
            continue
        name = sink.catalog.get("name", "default")
        configured = _pyiceberg_configuration(name)
        kind = sink.catalog.get("type") or configured.get("type", "")
        if "uri" in configured or (kind and kind not in _WITH_URI):
            continue
        example = _WITH_URI.get(kind, _WITH_URI["rest"])
        problems.append(
            f'sinks[{number}].catalog.uri: is missing: "{example}", or pyiceberg\'s configuration of catalog {name}'
        )
    return problems


def _pyiceberg_configuration(name: str) -> dict[str, str]:
    """What ~/.pyiceberg.yaml and PYICEBERG_CATALOG__… say of a catalog."""
    try:
        from pyiceberg.utils.config import Config
    except ImportError:
        return {}
    return {key: str(value) for key, value in (Config().get_catalog_config(name) or {}).items()}


def problems_in_spark(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """A line if Spark refuses the steps: all of them on no rows if the columns are known, else the grammar of each query.

    Python steps run on no rows, as at the start of `run`.
    """
    from kafkalite_pipelines.batches import Batches
    from kafkalite_pipelines.decoding.decoders import Decoding
    from pyspark_kafkalite.columns import spark_schema

    try:
        if Decoding(pipeline).known():
            Batches(pipeline, spark, []).prepared(spark.createDataFrame([], spark_schema(include_headers=True)))
            return []
    except PipelineError as error:
        return list(error.problems)
    return [
        str(problem)
        for step in pipeline.steps
        if isinstance(step, SqlStep) and (problem := _grammar_problem(step.sql, spark)) is not None
    ]


def _grammar_problem(sql: str, spark: SparkSession) -> Exception | None:
    from pyspark.errors import ParseException

    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException as error:
        return step_error(error, sql)
    return None
