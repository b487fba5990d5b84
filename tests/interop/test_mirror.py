"""MirrorMaker 2 between Apache Kafka and kafkalite: topics with their configuration, records, and where groups are."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import NEWEST_VERSION, JavaProcess, KafkaCluster, server_class_path, tool_command
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base, run_client, seen_by

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 300,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 6000,
    "auto.create.topics.enable": False,
}
_TOOLS = "org.apache.kafka.tools"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _properties(path: Path, source: str, target: str) -> Path:
    often = ("emit.checkpoints", "sync.group.offsets", "sync.topic.configs", "refresh.topics", "refresh.groups")
    lines = {
        "clusters": "old,new",
        "old.bootstrap.servers": source,
        "new.bootstrap.servers": target,
        "old->new.enabled": True,
        "old->new.topics": "orders",
        "old->new.groups": "readers",
        "old->new.sync.group.offsets.enabled": True,
        # Exact places, and not only ones that are not too far on.
        "old->new.offset.lag.max": 0,
        "old->new.sync.topic.acls.enabled": False,
        "new->old.enabled": True,
        "new->old.topics": "returns",
        "new->old.sync.topic.acls.enabled": False,
        "new->old.emit.heartbeats.enabled": False,
        # The brokers' defaults, which for kafkalite are three.
        "replication.factor": -1,
        **{f"{kind}.topic.replication.factor": -1 for kind in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{kind}.storage.replication.factor": -1 for kind in ("offset", "status", "config")},
        "new.exactly.once.source.support": "enabled",
        "old.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": True,
        "listeners": "http://127.0.0.1:0",
        "scheduled.rebalance.max.delay.ms": 1000,
        "offset.flush.interval.ms": 500,
        **{f"{way}.{kind}.interval.seconds": 1 for way in ("old->new", "new->old") for kind in often},
        "old->new.emit.heartbeats.interval.seconds": 1,
        "tasks.max": 2,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


class _Mirror(JavaProcess):
    def __init__(self, classes: str, properties: Path, log_path: Path) -> None:
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        super().__init__("MirrorMaker", classes, main, [str(properties)], log_path)


async def test_topics_go_between_apache_kafka_and_us_with_their_groups(
    service_classes: str, mirror_classes: str, tmp_path: Path
) -> None:
    async def tool(main: str, *arguments: str, stdin: bytes = b"") -> str:
        return (await run_client(tool_command(service_classes, main, *arguments), stdin=stdin)).decode()

    async def send(bootstrap: str, first: int, count: int, topic: str = "orders") -> None:
        """As many records from this number on with each codec."""
        for codec in _CODECS:
            text = "".join(f"codec:{codec}\tkey-{number}\t{codec}-{number}\n" for number in range(first, first + count))
            flags = (
                "--reader-property",
                "parse.key=true",
                "--reader-property",
                "parse.headers=true",
                "--compression-codec",
                codec,
            )
            where = ("--bootstrap-server", bootstrap, "--topic", topic)
            await tool(f"{_TOOLS}.ConsoleProducer", *where, *flags, stdin=text.encode())

    async def consumed(bootstrap: str, topic: str, count: int, *flags: str) -> list[str]:
        show = [f"--formatter-property=print.{each}=true" for each in ("key", "headers", "partition")]
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(count))
        return (await tool(f"{_TOOLS}.consumer.ConsoleConsumer", *where, *flags, *show)).splitlines()

    async def lags(bootstrap: str, topic: str) -> list[int]:
        """How far the group is behind in each partition that it has an offset for."""
        where = ("--bootstrap-server", bootstrap, "--all-groups", "--describe")
        out = await tool(f"{_TOOLS}.consumer.group.ConsumerGroupCommand", *where)
        rows = [line.split() for line in out.splitlines()]
        return [int(row[5]) for row in rows if row[:2] == ["readers", topic] and row[5] != "-"]

    async def described(bootstrap: str, topic: str) -> str:
        return await tool(f"{_TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, "--topic", topic, "--describe")

    def sent(first: int, count: int) -> list[str]:
        return [
            f"codec:{codec}\tkey-{number}\t{codec}-{number}"
            for codec in _CODECS
            for number in range(first, first + count)
        ]

    def texts(lines: list[str]) -> list[str]:
        return sorted(re.sub(r"Partition:\d+\t", "", line) for line in lines)

    source_settings = {"group.initial.rebalance.delay.ms": 0}
    with (
        KafkaCluster(
            tmp_path / "kafka", server_class_path(_base(), NEWEST_VERSION), nodes=1, settings=source_settings
        ) as source,
        ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as target,
    ):
        old, new = source.bootstrap, ",".join(target.bootstrap)
        configs = ("--config", "retention.ms=123456789", "--config", "max.message.bytes=2000000")
        where = ("--bootstrap-server", old, "--topic", "orders")
        await tool(f"{_TOOLS}.TopicCommand", *where, "--create", "--partitions", "3", *configs)
        await send(old, 0, 40)
        where = ("--bootstrap-server", new, "--topic", "returns")
        await tool(f"{_TOOLS}.TopicCommand", *where, "--create", "--partitions", "1", *configs)
        await send(new, 0, 5, "returns")
        mirror = _Mirror(mirror_classes, _properties(tmp_path / "mirror.properties", old, new), tmp_path / "mirror.log")
        try:
            mirror.launch()
            # The group reads a part, while it is mirrored.
            assert len(await consumed(old, "orders", 90, "--group", "readers", "--from-beginning")) == 90
            there = await seen_by(tool_command(service_classes, "ReadLines", new, "old.orders", "200"))
            assert len(there["lines"]) == 200
            while "retention.ms=123456789" not in (told := await described(new, "old.orders")):
                assert mirror.running, mirror.log_tail()
            assert "PartitionCount: 3\tReplicationFactor: 3" in told and "max.message.bytes=2000000" in told

            back = await seen_by(tool_command(service_classes, "ReadLines", old, "new.returns", "25"))
            assert back["lines"] == [f"{codec}-{number}" for codec in _CODECS for number in range(5)]
            while "retention.ms=123456789" not in await described(old, "new.returns"):
                assert mirror.running, mirror.log_tail()
            while not await lags(new, "old.orders"):
                assert mirror.running, mirror.log_tail()

            # Everything comes after a kill -9, once; so does a setting that changes.
            await asyncio.to_thread(mirror.kill)
            await send(old, 40, 20)
            altered = ("--entity-type", "topics", "--entity-name", "orders", "--add-config", "retention.ms=222222222")
            await tool(f"{_TOOLS}.ConfigCommand", "--bootstrap-server", old, "--alter", *altered)
            mirror.launch()
            await send(old, 60, 20)
            there = await seen_by(tool_command(service_classes, "ReadLines", new, "old.orders", "400"))
            assert len(there["lines"]) == 400
            isolation = ("--from-beginning", "--isolation-level", "read_committed")
            assert texts(await consumed(new, "old.orders", 400, *isolation)) == sorted(sent(0, 80))
            while "retention.ms=222222222" not in await described(new, "old.orders"):
                assert mirror.running, mirror.log_tail()

            # Once the group has read all of it here, it has there: nothing is left but the last transaction's marker.
            # (Where it is further behind, MirrorMaker knows its place roughly, and not beyond it.)
            assert len(await consumed(old, "orders", 310, "--group", "readers")) == 310
            while len(behind := await lags(new, "old.orders")) < 3 or max(behind) > 1:
                assert mirror.running, mirror.log_tail()
            await send(old, 80, 20)
            there = await seen_by(tool_command(service_classes, "ReadLines", new, "old.orders", "500"))
            assert len(there["lines"]) == 500
        finally:
            mirror.kill()
        committed = ("--group", "readers", "--isolation-level", "read_committed")
        assert texts(await consumed(new, "old.orders", 100, *committed)) == sorted(sent(80, 20))
