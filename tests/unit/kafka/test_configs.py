"""Settings of topics and of others than brokers through the wire."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.coordination.coordinator import (
    AuthFailedError,
    CoordinatorError,
    NotSentError,
    OutcomeUnknownError,
    TooBigError,
)
from kafkalite.coordination.topic_configs import TOPICS
from kafkalite.errors import ErrorCode
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire

from .config_requests import BROKER, TOPIC, alter, described
from .conftest import Broker
from .coordinator_requests import coordinator


async def test_incremental_changes(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    assert await alter(client, ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact")) == 0
    entries = {entry.name: entry for entry in (await described(client)).configs}
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5000", 1)
    assert entries["cleanup.policy"].value == "delete,compact"
    # Where the default comes from has the name of Kafka's brokers, as kafka-configs prints it.
    found = {
        name: [(each.source, each.name) for each in entries[name].synonyms] for name in ("retention.ms", "flush.ms")
    }
    assert found["retention.ms"] == [(1, "retention.ms"), (5, "log.retention.ms")]
    assert found["flush.ms"] == [(5, "log.flush.interval.ms")]
    assert entries["segment.bytes"].config_source == 5 and entries["segment.bytes"].documentation
    assert await alter(client, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete")) == 0
    [entry] = (await described(client, "cleanup.policy")).configs
    assert entry.value == "compact"
    assert await alter(client, ("no.such.key", 0, "1")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 0, "soon")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 2, "1")) == ErrorCode.INVALID_CONFIG
    assert await alter(client, ("retention.ms", 0, "1"), ("retention.ms", 1, None)) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("retention.ms", 0, "1"), name="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(client, ("retention.ms", 0, "1"), name="no name") == ErrorCode.INVALID_TOPIC_EXCEPTION
    # As with Kafka, what is not set can be taken away whatever its name.
    assert await alter(client, ("leader.replication.throttled.replicas", 1, None)) == 0
    assert await alter(client, ("retention.ms", 0, "1"), name="1", kind=8) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("retention.ms", 0, None)) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("retention.ms", 2, None)) == ErrorCode.INVALID_REQUEST


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

    async def refused(*_: object) -> bool:
        raise type(error)(*error.args)  # its traceback holds the request

    monkeypatch.setattr(broker.services, "replace_entity_overrides", refused)
    assert await alter(await broker.client(), ("retention.ms", 0, "5000")) == code


@pytest.mark.parametrize("name", ["", ".", "..", "(invalid topic)", "x" * 250, "\u00e9"])
async def test_what_no_topic_can_be_called_has_no_settings(broker: Broker, name: str) -> None:
    answer = await described(await broker.client(), name=name)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAME_RULE)
    unknown = await described(await broker.client(), name="x" * 249)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
    assert broker.services.settings[TOPICS]["t"] == {"max.compaction.lag.ms": "5"}


async def test_what_somebody_wrote_by_hand_is_shown_and_can_be_corrected(broker: Broker) -> None:
    await broker.create("t")
    broker.services.settings[TOPICS]["t"] = {"retention.ms": "soon", "segment.ms": "5"}
    client = await broker.client()
    shown = await described(client)
    values = {entry.name: [synonym.value for synonym in entry.synonyms][:1] for entry in shown.configs}
    assert (shown.error_code, values["retention.ms"], values["segment.ms"]) == (0, ["soon"], ["5"])
    assert await alter(client, ("retention.ms", 1, None)) == 0
    assert broker.services.settings[TOPICS]["t"] == {"segment.ms": "5"}


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
    assert broker.services.settings[TOPICS]["t"] == {key: "1:2"}


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


async def test_a_full_change_forgets_what_it_does_not_name(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await alter(client, ("retention.ms", 0, "5000"))
    request = wire.AlterConfigsRequest
    for validate_only, expected in ((True, {"retention.ms": "5000"}), (False, {"flush.ms": "7"})):
        resource = request.AlterConfigsResource(TOPIC, "t", [request.AlterableConfig("flush.ms", "7")])
        answer = await client.ask(request([resource], validate_only), 2)
        assert answer.responses[0].error_code == 0
        assert broker.services.settings[TOPICS]["t"] == expected


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


async def test_what_is_described_twice_is_answered_once(broker: Broker) -> None:
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    asked = [request.DescribeConfigsResource(BROKER, "", None)] * 3
    assert len((await client.ask(request(asked), 4)).results) == 1
    assert len((await client.ask(wire.DescribeGroupsRequest(["g", "g", "h"]), 5)).groups) == 2
    assert len((await client.ask(wire.ConsumerGroupDescribeRequest(["g", "g", "h"]), 1)).groups) == 2


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
