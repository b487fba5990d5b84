"""One current session, always: what the node hears, when it must act as fenced, what is repeated."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from kafkalite.coordination.coordinator import (
    Coordinator,
    NodeExistsError,
    NotSentError,
    OutcomeUnknownError,
    SessionState,
)
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.session import SessionKeeper
from kafkalite.errors import StartupRefused
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import World, in_world

TIMEOUT_MS = 6_000


class Node:
    """A keeper, its task, and what it reported."""

    def __init__(self, world: World, host: str = "a") -> None:
        self.keeper = SessionKeeper(world.env(host), "zk:2181", TIMEOUT_MS)
        self.sessions: list[Coordinator] = []
        self.lost = 0
        self.keeper.on_session(self._introduce)
        self.keeper.on_lost(self._lost)
        self.task = asyncio.get_running_loop().create_task(self.keeper.run())

    async def _introduce(self, coordinator: Coordinator) -> None:
        self.sessions.append(coordinator)
        with contextlib.suppress(NodeExistsError):
            await coordinator.create("/me", ephemeral=True)

    def _lost(self) -> None:
        self.lost += 1
        self.at_loss = (self.keeper.current, self.keeper.usable(), self.keeper.lease_left())

    async def close(self) -> None:
        await self.keeper.close()
        await self.task


@pytest.mark.checklist("F24")
@in_world
async def test_an_expired_session_is_followed_by_the_next_one(world: World) -> None:
    node = Node(world)
    first = await node.keeper.wait()
    await asyncio.sleep(1)
    assert node.keeper.usable()
    for expiry in (1, 2, 3):
        world.zk.expire("a")
        while node.lost < expiry:
            await asyncio.sleep(0.0001)
        assert node.at_loss == (None, False, 0.0)
        current = await node.keeper.wait()
        assert current is not first
        await asyncio.sleep(1)
        assert len(node.sessions) == expiry + 1
        found = world.zk.peek("/me")
        assert found is not None
        assert found[1].ephemeral_owner == current.session_id
    await node.close()
    assert node.lost == 3  # a clean end is no loss
    assert world.zk.peek("/me") is None
    assert not node.keeper.usable()


@in_world
async def test_a_lost_connection_is_no_lost_session(world: World) -> None:
    node = Node(world)
    session = await node.keeper.wait()
    await asyncio.sleep(1)
    world.zk.disconnect("a")
    await asyncio.sleep(0.005)
    suspended: object = session.state
    assert suspended is SessionState.SUSPENDED
    assert node.keeper.current is session
    assert node.keeper.usable()  # the server still holds it, and long enough
    await asyncio.sleep(1)
    assert session.state is SessionState.CONNECTED
    assert (node.lost, len(node.sessions)) == (0, 1)
    await node.close()


@pytest.mark.checklist("F13")
@in_world
async def test_a_node_cut_off_fences_itself_before_its_session_can_go(world: World) -> None:
    node = Node(world)
    await node.keeper.wait()
    await asyncio.sleep(1)
    started = world.loop.time()
    world.zk.block("a")
    while node.keeper.usable():
        await asyncio.sleep(0.01)
    assert world.zk.peek("/me") is not None
    assert 3.0 < world.loop.time() - started < 6.0
    while world.zk.peek("/me") is not None:
        await asyncio.sleep(0.01)
    assert node.lost == 0  # nobody has told us yet
    world.zk.unblock("a")
    await asyncio.sleep(2)
    assert node.lost == 1
    assert node.keeper.usable()
    await node.close()


@in_world
async def test_what_zookeeper_grants_counts_not_what_was_asked_for(world: World) -> None:
    """A server gives 20 ticks at most, 40 s as it comes; a tenth of ten minutes would be more than is ever left."""
    env, ask = world.env("a"), world.zk.connector("a")
    granting = replace(env, connect_coordinator=lambda servers, wanted_ms: ask(servers, min(wanted_ms, 40_000)))
    keeper = SessionKeeper(granting, "zk:2181", 600_000)
    task = asyncio.get_running_loop().create_task(keeper.run())
    session = await keeper.wait()
    assert session.timeout_s == 40
    for _ in range(60):
        await asyncio.sleep(1)
        assert keeper.usable()
    await keeper.close()
    await task


@in_world
async def test_introductions_are_repeated_until_zookeeper_answers(world: World) -> None:
    keeper = SessionKeeper(world.env("a"), "zk:2181", TIMEOUT_MS)
    calls: list[str] = []

    async def first(coordinator: Coordinator) -> None:
        calls.append("first")
        await coordinator.exists("/")

    async def second(coordinator: Coordinator) -> None:
        calls.append("second")

    keeper.on_session(first)
    keeper.on_session(second)
    world.zk.lose_next("a", Fate.LOSE_REPLY, count=2)
    task = world.loop.create_task(keeper.run())
    await asyncio.sleep(3)
    assert calls == ["first", "first", "first", "second"]
    await keeper.close()
    await task


@in_world
async def test_an_introduction_that_hangs_ends_with_its_session(world: World) -> None:
    keeper = SessionKeeper(world.env("a"), "zk:2181", TIMEOUT_MS)
    begun: list[int] = []

    async def hang(coordinator: Coordinator) -> None:
        begun.append(coordinator.session_id)
        await asyncio.Event().wait()

    keeper.on_session(hang)
    task = world.loop.create_task(keeper.run())
    await asyncio.sleep(1)
    world.zk.expire("a")
    await asyncio.sleep(1)
    assert len(begun) == 2
    assert begun[0] != begun[1]
    await keeper.close()
    await task


@in_world
async def test_what_an_introduction_refuses_ends_the_keeper(world: World) -> None:
    keeper = SessionKeeper(world.env("a"), "zk:2181", TIMEOUT_MS)

    async def refuse(coordinator: Coordinator) -> None:
        raise StartupRefused("id in use")

    keeper.on_session(refuse)
    with pytest.raises(StartupRefused):
        await keeper.run()
    await keeper.close()


@in_world
async def test_a_node_may_start_before_zookeeper(world: World) -> None:
    world.zk.stop()
    node = Node(world)
    await asyncio.sleep(60)
    assert node.keeper.current is None
    assert not node.keeper.usable()
    world.zk.start()
    await asyncio.sleep(10)
    assert node.keeper.usable()
    assert world.zk.peek("/me") is not None
    await node.close()


@in_world
async def test_an_outage_of_the_whole_service_costs_no_session(world: World) -> None:
    node = Node(world)
    session = await node.keeper.wait()
    await asyncio.sleep(1)
    world.zk.stop()
    await asyncio.sleep(60)
    assert not node.keeper.usable()
    assert node.lost == 0
    world.zk.start()
    await asyncio.sleep(3)
    assert node.keeper.current is session
    assert node.keeper.usable()
    assert world.zk.peek("/me") is not None
    await node.close()


@pytest.mark.checklist("F4")
@in_world
async def test_a_process_that_stood_still_wakes_up_fenced(world: World) -> None:
    process = world.loop.process("a")
    woke: list[float] = []
    nodes: list[Node] = []

    async def life() -> None:
        node = Node(world)
        nodes.append(node)
        await node.keeper.wait()
        before = world.loop.time()
        while not woke:
            await asyncio.sleep(0.05)
            if world.loop.time() - before > 1:
                woke.append(node.keeper.lease_left())
            before = world.loop.time()

    world.loop.start(process, life(), "life")
    await asyncio.sleep(2)
    world.loop.stop_process(process)
    await asyncio.sleep(10)
    assert world.zk.peek("/me") is None
    assert nodes[0].lost == 0
    world.loop.resume_process(process)
    await asyncio.sleep(3)
    assert woke
    assert woke[0] < 0
    assert nodes[0].lost == 1
    assert len(nodes[0].sessions) == 2


@in_world
async def test_a_killed_process_leaves_its_session_to_expire(world: World) -> None:
    process = world.loop.process("a")

    async def life() -> None:
        Node(world)
        await asyncio.Event().wait()

    world.loop.start(process, life(), "life")
    await asyncio.sleep(2)
    assert world.zk.peek("/me") is not None
    killed = world.loop.time()
    world.loop.kill_process(process)
    while world.zk.peek("/me") is not None:
        await asyncio.sleep(0.01)
    assert 3.9 < world.loop.time() - killed < 6.7
    assert world.zk.hosts() == []


@in_world
async def test_retrying_repeats_what_was_not_answered_and_nothing_else(world: World) -> None:
    answers: list[BaseException | str] = [NotSentError(), OutcomeUnknownError(), "done"]

    async def operation() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert await retrying(operation) == "done"
    answers[:] = [StartupRefused("no"), "never"]
    with pytest.raises(StartupRefused):
        await retrying(operation)
    assert answers == ["never"]


def _story(seed: int) -> tuple[str, list[str], int]:
    """A minute of three nodes under faults drawn from the seed: the loop's trace, the tree, the zxid."""
    world = World(seed)

    async def main() -> None:
        nodes = [Node(world, host) for host in ("a", "b", "c")]
        for _ in range(60):
            host = world.random.choice(["a", "b", "c"])
            match world.random.randrange(6):
                case 0:
                    world.zk.disconnect(host)
                case 1:
                    world.zk.expire(host)
                case 2:
                    world.zk.block(host)
                case 3:
                    world.zk.unblock(host)
                case 4:
                    world.zk.lose_next(host, world.random.choice(list(Fate)))
                case _:
                    world.zk.stop() if world.zk.is_up else world.zk.start()
            for node in nodes:
                if node.keeper.current is not None:
                    with contextlib.suppress(NotSentError, OutcomeUnknownError):
                        await node.keeper.current.create("/n-", sequential=True)
            await asyncio.sleep(world.random.uniform(0, 2))
        for host in ("a", "b", "c"):
            world.zk.unblock(host)
        world.zk.start()
        await asyncio.sleep(20)
        assert all(node.keeper.usable() for node in nodes)
        for node in nodes:
            await node.close()

    world.run(main())
    story = (world.loop.trace_hash, world.zk.tree.paths(), world.zk.tree.zxid)
    world.loop.close()
    return story


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_tells_the_same_story(seed: int) -> None:
    assert _story(seed) == _story(seed)


def test_another_seed_tells_another() -> None:
    assert _story(1)[0] != _story(4)[0]
