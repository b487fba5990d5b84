"""The programs of Apache Kafka's own system tests: its transactional copier, and its smoke tests of Streams.

What they write they also check. The programs and the nodes are killed while they run, as there; one node after the other.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from kafkalite.testing.processes import ProcessCluster

from .java_programs import SETTINGS, JavaProgram, ToolBox, bounce, create_topics

pytestmark = [pytest.mark.timeout(900), pytest.mark.cluster]

_STREAMS = "org.apache.kafka.streams.tests"
_RECORDS = 30_000
_SMOKE_TOPICS = (
    ["echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed", "dif", "cnt", "avg", "wcnt", "tagg"]
)  # fmt: skip
_RELATIONAL_TOPICS = {"in-article": 3, "in-comment": 5, "out-augmented-article": 3, "out-augmented-comment": 5}


class _Copying:
    """Kafka's transactions_test: copiers of what is in a topic, in transactions of which a third is aborted."""

    def __init__(self, tools: ToolBox, *, partitions: tuple[int, int]) -> None:
        self._tools = tools
        create_topics(tools.cluster, {"input": partitions[0], "output": partitions[1]})
        self.copiers: list[JavaProgram] = []

    def copy(self, count: int, *flags: str) -> None:
        for number in range(count):
            self.copiers.append(
                self._tools.tool(
                    f"copier-{number}", "TransactionalMessageCopier", "--broker-list", self._tools.bootstrap, "--transactional-id",
                    f"copier-{number}", "--consumer-group", "copiers", "--input-topic", "input", "--output-topic", "output",
                    "--input-partition", number, "--transaction-size", 750, "--transaction-timeout", 40_000,
                    "--enable-random-aborts", *flags,
                )
            )  # fmt: skip

    def restart_each(self) -> None:
        """kill -9, when each has gone on a little."""
        for copier in self.copiers:
            self._restart(copier)

    def _restart(self, copier: JavaProgram) -> None:
        seen = len(list(copier.events()))
        copier.until(lambda: len(list(copier.events())) > seen + 3 or self._has_copied(copier), "going on")
        copier.kill()
        copier.start()

    @staticmethod
    def _has_copied(copier: JavaProgram) -> bool:
        """Nothing of its partitions is left: it says so with each transaction."""
        *_, last = [{"remaining": -1}, *(each for each in copier.events() if "remaining" in each)]
        return bool(last["remaining"] == 0)

    def finish(self) -> None:
        for copier in self.copiers:
            copier.until(partial(self._has_copied, copier), "through")


@pytest.mark.parametrize(
    ("killed", "partitions", "flags", "protocol"),
    [
        ("nodes", (2, 3), (), "consumer"),
        ("copiers", (2, 3), ("--use-group-metadata",), "classic"),
        ("nodes", (1, 1), ("--use-group-metadata",), "classic"),
        (
            "copiers",
            (9, 9),
            ("--use-group-metadata", "--group-mode"),
            "consumer",
        ),  # it copies a partition to its number
    ],
    ids=["nodes", "copiers", "order", "group"],
)
def test_copies_in_transactions_are_whole(
    system_test_classes: tuple[str, str],
    tmp_path: Path,
    killed: str,
    partitions: tuple[int, int],
    flags: tuple[str, ...],
    protocol: str,
) -> None:
    with ExitStack() as stack:
        tools = ToolBox(stack, tmp_path, system_test_classes[0])
        copying = _Copying(tools, partitions=partitions)
        acked = tools.seed("input", _RECORDS)
        copying.copy(3 if "--group-mode" in flags else partitions[0], *flags)
        beside = tools.consumer("beside", "output", protocol)
        if killed == "nodes":
            for node in tools.cluster.nodes:
                bounce(tools.cluster, node)
        else:
            for _ in range(3):
                copying.restart_each()
        copying.finish()
        afterwards = tools.consumer("afterwards", "output", protocol, ends=True)
        afterwards.until(lambda: afterwards.has_ended, "at the end")
        beside.until(lambda: len(beside.lines()) >= len(acked), "at the end")
        beside.kill()
        for consumer in (beside, afterwards):
            read = [int(line) for line in consumer.lines()]
            if partitions == (1, 1):
                assert read == acked
            else:
                assert sorted(read) == sorted(acked)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_smoke_test_of_streams(system_test_classes: tuple[str, str], tmp_path: Path, protocol: str) -> None:
    main = f"{_STREAMS}.StreamsSmokeTest"
    with ExitStack() as stack:
        cluster = stack.enter_context(ProcessCluster(tmp_path / "cluster", nodes=3, settings=SETTINGS))
        create_topics(cluster, dict.fromkeys(_SMOKE_TOPICS, 5))

        def program(name: str, command: str) -> JavaProgram:
            settings = {
                "state.dir": tmp_path / name,
                "bootstrap.servers": ",".join(cluster.bootstrap),
                "processing.guarantee": "exactly_once_v2",
                "group.protocol": protocol,
                "replication.factor": 3,
                "num.stream.threads": 3,
                "num.standby.replicas": 2,
                "commit.interval.ms": 1000,
                "auto.offset.reset": "earliest",
                "acks": "all",
                "acceptable.recovery.lag": 2**63 - 1,
                "session.timeout.ms": 10_000,
            }
            path = tmp_path / f"{name}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            return stack.enter_context(JavaProgram(tmp_path, name, system_test_classes[1], main, path, command))

        driver: JavaProgram | None = None
        for node in cluster.nodes:
            processor = program(f"processor-{node}", "process")
            processor.prints("REBALANCING -> RUNNING")
            driver = driver or program("driver", "run")
            processor.prints("processed")
            assert not driver.has_ended
            bounce(cluster, node)
            if node != max(cluster.nodes):
                processor.kill()
        assert driver is not None
        driver.until(lambda: driver.has_ended, "through")
        assert "SUCCESS" in driver.lines(), driver.output()[-3000:]


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_relational_smoke_test_of_streams(system_test_classes: tuple[str, str], tmp_path: Path, protocol: str) -> None:
    main = f"{_STREAMS}.RelationalSmokeTest"
    with ExitStack() as stack:
        cluster = stack.enter_context(ProcessCluster(tmp_path / "cluster", nodes=3, settings=SETTINGS))
        create_topics(cluster, _RELATIONAL_TOPICS)
        bootstrap = ",".join(cluster.bootstrap)

        def program(name: str, *arguments: object) -> JavaProgram:
            return stack.enter_context(JavaProgram(tmp_path, name, system_test_classes[1], main, *arguments))

        def processor(number: int) -> JavaProgram:
            name = f"processor-{number}"
            started = program(name, "application", bootstrap, name, "exactly_once_v2", protocol, tmp_path / name)
            started.prints("Streams has started")
            return started

        first, second = processor(1), processor(2)
        driver = program("driver", "driver", bootstrap)
        driver.prints("Consumed first Augmented")
        first.kill()
        bounce(cluster, 1)
        processor(3)
        second.kill()
        bounce(cluster, 2)
        driver.until(lambda: driver.has_ended, "through", 600)
        assert "Smoke test complete: passed" in driver.output(), driver.output()[-3000:]
