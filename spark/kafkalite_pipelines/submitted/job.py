"""What spark-submit runs: `spark-submit … job.py FILE`. The session has the settings of the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Exit code 1 and a line for each mistake, without secrets: Spark's log is around it, and a stack would hide it."""
    from pyspark.sql import SparkSession

    from kafkalite.errors import KafkaliteError
    from kafkalite_pipelines import control
    from kafkalite_pipelines.definition import PipelineError
    from kafkalite_pipelines.reading import load
    from kafkalite_pipelines.redaction import secrets_of, without

    secrets: frozenset[str] = frozenset()
    try:
        pipeline = load(Path(arguments[0]))
        secrets = secrets_of(pipeline)
        return control.supervise(pipeline, SparkSession.builder.getOrCreate)
    except KafkaliteError as error:
        for line in error.problems if isinstance(error, PipelineError) else (str(error),):
            print(f"kafkalite: {without(secrets, line)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
