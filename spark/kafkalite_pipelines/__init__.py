"""Data pipelines from topics to tables and topics, exactly once, from a TOML file or a program (docs/pipelines.md).

Importing this package imports neither Spark nor a table format.
"""

from kafkalite_pipelines.definition import (
    DeadLetters,
    Decode,
    DeltaSink,
    IcebergSink,
    Maintenance,
    ParquetSink,
    Pipeline,
    PipelineError,
    PythonStep,
    Source,
    SqlStep,
    TopicSink,
)
from kafkalite_pipelines.reading import load, parse

__all__ = [
    "DeadLetters",
    "Decode",
    "DeltaSink",
    "IcebergSink",
    "Maintenance",
    "ParquetSink",
    "Pipeline",
    "PipelineError",
    "PythonStep",
    "Source",
    "SqlStep",
    "TopicSink",
    "load",
    "parse",
]
