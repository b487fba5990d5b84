"""Spring Kafka: listener containers that copy in transactions, with both protocols of groups, while nodes are killed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from .java_programs import JavaProgram, ToolBox, bounce, create_topics

pytestmark = [pytest.mark.timeout(900), pytest.mark.cluster]

_RECORDS = 20_000


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_spring_copies_exactly_once(
    system_test_classes: tuple[str, str], spring_classes: str, tmp_path: Path, protocol: str
) -> None:
    with ExitStack() as stack:
        tools = ToolBox(stack, tmp_path, system_test_classes[0])
        create_topics(tools.cluster, {"input": 4})
        acked = tools.seed("input", _RECORDS)
        program = stack.enter_context(
            JavaProgram(tmp_path, "spring", spring_classes, "SpringCopy", tools.bootstrap, protocol, _RECORDS)
        )
        program.prints("copied ")
        for node in tools.cluster.nodes:
            bounce(tools.cluster, node)
        program.until(lambda: program.has_ended, "through", 600)
        assert "COPIED" in program.lines(), program.output()[-3000:]
        consumer = tools.consumer("reader", "output", ends=True)
        consumer.until(lambda: consumer.has_ended, "at the end")
        assert sorted(map(int, consumer.lines())) == sorted(acked)
