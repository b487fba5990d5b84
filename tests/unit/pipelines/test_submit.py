"""The spark-submit command of a pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kafkalite_pipelines import parse
from kafkalite_pipelines.session import submit_command


def test_the_script_starts_as_spark_submit_starts_it(tmp_path: Path) -> None:
    """Its directory is the first in which Python searches: no module there may have the name of a standard one."""
    pipeline = parse(
        {
            "name": "p",
            "kafka": {"bootstrap.servers": "a:9092"},
            "source": {"topics": ["t"]},
            "sinks": [{"format": "iceberg", "table": "t"}],
        }
    )
    command = submit_command(pipeline, tmp_path / "nowhere.toml", "spark://host:7077")
    assert command[:3] == ["spark-submit", "--master", "spark://host:7077"]
    done = subprocess.run([sys.executable, *command[-2:]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("nowhere.toml: No such file or directory"), done.stderr
