"""A fault at every single disk operation of one node, in a run that is always the same.

Seeds let disks fail at random moments. Here the moments are counted: one short workload (appends with acks=all, segments that
roll, flushes, checkpoints, retention, a move between disks, truncation after a change of leaders, a kill and its recovery, a
controlled restart) is run once without a fault, and the operations of the disk seam on one node are listed. Then it is run
again for each of them, with the fault exactly there. Nobody helps: the cluster must become whole without help, then again
when an operator has brought the disk back.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from kafkalite.env.seams import Env
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.disks import MoveReplicasRequest, RequestedDiskMove
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulation.checkers.cluster import ReplicaView, Violation
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.result import Result
from kafkalite.testing.simulation.run import Simulation
from kafkalite.testing.simulation.workloads.clients import client_of
from kafkalite.testing.simulation.workloads.promise import CONVERGE_S

#: The node whose disks are counted.
VICTIM = "node2"
_DIRS = ("/data1", "/data2")
#: Segments of it go by retention; everything that was acknowledged to the others stays.
_SHORT = "short"
#: How long a node is down that a fault has killed, as systemd would have it.
_DOWN_S = 1.0
#: Below it work in threads is not the disk's.
_THREAD, _SYNC = "thread", "sync"
#: Operations that take room.
_TAKES_ROOM = ("append", "makedirs", "open", "rename", "sync", "write_at")


class How(Enum):
    """What happens at the operation."""

    ERROR = "error"  # EIO, this once
    DEAD = "dead"  # EIO, and for everything in that log directory from then on
    NO_ROOM = "no_room"  # ENOSPC, this once
    HANG = "hang"  # it does not return, and no sync and no thread in that log directory does from then on
    AND_CRASH = "and_crash"  # EIO, and the process is killed
    AND_POWER = "and_power"  # EIO, and the host loses its power
    AND_CONTROLLER = "and_controller"  # EIO, and the controller's process is killed

    def fits(self, kind: str) -> bool:
        """Whether it can happen to an operation of this kind."""
        if kind == _THREAD:  # work in a thread begins: not an operation that could fail
            return self is How.HANG
        if self is How.HANG:
            return kind == _SYNC
        return self is not How.NO_ROOM or kind in _TAKES_ROOM


@dataclass(frozen=True, slots=True)
class Case:
    """Operation number `index` of VICTIM's disks, as `listed` counts them."""

    index: int
    how: How


_PLAN = Plan(
    seed=1,
    nodes=3,
    topics={"topic1": 2, _SHORT: 1},
    flush_before_ack=True,
    log_dirs=_DIRS,
    fault_time_s=0.0,
    settings={
        "zookeeper.session.timeout.ms": 1_500,
        "replica.lag.time.max.ms": 2_000,
        "replica.fetch.wait.max.ms": 200,
        "replica.fetch.backoff.ms": 100,
        "replica.high.watermark.checkpoint.interval.ms": 1_000,
        "log.flush.offset.checkpoint.interval.ms": 2_000,
        "log.retention.check.interval.ms": 1_000,
        "log.dir.probe.interval.ms": 2_000,
        "broker.heartbeat.timeout.ms": 1_000,
        "controlled.shutdown.max.wait.ms": 1_000,
    },
    topic_settings={
        "min.insync.replicas": "2",
        "segment.bytes": "2048",
        "index.interval.bytes": "256",
        "log.flush.before.ack": "true",
        "file.delete.delay.ms": "500",
    },
    link=Link(latency_min_ns=50_000, latency_max_ns=200_000),
    producers=1,
    batches_per_s=6.0,
    record_bytes=300,
    consumers=0,
    orders=False,
    move_limits=(0, 0, 0),
    faults=(),
)

#: VICTIM leads the first partition and follows in the others.
_ASSIGNMENTS: dict[str, dict[int, tuple[int, ...]]] = {
    "topic1": {0: (2, 1, 3), 1: (1, 3, 2)},
    _SHORT: {0: (3, 2, 1)},
}


class DiskOperations(Simulation):
    """One run.

    Args:
        case: None to list the operations.
    """

    def __init__(self, case: Case | None = None, *, watch: Callable[[str], None] | None = None) -> None:
        super().__init__(_PLAN, watch=watch)
        self.case = case
        #: (kind, path) of each operation so far, until everything is healed.
        self.operations: list[tuple[str, str]] = []
        self._disk = self.world.host(VICTIM).disk
        self._disk.on_operation = self._operation

    # --- the fault -------------------------------------------------------------------------------

    def _operation(self, kind: str, path: str) -> None:
        if self.healed:
            return
        index = len(self.operations)
        self.operations.append((kind, path))
        if self.case is None or self.case.index != index:
            return
        how = self.case.how
        self.world.loop.trace(f"fault {how.value} at operation {index}: {kind} {path}")
        directory = next((each for each in _DIRS if path == each or path.startswith(f"{each}/")), None)
        if how is How.HANG:
            if directory is not None:
                self._disk.hang(directory)
            return
        if how is How.DEAD and directory is not None:
            self._disk.fail(directory)
        then = {
            How.AND_CRASH: self._crash,
            How.AND_POWER: self._lose_power,
            How.AND_CONTROLLER: self._crash_controller,
        }.get(how)
        if then is not None:  # not from within the program that is to die
            self.outside(0.0, then)
        self._disk.was_faulty = True
        code = errno.ENOSPC if how is How.NO_ROOM else errno.EIO
        raise OSError(code, "injected", path)

    def outside(self, after_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something to the world, outside of all programs."""
        self.world.loop.call_later(after_s, action, *arguments, context=self._outside)

    def _crash(self, name: str = VICTIM) -> None:
        self.world.crash(name)
        self.outside(_DOWN_S, self.start_node, name)

    def _crash_controller(self) -> None:
        name = self.controller()
        if name is not None:
            self._crash(name)

    def _lose_power(self) -> None:
        self.world.lose_power(VICTIM)
        self.outside(_DOWN_S, self._power_on)

    def _power_on(self) -> None:
        self.world.power_on(VICTIM)
        self.start_node(VICTIM)

    # --- the run ---------------------------------------------------------------------------------

    def new_topics(self) -> list[NewTopic]:
        settings = dict(self.plan.topic_settings)
        topics = []
        for name, replicas in _ASSIGNMENTS.items():
            configs = {**settings, "retention.bytes": "3000"} if name == _SHORT else settings
            assignment = {number: tuple(map(BrokerId, ids)) for number, ids in replicas.items()}
            topics.append(NewTopic(name, assignment=assignment, configs=configs))
        return topics

    async def main(self) -> None:
        """See the module's text. Raises Violation."""
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, CONVERGE_S, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        await self.until(self.final.not_converged, CONVERGE_S, "new topics come up")
        self.clients.start()
        await self._pass(1.0)
        self.world.start("boss", self._move, self.client_ended)
        await self._pass(1.5)
        # It leads on without being able to commit, another one leads meanwhile: what it has more is cut.
        heal = self.world.network.partition([VICTIM], [name for name in self.nodes if name != VICTIM])
        await self._pass(2.5)
        heal()
        await self._pass(3.0)
        self.world.crash(VICTIM)
        await self._pass(0.3)
        self.start_node(VICTIM)
        await self._pass(1.5)
        await self.stop_node(VICTIM)
        self.start_node(VICTIM)
        await self._pass(1.5)
        if self.case is not None and len(self.operations) <= self.case.index:
            raise Violation(f"not the run that was listed: only {len(self.operations)} operations")
        self.clients.stop()
        await self.until(self.clients.not_delivered, CONVERGE_S, "everything sent is delivered without an operator")
        await self.until(self.final.not_converged, CONVERGE_S, "the cluster converges without an operator")
        self.healed = True
        self.faults.bring_back(VICTIM)
        await self.until(self._not_tidy, CONVERGE_S, "each log is in one place when the disk is back")
        await self.until(self.final.not_converged, CONVERGE_S, "the cluster converges when the disk is back")
        self._forget_what_retention_took()
        self.final.check()
        for name in self.nodes:
            await self.stop_node(name)

    async def _pass(self, seconds: float) -> None:
        end = self.world.loop.time() + seconds
        while self.world.loop.time() < end:
            await self.step()

    async def _move(self, env: Env) -> None:
        """Order a replica of VICTIM's to its other disk, until somebody has said yes or no."""
        disk = self._disk
        here = next((each for each in _DIRS if "topic1-0" in disk.peek_names(each)), _DIRS[0])
        target = next(each for each in _DIRS if each != here)
        order = MoveReplicasRequest((RequestedDiskMove("topic1", 0, target),))
        async with client_of(self.plan, env, "boss") as client:
            try:
                await client.ask_node(BrokerId(2), order, timeout_s=2.0)
            except KafkaliteError:
                return  # its disk or its process has gone: nothing is moved in this run

    def _committed(self, zxid: int, host: str, ops: tuple[Any, ...]) -> None:
        super()._committed(zxid, host, ops)
        if self.zk.touches_states(ops):
            try:  # at the very moment, not a step later: nobody joins an ISR empty, or with less than is committed
                self.replicas.observe(self.views(), self.zk.states)
            except Violation as violation:
                self.fail(str(violation))

    def _not_tidy(self) -> str | None:
        """No move is left, no log is there twice, no disk is out of service."""
        if (late := self.final.not_ready()) is not None:
            return late
        for node in self.nodes.values():
            if offline := [each.path for each in node.node.logs.pool.dirs.values() if not each.online]:
                return f"{node.name}: {offline} is out of service"
            names = [name for each in _DIRS for name in self.world.host(node.name).disk.peek_names(each)]
            if left := [name for name in names if name.endswith("-future")]:
                return f"{node.name} still has {left}"
            for topic, count in self.plan.topics.items():
                for number in range(count):
                    if names.count(f"{topic}-{number}") != 1:
                        return f"{node.name} has {names.count(f'{topic}-{number}')} logs of {topic}-{number}"
        return None

    def begin(self, view: ReplicaView) -> int:
        return view.log_start_offset if view.partition[0] == _SHORT else 0

    def _forget_what_retention_took(self) -> None:
        for view in self.views():
            if view.is_leader and view.partition[0] == _SHORT:
                acknowledged = self.history.acknowledged.get(view.partition, {})
                for offset in [offset for offset in acknowledged if offset < view.log_start_offset]:
                    del acknowledged[offset]


def listed() -> list[tuple[str, str]]:
    """(kind, path) of each operation of the run without a fault. Raises Violation if that run fails."""
    run = DiskOperations()
    result = run.run()
    if result.violation is not None:
        raise Violation(result.violation)
    return run.operations


def cases(operations: list[tuple[str, str]]) -> list[Case]:
    """Two for each operation: an error, and one of the others in turn; work in threads hangs."""
    turns = [how for how in How if how is not How.ERROR]
    found: list[Case] = []
    taken: dict[str, int] = {}
    for index, (kind, _) in enumerate(operations):
        if How.ERROR.fits(kind):
            found.append(Case(index, How.ERROR))
        fitting = [how for how in turns if how.fits(kind)]
        number = taken[kind] = taken.get(kind, -1) + 1
        found.append(Case(index, fitting[number % len(fitting)]))
    return found


def few(operations: list[tuple[str, str]]) -> list[Case]:
    """Each kind of operation once, somewhere in its midst, with a fault that takes turns."""
    places: dict[str, list[int]] = {}
    for index, (kind, _) in enumerate(operations):
        places.setdefault(kind, []).append(index)
    chosen = []
    for number, kind in enumerate(sorted(places)):
        fitting = [how for how in How if how.fits(kind)]
        chosen.append(Case(places[kind][len(places[kind]) // 2], fitting[number % len(fitting)]))
    return chosen


def run_case(case: Case, *, watch: Callable[[str], None] | None = None) -> Result:
    """One run; the result's seed is the operation's number, its name what --disk-operation takes."""
    run = DiskOperations(case, watch=watch)
    result = run.run()
    kind, path = run.operations[case.index] if case.index < len(run.operations) else ("none", "")
    result.seed, result.name = case.index, f"{case.index}:{case.how.value}"
    if result.violation is not None:
        result.violation += f" (the operation: {kind} {path})"
    return result


def kinds(operations: Iterable[tuple[str, str]]) -> str:
    """How many of each kind, for people."""
    counts: dict[str, int] = {}
    for kind, _ in operations:
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))
