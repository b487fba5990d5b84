"""Metadata about many partitions: encoded once for all clients that ask for the same, and not for clients that are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kafkalite.kafka.handlers import cluster
from kafkalite.kafka.kept_metadata import MAX_KEPT_BYTES, KeptMetadata
from kafkalite.partition_values import TopicMetadata
from kafkalite.protocol import wire
from kafkalite.security.quotas import Entity
from kafkalite.testing.kafka_client import FrameClient
from tests.support.waiting import until

from .conftest import Broker

PARTITIONS = 700


class Made:
    """What the broker knows of its topics, by name; it has a new version if it changes (MetadataCache)."""

    def __init__(self) -> None:
        self.version = 1
        self.topics: dict[str, TopicMetadata] = {}

    def changed(self) -> None:
        self.version += 1
        self.topics.clear()


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.fixture
async def wide(broker: Broker, made: Made, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker with a topic of many partitions, whose metadata stays the same, as a node's does (MetadataAnswers)."""
    await broker.create("wide", PARTITIONS)
    describe = broker.services._topic
    monkeypatch.setattr(broker.services, "_topic", lambda name: made.topics.setdefault(name, describe(name)))
    monkeypatch.setattr(type(broker.services), "metadata_version", property(lambda _: made.version))
    yield broker


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were described, once for each time."""
    found: list[str] = []
    describe = cluster._topic

    def counted(topic: TopicMetadata, *others: Any) -> Any:
        found.append(topic.topic)
        return describe(topic, *others)

    monkeypatch.setattr(cluster, "_topic", counted)
    return found


def _asked(names: Sequence[str] | None = ("wide",), **more: bool) -> wire.MetadataRequest:
    topic = wire.MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [topic(name=name) for name in names]
    return wire.MetadataRequest(topics, allow_auto_topic_creation=False, **more)


@pytest.mark.parametrize("version", range(14))
async def test_clients_that_ask_for_the_same_get_what_was_encoded_once(
    wide: Broker, described: list[str], version: int
) -> None:
    clients = [await wide.client() for _ in range(3)]
    answers = [await client.ask(_asked(), version) for client in clients]
    assert described == ["wide"]
    assert answers[0] == answers[1] == answers[2]
    assert [part.partition_index for part in answers[0].topics[0].partitions] == list(range(PARTITIONS))
    everything = [await client.ask(_asked(None if version else ()), version) for client in clients]
    assert described == ["wide"], "all topics are this one"
    assert everything[0].topics == answers[0].topics


async def test_what_has_changed_is_described_again(wide: Broker, made: Made, described: list[str]) -> None:
    client = await wide.client()
    before = await client.ask(_asked(), 12)
    made.changed()
    assert await client.ask(_asked(), 12) == before
    wide.services.kafka_endpoint = ("elsewhere", 9)
    made.changed()
    moved = await client.ask(_asked(), 12)
    assert (moved.brokers[0].host, moved.brokers[0].port) == ("elsewhere", 9)
    assert described == ["wide"] * 3


async def test_what_is_the_clients_own_is_not_for_others(wide: Broker, described: list[str]) -> None:
    client = await wide.client()
    plain = await client.ask(_asked(), 12)
    mine = await client.ask(_asked(include_topic_authorized_operations=True), 12)
    assert mine.topics[0].topic_authorized_operations != plain.topics[0].topic_authorized_operations
    assert await client.ask(_asked(), 12) == plain
    unknown = wire.MetadataRequest.MetadataRequestTopic(bytes(range(16)), None)
    topic = wire.MetadataRequest.MetadataRequestTopic(name="wide")
    more = await client.ask(wire.MetadataRequest([topic, unknown], allow_auto_topic_creation=False), 12)
    assert [len(each.partitions) for each in more.topics] == [PARTITIONS, 0]
    assert await client.ask(_asked(), 12) == plain
    assert described == ["wide"] * 3


async def test_a_throttled_client_gets_its_own_throttle_time(wide: Broker, described: list[str]) -> None:
    free, slow, later = [await wide.client() for _ in range(3)]
    plain = await free.ask(_asked(), 12)
    quotas = wide.services.rights.quotas
    quotas.put(Entity(None, "test"), {"request_percentage": 0.0001})
    throttled = await slow.ask(_asked(), 12)
    assert throttled.throttle_time_ms > 0
    throttled.throttle_time_ms = 0
    assert throttled == plain
    quotas.put(Entity(None, "test"), {})
    assert await later.ask(_asked(), 12) == plain
    assert described == ["wide"]


async def test_nothing_is_described_for_a_client_that_is_gone(wide: Broker, described: list[str]) -> None:
    listener = wide.side.listener
    async with AsyncExitStack() as busy:
        for number in range(4):  # all that are under way at a time
            await busy.enter_async_context(listener.listings.turn(("somebody", number)))
        gone: list[FrameClient] = [await wide.client() for _ in range(3)]
        for client in gone:
            client.send(_asked(), 12)
            client.send(_asked(), 12)  # sent ahead: nobody reads it, nor the end behind it
        await until(lambda: listener.listings.waiting == 3)
        gone[0].close()
        await gone[0].writer.wait_closed()
        await until(lambda: len(listener.connections) == 2)  # the sweep sees it, although its turn has not come
        for client in gone[1:]:
            client.close()
            await client.writer.wait_closed()
    await until(lambda: not listener.connections)
    assert described == []
    assert listener.answers.bytes == 0


async def test_what_is_out_of_date_is_not_kept(wide: Broker, made: Made) -> None:
    """Each answer held the description of its topics, ten times what it has itself, and nobody asked for some of them again."""
    client = await wide.client()
    kept = wide.side.kept_metadata
    await client.ask(_asked(), 12)
    first = kept.bytes
    await client.ask(_asked(), 13)
    assert kept.bytes > first > 0
    made.changed()
    await client.ask(_asked(None), 12)
    assert kept.bytes == first


def _key(name: str, version: int = 12, listener_name: str = "PLAINTEXT") -> tuple[int, str, tuple[str, ...]]:
    return version, listener_name, (name,)


def test_what_is_kept_is_bounded_and_used_for_the_same_only() -> None:
    kept = KeptMetadata()
    keys = [_key(f"t{number}") for number in range(5)]
    body = bytes(MAX_KEPT_BYTES // 3)
    for each in keys[:3]:
        kept.keep(1, each, body)
    assert kept.find(1, keys[0]) is body
    kept.keep(1, keys[3], body)
    found = [kept.find(1, each) is not None for each in keys]
    assert found == [True, False, True, True, False], "the one that was not used for longest is gone"
    assert kept.bytes == 3 * len(body) <= MAX_KEPT_BYTES
    assert kept.find(1, _key("t0", version=11)) is None
    assert kept.find(1, _key("t0", listener_name="OUTSIDE")) is None
    kept.keep(1, keys[4], bytes(MAX_KEPT_BYTES + 1))
    assert kept.find(1, keys[4]) is None
    kept.keep(1, keys[2], b"newer")
    assert kept.find(1, keys[2]) == b"newer"
    assert kept.bytes == 2 * len(body) + len(b"newer")
    assert kept.find(2, keys[0]) is None, "the topics were described again"
    kept.keep(0, keys[0], b"of before")
    assert kept.find(1, keys[0]) is body
    kept.keep(2, keys[0], b"later")
    assert [kept.find(each, keys[0]) for each in (1, 2)] == [None, b"later"]
    assert kept.bytes == len(b"later"), "what is out of date is not kept"


def test_the_bound_holds_for_all_listeners_and_versions_together() -> None:
    kept = KeptMetadata()
    most = 0
    for size in range(40):
        for listener_name in ("PLAINTEXT", "INTERNAL", "OUTSIDE"):
            for version in range(14):
                kept.keep(1, _key(f"t{size}", version, listener_name), bytes(2**15 * (size % 7 + 1)))
                most = max(most, kept.bytes)
    assert MAX_KEPT_BYTES // 2 < most <= MAX_KEPT_BYTES
    assert kept.bytes == sum(map(len, kept._bodies.values()))
