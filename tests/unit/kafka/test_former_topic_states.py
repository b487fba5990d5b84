"""No state of a share group outlives its topic, whatever is under way when the topic is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalite.coordinators.groups.share import states
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.topics import DeleteTopicsRequest
from kafkalite.model import NO_OFFSET
from kafkalite.testing.simulation.plants import PLANTS
from tests.support.waiting import until

from .conftest import Broker
from .consumer_members import started
from .test_former_partitions import remove, states_of
from .test_share_groups import Member, key_of, reload
from .test_share_state_changes import SlowBeginning, alteration, deletion, empty_group, group_of


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_DELETE_AGAIN_S", 0.001)


async def delete_topic(broker: Broker) -> asyncio.Task[None]:
    """What follows from the report that t is deleted, which has begun."""
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    following = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
    await asyncio.sleep(0.02)
    return following


async def next_coordinator(broker: Broker) -> None:
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)


def assert_nothing_is_left(broker: Broker) -> None:
    shared = group_of(broker).shared
    assert not states_of(broker)
    assert not (shared.initializing or shared.initialized or shared.deleting)


@contextmanager
def held(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, name: str, *, is_done: bool = False
) -> Iterator[asyncio.Event]:
    """This method of the persister does not return (`is_done`: what it does is done); yields an event for the first call."""
    serve, asked = getattr(broker.side.share_persister, name), asyncio.Event()

    async def hold(*arguments: Any) -> None:
        if is_done:
            await serve(*arguments)
        asked.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(broker.side.share_persister, name, hold)
        yield asked


@pytest.mark.parametrize("is_planted", [False, True])
async def test_a_state_that_begins_while_its_topic_is_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    """Its share coordinator was away. The deletion was served first, and the state began afterwards, for good."""
    if is_planted:
        PLANTS["outlived"](monkeypatch.setattr)
    client = await started(broker)
    await broker.create("u")
    slow = SlowBeginning(broker, monkeypatch, key_of(broker, "t", 0))
    joining = asyncio.create_task(Member(client, "m", "t", "u").beat())
    await slow.waits()
    deleting = await delete_topic(broker)
    slow.go_on.set()
    await asyncio.gather(joining, deleting)
    await until(lambda: not group_of(broker).shared.initializing)
    assert [topic.name for topic in group_of(broker).shared.initialized.values()] == ["u"]
    await broker.side.shares.prune()
    assert states_of(broker) == 1 + is_planted


@pytest.mark.parametrize("who", ["a sweep", "a member"])
async def test_the_next_coordinator_deletes_all_states(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """It found the note of the deletion, without the partitions: there was no topic any more that would say which ones it had."""
    client = await empty_group(broker)
    with held(broker, monkeypatch, "delete") as asked:
        deleting = await delete_topic(broker)
        await asked.wait()
        await next_coordinator(broker)
        await deleting
    assert states_of(broker) == 4
    if who == "a sweep":
        for _ in range(2):
            await broker.side.groups.removal.sweep()
    else:
        await Member(client, "m2", "t").beat()
        await until(lambda: not group_of(broker).shared.deleting)
    assert_nothing_is_left(broker)


async def test_the_next_coordinator_deletes_states_of_partitions_that_were_removed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of a topic were being deleted."""
    client = await started(broker, 2)
    await Member(client, "m", "t").beat()
    await Member(client, "m").beat(-1)
    with held(broker, monkeypatch, "delete") as asked:
        deleting = asyncio.create_task(client.ask(deletion(), 0))
        await asked.wait()
        remove(broker)
        await next_coordinator(broker)
        await deleting
    assert states_of(broker) == 2
    await Member(await broker.client(), "m2", "u").beat()
    await until(lambda: not group_of(broker).shared.deleting)
    assert_nothing_is_left(broker)


async def test_offsets_that_are_set_while_their_topic_is_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group named them when they were set: after it had looked for states of the topic."""
    client = await started(broker)
    slow = SlowBeginning(broker, monkeypatch, key_of(broker, "t", 0))
    setting = asyncio.create_task(client.ask(alteration(3), 0))
    await slow.has_begun.wait()
    deleting = await delete_topic(broker)
    slow.go_on.set()
    await asyncio.gather(setting, deleting)
    assert_nothing_is_left(broker)


async def test_offsets_whose_setting_was_interrupted_are_forgotten(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator ended before it had noted them, so the next one did not know of them."""
    client = await started(broker)
    with held(broker, monkeypatch, "initialize", is_done=True) as asked:
        setting = asyncio.create_task(client.ask(alteration(3), 0))
        await asked.wait()
        await next_coordinator(broker)
        await setting
    assert states_of(broker) == 1
    await (await delete_topic(broker))
    assert_nothing_is_left(broker)


async def test_states_whose_deletion_fails_while_their_topic_is_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator was deleting them. This was left to him, and then nobody deleted them."""
    client = await empty_group(broker)
    delete, fails, waiting = broker.side.share_persister.delete, asyncio.Event(), list[ShareKey]()

    async def fail(key: ShareKey) -> None:
        if len(waiting) < 4:
            waiting.append(key)
            await fails.wait()
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await delete(key)

    monkeypatch.setattr(broker.side.share_persister, "delete", fail)
    asked = asyncio.create_task(client.ask(deletion(), 0))
    await until(lambda: len(waiting) == 4)
    deleting = await delete_topic(broker)
    fails.set()
    assert (await asked).responses[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await deleting
    assert_nothing_is_left(broker)


async def test_a_deletion_that_is_not_reported_is_found_when_the_name_is_in_use_again(broker: Broker) -> None:
    """The controller ended just after it. Offsets were looked for every time, states at the second time only."""
    await empty_group(broker)
    for _ in range(2):
        await broker.side.groups.removal.sweep()
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    await broker.create("t")
    assert states_of(broker) == 4
    await broker.side.groups.removal.sweep()
    assert_nothing_is_left(broker)


async def test_offsets_that_are_set_outlive_a_member_that_joins(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group began the state from nothing, in a later epoch."""
    client, second = await started(broker), await broker.client()
    key = key_of(broker, "t", 0)
    slow = SlowBeginning(broker, monkeypatch, key)
    setting = asyncio.create_task(client.ask(alteration(3), 0))
    await slow.has_begun.wait()
    member = Member(second, "m", "t")
    joining = asyncio.create_task(member.beat())
    await until(lambda: bool(group_of(broker).members))
    slow.go_on.set()
    assert [each.error_code for each in (await setting).responses[0].partitions] == [0]
    await joining
    async with asyncio.timeout(150):
        while member.count < 4:
            await member.beat(0)
    assert await broker.side.share_persister.start_offset(key) == 3


async def test_a_share_coordinator_begins_no_state_of_a_deleted_topic(broker: Broker) -> None:
    """A request came when its sender had given up on it, and had deleted the state."""
    await empty_group(broker)
    key = key_of(broker, "t", 0)
    await (await delete_topic(broker))
    with pytest.raises(ApiError) as refused:
        await broker.side.share_persister.initialize(key, 9, NO_OFFSET)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not states_of(broker)


async def test_a_share_coordinator_deletes_states_of_deleted_topics(broker: Broker) -> None:
    """Such a request came before this node had heard of the deletion. A topic that has vanished keeps its states."""
    await empty_group(broker)
    key, shares = key_of(broker, "t", 0), broker.side.shares
    restore = broker.services.vanish("t")
    await shares.prune()
    assert states_of(broker) == 4
    restore()
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    await broker.create("t")
    await shares.prune()
    assert not states_of(broker)
    for state in list(shares.log.states()):
        shares.log.reload(state.index)
    await until(lambda: not shares.log.is_loading)
    assert not states_of(broker)
    assert await broker.side.share_persister.start_offset(key) == NO_OFFSET
