"""What is read of Spark's checkpoint."""

from __future__ import annotations

from pathlib import Path

from kafkalite_pipelines.places import Checkpoint

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
