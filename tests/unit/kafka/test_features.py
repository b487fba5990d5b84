"""UpdateFeatures, UnregisterBroker, ListConfigResources; configurations of groups and client metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.coordination.topic_configs import BROKERS, CLIENT_METRICS, GROUPS
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from kafkalite.replica.requests import MetadataResponse

from .conftest import Broker, FrameClient

_UPGRADE, _SAFE = 1, 2
_CLIENT_METRICS, _GROUP = 16, 32


async def levels(client: FrameClient) -> tuple[int, dict[str, int]]:
    answer = await client.ask(wire.ApiVersionsRequest("test", "1"), 4)
    return answer.finalized_features_epoch, {each.name: each.max_version_level for each in answer.finalized_features}


async def update(client: FrameClient, *updates: tuple[str, int, int], version: int = 2, **fields: Any) -> Any:
    request = wire.UpdateFeaturesRequest
    return await client.ask(
        request(feature_updates=[request.FeatureUpdateKey(n, lvl, upgrade_type=t) for n, lvl, t in updates], **fields),
        version,
    )


async def test_a_feature_goes_down_and_up_again(broker: Broker) -> None:
    client = await broker.client()
    epoch, before = await levels(client)
    assert before["transaction.version"] == 2
    answer = await update(client, ("transaction.version", 1, _UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and "downgrade" in answer.error_message
    assert (await update(client, ("transaction.version", 1, _SAFE), validate_only=True)).error_code == 0
    assert (await levels(client))[1]["transaction.version"] == 2
    assert (await update(client, ("transaction.version", 1, _SAFE))).error_code == 0
    lower_epoch, lower = await levels(client)
    assert lower["transaction.version"] == 1 and lower_epoch > epoch
    assert broker.services.feature_level("transaction.version") == 1
    assert (await update(client, ("transaction.version", 2, _SAFE))).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (await update(client, ("transaction.version", 2, _UPGRADE))).error_code == 0
    highest_epoch, after = await levels(client)
    assert after == before and highest_epoch > lower_epoch


async def test_a_node_that_knows_no_broker_yet_does_not_say_that_groups_are_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens before it registers, which an empty disk delays by a session. Java's consumers give up at UNSUPPORTED_VERSION."""
    known = broker.services.metadata
    monkeypatch.setattr(broker.services, "metadata", lambda topics: replace(known(topics), brokers=()))
    client = await broker.client()
    later = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    consumer = wire.ConsumerGroupHeartbeatRequest("g", "m", 1)
    assert (await client.ask(consumer, 1)).error_code in later
    share = wire.ShareGroupHeartbeatRequest("g", "m", 1)
    assert (await client.ask(share, 1)).error_code in later
    streams = wire.StreamsGroupHeartbeatRequest("g", "m", 1)
    assert (await client.ask(streams, 0)).error_code in later
    fetch = wire.ShareFetchRequest("g", "AAAAAAAAAAAAAAAAAAAAAQ", 0, 0, 1, 1, 1, 1)
    assert (await client.ask(fetch, 1)).error_code != ErrorCode.UNSUPPORTED_VERSION


async def test_one_bad_update_and_none_is_made(broker: Broker) -> None:
    client = await broker.client()
    wanted = (("transaction.version", 1, _SAFE), ("metadata.version", 20, _UPGRADE))
    answer = await update(client, *wanted, version=1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert [(each.feature, each.error_code) for each in answer.results] == [
        ("transaction.version", 0),
        ("metadata.version", ErrorCode.INVALID_UPDATE_VERSION),
    ]
    assert (await levels(client))[1]["transaction.version"] == 2


async def test_version_0_says_whether_a_downgrade_is_meant(broker: Broker) -> None:
    client = await broker.client()
    request = wire.UpdateFeaturesRequest
    for allowed, code in ((False, ErrorCode.INVALID_UPDATE_VERSION), (True, ErrorCode.NONE)):
        named = request.FeatureUpdateKey("transaction.version", 1, allow_downgrade=allowed)
        assert (await client.ask(request(feature_updates=[named]), 0)).error_code == code


async def test_an_update_without_sense(broker: Broker) -> None:
    client = await broker.client()
    for kind in (-1, 0, 4):  # the code is that of Apache Kafka 4.4.0
        answer = await update(client, ("transaction.version", 1, kind))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    twice = [("transaction.version", 1, _SAFE)] * 2
    assert (await update(client, *twice)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_broker_that_is_gone_is_forgotten(broker: Broker) -> None:
    client = await broker.client()

    async def code(broker_id: int) -> int:
        return int((await client.ask(wire.UnregisterBrokerRequest(broker_id), 0)).error_code)

    assert await code(1) == ErrorCode.INVALID_REQUEST  # it is running
    assert await code(7) == ErrorCode.BROKER_ID_NOT_REGISTERED
    broker.services.settings[BROKERS]["7"] = {"num.replica.fetchers": "2"}
    assert await code(7) == 0
    assert not broker.services.settings[BROKERS]["7"]
    broker.services.started.add(BrokerId(7))
    assert await code(7) == 0
    assert await code(7) == ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_a_broker_that_has_just_stopped_is_forgotten(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused as running, until the node that was asked had heard of its end."""
    services = broker.services
    services.settings[BROKERS]["7"] = {"num.replica.fetchers": "2"}
    known, asked = services.metadata, 0

    def metadata(topics: Sequence[str] | None) -> MetadataResponse:
        nonlocal asked
        asked += 1
        found = known(topics)
        gone = replace(found.brokers[0], broker_id=BrokerId(7))
        return found if asked > 3 else replace(found, brokers=(*found.brokers, gone))

    monkeypatch.setattr(services, "metadata", metadata)
    client = await broker.client()
    assert (await client.ask(wire.UnregisterBrokerRequest(7), 0)).error_code == 0


async def alter(
    client: FrameClient, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> tuple[int, str | None]:
    request = wire.IncrementalAlterConfigsRequest
    settings = [request.AlterableConfig(*each) for each in changes]
    [answer] = (await client.ask(request([request.AlterConfigsResource(kind, name, settings)]), 1)).responses
    return answer.error_code, answer.error_message


async def described(client: FrameClient, kind: int, name: str) -> dict[str, tuple[str, int]]:
    request = wire.DescribeConfigsRequest
    [answer] = (await client.ask(request([request.DescribeConfigsResource(kind, name, None)]), 4)).results
    assert answer.error_code == 0, answer
    return {entry.name: (entry.value, entry.config_source) for entry in answer.configs}


async def test_settings_of_a_group(broker: Broker) -> None:
    client = await broker.client()
    assert (await described(client, _GROUP, "g"))["consumer.session.timeout.ms"] == ("45000", 5)
    assert await alter(client, _GROUP, "g", ("consumer.session.timeout.ms", 0, "50000")) == (0, None)
    assert (await described(client, _GROUP, "g"))["consumer.session.timeout.ms"] == ("50000", 8)
    assert broker.services.settings_of(GROUPS) == {"g": {"consumer.session.timeout.ms": "50000"}}
    for key, text in (
        ("consumer.session.timeout.ms", "x"),
        ("consumer.session.timeout.ms", "0"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.isolation.level", "x"),
        ("streams.assignor.name", "x"),
        ("retention.ms", "1"),
    ):
        assert (await alter(client, _GROUP, "g", (key, 0, text)))[0] == ErrorCode.INVALID_CONFIG, key
    for key, text in (
        ("share.auto.offset.reset", "by_duration:P1DT2H3.5S"),
        ("streams.assignor.name", "sticky"),
        ("streams.rack.aware.assignment.tags", "zone,rack"),
    ):
        assert await alter(client, _GROUP, "g", (key, 0, text)) == (0, None)
    assert (await alter(client, _GROUP, "", ("share.isolation.level", 0, "read_committed")))[0]


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("consumer.session.timeout.ms", 45_000, 60_000),
        ("consumer.heartbeat.interval.ms", 5_000, 15_000),
        ("share.assignment.interval.ms", 0, 15_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("share.partition.max.record.locks", 100, 4_000),
        ("streams.num.standby.replicas", 0, 2),
        ("streams.task.offset.interval.ms", 15_000, 2**31 - 1),
    ],
)
async def test_the_broker_limits_what_a_group_may_set(broker: Broker, key: str, low: int, high: int) -> None:
    client = await broker.client()
    for wrong in {low - 1, high + 1}:
        assert (await alter(client, _GROUP, "g", (key, 0, str(wrong))))[0] == ErrorCode.INVALID_CONFIG, wrong
    for right in (low, high):
        assert await alter(client, _GROUP, "g", (key, 0, str(right))) == (0, None)


@pytest.mark.parametrize(
    ("key", "wrong", "why"),
    [
        ("streams.session.timeout.ms", 1, "greater than or equal to group.streams.min.session.timeout.ms (45000)"),
        ("streams.session.timeout.ms", 100_000, "less than or equal to group.streams.max.session.timeout.ms (60000)"),
        ("streams.num.standby.replicas", 3, "less than or equal to group.streams.max.standby.replicas (2)"),
        ("share.delivery.count.limit", 11, "less than or equal to group.share.max.delivery.count.limit (10)"),
        ("share.session.timeout.ms", 60_001, "less than or equal to group.share.max.session.timeout.ms (60000)"),
    ],
)
async def test_a_refusal_names_the_setting_of_the_broker_with_the_limit(
    broker: Broker, key: str, wrong: int, why: str
) -> None:
    """In Kafka's words, which kafka-configs prints (ConfigCommandIntegrationTest)."""
    client = await broker.client()
    answer = await alter(client, _GROUP, "g", (key, 0, str(wrong)))
    assert answer == (ErrorCode.INVALID_CONFIG, f"{key} must be {why}, not {wrong}")


async def test_a_subscription_shows_what_is_set_as_the_only_synonym(broker: Broker) -> None:
    """As Kafka does: kafka-configs prints the synonyms."""
    client = await broker.client()
    assert (await alter(client, _CLIENT_METRICS, "s", ("metrics", 0, "org.apache"))) == (0, None)
    request = wire.DescribeConfigsRequest
    asked = request.DescribeConfigsResource(_CLIENT_METRICS, "s", None)
    [answer] = (await client.ask(request([asked], include_synonyms=True), 4)).results
    found = {each.name: [(synonym.source, synonym.value) for synonym in each.synonyms] for each in answer.configs}
    assert found == {"interval.ms": [], "match": [], "metrics": [(7, "org.apache")]}


async def test_a_group_may_set_the_value_of_the_broker(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_session_timeout_ms=6_000, group_consumer_heartbeat_interval_ms=1_000)
    client = await broker.client()
    for text, code in (("6000", 0), ("7000", ErrorCode.INVALID_CONFIG)):
        assert (await alter(client, _GROUP, "g", ("consumer.session.timeout.ms", 0, text)))[0] == code
    code, why = await alter(client, _GROUP, "g", ("consumer.heartbeat.interval.ms", 0, "6000"))
    assert (code, why) == (
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms: 6000 is not greater than 6000",
    )
    assert (await alter(client, _GROUP, "g", ("errors.deadletterqueue.topic.name", 0, "__x")))[0] == code
    longer = (("consumer.session.timeout.ms", 0, "50000"), ("consumer.heartbeat.interval.ms", 0, "7000"))
    for change in longer:
        assert await alter(client, _GROUP, "g", change) == (0, None)
    code, why = await alter(
        client, _GROUP, "g", ("consumer.session.timeout.ms", 1, None)
    )  # the broker's would hold again
    assert (code, why) == (
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms: 6000 is not greater than 7000",
    )


async def test_a_group_shows_the_value_in_force_and_where_it_comes_from(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_session_timeout_ms=6_000, group_share_delivery_count_limit=3)
    client = await broker.client()
    before = await described(client, _GROUP, "g")
    assert before["consumer.session.timeout.ms"] == ("6000", 4)
    assert before["share.delivery.count.limit"] == ("3", 4)
    assert before["streams.session.timeout.ms"] == ("45000", 5)
    assert before["share.isolation.level"] == ("read_uncommitted", 5)
    await alter(client, _GROUP, "g", ("consumer.session.timeout.ms", 0, "50000"))
    request = wire.DescribeConfigsRequest
    asked = request.DescribeConfigsResource(_GROUP, "g", ["consumer.session.timeout.ms"])
    [answer] = (await client.ask(request([asked], include_synonyms=True), 4)).results
    [entry] = answer.configs
    assert (entry.value, entry.config_source, entry.is_default) == ("50000", 8, False)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "6000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


async def test_subscriptions_of_client_metrics(broker: Broker) -> None:
    client = await broker.client()
    assert await alter(client, _CLIENT_METRICS, "s", ("metrics", 2, "a."), ("metrics", 2, "b.")) != (0, None)  # twice
    for operation in (2, 3):  # nothing is added or taken away, as in Kafka 4.4.0
        assert (await alter(client, _CLIENT_METRICS, "s", ("metrics", operation, "a.")))[0] == ErrorCode.INVALID_CONFIG
    assert await alter(client, _CLIENT_METRICS, "s", ("metrics", 0, "b."), ("interval.ms", 0, "1000")) == (0, None)
    assert broker.services.settings_of(CLIENT_METRICS) == {"s": {"metrics": "b.", "interval.ms": "1000"}}
    assert (await alter(client, _CLIENT_METRICS, "s", ("match", 0, "client_colour=red")))[0] == ErrorCode.INVALID_CONFIG
    assert (await alter(client, _CLIENT_METRICS, "s", ("interval.ms", 0, "99")))[0] == ErrorCode.INVALID_CONFIG
    assert (await alter(client, _CLIENT_METRICS, "s", ("colour", 0, "red")))[0] == ErrorCode.INVALID_REQUEST  # Kafka's
    await alter(client, _CLIENT_METRICS, "s", ("metrics", 1, None), ("interval.ms", 1, None))
    assert broker.services.settings_of(CLIENT_METRICS) == {}


async def test_resources_with_configurations(broker: Broker) -> None:
    client = await broker.client()
    await broker.create("t")
    await alter(client, _GROUP, "g", ("share.isolation.level", 0, "read_committed"))
    await alter(client, _CLIENT_METRICS, "s", ("metrics", 0, "*"))

    async def listed(version: int, *types: int) -> list[tuple[str, int]]:
        answer = await client.ask(wire.ListConfigResourcesRequest(types), version)
        assert answer.error_code == 0
        return [(each.resource_name, each.resource_type) for each in answer.config_resources]

    assert await listed(0) == [("s", 16)]
    assert await listed(1, 32) == [("g", 32)]
    assert await listed(1) == [("t", 2), ("1", 4), ("1", 8), ("s", 16), ("g", 32)]
    wrong = await client.ask(wire.ListConfigResourcesRequest([3]), 1)
    assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION
