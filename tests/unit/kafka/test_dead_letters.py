"""Records that a share group gives up go to its dead letter topic (KIP-1191)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordination.coordinator import NotSentError
from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.features import SHARE_FEATURE
from kafkalite.model import Offset
from kafkalite.protocol import wire
from kafkalite.record.compression import Codec
from kafkalite.record.reader import Record, read_records
from tests.support.waiting import until

from .conftest import Broker, FrameClient, batch, fetch, produce
from .test_share_fetching import ACCEPT, GAP, REJECT, RELEASE, Group, fetched, got, start

_ENABLED = "errors.deadletterqueue.group.enable"
_TOPIC, _COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


async def begin(broker: Broker, **settings: str) -> Group:
    """A group in a cluster that knows dead letters."""
    group = await start(broker, **settings)
    broker.services.feature_level = lambda name: 2 if name == SHARE_FEATURE else 0  # type: ignore[method-assign]
    return group


async def create(client: FrameClient, topic: str, **configs: str) -> None:
    request = wire.CreateTopicsRequest
    settings = [request.CreatableTopicConfig(name, value) for name, value in configs.items()]
    answer = await client.ask(request([request.CreatableTopic(topic, 1, 1, configs=settings)], 1000), 4)
    assert answer.topics[0].error_code == 0, answer


async def letters(client: FrameClient, topic: str) -> list[Record]:
    answer = await client.ask(fetch(topic), 11)
    [part] = answer.responses[0].partitions
    return list(read_records(part.records)) if part.records else []


def headers(record: Record) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers}


async def kept(client: FrameClient, count: int, topic: str = "dlq.t") -> list[Record]:
    async with asyncio.timeout(150):
        while len(found := await letters(client, topic)) < count:
            await asyncio.sleep(0.01)
    return found


async def archived(group: Group, offset: int) -> None:
    async with asyncio.timeout(150):
        while (await group.stored())[0] != offset:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_rejected_record_is_kept(broker: Broker, codec: Codec) -> None:
    group = await begin(broker, **{_TOPIC: "dlq.t", _COPY: "true"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    packed = batch(b"a", b"b", b"c", compression=codec)
    assert (await client.ask(produce("t", (0, packed)), 9)).responses[0].partition_responses[0].error_code == 0
    member = await group.member()
    assert got(await fetched(member, 0)) == [(0, 2, 1)]
    assert await member.code((0, 2, [ACCEPT, REJECT, ACCEPT])) == 0
    [letter] = await kept(client, 1)
    assert (letter.key, letter.value) == (None, b"b")
    assert headers(letter) == {
        "topic": "t", "partition": "0", "offset": "1", "group": "g", "delivery.count": "1",
        "message": "Offset rejected by client.",
    }  # fmt: skip
    await archived(group, 3)


async def test_a_record_that_is_delivered_too_often_is_kept_without_its_value(broker: Broker) -> None:
    group = await begin(broker, **{_TOPIC: "dlq.t", "share.delivery.count.limit": "2"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    await group.produce([b"a"])
    member = await group.member()
    for count in (1, 2):
        assert got(await fetched(member, *([0] if count == 1 else []))) == [(0, 0, count)]
        assert await member.code((0, 0, [RELEASE])) == 0
    [letter] = await kept(client, 1)
    assert letter.value is None
    assert headers(letter)["message"] == "Offset delivery count exceeded the threshold."
    assert headers(letter)["delivery.count"] == "2"
    await archived(group, 1)


async def test_a_record_over_which_members_crash_is_kept(broker: Broker) -> None:
    """They say nothing of it: their connections end."""
    group = await begin(broker, **{_TOPIC: "dlq.t", "share.delivery.count.limit": "2"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    await group.produce([b"a"])
    for count in (1, 2):
        member = await group.member(f"m{count}")
        assert got(await fetched(member, 0)) == [(0, 0, count)]
        member.client.close()
        await until(lambda: not len(broker.side.shared_partitions))
    await archived(group, 1)
    [letter] = await letters(client, "dlq.t")
    assert headers(letter)["message"] == "Offset delivery count exceeded the threshold."


async def test_an_offset_without_a_record_is_not_kept(broker: Broker) -> None:
    """As with Kafka: what a member has rejected is, not what compaction has removed."""
    group = await begin(broker, **{_TOPIC: "dlq.t"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    await group.produce([b"a", b"b", b"c"])
    member = await group.member()
    assert got(await fetched(member, 0)) == [(0, 2, 1)]
    assert await member.code((0, 2, [GAP, ACCEPT, REJECT])) == 0
    await archived(group, 3)
    assert [headers(each)["offset"] for each in await letters(client, "dlq.t")] == ["2"]


async def test_a_topic_is_created_if_it_may_be(make_broker: Any) -> None:
    broker = await make_broker(errors_deadletterqueue_auto_create_topics_enable=True)
    group = await begin(broker, **{_TOPIC: "dlq.t"})
    await group.produce([b"a", b"b"])
    member = await group.member()
    await fetched(member, 0)
    assert await member.code((0, 1, [REJECT])) == 0
    assert [headers(each)["offset"] for each in await kept(await broker.client(), 2)] == ["0", "1"]
    assert (await broker.services.topic_overrides("dlq.t"))[_ENABLED] == "true"


async def test_zookeeper_is_away_for_a_moment(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What raised that ended the task: the record was neither kept nor archived until something else happened."""
    monkeypatch.setattr("kafkalite.coordinators.shares.dead_letters._PAUSE_S", 0.001)
    group = await begin(broker, **{_TOPIC: "dlq.t"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    topic_overrides, failures = broker.services.topic_overrides, iter([True, True])

    async def overrides(topic: str) -> Any:
        if next(failures, False):
            raise NotSentError("the session has ended")
        return await topic_overrides(topic)

    monkeypatch.setattr(broker.services, "topic_overrides", overrides)
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    assert await member.code((0, 0, [REJECT])) == 0
    assert len(await kept(client, 1)) == 1
    await archived(group, 1)


@pytest.mark.parametrize("topic", ["other", "dlq.closed", "dlq.missing"])
async def test_what_cannot_be_kept_is_given_up_all_the_same(broker: Broker, topic: str) -> None:
    group = await begin(broker, **{_TOPIC: topic})
    client = await broker.client()
    await create(client, "other", **{_ENABLED: "true"})
    await create(client, "dlq.closed")
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    assert await member.code((0, 0, [REJECT])) == 0
    await archived(group, 1)
    assert not await letters(client, "other") and not await letters(client, "dlq.closed")


async def test_without_the_feature_there_are_none(broker: Broker) -> None:
    group = await start(broker, **{_TOPIC: "dlq.t"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    assert await member.code((0, 0, [REJECT])) == 0
    await archived(group, 1)
    assert not await letters(client, "dlq.t")


async def test_the_next_leader_goes_on(broker: Broker) -> None:
    """The leader died after it had stored that a record is to be kept: the next one finds that and writes the letter."""
    group = await begin(broker, **{_TOPIC: "dlq.t"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true"})
    await group.produce([b"a", b"b", b"c"])
    state = await broker.side.share_persister.read(group.key(), 0)
    found = [StateBatch(Offset(1), Offset(1), DeliveryState.ARCHIVING, 1)]
    await broker.side.share_persister.write(group.key(), state.state_epoch, 0, Offset(0), found)
    member = await group.member()
    assert got(await fetched(member, 0)) == [(0, 0, 1), (2, 2, 1)]
    [letter] = await kept(client, 1)
    assert headers(letter)["offset"] == "1"
    assert await member.code((0, 0, [ACCEPT]), (2, 2, [ACCEPT])) == 0
    await archived(group, 3)


async def test_large_letters_come_in_several_batches(broker: Broker) -> None:
    group = await begin(broker, **{_TOPIC: "dlq.t", _COPY: "true"})
    client = await broker.client()
    await create(client, "dlq.t", **{_ENABLED: "true", "max.message.bytes": "1000"})
    sizes = [10, 400, 2_000, 400, 10]
    for size in sizes:
        await group.produce([b"x" * size])
    member = await group.member()
    await fetched(member, 0)
    assert await member.code((0, 4, [REJECT])) == 0
    found = await kept(client, 5)
    assert [len(each.value or b"") for each in found] == [10, 400, 0, 400, 10]
    assert [headers(each)["offset"] for each in found] == ["0", "1", "2", "3", "4"]
    led = broker.side.shared_partitions.known("g", member.topic_id, 0)
    assert led is not None and led.state is not None
    await until(lambda: led.state is not None and led.state.is_idle)
    assert broker.services.settings_of(GROUPS)["g"][_TOPIC] == "dlq.t"
