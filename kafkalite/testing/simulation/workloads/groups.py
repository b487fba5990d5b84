"""Members of a consumer group (KIP-848) in a simulated cluster, and what must hold whatever dies.

A member counts offsets of the partitions that it has: it reads what the group has committed, and commits one more, again and
again. It leaves now and then, or stops without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.env.seams import Env
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.testing.consumer_membership import ConsumerMembership
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.workloads.clients import client_of

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

#: Makes a member of these topics, under this name.
Joins = Callable[[AsyncClient, Sequence[str], str], ConsumerMembership]

GROUP = "members"
SESSION_MS = 6_000
SETTINGS: dict[str, int | str] = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 400,
}


@dataclass(slots=True)
class _Hold:
    """A member has a partition; `member` None once it has stopped. Its client's clock is `ahead_s` of the simulation's."""

    name: str
    member: ConsumerMembership | None
    ahead_s: float
    until_s: float = 0.0

    def ends_s(self) -> float:
        """Before this moment (s) nobody else may have the partition, unless its member gives it up."""
        if self.member is None:
            return self.until_s
        if not self.member.generation:
            return 0.0  # it has heard that the group has removed it
        return self.member.heard_at_s - self.ahead_s + SESSION_MS / 1000


#: A commit that takes longer than this may have been sent twice.
_REPEATED_S = 1.0


@dataclass(slots=True)
class GroupHistory:
    """What members had and committed. Methods raise Violation."""

    holds: dict[TopicPartition, _Hold] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Offsets whose commit was repeated: the first request may still be on its way, and sets back what was committed since (as in Kafka,
    #: whose commits have no sequence).
    late: dict[TopicPartition, set[int]] = field(default_factory=dict)
    #: A coordinator that has been replaced, and was without its lease, answers heartbeats for this number of seconds (ADR 15).
    replaced_s: float = 0.0
    #: When a coordinator was loaded last: it gives each member a session from then on.
    loaded_s: float = -math.inf
    commits: int = 0
    takes: int = 0

    def take(self, name: str, member: ConsumerMembership, client_s: float) -> None:
        """A member works with its partitions from now on, which is `client_s` by its client's clock."""
        now_s = asyncio.get_running_loop().time()
        for partition in member.partitions:
            other = self.holds.get(partition)
            if other is not None and other.name != name and self._ends_s(other) > now_s:
                raise Violation(f"{partition} has two owners, {other.name} and {name}, at {now_s:.3f} s")
            self.holds[partition] = _Hold(name, member, client_s - now_s)
            self.takes += 1

    def _ends_s(self, hold: _Hold) -> float:
        """As `_Hold.ends_s`; but if the member has stopped, and its last heartbeat may have been answered by a coordinator that had been replaced, its
        session is that of the next one."""
        ends_s, session_s = hold.ends_s(), SESSION_MS / 1000
        if hold.member is None and ends_s - session_s <= self.loaded_s + self.replaced_s:
            return min(ends_s, self.loaded_s + session_s)
        return ends_s

    def give_up(self, name: str) -> None:
        """A member works with none of its partitions any more, and may say so."""
        self.holds = {partition: hold for partition, hold in self.holds.items() if hold.name != name}

    def stop(self, name: str) -> None:
        """A member has stopped without a word: the group waits for the end of its session."""
        for hold in self.holds.values():
            if hold.name == name and hold.member is not None:
                hold.until_s, hold.member = hold.ends_s(), None

    def read(self, name: str, partition: TopicPartition, offset: int, acknowledged: int) -> None:
        """A new owner reads what is committed: what was acknowledged before it asked may not be missing."""
        if offset >= acknowledged:
            return
        if offset not in self.late.get(partition, ()):
            raise Violation(
                f"{name} reads the committed offset {offset} of {partition}; {acknowledged} was acknowledged"
            )
        self.committed[partition] = offset

    def acknowledge(self, partition: TopicPartition, offset: int, took_s: float = 0.0) -> None:
        """It is committed, `took_s` after the first request."""
        self.commits += 1
        if took_s > _REPEATED_S:
            self.late.setdefault(partition, set()).add(offset)
        self.committed[partition] = max(offset, self.committed.get(partition, 0))


def consumer(client: AsyncClient, topics: Sequence[str], name: str) -> ConsumerMembership:
    """A member of the group of consumers."""
    return ConsumerMembership(client, Groups(client), GROUP, topics)


class MemberWorkload:
    """One member after the other, under one name. `membership` makes one."""

    def __init__(self, name: str, plan: Plan, history: GroupHistory, membership: Joins) -> None:
        self.name = name
        self._membership = membership
        self._plan = plan
        self._history = history
        self._lives = 0
        self.is_calm = False
        self.member: ConsumerMembership | None = None

    async def run(self, env: Env) -> None:
        """The program; it never ends."""
        while True:
            self._lives += 1
            async with client_of(self._plan, env, f"{self.name}-{self._lives}") as client:
                name = f"{self.name}-{self._lives}"
                member = self._membership(client, sorted(self._plan.topics), name)
                with contextlib.suppress(ApiError, RpcError):  # then as a program that ends with an error
                    await self._live(name, member, client, env)
                self._history.stop(name)
                self.member = None
                member.abandon()
            await asyncio.sleep(env.random.uniform(0.1, 3.0))

    async def _live(self, name: str, member: ConsumerMembership, client: AsyncClient, env: Env) -> None:
        source, clock = env.random, env.clock
        ends_s = clock.monotonic() + source.expovariate(0.1)
        while True:
            self._history.give_up(name)
            await member.join()
            self._history.take(name, member, client.now())
            self.member = member
            acknowledged = dict(self._history.committed)
            committed = await member.committed()
            positions = {partition: committed.get(partition, 0) for partition in member.partitions}
            for partition, offset in positions.items():
                self._history.read(name, partition, offset, acknowledged.get(partition, 0))
            while not member.is_stale.is_set():
                await asyncio.sleep(source.uniform(0.05, 0.6))
                await self._commit(member, positions, source)
                if not self.is_calm and clock.monotonic() > ends_s:
                    if source.random() < 0.5:
                        self._history.give_up(name)
                        await member.leave()
                    return

    async def _commit(
        self, member: ConsumerMembership, positions: dict[TopicPartition, int], source: random.Random
    ) -> None:
        if not positions:
            return
        partition = source.choice(sorted(positions))
        offset = positions[partition] + 1
        began_s = asyncio.get_running_loop().time()
        if await member.commit({partition: offset}):
            positions[partition] = offset
            self._history.acknowledge(partition, offset, asyncio.get_running_loop().time() - began_s)


class GroupMembers:
    """All members of one group of a simulation: `count` of them, which are called `name` and a number."""

    def __init__(self, simulation: Simulation, count: int, name: str = "member", membership: Joins = consumer) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self._count, self._name = count, name
        self._membership = membership
        self.history = GroupHistory(replaced_s=float(self._plan.settings["zookeeper.session.timeout.ms"]) / 1000)
        self._members: list[MemberWorkload] = []

    def start(self) -> None:
        for number in range(1, self._count + 1):
            workload = MemberWorkload(f"{self._name}{number}", self._plan, self.history, self._membership)
            self._members.append(workload)
            self._simulation.world.start(workload.name, workload.run, self._simulation.client_ended)

    def logged(self, event: dict[str, Any]) -> None:
        """A line of a node's log."""
        if event.get("event") == "coordinator.loaded":
            self.history.loaded_s = self._simulation.world.loop.time()

    def stop(self) -> None:
        """The faults are over: members stay."""
        for each in self._members:
            each.is_calm = True

    def stats(self) -> dict[str, int]:
        if not self._count:
            return {}
        return {f"{self._name}_commits": self.history.commits, f"{self._name}_takes": self.history.takes}

    def not_shared(self) -> str | None:
        """Which partitions nobody has, or which member waits."""
        wanted = {TopicPartition(topic, n) for topic, count in self._plan.topics.items() for n in range(count)}
        found: dict[TopicPartition, str] = {}
        for each in self._members:
            if each.member is None or each.member.is_stale.is_set():
                return f"{each.name} is no settled member"
            found |= dict.fromkeys(each.member.partitions, each.name)
        missing = sorted(wanted - found.keys())
        return f"nobody has {', '.join(map(str, missing))}" if missing and self._members else None
