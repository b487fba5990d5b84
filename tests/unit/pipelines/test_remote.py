"""Spark Connect: a batch runs in another process, and what it did comes back through files beside the checkpoint."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

from kafkalite_pipelines import parse, remote
from kafkalite_pipelines.batches import BatchResult
from kafkalite_pipelines.remote import RemoteBatches


def test_the_function_travels_and_results_come_back_once(tmp_path: Path) -> None:
    pipeline = parse(
        {
            "name": "p",
            "kafka": {"bootstrap.servers": "a:9092"},
            "source": {"topics": ["t"], "start": {"t": {"0": 5}}},
            "decode": {"schema": {"n": "long"}},
            "sinks": [{"format": "iceberg", "table": "t", "partition_by": ["day(_timestamp)"]}],
        },
        tmp_path,
    )
    assert pickle.loads(pickle.dumps(RemoteBatches(pipeline)))._pipeline == pipeline
    assert list(remote.results(pipeline)) == []
    done = [BatchResult(number, 3, 1, {"t": 2}, ("compacted",)) for number in (2, 10)]
    for result in reversed(done):
        remote._place(pipeline).write(f"{result.number}.json", json.dumps(dataclasses.asdict(result)))
    assert list(remote.results(pipeline)) == done
    assert list(remote.results(pipeline)) == []


def test_which_sessions_are_remote() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert remote.is_remote(session()) and not remote.is_remote(object())
