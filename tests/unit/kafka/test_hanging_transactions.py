"""Transactions that no coordinator will end: found, reported, and ended by an operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.admin.hanging_transactions import Coordinated, hanging
from kafkalite.env.turns import at_once
from kafkalite.extension.messages.open_transactions import PartitionTransaction
from kafkalite.model import Offset, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.replica import open_transactions
from kafkalite.replica.produce import AppendTerms
from kafkalite.testing.kafka_client import FrameClient
from tests.support.commands import Outcome
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until
from tests.unit.cli.test_commands import kafkalite

from .conftest import batch
from .coordinator_requests import TRANSACTIONS
from .test_durable_internal_topics import _SETTINGS, _coordinator, _create, _patient

ZERO = TopicPartition("t", 0)


def _open(producer_id: int, *, open_ms: int = 1000) -> PartitionTransaction:
    return PartitionTransaction("t", 0, ProducerId(producer_id), 0, -1, Offset(5), 1, open_ms)


@pytest.mark.parametrize(
    ("state", "partitions", "hangs"),
    [
        ("Ongoing", {ZERO}, False),
        ("PrepareCommit", {ZERO}, False),
        ("PrepareAbort", {ZERO, TopicPartition("t", 1)}, False),
        ("Ongoing", {TopicPartition("t", 1)}, True),
        ("Ongoing", set(), True),
        ("CompleteAbort", set(), True),
        ("CompleteCommit", {ZERO}, True),
        ("Empty", set(), True),
    ],
)
def test_what_hangs(state: str, partitions: set[TopicPartition], *, hangs: bool) -> None:
    coordinated = {ProducerId(1): Coordinated("x", state, frozenset(partitions))}
    found = hanging([_open(1)], coordinated, 0)
    assert bool(found) == hangs
    if hangs:
        assert found[0].transactional_id == "x" and state in found[0].reason


def test_what_nobody_coordinates_hangs_when_it_is_old_enough() -> None:
    young, old = _open(1, open_ms=99), _open(2, open_ms=100)
    assert [each.transaction for each in hanging([young, old], {}, 100)] == [old]
    assert hanging([young], {}, 100) == []


class Story:
    """A cluster whose topic t has one ordinary open transaction (producer "y"), and one that hangs (producer "x")."""

    def __init__(self, cluster: LoopbackCluster) -> None:
        self.cluster = cluster
        self.hanging: tuple[int, int] = (-1, -1)

    async def cli(self, *arguments: str) -> Outcome:
        endpoint = self.cluster.nodes[1].endpoints["kafka"]
        return await kafkalite("admin", *arguments, "--bootstrap", f"{endpoint.host}:{endpoint.port}")

    async def begin(self, name: str) -> tuple[int, int]:
        """(producer id, epoch) of a transaction with one record in t-0."""
        client = await FrameClient.to(self.cluster.nodes[1].endpoints["kafka"])
        coordinator = await _coordinator(self.cluster, client, name, TRANSACTIONS)
        request: Any = wire.InitProducerIdRequest(name, 900_000)
        started = await _patient(coordinator, request, 4, lambda got: got.error_code)
        producer = (started.producer_id, started.producer_epoch)
        add = wire.AddPartitionsToTxnRequest
        request = add(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[add.AddPartitionsToTxnTopic("t", [0])],
        )
        await _patient(
            coordinator,
            request,
            3,
            lambda got: got.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        await self.append(producer, 0)
        client.close()
        coordinator.close()
        return producer

    async def end(self, name: str, producer: tuple[int, int]) -> None:
        client = await FrameClient.to(self.cluster.nodes[1].endpoints["kafka"])
        coordinator = await _coordinator(self.cluster, client, name, TRANSACTIONS)
        await _patient(coordinator, wire.EndTxnRequest(name, *producer, committed=False), 3, lambda got: got.error_code)
        client.close()
        coordinator.close()

    async def append(self, producer: tuple[int, int], sequence: int) -> None:
        """A transactional record, past all checks of whether the transaction goes on."""
        records = batch(
            b"x", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
        )
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.leader().producing.produce(-1, 60_000, [(ZERO, records)], outcome.set_result, AppendTerms("coordinator"))
        assert (await outcome)[0].error == 0

    def leader(self) -> Any:
        for node in self.cluster.nodes.values():
            partition = node.replicas.hosted.get(ZERO)
            if partition is not None and partition.leader is not None:
                return node.replicas
        raise AssertionError("nobody leads")

    def stable(self) -> int:
        partition = self.leader().hosted.get(ZERO)
        return int(partition.log.last_stable_offset(partition.high_watermark))

    def end_offset(self) -> int:
        return int(self.leader().hosted.get(ZERO).high_watermark)


@asynccontextmanager
async def a_hanging_transaction(directory: Path, **settings: Any) -> AsyncIterator[Story]:
    async with LoopbackCluster(directory, nodes=3, settings=_SETTINGS | settings) as cluster:
        client = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        await _create(client, "t")
        client.close()
        story = Story(cluster)
        async with asyncio.timeout(150):
            story.hanging = await story.begin("x")
            await story.end("x", story.hanging)
            while story.stable() < 2:  # the abort marker
                await asyncio.sleep(0.01)
            await story.append(story.hanging, 1)  # what the network had held up comes late
            await story.begin("y")
        yield story


async def test_a_hanging_transaction_is_found_and_ended(tmp_path: Path) -> None:
    async with a_hanging_transaction(tmp_path) as story:
        listed = (await story.cli("transactions", "list", "--json")).json["transactions"]
        assert [(each["transactional_id"], each["state"]) for each in listed] == [
            ("x", "CompleteAbort"),
            ("y", "Ongoing"),
        ]
        only = (await story.cli("transactions", "list", "--state", "Ongoing", "--json")).json["transactions"]
        assert [each["transactional_id"] for each in only] == ["y"]
        told = (await story.cli("transactions", "describe", "y", "--json")).json
        assert (told["state"], told["partitions"]) == ("Ongoing", [["t", 0]]) and told["open_ms"] >= 0
        text = await story.cli("transactions", "describe", "y")
        assert text.code == 0 and "y: Ongoing" in text.out and "t-0" in text.out
        nobody = await story.cli("transactions", "describe", "nobody")
        assert nobody.code == 2 and "there is no transactional id 'nobody'" in nobody.err

        described = (await story.cli("describe", "t", "--internal", "--json")).json["replicas"]
        [leader] = [each for each in described if each["is_leader"]]
        assert leader["last_stable_offset"] == 2 and leader["open_transaction_ms"] >= 0

        soon = await story.cli("transactions", "find-hanging")
        assert (soon.code, soon.out) == (0, "no transaction hangs\n")  # for less than 15 minutes
        found = await story.cli("transactions", "find-hanging", "--max-transaction-timeout", "0", "--json")
        assert found.code == 1
        [row] = found.json["hanging"]
        assert (row["topic"], row["partition"], row["start_offset"]) == ("t", 0, 2)
        assert (row["producer_id"], row["transactional_id"]) == (story.hanging[0], "x")
        assert "CompleteAbort" in row["reason"]
        text = await story.cli("transactions", "find-hanging", "--max-transaction-timeout", "0")
        assert text.code == 1 and "CompleteAbort" in text.out and "transactions abort TOPIC-P" in text.out
        for topic, code in (("__transaction_state", 0), ("u", 2)):
            other = await story.cli("transactions", "find-hanging", "--max-transaction-timeout", "0", "--topic", topic)
            assert (other.code, "there is no topic 'u'" in other.err) == (code, code == 2)
        assert (await story.cli("transactions", "list", "--state", "Ongoin")).code == 2

        refused = await story.cli("transactions", "abort", "t-0", "--start-offset", "3")
        assert refused.code == 2 and "it does not hang" in refused.err
        wrong = await story.cli("transactions", "abort", "t-0", "--start-offset", "1")
        assert wrong.code == 2 and "no such open transaction" in wrong.err
        for usage in (
            ("--producer-id", "1"),
            (),
            ("--start-offset", "1", "--producer-id", "1", "--producer-epoch", "1"),
        ):
            assert (await story.cli("transactions", "abort", "t-0", *usage)).code == 2

        aborted = await story.cli("transactions", "abort", "t-0", "--start-offset", "2")
        assert aborted.code == 0 and "from offset 2 on" in aborted.out
        assert story.stable() == 3  # readers wait for "y" alone
        assert (await story.cli("transactions", "find-hanging", "--max-transaction-timeout", "0")).code == 0
        again = await story.cli("transactions", "abort", "t-0", "--start-offset", "2")
        assert again.code == 2


async def test_a_late_transaction_is_reported_by_health_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "LATE_AFTER_MS", -(10**9))
    async with a_hanging_transaction(tmp_path) as story:
        health = await story.cli("health", "--json")
        [problem] = [each for each in health.json["problems"] if each["what"] == "transaction.late"]
        assert health.code == 1 and problem["subject"] == "t-0"
        assert f"producer {story.hanging[0]}" in problem["detail"] and "find-hanging" in problem["do"]
        why = await story.cli("why", "t-0")
        assert why.code == 1 and "transaction.late" in why.out and "offset 2" in why.out
        assert at_once(story.leader().describing.figures()).totals["PartitionsWithLateTransactionsCount"] == 1
        # The operator ends it by its producer; the other one ends as usual.
        ended = await story.cli(
            "transactions", "abort", "t-0", "--producer-id", str(story.hanging[0]), "--producer-epoch", "0", "--json"
        )
        assert ended.code == 0 and ended.json["start_offset"] == 2
        forced = await story.cli("transactions", "abort", "t-0", "--start-offset", "3", "--force")
        assert forced.code == 0
        assert story.stable() == story.end_offset()
        why = await story.cli("why", "t-0")
        figures = at_once(story.leader().describing.figures())
        assert (why.code, figures.totals["PartitionsWithLateTransactionsCount"]) == (0, 0)


async def test_nothing_is_said_to_hang_while_a_coordinator_is_missing(tmp_path: Path) -> None:
    async with a_hanging_transaction(tmp_path) as story:
        coordinators = [node.kafka.transactions.log for node in story.cluster.nodes.values()]
        for log in coordinators:
            log._loads.clear()  # none has loaded yet
            log.states = lambda: iter(())  # type: ignore[method-assign]
        found = await story.cli(
            "transactions", "find-hanging", "--max-transaction-timeout", "0", "--timeout", "2", "--json"
        )
        assert found.code == 1 and "hanging transactions cannot be found" in found.json["error"]["message"]


async def test_the_age_is_kept_over_a_change_of_leaders_and_forgotten_with_the_transaction(tmp_path: Path) -> None:
    async with a_hanging_transaction(tmp_path) as story:
        follower, hosted = next(
            (node.replicas, partition)
            for node in story.cluster.nodes.values()
            if (partition := node.replicas.hosted.get(ZERO)) is not None and partition.leader is None
        )
        await until(lambda: len(follower.open_transactions.of(hosted)) >= 2)
        at_once(follower.open_transactions.check())
        assert len(follower.open_transactions._since) == 2
        await story.cli("transactions", "abort", "t-0", "--start-offset", "2")
        await until(lambda: len(follower.open_transactions.of(hosted)) <= 1)
        at_once(follower.open_transactions.check())
        assert len(follower.open_transactions._since) == 1
