"""Notifications of changes are few: each costs every node a list of all. A node that has missed some reads everything."""

from __future__ import annotations

from kafkalite.coordination import paths
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.notifications import KEPT, MOST
from kafkalite.security.acl import AclEntry, Filter, Operation, Pattern, Permission, ResourceType
from kafkalite.security.authorizer import Authorizer

from .conftest import World

READ = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)


def pattern(number: int) -> Pattern:
    return Pattern(ResourceType.TOPIC, f"t{number:05}")


async def write(store: AclStore, session: object, numbers: range) -> None:
    for number in numbers:
        await store.update(session, pattern(number), lambda before: {READ})  # type: ignore[arg-type]


def test_of_thousands_of_changes_a_thousand_notifications_stay(world: World) -> None:
    async def scenario() -> None:
        ours, theirs = await world.connect("n1"), await world.connect("n2")
        writer, reader = Authorizer(), Authorizer()
        stores = AclStore(writer, world.loop.time), AclStore(reader, world.loop.time)
        await stores[0].load(ours)
        await stores[1].load(theirs)
        most = 0
        for begin in range(0, MOST + 600, 50):
            await write(stores[0], ours, range(begin, begin + 50))
            await stores[0].catch_up(ours)
            await stores[1].catch_up(theirs)
            names, _ = await ours.children(paths.ACL_CHANGES)
            most = max(most, len(names))
            assert len(reader.patterns()) == begin + 50
        assert KEPT <= len(names) <= MOST
        assert most <= MOST + 50

    world.run(scenario())


def test_a_node_that_was_away_from_its_loop_meanwhile_knows_them_all(world: World) -> None:
    """Its session lives, its task did not run, and others have removed notifications that it has not seen."""

    async def scenario() -> None:
        ours, theirs = await world.connect("n1"), await world.connect("n2")
        writer, reader = Authorizer(), Authorizer()
        stores = AclStore(writer, world.loop.time), AclStore(reader, world.loop.time)
        await stores[0].load(ours)
        await stores[1].load(theirs)
        await write(stores[0], ours, range(10))
        await stores[1].catch_up(theirs)
        for begin in range(10, 2 * MOST, 100):
            await write(stores[0], ours, range(begin, min(begin + 100, 2 * MOST)))
            await stores[0].catch_up(ours)  # removes the oldest
        await stores[1].catch_up(theirs)
        assert len(reader.bindings(Filter())) == 2 * MOST

    world.run(scenario())


def test_nothing_is_read_again_if_nothing_can_be_missing(world: World) -> None:
    async def scenario() -> None:
        ours, theirs = await world.connect("n1"), await world.connect("n2")
        writer, reader = Authorizer(), Authorizer()
        stores = AclStore(writer, world.loop.time), AclStore(reader, world.loop.time)
        await stores[0].load(ours)
        await stores[1].load(theirs)
        loads = 0
        load = stores[1].load

        async def counted(session: object) -> None:
            nonlocal loads
            loads += 1
            await load(session)  # type: ignore[arg-type]

        stores[1].load = counted  # type: ignore[method-assign, assignment]
        for begin in range(0, MOST + 500, 100):  # the first ones before it has seen any, and some removals
            await write(stores[0], ours, range(begin, begin + 100))
            await stores[0].catch_up(ours)
            await stores[1].catch_up(theirs)
        assert loads == 0
        assert len(reader.patterns()) == MOST + 500

    world.run(scenario())
