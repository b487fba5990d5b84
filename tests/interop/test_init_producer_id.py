"""InitProducerId with and without the producer's id and epoch, in each state: on Apache Kafka 4.4 and on kafkalite.

A row of the table is a state of the transactional id, and the epoch that the request carries, counted from the coordinator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, server_class_path
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
}
_EPOCH = 3
_STATES = (
    "unknown",
    "begun",
    "bumped",
    "ongoing",
    "fenced",
    *(f"{end} {version}" for end in ("committed", "aborted") for version in (4, 5)),
)
#: What the request carries: None: no id; otherwise the epoch less the coordinator's.
_GIVEN = {"nothing": None, "current": 0, "last": -1, "older": -2, "newer": 1}
_STALE = ("last", "older", "newer")
_OTHER_ID = "another id"
_TOPIC = "t"


class _Cluster:
    """A cluster's coordinators, request by request."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._clients: dict[tuple[str, int], FrameClient] = {}

    async def client(self, host: str, port: int) -> FrameClient:
        known = self._clients.get((host, port))
        if known is None:
            known = FrameClient()
            await known.connect(host, port)
            self._clients[host, port] = known
        return known

    async def any(self) -> FrameClient:
        host, port = self._bootstrap.split(":")
        return await self.client(host, int(port))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def ask(self, name: str, message: Any, version: int) -> Any:
        """Of the coordinator; repeated while there is none."""
        while True:
            found = await (await self.any()).ask(wire.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
            [where] = found.coordinators
            if where.error_code == 0:
                with suppress(OSError, asyncio.IncompleteReadError):
                    answer = await (await self.client(where.host, where.port)).ask(message, version)
                    code = getattr(answer, "error_code", 0)
                    if code not in (
                        ErrorCode.NOT_COORDINATOR,
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ):
                        return answer
            await asyncio.sleep(0.05)

    async def create(self, topic: str) -> None:
        """Also while the broker that listens closes connections, as it is not ready."""
        request = wire.CreateTopicsRequest
        message = request([request.CreatableTopic(topic, 1, 1)], 30_000)
        code = -1
        while code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            with suppress(OSError, asyncio.IncompleteReadError):
                code = (await (await self.any()).ask(message, 7)).topics[0].error_code
                continue
            self.close()
            await asyncio.sleep(0.1)

    async def choose(self, transaction_version: int) -> None:
        request = wire.UpdateFeaturesRequest
        way = 1 if transaction_version == 2 else 2  # upwards, downwards
        update = request.FeatureUpdateKey("transaction.version", transaction_version, upgrade_type=way)
        answer = await (await self.any()).ask(request(30_000, [update]), 1)
        assert answer.error_code == 0 and not any(each.error_code for each in answer.results), answer

    # --- one transactional id ---

    async def init(self, name: str, given: tuple[int, int] = (-1, -1)) -> Any:
        return await self.ask(name, wire.InitProducerIdRequest(name, 60_000, *given), 5)

    async def granted(self, name: str, given: tuple[int, int] = (-1, -1)) -> Any:
        while (answer := await self.init(name, given)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(0.02)
        return answer

    async def add(self, name: str, producer: tuple[int, int]) -> None:
        request = wire.AddPartitionsToTxnRequest
        message = request(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[request.AddPartitionsToTxnTopic(_TOPIC, [0])],
        )
        code = -1
        while code in (
            -1,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ):
            answer = await self.ask(name, message, 3)
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        assert code == 0, code

    async def end(self, name: str, producer: tuple[int, int], version: int, *, is_commit: bool) -> int:
        message = wire.EndTxnRequest(name, *producer, is_commit)
        while (code := (await self.ask(name, message, version)).error_code) == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(0.02)
        return int(code)

    async def described(self, name: str) -> Any:
        [state] = (await self.ask(name, wire.DescribeTransactionsRequest([name]), 0)).transaction_states
        return state

    async def bring(self, name: str, state: str) -> tuple[int, int]:
        """The id and epoch of the coordinator, once the transactional id is in this state."""
        if state == "unknown":
            return 77, _EPOCH
        first = await self.granted(name)
        producer = (first.producer_id, first.producer_epoch)
        if state == "begun":
            return producer
        while producer[1] < _EPOCH:
            producer = (producer[0], (await self.granted(name, producer)).producer_epoch)
        if state == "bumped":
            return producer
        await self.add(name, producer)
        if state == "ongoing":
            return producer
        if state == "fenced":
            assert (await self.init(name)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            verb, version = state.split()
            assert await self.end(name, producer, int(version), is_commit=verb.startswith("commit")) == 0
        while not (now := await self.described(name)).transaction_state.startswith("Complete"):
            await asyncio.sleep(0.02)
        return now.producer_id, now.producer_epoch

    async def row(self, name: str, state: str, given: str) -> str:
        producer_id, epoch = await self.bring(name, state)
        carried = (-1, -1)
        if given == _OTHER_ID:
            carried = (producer_id + 1_000_000, epoch)
        elif (less := _GIVEN[given]) is not None:
            carried = (producer_id, epoch + less)
        answer = await self.init(name, carried)
        parts = [ErrorCode(answer.error_code).name]
        if state == "ongoing":
            parts.append("its owner: " + ErrorCode(await self.end(name, (producer_id, epoch), 4, is_commit=True)).name)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = await self.granted(name, carried)
            parts.append("then " + ErrorCode(answer.error_code).name)
        if not answer.error_code:
            is_same = answer.producer_id == producer_id
            parts.append(
                f"epoch {answer.producer_epoch - epoch:+d}" if is_same else f"a new id, epoch {answer.producer_epoch}"
            )
        return ", ".join(parts)


def _rows(states: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (state, given)
        for state in states
        for given in (*_GIVEN, _OTHER_ID)
        if not (state == "begun" and given in ("last", "older"))
    ]


async def _table(cluster: _Cluster, title: str, states: Sequence[str]) -> dict[str, str]:
    rows = [(f"{title}: {state}, {given}", state, given) for state, given in _rows(states)]
    return {name: await cluster.row(name, state, given) for name, state, given in rows}


async def _tables(bootstrap: str) -> dict[str, str]:
    """With version 2 of transactions, and with 1."""
    cluster = _Cluster(bootstrap)
    found: dict[str, str] = {}
    try:
        await cluster.create(_TOPIC)
        for version in (2, 1):
            await cluster.choose(version)
            found |= await _table(cluster, f"version {version}", _STATES)
    finally:
        cluster.close()
    return found


async def test_a_producer_gets_the_answers_of_apache_kafka(tmp_path: Path) -> None:
    server = server_class_path(_base(), NEWEST_VERSION)
    with KafkaCluster(tmp_path / "kafka", server, nodes=1, settings=_SETTINGS) as kafka:
        theirs = await _tables(kafka.bootstrap)
    with ProcessCluster(tmp_path / "kafkalite", nodes=1, settings=_SETTINGS) as cluster:
        ours = await _tables(cluster.bootstrap[0])
    for name, table in (("kafka", theirs), ("kafkalite", ours)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{row}: {answer}\n" for row, answer in table.items()))
    assert ours.keys() == theirs.keys()
    different = {row for row in ours if ours[row] != theirs[row]}
    assert different == {f"version {version}: ongoing, {given}" for version in (1, 2) for given in _STALE}
    for row in different:
        # Nothing is won by Kafka's answer: it ends the transaction of the producer that has the epoch.
        assert theirs[row].startswith("CONCURRENT_TRANSACTIONS, its owner: PRODUCER_FENCED"), theirs[row]
        assert ours[row] == "PRODUCER_FENCED, its owner: NONE", ours[row]
