"""What is read of Spark's checkpoint, and places that cannot be written to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kafkalite_pipelines import PipelineError
from kafkalite_pipelines.places import Checkpoint, Place
from kafkalite_pipelines.sinks import writing

OURS = '{"t": {"0": 23, "1": 7}, "#kafkalite": {"ids": {"t": "an id"}}}'


def test_the_offsets_of_a_batch_whatever_else_the_steps_join(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.last_batch() is None and checkpoint.offsets(0) is None
    (tmp_path / "offsets").mkdir()
    others = [[OURS], [OURS, "5"], ["5", OURS], ["-", OURS], ['{"logOffset":0}', OURS, "null"]]
    for number, lines in enumerate(others):
        (tmp_path / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
        assert checkpoint.offsets(number) == {"t": {"0": 23, "1": 7}}, lines
    assert checkpoint.last_batch() == 4


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    """Where a disk was full, the error did not say which one: that of the checkpoint or that of the tables."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PipelineError, match=f"^{file}/run.json cannot be written: "):
        Place(str(file)).write("run.json", "{}")
    rows = pa.record_batch({"n": [1]})
    with pytest.raises(PipelineError, match=f"^{file} cannot be written to: "):
        list(writing.files(iter([rows]), writing.Target(str(file), rows.schema, ()), "prefix"))
