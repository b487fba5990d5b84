"""Topics and configurations through the wire."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.config import ALIASES, BROKER_KEYS, TOPIC_KEYS, UNITS
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    CoordinatorError,
    NotSentError,
    OutcomeUnknownError,
    TooBigError,
)
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.topics import TopicResult
from kafkalite.kafka.handlers.configs.true_values import TRUE_VALUES
from kafkalite.model import GROUP_TOPIC, BrokerId
from kafkalite.protocol import topic_ids, wire
from kafkalite_cli.docs.settings import NOT_HERE

from .conftest import Broker, FrameClient
from .test_coordinators import coordinator

TOPIC, BROKER = 2, 4


async def alter(client: FrameClient, *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC) -> int:
    request = wire.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(*change) for change in changes]
    answer = await client.ask(request([request.AlterConfigsResource(kind, name, configs)]), 1)
    return int(answer.responses[0].error_code)


async def described(client: FrameClient, *keys: str, name: str = "t", kind: int = TOPIC, version: int = 4) -> Any:
    request = wire.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(kind, name, list(keys) or None)
    answer = await client.ask(request([resource], include_synonyms=True, include_documentation=True), version)
    return answer.results[0]


async def test_incremental_changes(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    assert await alter(client, ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact")) == 0
    entries = {entry.name: entry for entry in (await described(client)).configs}
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5000", 1)
    assert entries["cleanup.policy"].value == "delete,compact"
    assert [synonym.source for synonym in entries["retention.ms"].synonyms] == [1, 5]
    assert entries["segment.bytes"].config_source == 5 and entries["segment.bytes"].documentation
    assert await alter(client, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete")) == 0
    [entry] = (await described(client, "cleanup.policy")).configs
    assert entry.value == "compact"
    assert await alter(client, ("no.such.key", 0, "1")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 0, "soon")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 2, "1")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 0, "1"), ("retention.ms", 1, None)) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("retention.ms", 0, "1"), name="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # As with Kafka, what is not set can be taken away whatever its name.
    assert await alter(client, ("leader.replication.throttled.replicas", 1, None)) == 0
    assert await alter(client, ("retention.ms", 0, "1"), name="1", kind=8) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("retention.ms", 0, None)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotSentError("away"), ErrorCode.REQUEST_TIMED_OUT),
        (OutcomeUnknownError("away"), ErrorCode.REQUEST_TIMED_OUT),
        (TooBigError("1200000 bytes, at most 1047551"), ErrorCode.INVALID_REQUEST),
        (AuthFailedError("code -102"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_what_zookeeper_refuses_is_not_asked_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: CoordinatorError, code: ErrorCode
) -> None:
    """REQUEST_TIMED_OUT says that the same request may succeed later."""
    await broker.create("t")

    async def refused(topic: str, before: object, after: object) -> bool:
        raise type(error)(*error.args)  # its traceback holds the request

    monkeypatch.setattr(broker.services, "replace_topic_overrides", refused)
    assert await alter(await broker.client(), ("retention.ms", 0, "5000")) == code


async def test_new_partitions_are_waited_for_as_long_as_the_client_says(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        await broker.create(name)
    waited: list[int] = []

    async def create(
        topic: str, count: int, assignments: object, *, timeout_ms: int, validate_only: bool
    ) -> TopicResult:
        waited.append(timeout_ms)
        await asyncio.sleep(0.01)
        return TopicResult(
            topic, int(ErrorCode.REQUEST_TIMED_OUT), "the partitions were requested, but do not exist yet"
        )

    monkeypatch.setattr(broker.services, "create_partitions", create)
    request = wire.CreatePartitionsRequest
    topics = [request.CreatePartitionsTopic(name, 5) for name in ("t", "u")]
    answer = await (await broker.client()).ask(request(topics, timeout_ms=2_000), 3)
    assert [each.error_code for each in answer.results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert 2_000 >= waited[0] > waited[1] > 0


async def test_no_key_named_is_every_key(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        shown = []
        every: list[list[str] | None] = [None, []]
        for keys in every:
            answer = await client.ask(request([request.DescribeConfigsResource(kind, name, keys)]), 4)
            shown.append([entry.name for entry in answer.results[0].configs])
        assert "retention.ms" in shown[0] and shown[0] == shown[1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min.cleanable.dirty.ratio", "abc"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "1_000"),
        ("retention.ms", "1e3"),
        ("retention.ms", ""),
        ("min.compaction.lag.ms", "9223372036854775807"),
        ("cleanup.policy", "compact,,delete"),
    ],
)
async def test_a_value_that_would_mean_nothing_to_the_nodes_is_refused(broker: Broker, key: str, value: str) -> None:
    await broker.create("t")
    client = await broker.client()
    assert await alter(client, ("max.compaction.lag.ms", 0, "5")) == 0
    assert await alter(client, (key, 0, value)) == ErrorCode.INVALID_CONFIG
    assert broker.services.overrides["t"] == {"max.compaction.lag.ms": "5"}


async def test_what_somebody_wrote_by_hand_is_shown_and_can_be_corrected(broker: Broker) -> None:
    await broker.create("t")
    broker.services.overrides["t"] = {"retention.ms": "soon", "segment.ms": "5"}
    client = await broker.client()
    shown = await described(client)
    values = {entry.name: [synonym.value for synonym in entry.synonyms][:1] for entry in shown.configs}
    assert (shown.error_code, values["retention.ms"], values["segment.ms"]) == (0, ["soon"], ["5"])
    assert await alter(client, ("retention.ms", 1, None)) == 0
    assert broker.services.overrides["t"] == {"segment.ms": "5"}


async def test_spaces_and_repetitions_in_a_list_mean_nothing(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    assert await alter(client, ("cleanup.policy", 0, " compact , delete,compact"), ("segment.ms", 0, " 5 ")) == 0
    entries = {entry.name: entry for entry in (await described(client)).configs}
    assert (entries["cleanup.policy"].value, entries["segment.ms"].value) == ("compact,delete", "5")
    assert await alter(client, ("cleanup.policy", 3, "delete")) == 0
    [entry] = (await described(client, "cleanup.policy")).configs
    assert entry.value == "compact"
    [ratio] = (await described(client, "min.cleanable.dirty.ratio")).configs
    assert (ratio.value, ratio.config_type) == ("0.5", 6)


@pytest.mark.parametrize("name", ["2147483648", "9" * 5_000, "-1", "²"])
async def test_what_is_no_broker_id_is_refused(broker: Broker, name: str) -> None:
    """Also thousands of digits, of which Python makes no number."""
    client = await broker.client()
    assert await alter(client, ("max.connections", 0, "70"), name=name, kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert (await described(client, name=name, kind=BROKER)).error_code == ErrorCode.INVALID_REQUEST


async def test_settings_have_kafkas_types(broker: Broker) -> None:
    """As Apache Kafka 4.4 answers the Java client's Admin."""
    await broker.create("t")
    client = await broker.client()
    names = (
        "min.insync.replicas",
        "segment.bytes",
        "retention.ms",
        "cleanup.policy",
        "leader.replication.throttled.replicas",
    )
    entries = (await described(client, *names)).configs
    assert {entry.name: entry.config_type for entry in entries} == dict(zip(names, (3, 3, 5, 7, 7), strict=True))
    types = {"transaction.max.timeout.ms": 3, "offsets.topic.replication.factor": 4, "replica.lag.time.max.ms": 5}
    entries = (await described(client, *types, name="1", kind=BROKER)).configs
    assert {entry.name: entry.config_type for entry in entries} == types


async def test_throttled_replicas_can_be_appended_and_taken_away(broker: Broker) -> None:
    await broker.create("t")
    client, key = await broker.client(), "leader.replication.throttled.replicas"
    for change, value in ((2, "0:1"), (2, "1:2"), (3, "0:1")):
        assert await alter(client, (key, change, value)) == 0
    assert broker.services.overrides["t"] == {key: "1:2"}


async def test_a_malformed_expression_of_a_subscription_is_refused(broker: Broker) -> None:
    client = await broker.client()
    # What another library than RE2 takes would be stored, and match nobody.
    for pattern in ("[", "(?!x)y"):
        code = await alter(client, ("match", 0, f"client_id={pattern}"), name="watched", kind=16)
        assert code == ErrorCode.INVALID_CONFIG
    nested = "(" * 2_000 + "x" + ")" * 2_000  # too deep for Python's own
    assert await alter(client, ("match", 0, f"client_id={nested}"), name="watched", kind=16) == 0
    assert await alter(client, ("match", 0, "client_id=x.*"), name="watched", kind=16) == 0


async def test_a_topic_without_a_name_has_no_settings(broker: Broker) -> None:
    client = await broker.client()
    assert (await described(client, name="")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await alter(client, ("retention.ms", 0, "1"), name="") == ErrorCode.INVALID_REQUEST


async def test_dynamic_settings_of_brokers(broker: Broker) -> None:
    client = await broker.client()
    key = "reassignment.parallel.partition.count"
    assert await alter(client, (key, 0, "5"), name="", kind=BROKER) == 0
    assert await alter(client, ("retention.ms", 0, "9"), name="1", kind=BROKER) == 0
    assert await alter(client, ("leader.replication.throttled.rate", 1, None), name="1", kind=BROKER) == 0
    assert await alter(client, (key, 0, "5"), name="one", kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert await alter(client, (key, 0, "5"), name="1", kind=BROKER) == ErrorCode.INVALID_CONFIG
    assert await alter(client, (key, 0, "none"), name="", kind=BROKER) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("some.key", 0, "x"), name="1", kind=BROKER) == ErrorCode.INVALID_REQUEST
    for fixed in ("log.retention.hours", "listener.name.external.max.connections", "node.id", "broker.id"):
        request = wire.IncrementalAlterConfigsRequest
        resource = request.AlterConfigsResource(BROKER, "1", [request.AlterableConfig(fixed, 0, "1")])
        [answer] = (await client.ask(request([resource]), 1)).responses
        assert answer.error_message == f"{fixed}: cannot be changed without a restart"
    assert broker.services.broker_settings == {None: {key: "5"}, 1: {"retention.ms": "9"}}
    of_all = await described(client, name="", kind=BROKER)
    assert [(entry.name, entry.value, entry.config_source) for entry in of_all.configs] == [(key, "5", 3)]
    mine = {entry.name: entry.config_source for entry in (await described(client, name="1", kind=BROKER)).configs}
    assert (mine[key], mine["retention.ms"], mine["num.partitions"]) == (3, 2, 5)
    [one] = (await described(client, "retention.ms", name="1", kind=BROKER)).configs
    assert one.value == "9"


async def test_a_full_change_forgets_what_it_does_not_name(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await alter(client, ("retention.ms", 0, "5000"))
    request = wire.AlterConfigsRequest
    for validate_only, expected in ((True, {"retention.ms": "5000"}), (False, {"flush.ms": "7"})):
        resource = request.AlterConfigsResource(TOPIC, "t", [request.AlterableConfig("flush.ms", "7")])
        answer = await client.ask(request([resource], validate_only), 2)
        assert answer.responses[0].error_code == 0
        assert broker.services.overrides["t"] == expected


@pytest.mark.parametrize("version", range(5))
async def test_a_brokers_configuration(broker: Broker, version: int) -> None:
    client = await broker.client()
    result = await described(client, name="1", kind=BROKER, version=version)
    values = {entry.name: entry.value for entry in result.configs}
    assert values["offsets.topic.num.partitions"] == "2"
    assert values["auto.create.topics.enable"] == "true"
    assert values["advertised.listeners"].startswith("PLAINTEXT://127.0.0.1:")
    wrong = await described(client, name="9", kind=BROKER, version=version)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(8))
async def test_create_topics(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    topic = request.CreatableTopic
    wanted = [
        topic("good", 2, 1, configs=[request.CreatableTopicConfig("retention.ms", "9")]),
        topic("bad name", 1, 1),
        topic("none", 0, 1),
        topic("far", 1, 3),
        topic("odd", 1, 1, configs=[request.CreatableTopicConfig("retention.ms", "x")]),
        topic("twice", 1, 1),
        topic("twice", 1, 1),
    ]
    answer = await client.ask(request(wanted, 1000), version)
    assert {result.name: result.error_code for result in answer.topics} == {
        "good": 0,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.INVALID_PARTITIONS,
        "far": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    again = await client.ask(request([topic("good", 2, 1)], 1000), version)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    "error", [partial(NotSentError, "ZooKeeper is away"), partial(api_error, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
async def test_a_topic_that_was_made_is_confirmed_without_its_settings_if_they_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    """Refused, the client would make it again, and be told that it is there already."""

    async def refuse(broker_id: BrokerId | None) -> dict[str, str]:
        raise error()

    monkeypatch.setattr(broker.services, "broker_overrides", refuse)
    client = await broker.client()
    request = wire.CreateTopicsRequest
    [made] = (await client.ask(request([request.CreatableTopic("t", 1, 1)], 1000), 7)).topics
    assert (made.error_code, made.configs, made.topic_config_error_code) == (0, None, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_a_partition_assigned_twice_is_refused(broker: Broker) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    replicas = [request.CreatableReplicaAssignment(0, [1])] * 2
    answer = await client.ask(request([request.CreatableTopic("t", -1, -1, replicas)], 1000), 7)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not broker.services.metadata(["t"]).topics[0].partitions


async def test_a_resource_named_twice_is_not_changed(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    for name in ("AlterConfigsRequest", "IncrementalAlterConfigsRequest"):
        request = getattr(wire, name)
        twice = [
            request.AlterConfigsResource(TOPIC, "t", [request.AlterableConfig(name="retention.ms", value=value)])
            for value in ("7", "8")
        ]
        answer = await client.ask(request(twice), 1)
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert not await broker.services.topic_overrides("t")


async def test_create_topics_with_too_many_partitions_is_refused_as_a_whole(broker: Broker) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    wanted = [request.CreatableTopic("a", 1, 1), request.CreatableTopic("b", 10_000, 1)]
    answer = await client.ask(request(wanted, 1000), 7)
    assert {result.name: result.error_code for result in answer.topics} == {
        "a": ErrorCode.POLICY_VIOLATION,
        "b": ErrorCode.POLICY_VIOLATION,
    }


async def test_what_is_described_twice_is_answered_once(broker: Broker) -> None:
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    asked = [request.DescribeConfigsResource(BROKER, "", None)] * 3
    assert len((await client.ask(request(asked), 4)).results) == 1
    assert len((await client.ask(wire.DescribeGroupsRequest(["g", "g", "h"]), 5)).groups) == 2
    assert len((await client.ask(wire.ConsumerGroupDescribeRequest(["g", "g", "h"]), 1)).groups) == 2


@pytest.mark.parametrize("version", range(13))
async def test_metadata_creates_topics_on_demand(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.MetadataRequest
    named = [request.MetadataRequestTopic(name=name) for name in ("fresh", "not a name")]
    answer = await client.ask(request(named), version)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "fresh": 0,
        "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert answer.brokers[0].port == broker.services.kafka_endpoint[1]
    if version >= 4:
        quiet = await client.ask(
            request([request.MetadataRequestTopic(name="other")], allow_auto_topic_creation=False), version
        )
        assert quiet.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    everything = await client.ask(request([] if version == 0 else None), version)
    assert [topic.name for topic in everything.topics] == ["fresh"]
    if version >= 12:
        by_id = request.MetadataRequestTopic(everything.topics[0].topic_id, None)
        unknown = request.MetadataRequestTopic(bytes(range(16)), None)
        answer = await client.ask(request([by_id, unknown]), version)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("fresh", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_id_before_version_12_is_refused(broker: Broker, version: int) -> None:
    """Its answer has no room for a topic without a name (found by bench.fuzz_kafka)."""
    client = await broker.client()
    request = wire.MetadataRequest
    for topic in (request.MetadataRequestTopic(bytes(range(16)), "t"), request.MetadataRequestTopic(name=None)):
        answer = await client.ask(request([topic]), version)
        assert [found.error_code for found in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert (await client.ask(request([]), version)).topics == []


@pytest.mark.parametrize("version", range(7))
async def test_delete_topics_and_add_partitions(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    more = wire.CreatePartitionsRequest
    answer = await client.ask(more([more.CreatePartitionsTopic("t", 4, None)], 1000), 3)
    assert answer.results[0].error_code == 0
    fewer = await client.ask(more([more.CreatePartitionsTopic("t", 1, None)], 1000), 3)
    assert fewer.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    request = wire.DeleteTopicsRequest
    states = [request.DeleteTopicState("t"), request.DeleteTopicState(None, bytes(range(16)))]
    answer = await client.ask(request(states, ["t", "nowhere"], 1000), version)
    codes = {result.name: result.error_code for result in answer.responses}
    if version >= 6:
        assert codes == {"t": 0, None: ErrorCode.UNKNOWN_TOPIC_ID}
    else:
        assert codes == {"t": 0, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.services.metadata(None).topics == ()


@pytest.mark.parametrize("version", [0, 5, 6])
async def test_a_topic_that_is_named_twice_is_not_deleted(broker: Broker, version: int) -> None:
    """Source: Kafka's ControllerApis.deleteTopics."""
    for name in ("twice", "once"):
        await broker.create(name)
    client = await broker.client()
    names = ["twice", "once", "twice"]
    request = wire.DeleteTopicsRequest
    answer = await client.ask(request([request.DeleteTopicState(name) for name in names], names, 1000), version)
    codes = [(result.name, result.error_code) for result in answer.responses]
    assert sorted(codes) == [("once", 0), ("twice", ErrorCode.INVALID_REQUEST)]
    assert [topic.topic for topic in broker.services.metadata(None).topics] == ["twice"]


async def test_a_topic_that_is_named_by_its_id_and_once_more_is_not_deleted(broker: Broker) -> None:
    for name in ("t", "u"):
        await broker.create(name)
    client = await broker.client()
    t, u = (topic_ids.to_wire(each.topic_id) for each in broker.services.metadata(["t", "u"]).topics)
    request = wire.DeleteTopicsRequest
    by_id = [request.DeleteTopicState(None, each) for each in (t, u, u)]
    answer = await client.ask(request([*by_id, request.DeleteTopicState("t")], timeout_ms=1000), 6)
    codes = {(result.name, result.topic_id): result.error_code for result in answer.responses}
    assert codes == {("t", t): ErrorCode.INVALID_REQUEST, (None, u): ErrorCode.INVALID_REQUEST}
    assert len(broker.services.metadata(None).topics) == 2


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [(1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (2, 0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (1, 3, 115)],
)
async def test_endpoints_of_controllers_are_not_here(
    broker: Broker, version: int, endpoint_type: int, code: int
) -> None:
    """Source: Kafka's AuthHelper.computeDescribeClusterResponse (KIP-919)."""
    client = await broker.client()
    answer = await client.ask(wire.DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.brokers) == (code, [])


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster(broker: Broker, version: int) -> None:
    client = await broker.client()
    answer = await client.ask(wire.DescribeClusterRequest(), version)
    assert (answer.cluster_id, answer.controller_id, len(answer.brokers)) == ("memory", 1, 1)


@pytest.mark.parametrize("hears_of_it", [True, False])
async def test_metadata_waits_a_moment_for_the_first_word_of_a_controller(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, hears_of_it: bool
) -> None:
    known = broker.services.metadata
    words = 0

    def nothing_yet(topics: Any) -> Any:
        return (
            known(topics)
            if hears_of_it and words >= 3
            else dataclasses.replace(known(topics), controller_id=BrokerId(-1))
        )

    async def word() -> None:
        nonlocal words
        words += 1
        await asyncio.sleep(0)  # the group coordinator waits here in a loop, too

    monkeypatch.setattr(broker.services, "metadata", nothing_yet)
    monkeypatch.setattr(broker.services, "metadata_changed", word)
    monkeypatch.setattr("kafkalite.kafka.handlers.cluster._CONTROLLER_WAIT_S", 60 if hears_of_it else 0)
    client = await broker.client()
    answer = await client.ask(wire.MetadataRequest([]), 9)
    assert answer.controller_id == (1 if hears_of_it else -1)
    assert [found.node_id for found in answer.brokers] == [1]


async def test_brokers_and_the_cluster_default_are_configured_while_they_run(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    assert await alter(client, ("max.connections", 0, "70"), ("log.retention.ms", 0, "9000"), name="", kind=BROKER) == 0
    assert await alter(client, ("max.connections", 0, "80"), name="1", kind=BROKER) == 0
    entries = {entry.name: entry for entry in (await described(client, name="1", kind=BROKER)).configs}
    told = entries["max.connections"]
    assert (told.value, told.config_source, told.read_only) == ("80", 2, False)
    assert [(synonym.source, synonym.value) for synonym in told.synonyms] == [(2, "80"), (3, "70"), (5, "10000")]
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("9000", 3)
    assert entries["num.partitions"].read_only
    cluster = (await described(client, name="", kind=BROKER)).configs
    of_all = {
        "max.connections": "70",
        "retention.ms": "9000",
        "log.retention.ms": "9000",
    }  # as of one broker: both names
    assert {entry.name: entry.value for entry in cluster} == of_all
    [own] = (await described(client, "retention.ms")).configs  # of the topic: where its default comes from
    assert (own.value, own.config_source) == ("9000", 3)
    assert await alter(client, ("max.connections", 1, None), name="1", kind=BROKER) == 0
    [told] = (await described(client, "max.connections", name="1", kind=BROKER)).configs
    assert (told.value, told.config_source) == ("70", 3)
    for name, key, value, code in (
        ("1", "max.connections", "none", ErrorCode.INVALID_CONFIG), ("", "broker.id", "2", ErrorCode.INVALID_REQUEST),
        ("x", "max.connections", "1", ErrorCode.INVALID_REQUEST), ("", "no.such", "1", ErrorCode.INVALID_REQUEST),
    ):  # fmt: skip
        assert await alter(client, (key, 0, value), name=name, kind=BROKER) == code


async def test_kafkas_settings_that_are_facts_here(make_broker: Any) -> None:
    """Shown with what is true, never to be changed, and no setting of ours at the same time."""
    broker = await make_broker(broker_id=1)
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    node = str(broker.services.broker_id)
    answer = await client.ask(
        request(
            [request.DescribeConfigsResource(BROKER, node, None)], include_synonyms=True, include_documentation=True
        ),
        4,
    )
    names = [each.name for each in answer.results[0].configs]
    assert len(names) == len(set(names))
    shown = {each.name: each for each in answer.results[0].configs}
    assert shown.keys() >= TRUE_VALUES.keys() and not TRUE_VALUES.keys() & (
        BROKER_KEYS.keys() | TOPIC_KEYS.keys() | ALIASES.keys()
    )
    assert all(shown[name].read_only and shown[name].documentation for name in TRUE_VALUES)
    assert (shown["num.io.threads"].value, shown["node.id"].value) == ("1", str(broker.services.config.broker_id))
    assert shown["log.retention.ms"].value == shown["retention.ms"].value
    one = await client.ask(request([request.DescribeConfigsResource(BROKER, node, ["num.io.threads"])]), 4)
    assert [each.name for each in one.results[0].configs] == ["num.io.threads"]
    alter = wire.IncrementalAlterConfigsRequest
    change = alter.AlterableConfig("num.io.threads", 0, "8")
    refused = await client.ask(alter([alter.AlterConfigsResource(BROKER, node, [change])]), 1)
    assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert "cannot be changed" in refused.responses[0].error_message


def test_a_setting_of_kafka_is_here_or_has_a_reason_but_not_both() -> None:
    absent = [name for names in NOT_HERE.values() for name in names.split()]
    assert len(absent) == len(set(absent))
    known = {*BROKER_KEYS, *TOPIC_KEYS, *ALIASES, *UNITS, *TRUE_VALUES}
    assert not known & set(absent)


async def test_segment_bytes_of_an_internal_topic(make_broker: Any) -> None:
    """The topic's own; without it the broker's for this topic, as KIP-226 has it for other defaults."""
    broker = await make_broker(offsets_topic_segment_bytes=2_000_000)
    client = await broker.client()
    await coordinator(client, "g")

    async def shown() -> list[tuple[int, str]]:
        [entry] = (await described(client, "segment.bytes", name=GROUP_TOPIC)).configs
        assert entry.value == "2000000" and entry.config_source == entry.synonyms[0].source
        return [(each.source, each.value) for each in entry.synonyms]

    defaults = [(4, "2000000"), (5, "10485760")]
    assert await shown() == [(1, "2000000"), *defaults]
    assert await alter(client, ("segment.bytes", 1, None), name=GROUP_TOPIC) == 0
    assert await shown() == defaults
