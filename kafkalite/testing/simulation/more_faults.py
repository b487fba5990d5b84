"""Faults that need to know more of the cluster than a name: what is in sync, which files there are, what an operator orders."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination.coordinator import Create, Delete
from kafkalite.env.seams import Env
from kafkalite.errors import ApiError, KafkaliteError, is_retriable
from kafkalite.extension.messages.disks import MoveReplicasRequest, RequestedDiskMove
from kafkalite.model import BrokerId
from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulation.plan import KEYED, LONE, Fault, FaultKind
from kafkalite.testing.simulation.topics import settings_of
from kafkalite.testing.simulation.workloads.clients import client_of

if TYPE_CHECKING:
    from kafkalite.testing.simulation.checkers.cluster import Partition, StateZnode
    from kafkalite.testing.simulation.run import Simulation

Undo = Callable[[], None]

MORE = frozenset(
    {
        FaultKind.POWER_ONE, FaultKind.SETTINGS, FaultKind.FILE, FaultKind.MOVES, FaultKind.VANISH, FaultKind.ZK_AWAY,
        FaultKind.LATE, FaultKind.LIE, FaultKind.FULL, FaultKind.ZK_LAG, FaultKind.PUT_BACK, FaultKind.THREADS,
    }
)  # fmt: skip
#: The delay of one way from a client to a node.
_LATE = Link(latency_min_ns=1_000_000_000, latency_max_ns=9_000_000_000)
#: Of the session timeout. A node leaves a server that does not answer for two thirds of it.
_LAGS = (0.05, 0.2, 0.4, 0.6, 0.8)
_FILE_ERRORS = (errno.EIO, errno.ENOENT, errno.EMFILE, errno.ENOMEM)
#: (setting, value) of ordinary topics; none that takes a promise back that the checkers count on.
_SETTINGS = (
    ("segment.bytes", "2048"), ("segment.ms", "700"), ("index.interval.bytes", "64"), ("flush.messages", "3"),
    ("flush.ms", "200"), ("segment.index.bytes", "4096"), ("file.delete.delay.ms", "0"), ("retention.ms", "3600000"),
    ("message.timestamp.type", "LogAppendTime"), ("max.message.bytes", "900000"),
)  # fmt: skip
#: Of the compacted one: what is set in one alteration, and which settings are reset after it.
_KEYED_SETTINGS: tuple[dict[str, str], ...] = (
    {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    {"cleanup.policy": "delete", "retention.bytes": "20480"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete", "retention.bytes": "6144"},
    {"segment.bytes": "8192"},
    {"delete.retention.ms": "60000"},
    {"min.compaction.lag.ms": "2000"},
)


class MoreFaults:
    """See the module's text."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._commands = 0
        self._vanished: dict[str, list[tuple[str, bytes]]] = {}
        #: Of their partitions: state and AR.
        self._vanished_states: dict[Partition, tuple[StateZnode, tuple[int, ...]]] = {}
        self._changed: dict[str, set[str]] = {}

    def finish(self) -> None:
        """The actions that undo the fault, even if it was interrupted."""
        for topic in list(self._vanished):
            self._return(topic)
        for topic in sorted(self._changed):
            self._reset(topic)

    def apply(self, fault: Fault, name: str) -> Undo | None:
        """Start the fault; returns the function that undoes it, or None if it makes no sense now."""
        number = round(fault.at_s * 1_000)
        match fault.kind:
            case FaultKind.POWER_ONE:
                return self._power_one(name)
            case FaultKind.LIE:
                return self._lie(number, name)
            case FaultKind.SETTINGS:
                return self._settings(number)
            case FaultKind.FILE:
                return self._file(number, name)
            case FaultKind.MOVES:
                return self._moves(number, name)
            case FaultKind.VANISH:
                return self._vanish(number)
            case FaultKind.PUT_BACK:
                return self._copy_states()
            case FaultKind.ZK_AWAY:
                if not self._world.zookeeper.is_up:
                    return None
                self._world.zookeeper.stop()
                return self._world.zookeeper.start
            case FaultKind.ZK_LAG:
                return self._lag(number, name)
            case FaultKind.THREADS:
                disk = self._world.host(name).disk
                disk.lack_threads()
                return disk.have_threads
            case FaultKind.FULL:
                disk = self._world.host(name).disk
                disk.fill(number % 4_000)
                return disk.make_room
            case _:
                return self._late(name)

    # --- power -----------------------------------------------------------------------------------

    def may_lose_power(self, name: str, *, last: bool = False) -> bool:
        """Whether nothing may be lost when this host loses its unsynced bytes: another replica has all of it.

        That replica is in sync, or, with `last`, has left when the ISR was going below its minimum (it is eligible).
        """
        simulation = self._simulation
        number = simulation.plan.node_names.index(name) + 1
        present = {each: (state, simulation.assigned(each)) for each, state in simulation.zk.states.items()}
        for partition, (state, assigned) in {**present, **self._vanished_states}.items():
            if partition[0] not in simulation.plan.all_topics:
                continue
            # An eligible replica, too, may be the only one that still has all, where one in sync has lost its power.
            if number not in assigned or number not in (*state.isr, *state.elr):
                continue
            others = {*state.isr, *(state.elr if last else ())} - {number}
            hosts = [simulation.plan.node_names[each - 1] for each in others]
            if not simulation.copies.is_complete_without(name, partition, hosts):
                return False
        return True

    def _power_one(self, name: str) -> Undo | None:
        world = self._world
        if not world.host(name).powered or not self.may_lose_power(name):
            return None
        world.lose_power(name)
        return partial(self._power_on, name)

    def _lie(self, number: int, name: str) -> Undo | None:
        """Compacted topics are left out: where a compaction may have been, only a torn batch shows that something is missing."""
        undo, disk = self._power_one(name), self._world.host(name).disk
        found = [
            f"{directory}/{replica}/{segment}"
            for directory in self._simulation.plan.log_dirs
            for replica in disk.peek_names(directory)
            if replica.rpartition("-")[0] in self._simulation.plan.topics and replica.rpartition("-")[2].isdigit()
            for segment in [each for each in disk.peek_names(f"{directory}/{replica}") if each.endswith(".log")][:-1]
        ]
        if undo is not None and found:
            path = found[number % len(found)]
            disk.shorten(path, number // 3 * 97 % max(1, len(disk.content(path))))
        return undo

    def _power_on(self, name: str) -> None:
        self._simulation.power_lost[name] = self._world.loop.time()
        self._world.power_on(name)
        self._simulation.start_node(name)

    async def last_man(self, name: str, for_s: float) -> None:
        """Two processes die, one after the other, until `name` is the last in sync; it loses its power and is back first."""
        simulation, world = self._simulation, self._world
        partition = (next(iter(simulation.plan.topics)), 0)
        assigned = [simulation.plan.node_names[each - 1] for each in simulation.assigned(partition)]
        if not assigned:
            return  # its topic has vanished
        last = name if name in assigned else assigned[-1]
        first = [each for each in assigned if each != last]
        stopped = []
        settle_s = int(simulation.plan.settings["replica.lag.time.max.ms"]) / 1000 + 1
        for each in first:
            if world.host(each).running:
                world.crash(each)
                stopped.append(each)
            await asyncio.sleep(settle_s)
        state = simulation.zk.states.get(partition)
        number = simulation.plan.node_names.index(last) + 1
        if (
            state is not None
            and state.isr == (number,)
            and world.host(last).powered
            and self.may_lose_power(last, last=True)
        ):
            world.loop.trace(f"last man {last}")
            simulation.faults.applied += 1
            world.lose_power(last)
            self._power_on(last)
        await asyncio.sleep(for_s)
        for each in stopped:
            simulation.start_node(each)

    # --- copies ----------------------------------------------------------------------------------

    async def old_copy(self, fault: Fault, name: str) -> None:
        """A log directory is copied while its node is down, and the copy is put back while it is down again."""
        simulation, disk = self._simulation, self._world.host(name).disk
        directories, number = simulation.plan.log_dirs, round(fault.at_s * 1_000)
        target = directories[number // 4 % len(directories)]
        source = directories[number // 8 % len(directories)] if number // 16 % 4 == 0 else target
        if disk.is_failing or not await self.take_down(name, is_clean=number % 2 == 0):
            return
        copy = disk.copy_of(source)
        simulation.start_node(name)
        await asyncio.sleep(fault.for_s)
        # It must be down when that is asked: meanwhile it may become the only one that is in sync.
        if disk.is_failing or not await self.take_down(name, is_clean=number // 2 % 2 == 0):
            return
        if self.may_lose_power(name, last=True) and not self.has_alone(name):
            self._world.loop.trace(f"fault {fault.kind.value} {name} {source} {target}")
            simulation.faults.applied += 1
            disk.put_back(target, copy)
            simulation.power_lost[name] = self._world.loop.time()
        simulation.start_node(name)

    async def take_down(self, name: str, *, is_clean: bool) -> bool:
        """False if it is down for another reason."""
        simulation = self._simulation
        if not simulation.nodes[name].alive:
            return False
        if is_clean:
            await simulation.stop_node(name)
        else:
            self._world.crash(name)
        return not simulation.nodes[name].alive

    def has_alone(self, name: str) -> bool:
        """Whether no other node that is in sync, or eligible, has as much of a partition of an internal topic: `may_lose_power` looks at the others.

        Nobody observes what is committed there. What this node has is at least that, unless it has lost some already.
        """
        simulation = self._simulation
        number = simulation.plan.node_names.index(name) + 1
        for partition, state in simulation.zk.states.items():
            members = {*state.isr, *state.elr}
            if partition[0] in simulation.plan.all_topics or number not in members:
                continue
            hosts = [simulation.plan.node_names[each - 1] for each in members - {number}]
            if not simulation.copies.is_as_long_without(name, partition, hosts):
                return True
        return False

    # --- operators -------------------------------------------------------------------------------

    def operate(
        self, command: Callable[[AsyncClient], Coroutine[Any, Any, object]], *, until_taken: bool = False
    ) -> None:
        """An operator types a command; it is repeated until it is accepted, if it must be."""
        plan = self._simulation.plan

        async def program(env: Env) -> None:
            async with client_of(plan, env, "hand") as client:
                while True:
                    try:
                        await command(client)
                    except KafkaliteError:
                        if until_taken:
                            await asyncio.sleep(0.5)
                            continue
                    return

        self._commands += 1
        self._world.start(f"hand{self._commands}", program, self._simulation.client_ended)

    def _alter(self, topic: str, changes: dict[str, str], deletions: tuple[str, ...], *, until_taken: bool) -> None:
        async def alter(client: AsyncClient) -> None:
            try:
                await alter_configs(client, ConfigResource.topic(topic), changes, deletions, timeout_s=5.0)
            except ApiError as error:
                if is_retriable(error.code):
                    raise

        self.operate(alter, until_taken=until_taken)

    def _settings(self, number: int) -> Undo:
        topics = [*self._simulation.plan.all_topics]
        topic = KEYED if KEYED in topics and number % 3 else topics[number // 2 % len(topics)]
        if topic == KEYED:
            changes = _KEYED_SETTINGS[number // 7 % len(_KEYED_SETTINGS)]
        else:
            changes = dict([_SETTINGS[number // 7 % len(_SETTINGS)]])
        self._changed.setdefault(topic, set()).update(changes)
        self._alter(topic, changes, (), until_taken=False)
        return partial(self._reset, topic)

    def _reset(self, topic: str) -> None:
        names = self._changed.pop(topic, set())
        original = settings_of(self._simulation.plan, topic)
        self._alter(
            topic,
            {name: original[name] for name in sorted(names) if name in original},
            tuple(name for name in sorted(names) if name not in original),
            until_taken=True,
        )

    def _moves(self, number: int, name: str) -> Undo | None:
        directories = self._simulation.plan.log_dirs
        if len(directories) < 2:
            return None
        self._move_all(name, directories[number % 2])
        return partial(self._move_all, name, directories[(number + 1) % 2])

    def _move_all(self, name: str, directory: str) -> None:
        simulation = self._simulation
        node = simulation.plan.node_names.index(name) + 1
        moves = tuple(
            RequestedDiskMove(*partition, directory, 0)
            for partition in sorted(simulation.zk.states)
            if partition[0] in simulation.plan.all_topics and node in simulation.assigned(partition)
        )
        self.operate(lambda client: client.ask_node(BrokerId(node), MoveReplicasRequest(moves), timeout_s=5.0))

    # --- files, znodes, packets ------------------------------------------------------------------

    def _file(self, number: int, name: str) -> Undo | None:
        """The oldest or the newest segment of one replica."""
        simulation = self._simulation
        disk = simulation.world.host(name).disk
        if disk.is_failing:
            return None
        found = [
            f"{directory}/{replica}"
            for directory in simulation.plan.log_dirs
            for replica in disk.peek_names(directory)
            if replica.rpartition("-")[0] in simulation.plan.all_topics
        ]
        if not found:
            return None
        lone = [each for each in found if each.endswith(f"/{LONE}-0")]
        directory = lone[0] if lone and number % 2 else found[number // 2 % len(found)]
        segments = [each for each in disk.peek_names(directory) if each.endswith(".log")]
        if not segments:
            return None
        path = f"{directory}/{segments[0 if number // 3 % 2 else -1]}"
        disk.fail(path, _FILE_ERRORS[number // 11 % len(_FILE_ERRORS)])
        return partial(disk.repair, path)

    def _vanish(self, number: int) -> Undo | None:
        topics = [*self._simulation.plan.all_topics]
        topic = topics[number % len(topics)]
        if topic in self._vanished:
            return None
        root = f"/brokers/topics/{topic}"
        saved = [
            (path, data)
            for path, data in self._world.zookeeper.tree.persistent()
            if path == root or path.startswith(root + "/")
        ]
        if not saved:
            return None
        self._vanished[topic] = saved
        states = self._simulation.zk.states
        gone = {each: (states[each], self._simulation.assigned(each)) for each in states if each[0] == topic}
        self._vanished_states.update(gone)
        self._world.zookeeper.poke(*(Delete(path) for path, _ in sorted(saved, reverse=True)))
        return partial(self._return, topic)

    def _return(self, topic: str) -> None:
        saved = self._vanished.pop(topic, None)
        self._vanished_states = {each: known for each, known in self._vanished_states.items() if each[0] != topic}
        if saved is not None and self._world.zookeeper.peek(f"/brokers/topics/{topic}") is None:
            self._world.zookeeper.poke(*(Create(path, data) for path, data in sorted(saved)))

    def _copy_states(self) -> Undo:
        tree = self._world.zookeeper.tree
        return partial(self._put_back, [each for each in tree.persistent() if each[0].endswith("/state")])

    def _put_back(self, copied: list[tuple[str, bytes]]) -> None:
        zookeeper = self._world.zookeeper
        for path, data in sorted(copied):
            found = zookeeper.peek(path)
            if found is not None and found[0] != data:
                zookeeper.poke(Delete(path), Create(path, data))

    def _lag(self, number: int, name: str) -> Undo:
        session_s = int(self._simulation.plan.settings["zookeeper.session.timeout.ms"]) / 1000
        self._world.zookeeper.lag(name, session_s * _LAGS[number % len(_LAGS)])
        return partial(self._world.zookeeper.lag, name, None)

    def _late(self, name: str) -> Undo:
        clients = [each for each in self._world.hosts if each not in self._simulation.nodes]
        for client in clients:
            self._world.network.set_link(client, name, _LATE)

        def undo() -> None:
            for client in clients:
                self._world.network.set_link(client, name, None)

        return undo
