"""`kafkalite pipeline stop` says what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalite_cli.pipeline.command import pipeline
from kafkalite_pipelines import load
from kafkalite_pipelines.control import own
from kafkalite_pipelines.template import template


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (None, "flights does not run: it was never started"),
        ({"state": "ended", "host": "h", "pid": 1}, "flights does not run: its state is ended"),
        ({"state": "failed", "host": "h", "pid": 1}, "flights does not run: its state is failed"),
    ],
)
def test_a_pipeline_that_does_not_run_is_not_said_to_have_stopped(
    run: dict[str, object] | None, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "flights.toml"
    file.write_text(template("flights", "flights", "localhost:9092"))
    if run is not None:
        own(load(file)).write("run.json", json.dumps(run))
    result = CliRunner().invoke(pipeline, ["stop", str(file)])
    assert (result.exit_code, result.output) == (0, f"{line}\n")
