"""Settings of brokers through the wire."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.config import ALIASES, BROKER_KEYS, TOPIC_KEYS, UNITS
from kafkalite.coordination.paths import DEFAULT_ENTITY
from kafkalite.coordination.topic_configs import BROKERS
from kafkalite.errors import ErrorCode
from kafkalite.kafka.handlers.configs.describing import SHOWN_IF_SET
from kafkalite.kafka.handlers.configs.true_values import TRUE_VALUES
from kafkalite.protocol import wire
from kafkalite.testing.kafka_settings import BROKER_SETTINGS
from kafkalite_cli.docs.settings import NOT_HERE

from .config_requests import BROKER, alter, described
from .conftest import Broker


@pytest.mark.parametrize("name", ["2147483648", "9" * 5_000, "-1", "²"])
async def test_what_is_no_broker_id_is_refused(broker: Broker, name: str) -> None:
    """Also thousands of digits, of which Python makes no number."""
    client = await broker.client()
    assert await alter(client, ("max.connections", 0, "70"), name=name, kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert (await described(client, name=name, kind=BROKER)).error_code == ErrorCode.INVALID_REQUEST


async def test_dynamic_settings_of_brokers(broker: Broker) -> None:
    client = await broker.client()
    key = "reassignment.parallel.partition.count"
    assert await alter(client, (key, 0, "5"), name="", kind=BROKER) == 0
    assert await alter(client, ("retention.ms", 0, "9"), name="1", kind=BROKER) == 0
    assert await alter(client, ("leader.replication.throttled.rate", 1, None), name="1", kind=BROKER) == 0
    assert await alter(client, (key, 0, "5"), name="one", kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert await alter(client, (key, 0, "5"), name="1", kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert await alter(client, (key, 0, "none"), name="", kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("some.key", 0, "x"), name="1", kind=BROKER) == ErrorCode.INVALID_REQUEST
    for fixed in ("log.retention.hours", "listener.name.external.max.connections", "node.id", "broker.id"):
        request = wire.IncrementalAlterConfigsRequest
        resource = request.AlterConfigsResource(BROKER, "1", [request.AlterableConfig(fixed, 0, "1")])
        [answer] = (await client.ask(request([resource]), 1)).responses
        assert answer.error_message == f"Cannot update these configs dynamically: [{fixed}]; they need a restart"
    assert broker.services.settings[BROKERS] == {DEFAULT_ENTITY: {key: "5"}, "1": {"retention.ms": "9"}}
    of_all = await described(client, name="", kind=BROKER)
    assert [(entry.name, entry.value, entry.config_source) for entry in of_all.configs] == [(key, "5", 3)]
    mine = {entry.name: entry.config_source for entry in (await described(client, name="1", kind=BROKER)).configs}
    assert (mine[key], mine["retention.ms"], mine["num.partitions"]) == (3, 2, 5)
    [one] = (await described(client, "retention.ms", name="1", kind=BROKER)).configs
    assert one.value == "9"


async def test_a_limit_of_replication_is_shown_once_it_is_set(broker: Broker) -> None:
    """As Kafka does: kafka-reassign-partitions takes what it sees for a limit (ReassignPartitionsCommandTest)."""
    client = await broker.client()
    key = "leader.replication.throttled.rate"
    shown = {entry.name for entry in (await described(client, name="1", kind=BROKER)).configs}
    assert not [name for name in shown if "throttled.rate" in name or name.startswith("replica.alter.log.dirs")]
    assert await alter(client, (key, 0, "7"), name="1", kind=BROKER) == 0
    shown = {entry.name for entry in (await described(client, name="1", kind=BROKER)).configs}
    assert [name for name in shown if "throttled.rate" in name] == [key]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
async def test_the_assignment_interval_of_groups_is_changed_without_a_restart(broker: Broker, kind: str) -> None:
    """Kafka's DynamicGroupConfigIntegrationTest does it for all brokers and for one."""
    client = await broker.client()
    key = f"group.{kind}.assignment.interval.ms"
    assert await alter(client, (key, 0, "4000"), name="", kind=BROKER) == 0
    assert await alter(client, (key, 0, "5000"), name="1", kind=BROKER) == 0
    [one] = (await described(client, key, name="1", kind=BROKER)).configs
    assert (one.value, one.config_source, one.read_only) == ("5000", 2, False)
    [of_group] = (await described(client, f"{kind}.assignment.interval.ms", name="g", kind=32)).configs
    assert (of_group.config_source, [each.source for each in of_group.synonyms][:2]) == (2, [2, 3])
    assert [each.value for each in of_group.synonyms][:2] == ["5000", "4000"]


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


@pytest.mark.parametrize(
    "key",
    [
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
async def test_a_rate_that_is_not_set_is_not_shown(broker: Broker, key: str) -> None:
    """As with Kafka: a program that removes its throttle waits until it is gone."""
    client = await broker.client()

    async def shown() -> list[tuple[str, str, int]]:
        entries = (await described(client, key, name="1", kind=BROKER)).configs
        return [(entry.name, entry.value, entry.config_source) for entry in entries]

    assert await shown() == []
    assert await alter(client, (key, 0, "123"), name="1", kind=BROKER) == 0
    assert await shown() == [(key, "123", 2)]
    assert await alter(client, (key, 1, None), name="1", kind=BROKER) == 0
    assert await shown() == []
    every = (await described(client, name="1", kind=BROKER)).configs
    assert key not in {entry.name for entry in every}


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
        ("1", "max.connections", "none", ErrorCode.INVALID_REQUEST), ("", "broker.id", "2", ErrorCode.INVALID_REQUEST),
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
    checkpoints = "log.flush.start.offset.checkpoint.interval.ms"
    assert shown[checkpoints].value == shown["log.flush.offset.checkpoint.interval.ms"].value == "60000"
    assert shown["sasl.oauthbearer.allow.unverified.audience"].value == "true"
    one = await client.ask(request([request.DescribeConfigsResource(BROKER, node, ["num.io.threads"])]), 4)
    assert [each.name for each in one.results[0].configs] == ["num.io.threads"]
    alter = wire.IncrementalAlterConfigsRequest
    change = alter.AlterableConfig("num.io.threads", 0, "8")
    refused = await client.ask(alter([alter.AlterConfigsResource(BROKER, node, [change])]), 1)
    assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert refused.responses[0].error_message == (
        "Cannot update these configs dynamically: [num.io.threads]; num.io.threads is no setting here (one event loop serves all requests)"
    ), "a restart was advised, and a node does not start with it"


def test_a_setting_of_kafka_is_here_or_has_a_reason_but_not_both() -> None:
    absent = [name for names in NOT_HERE.values() for name in names.split()]
    assert len(absent) == len(set(absent))
    known = {*BROKER_KEYS, *TOPIC_KEYS, *ALIASES, *UNITS, *TRUE_VALUES}
    assert not known & set(absent)


async def test_every_setting_of_kafkas_brokers_is_shown_or_named_in_the_docs(broker: Broker) -> None:
    client = await broker.client()
    shown = {entry.name for entry in (await described(client, name="1", kind=BROKER)).configs}
    absent = {name for names in NOT_HERE.values() for name in names.split()}
    assert sorted(BROKER_SETTINGS - shown - absent - SHOWN_IF_SET) == []


async def test_a_group_without_a_setting_shows_where_the_value_in_force_comes_from(broker: Broker) -> None:
    client = await broker.client()
    key = "group.consumer.assignment.interval.ms"
    assert await alter(client, (key, 0, "2000"), name="", kind=BROKER) == 0
    assert await alter(client, (key, 0, "3000"), name="1", kind=BROKER) == 0
    [entry] = (await described(client, "consumer.assignment.interval.ms", name="g", kind=32)).configs
    found = [(each.source, each.name, each.value) for each in entry.synonyms]
    assert found == [(2, key, "3000"), (3, key, "2000"), (5, key, "0")]
    assert entry.config_source == 2
