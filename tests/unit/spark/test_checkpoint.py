"""A checkpoint for Spark's own Kafka source: the offsets stay, our key goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalite.checkpoint import to_kafka

CONF = '{"batchWatermarkMs":0,"conf":{"a":"#kafkalite"}}'


def a_checkpoint(directory: Path, *, complete: bool = True) -> Path:
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
    (directory / "offsets" / "0").write_text(f'v1\n{CONF}\n{{"t":{{"0":5}}}}')
    (directory / "offsets" / "1").write_text(
        f'v1\n{CONF}\n{{"t": {{"0": 9}}, "#kafkalite": {{"ids": {{"t": "x"}}}}}}\n-'
    )
    (directory / "offsets" / ".1.crc").write_bytes(b"crc")
    if complete:
        (directory / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


def test_the_key_goes_and_the_offsets_stay(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    assert to_kafka(checkpoint) == 1
    assert (checkpoint / "offsets" / "0").read_text() == f'v1\n{CONF}\n{{"t":{{"0":5}}}}'
    assert (checkpoint / "offsets" / "1").read_text() == f'v1\n{CONF}\n{{"t":{{"0":9}}}}\n-'
    assert sorted(path.name for path in (checkpoint / "offsets").iterdir()) == ["0", "1"]
    assert to_kafka(checkpoint) == 0


def test_what_cannot_go_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is no checkpoint"):
        to_kafka(tmp_path)
    with pytest.raises(ValueError, match=r"the first batch of .* is not complete"):
        to_kafka(a_checkpoint(tmp_path, complete=False))
