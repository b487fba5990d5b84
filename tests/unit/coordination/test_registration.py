"""The cluster's id, a broker's registration, producer ids: also when replies are lost and others are faster."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from functools import partial

import pytest

from kafkalite.coordination import paths, registration
from kafkalite.coordination.broker_znodes import BrokerZnode, decode_broker, encode_broker
from kafkalite.coordination.cluster_znodes import ProducerIdBlock
from kafkalite.coordination.coordinator import CoordinatorError, Create, Delete, SessionExpiredError, SetData
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import StartupRefused
from kafkalite.model import BrokerId, Endpoint
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import World, in_world

ONE = BrokerId(1)
BROKER = BrokerZnode("host", 9092, rpc=Endpoint("host", 9192))


def test_uuids_are_kafkas_and_no_options() -> None:
    rng = random.Random(3)
    made = [registration.new_uuid(rng) for _ in range(300)]
    assert len(set(made)) == 300
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in made)


def test_nodes_that_start_together_make_the_layout_whatever_gets_lost(world: World) -> None:
    async def main(fate: Fate, after: int) -> None:
        sessions = [await world.connect(host) for host in "abc"]
        world.zk.lose_next("a", Fate.SERVE, after)
        world.zk.lose_next("a", fate)
        world.zk.poke(*(Create(path) for path in paths.PERSISTENT[:after]))  # somebody has begun
        ids = await asyncio.gather(
            *(registration.join_cluster(session, partial(str, n)) for n, session in enumerate(sessions, 1))
        )
        assert len(set(ids)) == 1
        assert all(world.zk.peek(path) is not None for path in paths.PERSISTENT)
        for session in sessions:
            await session.close()
        for path in (paths.CLUSTER_ID, *reversed(paths.PERSISTENT)):
            world.zk.poke(Delete(path))

    for after in range(len(paths.PERSISTENT) + 4):
        world.run(main((Fate.LOSE_REPLY, Fate.LOSE_REQUEST)[after % 2], after))


@in_world
async def test_a_new_cluster_takes_one_look_and_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await world.connect("a")
    for verb in ("get", "create", "ensure_path"):
        monkeypatch.delattr(type(session), verb)
    mine = await registration.join_cluster(session, lambda: "mine")
    again = await registration.join_cluster(session, lambda: "another one's")
    assert (mine, again) == ("mine", "mine")


@pytest.mark.checklist("F19")
@in_world
async def test_a_node_does_not_join_what_has_no_name_of_a_cluster(world: World) -> None:
    session = await world.connect("a")
    await registration.join_cluster(session, lambda: "a")
    world.zk.poke(SetData(paths.CLUSTER_ID, b"garbage"))
    with pytest.raises(StartupRefused):
        await registration.join_cluster(session, lambda: "b")
    world.zk.poke(Delete(paths.CLUSTER_ID))
    assert await registration.join_cluster(session, lambda: "c") == "c"


@in_world
async def test_the_first_start_is_recorded_with_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await world.connect("a")
    await registration.join_cluster(session, lambda: "a")
    for verb in ("set", "get", "ensure_path", "multi"):
        monkeypatch.delattr(type(session), verb)
    await registration.record_starts(session, ONE, 1)
    assert await registration.starts(session, ONE) == 1


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("found", [None, b"", b"7"])
@pytest.mark.parametrize("after", range(4))
def test_starts_are_recorded_whatever_is_there_and_gets_lost(
    world: World, fate: Fate, number: int, found: bytes | None, after: int
) -> None:
    async def main() -> None:
        session = await world.connect("a")
        if found is not None:
            await session.ensure_path(paths.parent(paths.broker_starts(ONE)))
            await session.create(paths.broker_starts(ONE), found)
        world.zk.lose_next("a", Fate.SERVE, after)
        world.zk.lose_next("a", fate)
        await registration.record_starts(session, ONE, number)
        node = world.zk.peek(paths.broker_starts(ONE))
        assert node is not None and node[0] == b"%d" % number

    world.run(main())


@in_world
async def test_a_restart_is_recorded_with_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await world.connect("a")
    await registration.record_starts(session, ONE, 1)  # makes the znode and its parents
    for verb in ("create", "ensure_path", "multi"):
        monkeypatch.delattr(type(session), verb)
    await registration.record_starts(session, ONE, 2)
    assert await registration.starts(session, ONE) == 2


@in_world
async def test_brokers_that_zookeeper_has_not_heard_of_are_remembered_but_not_those_that_are_gone(world: World) -> None:
    """ZooKeeper was put back from a copy that is older than their first start."""
    session = await world.connect("a")
    for broker, number in ((ONE, 7), (BrokerId(2), 3)):
        await registration.record_starts(session, broker, number)
    assert await registration.forget_starts(session, BrokerId(2))
    assert not await registration.forget_starts(session, BrokerId(2))
    assert not await registration.forget_starts(session, BrokerId(3))
    unknown = await registration.unknown_brokers(session, {ONE, BrokerId(2), BrokerId(3)})
    assert unknown == [BrokerId(3)]
    await registration.remember_brokers(session, unknown)
    found = {number: world.zk.peek(paths.broker_starts(number)) for number in (1, 2, 3)}
    assert [each and each[0] for each in found.values()] == [b"7", registration.GONE, b""]
    assert await registration.starts(session, BrokerId(2)) == 0
    await registration.record_starts(session, BrokerId(2), 1)
    assert await registration.starts(session, BrokerId(2)) == 1


@in_world
async def test_a_layout_that_is_there_is_looked_at_and_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await world.connect("a")
    await registration.join_cluster(session, lambda: "a")
    for verb in ("create", "ensure_path", "multi"):
        monkeypatch.delattr(type(session), verb)
    await registration.join_cluster(session, lambda: "a")


@pytest.mark.checklist("F19")
@in_world
async def test_all_nodes_agree_on_one_cluster_id(world: World) -> None:
    sessions = [await world.connect(host) for host in "abc"]
    world.zk.lose_next("a", Fate.LOSE_REPLY, 2)
    ids = await asyncio.gather(
        *(registration.cluster_id(session, partial(str, n)) for n, session in enumerate(sessions))
    )
    assert len(set(ids)) == 1
    world.zk.poke(SetData(paths.CLUSTER_ID, b"garbage"))
    with pytest.raises(StartupRefused):
        await registration.cluster_id(sessions[0], lambda: "1")


@pytest.mark.checklist("C3")
@pytest.mark.checklist(5, "F5")
@in_world
async def test_a_registration_is_ephemeral_and_its_czxid_the_epoch(world: World) -> None:
    first = await world.connect("a")
    await registration.join_cluster(first, lambda: "a")
    epoch = await registration.register_broker(first, ONE, BROKER, session_timeout_ms=6000)
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert (decode_broker(found[0]), found[1].czxid, found[1].ephemeral_owner) == (BROKER, epoch, first.session_id)
    again = await registration.register_broker(first, ONE, BROKER, session_timeout_ms=6000)
    assert again == epoch  # repeating it changes nothing
    await first.close()
    second = await world.connect("a")
    assert await registration.register_broker(second, ONE, BROKER, session_timeout_ms=6000) > epoch
    await second.close()
    assert world.zk.peek("/brokers/ids/1") is None


@pytest.mark.checklist("F24")
@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("after", range(4))
@in_world
async def test_a_lost_reply_while_registering_is_no_conflict(world: World, fate: Fate, after: int) -> None:
    session = await world.connect("a")
    world.zk.lose_next("a", Fate.SERVE, after)
    world.zk.lose_next("a", fate)
    epoch = await registration.register_broker(session, ONE, BROKER, session_timeout_ms=6000)
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert (found[1].czxid, found[1].ephemeral_owner) == (epoch, session.session_id)


@pytest.mark.checklist("F24")
@in_world
async def test_a_node_that_does_not_reach_zookeeper_while_it_registers_is_not_in_its_own_way(world: World) -> None:
    """The reply was lost, and ZooKeeper was away for longer than a dead owner is waited for: the registration is its own."""
    session = await world.connect("a", 20_000)
    await registration.join_cluster(session, lambda: "a")
    world.zk.lose_next("a", Fate.LOSE_REPLY)
    registering = asyncio.create_task(registration.register_broker(session, ONE, BROKER, session_timeout_ms=2000))
    while world.zk.peek("/brokers/ids/1") is None:
        await asyncio.sleep(0.001)
    world.zk.block("a")
    await asyncio.sleep(10)
    world.zk.unblock("a")
    epoch = await registering
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert (found[1].czxid, found[1].ephemeral_owner) == (epoch, session.session_id)


@pytest.mark.checklist("F24")
@in_world
async def test_a_dead_owner_has_its_whole_time_again_when_zookeeper_is_back(world: World) -> None:
    dead = await world.connect("old", 6_000)
    await registration.register_broker(dead, ONE, BROKER, session_timeout_ms=6000)
    world.zk.block("old")
    session = await world.connect("new", 60_000)
    registering = asyncio.create_task(registration.register_broker(session, ONE, BROKER, session_timeout_ms=6000))
    await asyncio.sleep(1)
    world.zk.stop()
    await asyncio.sleep(20)
    world.zk.start()
    await registering
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert found[1].ephemeral_owner == session.session_id


@pytest.mark.checklist("F24")
@pytest.mark.parametrize("asked_ms", [6000, 200])  # ZooKeeper grants two ticks at least, 4 s as it comes
@in_world
async def test_the_registration_of_a_dead_process_is_waited_for(world: World, asked_ms: int) -> None:
    dead = await world.connect("old")
    await registration.register_broker(dead, ONE, BROKER, session_timeout_ms=asked_ms)
    world.zk.block("old")  # killed: it says nothing more
    started = world.loop.time()
    session = await world.connect("new")
    await registration.register_broker(session, ONE, BROKER, session_timeout_ms=asked_ms)
    assert 3 < world.loop.time() - started < 8


@in_world
async def test_the_registration_of_a_session_known_to_be_dead_is_removed_at_once(world: World) -> None:
    dead = await world.connect("old")
    await registration.register_broker(dead, ONE, BROKER, session_timeout_ms=6000)
    world.zk.block("old")
    started = world.loop.time()
    session = await world.connect("new")
    await registration.register_broker(session, ONE, BROKER, session_timeout_ms=6000, dead_sessions={dead.session_id})
    assert world.loop.time() - started < 0.2


@in_world
async def test_a_registration_left_by_hand_without_a_session_is_replaced(world: World) -> None:
    session = await world.connect("a")
    await registration.join_cluster(session, lambda: "a")
    world.zk.poke(Create("/brokers/ids/1", b"by hand"))
    await registration.register_broker(session, ONE, BROKER, session_timeout_ms=6000)
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert found[0] == encode_broker(BROKER)


@in_world
async def test_of_two_nodes_with_one_id_the_second_refuses_to_start(world: World) -> None:
    first = await world.connect("a")
    epoch = await registration.register_broker(first, ONE, BROKER, session_timeout_ms=6000)
    second = await world.connect("b")
    with pytest.raises(StartupRefused, match=r"broker id 1 is in use by host:9192"):
        await registration.register_broker(second, ONE, BROKER, session_timeout_ms=6000)
    found = world.zk.peek("/brokers/ids/1")
    assert found is not None
    assert found[1].czxid == epoch


@in_world
async def test_a_node_whose_session_ends_while_it_waits_for_its_id_hears_of_it(world: World) -> None:
    """It waited for ever, although the id was free soon: seed 300022 of the simulation."""
    first = await world.connect("a")
    await registration.register_broker(first, ONE, BROKER, session_timeout_ms=6000)
    second = await world.connect("b")
    waiting = asyncio.ensure_future(registration.register_broker(second, ONE, BROKER, session_timeout_ms=6000))
    await asyncio.sleep(1)
    world.zk.expire("b")
    with pytest.raises(SessionExpiredError):
        await waiting


@pytest.mark.checklist("F25")
@in_world
async def test_no_producer_id_is_given_out_twice(world: World) -> None:
    sessions = [await world.connect(host) for host in "abc"]
    blocks: list[ProducerIdBlock] = []

    async def take(number: int) -> None:
        for turn in range(10):
            if turn % 3 == number:
                world.zk.lose_next("abc"[number], world.random.choice([Fate.LOSE_REPLY, Fate.LOSE_REQUEST]))
            while True:
                try:
                    blocks.append(await registration.allocate_producer_ids(sessions[number], BrokerId(number), turn))
                    break
                except CoordinatorError:
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(take(number) for number in range(3)))
    assert len(blocks) == 30
    assert len({block.first for block in blocks}) == 30
    assert all(block.last == block.first + 999 and block.first % 1000 == 0 for block in blocks)


@pytest.mark.checklist("F25")
@pytest.mark.parametrize("is_removed", [False, True])
@in_world
async def test_producer_ids_go_on_although_zookeeper_was_put_back(world: World, *, is_removed: bool) -> None:
    """Partitions remember the last batches of the producers that got theirs after the copy was made: a new producer with such an id
    would get "written" for batches that are not, since they look like repetitions of those."""
    session = await world.connect("a")
    first = await registration.allocate_producer_ids(session, ONE, 1_000_000)
    copy = world.zk.peek(paths.LATEST_PRODUCER_ID_BLOCK)
    assert copy is not None
    # More ids than the time has passed, from a clock that is behind.
    later = [await registration.allocate_producer_ids(session, ONE, 999_000) for _ in range(5)]
    world.zk.poke(
        Delete(paths.LATEST_PRODUCER_ID_BLOCK) if is_removed else SetData(paths.LATEST_PRODUCER_ID_BLOCK, copy[0])
    )
    last = await registration.allocate_producer_ids(session, ONE, 1_060_000)
    blocks = [first, *later, last]
    assert all(one.last < next_one.first for one, next_one in itertools.pairwise(blocks)), blocks


@in_world
async def test_producer_ids_are_not_taken_from_what_cannot_be_read(world: World) -> None:
    session = await world.connect("a")
    world.zk.poke(Create(paths.LATEST_PRODUCER_ID_BLOCK, b"{}"))
    with pytest.raises(ZnodeError):
        await registration.allocate_producer_ids(session, ONE, 0)
    last = str(2**63 - 2).encode()
    value = b'{"version":1,"broker":1,"block_start":"0","block_end":"' + last + b'"}'
    world.zk.poke(SetData(paths.LATEST_PRODUCER_ID_BLOCK, value))
    with pytest.raises(ZnodeError, match="no producer ids are left"):
        await registration.allocate_producer_ids(session, ONE, 0)
