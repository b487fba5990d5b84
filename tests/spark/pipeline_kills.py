"""A pipeline's process that is killed just before and just after a table's commit. Run by `make pipelines`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite_pipelines import load
from tests.spark.test_pipelines import iceberg, numbers, put, run

pytestmark = [pytest.mark.spark]

_VICTIM = """
import os, signal, sys
from pathlib import Path
from kafkalite_pipelines import load
from kafkalite_pipelines.control import supervise
from kafkalite_pipelines.sinks.iceberg import IcebergTable
from kafkalite_pipelines.session import session
when, commit = sys.argv[2], IcebergTable.commit
def planted(self, batch, *change):
    if when == "before" and batch.number == 1: os.kill(os.getpid(), signal.SIGKILL)
    added = commit(self, batch, *change)
    if when == "after" and batch.number == 1: os.kill(os.getpid(), signal.SIGKILL)
    return added
IcebergTable.commit = planted
pipeline = load(Path(sys.argv[1]))
supervise(pipeline, session(pipeline))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_around_its_commit(spark, log, when: str, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        f'name = "p"\ntrigger = "available-now"\nmaster = "local[2]"\n[kafka]\nbootstrap.servers = "{log.address}"\n'
        '[source]\ntopics = ["t"]\nmax_records = 10\n[decode]\nschema = { n = "long", name = "string" }\n'
        '[[sinks]]\nformat = "iceberg"\ntable = "t"\n'
    )
    put(log, 0, 30)
    victim = subprocess.run([sys.executable, "-c", _VICTIM, str(file), when], env=dict(os.environ), capture_output=True)
    assert victim.returncode == -signal.SIGKILL, victim.stderr[-2000:]
    assert len(numbers(iceberg(tmp_path).scan().to_arrow())) == (10 if when == "before" else 20)
    shown = run(spark, load(file))
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(30))
    assert [each.batch for each in shown] == ([1, 2] if when == "before" else [2])
