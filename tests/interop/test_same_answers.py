"""The same requests to Apache Kafka 4.4 and to kafkalite: the answers differ only where a reason is known.

KAFKALITE_SAME_SEED draws other changes of the good requests, and other walks; KAFKALITE_SAME_MORE multiplies their number.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest

from kafkalite.protocol import wire
from kafkalite.protocol.schema import schemas
from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, server_class_path
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base
from .same_answers import Case, Difference, Mutation, Side, differences, mutations, record_batch, run
from .same_connections import FRAMES, seen_on
from .same_nodes import lead_at_first
from .same_requests import (
    consumer_member,
    create_topic,
    offsets_of,
    produce,
    producer,
    share_member,
    shared_topic,
    stable,
    streams_member,
)
from .same_requests_all import BASES
from .same_walks import WALKS
from .same_walks_consumer import migrated_group, static_consumers
from .same_walks_share import share_offsets, share_records, share_sessions
from .same_walks_streams import streams_group

pytestmark = [pytest.mark.timeout(3000), pytest.mark.cluster]

_SEED = int(os.environ.get("KAFKALITE_SAME_SEED", "1"))
_MORE = float(os.environ.get("KAFKALITE_SAME_MORE", "1"))
_SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
    "super.users": "User:ANONYMOUS",
    # The shared records are old ones, and must stay.
    "log.retention.check.interval.ms": 86_400_000,
}
_ONLY_KAFKA = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.coordinator.append.linger.ms": 0,
    "log.initial.task.delay.ms": 86_400_000,
}
_ONLY_OURS = {"authorizer.enabled": "true"}
#: Offered by Apache Kafka only with a plug-in, or only between brokers.
_NOT_ON_KAFKA = frozenset({"GetTelemetrySubscriptions", "PushTelemetry", "Extension"})
_WALKED = WALKS | {
    each.__name__: each
    for each in (migrated_group, share_offsets, share_records, share_sessions, static_consumers, streams_group)
}
#: Answers of state between brokers, share coordinators and leaders: nobody else asks.
_BETWEEN_BROKERS = frozenset({
    "WriteTxnMarkers", "InitializeShareGroupState", "ReadShareGroupState", "ReadShareGroupStateSummary", "WriteShareGroupState",
    "DeleteShareGroupState",
})  # fmt: skip
#: Refused before: records in formats before version 2.
_LOWEST = {"Produce": 3}
#: They would change the cluster for the cases after them, or measure time: API, path and change.
_LEFT_OUT = re.compile(
    r"UnregisterBroker .broker_id 1$"
    r"|UpdateFeatures .validate_only"
    r"|AlterClientQuotas .*entity_name null"
    r"|(CreateTopics|DeleteTopics|CreatePartitions|DeleteRecords|ElectLeaders|AlterPartitionReassignments) .timeout_ms"
    r"|JoinGroup .rebalance_timeout_ms"
)
#: Of cases: their things have names of their own.
_NUMBERS = itertools.count()
_AT_ONCE = 6
_CHANGES = 5
_WALKS = 20


class Accepted(NamedTuple):
    """`of` matches API, path and label of a difference; it must be seen at least once in a run with the default seed."""

    of: str
    why: str


_UNKNOWN_KIND = "a kind that is not known is refused (docs/kafka-protocol.md, ACLs)"
_FAILS = "Kafka: UNKNOWN_SERVER_ERROR, or no answer at all"
_EMPTY_GROUP = "an empty group id is refused everywhere (docs/kafka-protocol.md, Groups)"
_SHARE_OFFSETS = "the start offset is kept when it is first fetched from, and moves with the acknowledgement"

ACCEPTED = [
    Accepted(r" twice\]$", "what comes twice in one request is refused, answered twice or once; no client sends it"),
    Accepted(r"(topics\[0\].partitions|partition_data) empty\]$", "a topic without partitions is listed, or left out"),
    Accepted(r"^Produce Produce \[.*records null", _FAILS),
    Accepted(r"^Fetch .*records \[.*max_bytes", "whole batches; Kafka cuts the last one"),
    Accepted(r"^Fetch .*\[.session_id -", "a negative session id begins no session; " + _FAILS),
    Accepted(r"^Fetch .*\[.replica_id \d", "a client that says that it is a follower is a consumer"),
    Accepted(r"^Metadata .*\[.topics\[0\].name null", _FAILS),
    Accepted(r"^JoinGroup JoinGroup.protocol_name .*name=''", "the chosen protocol has an empty name; Kafka says null"),
    Accepted(r"^JoinGroup DescribeGroups.*protocols empty", "a JoinGroup that is refused leaves no group behind"),
    Accepted(
        r"^CreateTopics CreateTopics.*configs \[",
        "names of settings: ours beside Kafka's; with an error null, not empty",
    ),
    Accepted(r"^CreateTopics .*topic_id \[.validate_only", "a topic that is not created has no id; Kafka draws one"),
    Accepted(r" DescribeConfigs.*synonyms \[", "names and synonyms: ours beside Kafka's"),
    Accepted(r"^IncrementalAlterConfigs .*config_operation ", "INVALID_CONFIG; " + _FAILS),
    Accepted(
        r"^UpdateFeatures UpdateFeatures.results \[",
        "the features are named also if one is refused (docs/kafka-protocol.md, Features)",
    ),
    Accepted(
        r"^ApiVersions ApiVersions.(api_keys|(supported|finalized)_features) \[",
        "versions that Kafka 4 has removed; KRaft's features",
    ),
    Accepted(r"^ApiVersions ApiVersions.error_code \[.node_id -", "a negative node id is none"),
    Accepted(r"^CreateAcls .*(resource_type|pattern_type|operation|permission_type) \d", "INVALID_REQUEST; " + _FAILS),
    Accepted(r"^CreateAcls .*resource_name '(a b/|\.)", "names that no znode can have (kafkalite/security/acl.py)"),
    Accepted(r"^(Describe|Delete)Acls .*(resource_type|pattern_type|operation|permission_type)", _UNKNOWN_KIND),
    Accepted(r"^AlterUserScramCredentials .*salt", "credentials need a salt and a password"),
    Accepted(
        r"^ShareGroupHeartbeat .*(member_epoch|assignment)",
        "a member that joins waits for its assignment (docs/kafka-protocol.md, Share groups)",
    ),
    Accepted(
        r"^Share(Fetch|Acknowledge) .*current_leader", "no other leader is -1; Kafka writes 0, which is a broker's id"
    ),
    Accepted(r"^Share(Fetch|Acknowledge) .*group_id ''", _EMPTY_GROUP),
    Accepted(r"^ShareFetch .*max_bytes -", _FAILS),
    Accepted(r"^ShareAcknowledge .*topic_id", "UNKNOWN_TOPIC_ID of the topic; " + _FAILS),
    Accepted(r"^ShareAcknowledge .*last_offset \d", "INVALID_RECORD_STATE (docs/kafka-protocol.md, Share groups)"),
    Accepted(r"^ShareAcknowledge DescribeShareGroupOffsets", _SHARE_OFFSETS),
    Accepted(
        r"^DescribeShareGroupOffsets ",
        "unknown groups, topics and partitions are errors; Kafka shows -1, or does not answer",
    ),
    Accepted(
        r"^AlterShareGroupOffsets AlterShareGroupOffsets.responses",
        "the topics are listed also if the group is refused",
    ),
    Accepted(r"^StreamsGroupHeartbeat .*acceptable_recovery_lag", "the lag is in each answer"),
    Accepted(
        r"^StreamsGroup\w+ StreamsGroupDescribe.*changelog_topics\[0\].partitions",
        "as many as they have; Kafka: what the member sent",
    ),
    Accepted(r"^StreamsGroupHeartbeat .*topology_description_required", "descriptions are kept without a plug-in"),
    Accepted(r"^StreamsGroupTopologyDescriptionUpdate ", "descriptions are kept without a plug-in"),
    Accepted(
        r"^StreamsGroupHeartbeat .*epoch \[.*(rebalance_timeout_ms|rack_id|process_id)",
        "tasks are assigned in the background, for changes that matter",
    ),
]


class _Clusters(NamedTuple):
    addresses: tuple[str, str]
    versions: dict[str, range]


async def _offered(address: str) -> dict[int, tuple[int, int]]:
    client = await FrameClient.to(address)
    answer = await client.ask(wire.ApiVersionsRequest("test", "1"), 4)
    client.close()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


async def _until_there(side: Side) -> None:
    """The shared topic, the internal topics, and a member of each kind of group."""
    try:
        name, _ = await create_topic(side, "shared", 2)
        answer = await side.ask(*offsets_of(name))
        assert answer.topics[0].partitions[0].offset == 0
        await produce(side, name, 0, record_batch(b"v0", b"v1", b"v2"))
        await produce(side, name, 0, record_batch(b"v3", b"v4"))
        for key, kind in (("g", 0), ("x", 1)):
            while True:
                found = await side.ask(wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
                if found.coordinators[0].error_code == 0:
                    break
                await asyncio.sleep(0.1)
        if side.nodes:
            await lead_at_first(side)
        await producer(side, "warm")
        await stable(side, "warm")
        await consumer_member(side, "warm consumers", *await shared_topic(side))
        await share_member(side, "warm shares", name)
        await streams_member(side, "warm streams", name)
    finally:
        side.close()


def _prepared(
    addresses: tuple[str, str],
    nodes: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    replicas: Sequence[int] = (),
) -> _Clusters:
    """With what the cases need, and the versions that both offer."""
    sides = [
        Side(address, "warm", "warm", random.Random(0), nodes=others, replicas=list(replicas))
        for address, others in zip(addresses, nodes, strict=True)
    ]

    async def prepare() -> dict[str, range]:
        theirs, mine = await asyncio.gather(*map(_offered, addresses))
        await asyncio.gather(*map(_until_there, sides))
        both: dict[str, range] = {}
        for name in BASES:
            key = schemas()[name + "Request"].api_key
            if name not in _NOT_ON_KAFKA and key in theirs:
                low = max(theirs[key][0], mine[key][0], _LOWEST.get(name, 0))
                both[name] = range(low, min(theirs[key][1], mine[key][1]) + 1)
        return both

    return _Clusters(addresses, asyncio.run(prepare()))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterable[_Clusters]:
    directory = tmp_path_factory.mktemp("same")
    server = server_class_path(_base(), NEWEST_VERSION)
    with (
        KafkaCluster(directory / "kafka", server, nodes=1, settings=_SETTINGS | _ONLY_KAFKA) as kafka,
        ProcessCluster(directory / "kafkalite", nodes=1, settings=_SETTINGS | _ONLY_OURS) as ours,
    ):
        yield _prepared((kafka.bootstrap, ours.bootstrap[0]))


class _Runner:
    """Runs cases; a difference counts if it comes each time: what is late on one side is asked again, alone."""

    def __init__(self, addresses: tuple[str, str]) -> None:
        self._addresses = addresses
        self.asked: set[tuple[str, int]] = set()

    async def _once(self, name: str, case: Case, seed: int) -> list[Difference]:
        kafka, ours = await run(case, name, f"n{next(_NUMBERS)}z", seed, self._addresses)
        self.asked |= ours.asked
        return list(differences(name, kafka, ours))

    async def all(self, cases: list[tuple[str, Case, int]]) -> list[Difference]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def first(name: str, case: Case, seed: int) -> list[Difference]:
            async with room:
                return await self._once(name, case, seed)

        answers = await asyncio.gather(*(first(*each) for each in cases))
        found: list[Difference] = []
        for (name, case, seed), seen in zip(cases, answers, strict=True):
            for _ in range(2):
                if any(not _is_accepted(each) for each in seen):
                    groups = {each.group for each in await self._once(name, case, seed)}
                    seen = [each for each in seen if each.group in groups]
            found += seen
        return found


def _text(difference: Difference) -> str:
    return f"{difference.case.split()[0]} {difference.api}{difference.path} [{difference.label}]"


def _is_accepted(difference: Difference) -> bool:
    return any(re.search(each.of, _text(difference)) for each in ACCEPTED)


def _judge(found: list[Difference], *, examples: bool) -> None:
    new: dict[tuple[str, ...], Difference] = {}
    for each in found:
        if not _is_accepted(each):
            new.setdefault(each.group, each)
    shown = [
        f"{_text(each)} v{each.version} {each.case}\n  Kafka {each.kafka}\n  ours  {each.ours}" for each in new.values()
    ]
    assert not new, f"{len(new)} new differences\n" + "\n".join(shown)
    if examples and _SEED == 1:
        gone = [each.of for each in ACCEPTED if not any(re.search(each.of, _text(one)) for one in found)]
        assert not gone, f"accepted, but not seen any more: {gone}"


def _changed(api: str, version: int, choose: Callable[[list[Mutation]], list[Mutation]]) -> Case:
    async def case(side: Side) -> None:
        message, follow = await BASES[api](side, version)
        chosen = choose(
            [each for each in mutations(message, version) if not _LEFT_OUT.match(f"{api} {each.path} {each.what}")]
        )
        label = " and ".join(f"{each.path} {each.what}" for each in chosen) or "good"
        for each in chosen:
            each.apply(message)
        await side.ask(message, version, label)
        # A busy broker of Kafka's hears of it later, and of changes in their order.
        if api in ("DeleteTopics", "CreatePartitions"):
            await create_topic(side, f"after{side.tag}", partitions=1)
        for request, its_version in follow:
            await side.ask(request, its_version, f"after {label}")

    return case


def _draw(seed: int) -> Callable[[list[Mutation]], list[Mutation]]:
    return lambda there: [random.Random(seed).choice(there)] if there else []


def test_every_version_of_every_api(clusters: _Clusters) -> None:
    cases: list[tuple[str, Case, int]] = []
    for api, offered in clusters.versions.items():
        for version in offered:
            cases += [
                (f"{api} good {number}", _changed(api, version, lambda _: []), _SEED + number) for number in range(2)
            ]
            if api in _BETWEEN_BROKERS:
                continue  # good ones only
            for number in range(int(_CHANGES * _MORE)):
                seed = _SEED * 1_000_000 + version * 1_000 + number
                cases.append((f"{api} v{version} seed {seed}", _changed(api, version, _draw(seed)), seed))
    runner = _Runner(clusters.addresses)
    found = asyncio.run(runner.all(cases))
    left = [
        (api, version)
        for api, offered in clusters.versions.items()
        for version in offered
        if (api, version) not in runner.asked
    ]
    assert not left
    _judge(found, examples=True)


@pytest.mark.parametrize("name", sorted(_WALKED))
def test_requests_that_depend_on_each_other(clusters: _Clusters, name: str) -> None:
    runner = _Runner(clusters.addresses)
    cases = [
        (f"{name} seed {seed}", _WALKED[name], seed)
        for seed in range(_SEED * 1_000, _SEED * 1_000 + int(_WALKS * _MORE))
    ]
    _judge(asyncio.run(runner.all(cases)), examples=False)


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_what_becomes_of_a_connection(clusters: _Clusters, name: str) -> None:
    kafka, ours = (asyncio.run(seen_on(address, FRAMES[name])) for address in clusters.addresses)
    assert ours == kafka
