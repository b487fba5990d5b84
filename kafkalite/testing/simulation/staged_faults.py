"""Faults of several steps. Each step waits for what the next one needs; where that does not come, the fault ends early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Create, Delete, SetData
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.replica.partition import Partition as Replica
from kafkalite.testing.simulated.disk_tree import Directory
from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulated.zookeeper_wire import Request, ZooKeeperWrite
from kafkalite.testing.simulation.checkers.transactions import TransactionOutcome
from kafkalite.testing.simulation.final_checks import records_on
from kafkalite.testing.simulation.more_faults import MoreFaults
from kafkalite.testing.simulation.plan import KEYED, LONE, Fault, FaultKind

if TYPE_CHECKING:
    from kafkalite.testing.simulation.checkers.cluster import Partition
    from kafkalite.testing.simulation.run import Simulation

Stages = Callable[[str, Fault, ExitStack], Coroutine[Any, Any, None]]

#: How long a fault waits for the state that it needs, and how often it looks.
_PATIENCE_S, _LOOK_S = 20.0, 0.01
#: What a copy of ZooKeeper puts back: assignments and states, and which nodes have ever started.
_RESTORED = (f"{paths.TOPICS}/", f"{paths.BROKER_STARTS}/")
#: The brokers that have a partition's records start this number of seconds after the others.
_LAST_S = 3.0
#: From a leader whose log is copied for so long that it can die meanwhile.
_TRICKLE = Link(latency_min_ns=200_000_000, latency_max_ns=200_000_000)


class StagedFaults:
    """See the module's text."""

    def __init__(self, simulation: Simulation, more: MoreFaults) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._more = more
        #: How far the copy that is watched went at the last look.
        self._copied = 0
        self._stages: Mapping[FaultKind, Stages] = {
            FaultKind.TAKEN_IN: self._taken_in,
            FaultKind.RESTORED: self._restored,
            FaultKind.FIRST_COPY: self._first_copy,
            FaultKind.LOST_REQUEST: self._lost_request,
        }

    def is_of(self, kind: FaultKind) -> bool:
        return kind in self._stages

    async def happen(self, fault: Fault, name: str) -> None:
        """From its first step to the end of what undoes it."""
        with ExitStack() as undo:
            try:
                await self._stages[fault.kind](name, fault, undo)
            except (TimeoutError, KeyError):  # KeyError: the topic has vanished
                self._world.loop.trace(f"fault {fault.kind.value} {name} ends early")

    def _applied(self, fault: Fault, *hosts: str) -> None:
        self._world.loop.trace(f"fault {fault.kind.value} {' '.join(hosts)}")
        self._simulation.faults.applied += 1

    async def _within(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds. Raises TimeoutError."""
        for _ in range(round(_PATIENCE_S / _LOOK_S)):
            if holds():
                return
            await asyncio.sleep(_LOOK_S)
        raise TimeoutError

    def _hosted(self, name: str, partition: Partition) -> Replica | None:
        """The replica on a node that has registered, and has read which replicas it has."""
        node = self._simulation.nodes[name]
        return node.node.replicas.hosted.get(TopicPartition(*partition)) if node.ready else None

    # --- a replica whose disk is replaced while it is taken in ------------------------------------------

    async def _taken_in(self, name: str, fault: Fault, undo: ExitStack) -> None:
        topics = [topic for topic in self._simulation.plan.topics if topic != LONE]
        number = self._simulation.nodes[name].broker_id
        partition = next(((each, 0) for each in topics if number in self._simulation.assigned((each, 0))), None)
        if partition is None or not await self._more.take_down(name, is_clean=False):
            return
        undo.callback(self._simulation.start_node, name)
        await self._take_in(name, partition, fault, undo)
        await asyncio.sleep(fault.for_s)

    async def _take_in(self, name: str, partition: Partition, fault: Fault, undo: ExitStack) -> None:
        simulation, world, disk = self._simulation, self._world, self._world.host(name).disk
        number, states, names = simulation.nodes[name].broker_id, simulation.zk.states, simulation.plan.node_names
        await self._within(lambda: not any(number in (*each.isr, *each.elr) for each in states.values()))
        for other in simulation.assigned(partition):
            if other not in (number, states[partition].leader):
                world.crash(names[other - 1])
                undo.callback(simulation.start_node, names[other - 1])
        await self._within(lambda: states[partition].isr == (states[partition].leader,))
        last = names[states[partition].leader - 1]
        world.zookeeper.hold(last, lambda request: _lets_in(request, number))
        undo.callback(world.zookeeper.unblock, last)
        simulation.start_node(name)
        await self._within(lambda: world.zookeeper.is_blocked(last))
        world.crash(name)
        log = f"{partition[0]}-{partition[1]}"
        directory = next((each for each in simulation.plan.log_dirs if log in disk.peek_names(each)), None)
        if directory is None or disk.is_failing or not self._may_lose_disk(name):
            return
        self._applied(fault, name, last)
        disk.put_back(directory, Directory())
        undo.callback(world.network.partition([name], [last]))
        world.zookeeper.expire(name)
        simulation.start_node(name)
        await self._within(lambda: self._hosted(name, partition) is not None)
        world.zookeeper.unblock(last)
        await self._within(lambda: number in states[partition].isr)
        world.crash(last)
        undo.callback(simulation.start_node, last)
        await self._within(lambda: states[partition].leader != simulation.nodes[last].broker_id)

    def _may_lose_disk(self, name: str) -> bool:
        return self._more.may_lose_power(name) and not self._more.has_alone(name)

    # --- ZooKeeper from before a reassignment -------------------------------------------------------------

    async def _restored(self, name: str, fault: Fault, undo: ExitStack) -> None:
        simulation, world = self._simulation, self._world
        everywhere = [(topic, number) for topic, count in simulation.plan.topics.items() for number in range(count)]
        assigned = {each: simulation.assigned(each) for each in everywhere}
        targets = {each: to for each, now in assigned.items() if (to := self._others_first(now)) != now}
        # Some of those with the records have first started after the copy.
        late = {paths.broker_starts([n for n in to if n not in assigned[each]][-1]) for each, to in targets.items()}
        copied = [(path, data) for path, data in self._restorable() if path not in late]
        self._reassign(targets)
        await self._within(lambda: all(self._is_at(partition, to) for partition, to in targets.items()))
        await asyncio.sleep(fault.for_s)
        for host in simulation.nodes:
            undo.callback(simulation.start_node, host)
            # Half of the time somebody has stopped the nodes in order.
            await self._more.take_down(host, is_clean=round(fault.at_s * 1_000) % 2 == 0)
            world.zookeeper.expire(host)
        self._applied(fault, "all")
        present = [path for path, _ in self._restorable()]
        world.zookeeper.poke(*map(Delete, reversed(present)), *(Create(path, data) for path, data in copied))
        holders = {number for to in targets.values() for number in to}
        for node in simulation.nodes.values():
            if node.broker_id not in holders:
                simulation.start_node(node.name)
        await asyncio.sleep(_LAST_S)
        for node in simulation.nodes.values():
            simulation.start_node(node.name)
        gone = [each for each, to in targets.items() if not {*to} & {*assigned[each]}]
        await self._within(lambda: all(simulation.zk.states[each].leader == -1 for each in gone))
        await self._within(lambda: all(node.ready for node in simulation.nodes.values()))
        self._reassign(targets)  # as `admin health` says
        await self._within(lambda: all(self._is_at(partition, to) for partition, to in targets.items()))

    def _others_first(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """As many nodes, and of these replicas only where there are too few others."""
        others = [node.broker_id for node in self._simulation.nodes.values() if node.broker_id not in replicas]
        return (*others, *replicas)[: len(replicas)]

    def _restorable(self) -> list[tuple[str, bytes]]:
        return [each for each in self._world.zookeeper.tree.persistent() if each[0].startswith(_RESTORED)]

    def _reassign(self, targets: Mapping[Partition, tuple[int, ...]]) -> None:
        wanted = tuple(WantedReassignment(*each, tuple(map(BrokerId, to)), 0) for each, to in targets.items())

        async def reassign(client: AsyncClient) -> None:
            await client.request(AlterReassignmentsRequest(wanted, 5_000), AlterReassignmentsResponse, timeout_s=5.0)

        self._more.operate(reassign, until_taken=True)

    def _is_at(self, partition: Partition, replicas: tuple[int, ...]) -> bool:
        """Whether these are its replicas, all in sync, and no other node has a log of it."""
        simulation, log = self._simulation, f"{partition[0]}-{partition[1]}"
        if not {*replicas} == {*simulation.assigned(partition)} == {*simulation.zk.states[partition].isr}:
            return False
        return not any(
            log in self._world.host(node.name).disk.peek_names(directory)
            for node in simulation.nodes.values()
            if node.broker_id not in replicas
            for directory in simulation.plan.log_dirs
        )

    # --- a first copy from two leaders --------------------------------------------------------------------

    async def _first_copy(self, name: str, fault: Fault, undo: ExitStack) -> None:
        simulation, world, partition = self._simulation, self._world, (KEYED, 0)
        names, state = simulation.plan.node_names, simulation.zk.states[partition]
        leader = names[state.leader - 1]
        if name == leader:
            name = next(names[each - 1] for each in state.isr if each != state.leader)
        # It compacts nothing, and so has what the other one has removed together with the tombstones.
        world.host(leader).disk.lack_threads()
        undo.callback(world.host(leader).disk.have_threads)
        await asyncio.sleep(fault.for_s)
        disk = world.host(name).disk
        if disk.is_failing or not await self._more.take_down(name, is_clean=False):
            return
        undo.callback(simulation.start_node, name)
        if simulation.zk.states[partition].leader != state.leader or not self._may_lose_disk(name):
            return
        self._applied(fault, name, leader)
        for directory in simulation.plan.log_dirs:
            disk.put_back(directory, Directory())
        world.network.set_link(leader, name, _TRICKLE)
        undo.callback(world.network.set_link, leader, name, None)
        simulation.start_node(name)
        next_leader = next(names[each - 1] for each in state.isr if names[each - 1] not in (leader, name))
        await self._within(lambda: self._has_what_is_gone(name, leader, next_leader))
        world.crash(leader)
        undo.callback(simulation.start_node, leader)
        await self._within(lambda: simulation.zk.states[partition].leader not in (-1, state.leader))
        await asyncio.sleep(2.0)

    def _has_what_is_gone(self, name: str, leader: str, other: str) -> bool:
        """Whether a replica has copied a value, and not yet the tombstone that the leader has for its key; the third replica has neither of the two."""
        replica = self._hosted(name, (KEYED, 0))
        if replica is None or replica.log.log_end_offset == self._copied:
            return False
        self._copied = replica.log.log_end_offset
        copied, whole, left = (self._last_of_keys(each) for each in (name, leader, other))
        return any(copied[key] and whole.get(key) is False and key not in left for key in copied)

    def _last_of_keys(self, name: str) -> dict[bytes | None, bool]:
        """Key -> whether its last committed record has a value."""
        replica, transactions = self._hosted(name, (KEYED, 0)), self._simulation.transactions.history.transactions
        if replica is None:
            return {}
        committed = {
            record for each in transactions if each.outcome is TransactionOutcome.COMMITTED for record in each.records
        }
        found = records_on(self._world.host(name).disk, replica.log.path)
        return {
            each.key: each.value is not None
            for each in found
            if (dict(each.headers).get("name") or b"").decode() in committed
        }

    # --- a write of the controller that never arrives ------------------------------------------------------

    async def _lost_request(self, name: str, fault: Fault, undo: ExitStack) -> None:
        zookeeper = self._world.zookeeper
        lost: list[str] = []

        def fate(host: str, request: Request) -> Fate:
            if lost or not _takes_up(request):
                return Fate.SERVE
            lost.append(host)
            return Fate.LOSE_REQUEST

        zookeeper.decide_fate = fate
        undo.callback(setattr, zookeeper, "decide_fate", None)
        await self._within(lambda: bool(lost))
        self._applied(fault, *lost)


def _lets_in(request: Request, broker: int) -> bool:
    """Whether it writes the state of a partition that has this broker in its ISR."""
    ops = request.ops if isinstance(request, ZooKeeperWrite) else ()
    states = [op.data for op in ops if isinstance(op, SetData) and op.path.endswith("/state")]
    return any(broker in json.loads(state)["isr"] for state in states)


def _takes_up(request: Request) -> bool:
    """Whether it carries out a request for more partitions."""
    ops = request.ops if isinstance(request, ZooKeeperWrite) else ()
    return any(isinstance(op, Delete) and op.path.startswith(f"{paths.PARTITIONS_ADD}/") for op in ops)
