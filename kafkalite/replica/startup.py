"""Reads from ZooKeeper what a controller would send: brokers, assignments, leaders (controller design E.1-3).

So a node that starts takes its roles, and can name the leaders to clients, with no controller alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence

from kafkalite.coordination import admin_znodes, paths
from kafkalite.coordination.cluster_znodes import decode_cluster_id, decode_controller, decode_controller_epoch
from kafkalite.coordination.coordinator import Coordinator, NoNodeError
from kafkalite.coordination.registration import registered_brokers
from kafkalite.coordination.retry import side_by_side
from kafkalite.coordination.topic_znodes import TopicZnode, decode_partition_state, decode_topic
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from kafkalite.rpc.messages.control import Broker, PartitionState
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`partitions`: without those of topics whose deletion is requested: this node may have deleted its replica already, and would host it again.

    `is_complete` is False if anything could not be read or decoded, or is being deleted: then nothing may be classified as stray by it.

    `is_readable` is False only if something that is there could not be decoded.
    """

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: tuple[Broker, ...]
    partitions: tuple[PartitionState, ...]
    is_complete: bool
    is_readable: bool = True


async def read_cluster(coordinator: Coordinator) -> ClusterSnapshot:
    """All of it, pipelined. Raises the Coordinator's errors (the caller reads again)."""
    async with side_by_side() as group:
        # These two before the topics. A request leaves in the same transaction as the topic: so what is read below is not yet being deleted, or
        # named here. And a partition that was read earlier than the epoch of the controller could be older than that epoch.
        deleted = group.create_task(_being_deleted(coordinator))
        controller = group.create_task(_read_controller(coordinator))
        brokers = group.create_task(_read_brokers(coordinator))
        await asyncio.wait([deleted, controller])
        partitions, is_complete, is_readable = await _read_partitions(coordinator, deleted.result())
    return ClusterSnapshot(*controller.result(), brokers.result(), partitions, is_complete, is_readable)


async def _read_partitions(
    coordinator: Coordinator, deleted: Container[str]
) -> tuple[tuple[PartitionState, ...], bool, bool]:
    """Those that are not `deleted`, whether nothing is missing, and whether all of it could be decoded."""
    try:
        names, _ = await coordinator.children(paths.TOPICS)
    except NoNodeError:
        return (), False, True
    first, _ = await _read_topics(coordinator, names)
    keys = [TopicPartition(name, number) for name, topic in first.items() for number in sorted(topic.partitions)]
    states = await coordinator.get_many([paths.partition_state(key) for key in keys])
    # Replicas that are older than their state would stay: the controller's command names the same leader epoch. After newer ones,
    # a command with a new epoch comes.
    topics, is_readable = await _read_topics(coordinator, names)
    is_complete = is_readable and topics.keys() == set(names)
    partitions: list[PartitionState] = []
    for key, node in zip(keys, states, strict=True):
        topic = topics.get(key.topic)
        is_same = (
            topic is not None and topic.topic_id == first[key.topic].topic_id
        )  # else the state may be the former topic's
        is_deleted = key.topic in deleted
        if node is None or topic is None or not is_same or key.partition not in topic.partitions or is_deleted:
            # A controller has yet to choose its leader, or to have it deleted: not hosted, but no stray either.
            is_complete = False
            continue
        path = paths.partition_state(key)
        try:
            state = decode_partition_state(node[0], node[1].version, path)
        except ZnodeError as error:
            _log.error("znode.malformed", path=path, error=str(error))
            is_complete = is_readable = False
            continue
        partitions.append(
            PartitionState(
                key.topic,
                key.partition,
                topic.topic_id,
                state.controller_epoch,
                state.leader,
                state.leader_epoch,
                state.isr,
                state.partition_epoch,
                tuple(topic.partitions[key.partition]),
                tuple(topic.adding_replicas.get(key.partition, ())),
                tuple(topic.removing_replicas.get(key.partition, ())),
                throttle=topic.moves[key.partition].throttle if key.partition in topic.moves else 0,
                elr=state.elr,
                last_known_elr=state.last_known_elr,
                accepts_loss=0,
            )
        )
    return tuple(partitions), is_complete, is_readable


async def _being_deleted(coordinator: Coordinator) -> frozenset[str]:
    """The topics whose deletion was requested before now. What cannot be decoded is the controller's to report."""
    try:
        data, _ = await coordinator.get(paths.DELETE_TOPICS)
        names, _ = await coordinator.children(paths.DELETE_TOPICS)
    except NoNodeError:
        return frozenset()
    try:
        return frozenset([*admin_znodes.decode_delete_topics(data), *names])
    except ZnodeError:
        return frozenset(names)


async def _read_topics(coordinator: Coordinator, names: Sequence[str]) -> tuple[dict[str, TopicZnode], bool]:
    """Those that are there, and whether all of them could be decoded."""
    topics: dict[str, TopicZnode] = {}
    is_readable = True
    for name, node in zip(names, await coordinator.get_many([paths.topic(name) for name in names]), strict=True):
        if node is None:
            continue
        try:
            topics[name] = decode_topic(node[0], paths.topic(name))
        except ZnodeError as error:
            _log.error("znode.malformed", path=paths.topic(name), error=str(error))
            is_readable = False
    return topics, is_readable


async def own_topics(coordinator: Coordinator, cluster_id: str, names: Sequence[str]) -> dict[str, TopicZnode | None]:
    """The topics' znodes, None where there is none; what cannot be decoded is left out, and all of it if this is not our
    cluster's ZooKeeper (invariant F19). Raises the Coordinator's errors."""
    own, *nodes = await coordinator.get_many([paths.CLUSTER_ID, *(paths.topic(name) for name in names)])
    topics: dict[str, TopicZnode | None] = {}
    try:
        if own is None or decode_cluster_id(own[0]) != cluster_id:
            return {}
    except ZnodeError as error:
        _log.error("znode.malformed", path=paths.CLUSTER_ID, error=str(error))
        return {}
    for name, node in zip(names, nodes, strict=True):
        try:
            topics[name] = None if node is None else decode_topic(node[0], paths.topic(name))
        except ZnodeError as error:
            _log.error("znode.malformed", path=paths.topic(name), error=str(error))
    return topics


async def state_epochs(
    coordinator: Coordinator, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LeaderEpoch]:
    """The leader epochs of the partitions that have a state znode. Raises the Coordinator's errors."""
    epochs: dict[TopicPartition, LeaderEpoch] = {}
    where = [paths.partition_state(key) for key in partitions]
    found = await coordinator.get_many(where)
    async for key, path, node in with_pauses(zip(partitions, where, found, strict=True)):
        if node is None:
            continue
        try:
            epochs[key] = decode_partition_state(node[0], node[1].version, path).leader_epoch
        except ZnodeError as error:
            _log.error("znode.malformed", path=path, error=str(error))
    return epochs


async def topic_ids(coordinator: Coordinator, cluster_id: str, names: Sequence[str]) -> dict[str, TopicId]:
    """The ids of those of these topics that exist. Raises the Coordinator's errors."""
    await coordinator.sync(paths.TOPICS)
    topics = await own_topics(coordinator, cluster_id, names)
    return {name: topic.topic_id for name, topic in topics.items() if topic is not None}


async def _read_controller(coordinator: Coordinator) -> tuple[BrokerId, ControllerEpoch]:
    owner, epoch = await coordinator.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
    controller_id, controller_epoch = BrokerId(-1), ControllerEpoch(-1)
    try:
        if owner is not None:
            controller_id = decode_controller(owner[0]).broker_id
        if epoch is not None:
            controller_epoch = decode_controller_epoch(epoch[0])
    except ZnodeError as error:
        _log.error("znode.malformed", error=str(error))
    return controller_id, controller_epoch


async def _read_brokers(coordinator: Coordinator) -> tuple[Broker, ...]:
    try:
        names, _ = await coordinator.children(paths.BROKER_IDS)
    except NoNodeError:
        return ()
    ids, _strangers = paths.broker_ids(names)
    found = await coordinator.get_many([paths.broker(broker_id) for broker_id in ids])
    brokers, malformed = registered_brokers(ids, found)
    for path, reason in malformed.items():
        _log.error("znode.malformed", path=path, error=reason)
    return tuple(map(Broker.registered, brokers.values()))
