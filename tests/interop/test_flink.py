"""Apache Flink's source and its exactly-once sink, with both ways to name transactions, while tasks fail and nodes are killed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from .java_programs import JavaProgram, ToolBox, bounce, create_topics

pytestmark = [pytest.mark.timeout(900), pytest.mark.cluster]

_RECORDS = 30_000
_FLAGS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")]


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_copies_exactly_once(
    system_test_classes: tuple[str, str], flink_classes: str, tmp_path: Path, naming: str
) -> None:
    with ExitStack() as stack:
        tools = ToolBox(stack, tmp_path, system_test_classes[0])
        create_topics(tools.cluster, {"input": 4, "output": 4})
        acked = tools.seed("input", _RECORDS)
        job = stack.enter_context(
            JavaProgram(
                tmp_path,
                "flink",
                flink_classes,
                "CopyOnce",
                tools.bootstrap,
                naming,
                tmp_path / "checkpoints",
                flags=_FLAGS,
            )
        )
        job.prints("FAILS")
        for node in tools.cluster.nodes:
            assert not job.has_ended, job.output()[-3000:]
            bounce(tools.cluster, node)
        job.until(lambda: job.has_ended, "through", 600)
        assert "COPIED" in job.lines(), job.output()[-3000:]
        consumer = tools.consumer("reader", "output", ends=True)
        consumer.until(lambda: consumer.has_ended, "at the end")
        assert sorted(map(int, consumer.lines())) == sorted(acked)
