"""Topics come and go. Pure (controller design B; invariants 11 and C19).

A deletion goes through these steps, each of which the next controller can take up again:
1. the request is in /admin/delete_topics: clients see that the topic is gone, every live replica is commanded to
   delete its files;
2. replicas answer;
3. all that are alive have answered: the znodes go, children first, and the name leaves the request with the topic's own znode. What
   is on dead brokers, and may be on offline disks, is recorded by topic id in the same transaction
   (kafkalite.controller.decisions.leftovers).

A topic whose znode goes without a request is not deleted (ADR 19).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kafkalite.controller.decisions import leftovers, partition_requests, reassignments, vanished
from kafkalite.controller.decisions.commands import (
    announce_changes,
    announce_deletion,
    announce_everything,
    announce_removal,
    announce_throttles,
    delete_leftovers,
    delete_replicas,
    delete_vanished,
    drop_replicas,
    keep_replicas,
)
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    Decision,
    Effect,
    Note,
    ReadStates,
    RemoveDeletionRequests,
    RemovePartitionRequests,
    RemoveTopics,
)
from kafkalite.controller.decisions.events import (
    DeletionsRequested,
    Repair,
    ReplicasStopped,
    TopicsChanged,
    TopicsRemoved,
)
from kafkalite.controller.decisions.malformed_znodes import record_malformed
from kafkalite.controller.decisions.state import ControllerState, Deletion, EndedDeletion, Topic
from kafkalite.controller.decisions.topic_writes import dropping, has_other_throttle, is_announced_again
from kafkalite.coordination import paths
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, BrokerId, LeaderAndIsr, TopicId, TopicPartition
from kafkalite.wording import number_of

#: Topics that have vanished at once and are named one by one in the log.
MAX_NAMED = 20


def on_topics_changed(state: ControllerState, event: TopicsChanged) -> Decision:
    """All topics as they are now: initialise the partitions that are new, let go of what has vanished."""
    effects: list[Effect] = []
    for path in sorted({path for path in state.malformed if _is_topic(path)} | event.malformed.keys()):
        state, notes = record_malformed(state, path, event.malformed.get(path))
        effects += notes
    # A znode that has become unreadable says nothing about its topic: keep what was known.
    unreadable = {name for name in state.topics if paths.topic(name) in event.malformed}
    # If it is being deleted, its remaining replicas are the earlier ones: the deletion goes on.
    unreadable |= {name for name in state.deletions if name not in event.topics}
    topics = {**event.topics, **{name: state.topics[name] for name in sorted(unreadable)}}
    gone_by_hand = [
        name
        for name, known in sorted(state.topics.items())
        if name not in topics or topics[name].topic_id != known.topic_id
    ]
    state, dropped = _let_go(state, gone_by_hand)
    found = _compare(state, topics)
    state, removed = _let_go_of_partitions(
        _forget_ended_drops(dataclasses.replace(state, topics=topics)), tuple(found.gone)
    )
    effects += [*dropped, *removed]
    effects += announce_changes(state, found.repeated, "Reassignment")
    effects += announce_throttles(state, found.throttled, "Reassignment")
    if found.changed:
        effects.append(ReadStates(tuple(found.changed), Repair()))
    if any(topic.moves for topic in topics.values()) or state.requested:
        effects.append(AdvanceReassignments())
    return state, effects


def _forget_ended_drops(state: ControllerState) -> ControllerState:
    """A write of ours that was not answered has ended their moves. A later move may want the files of the same broker gone."""

    def still_wanted(
        pairs: frozenset[tuple[TopicPartition, BrokerId]],
    ) -> frozenset[tuple[TopicPartition, BrokerId]]:
        return frozenset(
            (partition, broker)
            for partition, broker in pairs
            if partition.topic in state.topics and broker in dropping(state.topics[partition.topic], partition)
        )

    return dataclasses.replace(state, dropped=still_wanted(state.dropped), away=still_wanted(state.away))


@dataclass(frozen=True, slots=True)
class _Differences:
    """Partitions that have left their topics, that are new or changed, whose state is announced again, with another throttle."""

    gone: list[TopicPartition] = dataclasses.field(default_factory=list)
    changed: list[TopicPartition] = dataclasses.field(default_factory=list)
    repeated: dict[TopicPartition, tuple[LeaderAndIsr, LeaderAndIsr]] = dataclasses.field(default_factory=dict)
    throttled: list[TopicPartition] = dataclasses.field(default_factory=list)


def _compare(state: ControllerState, topics: Mapping[str, Topic]) -> _Differences:
    found = _Differences()
    for name in sorted(topics):
        before, now = state.topics.get(name), topics[name]
        # Topics that were not read again are the same objects: they cost nothing.
        if before is now or name in state.deletions:
            continue
        if before is not None:
            found.gone.extend(TopicPartition(name, each) for each in before.assignment if each not in now.assignment)
        for number in now.assignment:
            if not _has_changed(before, now, number):
                continue
            partition = TopicPartition(name, number)
            found.changed.append(partition)
            known = state.partitions.get(partition)
            if before is not None and known is not None and is_announced_again(before, now, number):
                found.repeated[partition] = (known, known)
            if before is not None and has_other_throttle(before, now, number):
                found.throttled.append(partition)
    return found


def _let_go_of_partitions(state: ControllerState, gone: tuple[TopicPartition, ...]) -> Decision:
    """They have left their topics by a removal of ours with an unknown outcome (the request names their brokers), or from outside."""
    if not gone:
        return state, []
    names = frozenset(gone)
    rest = {each: known for each, known in state.partitions.items() if each not in names}
    state = dataclasses.replace(state.without_memory_of(names.__contains__), partitions=rest)
    return state, announce_removal(state, gone, "partition.removal")


def _has_changed(before: Topic | None, now: Topic, number: int) -> bool:
    """Whether a partition is new, or was changed unseen: by hand, by a write of ours whose outcome was not known, or because the topic was
    removed and put back between two readings."""
    return (
        before is None
        or before.created != now.created
        or before.assignment.get(number) != now.assignment[number]
        or before.moves.get(number) != now.moves.get(number)
    )


def _is_topic(path: str) -> bool:
    return path.startswith(paths.TOPICS + "/") and path.count("/") == 3


def _topic_above(path: str) -> str:
    """The topic below whose znode this path is; empty: below none."""
    is_below = path.startswith(paths.TOPICS + "/") and not _is_topic(path)
    return path.removeprefix(paths.TOPICS + "/").partition("/")[0] if is_below else ""


def _let_go(state: ControllerState, names: Collection[str]) -> Decision:
    """The znodes of topics have gone, or are other topics' now, without a request to delete these topics.

    A person, a script or a failed restore can remove all of them at once. So nothing is deleted: brokers stop their
    replicas and keep them. The metadata is sent in full, because nothing says that these topics were deleted.
    """
    effects: list[Effect] = []
    for at, name in enumerate(names):
        topic = state.topics[name]
        # Ordered, and another topic has the name already: the rest of the old one is still removed.
        if name in state.deletions:
            state = leftovers.leave(state, [name])
            continue
        state, kept = vanished.remember(state, name)
        effects += kept
        if removals := tuple(each for each in state.removals if each.topic == name):
            effects.append(RemovePartitionRequests(removals=removals))  # they are not for a later topic of this name
        if at < MAX_NAMED:
            detail = f"its znode was removed from outside; its replicas are kept, topic id {topic.topic_id or 'none'}"
            effects.append(Note("topic.vanished", name, detail, is_error=True))
        effects += keep_replicas(state, name, topic.topic_id, topic.assignment, "topic.vanished")
    if len(names) > MAX_NAMED:
        effects.append(
            Note("topic.vanished", "", f"and {number_of(len(names) - MAX_NAMED, 'more topic')}", is_error=True)
        )
    if names:
        state = _forget(state, names)
        effects += announce_everything(state, "topic.vanished")
    return state, effects


def _forget(state: ControllerState, names: Collection[str]) -> ControllerState:
    gone = frozenset(names)
    return dataclasses.replace(
        _out_of_service(state, gone).without_memory_of(lambda each: each.topic in gone),
        topics={each: topic for each, topic in state.topics.items() if each not in gone},
        deletions={each: deletion for each, deletion in state.deletions.items() if each not in gone},
        malformed={path: why for path, why in state.malformed.items() if _topic_above(path) not in gone},
    )


def _out_of_service(state: ControllerState, gone: Collection[str]) -> ControllerState:
    """Without the partitions of topics, and what was under way for them."""
    return dataclasses.replace(
        state,
        removals={each: removal for each, removal in state.removals.items() if each.topic not in gone},
        dropped=frozenset(each for each in state.dropped if each[0].topic not in gone),
        away=frozenset(each for each in state.away if each[0].topic not in gone),
        partitions=_without_topics(state, gone),
    )


def _without_topics(state: ControllerState, names: Collection[str]) -> dict[TopicPartition, LeaderAndIsr]:
    left = dict(state.partitions)  # a copy is cheap; to compare every partition of the cluster is not
    for name in names:
        for number in state.topics[name].assignment:
            left.pop(TopicPartition(name, number), None)
    return left


def on_deletions_requested(state: ControllerState, event: DeletionsRequested) -> Decision:
    """Requests to delete topics. Rewriting the request does not cancel a deletion that has begun."""
    state, effects = record_malformed(state, paths.DELETE_TOPICS, event.malformed)
    state, begun = begin_deletions(state, event.topics, to=state.brokers.keys())
    effects += begun
    unknown = tuple(
        name for name in event.topics if name not in state.topics and paths.topic(name) not in state.malformed
    )
    if unknown:
        # A topic that has vanished is one of these, so that its replicas are deleted, too, and what groups have committed for it.
        effects += announce_deletion(state, unknown, "topic.deletion")
        effects += delete_vanished(state, unknown, "topic.deletion")
        state, forgotten = vanished.forget(state, unknown)
        effects += [*forgotten, RemoveDeletionRequests(unknown)]
    return state, effects


def begin_deletions(state: ControllerState, names: Collection[str], to: Collection[BrokerId]) -> Decision:
    """Take those of these topics out of service that are there, and not on their way out yet; `to`: the brokers to notify at once."""
    names = [name for name in dict.fromkeys(names) if name in state.topics and name not in state.deletions]
    if not names:
        return state, []
    waiting = {name: _hosts(state.topics[name], name) for name in names}
    for partition, removal in state.removals.items():
        if partition.topic in waiting:
            waiting[partition.topic] |= {(partition.partition, broker) for broker in removal.waiting or ()}
    begun = {name: Deletion(frozenset(hosts)) for name, hosts in waiting.items()}
    state = dataclasses.replace(_out_of_service(state, frozenset(names)), deletions={**state.deletions, **begun})
    effects: list[Effect] = [Note("topic.deletion_started", name) for name in names]
    if to:
        effects += announce_deletion(state, names, "topic.deletion")
        effects += delete_replicas(state, waiting, to, "topic.deletion")
    state, ended = _end_those_due(state, names)
    return state, [*effects, *ended]


def _hosts(topic: Topic, name: str) -> set[tuple[int, BrokerId]]:
    """The (partition, broker) pairs that may have files of a topic. A reassignment under way is over with its deletion: those replicas go
    with the others."""
    hosts = {(partition, broker) for partition, replicas in topic.assignment.items() for broker in replicas}
    return hosts | {(partition, broker) for partition, move in topic.moves.items() for broker in move.dropping}


def _end_those_due(state: ControllerState, names: Iterable[str]) -> Decision:
    """Remove the znodes of topics of which no live broker has a replica within reach any more."""
    ended: list[EndedDeletion] = []
    deletions, recorded = dict(state.deletions), 0
    for name in names:
        deletion, can_be_left = deletions[name], leftovers.can_be_left(state, name, beside=recorded)
        within_reach = deletion.waiting - deletion.away
        if deletion.removing or any(broker in state.brokers for _, broker in within_reach):
            continue
        if within_reach and not can_be_left:
            continue
        deletions[name] = dataclasses.replace(deletion, removing=True)
        # What cannot be recorded, and comes back with its disk, is kept and reported (ADR 19).
        left = tuple(sorted(deletion.waiting)) if can_be_left else ()
        recorded += bool(left)
        ended.append(EndedDeletion(name, state.topics[name].topic_id, left))
    if not ended:
        return state, []
    return dataclasses.replace(state, deletions=deletions), [RemoveTopics(tuple(ended))]


def on_replicas_stopped(state: ControllerState, event: ReplicasStopped) -> Decision:
    """A broker has removed replicas. The znodes are removed after the last live broker's."""
    if not state.has_broker(event.broker_id, event.broker_epoch):
        return state, []
    ids = event.topic_ids or (NO_TOPIC_ID,) * len(event.stopped)
    by_id: dict[TopicId, list[TopicPartition]] = {}
    stopped: list[TopicPartition] = []
    for partition, topic_id in zip(event.stopped, ids, strict=True):
        by_id.setdefault(topic_id, []).append(partition)
        topic = state.topics.get(partition.topic)
        if topic is None or NO_TOPIC_ID in (topic_id, topic.topic_id) or topic_id == topic.topic_id:
            stopped.append(partition)
    effects: list[Effect] = [
        Note("replica.deletion_failed", str(partition), f"on broker {event.broker_id}") for partition in event.failed
    ]
    answered: dict[str, list[TopicPartition]] = {}
    for partition in stopped:
        if partition.topic in state.deletions:
            answered.setdefault(partition.topic, []).append(partition)
    deletions = dict(state.deletions)
    for name, partitions in answered.items():
        deletion = deletions[name]
        gone = {(each.partition, event.broker_id) for each in partitions if each not in event.away}
        away = {(each.partition, event.broker_id) for each in partitions if each in event.away}
        deletions[name] = dataclasses.replace(
            deletion, waiting=deletion.waiting - gone, away=(deletion.away - gone) | (deletion.waiting & away)
        )
    state, ended = _end_those_due(dataclasses.replace(state, deletions=deletions), sorted(answered))
    effects += ended
    state, left = leftovers.on_stopped(state, by_id, event.away, event.broker_id)
    state, dropped = reassignments.on_replica_dropped(state, stopped, event.away, event.broker_id)
    state, removed = partition_requests.on_replicas_removed(state, tuple(stopped), event.away, event.broker_id)
    return state, [*effects, *left, *dropped, *removed]


def on_topics_removed(state: ControllerState, event: TopicsRemoved) -> Decision:
    """The end of deletions, or of an attempt at them."""
    kept = {
        name: dataclasses.replace(state.deletions[name], removing=False)
        for name in event.failed
        if name in state.deletions
    }
    state = dataclasses.replace(state, deletions={**state.deletions, **kept})
    removed = [name for name in event.removed if name in state.deletions]
    effects: list[Effect] = [Note("topic.deleted", name) for name in removed]
    if not {each.topic for each in state.requested}.isdisjoint(removed):
        effects.append(AdvanceReassignments())
    return _forget(leftovers.leave(state, removed), removed), effects


def on_tick(state: ControllerState) -> Decision:
    """Try again what did not succeed: replicas that a live broker could not delete, znodes that could not go,
    partitions that nobody leads though a replica may be alive by now."""
    effects: list[Effect] = []
    waiting = {name: deletion.waiting for name, deletion in state.deletions.items()}
    effects += delete_replicas(state, waiting, state.brokers.keys(), "topic.deletion")
    state, ended = _end_those_due(state, sorted(waiting))
    effects += ended
    state, asked = leftovers.take_turns(state)
    effects += delete_leftovers(state, state.brokers.keys(), "topic.deletion", asked)
    state, returned = vanished.forget_returned(state)
    effects += returned
    unled = tuple(without_leader(state))
    if unled:
        effects.append(ReadStates(unled, Repair()))
    effects += drop_replicas(state, reassignments.undropped(state), "Reassignment")
    if state.requested or any(topic.moves for topic in state.topics.values()):
        effects.append(AdvanceReassignments())
    state, removals = partition_requests.on_tick(state)
    return state, [*effects, *removals]


def without_leader(state: ControllerState) -> list[TopicPartition]:
    """Partitions that nobody leads, those that have no state yet because no replica was alive, and those whose replicas know a later one."""
    return [partition for partition, _ in state.assigned() if not state.has_leader(partition)]
