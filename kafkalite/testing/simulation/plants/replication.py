"""Planted errors of replicas and of the controller."""

from __future__ import annotations

import dataclasses
from typing import Any

from kafkalite.controller import controller as controller_module
from kafkalite.controller import storage
from kafkalite.controller.channels import Channels
from kafkalite.controller.decisions import commands, eligible, leader_choice, topic_changes, vanished
from kafkalite.controller.event_loop import ControllerEventLoop
from kafkalite.controller.sources import ADMIN
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Check
from kafkalite.errors import ErrorCode
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.model import EPOCH_DURING_DELETE, INTERNAL_TOPICS, BrokerId, TopicPartition
from kafkalite.replica import doubts, hosted, roles
from kafkalite.replica.commands import Commands
from kafkalite.replica.decisions import isr as isr_rules
from kafkalite.replica.decisions import leader
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.roles import Roles
from kafkalite.replica.rpc_handlers import LatestConnection
from kafkalite.replica.skipped_sequences import SkippedSequences
from kafkalite.rpc.memory import ConnectionMemory
from kafkalite.rpc.messages.control import IsrChangedResponse, PartitionState, StopPartition
from kafkalite.testing.simulation.plants.patch import Patch


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """Invariant F1: a follower cuts its log at its high watermark, which lags behind what is committed."""
    become_follower = Roles._become_follower

    def planted(self: Roles, partition: Any, state: Any, *, was_offline: bool) -> None:
        become_follower(self, partition, state, was_offline=was_offline)
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


def begins_anywhere(patch: Patch) -> None:
    """The first batch of a producer that is new to a partition is refused, and the second one is appended."""
    patch(SkippedSequences, "begins_ahead", lambda self, partition, topic_id, records, known_producers: False)


def joins_at_once(patch: Patch) -> None:
    """A follower enters the ISR whatever it has (invariant C10)."""
    patch(isr_rules, "may_join", lambda *_, **__: True)


def recreated_in_the_isr(patch: Patch) -> None:
    """Invariant F28: a replica whose disk has died is recreated at once, empty, before the controller has taken it out of the ISR; and it does
    not doubt that it has everything."""

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
    patch(doubts, "should_have_had", lambda state, broker_id: False)


def only_the_isr_has_lost(patch: Patch) -> None:
    """ADR 16: a replica outside of the ISR whose log is missing when its node starts does not doubt that it has everything."""

    def planted(self: Roles, state: PartitionState) -> bool:
        is_away = self._logs.pool.is_away(TopicPartition(state.topic, state.partition))
        return not state.is_new and (is_away or doubts.should_have_had(state, self._identity()[0]))

    patch(Roles, "_has_lost", planted)


def begins_again_without_records(patch: Patch) -> None:
    """ADR 78: nobody asks brokers that are no replicas, according to ZooKeeper, for a partition's records."""
    patch(leader_choice.LeaderChoice, "_elsewhere", lambda self, heard, *, awaits_all=False: None)


def copied_from_two_leaders(patch: Patch) -> None:
    """ADR 76: an unfinished copy of a compacted log goes on with the next leader's, whatever that one has compacted."""
    patch(PartitionLog, "record_copying", lambda self, leader_epoch: None)


def notices_to_nobody(patch: Patch) -> None:
    """A notice of a changed ISR is acknowledged by a controller that may have a successor already."""
    hear = ControllerEventLoop.isr_changed

    def planted(self: ControllerEventLoop, request: Any, answer: Any) -> None:
        answer.set_result(IsrChangedResponse(ErrorCode.NONE))
        hear(self, request, answer)

    patch(ControllerEventLoop, "isr_changed", planted)


def leads_whatever_it_lost(patch: Patch) -> None:
    """Eligible leader replicas are ignored: a member of the ISR leads, even after a loss of power (KIP-966)."""
    patch(leader_choice, "without_doubtful", lambda state, doubtful: state)
    patch(leader_choice.LeaderChoice, "_unknown", lambda *_: [])
    patch(doubts, "must_refuse", lambda partition, state: False)


def eligible_too_easily(patch: Patch) -> None:
    """Every replica that leaves the ISR counts as eligible, also while the high watermark goes on without it."""
    carried = eligible.carried

    def planted(found: Any, wanted: Any, replicas: Any, known: Any, gone: Any = ()) -> Any:
        return carried(found, wanted, replicas, dataclasses.replace(known, min_insync=len(replicas)), gone)

    def eligible_after(state: leader.PartitionLeader, isr: tuple[BrokerId, ...]) -> Any:
        return tuple(each for each in state.replicas if each not in isr), ()

    patch(leader_choice, "carried", planted)
    patch(isr_rules, "eligible_after", eligible_after)
    patch(isr_rules, "must_clear", lambda state: False)
    patch(leader.PartitionLeader, "is_frozen", property(lambda self: self.is_under_min_isr))


def internal_topics_are_forgotten(patch: Patch) -> None:
    """Nobody comes back into the ISR of an internal topic: its coordinator goes on, with fewer and fewer replicas."""
    alter = IsrKeeper.maybe_alter_isr

    def planted(self: IsrKeeper, partition: Any, **options: bool) -> None:
        if partition.topic_partition.topic not in INTERNAL_TOPICS:
            alter(self, partition, **options)

    patch(IsrKeeper, "maybe_alter_isr", planted)


def fetching_is_in_sync(patch: Patch) -> None:
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


def takes_commands_of_its_earlier_epoch(patch: Patch) -> None:
    """A node that is not registered yet accepts commands for its earlier broker epoch, whose registration is still there."""

    def planted(self: Commands, controller_epoch: Any, broker_epoch: Any) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.STALE_BROKER_EPOCH if broker_epoch < self._identity()[1] else ErrorCode.NONE

    patch(Commands, "fence", planted)


def refused_for_good(patch: Patch) -> None:
    """A command that meets a broker before ZooKeeper has answered its registration is not sent again."""
    patch(Channels, "_knows_another_epoch", lambda self, response: False)


def remembers_replicas_outside(patch: Patch) -> None:
    """A leader that goes on in a new epoch still knows the ends of replicas outside of the ISR, which may have been recreated since; and those do
    not doubt that they have everything, though their log was missing when their node started, or its disk is offline."""
    made = leader.new_leader

    def planted(previous: Any, **fields: Any) -> Any:
        new = made(previous, **fields)
        if previous is not None and previous.leader_epoch + 1 == new.leader_epoch:
            for replica, known in previous.followers.items():
                if replica in new.followers:
                    new.followers[replica].log_end_offset = known.log_end_offset
                    new.followers[replica].broker_epoch = known.broker_epoch
        return new

    patch(roles, "new_leader", planted)
    patch(roles.Roles, "_has_lost", lambda self, state: False)
    patch(LogPool, "is_away", lambda self, topic_partition: False)


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


def put_back_is_as_before(patch: Patch) -> None:
    """A state znode that was removed and put back unseen counts as the one that its leader knows, and the leader says nothing."""
    patch(vanished, "put_back", lambda known, found: None)
    leaders_keep_what_they_know(patch)


def leaders_keep_what_they_know(patch: Patch) -> None:
    """A leader that knows a later state than the controller, or than ZooKeeper, does not say so."""
    patch(IsrKeeper, "report_ahead", lambda self, partition, has_resigned=False: None)


def requests_are_read_once(patch: Patch) -> None:
    """The controller reads requests when their watches fire, and never again."""
    tick = ControllerEventLoop._tick

    def planted(self: ControllerEventLoop) -> None:
        before = set(self.inbox.dirty)
        tick(self)
        for source in ADMIN.keys() - before:
            self.inbox.dirty.pop(source, None)

    patch(ControllerEventLoop, "_tick", planted)


def late_commands(patch: Patch) -> None:
    """A command counts whenever it arrives, also over a connection that the controller has given up since."""
    patch(LatestConnection, "check", lambda self, request, epoch: None)


def closed_connections_keep_memory(patch: Patch) -> None:
    """A connection that is closed while it waits for memory gives back what it has when there is memory."""
    release = ConnectionMemory.release

    def planted(self: ConnectionMemory) -> None:
        if self not in self._memory._waiters:
            release(self)

    patch(ConnectionMemory, "release", planted)
