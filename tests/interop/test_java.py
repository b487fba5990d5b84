"""Apache Kafka's own tools, from its jars: they use our brokers, and they read our files."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path

import pytest

from kafkalite.extension.messages.reassignment import AlterReassignmentsRequest, WantedReassignment
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import dump_log, dumped_batches, tool_command
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.kafka_jar import differences, newest_client_jar, read_definitions
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.principals import SECURE, by_client_id

from .conftest import CLUSTER_SETTINGS, run_client, seen_by

pytestmark = [pytest.mark.cluster]

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


async def test_the_new_group_protocol_of_a_former_client(kafka_classes: str, cluster: LoopbackCluster) -> None:
    """Version 0 of ConsumerGroupHeartbeat, where the coordinator chooses the member's id."""
    boot = ("--bootstrap-server", cluster.bootstrap)
    await run_client(tool_command(kafka_classes, f"{_TOOLS}.TopicCommand", *boot, "--create", "--topic", "t"))
    producer = tool_command(kafka_classes, "kafka.tools.ConsoleProducer", *boot, "--topic", "t")
    await run_client(producer, stdin=b"one\ntwo\nthree\n")
    wanted = (
        "--topic",
        "t",
        "--consumer-property",
        "group.protocol=consumer",
        "--from-beginning",
        "--max-messages",
        "3",
    )
    consumer = tool_command(kafka_classes, f"{_TOOLS}.consumer.ConsoleConsumer", *boot, *wanted)
    assert sorted((await run_client(consumer)).split()) == [b"one", b"three", b"two"]


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


async def test_administration_tools(
    kafka_classes: str, python_clients: Path, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    boot = ("--bootstrap-server", cluster.bootstrap)

    async def tool(main: str, *arguments: str) -> str:
        return (await run_client(tool_command(kafka_classes, main, *arguments))).decode()

    async def topics(*arguments: str) -> str:
        return await tool(f"{_TOOLS}.TopicCommand", *boot, "--topic", "t", *arguments)

    async def reassign(*arguments: str) -> str:
        return await tool(f"{_TOOLS}.reassign.ReassignPartitionsCommand", *boot, *arguments)

    async def replicas() -> dict[int, tuple[str, str]]:
        found = re.findall(r"Partition: (\d+)\tLeader: (\d)\tReplicas: (\S+)", await topics("--describe"))
        return {int(partition): (leader, assigned) for partition, leader, assigned in found}

    await topics("--create", "--replica-assignment", "1:2,2:3,3:1")
    await topics("--alter", "--partitions", "5")
    assert len(await replicas()) == 5

    plan = tmp_path / "plan.json"
    moves = [("t", 0, [3, 1]), ("t", 1, [1, 2, 3])]
    entries = [{"topic": topic, "partition": partition, "replicas": to} for topic, partition, to in moves]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    assert "Successfully started partition reassignments" in await reassign(
        "--execute", "--reassignment-json-file", str(plan)
    )
    verify = ("--verify", "--reassignment-json-file", str(plan))
    async with asyncio.timeout(150):
        while (told := await reassign(*verify)).count("is completed") < 2:
            assert "is still in progress" in told
    assert "No partition reassignments found." in await reassign("--list")
    await tool(f"{_TOOLS}.LeaderElectionCommand", *boot, "--election-type", "preferred", "--all-topic-partitions")
    assert {number: found for number, found in (await replicas()).items() if number < 2} == {
        0: ("3", "3,1"),
        1: ("1", "1,2,3"),
    }
    dirs = await tool(f"{_TOOLS}.LogDirsCommand", *boot, "--describe", "--topic-list", "t")
    [described] = [json.loads(line) for line in dirs.splitlines() if line.startswith("{")]
    held = {
        broker["broker"]: {part["partition"] for log_dir in broker["logDirs"] for part in log_dir["partitions"]}
        for broker in described["brokers"]
    }
    assert {broker for broker, parts in held.items() if "t-0" in parts} == {1, 3}

    configs = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", "t")
    await tool(configs, *boot, "--alter", *entity, "--add-config", "retention.ms=5000")
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in await tool(configs, *boot, "--describe", *entity)
    everywhere = ("--entity-type", "brokers", "--entity-default")
    limit = "reassignment.parallel.partition.count=1"
    await tool(configs, *boot, "--alter", *everywhere, "--add-config", limit)
    assert limit in await tool(configs, *boot, "--describe", *everywhere)

    script = [str(python_clients), str(CLIENTS / "open_transaction.py"), cluster.bootstrap, "t", "open-txn", "g"]
    await seen_by(script)
    groups = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"
    await tool(groups, *boot, "--delete-offsets", "--group", "g", "--topic", "t:0")
    await tool(groups, *boot, "--reset-offsets", "--group", "g", "--topic", "t:1", "--to-latest", "--execute")
    rows = (await tool(groups, *boot, "--describe", "--group", "g")).splitlines()
    assert [row.split()[2] for row in rows if row.startswith("g ")] == ["1"]
    assert "Empty" in await tool(groups, *boot, "--describe", "--state", "--group", "g")
    await tool(groups, *boot, "--delete", "--group", "g")

    async def transactions(*arguments: str) -> list[list[str]]:
        out = await tool(f"{_TOOLS}.TransactionsCommand", *boot, *arguments)
        return [line.split() for line in out.splitlines()[1:]]

    [[_, _, _, state]] = await transactions("list")
    assert state == "Ongoing"
    [row] = await transactions("describe", "--transactional-id", "open-txn")
    assert row[4] == "Ongoing" and row[-1] == "t-0"
    partition = ("--topic", "t", "--partition", "0")
    [row] = await transactions("describe-producers", *partition)
    assert row[-1] == "0"
    [[*_, hanging]] = await transactions("find-hanging", "--broker-id", "3", "--max-transaction-timeout", "0") or [
        ["-"]
    ]
    assert hanging == "-"  # the coordinator knows of it, so it does not hang
    await transactions("abort", *partition, "--start-offset", "0")
    [row] = await transactions("describe-producers", *partition)
    assert row[-1] == "None"


@pytest.mark.checklist(70)
async def test_a_reassignment_under_way_is_listed_and_cancelled(
    kafka_classes: str, cluster: LoopbackCluster, tmp_path: Path
) -> None:
    boot = ("--bootstrap-server", cluster.bootstrap)

    async def tool(main: str, *arguments: str) -> str:
        return (await run_client(tool_command(kafka_classes, f"{_TOOLS}.{main}", *arguments))).decode()

    await tool("TopicCommand", *boot, "--topic", "t", "--create", "--replica-assignment", "1:2")
    size = ("--topic", "t", "--num-records", "8000", "--record-size", "1000", "--throughput", "-1")
    await tool("ProducerPerformance", *size, "--producer-props", f"bootstrap.servers={cluster.bootstrap}")
    slowly = WantedReassignment("t", 0, (BrokerId(3), BrokerId(2)), throttle=50_000)
    ordered = await cluster.nodes[1].admin.reassignments.alter(AlterReassignmentsRequest((slowly,)))
    assert ordered.partitions[0].error == 0

    client = await FrameClient.to(cluster.nodes[2].endpoints["kafka"])
    listing = wire.ListPartitionReassignmentsRequest(10_000, None)
    async with asyncio.timeout(150):
        while not (answer := await client.ask(listing, 0)).current_batch:
            await asyncio.sleep(0.02)
    [step] = answer.current_batch[0].partitions
    assert step.target_replicas == [3, 2] or set(step.target_replicas) == {1, 2, 3}
    client.close()

    # Kafka's own client reads the same answer, and passes over the tagged field that it does not know.
    reassign = "reassign.ReassignPartitionsCommand"
    told = await tool(reassign, *boot, "--list")
    assert re.search(r"t-0: replicas: 3,2,1\. adding: 3\. removing: 1\.", told), told
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2]}]}))
    named = ("--reassignment-json-file", str(plan))
    assert "is still in progress" in await tool(reassign, *boot, "--verify", *named)
    assert "Successfully cancelled partition reassignment for: t-0" in await tool(reassign, *boot, "--cancel", *named)
    async with asyncio.timeout(150):
        while "No partition reassignments found." not in await tool(reassign, *boot, "--list"):
            pass
    described = await tool("TopicCommand", *boot, "--describe", "--topic", "t")
    assert re.search(r"Replicas: 1,2\tIsr: [12],[12]\t", described), described


@pytest.mark.checklist(63)
async def test_the_dump_tool_reads_our_files(kafka_classes: str, python_clients: Path, tmp_path: Path) -> None:
    script = [str(python_clients), str(CLIENTS / "dump_workload.py")]
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS) as cluster:
        offsets = (await seen_by([*script, cluster.bootstrap, "dumped", "first"]))["offsets"]
        leader = next(
            broker_id
            for broker_id, node in cluster.nodes.items()
            if any(each.topic_partition.topic == "dumped" and each.leader for each in node.replicas.hosted.all())
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
        without = {each.stem for each in segments} - {each.stem for each in indexes}
        # How many records come together is the client's affair: the last segment may be too short for an entry, and an index begins with one.
        assert without <= {segments[-1].stem} and len(indexes) > 2
        found = dump_log(kafka_classes, indexes)
        entries = re.findall(r"^(?:offset|timestamp): \d+", found, re.MULTILINE)
        assert len(entries) >= len(indexes)
        assert not re.search(r"[Mm]ismatch|out of order|could not|not found", found), found
    indexes = sorted(partition.glob("*.index"))
    sane = dump_log(kafka_classes, indexes, "--index-sanity-check")
    assert sane.count("passed sanity check") == len(indexes)

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


def test_our_tables_are_those_of_the_newest_client() -> None:
    """What differs in a version that both have is an error; what the client has more is printed by `make protocol`."""
    definitions = read_definitions(newest_client_jar())
    assert list(differences(definitions)) == []
