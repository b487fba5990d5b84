"""One seed: a cluster of real nodes in a simulated world, clients, faults, and checkers that watch all of it.

First the safety phase: faults happen, and after each step every promise must hold. Then everything is healed, and the
cluster must converge: every replica in sync, every record that was sent delivered, all logs equal. At the end
the nodes must stop cleanly. A seed means the same run every time, on the same commit.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite.config import BrokerConfig, broker_config
from kafkalite.env.seams import Env
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.node.node import Node
from kafkalite.replica.decisions.nearby import RACK_AWARE_SELECTOR
from kafkalite.replica.partition import Partition as Replica
from kafkalite.testing.simulated.env import SimWorld, render
from kafkalite.testing.simulated.loop import SimulationError
from kafkalite.testing.simulated.process import SimProcess
from kafkalite.testing.simulation import security as sim_security
from kafkalite.testing.simulation.checkers.cluster import (
    RecordHistory,
    ReplicaChecker,
    ReplicaView,
    Violation,
    ZkChecker,
)
from kafkalite.testing.simulation.checkers.copies import Copies
from kafkalite.testing.simulation.checkers.log_view import BatchView, Places, read_batches
from kafkalite.testing.simulation.clients import Clients
from kafkalite.testing.simulation.faults import FaultInjector
from kafkalite.testing.simulation.final_checks import FinalChecks
from kafkalite.testing.simulation.last_resort import LastResort
from kafkalite.testing.simulation.node import SimNode
from kafkalite.testing.simulation.plan import LONE, TRIMMED, Plan, draw
from kafkalite.testing.simulation.result import Result, where
from kafkalite.testing.simulation.topics import compacted, new_topics
from kafkalite.testing.simulation.workloads.administered import znodes as administered_znodes
from kafkalite.testing.simulation.workloads.committing import SETTINGS as COMMIT_SETTINGS
from kafkalite.testing.simulation.workloads.groups import SETTINGS as GROUP_SETTINGS
from kafkalite.testing.simulation.workloads.groups import GroupMembers
from kafkalite.testing.simulation.workloads.kafka import KAFKA_PORT
from kafkalite.testing.simulation.workloads.operator import REPLICAS, THROTTLE, RequestsChecker
from kafkalite.testing.simulation.workloads.others import judged, others
from kafkalite.testing.simulation.workloads.promise import CONVERGE_S
from kafkalite.testing.simulation.workloads.shares import SETTINGS as SHARE_SETTINGS
from kafkalite.testing.simulation.workloads.shares import ShareMembers
from kafkalite.testing.simulation.workloads.shares import znodes as share_znodes
from kafkalite.testing.simulation.workloads.streams import SETTINGS as STREAMS_SETTINGS
from kafkalite.testing.simulation.workloads.streams import StreamsJoins
from kafkalite.testing.simulation.workloads.transactions import TransactionalClients
from kafkalite.testing.simulation.workloads.trimming import Trimming

_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
#: Interval of the checkers.
_STEP_S = 0.1
#: A retention pass comes every few seconds.
_RETENTION_S = 30.0
_START_S = 60.0
#: Of the nodes among themselves.
_RPC_PORT = 9192
#: The time after which a node that lost unsynced bytes is out of the ISR, or has them again.
_AFTER_POWER_S = 10.0
#: What starts a node again after it has ended (as systemd would).
_RESTART_AFTER_S = 1.0
#: Time limit of a clean stop (each of its steps has its own deadline).
_STOP_S = 120.0
#: Exceptions that no peer and no disk can cause: somebody's program is wrong.
_BUGS = (AssertionError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, NameError, RuntimeError)
#: Log events of a node that takes a disk or a log out of service, or finds damage.
_COMPLAINTS = frozenset(
    {"log_dir.offline", "log.offline", "log_dir.file_failed", "replica.damaged", "log.notcompacted"}
)


class Simulation:
    """Runs one plan.

    Args:
        watch: called with each log line as it is written.
    """

    def __init__(self, plan: Plan, *, watch: Callable[[str], None] | None = None, record: bool = False) -> None:
        self.plan = plan
        self.world = SimWorld(plan.seed, link=plan.link, record=record)
        self.history = RecordHistory()
        self.replicas = ReplicaChecker(compacted=compacted(self.plan), lone=(LONE,))
        self.zk = ZkChecker(self._znode)
        self.nodes = {
            name: SimNode(name, number, self._config(name, number))
            for number, name in enumerate(plan.node_names, start=1)
        }
        self.faults = FaultInjector(self)
        self.orders = RequestsChecker(self._znode, plan.move_limits)
        self.clients = Clients(self)
        self.transactions = TransactionalClients(self)
        self.members = GroupMembers(self, plan.members)
        self.streams = GroupMembers(self, plan.streams, "streams", StreamsJoins())
        self.shares = ShareMembers(self)
        self._last_resort = LastResort(self)
        self._judged = judged(self)
        self._others = (*others(self), *self._judged)
        self._trimming = Trimming(plan)
        self.copies = Copies(
            lambda: ((name, self.world.host(name).disk) for name in self.nodes),
            plan.log_dirs,
            self.replicas.committed_end,
            plan.all_topics,
            compacted(plan),
        )
        for name in self.nodes:
            self.world.host(name).disk.on_remove_tree = partial(self._removing, name)
        self.final = FinalChecks(self)
        #: Node -> where the checkers have read its logs up to.
        self._places: dict[str, Places] = {name: {} for name in self.nodes}
        self._failure: str | None = None
        self._outside = contextvars.copy_context()
        self._exits = 0
        self.healed = False
        #: Node -> when its host lost unsynced bytes by a fault that must cost no acknowledged record.
        self.power_lost: dict[str, float] = {}
        self.world.zookeeper.on_commit = self._committed
        self.world.log.tap = self._logged
        self._watch = watch

    def _config(self, name: str, number: int) -> BrokerConfig:
        config, _ = broker_config(
            {
                "broker.id": number,
                "host": name,
                # Nobody else is on the simulated network.
                "security.open.acknowledged": "PLAINTEXT,SASL_PLAINTEXT,RPC,HTTP,ZOOKEEPER",
                "rpc.port": _RPC_PORT,
                "kafka.port": KAFKA_PORT,
                "http.port": -1,
                "log.dirs": self.plan.log_dirs,
                "zookeeper.connect": "zookeeper:2181",
                "auto.create.topics.enable": False,
                **(sim_security.settings(self.plan.reauth_ms) if self.plan.reauth_ms is not None else {}),
                **(GROUP_SETTINGS if self.plan.members else {}),
                **(SHARE_SETTINGS if self.plan.shares or self.plan.administered else {}),
                **(STREAMS_SETTINGS if self.plan.streams or self.plan.deletes else {}),
                **(COMMIT_SETTINGS if self.plan.commits else {}),
                **self.plan.settings,
                **self._rack_of(number),
            }
        )
        return config

    def _rack_of(self, number: int) -> dict[str, str]:
        if not self.plan.racks:
            return {}
        return {"broker.rack": f"rack{number % 2}", "replica.selector.class": RACK_AWARE_SELECTOR}

    # --- what the checkers are shown -------------------------------------------------------------

    def _znode(self, path: str) -> bytes | None:
        found = self.world.zookeeper.peek(path)
        return None if found is None else found[0]

    def controller(self) -> str | None:
        """The node that the /controller znode names."""
        data = self._znode("/controller")
        if data is None:
            return None
        number: int = json.loads(data)["brokerid"]
        return self.plan.node_names[number - 1]

    def fail(self, what: str) -> None:
        """Remember the first thing that went wrong; the main program ends at its next step."""
        if self._failure is None:
            self._failure = what
            self.world.loop.trace(f"violation {what}")

    def _committed(self, zxid: int, host: str, ops: tuple[Any, ...]) -> None:
        # In the server's midst: an exception here would end up somewhere in the product.
        try:
            if self.zk.touches_states(ops):
                # Until now the ISR was the old one: each of its members had to have what is committed (invariant F8).
                self.replicas.observe(self.views(), self.zk.present_states)
            self.zk.committed(zxid, host, ops)
            if (self.plan.shares or self.plan.administered) and self.zk.touches_states(ops):
                self.shares.terms.changed()
            for op in ops:
                if found := _TOPIC.fullmatch(getattr(op, "path", "")):
                    wrong = self.orders.topic_written(found[1], self._znode(op.path))
                    if wrong is not None:
                        raise Violation(f"limits of reassignments: {wrong}")
        except Violation as violation:
            self.fail(str(violation))

    def _removing(self, name: str, path: str) -> None:
        try:
            self.copies.removing(name, path)
        except Violation as violation:
            self.fail(str(violation))

    def _logged(self, seconds: float, process: str, level: str, event: dict[str, Any]) -> None:
        if self._watch is not None:
            self._watch(render(seconds, process, level, event))
        self.shares.logged(event)
        self.members.logged(event)
        self.streams.logged(event)
        error = event.get("exc_info")
        host = process.partition("#")[0]
        if host in self.nodes:
            self.zk.logged(self.nodes[host].broker_id, event)
        if event.get("event") in _COMPLAINTS and host in self.nodes and not self.world.host(host).disk.was_faulty:
            self.fail(
                f"a disk that does nothing wrong stays in service: {render(seconds, process, level, event).strip()}"
            )
        if event.get("event") == "task.failed" and isinstance(error, _BUGS):
            self.fail(f"a task met a bug: {event.get('task')} of {process}: {error!r}{where(error)}")

    def views(self) -> list[ReplicaView]:
        """All replicas that live nodes say they host."""
        recently = self.world.loop.time() - _AFTER_POWER_S
        self.replicas.excused = frozenset(
            self.nodes[name].broker_id for name, at_s in self.power_lost.items() if at_s > recently
        )
        found = []
        topics = self.plan.all_topics
        for node in self.nodes.values():
            if not node.ready:
                continue
            assert node.process is not None
            # Not through describe(): that settles what is lazily noted, and a look must change nothing.
            for replica in node.node.replicas.hosted.all():
                # The operator's own topic comes and goes: the same name is another topic the next time, and it is empty.
                # What the nodes keep for themselves is compacted, and has a minimum of its own.
                if replica.storage_error is None and replica.topic_partition.topic in topics:
                    found.append(self._view(node, node.process, replica))
        return found

    def _view(self, node: SimNode, process: SimProcess, replica: Replica) -> ReplicaView:
        disk, places = self.world.host(node.name).disk, self._places[node.name]
        path = replica.log.path

        def read(start: int, end: int) -> list[BatchView]:
            return read_batches(disk, path, start, end, places)

        return ReplicaView(
            broker=node.broker_id,
            incarnation=process.incarnation,
            partition=(replica.topic_partition.topic, replica.topic_partition.partition),
            is_leader=replica.leader is not None,
            leader_epoch=replica.leader_epoch,
            high_watermark=replica.high_watermark,
            log_start_offset=replica.log.log_start_offset,
            log_end_offset=replica.log.log_end_offset,
            read=read,
            isr=replica.current_isr,
            partition_epoch=replica.partition_epoch,
            path=path,
            controller_epoch=node.node.replicas.commands.controller_epoch,
            gives_way=replica.is_doubtful and replica.leader is None,
        )

    def check(self) -> None:
        """Every promise, now. Raises Violation."""
        if self._failure is not None:
            raise Violation(self._failure)
        if self.world.bugs:
            process, bug = self.world.bugs[0]
            raise Violation(f"a connection's handler met a bug in {process}: {bug!r}{where(bug)}")
        if self.world.loop.unhandled:
            context = self.world.loop.unhandled[0]
            error = context.get("exception")
            raise Violation(f"an error that nobody sees: {context['message']}: {error!r}{where(error)}")
        views = self.views()
        self.replicas.observe(views, self.zk.present_states)
        self._trimming.check(views, self.zk.states)

    # --- nodes -----------------------------------------------------------------------------------

    def start_node(self, name: str) -> None:
        """Start the node's program unless it runs."""
        node = self.nodes[name]
        if node.alive or not self.world.host(name).powered:
            return
        node.stopping = False
        node.node = None
        node.lives += 1

        async def program(env: Env) -> None:
            node.node = Node(node.config, env)
            await node.node.run()

        node.process = self.world.start(name, program, self._ended)

    def _ended(self, process: SimProcess, error: BaseException | None) -> None:
        node = self.nodes[process.host]
        self.world.loop.trace(f"exit {process} {type(error).__name__}")
        if isinstance(error, _BUGS) or (error is not None and not isinstance(error, KafkaliteError | OSError)):
            self.fail(f"{process} met a bug: {error!r}{where(error)}")
        if node.stopping:
            return
        self._exits += 1
        if self.healed and self._exits > 1_000:
            self.fail(f"{process} does not stay up: {error!r}")
        self.world.loop.call_later(_RESTART_AFTER_S, self.start_node, process.host, context=self._outside)

    async def stop_node(self, name: str) -> None:
        """A controlled shutdown; raises Violation if it does not end."""
        node = self.nodes[name]
        if not node.alive or node.node is None:
            return
        process = node.process
        assert process is not None
        node.stopping = True
        self.world.loop.call_soon(node.node.stop, context=process.context.copy())
        deadline = self.world.loop.time() + _STOP_S
        while process.alive:
            if self.world.loop.time() > deadline:
                raise Violation(f"{process} does not stop")
            await self.step()

    # --- the run ---------------------------------------------------------------------------------

    async def step(self) -> None:
        """Let a little time pass, then check."""
        await asyncio.sleep(_STEP_S)
        self.check()

    async def until(self, holds: Callable[[], str | None], within_s: float, promise: str) -> None:
        """Step until `holds` returns None; its last result is in the error if that takes too long."""
        deadline = self.world.loop.time() + within_s
        while (missing := holds()) is not None:
            if self.world.loop.time() > deadline:
                raise Violation(f"{promise} within {within_s:.0f} s: {missing}")
            await self.step()

    async def main(self) -> None:
        """The whole run. Raises Violation."""
        znodes = sim_security.znodes() if self.plan.reauth_ms is not None else []
        if self.plan.shares:
            znodes += share_znodes(self.plan)
        znodes += administered_znodes(self.plan)
        self.world.zookeeper.poke(*{each.path: each for each in znodes}.values())
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, _START_S, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        await self.until(self.final.not_converged, CONVERGE_S, "new topics come up")
        self.clients.start()
        self.transactions.start()
        self.members.start()
        self.streams.start()
        self.shares.start()
        for each in self._others:
            each.start()
        self._trimming.start(self)
        faults = self.faults.start()
        end = self.world.loop.time() + self.plan.fault_time_s
        while self.world.loop.time() < end:
            await self.step()
        await self.faults.finish(faults)
        self.healed = True
        self.clients.stop()
        self.transactions.stop()
        self.members.stop()
        self.streams.stop()
        self.shares.stop()
        for each in self._others:
            each.stop()
        self._trimming.stopping.set()
        self._last_resort.start()
        if self.clients.operator is not None:
            # Records are half as large as they may be, on average; a throttled order may have to copy all of them to all.
            copied_bytes = self.history.sent * (self.plan.record_bytes // 2 + 100) * REPLICAS
            patience_s = CONVERGE_S + copied_bytes / THROTTLE
            await self.until(self.final.not_ordered, patience_s, "every request ends when the faults are over")
        await self.until(self.final.not_coordinated, CONVERGE_S, "internal topics are whole when the faults are over")
        await self.until(
            self.clients.not_delivered, CONVERGE_S, "everything sent is delivered when the faults are over"
        )
        await self.until(self.transactions.not_done, CONVERGE_S, "every transaction ends when the faults are over")
        for group in (self.members, self.streams):
            await self.until(group.not_shared, CONVERGE_S, "a group shares its partitions when the faults are over")
        await self.until(self.shares.not_done, CONVERGE_S, "a share group acknowledges all when the faults are over")
        for promise in [promise for each in self._judged for promise in each.promises()]:
            await self.until(promise.missing, promise.within_s, promise.text)
        await self.until(self.final.not_converged, CONVERGE_S, "the cluster converges when the faults are over")
        await self.until(self.final.not_returned, CONVERGE_S, "disks that hung return")
        await self.until(self.final.not_retained, _RETENTION_S, "retention removes what is due")
        await self.until(self.final.not_small, _RETENTION_S, "internal topics keep what is needed, and no more")
        await self.until(self.final.not_informed, CONVERGE_S, "every node knows the cluster as it is")
        await self.transactions.check()
        self.final.check()
        for name in self.nodes:
            await self.stop_node(name)
        self.final.check_files()

    def assigned(self, partition: tuple[str, int]) -> tuple[int, ...]:
        """The ids of the nodes that are to have a replica."""
        return self.assignment(partition[0]).get(partition[1], ())

    def new_topics(self) -> list[NewTopic]:
        """What is created at the beginning."""
        return new_topics(self.plan)

    def assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        data = self._znode(f"/brokers/topics/{topic}")
        partitions = json.loads(data)["partitions"] if data is not None else {}
        return {int(number): tuple(replicas) for number, replicas in partitions.items()}

    def client_ended(self, process: SimProcess, error: BaseException | None) -> None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, Violation):
            self.fail(str(error))
        elif error is not None:
            self.fail(f"{process} ended: {error!r}{where(error)}")

    def begin(self, view: ReplicaView) -> int:
        """Where a log must begin at the end of the run."""
        return view.log_start_offset if view.partition[0] == TRIMMED else 0

    def run(self) -> Result:
        """Run the plan to its end."""
        started = time.process_time()
        violation: str | None = None
        try:
            self.world.run(self.main())
        except (Violation, SimulationError) as error:
            violation = str(error)
        loop = self.world.loop
        result = Result(
            seed=self.plan.seed,
            violation=violation,
            trace_hash=loop.trace_hash,
            virtual_s=loop.time(),
            cpu_s=time.process_time() - started,
            stats={
                "acked": self.history.acknowledgements,
                "sent": self.history.sent,
                "failed": self.history.failed,
                "faults": self.faults.applied,
                "orders": self.clients.operator.orders if self.clients.operator is not None else 0,
                **self.transactions.stats(),
                **self.members.stats(),
                **self.streams.stats(),
                **self.shares.stats(),
                **{name: count for each in self._others for name, count in each.stats().items()},
                **({"deletions": self._trimming.answers} if self.plan.trims else {}),
                **({"elected": self._last_resort.elected} if self._last_resort.elected else {}),
                "lives": sum(node.lives for node in self.nodes.values()),
                "state_changes": self.zk.changes,
                "controller_epoch": self.zk.controller_epoch,
                "callbacks": loop.callbacks_run,
            },
            log=self.world.log.lines() if violation is not None else [],
        )
        self.world.close()
        return result


def simulate(seed: int, *, watch: Callable[[str], None] | None = None, draws: Callable[[int], Plan] = draw) -> Result:
    """Run one seed on the real node. `draws`: what makes its plan."""
    return Simulation(draws(seed), watch=watch).run()
