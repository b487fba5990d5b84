"""What must hold in a simulated cluster when the faults are over, and at the very end."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkalite.env.turns import at_once
from kafkalite.errors import ApiError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import GROUP_TOPIC, INTERNAL_TOPICS, SHARE_TOPIC, TRANSACTION_TOPIC, TopicPartition
from kafkalite.record.reader import Record, read_records
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulation.checkers.cluster import ReplicaView
from kafkalite.testing.simulation.checkers.indexes import check_aborted, check_indexes
from kafkalite.testing.simulation.checkers.internal_logs import surplus, unpruned
from kafkalite.testing.simulation.checkers.producers import check_ended, check_producers
from kafkalite.testing.simulation.plan import KEYED, LEDGER, LETTERS, TRIMMED, FaultKind
from kafkalite.testing.simulation.topics import compacted
from kafkalite.testing.simulation.workloads import growing
from kafkalite.testing.simulation.workloads.clients import record_name
from kafkalite.testing.simulation.workloads.internal_topics import SEGMENT_BYTES
from kafkalite.testing.simulation.workloads.operator import CHURN
from kafkalite.testing.simulation.workloads.shares import SETTINGS as SHARE_SETTINGS

_UPDATES = "share.coordinator.snapshot.update.records.per.snapshot"
#: Faults that take a log directory offline.
_DISK_FAULTS = frozenset({FaultKind.DISK, FaultKind.FILE, FaultKind.EMPTY_DISK, FaultKind.HANG})

if TYPE_CHECKING:
    from kafkalite.testing.simulation.node import SimNode
    from kafkalite.testing.simulation.run import Simulation


class FinalChecks:
    """What must hold when the faults are over, and at the very end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def not_ready(self) -> str | None:
        late = [node.name for node in self._simulation.nodes.values() if not node.ready]
        return f"not ready: {', '.join(late)}" if late else None

    def not_ordered(self) -> str | None:
        """What is left of the operator's orders: unfinished ones, and files where no replica belongs."""
        assert self._simulation.clients.operator is not None
        if not self._simulation.clients.operator.done:
            return "the operator still waits for an answer"
        if (late := self.not_ready()) is not None:
            return late
        drained = self._simulation.clients.operator.drained
        if (
            left := self._simulation.orders.unfinished(
                self._simulation.plan.topics, self._simulation.clients.operator.assignments, drained
            )
        ) is not None:
            return left
        assigned = {topic: self._simulation.assignment(topic) for topic in (*self._simulation.plan.all_topics, CHURN)}
        has_old_copies = any(fault.kind is FaultKind.OLD_COPY for fault in self._simulation.plan.faults)
        for node in self._simulation.nodes.values():
            disk = self._simulation.world.host(node.name).disk
            for directory in self._simulation.plan.log_dirs:
                for name in disk.peek_names(directory):
                    topic, _, number = name.rpartition("-")
                    if name.endswith("-future"):
                        return f"{node.name} still moves {name} to {directory}"
                    if topic in assigned and node.broker_id not in assigned[topic].get(int(number), ()):
                        if has_old_copies and node.node.replicas.strays.refusal:
                            continue  # too many at once are left alone, and reported (invariant F19)
                        if topic == CHURN and not assigned[topic] and self._is_reported(node):
                            self._simulation.clients.operator.has_vanished = True
                        return f"{node.name} still has {directory}/{name}, which is assigned to {assigned[topic]}"
        self._simulation.clients.operator.over = True
        return None

    def _is_reported(self, node: SimNode) -> bool:
        """Whether a node says itself that it keeps replicas of the operator's topic, which was deleted: after they had left it while a disk was away, or
        after an older copy of a directory was made, which has them."""
        assert self._simulation.clients.operator is not None
        kinds = {fault.kind for fault in self._simulation.plan.faults}
        has_left = self._simulation.clients.operator.may_leave and bool(kinds & _DISK_FAULTS)
        if not has_left and FaultKind.OLD_COPY not in kinds:
            return False
        problems = at_once(node.node.replicas.describing.problems())
        return any(problem.what == "topic.vanished" and problem.subject == CHURN for problem in problems)

    def not_converged(self) -> str | None:
        """What is not as it should be in a cluster without faults."""
        if (late := self.not_ready() or growing.standing(self._simulation)) is not None:
            return late
        views: dict[tuple[str, int], list[ReplicaView]] = {}
        for view in self._simulation.views():
            views.setdefault(view.partition, []).append(view)
        for topic, count in self._simulation.plan.all_topics.items():
            for number in range(count):
                if (missing := self._not_whole((topic, number), views.get((topic, number), []))) is not None:
                    return missing
        return None

    def not_coordinated(self) -> str | None:
        """Which partition of an internal topic has no coordinator that serves, or a replica that is not in sync."""
        simulation = self._simulation
        if (late := self.not_ready()) is not None:
            return late
        for (topic, number), state in simulation.zk.states.items():
            if topic not in INTERNAL_TOPICS:
                continue
            where = f"{topic}-{number}"
            if state.leader == -1 or len(state.isr) < len(simulation.assigned((topic, number))):
                return f"{where}: {state}"
            apis = simulation.nodes[simulation.plan.node_names[state.leader - 1]].node.kafka
            logs = {
                GROUP_TOPIC: apis.groups.log,
                TRANSACTION_TOPIC: apis.transactions.log,
                SHARE_TOPIC: apis.shares.log,
            }
            try:
                logs[topic].state_of(number)
            except ApiError as error:
                return f"{where}: node{state.leader} says {error.code.name} ({state})"
        return None

    def not_returned(self) -> str | None:
        """A disk that only hung, and does not return without an operator."""
        kinds = {fault.kind for fault in self._simulation.plan.faults}
        if FaultKind.HANG not in kinds or kinds & (_DISK_FAULTS - {FaultKind.HANG}):
            return None
        for node in self._simulation.nodes.values():
            if offline := [each.path for each in node.node.logs.pool.dirs.values() if not each.online]:
                return f"{node.name}: {offline} is out of service"
        return None

    def not_informed(self) -> str | None:
        """Which node's metadata is not what ZooKeeper has: it would be so until the next change."""
        simulation = self._simulation
        if simulation.world.loop.now_ns < simulation.world.network.overtaken_until_ns:
            return "what was overtaken has not arrived"
        brokers = [node.broker_id for node in simulation.nodes.values()]
        for name, node in simulation.nodes.items():
            metadata = node.node.replicas.metadata
            if (live := [each.broker_id for each in metadata.brokers()]) != brokers:
                return f"{name} takes {live} for the live brokers"
            for partition, state in simulation.zk.states.items():
                if partition[0] not in simulation.plan.all_topics and partition[0] not in INTERNAL_TOPICS:
                    continue
                known = metadata.partition(TopicPartition(*partition))
                if known is None or (known.leader, known.leader_epoch, known.isr) != state.place:
                    return f"{name} takes {known} for the state of {partition[0]}-{partition[1]}, which is {state}"
        return None

    def _not_whole(self, partition: tuple[str, int], views: list[ReplicaView]) -> str | None:
        state = self._simulation.zk.states.get(partition)
        where = f"{partition[0]}-{partition[1]}"
        if state is None or state.leader == -1:
            return f"{where} has no leader ({state})"
        if len(state.isr) < self._simulation.plan.replicas_of(partition[0]):
            return f"{where} is under-replicated ({state})"
        shown = ", ".join(map(str, views))
        hosted = [view for view in views if view.broker in state.isr and view.leader_epoch == state.leader_epoch]
        if len(hosted) < len(state.isr):
            return f"{where}: replicas do not know their state {state}: {shown}"
        if len({view.log_end_offset for view in hosted}) > 1:
            return f"{where}: replicas differ: {shown}"
        if any(view.high_watermark != view.log_end_offset for view in hosted):
            return f"{where}: not all is committed: {shown}"
        return None

    def not_small(self) -> str | None:
        """Which internal topic keeps more than it needs."""
        for name, node in self._simulation.nodes.items():
            disk = self._simulation.world.host(name).disk
            for replica in node.node.replicas.hosted.all():
                topic, log = replica.topic_partition.topic, replica.log
                if topic not in INTERNAL_TOPICS or log.config.segment_bytes != SEGMENT_BYTES or log.is_closed:
                    continue
                records = records_on(disk, log.path)
                if topic == SHARE_TOPIC:
                    found = unpruned(log, records, int(SHARE_SETTINGS[_UPDATES]))
                else:
                    found = surplus(log, records)
                if found is not None:
                    return f"{replica.topic_partition} on {name} has {found}"
        return None

    def not_retained(self) -> str | None:
        """Which log keeps a segment that DeleteRecords or retention.bytes has made superfluous."""
        for node in self._simulation.nodes.values():
            for replica in node.node.replicas.hosted.all():
                log = replica.log
                if replica.topic_partition.topic not in (KEYED, TRIMMED) or "delete" not in log.config.cleanup_policy:
                    continue
                *closed, _ = log.segments
                where = f"{replica.topic_partition} on {node.name}"
                if closed and closed[0].next_offset <= log.log_start_offset:
                    return (
                        f"{where} begins at {log.log_start_offset}, its first segment ends at {closed[0].next_offset}"
                    )
                oldest = next((segment.size for segment in log.segments if segment.size), 0)
                if 0 <= log.config.retention_bytes <= log.size_bytes - oldest and oldest:
                    return f"{where} has {log.size_bytes} bytes, its oldest segment {oldest}"
        return None

    def check(self) -> None:
        """The whole log of every replica, and the responses that clients got."""
        finals: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for view in self._simulation.views():
            if view.partition[0] in compacted(self._simulation.plan):
                continue
            if view.log_end_offset > 0:
                self._simulation.replicas.compare(view, self._simulation.begin(view), view.log_end_offset)
            if view.is_leader and view.partition[0] not in (LEDGER, TRIMMED, LETTERS):
                finals[view.partition] = [
                    (record.offset, record_name(record.value or b"")) for record in self._records(view)
                ]
        self._simulation.history.final(finals)
        # One that is being added (a drain, a move) may still be on its way to the end.
        logs: dict[tuple[str, int], list[tuple[str, PartitionLog]]] = {}
        for node in self._simulation.nodes.values():
            for replica in node.node.replicas.hosted.all():
                if replica.topic_partition.topic in self._simulation.plan.all_topics and not replica.log.is_closed:
                    key = str(replica.topic_partition), replica.log.log_end_offset
                    logs.setdefault(key, []).append((node.name, replica.log))
        for (partition, _), copies in logs.items():
            check_producers(partition, copies)
        for node in self._simulation.nodes.values():
            for replica in node.node.replicas.hosted.all():
                if replica.topic_partition.topic == KEYED and replica.storage_error is None:
                    records = records_on(self._simulation.world.host(node.name).disk, replica.log.path)
                    named = [(each.offset, (dict(each.headers).get("name") or b"").decode()) for each in records]
                    self._simulation.transactions.history.replica(node.name, (KEYED, 0), named)
                if (
                    replica.topic_partition.topic in (*self._simulation.plan.topics, LEDGER)
                    and replica.storage_error is None
                ):
                    where = f"{replica.topic_partition} on {node.name}"
                    if replica.is_following and replica.high_watermark == replica.log.log_end_offset:
                        check_ended(where, replica.log)
                    check_aborted(self._simulation.world.host(node.name).disk, replica.log, where)

    def check_files(self) -> None:
        """The files that the nodes have left when they stopped."""
        for name in self._simulation.nodes:
            disk = self._simulation.world.host(name).disk
            for directory in self._simulation.plan.log_dirs:
                for replica in disk.peek_names(directory):
                    if (
                        replica.rpartition("-")[0] in self._simulation.plan.all_topics
                        and replica.rpartition("-")[2].isdigit()
                    ):
                        check_indexes(disk, f"{directory}/{replica}", f"{directory}/{replica} on {name}")

    def logs(self, topics: Collection[str]) -> dict[tuple[str, int], list[Record]]:
        """Partition of one of these topics -> the records that its leader has."""
        return {
            view.partition: self._records(view)
            for view in self._simulation.views()
            if view.is_leader and view.partition[0] in topics
        }

    def log(self, partition: tuple[str, int]) -> list[Record] | None:
        """The records of one partition that its present leader has; None: nobody leads it."""
        state = self._simulation.zk.states.get(partition)
        node = None if state is None else self._simulation.nodes.get(f"node{state.leader}")
        if node is None or not node.ready:
            return None
        key = TopicPartition(*partition)
        hosted = node.node.replicas.hosted.get(key)
        disk = self._simulation.world.host(node.name).disk
        return None if hosted is None or hosted.storage_error is not None else records_on(disk, hosted.log.path)

    def _records(self, view: ReplicaView) -> list[Record]:
        return records_on(
            self._simulation.world.host(self._simulation.plan.node_names[view.broker - 1]).disk, view.path
        )


def records_on(disk: SimDisk, path: str) -> list[Record]:
    """All that are in the files of a log."""
    found: list[Record] = []
    for name in disk.peek_names(path):
        if name.endswith(".log"):
            found.extend(read_records(disk.peek(f"{path}/{name}")))
    return found
