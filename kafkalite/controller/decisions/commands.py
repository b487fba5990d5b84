"""The commands that follow from a state: at most one per kind and broker for one decision (controller design A.4, B). Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kafkalite.controller.decisions.effects import Effect, Send
from kafkalite.controller.decisions.elections import NOT_CREATED
from kafkalite.controller.decisions.eligible import members
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import (
    EPOCH_DURING_DELETE,
    NO_LEADER,
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    BrokerId,
    LeaderAndIsr,
    Replicas,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages.control import (
    ALL_OF_A_VANISHED_TOPIC,
    Broker,
    LeaderAndIsrRequest,
    PartitionState,
    StopPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)


def _brokers(state: ControllerState) -> tuple[Broker, ...]:
    return tuple(Broker.registered(state.brokers[broker]) for broker in sorted(state.brokers))


def _entry(
    state: ControllerState, partition: TopicPartition, leader_and_isr: LeaderAndIsr, *, is_new: bool = False
) -> PartitionState:
    topic = state.topics[partition.topic]
    number = partition.partition
    move, removal = topic.moves.get(number), state.removals.get(partition)
    return PartitionState(
        topic=partition.topic,
        partition=number,
        topic_id=topic.topic_id,
        controller_epoch=leader_and_isr.controller_epoch,
        leader=leader_and_isr.leader,
        leader_epoch=leader_and_isr.leader_epoch,
        isr=leader_and_isr.isr,
        partition_epoch=leader_and_isr.partition_epoch,
        replicas=topic.assignment[number],
        adding_replicas=topic.adding.get(number, ()),
        removing_replicas=topic.removing.get(number, ()),
        is_new=is_new,
        throttle=0 if move is None else move.throttle,
        is_read_only=removal is not None,
        elr=leader_and_isr.elr,
        last_known_elr=leader_and_isr.last_known_elr,
        accepts_loss=state.accepts_loss(partition, leader_and_isr),
    )


def _entry_without_state(state: ControllerState, partition: TopicPartition) -> PartitionState:
    """A partition that has no state znode yet, as metadata shows it: without a leader, and with an empty ISR.

    Producers and coordinators compute a partition from a key. They need the number of all partitions, not only of those
    that have a leader.
    """
    topic = state.topics[partition.topic]
    number = partition.partition
    return PartitionState(
        topic=partition.topic,
        partition=number,
        topic_id=topic.topic_id,
        controller_epoch=state.epoch,
        leader=NO_LEADER,
        leader_epoch=NO_LEADER_EPOCH,
        isr=(),
        partition_epoch=NOT_CREATED,
        replicas=topic.assignment[number],
        adding_replicas=topic.adding.get(number, ()),
        removing_replicas=topic.removing.get(number, ()),
        is_new=False,
        throttle=0,
        is_read_only=False,
    )


def _without_state(
    state: ControllerState, changes: Mapping[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]]
) -> list[PartitionState]:
    """The partitions without a state of the topics that get states of new partitions by these changes."""
    topics = sorted({partition.topic for partition, (before, _) in changes.items() if before is None})
    return [
        _entry_without_state(state, partition)
        for topic in topics
        for number in state.topics[topic].assignment
        if (partition := TopicPartition(topic, number)) not in state.partitions
        and partition not in changes
        and partition not in state.removals
    ]


def _leader_and_isr(
    state: ControllerState, broker: BrokerId, entries: Iterable[PartitionState], cause: str, *, is_init: bool = False
) -> Send:
    request = LeaderAndIsrRequest(
        controller_id=state.broker_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[broker].broker_epoch,
        is_init=is_init,
        partitions=tuple(entries),
        brokers=_brokers(state),
        cause=cause,
    )
    return Send(broker, request)


def _update_metadata(
    state: ControllerState,
    broker: BrokerId,
    entries: tuple[PartitionState, ...],
    cause: str,
    *,
    is_full: bool = False,
    deleted_topics: tuple[str, ...] = (),
    deleted_partitions: tuple[TopicPartition, ...] = (),
) -> Send:
    request = UpdateMetadataRequest(
        controller_id=state.broker_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[broker].broker_epoch,
        is_full=is_full,
        brokers=_brokers(state),
        partitions=entries,
        deleted_topics=deleted_topics,
        cause=cause,
        deleted_partitions=tuple((each.topic, each.partition) for each in deleted_partitions),
    )
    return Send(broker, request)


def announce_changes(
    state: ControllerState,
    changes: Mapping[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]],
    cause: str,
) -> list[Effect]:
    """Send states that are in ZooKeeper now to the brokers that they concern.

    Args:
        changes: partition -> (what the brokers were sent last, the present state).
    Returns:
        LeaderAndIsr to the live replicas of partitions with a new leader epoch (an ISR that the leader itself
        changed leaves the epoch alone), except to those that a leaving broker has stopped; then UpdateMetadata of all changes to every live broker. It names all partitions
        of a topic from the beginning, also those that have no state yet.
    """
    for_broker: dict[BrokerId, list[PartitionState]] = {}
    entries: list[PartitionState] = []
    for partition in sorted(changes):
        before, now = changes[partition]
        entry = _entry(state, partition, now, is_new=before is None and now.leader_epoch == 0)
        entries.append(entry)
        if before is None or before.leader_epoch != now.leader_epoch:
            concerned = {*now.isr, now.leader, *(() if before is None else (*before.isr, before.leader))}
            for replica in entry.replicas:
                # A leaving broker that is out of the ISR has stopped its replica: it would fetch itself back in (invariant F16).
                if replica in state.brokers and (replica not in state.shutting_down or replica in concerned):
                    for_broker.setdefault(replica, []).append(entry)
    effects: list[Effect] = [_leader_and_isr(state, broker, for_broker[broker], cause) for broker in sorted(for_broker)]
    if entries:
        reported = (*entries, *_without_state(state, changes))
        effects += [_update_metadata(state, broker, reported, cause) for broker in sorted(state.brokers)]
    return effects


def announce_throttles(state: ControllerState, partitions: Iterable[TopicPartition], cause: str) -> list[Effect]:
    """Send the leaders the present throttles of these partitions, whose states are as they were."""
    by_leader: dict[BrokerId, list[PartitionState]] = {}
    for partition in sorted(partitions):
        known = state.partitions.get(partition)
        if known is not None and known.leader in state.brokers:
            by_leader.setdefault(known.leader, []).append(_entry(state, partition, known))
    return [_leader_and_isr(state, broker, by_leader[broker], cause) for broker in sorted(by_leader)]


def announce_brokers(state: ControllerState, to: Collection[BrokerId], cause: str) -> list[Effect]:
    """Send the list of live brokers, and no partitions."""
    return [_update_metadata(state, broker, (), cause) for broker in sorted(to)]


def initialise(state: ControllerState, brokers: Collection[BrokerId], cause: str) -> list[Effect]:
    """Everything that brokers which have just come must know (controller design C.3, D.5).

    First what they have to remove for a deletion under way (else the next command would make it stray), then INIT
    LeaderAndIsr with all that they host, then the full metadata. The INIT flag is left out where the controller
    does not know all that the broker hosts (a malformed znode, a partition without a state): a broker must
    not set replicas aside because of what the controller cannot see (invariant F19).
    """
    hosted: dict[BrokerId, list[PartitionState]] = {broker: [] for broker in brokers}
    incomplete: set[BrokerId] = set(brokers) if state.malformed else set()
    entries: list[PartitionState] = []
    for partition, replicas in state.assigned():
        known = state.partitions.get(partition)
        if known is None:
            incomplete.update(replica for replica in replicas if replica in hosted)
            if partition not in state.removals:
                entries.append(_entry_without_state(state, partition))
            continue
        entry = _entry(state, partition, known, is_new=_is_first(state, known))
        entries.append(entry)
        for replica in replicas:
            if replica in hosted:
                # One outside of the ISR may have copied since, and have lost that.
                is_new = entry.is_new and replica in members(known)
                hosted[replica].append(dataclasses.replace(entry, is_new=is_new))
    effects: list[Effect] = []
    waiting = {name: deletion.waiting for name, deletion in state.deletions.items()}
    for broker in sorted(hosted):
        effects += delete_replicas(state, waiting, [broker], cause)
        effects += delete_leftovers(state, [broker], cause)
        effects += delete_partitions(state, broker, cause)
        effects.append(_leader_and_isr(state, broker, hosted[broker], cause, is_init=broker not in incomplete))
        if broker in state.shutting_down:
            effects += pause_replicas(state, broker, cause)
    return [*effects, *_announce_all(state, hosted, entries, cause)]


def _is_first(state: ControllerState, known: LeaderAndIsr) -> bool:
    """Whether this controller has made the partition's first state, and nobody has changed it: no replica has lost a log of it. A broker that
    dies, or has restarted, leaves the ISR or leads in a new epoch before it gets a command."""
    return known.leader_epoch == 0 and known.partition_epoch == 0 and known.controller_epoch == state.epoch


def announce_everything(state: ControllerState, cause: str) -> list[Effect]:
    """Send all partitions to every live broker. The others leave the metadata, but nothing says that they were deleted."""
    entries = [
        _entry(state, each, state.partitions[each]) if each in state.partitions else _entry_without_state(state, each)
        for each, _ in state.assigned()
        if each in state.partitions or each not in state.removals
    ]
    return _announce_all(state, state.brokers, entries, cause)


def _announce_all(
    state: ControllerState, to: Collection[BrokerId], entries: Iterable[PartitionState], cause: str
) -> list[Effect]:
    everything, gone = tuple(entries), tuple(sorted(state.deletions))
    return [
        _update_metadata(state, broker, everything, cause, is_full=True, deleted_topics=gone) for broker in sorted(to)
    ]


def delete_replicas(
    state: ControllerState,
    replicas: Mapping[str, Collection[tuple[int, BrokerId]]],
    to: Collection[BrokerId],
    cause: str,
) -> list[Effect]:
    """StopReplica with deletion, one per live broker of `to`, for the (partition, broker) pairs of each topic in `replicas`."""
    by_broker: dict[BrokerId, list[StopPartition]] = {}
    for topic in sorted(replicas):
        topic_id = state.topics[topic].topic_id
        for partition, broker in sorted(replicas[topic]):
            if broker in to and broker in state.brokers:
                stop = StopPartition(topic, partition, topic_id, EPOCH_DURING_DELETE, delete_files=True)
                by_broker.setdefault(broker, []).append(stop)
    return [_stop(state, broker, by_broker[broker], cause) for broker in sorted(by_broker)]


def delete_partitions(state: ControllerState, broker: BrokerId, cause: str) -> list[Effect]:
    """What a broker has to remove of topics that stay: partitions removed from them, replicas that a move took away."""
    stops = [
        StopPartition(each.topic, each.partition, _topic_id(state, each), EPOCH_DURING_DELETE, delete_files=True)
        for each in sorted(state.removals)
        if broker in (state.removals[each].waiting or ()) and each.topic in state.topics
    ]
    effects: list[Effect] = [_stop(state, broker, stops, cause)] if stops else []
    dropping = [(each, broker) for each, move in state.moves() if broker in move.dropping]
    return [*effects, *drop_replicas(state, dropping, cause)]


def drop_replicas(state: ControllerState, drops: Iterable[tuple[TopicPartition, BrokerId]], cause: str) -> list[Effect]:
    """StopReplica with deletion for (partition, broker) pairs that are not in the AR any more.

    It carries the present leader epoch: a replica that has been commanded in a later one since is not removed by it.
    """
    by_broker: dict[BrokerId, list[StopPartition]] = {}
    for partition, broker in drops:
        known = state.partitions.get(partition)
        if broker in state.brokers and known is not None and broker not in (state.replicas(partition) or ()):
            stop = StopPartition(
                partition.topic, partition.partition, _topic_id(state, partition), known.leader_epoch, delete_files=True
            )
            by_broker.setdefault(broker, []).append(stop)
    return [_stop(state, broker, by_broker[broker], cause) for broker in sorted(by_broker)]


def announce_removal(state: ControllerState, partitions: tuple[TopicPartition, ...], cause: str) -> list[Effect]:
    """Send every live broker that these partitions are gone for clients."""
    return [
        _update_metadata(state, broker, (), cause, deleted_partitions=partitions) for broker in sorted(state.brokers)
    ]


def _stop(state: ControllerState, broker: BrokerId, partitions: Iterable[StopPartition], cause: str) -> Send:
    request = StopReplicaRequest(
        controller_id=state.broker_id,
        controller_epoch=state.epoch,
        broker_epoch=state.brokers[broker].broker_epoch,
        partitions=tuple(partitions),
        cause=cause,
    )
    return Send(broker, request)


def pause_replicas(state: ControllerState, broker: BrokerId, cause: str) -> list[Effect]:
    """StopReplica without deletion for what a leaving broker follows, so that it does not fetch itself back in (invariant F16)."""
    stops = [
        StopPartition(
            partition.topic, partition.partition, _topic_id(state, partition), known.leader_epoch, delete_files=False
        )
        for partition, replicas in state.assigned()
        if broker in replicas
        and (known := state.partitions.get(partition)) is not None
        and known.leader != broker
        and broker not in known.isr
    ]
    return [_stop(state, broker, stops, cause)] if stops else []


def _topic_id(state: ControllerState, partition: TopicPartition) -> TopicId:
    return state.topics[partition.topic].topic_id


def announce_deletion(state: ControllerState, topics: Collection[str], cause: str) -> list[Effect]:
    """Send every live broker that these topics are gone for clients."""
    gone = tuple(sorted(topics))
    return [_update_metadata(state, broker, (), cause, deleted_topics=gone) for broker in sorted(state.brokers)]


def keep_replicas(
    state: ControllerState, topic: str, topic_id: TopicId, assignment: Mapping[int, Replicas], cause: str
) -> list[Effect]:
    """StopReplica without deletion for a topic whose znode has vanished without a request (ADR 19)."""
    by_broker: dict[BrokerId, list[StopPartition]] = {}
    for partition in sorted(assignment):
        for broker in assignment[partition]:
            if broker in state.brokers:
                stop = StopPartition(topic, partition, topic_id, EPOCH_DURING_DELETE, delete_files=False)
                by_broker.setdefault(broker, []).append(stop)
    return [_stop(state, broker, by_broker[broker], cause) for broker in sorted(by_broker)]


def delete_vanished(state: ControllerState, topics: Collection[str], cause: str) -> list[Effect]:
    """StopReplica with deletion for all replicas that brokers have kept of these topics. The topics are not in ZooKeeper any
    more, and a request deletes them for good."""
    stops = [
        StopPartition(topic, ALL_OF_A_VANISHED_TOPIC, NO_TOPIC_ID, EPOCH_DURING_DELETE, delete_files=True)
        for topic in sorted(topics)
    ]
    return [_stop(state, broker, stops, cause) for broker in sorted(state.brokers)] if stops else []


def delete_leftovers(
    state: ControllerState, to: Collection[BrokerId], cause: str, topic_ids: Collection[TopicId] | None = None
) -> list[Effect]:
    """StopReplica with deletion for replicas of deleted topics (None: of all) that live brokers still have."""
    by_broker: dict[BrokerId, list[StopPartition]] = {}
    chosen = state.leftovers.keys() if topic_ids is None else topic_ids
    for topic_id in sorted(chosen):
        leftover = state.leftovers[topic_id]
        for partition, broker in sorted(leftover.waiting):
            if broker in to and broker in state.brokers:
                stop = StopPartition(leftover.topic, partition, topic_id, EPOCH_DURING_DELETE, delete_files=True)
                by_broker.setdefault(broker, []).append(stop)
    return [_stop(state, broker, by_broker[broker], cause) for broker in sorted(by_broker)]
