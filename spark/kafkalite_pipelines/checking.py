"""What `kafkalite pipeline check` looks at beside the file: this Python's modules, pyiceberg's configuration, and Spark if asked to."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.errors import ConfigError
from kafkalite.security.dialling import KEYS, ClientSecurity
from kafkalite_pipelines.decoding.registry import RegistryClient
from kafkalite_pipelines.definition import DeltaSink, IcebergSink, ParquetSink, Pipeline, PipelineError, SqlStep
from kafkalite_pipelines.steps import missing_functions, step_error
from kafkalite_pipelines.storage_settings import wrong_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: pyiceberg's types of catalogs that are found by their address.
_WITH_URI = {"rest": "http://host:8181", "hive": "thrift://host:9083", "sql": "postgresql+psycopg2://host/db"}
#: What pyarrow opens, which keeps checkpoints and writes plain files.
_ARROW = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
#: Their addresses begin so.
_SCHEMES = {"rest": r"https?://.", "hive": r"thrift://.", "sql": r"[a-z0-9+]+://"}
_WITH_BUCKET = ("s3", "s3a", "s3n", "gs", "gcs", "oss")
#: A URI with a slash too few, which would be a directory `s3:` here.
_ONE_SLASH = re.compile(r"(file|s3a?|s3n|gs|gcs|hdfs|abfss?|az|wasbs?|oss):(?!//)")
_NUMBER, _BOOLEAN = (r"[0-9]{1,18}", "a whole number"), ("true|false", "true or false")
#: Names -> the values that they may have, and how these are called.
_ICEBERG_PROPERTIES = {
    "format-version": ("[12]", "1 or 2"),
    r"write\.format\.default": ("parquet", "parquet"),
    r"write\.parquet\.compression-codec": (
        "zstd|gzip|snappy|lz4|brotli|uncompressed|none",
        "zstd, gzip, snappy, lz4, brotli or uncompressed",
    ),
    r"(write|commit|history)\..*(-bytes|-limit|-ms|-level|-retries|-to-merge|-max|-to-keep)": _NUMBER,
    r"(write|commit)\..*\.enabled": _BOOLEAN,
}
_DELTA_PROPERTIES = {
    r"delta\.(appendOnly|enableChangeDataFeed|enableDeletionVectors|autoOptimize\..*)": _BOOLEAN,
    r"delta\.(checkpointInterval|targetFileSize)": (r"[1-9][0-9]{0,17}", "a whole number from 1 on"),
    r"delta\.dataSkippingNumIndexedCols": (r"-1|[0-9]{1,9}", "a whole number, or -1 for all columns"),
    r"delta\.(logRetentionDuration|deletedFileRetentionDuration)": (
        r"(?i)interval \d+ (nanosecond|microsecond|millisecond|second|minute|hour|day|week)s?",
        '"interval 7 days"',
    ),
    r"delta\.columnMapping\.mode": ("none", "none: files are written with the columns' names"),
}
#: Of Spark: the settings whose wrong values are easily written.
_SPARK_SETTINGS = {
    r"spark\.(driver|executor|task)\.cores|spark\.executor\.instances|spark\.task\.maxFailures": _NUMBER,
    r"spark\.(sql\.shuffle\.partitions|default\.parallelism)": _NUMBER,
    r"spark\.(driver|executor)\.(memory|memoryOverhead|pyspark\.memory|maxResultSize)": (
        "[0-9]+([kmgtp]?b|[kmgtp])?",
        'a size such as "2g"',
    ),
    r"spark\.(sql|python|streaming|executor|driver|dynamicAllocation|speculation|ui|eventLog)\.(.*\.)?enabled": _BOOLEAN,
}
_DELTA = (*_ARROW, "s3a", "az", "azure", "adl", "https")
_ICEBERG = (*_ARROW, "s3a", "s3n", "oss", "wasb", "wasbs", "hf")


def problems_around(pipeline: Pipeline) -> list[str]:
    """A line for each mistake that is found without Spark and without a connection."""
    return [
        *missing_functions(pipeline),
        *_wrong_places(pipeline),
        *_wrong_catalogs(pipeline),
        *_wrong_properties(pipeline),
        *wrong_storage(pipeline),
        *_wrong_spark(pipeline),
        *_missing_secrets(pipeline),
    ]


def _wrong_spark(pipeline: Pipeline) -> list[str]:
    """Spark refuses some values when it starts, in a stack of Java's, and some at the first batch."""
    return [
        f"spark.{name}: must be {example}, not {value!r}"
        for name, value in pipeline.spark.items()
        for pattern, (right, example) in _SPARK_SETTINGS.items()
        if re.fullmatch(pattern, name) and not re.fullmatch(right, value, re.IGNORECASE)
    ]


def _missing_secrets(pipeline: Pipeline) -> list[str]:
    """Files of TLS and passwords that are not on this host, or not as they must be."""
    decode = pipeline.decode
    problems = []
    try:
        if (security := ClientSecurity.parse({k: v for k, v in pipeline.kafka.items() if k in KEYS})) is not None:
            security.open()
    except ConfigError as error:
        problems.append(f"kafka: {error}")
    if decode.registry is not None and decode.format != "raw":
        try:
            RegistryClient.of(decode)
        except PipelineError as error:
            problems += error.problems
    return problems


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
        scheme, separator, rest = place.partition("://")
        if (problem := _no_place(place, scheme, rest)) is not None:
            problems.append(f"{key}: {problem}")
            continue
        if not separator and (file := _file_on_the_way(Path(pipeline.place(place)))) is not None:
            problems.append(f"{key}: {file} is a file, and a directory is needed there")
        if separator and scheme not in known:
            problems.append(f"{key}: {scheme}:// is not a file system that can be written to ({', '.join(known)})")
    return problems


def _no_place(place: str, scheme: str, rest: str) -> str | None:
    """What is wrong with the text of a path or URI; None: nothing."""
    if (found := _ONE_SLASH.match(place)) is not None and not rest:
        return f"{place!r} is neither a path nor a URI: {found[1]}://…"
    if place.startswith(("~", "$")):
        return f"{place!r} would be a directory of that name, because ~ and $ are not expanded: write the whole path"
    if scheme in _WITH_BUCKET and not rest.strip("/"):
        return f"{place} names no bucket: {scheme}://bucket/path"
    return None


def _file_on_the_way(place: Path) -> Path | None:
    """The file, if any, in whose place there would have to be a directory."""
    return next((each for each in (place, *place.parents) if each.exists() and not each.is_dir()), None)


def _wrong_catalogs(pipeline: Pipeline) -> list[str]:
    problems = []
    for number, sink in enumerate(pipeline.sinks, 1):
        if not isinstance(sink, IcebergSink):
            continue
        if not sink.catalog:
            if "://" in sink.warehouse:
                problems.append(
                    f"sinks[{number}].catalog: is missing: without it the catalog is SQLite in a local warehouse, "
                    f"not in {sink.warehouse}"
                )
            continue
        name = sink.catalog.get("name", "default")
        configured = _pyiceberg_configuration(name)
        kind = sink.catalog.get("type") or configured.get("type", "")
        example = _WITH_URI.get(kind, _WITH_URI["rest"])
        uri = sink.catalog.get("uri", configured.get("uri"))
        if uri is None and (not kind or kind in _WITH_URI):
            problems.append(
                f'sinks[{number}].catalog.uri: is missing: "{example}", or pyiceberg\'s configuration of catalog {name}'
            )
        elif uri is not None and kind in _SCHEMES and not re.match(_SCHEMES[kind], uri):
            problems.append(f'sinks[{number}].catalog.uri: is not the address of a {kind} catalog, such as "{example}"')
    return problems


def _wrong_properties(pipeline: Pipeline) -> list[str]:
    """Of tables: what pyiceberg and deltalake would refuse at the first batch, or would write into the table unread."""
    problems = []
    for number, sink in enumerate(pipeline.sinks, 1):
        if isinstance(sink, IcebergSink | DeltaSink):
            check = _wrong_iceberg_property if isinstance(sink, IcebergSink) else _wrong_delta_property
            for name, value in sink.properties.items():
                if (problem := check(name, value)) is not None:
                    problems.append(f"sinks[{number}].properties.{name}: {problem}")
            if isinstance(sink, DeltaSink) and sink.key and sink.properties.get("delta.appendOnly") == "true":
                problems.append(f"sinks[{number}].properties.delta.appendOnly: rows of a table with a key are replaced")
    return problems


def _wrong_iceberg_property(name: str, value: str) -> str | None:
    if name.startswith("kafkalite."):
        return "this name is the pipeline's own"
    for pattern, (right, example) in _ICEBERG_PROPERTIES.items():
        if re.fullmatch(pattern, name) and not re.fullmatch(right, value):
            return f"must be {example}, not {value!r}"
    return None


def _wrong_delta_property(name: str, value: str) -> str | None:
    for pattern, (right, example) in _DELTA_PROPERTIES.items():
        if re.fullmatch(pattern, name) and not re.fullmatch(right, value):
            return f"must be {example}, not {value!r}"
    try:
        import pyarrow as pa
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError
    except ImportError:
        return None
    columns = Schema.from_arrow(pa.schema([("column", pa.int64())]))
    try:  # deltalake refuses names that it does not know before it looks at the place
        DeltaTable.create(f"memory:///{uuid.uuid4().hex}", columns, configuration={name: value})
    except DeltaError as error:
        if "parsing property" in str(error):
            return "deltalake knows no such property of a table"
        if "is invalid, valid values are" in str(error):
            return str(error).partition(": ")[2].removeprefix("Generic delta kernel error: ")
    return None


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
