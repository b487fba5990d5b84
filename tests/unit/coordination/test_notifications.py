"""Notifications of changes are few: each costs every node a list of all. A node that has missed some reads everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.coordinator import Coordinator, Stat
from kafkalite.coordination.notifications import KEPT, MOST, Notifications
from kafkalite.security.acl import AclEntry, Filter, Operation, Pattern, Permission, ResourceType
from kafkalite.security.authorizer import Authorizer

from .conftest import World, in_world

READ = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)


def pattern(number: int) -> Pattern:
    return Pattern(ResourceType.TOPIC, f"t{number:05}")


async def joined(world: World, host: str) -> tuple[Coordinator, Authorizer, AclStore]:
    session, authorizer = await world.connect(host), Authorizer()
    store = AclStore(authorizer, world.loop.time)
    await store.load(session)
    return session, authorizer, store


async def write(store: AclStore, session: object, numbers: range) -> None:
    for number in numbers:
        await store.update(session, pattern(number), lambda before: {READ})  # type: ignore[arg-type]


@in_world
async def test_of_thousands_of_changes_a_thousand_notifications_stay(world: World) -> None:
    (ours, _, writing), (theirs, reader, reading) = await joined(world, "n1"), await joined(world, "n2")
    most = 0
    for begin in range(0, MOST + 600, 50):
        await write(writing, ours, range(begin, begin + 50))
        await writing.catch_up(ours)
        await reading.catch_up(theirs)
        names, _ = await ours.children(paths.ACL_CHANGES)
        most = max(most, len(names))
        assert len(reader.patterns()) == begin + 50
    assert KEPT <= len(names) <= MOST
    assert most <= MOST + 50


@in_world
async def test_a_node_that_was_away_from_its_loop_meanwhile_knows_them_all(world: World) -> None:
    """Its session lives, its task did not run, and others have removed notifications that it has not seen."""
    (ours, _, writing), (theirs, reader, reading) = await joined(world, "n1"), await joined(world, "n2")
    await write(writing, ours, range(10))
    await reading.catch_up(theirs)
    for begin in range(10, 2 * MOST, 100):
        await write(writing, ours, range(begin, min(begin + 100, 2 * MOST)))
        await writing.catch_up(ours)  # removes the oldest
    await reading.catch_up(theirs)
    assert len(reader.bindings(Filter())) == 2 * MOST


@in_world
async def test_nothing_is_read_again_if_nothing_can_be_missing(world: World) -> None:
    (ours, _, writing), (theirs, reader, reading) = await joined(world, "n1"), await joined(world, "n2")
    loads = 0
    load = reading.load

    async def counted(session: object) -> None:
        nonlocal loads
        loads += 1
        await load(session)  # type: ignore[arg-type]

    reading.load = counted  # type: ignore[method-assign, assignment]
    for begin in range(0, MOST + 500, 100):  # the first ones before it has seen any, and some removals
        await write(writing, ours, range(begin, begin + 100))
        await writing.catch_up(ours)
        await reading.catch_up(theirs)
    assert loads == 0
    assert len(reader.patterns()) == MOST + 500


@in_world
async def test_a_notification_that_somebody_gave_a_child_stays_and_stops_nobody(world: World) -> None:
    """Only an empty znode can be removed. `follow` is a task without which a node cannot go on."""
    session, authorizer, store = await joined(world, "n1")
    await write(store, session, range(1))
    (first,), _ = await session.children(paths.ACL_CHANGES)
    await session.create(f"{paths.ACL_CHANGES}/{first}/by-hand")
    await store.catch_up(session)
    await asyncio.sleep(16 * 60)  # they are old enough to go
    await write(store, session, range(1, 2))
    await store.catch_up(session)
    await asyncio.sleep(16 * 60)
    await store.catch_up(session)
    assert (await session.children(paths.ACL_CHANGES))[0] == [first]
    assert len(authorizer.patterns()) == 2


@in_world
async def test_a_notification_that_goes_while_two_tasks_read_is_no_error(world: World) -> None:
    """A session's task and a request to delete ACLs (`catch_up`) look at the same time; another node removes one in between."""
    session = await world.connect("n1")
    seen = Notifications(paths.ACL_CHANGES, paths.ACL_CHANGE_NAME, world.loop.time)
    await seen.begin(session)
    path, _ = await session.create(f"{paths.ACL_CHANGES}/{paths.ACL_CHANGE_NAME}", b"Topic:t", sequential=True)
    get_many = session.get_many

    async def slow(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        await session.delete(path)
        await seen.news(session, None)  # the other task
        return await get_many(paths)

    session.get_many = slow  # type: ignore[method-assign]
    assert (await seen.news(session, None)).fresh == []


@in_world
async def test_numbers_that_begin_again_are_seen(world: World) -> None:
    """Somebody has removed the notifications and their parent. A node creates it again, and ZooKeeper counts from zero."""
    (ours, writer, writing), (theirs, reader, reading) = await joined(world, "n1"), await joined(world, "n2")
    task = world.loop.create_task(reading.follow(theirs))
    await write(writing, ours, range(20))
    for name in (await ours.children(paths.ACL_CHANGES))[0]:
        await ours.delete(f"{paths.ACL_CHANGES}/{name}")
    await ours.delete(paths.ACL_CHANGES)
    await asyncio.sleep(1)
    await write(writing, ours, range(20, 22))
    await writing.update(ours, pattern(0), lambda before: ())
    await asyncio.sleep(1)
    assert reader.patterns() == writer.patterns() == [pattern(number) for number in range(1, 22)]
    task.cancel()
