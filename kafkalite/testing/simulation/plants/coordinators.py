"""Planted errors of what serves clients: requests, settings, ACLs, the coordinators of groups, share groups and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kafkalite.coordination import topic_configs
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.acl_znodes import pattern_path
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordinators.committed import CommittedAppends
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.coordinators.groups.removal import GroupRemoval
from kafkalite.coordinators.internal_log import InternalLog, _LoadedPartition
from kafkalite.coordinators.node_connection import NodeConnection
from kafkalite.coordinators.shares.coordinator import ShareCoordinator
from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
from kafkalite.kafka import broker_apis
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.verification import NO_GUARD
from kafkalite.model import TopicPartition
from kafkalite.node import kafka_services
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.testing.simulation.plants.patch import Patch


def unverified_transactions(patch: Patch) -> None:
    """KIP-890: a transaction begins on a partition whatever its coordinator knows."""
    patch(ProducerStates, "begin_verification", lambda self, producer_id, epoch, sequence, **_: NO_GUARD)
    patch(ProducerStates, "check_verified", lambda self, header, guard: None)


def uncommitted_decisions(patch: Patch) -> None:
    """A transaction coordinator serves what it has loaded before that is committed, as in Kafka."""
    load = InternalLog._load

    async def planted(self: InternalLog[Any], partition: int, begun: Any) -> None:
        self._when_committed = False
        await load(self, partition, begun)

    patch(InternalLog, "_load", planted)


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

    patch(topic_configs, "replace_config", planted)


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


def offsets_of_a_name(patch: Patch) -> None:
    """A committed offset is that of a topic's name, as in Kafka before topic ids: also of the next topic of this name."""
    patch(CommittedOffset, "is_of_another", lambda self, topic_id: False)


def missing_is_deleted(patch: Patch) -> None:
    """Offsets of a topic that the metadata lacks are forgotten, whether or not its deletion was requested (ADR 19)."""
    patch(kafka_services.NodeServices, "is_deleted", lambda self, name, topic_id: True)


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
            self._loads = {**loads, partition: _LoadedPartition(led, state, is_ready=True)}
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


def connections_that_stay(patch: Patch) -> None:
    """A connection that its peer has ended cannot be given up: nothing is asked of that node any more."""

    def planted(connection: NodeConnection[Any]) -> None:
        if connection._streams is not None:
            transport = connection._streams[1].transport
            transport.get_extra_info("socket").setsockopt(0, 0, b"")
            transport.abort()
            connection._streams = None

    patch(NodeConnection, "close", planted)


def answers_when_replaced(patch: Patch) -> None:
    """A coordinator that is cut off from its followers answers members as if nobody could have taken its place."""
    patch(InternalLog, "may_be_replaced", lambda self, target: False)


def markers_only_for_topics_that_are_there(patch: Patch) -> None:
    """The marker for a topic that has vanished is dropped as soon as that of a deleted one."""
    patch(TransactionCoordinator, "_is_deleted", lambda self, topic: True)
