"""What a command does to one partition: it is hosted, becomes leader or follower, or is stopped.

Each transition is done in one go, and never fails those of other partitions (invariant 13).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.model import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from kafkalite.replica import doubts
from kafkalite.replica.decisions import strays
from kafkalite.replica.decisions.leader import new_leader
from kafkalite.replica.doubts import DoubtfulReplicas
from kafkalite.replica.fetcher import Fetchers
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.control import (
    PartitionState,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager
    from kafkalite.log.partition_log import PartitionLog

_log = get_logger(__name__)


class ReplicaSettings(Protocol):
    """What holds for the node and for its topics (`node.settings`)."""

    @property
    def now(self) -> BrokerConfig: ...

    def topic_config(self, topic: str) -> TopicConfig:
        """The topic's configuration as it is now."""


class Roles:
    """Transitions of partitions. Fences: the partition's leader epoch (invariant F3), the topic's id (invariant F18)."""

    def __init__(
        self,
        *,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: Fetchers,
        settings: ReplicaSettings,
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        offline_replicas: OfflineReplicas,
        doubtful: DoubtfulReplicas,
        isr_keeper: IsrKeeper,
    ) -> None:
        self._offline_replicas = offline_replicas
        self._doubts = doubtful
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._settings = settings
        self._identity = identity
        self._isr_keeper = isr_keeper
        #: Whether this incarnation of the node has carried out a complete list of its replicas.
        self.has_begun = False
        #: Offline since before that.
        self._offline_from_the_start: set[TopicPartition] = set()
        #: High watermarks of replicas that were stopped without being deleted.
        self.stopped_high_watermarks: dict[TopicPartition, Offset] = {}

    def doubt_lost_logs(self, states: Collection[PartitionState]) -> None:
        """Before the logs which `states` say that this node should have, and which are missing, are recreated: a write for each would hold the
        loop for long where a disk was replaced."""
        lost = [TopicPartition(state.topic, state.partition) for state in states if self._has_lost(state)]
        self._logs.placing.doubt_ahead(lost)

    def _has_lost(self, state: PartitionState) -> bool:
        """Whether a replica without a log here has lost it, has it on a disk that is offline, or may have had it before a restart: its leader
        may take it into the ISR for that yet, until it has fetched. A replica that comes later, as in a move, was not here earlier in this epoch."""
        key = TopicPartition(state.topic, state.partition)
        is_outside = self._identity()[0] not in (*state.isr, *state.elr)
        may_be_taken_in = is_outside and (not self.has_begun or key in self._offline_from_the_start)
        is_away = self._logs.pool.is_away(key)
        has_lost = is_away or may_be_taken_in or doubts.should_have_had(state, self._identity()[0])
        return has_lost and not state.is_new

    def apply(self, state: PartitionState, cause: str, *, is_command: bool = True) -> ErrorCode:
        """One partition; never fails the others (invariant 13). `is_command`: a controller's, not what this node has read itself."""
        key = TopicPartition(state.topic, state.partition)
        if self._identity()[0] not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self._hosted.get(key)
        try:
            if partition is not None and strays.is_other(partition.topic_id, state.topic_id):
                _log.warning("replica.other_topic", partition=str(key), own=partition.topic_id, new=state.topic_id)
                self.stop(partition)
                partition = None
                self._logs.set_stray(key)
            if partition is not None and _is_behind(state, partition):
                self._isr_keeper.report_ahead(partition)
            if partition is not None and state.leader_epoch < partition.leader_epoch:
                if partition.leader is None:
                    self._isr_keeper.report_epoch(partition, partition.leader_epoch)
                return ErrorCode.STALE_CONTROLLER_EPOCH
            was_offline = partition is not None and partition.storage_error is not None
            if partition is not None and was_offline:
                partition = self._recreate(partition, state)
            was_stopped = key in self.stopped_high_watermarks
            if partition is None:
                partition = self._start_replica(key, state)
            if self._must_be_recreated(partition, state) or self._has_better_stray(partition, state):
                _log.warning("replica.recreated", partition=str(key), log_end_offset=partition.log.log_end_offset)
                self.stop(partition)
                partition = None
                self._logs.set_stray(key)
                partition = self._start_replica(key, state)
            if partition.storage_error is not None:
                self._offline_replicas.on_command(partition, state)
                return self._refusal_of_offline(key, state)
            may_have_led = was_offline or was_stopped or not is_command
            return self._take_role(partition, state, cause, was_offline=was_offline, may_have_led=may_have_led)
        except StorageError as error:
            if partition is None:
                _log.error("replica.not_started", partition=str(key), directory=error.directory, error=str(error))
                partition = self._host_offline(key, state, error)
            else:
                self._hosted.fail_storage(partition, error, is_certain=True)
            self._offline_replicas.on_command(partition, state)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except ApiError as error:
            return error.code

    def _take_role(
        self, partition: Partition, state: PartitionState, cause: str, *, was_offline: bool, may_have_led: bool
    ) -> ErrorCode:
        """Lead or follow, as the command says. Raises StorageError, ApiError."""
        if state.leader_epoch == partition.leader_epoch and partition.is_settled:
            if state.leader != partition.leader_id:
                # The znode was put back, and an election has used this epoch a second time. Records of two leaders in one epoch
                # could not be distinguished: refused like an earlier epoch, and the next leader has to begin another one (ADR 74).
                self._isr_keeper.report_epoch(partition, LeaderEpoch(partition.leader_epoch + 1))
                return ErrorCode.STALE_CONTROLLER_EPOCH
            self._take_move(partition, state)
            return ErrorCode.NONE  # already applied: nothing is truncated, no fetcher starts again (invariant 30)
        if state.leader == self._identity()[0]:
            error = self._become_leader(partition, state, may_have_led=may_have_led)
            if error is ErrorCode.NONE:
                self._record_role(partition, "replica.leads", cause)
            return error
        if (
            state.leader != NO_LEADER
            and state.topic_id != NO_TOPIC_ID
            and partition.log.latest_epoch > state.leader_epoch
        ):
            # It would cut records that may be committed. (While nobody leads, the controller hears of it by the log's end.)
            return self._ask_for_later_epoch(partition, state)
        self._become_follower(partition, state, was_offline=was_offline)
        self._record_role(
            partition, "replica.offline_leader" if state.leader == NO_LEADER else "replica.follows", cause
        )
        return ErrorCode.NONE

    def _record_role(self, partition: Partition, what: str, cause: str) -> None:
        """For `admin why`."""
        leader = "nobody leads" if partition.leader_id == NO_LEADER else f"leader {partition.leader_id}"
        detail = (
            f"{leader}, epoch {partition.leader_epoch}, ISR {list(partition.current_isr)}, controller epoch "
            f"{partition.controller_epoch}, log end {partition.log.log_end_offset}"
        )
        self._hosted.record(partition, what, f"{detail}; {cause}" if cause else detail)

    def _start_replica(self, key: TopicPartition, state: PartitionState) -> Partition:
        """Host the partition: its log as it is on disk, or a new one. Raises StorageError."""
        config = self._settings.topic_config(key.topic)
        log = self._logs.get(key)
        if log is not None and strays.is_other(log.topic_id, state.topic_id):
            # Left over from a topic of the same name. If that was deleted while this node was away, the controller sends a command.
            _log.warning("replica.other_topic", partition=str(key), own=log.topic_id, new=state.topic_id)
            self._logs.set_stray(key)
            log = None
        mark = Offset(0)
        lost = self._offline_replicas.may_have_lost(key, state) if log is None else None
        if log is None and lost is None and state.leader == NO_LEADER and not state.is_new:
            lost = self._put_back_stray(key, state, config)
        if lost is not None:
            return self._host_offline(key, state, lost)
        if log is None:
            self.stopped_high_watermarks.pop(key, None)
            log = self._logs.placing.create(key, state.topic_id, config, is_doubtful=self._has_lost(state))
            self._offline_from_the_start.discard(key)
        else:
            log.config = config
            log.take_topic_id(state.topic_id)
            kept = self.stopped_high_watermarks.pop(key, None)
            mark = kept if kept is not None else self._logs.offsets.high_watermark(key)
        mark = max(min(mark, log.log_end_offset), log.log_start_offset)
        partition = Partition(key, state.topic_id, log, config, mark)
        self._hosted.add(partition)
        self._offline_replicas.forget(key)
        self._doubts.on_hosted(partition)
        return partition

    def _put_back_stray(self, key: TopicPartition, state: PartitionState, config: TopicConfig) -> StorageError | None:
        """The partition was given to this node again, and nobody leads: a log of it that was set aside here may be the most complete one. It comes
        into service a moment later. None: there is none."""
        for stray in self._logs.removals.of(key, state.topic_id)[:1]:
            try:
                self._logs.failures.put_back(stray, key, config)
            except ApiError as error:
                _log.error("replica.stray_not_put_back", partition=str(key), error=str(error))
                return None
            return StorageError(f"{key}: {stray.name} is its log again, and not opened yet", directory=stray.directory)
        return None

    def _must_be_recreated(self, partition: Partition, state: PartitionState) -> bool:
        """Whether another replica, which is in sync, leads, and the log is an older copy of a compacted one, or an unfinished copy of what may
        be another leader's: it would never get tombstones that have gone (ADR 76). Outside of the ISR, as a replica on a disk that has
        failed (invariant F28)."""
        is_unfinished = partition.log.copying_in not in (NO_LEADER_EPOCH, state.leader_epoch)
        is_of_two = is_unfinished and not _leads_on(state, partition)
        is_outside = self._identity()[0] not in (state.leader, *state.isr, *state.elr)
        return (
            is_outside
            and state.leader != NO_LEADER
            and "compact" in partition.config.cleanup_policy
            and (is_of_two or self._logs.pool.is_older_copy(partition.topic_partition))
        )

    def _has_better_stray(self, partition: Partition, state: PartitionState) -> bool:
        """Whether nobody leads, and a log that was set aside here is more complete than the replica's, which may lack records. (The replica was recreated
        from it, or a controller that did not know of it had another one lead for a moment.)"""
        key, broker_id = partition.topic_partition, self._identity()[0]
        is_complete = broker_id in (*state.isr, *state.elr) and not partition.is_doubtful
        if state.leader != NO_LEADER or is_complete or partition.storage_error is not None:
            return False
        strays_here, log = self._logs.removals.of(key, state.topic_id), partition.log
        return bool(strays_here) and strays_here[0].extent > (log.latest_epoch, log.log_end_offset)

    def take_log(self, partition: Partition, log: PartitionLog) -> None:
        """A more complete copy of the replica's log has come into service. Nobody leads: the controller chooses again."""
        self._fetchers.stop(partition.topic_partition)
        log.config = partition.config
        partition.log = log
        partition.follower_high_watermark = self._logs.offsets.high_watermark(partition.topic_partition)
        self._hosted.changed(partition)
        self._doubts.on_hosted(partition)
        detail = f"{log.path} is back, is more complete, and ends at {log.log_end_offset}"
        self._hosted.record(partition, "replica.back", detail)
        self._offline_replicas.can_lead(partition)

    def _host_offline(self, key: TopicPartition, state: PartitionState, error: StorageError) -> Partition:
        """A replica of ours whose log cannot be reached: answers KAFKA_STORAGE_ERROR until it is recreated."""
        if not self.has_begun:
            self._offline_from_the_start.add(key)
        log = self._logs.unusable(key, state.topic_id, self._settings.topic_config(key.topic))
        partition = Partition(key, state.topic_id, log, log.config, Offset(0))
        self._hosted.add(partition)
        self._hosted.fail_storage(partition, error, is_certain=True)
        return partition

    def _recreate(self, partition: Partition, state: PartitionState) -> Partition | None:
        """An offline replica is dropped (None), so that it is recreated, if allowed; otherwise it stays."""
        if self._offline_replicas.refusal(partition, state):
            return partition
        key = partition.topic_partition
        log = self._logs.get(key)
        if log is not None:
            _log.warning("replica.back", partition=str(key), path=log.path, leader_epoch=state.leader_epoch)
            self._hosted.record(partition, "replica.back", f"{log.path} is in service again")
        else:
            lost = partition.log.directory
            _log.warning("replica.restarted", partition=str(key), lost=lost, leader_epoch=state.leader_epoch)
            self._hosted.record(partition, "replica.restarted", f"{lost} is lost; recreated empty")
        self.stop(partition)
        if log is not None and log.path == partition.log.path and log.topic_id == partition.topic_id:
            self.stopped_high_watermarks[key] = max(
                partition.follower_high_watermark, self._logs.offsets.high_watermark(key)
            )
            return None
        self._offline_replicas.restarts += 1
        return None

    def _refusal_of_offline(self, key: TopicPartition, state: PartitionState) -> ErrorCode:
        """A replica in the ISR whose log is gone: not every controller knows that it is not waited for, as the state may be newer than the registration."""
        is_gone = doubts.should_have_had(state, state.leader) and self._logs.pool.is_gone(key)
        is_unknown = is_gone and state.leader == self._identity()[0] and state.accepts_loss == 0
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if is_unknown else ErrorCode.KAFKA_STORAGE_ERROR

    def _take_state(self, partition: Partition, state: PartitionState) -> None:
        if state.leader_epoch != partition.leader_epoch:
            self._hosted.changed(partition)  # consumers that know the former epoch are fenced
        partition.leader_epoch = state.leader_epoch
        partition.partition_epoch = state.partition_epoch
        partition.controller_epoch = state.controller_epoch
        partition.leader_id = state.leader
        partition.replicas = state.replicas
        partition.isr = state.isr
        partition.elr = state.elr
        partition.last_known_elr = state.last_known_elr
        partition.epoch_start_offset = None
        partition.is_settled = True
        self._take_move(partition, state)

    def _take_move(self, partition: Partition, state: PartitionState) -> None:
        """What comes with a reassignment or a removal, and is not part of the leadership."""
        partition.adding_replicas = state.adding_replicas
        partition.throttle = state.throttle
        if state.is_read_only and not partition.is_read_only:
            self._isr_keeper.schedule_check()
        partition.is_read_only = state.is_read_only

    def _become_leader(self, partition: Partition, state: PartitionState, *, may_have_led: bool) -> ErrorCode:
        """`may_have_led`: in this epoch, before it was stopped, or the node restarted."""
        broker_id = self._identity()[0]
        if broker_id not in state.isr:
            _log.error("replica.leader_outside_isr", partition=str(partition.topic_partition), isr=list(state.isr))
            return ErrorCode.INVALID_REQUEST
        self._fetchers.stop(partition.topic_partition)
        if doubts.must_refuse(partition, state):
            return self._refuse_to_lead(partition, state)
        log = partition.log
        if log.latest_epoch == state.leader_epoch and not (
            may_have_led or partition.leader_epoch == state.leader_epoch
        ):
            partition.used_epoch = state.leader_epoch
        if log.latest_epoch > state.leader_epoch or partition.used_epoch == state.leader_epoch:
            return self._ask_for_later_epoch(partition, state)
        end = log.log_end_offset
        if partition.is_doubtful:
            _log.error("replica.leads_after_loss", partition=str(partition.topic_partition), log_end_offset=end)
            detail = f"its log, which ends at {end}, may lack committed records; no replica with more is expected"
            self._hosted.record(partition, "replica.leads_after_loss", detail)
            self._doubts.end(partition, "it leads")
        if log.copying_in != NO_LEADER_EPOCH:
            log.record_copying(NO_LEADER_EPOCH)  # the others copy from it now
        log.assign_epoch_start(state.leader_epoch, end)
        mark = partition.high_watermark
        leader = new_leader(
            partition.leader,
            broker_id=broker_id,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=tuple(member for member in state.isr if member in state.replicas),
            partition_epoch=state.partition_epoch,
            min_insync_replicas=partition.config.min_insync_replicas,
            log_end_offset=end,
            durable_end_offset=min(log.synced_offset, end) if partition.config.log_flush_before_ack else end,
            high_watermark=mark,
            at_ms=self._hosted.now_ms(),
            elr=state.elr,
            last_known_elr=state.last_known_elr,
        )
        # Followers listed it under the previous epoch; they get this one and list it again.
        self._hosted.drop_entries(partition, ErrorCode.NONE)
        self._take_state(partition, state)
        partition.leader = leader
        self._hosted.leadership.beat()
        if leader.durable_end_offset < end:
            self._hosted.ensure_flushing(partition)
        if leader.is_under_min_isr:
            self._hosted.fail_produce_waiters(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._hosted.advance(partition)
        return ErrorCode.NONE

    def _ask_for_later_epoch(self, partition: Partition, state: PartitionState) -> ErrorCode:
        """ZooKeeper was put back from an earlier time. If records of this epoch followed those of later ones in the log, its followers
        would cut what is committed; and a leader of this epoch may lack what was committed in later ones. Another leader's records of this very
        epoch could not be distinguished from its own. The controller chooses a leader in an epoch behind them."""
        self._hosted.demote(partition)
        self._take_state(partition, state)
        partition.leader_id = NO_LEADER
        partition.is_settled = False
        latest = max(partition.log.latest_epoch, LeaderEpoch(state.leader_epoch + 1))
        detail = f"a command names leader {state.leader} in epoch {state.leader_epoch}, but its log has epoch {partition.log.latest_epoch}: asks for a later one"
        _log.warning("replica.epoch_went_back", partition=str(partition.topic_partition), detail=detail)
        self._hosted.record(partition, "replica.epoch_went_back", detail)
        self._isr_keeper.report_epoch(partition, latest)
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _refuse_to_lead(self, partition: Partition, state: PartitionState) -> ErrorCode:
        """Until another replica leads, or the controller knows that there is no better one."""
        self._hosted.demote(partition)
        self._take_state(partition, state)
        partition.leader_id = NO_LEADER
        partition.is_settled = False
        _log.error("replica.refuses_to_lead", partition=str(partition.topic_partition), epoch=state.leader_epoch)
        self._hosted.record(partition, "replica.refuses_to_lead", doubts.lasting(partition))
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def _become_follower(self, partition: Partition, state: PartitionState, *, was_offline: bool) -> None:
        if partition.leader is not None:
            # Producers and consumers that wait are refused with the next line, and the answer says who leads now (KIP-951).
            partition.leader_id, partition.leader_epoch = state.leader, state.leader_epoch
        self._hosted.demote(partition)
        if partition.log.copying_in != NO_LEADER_EPOCH and _leads_on(state, partition):
            partition.log.record_copying(state.leader_epoch)
        self._take_state(partition, state)
        if state.leader == NO_LEADER:
            self._fetchers.stop(partition.topic_partition)
            # After a loss, any replica may have the most: the controller has to know that this one is not offline any more.
            if was_offline or self._identity()[0] in (*state.isr, *state.elr, *state.last_known_elr):
                self._offline_replicas.can_lead(partition)
        else:
            self._fetchers.follow(partition, state.leader)

    def may_take_unasked(self, state: PartitionState) -> bool:
        """Whether this node takes the role without a command.

        After an unclean stop this replica may lack what it had acknowledged: if others are in sync, the controller
        has to choose the leader (invariant F14). Alone in the ISR, nobody has more; and who had a role in this process already is whole.
        If the log of a member is gone, others may have it; in the first epoch only the controller can say whether there was one (ADR 78).
        """
        key, broker_id = TopicPartition(state.topic, state.partition), self._identity()[0]
        partition, log = self._hosted.get(key), self._logs.get(key)
        has_begun = partition is not None and partition.leader_epoch != NO_LEADER_EPOCH
        if log is None and not has_begun and state.leader_epoch == 0 and broker_id in (*state.isr, *state.elr):
            return False
        if state.leader != broker_id:
            return True
        if self._logs.pool.is_doubtful(key):
            return False
        return has_begun or (log is not None and (len(state.isr) == 1 or log.clean_start))

    def resign_unconfirmed(self, states: Sequence[PartitionState]) -> None:
        """End leaderships of an earlier session that ZooKeeper does not confirm."""
        broker_id = self._identity()[0]
        confirmed = {
            TopicPartition(state.topic, state.partition): state.leader_epoch
            for state in states
            if state.leader == broker_id
        }
        for partition in self._hosted.all():
            if partition.leader is not None and confirmed.get(partition.topic_partition) != partition.leader_epoch:
                self._hosted.resign(partition, "ZooKeeper does not have this node as its leader")

    def stop(self, partition: Partition) -> None:
        self._fetchers.stop(partition.topic_partition)
        self._hosted.demote(partition)
        self._hosted.remove(partition)
        self._offline_replicas.forget(partition.topic_partition)


def _leads_on(state: PartitionState, partition: Partition) -> bool:
    """Whether the leader that the replica follows leads the next epoch, too: with the same log, as no other has led in between."""
    return state.leader == partition.leader_id != NO_LEADER and state.leader_epoch == partition.leader_epoch + 1


def _is_behind(state: PartitionState, partition: Partition) -> bool:
    """Whether its leader, which is here, knows a later state: a change of the ISR of a moment ago, or the znode was put back."""
    leader = partition.leader
    if leader is None:
        return False
    return (state.leader_epoch, state.partition_epoch) < (leader.leader_epoch, leader.partition_epoch)
