"""Apache Kafka's own tools, from its jars: they use our brokers, and they read our files."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import dump_log, dumped_batches, tool_command
from kafkalite.testing.loopback_cluster import LoopbackCluster
from tests.support.principals import SECURE, by_client_id

from .conftest import CLUSTER_SETTINGS, run_client, seen_by

pytestmark = [pytest.mark.timeout(400), pytest.mark.cluster]

_TOOLS = "org.apache.kafka.tools"
CLIENTS = Path(__file__).parent / "clients"


async def test_console_tools(kafka_classes: str, cluster: LoopbackCluster) -> None:
    async def tool(main: str, *arguments: str, stdin: bytes = b"") -> str:
        command = tool_command(kafka_classes, main, *arguments)
        return (await run_client(command, stdin=stdin)).decode()

    boot = ("--bootstrap-server", cluster.bootstrap)
    await tool(
        f"{_TOOLS}.TopicCommand",
        *boot,
        "--create",
        "--topic",
        "console",
        "--partitions",
        "3",
        "--config",
        "retention.ms=123456",
    )
    described = await tool(f"{_TOOLS}.TopicCommand", *boot, "--describe", "--topic", "console")
    assert "PartitionCount: 3" in described and "retention.ms=123456" in described
    assert len(re.findall(r"Isr: \d,\d,\d", described)) == 3
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        lines = "".join(f"codec:{codec}\tkey-{number}\t{codec}-{number}\n" for number in range(20)).encode()
        flags = ("--property", "parse.key=true", "--property", "parse.headers=true", "--compression-codec", codec)
        await tool("kafka.tools.ConsoleProducer", *boot, "--topic", "console", *flags, stdin=lines)
    show = ("--property", "print.key=true", "--property", "print.headers=true")
    arguments = (
        *boot,
        "--topic",
        "console",
        "--group",
        "console-group",
        "--from-beginning",
        "--max-messages",
        "100",
        *show,
    )
    out = await tool(f"{_TOOLS}.consumer.ConsoleConsumer", *arguments)
    assert sorted(out.splitlines()) == sorted(
        f"codec:{codec}\tkey-{number}\t{codec}-{number}"
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        for number in range(20)
    )
    groups = await tool(
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand", *boot, "--describe", "--group", "console-group"
    )
    rows = [line.split() for line in groups.splitlines() if line.startswith("console-group")]
    assert sum(int(row[3]) for row in rows) == 100 and [row[5] for row in rows] == ["0", "0", "0"]
    ends = await tool(f"{_TOOLS}.GetOffsetShell", *boot, "--topic", "console")
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split()) == 100


async def test_performance_tools(kafka_classes: str, cluster: LoopbackCluster) -> None:
    async def tool(main: str, *arguments: str) -> str:
        return (await run_client(tool_command(kafka_classes, f"{_TOOLS}.{main}", *arguments))).decode()

    props = f"bootstrap.servers={cluster.bootstrap}"
    size = ("--topic", "perf", "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    out = await tool("ProducerPerformance", *size, "--producer-props", props, "acks=all")
    assert "20000 records sent" in out
    transactional = ("--transactional-id", "perf-txn", "--transaction-duration-ms", "200")
    out = await tool("ProducerPerformance", *size, *transactional, "--producer-props", props)
    assert "20000 records sent" in out
    boot = ("--bootstrap-server", cluster.bootstrap)
    out = await tool("ConsumerPerformance", *boot, "--topic", "perf", "--messages", "40000", "--timeout", "20000")
    assert int(out.splitlines()[-1].split(",")[4]) == 40_000


@pytest.mark.checklist(63)
async def test_the_dump_tool_reads_our_files(kafka_classes: str, python_clients: Path, tmp_path: Path) -> None:
    script = [str(python_clients), str(CLIENTS / "dump_workload.py")]
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS) as cluster:
        offsets = (await seen_by([*script, cluster.bootstrap, "dumped", "first"]))["offsets"]
        leader = next(
            broker_id
            for broker_id, node in cluster.nodes.items()
            if any(tp.topic == "dumped" for tp in node.replicas.leader_partitions())
        )
        settings = cluster.nodes[leader].config
        assert settings.broker_id == leader
        await cluster.stop(leader)
        await seen_by([*script, cluster.bootstrap, "dumped", "second"])
        await cluster.start(leader)
    survivor = tmp_path / f"node-{1 + leader % 3}"
    partition = survivor / "dumped-0"

    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 2
    text = dump_log(kafka_classes, segments, "--deep-iteration", "--print-data-log")
    batches = dumped_batches(text)
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert {batch["compresscodec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    for before, after in itertools.pairwise(batches):
        assert int(after["baseOffset"]) == int(before["lastOffset"]) + 1
    epochs = [int(batch["partitionLeaderEpoch"]) for batch in batches]
    assert epochs == sorted(epochs) and epochs[-1] > epochs[0]
    assert "payload: in the next epoch" in text and "headerKeys: [codec]" in text
    assert len(re.findall(r"payload: value-\d+-", text)) == 200
    controls = re.findall(r"endTxnMarker: (\w+)", text)
    assert controls == ["COMMIT", "ABORT"]
    ids = {batch["producerId"] for batch in batches if batch["isTransactional"] == "true"}
    assert len(ids) == 1

    # Each complains on stdout about what it finds wrong.
    for kind in ("index", "timeindex"):
        indexes = sorted(partition.glob(f"*.{kind}"))
        assert len(indexes) == len(segments)
        found = dump_log(kafka_classes, indexes)
        entries = re.findall(r"^(?:offset|timestamp): \d+", found, re.MULTILINE)
        assert len(entries) >= len(segments)
        assert not re.search(r"[Mm]ismatch|out of order|could not|not found", found), found
    sane = dump_log(kafka_classes, sorted(partition.glob("*.index")), "--index-sanity-check")
    assert sane.count("passed sanity check") == len(segments)

    [snapshot] = sorted(partition.glob("*.snapshot"))[-1:]
    states = dump_log(kafka_classes, [snapshot])
    mine = re.search(rf"producerId: {next(iter(ids))} .*currentTxnFirstOffset: (\S+)", states)
    assert mine is not None and mine[1].rstrip(",") in ("None", "OptionalLong.empty"), states
    aborted = dump_log(kafka_classes, sorted(partition.glob("*.txnindex")))
    assert re.findall(r"firstOffset: (\d+) lastOffset: (\d+)", aborted) == [(str(offsets[3]), str(offsets[5] + 1))]
    checkpoint = (partition / "leader-epoch-checkpoint").read_text().split("\n")
    assert checkpoint[0] == "0" and int(checkpoint[1]) == len(checkpoint[2:-1])
    starts = [tuple(map(int, line.split())) for line in checkpoint[2:-1]]
    first_of_epoch = {int(batch["partitionLeaderEpoch"]): int(batch["baseOffset"]) for batch in reversed(batches)}
    assert {epoch: start for epoch, start in starts if epoch in first_of_epoch} == first_of_epoch

    for topic, flag, found in (
        ("__consumer_offsets", "--offsets-decoder", r'"group":"dumped-group","topic":"dumped".*"offset":7'),
        ("__transaction_state", "--transaction-log-decoder", r"transactionalId=dumped .*state=CompleteAbort"),
    ):
        logs = sorted(file for file in survivor.glob(f"{topic}-*/*.log") if file.stat().st_size)
        assert re.search(found, dump_log(kafka_classes, logs, flag))


async def test_acl_and_quota_tools(kafka_classes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-acls and kafka-configs on a secure cluster."""
    by_client_id(monkeypatch)
    settings = CLUSTER_SETTINGS | SECURE
    properties = tmp_path / "root.properties"
    properties.write_text("client.id=as-root\n")

    async with LoopbackCluster(tmp_path, nodes=3, settings=settings) as running:
        boot = ("--bootstrap-server", running.bootstrap, "--command-config", str(properties))

        async def tool(main: str, *arguments: str) -> str:
            return (await run_client(tool_command(kafka_classes, f"kafka.admin.{main}", *boot, *arguments))).decode()

        who = ("--allow-principal", "User:bob", "--topic", "t-", "--group", "g-", "--resource-pattern-type", "prefixed")
        await tool("AclCommand", "--add", "--consumer", *who)
        for node in running.nodes.values():
            authorizer = node.rights.access.authorizer
            assert authorizer is not None
            while len(authorizer.patterns()) < 2:
                await asyncio.sleep(0.02)
        listed = await tool("AclCommand", "--list", "--principal", "User:bob")
        assert re.findall(r"operation=(\w+), permissionType=(\w+)", listed).count(("READ", "ALLOW")) == 2
        await tool("AclCommand", "--remove", "--force", "--consumer", *who)
        assert running.zookeeper.peek("/kafka-acl-extended/prefixed/Topic/t-") is None
        quota = "producer_byte_rate=1024,request_percentage=12.5"
        entity = ("--entity-type", "users", "--entity-name", "a b", "--entity-type", "clients", "--entity-default")
        await tool("ConfigCommand", "--alter", "--add-config", quota, *entity)
        for node in running.nodes.values():
            while not node.rights.quotas.is_active:
                await asyncio.sleep(0.02)
        described = await tool("ConfigCommand", "--describe", *entity)
        assert "producer_byte_rate=1024.0" in described and "request_percentage=12.5" in described
        assert running.zookeeper.peek("/config/users/a%20b/clients/<default>") is not None
        await tool("ConfigCommand", "--alter", "--delete-config", "producer_byte_rate,request_percentage", *entity)
    assert not running.failures
