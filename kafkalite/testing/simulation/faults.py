"""Makes the plan's faults happen to a simulated cluster, and undoes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.env.seams import Env
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.disks import DiskOnlineRequest, DiskOnlineResponse
from kafkalite.model import GROUP_TOPIC, BrokerId
from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulation.more_faults import MORE, MoreFaults
from kafkalite.testing.simulation.plan import Fault, FaultKind
from kafkalite.testing.simulation.staged_faults import StagedFaults
from kafkalite.testing.simulation.workloads.clients import client_of

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_SLOW = Link(
    latency_min_ns=20_000_000,
    latency_max_ns=300_000_000,
    bytes_per_s=300_000,
    spikes_per_mille=20,
    spike_ns=2_000_000_000,
)

#: One way, between a node and ZooKeeper; well below every session timeout that is drawn.
_SLOW_ZK_S = (0.05, 0.4)

#: What a clock is wrong by, in turn. Less than the hour by which producers' clocks may be ahead of a broker's.
_CLOCK_MS = (1_500_000, -1_500_000, 90_000, -90_000)

#: How often an operator repeats a request that is not answered.
_OPERATOR_PATIENCE = 60

#: Takes a fault back.
Undo = Callable[[], None]


def _nothing() -> None:
    """For faults that take themselves back."""


class FaultInjector:
    """One task per fault, outside of all processes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self.applied = 0
        self._operators = 0
        self.more = MoreFaults(simulation)
        self._staged = StagedFaults(simulation, self.more)

    def start(self) -> list[asyncio.Task[None]]:
        """Set the schedule going."""
        loop = self._world.loop
        return [
            loop.create_task(self._happen(fault), name=f"fault-{number}-{fault.kind.value}")
            for number, fault in enumerate(self._simulation.plan.faults)
        ]

    async def finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """No more faults; everything is as it should be from the outside."""
        for task in tasks:
            task.cancel()
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                continue
        world = self._world
        self.more.finish()
        world.network.heal()
        if not world.zookeeper.is_up:
            world.zookeeper.start()
        for name, node in self._simulation.nodes.items():
            node.stopping = False  # one that is just about to stop is started again when it has
            if world.host(name).disk.is_failing:
                self._replace_disk(name)
            world.host(name).disk.make_room()
            world.host(name).disk.have_threads()
            world.zookeeper.unblock(name)
            world.zookeeper.slow(name, None)
            world.zookeeper.lag(name, None)
            world.power_on(name)
            world.resume(name)
            self._simulation.start_node(name)
            has_repaired = self._operators and len(self._simulation.plan.log_dirs) > 1
            if has_repaired or self._waits_for_operator(name):
                self.bring_back(name)  # an earlier command may not have arrived

    def _waits_for_operator(self, name: str) -> bool:
        """Whether a log there is not trusted after a failed fsync: only `admin disk online`, or a restart, opens it again."""
        node = self._simulation.nodes[name]
        return node.ready and any(
            failed.needs_operator for each in node.node.logs.pool.dirs.values() for failed in each.failed.values()
        )

    async def _happen(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        name = self._target(fault.target)
        if fault.kind is FaultKind.RESTART:
            self.applied += 1
            await self._simulation.stop_node(name)
            await asyncio.sleep(fault.for_s)
            self._simulation.start_node(name)
            return
        if fault.kind is FaultKind.LAST_MAN:
            await self.more.last_man(name, fault.for_s)
            return
        if self._staged.is_of(fault.kind):
            await self._staged.happen(fault, name)
            return
        if fault.kind is FaultKind.OLD_COPY:
            await self.more.old_copy(fault, name)
            return
        if fault.kind is FaultKind.DISK:
            undo = self._fail_disk(fault, name)
        elif fault.kind is FaultKind.HANG:
            undo = self._hang_disk(fault, name)
        elif fault.kind in MORE:
            undo = self.more.apply(fault, name)
        else:
            undo = self._apply(fault.kind, name)
        if undo is None:
            return
        self.applied += 1
        self._world.loop.trace(f"fault {fault.kind.value} {name}")
        await asyncio.sleep(fault.for_s)
        undo()
        self._world.loop.trace(f"undo {fault.kind.value} {name}")

    def _fail_disk(self, fault: Fault, name: str) -> Undo | None:
        disk = self._world.host(name).disk
        if disk.is_failing:
            return None
        directories = self._simulation.plan.log_dirs
        at_ms = round(fault.at_s * 1_000)
        disk.fail(directories[at_ms % len(directories)])
        # Half of the time somebody repairs the disk and says so, without a restart.
        return partial(self.bring_back if at_ms // 2 % 2 else self._replace_disk, name)

    def _hang_disk(self, fault: Fault, name: str) -> Undo | None:
        disk = self._world.host(name).disk
        if disk.is_failing:
            return None
        directories = self._simulation.plan.log_dirs
        directory = directories[round(fault.at_s * 1_000) % len(directories)]
        disk.hang(directory)
        return partial(disk.repair, directory)

    def _replace_disk(self, name: str) -> None:
        """The disk answers again, with what it had; somebody restarts the node, which has given the disk up."""
        disk = self._world.host(name).disk
        disk.repair_all()
        self._world.crash(name)
        self._simulation.start_node(name)

    def bring_back(self, name: str) -> None:
        """The disk answers again, with what it had; somebody runs `admin disk online`."""
        disk, plan = self._world.host(name).disk, self._simulation.plan
        broker_id = BrokerId(plan.node_names.index(name) + 1)
        for directory in plan.log_dirs:
            disk.repair(directory)

        async def program(env: Env) -> None:
            async with client_of(plan, env, f"operator-{name}") as client:
                for directory in plan.log_dirs:
                    for _ in range(_OPERATOR_PATIENCE):
                        try:
                            answer = await client.ask_node(broker_id, DiskOnlineRequest(directory), timeout_s=5.0)
                        except KafkaliteError as error:
                            answer = error
                        if isinstance(answer, DiskOnlineResponse):
                            break
                        await asyncio.sleep(0.5)

        self._operators += 1
        self._world.start(f"operator{self._operators}", program, self._simulation.client_ended)

    def _target(self, target: str) -> str:
        """The node that has the role now; the first one if nobody has."""
        simulation = self._simulation
        names = simulation.plan.node_names
        if target in ("leader", "coordinator"):
            topic = next(iter(simulation.plan.topics)) if target == "leader" else GROUP_TOPIC
            state = simulation.zk.states.get((topic, 0))
            return names[state.leader - 1] if state is not None and state.leader > 0 else names[0]
        if target == "controller":
            return simulation.controller() or names[0]
        return target

    def _apply(self, kind: FaultKind, name: str) -> Undo | None:
        """Make it happen; returns what undoes it, or None if it makes no sense now."""
        world, simulation = self._world, self._simulation
        if kind is FaultKind.CRASH_ALL:
            for each in simulation.nodes:
                world.crash(each)
            return self._start_all
        if kind is FaultKind.EMPTY_DISK:
            for each in simulation.nodes:
                world.crash(each)
            directories = simulation.plan.log_dirs
            world.host(name).disk.remove_tree(directories[self.applied % len(directories)])
            simulation.start_node(name)
            return self._start_all
        if kind is FaultKind.ZK_DOWN:
            world.zookeeper.stop()
            return world.zookeeper.start
        others = [each for each in world.hosts if each != name]
        nodes = [each for each in simulation.nodes if each != name]
        if kind in (FaultKind.CRASH, FaultKind.AWAY):
            if not simulation.nodes[name].alive:
                return None
            world.crash(name)
            return partial(simulation.start_node, name)
        if kind is FaultKind.POWER:
            if not world.host(name).powered:
                return None
            world.lose_power(name)
            return partial(self._power_on, name)
        if kind is FaultKind.PAUSE:
            world.pause(name)
            return partial(world.resume, name)
        if kind is FaultKind.ISOLATE:
            return self._isolate(name, others)
        if kind in (FaultKind.PARTITION, FaultKind.OVERTAKEN):
            return world.network.partition([name], nodes, is_overtaken=kind is FaultKind.OVERTAKEN)
        if kind in (FaultKind.PARTITION_IN, FaultKind.PARTITION_OUT):
            pairs = [(each, name) if kind is FaultKind.PARTITION_IN else (name, each) for each in nodes]
            return self._block(pairs)
        if kind is FaultKind.SLOW:
            return self._slow(name, others)
        if kind is FaultKind.CLOCK:
            clock, by_ms = world.host(name).clock, _CLOCK_MS[self.applied % len(_CLOCK_MS)]
            clock.jump(by_ms)
            return partial(clock.jump, -by_ms)
        return self._apply_zookeeper(kind, name)

    def _apply_zookeeper(self, kind: FaultKind, name: str) -> Undo:
        zookeeper = self._world.zookeeper
        if kind is FaultKind.ZK_BLOCK:
            zookeeper.block(name)
            return partial(zookeeper.unblock, name)
        if kind is FaultKind.ZK_SLOW:
            zookeeper.slow(name, _SLOW_ZK_S)
            return partial(zookeeper.slow, name, None)
        if kind is FaultKind.ZK_EXPIRE:
            zookeeper.expire(name)
            return _nothing
        assert kind is FaultKind.ZK_LOSE_REPLY, kind
        zookeeper.lose_next(name, Fate.LOSE_REPLY)
        return _nothing

    def _start_all(self) -> None:
        for each in self._simulation.nodes:
            self._simulation.start_node(each)

    def _power_on(self, name: str) -> None:
        self._world.power_on(name)
        self._simulation.start_node(name)

    def _isolate(self, name: str, others: list[str]) -> Undo:
        heal = self._world.network.partition([name], others)
        self._world.zookeeper.block(name)

        def undo() -> None:
            heal()
            self._world.zookeeper.unblock(name)

        return undo

    def _block(self, pairs: list[tuple[str, str]]) -> Undo:
        for pair in pairs:
            self._world.network.block(*pair)

        def undo() -> None:
            for pair in pairs:
                self._world.network.unblock(*pair)

        return undo

    def _slow(self, name: str, others: list[str]) -> Undo:
        pairs = [pair for other in others for pair in ((name, other), (other, name))]
        for pair in pairs:
            self._world.network.set_link(*pair, _SLOW)

        def undo() -> None:
            for pair in pairs:
                self._world.network.set_link(*pair, None)

        return undo
