"""Replicas that are offline, and when one may be recreated on another disk of this node (KIP-18, invariant F28).

An empty replica must never count as in sync. So the controller takes the replica out of the ISR first, in a new leader
epoch; only a command of that epoch, or of a later one, lets it restart, as a follower that catches up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kafkalite.errors import StorageError
from kafkalite.model import NO_LEADER, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.control import BEGINS_EMPTY, PartitionState

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager


def refusal(state: PartitionState, broker_id: BrokerId, *, own_epoch: LeaderEpoch) -> str:
    """Why a replica must not restart empty under `state`; "" if it may. Pure.

    Args:
        own_epoch: the last leader epoch whose command this replica carried out. Under that epoch its leader may have
            taken it into the ISR since: only a later one proves that it is out, as nobody gets in without fetching.
    """
    if state.accepts_loss == BEGINS_EMPTY and state.leader == broker_id and state.leader_epoch > own_epoch:
        return ""  # an administrator has given up what it had
    if state.isr == (broker_id,):
        return "it is the only in-sync replica: no other replica has all its records"
    if state.leader_epoch <= own_epoch or broker_id in state.isr or broker_id in state.elr:
        return "the controller is asked to remove it from the ISR"
    if state.leader == NO_LEADER:
        return "the partition has no leader to copy from"
    return ""


class Healing(Protocol):
    """Self-healing of disks (`admin.disk_healing`)."""

    def report(self, topic_partition: TopicPartition, *, online: bool) -> None:
        """Ask the controller to take an offline replica out of the ISR (False), or say that a replica that it may hold
        for offline can lead (True)."""

    def schedule(self) -> None:
        """Something has changed for offline replicas."""


class OfflineReplicas:
    """What was last commanded for each offline replica."""

    def __init__(
        self, logs: LogManager, identity: Callable[[], tuple[BrokerId, BrokerEpoch]], healing: Healing
    ) -> None:
        self._logs = logs
        self._identity = identity
        self._healing = healing
        self.commanded: dict[TopicPartition, PartitionState] = {}
        self.restarts = 0

    def on_command(self, partition: Partition, state: PartitionState) -> None:
        """A command came for an offline replica: it is carried out when that is possible."""
        key = partition.topic_partition
        known = self.commanded.get(key)
        if known is None or (known.leader_epoch, known.partition_epoch) <= (state.leader_epoch, state.partition_epoch):
            self.commanded[key] = state

    def forget(self, key: TopicPartition) -> None:
        """The replica is no longer offline, or not here any more."""
        self.commanded.pop(key, None)

    def refusal(self, partition: Partition, state: PartitionState) -> str:
        """Why the offline replica cannot restart now under `state`; "" if it can."""
        log = self._logs.get(partition.topic_partition)
        if log is partition.log:
            return f"{log.directory} is being checked"
        if log is not None:
            return ""  # its disk is back, and what it had was loaded
        return refusal(
            state, self._identity()[0], own_epoch=partition.leader_epoch
        ) or self._logs.failures.restart_refusal(partition.topic_partition)

    def standing(self, partition: Partition) -> str:
        """For people: what an offline replica waits for."""
        state = self.commanded.get(partition.topic_partition)
        if state is None:
            waits = "the controller is asked to remove it from the ISR"
        else:
            waits = self.refusal(partition, state) or "it will be recreated"
        failed = self._logs.pool.failed(partition.topic_partition)
        if failed is None:
            return waits
        waits += f"; its files are kept in {failed.path}"
        if failed.needs_operator:
            return f"{waits}, and opened again by `admin disk online`: it is not trusted after a failed fsync or damage"
        return f"{waits}, and checked again periodically (the last time: {failed.reason})"

    def is_last_copy(self, partition: Partition) -> bool:
        """Whether no other replica is in sync, or eligible, as far as this node knows."""
        state = self.commanded.get(partition.topic_partition)
        if state is None or partition.leader is not None:
            complete = {*partition.current_isr, *partition.current_elr}
        else:
            complete = {*state.isr, *state.elr}
        return complete == {self._identity()[0]}

    def restore_refusal(self, partition: Partition) -> str:
        """Why a log that was set aside cannot take the place of the offline replica's; "" if it can.

        It may be older than what the ISR has. So this replica has to be out of the ISR, or its only member.
        """
        if partition.storage_error is None:
            return "the replica here is in service"
        state = self.commanded.get(partition.topic_partition)
        complete = set() if state is None else {*state.isr, *state.elr}
        if state is None or (self._identity()[0] in complete and len(complete) > 1):
            return "the controller has not yet removed the replica from the ISR: retry soon"
        return ""

    def ask_again(self, partition: Partition) -> None:
        """Repeat the request of an offline replica that the controller has not answered."""
        state = self.commanded.get(partition.topic_partition)
        if state is None or refusal(state, self._identity()[0], own_epoch=partition.leader_epoch):
            self._healing.report(partition.topic_partition, online=False)

    def can_lead(self, partition: Partition) -> None:
        """A partition without a leader has this sound replica in sync, or had it once: the controller may not know that it is sound, and back."""
        self._healing.report(partition.topic_partition, online=True)

    def may_have_lost(self, key: TopicPartition, state: PartitionState) -> StorageError | None:
        """For a replica without a log here: whether that log is likely to be on a disk that is offline.

        Kafka's rule: a replica that is not new is missing, and a directory is dead; or, which Kafka does not see, was
        replaced by an empty one. Outside the ISR it may restart empty; but not while nobody leads, where the log on a disk that can come
        back may be the most complete one.
        """
        offline = self._logs.pool.offline_partitions.get(key)
        suspect = offline or self._logs.opening.may_miss_logs()
        if state.is_new or not suspect or (state.accepts_loss == BEGINS_EMPTY and state.leader == self._identity()[0]):
            return None
        known = (*state.isr, *state.elr, state.leader)
        if offline and state.leader == NO_LEADER:
            known = (*known, *state.last_known_elr)
        if self._identity()[0] not in known:
            return None
        return StorageError(
            f"{key}: its log is missing and may have been on {suspect}, which is offline, was replaced or lost a log",
            directory=suspect,
        )
