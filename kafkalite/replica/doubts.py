"""Replicas that may lack committed records (ADR 16): they do not lead while a better one may return.

The controller takes them out of the ISR and the ELR as soon as it knows. If it does not know (other nodes wrote the state
after this one registered), the replica refuses to lead, and the controller learns of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, NO_OFFSET, BrokerId, TopicPartition
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.control import PartitionState
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager
    from kafkalite.log.partition_log import PartitionLog

_log = get_logger(__name__)


def must_refuse(partition: Partition, state: PartitionState) -> bool:
    """Whether this replica must not lead as commanded: the controller does not know that it may lack committed records."""
    return partition.is_doubtful and state.accepts_loss == 0


def may_be_older(log: PartitionLog, state: PartitionState) -> bool:
    """Whether the log of a replica that is in sync or eligible may be an older copy, where another disk may have a newer one: its own disk
    was away for a while, and the replica was recreated on the other. That took a new leader epoch, so this one has no record of it. And
    its disk was away when the node stopped, or it would have been set aside."""
    return not log.clean_start and log.extent[0] < state.leader_epoch and len(state.replicas) > 1


def should_have_had(state: PartitionState, broker_id: BrokerId) -> bool:
    """Whether a replica without a log was in sync or eligible, so that it has lost its log."""
    return state.leader_epoch > 0 and broker_id in (*state.isr, *state.elr)


class DoubtfulReplicas:
    """Ends doubts when the replica has caught up."""

    def __init__(self, hosted: HostedPartitions, logs: LogManager, metadata: MetadataCache) -> None:
        self._hosted = hosted
        self._logs = logs
        self._metadata = metadata
        #: Hosted, and in doubt.
        self._open: dict[TopicPartition, Partition] = {}

    def on_hosted(self, partition: Partition) -> None:
        """The replica is hosted from now on."""
        key = partition.topic_partition
        partition.is_doubtful = self._logs.pool.is_doubtful(key)
        if partition.is_doubtful:
            self._open[key] = partition
        else:
            self._open.pop(key, None)

    def end(self, partition: Partition, why: str) -> None:
        """It has caught up, or no replica has what it lacks."""
        if partition.is_doubtful:
            partition.is_doubtful = False
            self._open.pop(partition.topic_partition, None)
            self._logs.pool.doubt(partition.topic_partition, is_doubtful=False)
            _log.info("replica.trusted", partition=str(partition.topic_partition), reason=why)

    def copied(self, partition: Partition) -> None:
        """It has appended a fetch response of its leader. With all that the leader had when its epoch began, or a record of this epoch,
        it has all earlier records. Records that were committed since are below the high watermark in the response. Raises StorageError."""
        start, log = partition.epoch_start_offset, partition.log
        has_start = start is not None and NO_OFFSET != start <= log.log_end_offset
        if partition.fetch_lag == 0 and (has_start or log.last_record_epoch == partition.leader_epoch):
            if log.copying_in != NO_LEADER_EPOCH:
                log.record_copying(NO_LEADER_EPOCH)
            self.end(partition, "it has what its leader had")

    def on_metadata(self, broker_id: BrokerId) -> None:
        """A leader of older code has added it to the ISR. (That may have been meant for its earlier incarnation: a leader that answers with the
        start of its epoch is better evidence.)"""
        for key, partition in list(self._open.items()):
            if self._hosted.get(key) is not partition:
                del self._open[key]
                continue
            state = self._metadata.partition(key)
            if state is None or partition.leader is not None or broker_id in partition.isr:
                continue
            if partition.epoch_start_offset != NO_OFFSET:
                continue
            is_same = state.leader == partition.leader_id != NO_LEADER and state.leader_epoch == partition.leader_epoch
            if is_same and broker_id in state.isr:
                self.end(partition, "it has joined the ISR")


def lasting(partition: Partition) -> str:
    """For people: the replicas for which one in doubt waits."""
    others = [each for each in (*partition.isr, *partition.current_elr) if each != partition.leader_id]
    return (
        f"its log ends at {partition.log.log_end_offset} and may lack committed records; it does not lead while a replica "
        f"that has them may come back: {_named(others)}"
    )


def _named(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(str(each) for each in brokers) or "none is known"
