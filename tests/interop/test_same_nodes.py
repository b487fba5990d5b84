"""The same requests to three nodes of Apache Kafka 4.4 and of kafkalite: to one that does not lead, and when one has died."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, server_class_path
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base
from .same_answers import Case, Difference, differences, run
from .same_nodes import ALL, FOLLOWER, KILLED, after_death, before_death, death_is_known, elsewhere
from .test_same_answers import _ONLY_KAFKA, _ONLY_OURS, _SETTINGS, ACCEPTED, Accepted, _Clusters, _prepared, _text

pytestmark = [pytest.mark.timeout(3000), pytest.mark.cluster]

_EVERYWHERE = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 1,
    "auto.leader.rebalance.enable": "false",
}
_AT_ONCE = 4
_NUMBERS = itertools.count()
#: Besides those of test_same_answers.
OF_NODES = [
    Accepted(r"^JoinGroup JoinGroup.member_id ", "the member's id comes back with NOT_COORDINATOR"),
]
OF_DEATH = [
    Accepted(
        r"leader_epoch",
        "a replica that leaves the ISR with its node begins a new epoch, as with ZooKeeper in Kafka 2.8",
    ),
    Accepted(r" OffsetForLeaderEpoch.*end_offset", "the epoch has ended with the node"),
    Accepted(r" Produce.*current_leader \[lone", "no leader is none; Kafka names -1"),
]


class _Nodes(NamedTuple):
    clusters: _Clusters
    others: tuple[dict[str, str], dict[str, str]]
    kafka: KafkaCluster
    ours: ProcessCluster

    async def once(self, name: str, case: Case) -> list[Difference]:
        tag = f"n{next(_NUMBERS)}z"
        return list(
            differences(name, *await run(case, name, tag, 1, self.clusters.addresses, nodes=self.others, replicas=ALL))
        )


async def _all_there(address: str) -> None:
    client = await FrameClient.to(address)
    while len((await client.ask(wire.MetadataRequest([]), 9)).brokers) < len(ALL):
        await asyncio.sleep(0.1)
    client.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterable[_Nodes]:
    directory: Path = tmp_path_factory.mktemp("nodes")
    server = server_class_path(_base(), NEWEST_VERSION)
    settings = _SETTINGS | _ONLY_KAFKA | _EVERYWHERE
    with (
        KafkaCluster(directory / "kafka", server, settings=settings) as kafka,
        ProcessCluster(directory / "kafkalite", settings=_SETTINGS | _ONLY_OURS | _EVERYWHERE) as ours,
    ):
        theirs, mine = kafka.bootstrap.split(","), ours.bootstrap
        others = ({FOLLOWER: theirs[1], KILLED: theirs[2]}, {FOLLOWER: mine[1], KILLED: mine[2]})
        for address in (theirs[0], mine[0]):
            asyncio.run(_all_there(address))
        yield _Nodes(_prepared((theirs[0], mine[0]), others, ALL), others, kafka, ours)


def _new(found: list[Difference], accepted: list[Accepted]) -> list[str]:
    return [
        f"{_text(each)} v{each.version}\n  Kafka {each.kafka}\n  ours  {each.ours}"
        for each in found
        if not any(re.search(one.of, _text(each)) for one in (*ACCEPTED, *accepted))
    ]


def test_requests_to_a_node_that_does_not_lead(nodes: _Nodes) -> None:
    async def all_of_them() -> list[Difference]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(api: str, version: int) -> list[Difference]:
            async with room:
                return await nodes.once(api, elsewhere(api, version))

        asked = [(api, version) for api, offered in nodes.clusters.versions.items() for version in offered]
        found: list[Difference] = []
        for each, seen in zip(asked, await asyncio.gather(*(one(*each) for each in asked)), strict=True):
            # What is late on one side is asked again, alone: a difference counts if it comes each time.
            for _ in range(3):
                if _new(seen, OF_NODES):
                    groups = {again.group for again in await one(*each)}
                    seen = [difference for difference in seen if difference.group in groups]
            found += seen
        return found

    new = _new(asyncio.run(all_of_them()), OF_NODES)
    assert not new, "\n".join(new)


def test_requests_after_a_node_has_died(nodes: _Nodes) -> None:
    assert not _new(asyncio.run(nodes.once("before", before_death)), OF_DEATH)
    nodes.kafka.nodes[3].kill()
    nodes.ours.nodes[3].kill()
    asyncio.run(nodes.once("death", death_is_known))
    new = _new(asyncio.run(nodes.once("after", after_death)), OF_DEATH)
    assert not new, "\n".join(new)
