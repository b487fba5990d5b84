"""What spark-submit runs: `spark-submit … job.py FILE`. The session has the settings of the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    from pyspark.sql import SparkSession

    from kafkalite_pipelines.control import supervise
    from kafkalite_pipelines.reading import load

    pipeline = load(Path(arguments[0]))
    return supervise(pipeline, SparkSession.builder.getOrCreate())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
