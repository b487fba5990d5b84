"""Classic errors of a replicated log, put into the running program on purpose: a simulation that never fails proves nothing.

Each has been an error of Kafka's (docs/invariants.md, known flaws). `python -m kafkalite.testing.simulate --plant F8` runs seed after seed
until one finds it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.controller import controller as controller_module
from kafkalite.controller import storage
from kafkalite.controller.channels import Channels
from kafkalite.controller.decisions import commands, eligible, partition_changes, topic_changes
from kafkalite.controller.event_loop import ControllerEventLoop
from kafkalite.coordination import paths, topic_configs
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.acl_znodes import pattern_path
from kafkalite.coordination.coordinator import Check, Coordinator
from kafkalite.coordinators.committed import CommittedAppends
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.coordinators.groups.removal import GroupRemoval
from kafkalite.coordinators.internal_log import InternalLog, _Load
from kafkalite.coordinators.shares.coordinator import ShareCoordinator
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.kafka import broker_apis
from kafkalite.log import checkpoints, cleaner, loader, partition_log, producer_state, retention
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.flushing import Flusher
from kafkalite.log.local_log import LocalLog
from kafkalite.log.log_dir import STRAY_SUFFIX, LogDir
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.removals import Removals
from kafkalite.log.segment import Segment
from kafkalite.log.transaction_index import TransactionIndex
from kafkalite.log.verification import NO_GUARD
from kafkalite.model import EPOCH_DURING_DELETE, INTERNAL_TOPICS, BrokerId, Offset, TopicPartition
from kafkalite.node import kafka_services
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.replica import doubts, hosted
from kafkalite.replica.commands import Commands
from kafkalite.replica.decisions import isr as isr_rules
from kafkalite.replica.decisions import leader
from kafkalite.replica.log_starts import LogStarts
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.roles import Roles
from kafkalite.replica.rpc_handlers import CommandOrder
from kafkalite.rpc.messages.control import IsrChangedResponse, PartitionState, StopPartition

#: (object or module, name, value): setattr, or what undoes itself in a test.
Patch = Callable[[Any, str, Any], None]


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """Invariant F1: a follower cuts its log at its high watermark, which lags behind what is committed."""
    become_follower = Roles._become_follower

    def planted(self: Roles, partition: Any, state: Any) -> None:
        become_follower(self, partition, state)
        if partition.log.log_end_offset > partition.follower_high_watermark:
            partition.log.truncate_to(partition.follower_high_watermark)

    patch(Roles, "_become_follower", planted)


def commit_over_the_proposed_isr(patch: Patch) -> None:
    """Invariant F8: the high watermark looks at the ISR that the leader has asked for, before it is granted."""

    def planted(state: leader.PartitionLeader) -> None:
        state.maximal_isr = state.proposed_isr or state.committed_isr

    patch(leader, "update_maximal_isr", planted)
    patch(isr_rules, "update_maximal_isr", planted)


def controllers_of_the_past(patch: Patch) -> None:
    """Invariant F4: nothing asks whether it is still the present controller: no transaction, no broker, no lease."""
    make = storage.Storage.__init__

    def without_fence(self: storage.Storage, *arguments: Any) -> None:
        make(self, *arguments)
        self._fence = Check(paths.CONTROLLER_EPOCH, -1)

    fence = Commands.fence

    def fence_by_broker_epoch(self: Commands, _: Any, broker_epoch: Any) -> Any:
        return fence(self, self.controller_epoch, broker_epoch)

    class AlwaysSending(Channels):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**{**arguments, "may_send": lambda: True})

    patch(storage.Storage, "__init__", without_fence)
    patch(Commands, "fence", fence_by_broker_epoch)
    patch(controller_module, "Channels", AlwaysSending)


def ack_before_replication(patch: Patch) -> None:
    """The high watermark is the leader's own end."""
    patch(hosted, "next_high_watermark", lambda leader: leader.log_end_offset)


def no_fsync(patch: Patch) -> None:
    """With log.flush.before.ack, a flush that does nothing."""

    async def flush(self: Flusher) -> Any:
        self.synced_offset = Offset(self.local.next_offset)
        return self.synced_offset

    patch(Flusher, "flush", flush)


def no_deduplication(patch: Patch) -> None:
    """A producer's retry is appended again (invariant F25)."""
    patch(ProducerStates, "find_duplicate", lambda self, header: None)
    patch(producer_state, "_check_sequence", lambda entry, header: None)


def retries_of_what_has_ended(patch: Patch) -> None:
    """A batch with the sequence of a transaction that has ended counts as a retry of it (ADR 17)."""
    found = ProducerStates.find_duplicate

    def planted(self: ProducerStates, header: Any) -> Any:
        try:
            return found(self, header)
        except ApiError:
            same = [
                kept for kept in self.active()[header.producer_id].batches if kept.last_sequence == header.last_sequence
            ]
            return same[0]

    patch(ProducerStates, "find_duplicate", planted)


def joins_at_once(patch: Patch) -> None:
    """A follower enters the ISR whatever it has (invariant C10)."""
    patch(isr_rules, "may_join", lambda *_, **__: True)


def anew_in_the_isr(patch: Patch) -> None:
    """Invariant F28: a replica whose disk has died is recreated at once, empty, before the controller has taken it out of the ISR."""

    async def retry_offline(self: Commands) -> None:
        for partition in self._hosted.all():
            if partition.storage_error is None or self._logs.get(partition.topic_partition) is not None:
                continue
            key = partition.topic_partition
            state = PartitionState(
                key.topic,
                key.partition,
                partition.topic_id,
                partition.controller_epoch,
                partition.leader_id,
                partition.leader_epoch,
                partition.current_isr,
                partition.partition_epoch,
                partition.replicas,
            )
            self._roles.stop(partition)
            self._roles.apply(state, "planted")

    patch(Commands, "_retry_offline", retry_offline)
    patch(OfflineReplicas, "may_have_lost", lambda self, key, state: None)


def notices_to_nobody(patch: Patch) -> None:
    """A notice of a changed ISR is acknowledged by a controller that may have a successor already."""
    hear = ControllerEventLoop.isr_changed

    def planted(self: ControllerEventLoop, request: Any, answer: Any) -> None:
        answer.set_result(IsrChangedResponse(ErrorCode.NONE))
        hear(self, request, answer)

    patch(ControllerEventLoop, "isr_changed", planted)


def leads_whatever_it_lost(patch: Patch) -> None:
    """Eligible leader replicas are ignored: a member of the ISR leads, even after a loss of power (KIP-966)."""
    patch(partition_changes, "without_doubtful", lambda state, doubtful: state)
    patch(doubts, "must_refuse", lambda partition, state: False)


def eligible_too_easily(patch: Patch) -> None:
    """Every replica that leaves the ISR counts as eligible, also while the high watermark goes on without it."""
    carried = eligible.carried

    def planted(found: Any, wanted: Any, replicas: Any, known: Any, gone: Any = ()) -> Any:
        return carried(found, wanted, replicas, dataclasses.replace(known, min_insync=len(replicas)), gone)

    def eligible_after(state: leader.PartitionLeader, isr: tuple[BrokerId, ...]) -> Any:
        return tuple(each for each in state.replicas if each not in isr), ()

    patch(partition_changes, "carried", planted)
    patch(isr_rules, "eligible_after", eligible_after)
    patch(isr_rules, "must_clear", lambda state: False)
    patch(leader.PartitionLeader, "is_frozen", property(lambda self: self.is_under_min_isr))


def unverified_transactions(patch: Patch) -> None:
    """KIP-890: a transaction begins on a partition whatever its coordinator knows."""
    patch(ProducerStates, "begin_verification", lambda self, producer_id, epoch, sequence, **_: NO_GUARD)
    patch(ProducerStates, "check_verified", lambda self, header, guard: None)


def who_fetches_is_in_sync(patch: Patch) -> None:
    """While ZooKeeper is away a leader needs only the members of the ISR that fetch, as if the others had left it."""
    advance = hosted.HostedPartitions.advance

    def planted(self: hosted.HostedPartitions, partition: Any) -> None:
        state = partition.leader
        if state is None or self.usable():
            advance(self, partition)
            return
        now_ms, whole = self.now_ms(), state.maximal_isr
        fetching = {id_ for id_, entry in partition.entries.items() if now_ms - entry.session.last_fetch_ms < 1_500}
        state.maximal_isr = tuple(id_ for id_ in whole if id_ == state.broker_id or id_ in fetching)
        try:
            advance(self, partition)
        finally:
            state.maximal_isr = whole

    patch(hosted.HostedPartitions, "advance", planted)


def takes_commands_of_its_earlier_life(patch: Patch) -> None:
    """A node that is not registered yet accepts commands for its earlier life, whose registration is still there."""

    def planted(self: Commands, controller_epoch: Any, broker_epoch: Any) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.STALE_BROKER_EPOCH if broker_epoch < self._identity()[1] else ErrorCode.NONE

    patch(Commands, "fence", planted)


def deleted_for_a_minute(patch: Patch) -> None:
    """DeleteRecords is answered before the log start is saved, as in Kafka: it survives no crash of all replicas."""
    patch(LogStarts, "save", lambda self, partition: self._hosted.start_saved(partition))
    patch(PartitionLog, "durable_start_offset", property(lambda self: self.log_start_offset, lambda self, offset: None))


def last_copy_set_aside(patch: Patch) -> None:
    """A log that has failed is set aside at once, and removed after the delay, whether or not another copy is known."""

    async def reopen_failed(self: DirFailures, log_dir: LogDir) -> None:
        for topic_partition in sorted(log_dir.failed):
            self.take_failed_away(topic_partition, STRAY_SUFFIX)

    patch(DirFailures, "reopen_failed", reopen_failed)
    patch(Removals, "_may_go", lambda self, stray: True)


def two_writers_of_a_checkpoint(patch: Patch) -> None:
    """Two saves of a directory's checkpoints at once, which share the name of the file beside it."""

    async def save_offsets(self: OffsetCheckpoints) -> None:
        for log_dir in self._pool.online():
            points: dict[TopicPartition, int] = {
                log.topic_partition: log.recovery_point for log in self._pool.logs_in(log_dir)
            }

            def save(log_dir: LogDir = log_dir, points: dict[TopicPartition, int] = points) -> None:
                log_dir.write_offsets(checkpoints.RECOVERY_POINTS, points, durable=True)

            try:
                await log_dir.off_loop(save)
            except OSError as error:
                self._failures.file_failed(log_dir, "saving offsets", error)

    patch(OffsetCheckpoints, "save_offsets", save_offsets)


def stops_at_an_empty_segment(patch: Patch) -> None:
    """Retention and DeleteRecords remove nothing behind a segment that a compaction has emptied."""
    rule = retention.segments_to_delete

    def planted(segments: Sequence[retention.SegmentFacts], config: Any, **known: int) -> int:
        return min(
            rule(segments, config, **known),
            next((n for n, segment in enumerate(segments) if not segment.size_bytes), len(segments)),
        )

    patch(partition_log, "segments_to_delete", planted)


def unsynced_transaction_indexes(patch: Patch) -> None:
    """The transaction index of a segment is never synced, and taken as it is found after a loss of power."""

    async def sync_indexes(self: Flusher, segment: Segment) -> None:
        segment.indexes_synced = True

    patch(Flusher, "_sync_indexes", sync_indexes)
    patch(TransactionIndex, "to_sync", lambda self: None)
    patch(loader, "_is_doubtful", lambda segment, names, clean: False)


def uncommitted_decisions(patch: Patch) -> None:
    """A transaction coordinator serves what it has loaded before that is committed, as in Kafka."""
    load = InternalLog._load

    async def planted(self: InternalLog[Any], partition: int, begun: Any) -> None:
        self._when_committed = False
        await load(self, partition, begun)

    patch(InternalLog, "_load", planted)


def vanished_is_deleted(patch: Patch) -> None:
    """A topic whose znode has gone counts as deleted: its replicas are removed."""

    def planted(state: Any, topic: str, topic_id: Any, assignment: Any, cause: str) -> Any:
        by_broker: dict[Any, list[StopPartition]] = {}
        for partition, replicas in sorted(assignment.items()):
            for broker in replicas:
                stop = StopPartition(topic, partition, topic_id, EPOCH_DURING_DELETE, delete_files=True)
                by_broker.setdefault(broker, []).append(stop)
        return [commands._stop(state, broker, by_broker[broker], cause) for broker in sorted(by_broker)]

    patch(topic_changes, "keep_replicas", planted)


def given_before_given_up(patch: Patch) -> None:
    """A member of a consumer group gets partitions that their owner has not given up yet (KIP-848)."""
    patch(ConsumerGroup, "is_free", lambda self, topic_id, partition, mine: True)


def unreplicated_share_states(patch: Patch) -> None:
    """A share coordinator answers when a state is appended, before it is replicated (KIP-932)."""

    async def planted(self: CommittedAppends, partition: Any, records: Any, apply: Any) -> None:
        self.append(partition, records, apply)

    patch(CommittedAppends, "store", planted)


def tasks_given_before_given_up(patch: Patch) -> None:
    """A member of a streams group gets active tasks that their owner has not given up yet (KIP-1071)."""
    patch(StreamsGroup, "is_free", lambda self, task, mine: (True, True))


def used_where_received(patch: Patch) -> None:
    """Records of a Produce request that takes several turns of the loop are used where they were received."""
    patch(broker_apis, "MOST_IN_PLACE", ELEMENTS_AT_ONCE)


def last_writer_of_settings(patch: Patch) -> None:
    """Settings are written as a whole, whatever another node has changed since they were read."""

    async def planted(coordinator: Any, entity_type: str, name: str, before: Any, after: Any) -> bool:
        await topic_configs.write_config(coordinator, entity_type, name, after, replace=True)
        return True

    patch(kafka_services, "replace_config", planted)


def purges_what_is_there_by_then(patch: Patch) -> None:
    """Offsets of a deleted topic are looked up group by group, when those before are purged: a new topic may have that name."""

    async def planted(self: GroupRemoval, is_gone: Any, topics: Any) -> None:
        for partition in list(self._log.states()):
            for entry in list(partition.entries.values()):
                found = entry.offsets.snapshot(is_gone, self._log_end(partition))
                if found.partitions:
                    await self._forget_quietly(entry, found)

    patch(GroupRemoval, "_purge_everywhere", planted)


def keeps_share_states(patch: Patch) -> None:
    """A share coordinator deletes no record that it does not need any more (KIP-932)."""

    async def planted(self: ShareCoordinator, partition: Any) -> None:
        """Nothing."""

    patch(ShareCoordinator, "_prune", planted)


def compacts_no_internal_topic(patch: Patch) -> None:
    """What coordinators write is never compacted."""
    due = cleaner.plan

    def planted(log: PartitionLog, *known: Any, **more: Any) -> Any:
        return None if log.topic_partition.topic in INTERNAL_TOPICS else due(log, *known, **more)

    patch(cleaner, "plan", planted)


def late_commands(patch: Patch) -> None:
    """A command counts whenever it arrives, also over a connection that the controller has given up since."""
    patch(CommandOrder, "check", lambda self, request, epoch: None)


def offsets_of_a_name(patch: Patch) -> None:
    """A committed offset is that of a topic's name, as in Kafka before topic ids: also of the next topic of this name."""
    patch(CommittedOffset, "is_of_another", lambda self, topic_id: False)


def purges_what_is_committed_meanwhile(patch: Patch) -> None:
    """A purge deletes the offsets that it has found, whatever has been committed since: between two of its appends, too."""
    patch(GroupOffsets, "is_as_in", lambda self, snapshot, partition: True)


def writes_on_an_earlier_load(patch: Patch) -> None:
    """A coordinator appends what it has decided on, even if it has loaded the partition again since, as the leader of another epoch."""
    append_batch = InternalLog.append_batch

    def planted(self: InternalLog[Any], partition: int, state: Any, *arguments: Any, **more: Any) -> None:
        led = self._services.partitions.leader_epoch(TopicPartition(self.topic, partition))
        loads = self._loads
        if led is not None and partition in loads:
            self._loads = {**loads, partition: _Load(led, state, is_ready=True)}
        try:
            append_batch(self, partition, state, *arguments, **more)
        finally:
            self._loads = loads

    patch(InternalLog, "append_batch", planted)


def last_read_of_acls(patch: Patch) -> None:
    """Of two reads of ACLs that overlap, the one that ends later counts, though it has begun earlier."""

    async def planted(self: AclStore, coordinator: Coordinator, patterns: Sequence[Any]) -> None:
        paths_ = [pattern_path(pattern) for pattern in patterns]
        found = await coordinator.get_many(paths_)
        await asyncio.sleep(0)
        for pattern, path, znode in zip(patterns, paths_, found, strict=True):
            self._apply(pattern, path, None if znode is None else znode[0])

    patch(AclStore, "_read", planted)


def cuts_beside_a_swap(patch: Patch) -> None:
    """A cut leaves the file of a compacted segment that is about to replace what is cut: the next start brings it back."""

    def planted(self: LocalLog) -> None:
        self._swap = ""

    patch(LocalLog, "drop_swap", planted)


#: Errors that drawn seeds find with `--plant`, but no directed plan of the tests brings out in a few runs.
RARE = frozenset({"unregistered"})


def forgets_offline_disks(patch: Patch) -> None:
    """ADR 61: a broker confirms a deletion although a disk of it is away, and keeps what the disk brings back."""
    patch(LogPool, "has_offline_dir", property(lambda self: False))


PLANTS: dict[str, Callable[[Patch], None]] = {
    "F1": truncate_to_the_high_watermark,
    "F4": controllers_of_the_past,
    "F8": commit_over_the_proposed_isr,
    "F28": anew_in_the_isr,
    "F25": no_deduplication,
    "ended": retries_of_what_has_ended,
    "C10": joins_at_once,
    "ack": ack_before_replication,
    "ELR": leads_whatever_it_lost,
    "ELR-min": eligible_too_easily,
    "deleted": deleted_for_a_minute,
    "copy": last_copy_set_aside,
    "writers": two_writers_of_a_checkpoint,
    "empty": stops_at_an_empty_segment,
    "txnindex": unsynced_transaction_indexes,
    "decided": uncommitted_decisions,
    "vanished": vanished_is_deleted,
    "disk-away": forgets_offline_disks,
    "away": who_fetches_is_in_sync,
    "fsync": no_fsync,
    "unregistered": takes_commands_of_its_earlier_life,
    "notice": notices_to_nobody,
    "unverified": unverified_transactions,
    "owners": given_before_given_up,
    "shared": unreplicated_share_states,
    "in-place": used_where_received,
    "settings": last_writer_of_settings,
    "unpruned": keeps_share_states,
    "uncompacted": compacts_no_internal_topic,
    "swap": cuts_beside_a_swap,
    "purge": purges_what_is_there_by_then,
    "spared": purges_what_is_committed_meanwhile,
    "name": offsets_of_a_name,
    "reloaded": writes_on_an_earlier_load,
    "late": late_commands,
    "acl-read": last_read_of_acls,
    "tasks": tasks_given_before_given_up,
}
