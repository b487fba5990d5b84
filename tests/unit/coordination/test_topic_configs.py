"""Settings in ZooKeeper: read, followed by every node, written by any."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.coordination import paths, registration
from kafkalite.coordination.config_znodes import encode_config
from kafkalite.coordination.coordinator import Coordinator, Create, Delete, SetData
from kafkalite.coordination.topic_configs import TopicConfigs, notification, read_config, replace_config, write_config
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import World, in_world

Change = tuple[str, str, dict[str, str]]


async def following(world: World, host: str) -> tuple[TopicConfigs, list[Change], Coordinator, asyncio.Task[None]]:
    session = await world.connect(host)
    await registration.join_cluster(session, lambda: "a")
    changes: list[Change] = []
    configs = TopicConfigs(lambda *change: changes.append(change), world.loop.time)
    await configs.load(session)
    return configs, changes, session, world.loop.create_task(configs.follow(session))


@in_world
async def test_what_one_node_writes_every_node_learns(world: World) -> None:
    nodes = [await following(world, host) for host in "abc"]
    written = await write_config(nodes[0][2], "topics", "t", {"retention.ms": "5", "segment.bytes": "2048"})
    assert written == {"retention.ms": "5", "segment.bytes": "2048"}
    await write_config(nodes[1][2], "topics", "t", {"retention.ms": None, "flush.ms": "1"})
    await write_config(nodes[2][2], "brokers", paths.DEFAULT_ENTITY, {"min.insync.replicas": "2"})
    await write_config(nodes[2][2], "brokers", "1", {"x": "y"})
    await asyncio.sleep(1)
    for configs, changes, _, _ in nodes:
        assert configs.topic("t") == {"flush.ms": "1", "segment.bytes": "2048"}
        assert configs.topics() == {"t": {"flush.ms": "1", "segment.bytes": "2048"}}
        assert configs.topic("other") == {}
        assert configs.broker(None) == {"min.insync.replicas": "2"}
        assert configs.broker(1) == {"x": "y"}
        assert changes[-1] == ("brokers", "1", {"x": "y"})
    assert await write_config(nodes[0][2], "topics", "t", {"a": "1"}, replace=True) == {"a": "1"}
    assert await read_config(nodes[0][2], "topics", "t") == {"a": "1"}
    assert await read_config(nodes[0][2], "topics", "other") == {}


@in_world
async def test_what_was_there_before_is_loaded_and_told(world: World) -> None:
    for path in (*paths.PERSISTENT, "/config/topics/old"):
        world.zk.poke(Create(path))
    world.zk.poke(SetData("/config/topics/old", encode_config({"a": "1"})))
    configs, changes, session, _ = await following(world, "a")
    assert changes == [("topics", "old", {"a": "1"})]
    await configs.load(session)
    assert len(changes) == 1  # what is the same is no news
    world.zk.poke(Delete("/config/topics/old"))
    await configs.load(session)
    assert changes[1:] == [("topics", "old", {})]
    assert configs.topics() == {}


@in_world
async def test_changes_made_while_a_node_was_cut_off_reach_it(world: World) -> None:
    configs, _, session, task = await following(world, "a")
    writer = await world.connect("b")
    for number in range(5):
        world.zk.block("a") if number % 2 else world.zk.disconnect("a", Fate.LOSE_REPLY)
        await write_config(writer, "topics", f"t{number}", {"n": str(number)})
        await asyncio.sleep(0.3)
        world.zk.unblock("a")
        await asyncio.sleep(4)
        assert configs.topic(f"t{number}") == {"n": str(number)}
    assert not task.done()
    world.zk.expire("a")
    await asyncio.sleep(2)
    assert task.done()
    await write_config(writer, "topics", "late", {"n": "9"})
    session = await world.connect("a")
    await configs.load(session)
    assert configs.topic("late") == {"n": "9"}


@in_world
async def test_writers_at_the_same_time_lose_nothing(world: World) -> None:
    sessions = [await world.connect(host) for host in "abc"]
    await registration.join_cluster(sessions[0], lambda: "a")
    world.zk.lose_next("b", Fate.SERVE, 2)
    world.zk.lose_next("b", Fate.LOSE_REPLY)
    await asyncio.gather(
        *(write_config(session, "topics", "t", {f"key{n}": "x"}) for n, session in enumerate(sessions))
    )
    assert sorted(await read_config(sessions[0], "topics", "t")) == ["key0", "key1", "key2"]


@in_world
async def test_settings_are_replaced_only_as_they_were_read(world: World) -> None:
    session = await world.connect("a")
    await registration.join_cluster(session, lambda: "a")
    assert await replace_config(session, "topics", "t", {}, {"a": "1"})
    assert not await replace_config(session, "topics", "t", {}, {"b": "1"})
    world.zk.lose_next("a", Fate.SERVE, 1)
    world.zk.lose_next("a", Fate.LOSE_REPLY)  # of the write: it has been carried out
    assert await replace_config(session, "topics", "t", {"a": "1"}, {"b": "1"})
    assert await read_config(session, "topics", "t") == {"b": "1"}


@in_world
async def test_a_missing_parent_is_made(world: World) -> None:
    session = await world.connect("a")
    await session.ensure_path(paths.CONFIG_CHANGES)
    assert await write_config(session, "users", "u", {"a": "1"}) == {"a": "1"}
    assert await read_config(session, "users", "u") == {"a": "1"}


@in_world
async def test_what_cannot_be_read_is_reported_and_the_old_settings_stay(world: World) -> None:
    configs, changes, session, task = await following(world, "a")
    await write_config(session, "topics", "t", {"a": "1"})
    await asyncio.sleep(1)
    world.zk.poke(SetData("/config/topics/t", b"{oops"), notification("topics", "t"))
    world.zk.poke(Create("/config/changes/config_change_", b"?", sequential=True))
    world.zk.poke(Create("/config/changes/stranger"))
    await asyncio.sleep(1)
    assert configs.topic("t") == {"a": "1"}
    assert set(configs.malformed) == {"/config/topics/t", "/config/changes/config_change_0000000002"}
    with pytest.raises(ZnodeError):
        await write_config(session, "topics", "t", {"b": "1"})
    await write_config(session, "topics", "t", {"b": "1"}, replace=True)
    await asyncio.sleep(1)
    assert changes[-1] == ("topics", "t", {"b": "1"})
    assert "/config/topics/t" not in configs.malformed
    assert not task.done()


@in_world
async def test_old_notifications_are_cleared_away(world: World) -> None:
    _, _, session, _ = await following(world, "a")
    await write_config(session, "topics", "t", {"a": "1"})
    await asyncio.sleep(16 * 60)
    await write_config(session, "topics", "t", {"a": "2"})
    await asyncio.sleep(1)
    assert world.zk.tree.children(paths.CONFIG_CHANGES) == ["config_change_0000000001"]


@in_world
async def test_who_has_just_come_leaves_old_notifications_to_those_that_it_does_not_know(world: World) -> None:
    """Their age by ZooKeeper's clock says nothing: a node's own clock may be hours ahead of that."""
    for path in paths.PERSISTENT:
        world.zk.poke(Create(path))
    world.zk.poke(notification("topics", "t"))
    await asyncio.sleep(20 * 60)
    _, _, session, _ = await following(world, "a")
    await write_config(session, "topics", "t", {"a": "1"})
    await asyncio.sleep(1)
    assert len(world.zk.tree.children(paths.CONFIG_CHANGES) or ()) == 2
    await asyncio.sleep(16 * 60)
    await write_config(session, "topics", "t", {"a": "2"})
    await asyncio.sleep(1)
    assert world.zk.tree.children(paths.CONFIG_CHANGES) == ["config_change_0000000002"]


@in_world
async def test_a_notification_is_read_once(world: World) -> None:
    """Each new one used to cost a read of all that were left: the settings of a thousand topics, half a million reads."""
    _, changes, session, _ = await following(world, "a")
    asked: list[str] = []
    get_many = session.get_many

    async def counted(wanted: list[str]) -> object:
        asked.extend(path for path in wanted if path.startswith(paths.CONFIG_CHANGES))
        return await get_many(wanted)

    session.get_many = counted  # type: ignore[method-assign, assignment]
    writer = await world.connect("b")
    for number in range(20):
        await write_config(writer, "topics", f"t{number}", {"flush.ms": "1"})
        await asyncio.sleep(0.1)
    assert len(changes) == 20
    assert len(asked) == len(set(asked)) == 20
