"""What `pipeline plan` says before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite_pipelines import Pipeline, Source, TopicSink, overview


def test_a_topic_is_not_called_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers know the batches of a topic, the pipeline does not: after a thousand batches the plan said `new`."""
    monkeypatch.setattr(overview, "positions", lambda *_: [])
    sinks = (TopicSink("out"), TopicSink("other", delivery="at-least-once"))
    pipeline = Pipeline(
        name="p", kafka={"bootstrap.servers": "h:9092"}, source=Source(("t",)), sinks=sinks, directory=tmp_path
    )
    assert overview.overview(pipeline, tmp_path / "p.toml")["sinks"] == [
        {"name": "topic out", "state": "exactly-once"},
        {"name": "topic other", "state": "at-least-once"},
    ]
