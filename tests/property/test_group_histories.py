"""Histories of groups: clients join, crash, leave and come back while coordinators move, and nothing is owned twice or lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kafkalite.errors import ApiError
from kafkalite.model import Offset
from kafkalite.protocol.topic_ids import to_wire
from tests.support.group_clients import Classic, Client, Consumer, Offsets, Sharer, SlowConsumer, Streamer
from tests.support.group_world import PARTITIONS, World

_SEEDS = range(3)
_TOPICS = {"a": 5, "b": 3}
#: Virtual seconds of changes, and those within which all must have come to rest.
_CHANGES_S, _REST_S = 60.0, 60.0
#: When a coordinator has swept its partitions twice.
_SWEPT_S = 130.0


class History:
    """One group whose members are of these kinds. Faults and changes for a while, then rest, then the end of the group."""

    def __init__(self, seed: int, kinds: list[type[Client]], group_id: str = "g", **settings: Any) -> None:
        self.world = World(seed, **settings)
        self.source = self.world.source
        self.kinds, self.group_id = kinds, group_id
        self.book = Offsets()
        self.clients: list[Client] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.numbers = 0
        self.is_shared = kinds == [Sharer]

    def start_client(self, instance_id: str | None = None) -> None:
        self.numbers += 1
        topics = self.source.choice([["a"], ["a", "b"], ["a", "b"]])
        client = self.source.choice(self.kinds)(self.world, self.group_id, f"m{self.numbers}", topics, self.book)
        client.instance_id = instance_id
        if instance_id is None and isinstance(client, Consumer | Classic) and self.source.random() < 0.3:
            client.instance_id = f"i{self.numbers}"
        self.clients.append(client)
        self.tasks.append(self.world.loop.create_task(client.run()))

    def check(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()
        assert not self.world.fatal
        if not self.is_shared:
            owners = Counter(place for client in self.clients for place in client.has())
            twice = {place for place, count in owners.items() if count > 1}
            assert not twice, [(client.name, client.has() & twice) for client in self.clients if client.has() & twice]

    async def change(self) -> None:
        source = self.source
        what = source.choices(
            ["join", "leave", "crash", "move", "unnoticed", "restart", "recreate", "add", "admin", "wait"],
            [4, 2, 2, 2, 2, 1, 1, 1, 2, 3],
        )[0]
        if what == "join" and len(self.clients) < 5:
            self.start_client()
        elif what in ("leave", "crash") and self.clients:
            client = self.clients.pop(source.randrange(len(self.clients)))
            work = client.leave() if what == "leave" else client.crash()
            self.tasks.append(self.world.loop.create_task(work))
            if client.instance_id is not None and source.random() < 0.7:
                await asyncio.sleep(source.uniform(0, 1))
                self.start_client(client.instance_id)
        elif what in ("move", "unnoticed"):
            self.world.move(source.randrange(PARTITIONS), is_noticed=what == "move")
        elif what == "restart":
            await self.world.restart(source.randrange(2))
        elif what == "recreate":
            self.world.delete("b")
            await asyncio.sleep(source.uniform(0.1, 3))
            self.world.create("b", source.randrange(1, 5))
        elif what == "add" and self.world.count("a") < 9:
            self.world.add("a", range(self.world.count("a"), self.world.count("a") + 1))
        elif what == "admin":
            self.tasks.append(self.world.loop.create_task(self.administer()))

    async def administer(self) -> None:
        world, group_id = self.world, self.group_id
        if not self.is_shared:
            return
        kind = self.source.choice(["alter", "delete_offsets", "delete"])
        topic_id = world.ids["a"]

        async def serve(groups: Any) -> None:
            if kind == "delete":
                await groups.removal.delete_group(group_id)
                return
            entry = groups.share_group(group_id)
            if kind == "alter":
                await groups.share_states.alter_offsets(entry, {topic_id: ("a", {0: Offset(3), 1: Offset(4)})})
            elif entry.share is not None and not entry.share.members:
                await groups.share_states.delete_states(entry, [topic_id])

        await world.ask_task(group_id, serve)

    async def watch(self, seconds: float) -> None:
        until = self.world.clock.monotonic() + seconds
        while self.world.clock.monotonic() < until:
            await asyncio.sleep(0.02)
            self.check()

    async def run(self) -> None:
        world = self.world
        await world.start()
        for name, count in _TOPICS.items():
            world.create(name, count)
        self.start_client()
        while world.clock.monotonic() < 1_000 + _CHANGES_S:
            await self.change()
            await self.watch(self.source.uniform(0.05, 4))
        world.is_faulty = False
        if not self.clients:
            self.start_client()
        self.start_client()
        await self.watch(12)  # the slowest append has come through
        began = world.clock.monotonic()
        rested = 0
        while rested < 6:
            await self.watch(0.5)
            rested = rested + 1 if self.is_at_rest() else 0
            assert world.clock.monotonic() < began + _REST_S, self.picture()
        for client in self.clients:
            client.is_stopped = True
        for task in self.tasks:
            await task
        await asyncio.sleep(_SWEPT_S)
        self.check_leftovers()
        assert not [client.unexpected for client in self.clients if client.unexpected]
        await self.end()

    def wanted(self) -> set[Any]:
        return {
            (self.world.ids[topic], number)
            for client in self.clients
            for topic in client.topics
            for number in range(self.world.count(topic))
        }

    def is_at_rest(self) -> bool:
        if not all(client.is_stable for client in self.clients):
            return False
        return {place for client in self.clients for place in client.owned} == self.wanted()

    def picture(self) -> Any:
        node = self.world.coordinator(self.group_id)
        try:
            entry = node.groups.find(self.group_id)
        except ApiError as error:
            return error
        return [(client.name, type(client).__name__, client.owned) for client in self.clients], entry

    def check_leftovers(self) -> None:
        entry = self.world.coordinator(self.group_id).groups.find(self.group_id)
        assert entry is not None
        partition = entry.partition
        for runtime in (entry.runtime, entry.streams_runtime):
            assert not (runtime.waiting or runtime.uncommitted or runtime.appending)
        for key, offset in entry.offsets.committed.items():
            assert not offset.is_of_another(self.world.ids[key.topic]), key
        assert not entry.offsets.is_pending and not entry.offsets.last_appends and not partition.transactions
        assert not partition.written.appending
        if entry.share is not None:
            shared = entry.share.shared
            assert not shared.initializing and not shared.deleting
            keys = {(each.topic_id.bytes, each.partition) for each in self.world.states.epochs}
            for topic_id, topic in shared.initialized.items():
                if topic_id in self.world.ids.values():
                    assert {(to_wire(topic_id), number) for number in topic.partitions} <= keys

    async def end(self) -> None:
        """All leave; the group can be deleted, and nothing is left of it."""
        world = self.world
        for client in self.clients:
            await client.leave()
        await asyncio.sleep(20)  # static members that left for a while
        answer = await world.ask_task(self.group_id, lambda groups: groups.removal.delete_group(self.group_id))
        assert answer is None, answer
        groups = world.coordinator(self.group_id).groups
        assert not groups.log.state_for(self.group_id).entries
        await asyncio.sleep(60)
        assert not groups._ticks
        await world.stop()


def _run(seed: int, kinds: list[type[Client]], **settings: Any) -> None:
    history = History(seed, kinds, **settings)
    history.world.run(history.run())


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize(
    ("kinds", "settings"),
    [
        ([Consumer], {}),
        ([SlowConsumer], {}),
        ([Consumer, Classic], {"group_consumer_assignment_interval_ms": 3_000}),
        ([Classic], {}),
        ([Sharer], {}),
        ([Streamer], {}),
    ],
    ids=["consumers", "slow", "both", "classic", "sharers", "streams"],
)
def test_nothing_is_owned_twice_or_lost(seed: int, kinds: list[type[Client]], settings: dict[str, int]) -> None:
    _run(seed, kinds, **settings)
