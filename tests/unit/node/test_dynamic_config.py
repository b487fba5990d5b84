"""Settings of brokers that change while nodes run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.config import (
    BROKER_KEYS,
    BrokerConfig,
    TopicConfig,
    check_dynamic,
    is_dynamic,
    usable_topic_config,
    with_dynamic,
)
from kafkalite.coordination.topic_configs import write_config
from kafkalite.env.turns import at_once
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.log.housekeeping import Housekeeping
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.configs import alter_broker
from tests.support.waiting import until


async def settled(running: Cluster, condition: Callable[[BrokerConfig], bool], nodes: tuple[int, ...]) -> None:
    await until(lambda: all(condition(running.nodes[node].config) for node in nodes))


async def test_a_change_reaches_running_nodes_and_goes_again() -> None:
    async with cluster(2) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 2), NewTopic("own", 1, 2, configs={"min.insync.replicas": "1"})])

        async def alter(node: int | None, changes: dict[str, str], deletions: tuple[str, ...] = ()) -> int:
            return await alter_broker(client, node, changes, deletions)

        def insync(topic: str) -> set[int]:
            hosted = [node.replicas.hosted.get(TopicPartition(topic, 0)) for node in running.nodes.values()]
            return {each.leader.min_insync_replicas for each in hosted if each is not None and each.leader is not None}

        assert await alter(None, {"min.insync.replicas": "2", "max.connections": "50"}) == 0
        assert await alter(1, {"max.connections": "60"}) == 0
        await settled(running, lambda config: config.topic.min_insync_replicas == 2, (1, 2))
        await settled(running, lambda config: config.max_connections == 60, (1,))
        await settled(running, lambda config: config.max_connections == 50, (2,))
        assert (insync("t"), insync("own")) == ({2}, {1})  # applied to what is led now; a topic's own word is stronger
        assert running.nodes[1].rpc.max_connections == 10_000  # nodes are not clients

        assert await alter(None, {"num.partitions": "7"}) == ErrorCode.INVALID_REQUEST  # needs a restart
        assert await alter(None, {"no.such": "7"}) == ErrorCode.INVALID_REQUEST
        assert await alter(None, {"max.connections": "0"}) == ErrorCode.INVALID_REQUEST
        assert await alter(None, {}, ("min.insync.replicas", "max.connections")) == 0
        await settled(running, lambda config: config.topic.min_insync_replicas == 1, (1, 2))
        await settled(running, lambda config: config.max_connections == 10_000, (2,))
        assert insync("t") == {1} and running.nodes[1].config.max_connections == 60

        # What holds at the start holds after a restart as well: it is in ZooKeeper.
        await running.stop_node(1)
        await running.start_node(1)
        assert running.nodes[1].config.max_connections == 60


async def test_a_shorter_pause_of_the_cleaner_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take effect after the long one otherwise."""
    settings = {"log.cleaner.backoff.ms": 3_600_000}
    async with cluster(1, settings=settings) as running, AsyncClient.connect(running.bootstrap) as client:
        passes = asyncio.Event()

        async def cleaning_pass(housekeeping: Housekeeping) -> int:
            passes.set()
            return 0

        monkeypatch.setattr(Housekeeping, "cleaning_pass", cleaning_pass)
        assert await alter_broker(client, None, {"log.cleaner.backoff.ms": "10"}) == 0
        async with asyncio.timeout(150):
            await passes.wait()


async def test_fetchers_are_more_or_fewer_without_a_restart() -> None:
    """And records go on; one broker's own number is stronger than the cluster's."""
    async with cluster(2) as running, AsyncClient.connect(running.bootstrap) as client:
        first, second = BrokerId(1), BrokerId(2)
        assignment: dict[int, tuple[BrokerId, ...]] = {
            number: (first, second) if number < 3 else (second, first) for number in range(6)
        }
        await client.create_topics([NewTopic("t", assignment=assignment)])

        async def alter(node: int | None, changes: dict[str, str], deletions: tuple[str, ...] = ()) -> int:
            return await alter_broker(client, node, changes, deletions)

        def fetchers(node: int) -> int:
            return len(running.nodes[node].replicas.fetchers)

        async with Producer(client) as producer, asyncio.timeout(150):
            for changes, deletions, wanted in (
                ({"num.replica.fetchers": "3"}, (), 3),
                ({"num.replica.fetchers": "2"}, (), 2),
                ({}, ("num.replica.fetchers",), 1),
            ):
                assert await alter(None, changes, deletions) == 0
                await settled(running, lambda config, wanted=wanted: config.num_replica_fetchers == wanted, (1, 2))  # type: ignore[misc]
                assert (fetchers(1), fetchers(2)) == (wanted, wanted)
                for partition in range(6):
                    await (await producer.send("t", None, b"x", partition=partition))
            assert await alter(1, {"num.replica.fetchers": "2"}) == 0
            await settled(running, lambda config: config.num_replica_fetchers == 2, (1,))
            assert (fetchers(1), fetchers(2)) == (2, 1)
        assert await alter(1, {"num.replica.fetchers": "65"}) == ErrorCode.INVALID_REQUEST


def test_layers() -> None:
    static = BrokerConfig(max_connections=5)
    assert with_dynamic(static, {}, {}) is static
    both = with_dynamic(static, {"max.connections": "6", "log.retention.ms": "1"}, {"max.connections": "7"})
    assert (both.max_connections, both.topic.retention_ms) == (7, 1)
    # Written by hand: what cannot be used is left out, the rest holds.
    assert with_dynamic(
        static, {"max.connections": "many", "broker.id": "9", "x": "y", "segment.ms": "8"}
    ) == with_dynamic(static, {"segment.ms": "8"})
    assert not is_dynamic("broker.id") and is_dynamic("message.max.bytes")
    for key in ("broker.id", "nothing"):
        with pytest.raises(ConfigError):
            check_dynamic(key, "1")


LEAST, MOST = "log.cleaner.min.compaction.lag.ms", "max.compaction.lag.ms"


def test_settings_that_contradict_each_other_end_no_node() -> None:
    """Each is valid alone, and they may come one after the other. Every node stopped with a ConfigError, and could not start again."""
    static = BrokerConfig(topic=TopicConfig(min_compaction_lag_ms=100, max_compaction_lag_ms=1000))

    def lags(*layers: dict[str, str]) -> tuple[int, int]:
        topic = with_dynamic(static, *layers).topic
        return topic.min_compaction_lag_ms, topic.max_compaction_lag_ms

    assert lags({LEAST: "5", MOST: "50"}) == (5, 50), "together they fit"
    assert lags({LEAST: "5000", MOST: "9000"}) == (5000, 9000)
    assert lags({MOST: "50"}) == (100, 1000)
    assert lags({LEAST: "500"}, {MOST: "200"}) == (500, 1000)
    assert lags({LEAST: "soon", MOST: "200"}) == (100, 200)
    assert lags({LEAST: "5", MOST: "50", "segment.ms": "soon", "x": "y"}) == (5, 50)


async def test_settings_that_contradict_each_other_are_refused_or_named() -> None:
    async with cluster(2) as running, AsyncClient.connect(running.bootstrap) as client:
        assert await alter_broker(client, None, {LEAST: "100000"}) == 0
        assert await alter_broker(client, None, {MOST: "50"}) == ErrorCode.INVALID_REQUEST
        # Of one broker against those of all: what cannot hold there is left out.
        assert await alter_broker(client, 1, {MOST: "50", "max.connections": "60"}) == 0
        await settled(running, lambda config: config.max_connections == 60, (1,))
        await settled(running, lambda config: config.topic.min_compaction_lag_ms == 100_000, (1, 2))
        assert running.nodes[1].config.topic.max_compaction_lag_ms == TopicConfig().max_compaction_lag_ms
        await running.stop_node(1)
        await running.start_node(1)
        zk = await running.nodes[2].session.wait()
        await write_config(zk, "brokers", "2", {LEAST: "7", MOST: "5", "max.connections": "70"}, replace=True)
        await settled(running, lambda config: config.max_connections == 70, (2,))
        [problem] = at_once(running.nodes[2].health.problems())
        assert problem.subject == "/config/brokers/2" and "is above max.compaction.lag.ms" in problem.detail


def test_a_setting_of_a_topic_that_cannot_be_used_costs_only_itself() -> None:
    """Else a topic that is kept for ever would lose its records to the default after a slip in another key."""
    own = {"retention.ms": "-1", "segment.ms": "soon", "no.such": "1"}
    assert usable_topic_config(TopicConfig(), own) == TopicConfig(retention_ms=-1)


async def test_settings_written_by_hand_that_cannot_be_used_are_named_by_health() -> None:
    async with cluster(1) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        node = running.nodes[1]

        async def told(settings: dict[str, str], entity_type: str, name: str) -> list[str]:
            """What health says once the node has taken note."""
            zk = await node.session.wait()
            await write_config(zk, entity_type, name, settings, replace=True)  # as a hand does: nothing is checked
            while node.settings.configs.topic(name) != settings and node.settings.configs.broker(None) != settings:
                await asyncio.sleep(0.01)
            return [f"{each.subject}: {each.detail}" for each in at_once(node.health.problems())]

        assert await told({"retention.ms": "-1", "segment.ms": "soon"}, "topics", "t") == [
            "/config/topics/t: segment.ms: 'soon' is not an integer; the other settings hold"
        ]
        assert node.settings.topic_config("t").retention_ms == -1
        assert await told({"retention.ms": "-1"}, "topics", "t") == []
        assert await told({"reassignment.parallel.partition.count": "7", "broker.id": "9"}, "brokers", "<default>") == [
            "/config/brokers/<default>: broker.id: cannot be changed without a restart; the other settings hold"
        ]


def test_whoever_is_marked_as_dynamic_is_applied() -> None:
    """A new dynamic key of brokers needs a line in ChangedSettings.reconfigured, or to be read where it is used."""
    assert {key for key in BROKER_KEYS if is_dynamic(key)} == {
        "advertised.listeners",
        *(key for key in BROKER_KEYS if key.startswith("balancer.")),  # read where they are used
        "cordoned.log.dirs",
        "errors.deadletterqueue.auto.create.topics.enable",  # read at each dead letter
        "errors.deadletterqueue.topic.name.prefix",
        "follower.replication.throttled.rate",
        *(
            f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams")
        ),  # read at each assignment
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "max.connection.creation.rate",  # read at each connection
        "max.connection.creation.rate.per.ip",
        "max.connections",
        "max.connections.per.ip",
        "max.producer.ids.per.broker",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",  # read at each batch of a transaction
    }
