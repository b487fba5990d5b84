"""What this node knows of the whole cluster, from the controller's UpdateMetadata: for clients' metadata requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafkalite.model import (
    NO_BROKER_EPOCH,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    TopicId,
    TopicPartition,
)
from kafkalite.replica.deleted_topics import DeletedTopics
from kafkalite.rpc.messages.control import Broker, PartitionState, UpdateMetadataRequest


class MetadataCache:
    """Applied whole requests only; every reader sees the state between two of them.

    Attributes:
        version: grows with every change, for callers that cache an encoding.
        broker_epochs: of the live brokers.
        deleted: topics whose deletion was reported, or whose name another topic has.
    """

    def __init__(self) -> None:
        self.version = 0
        self.controller_id = BrokerId(-1)
        self.controller_epoch = ControllerEpoch(-1)
        self.broker_epochs: dict[BrokerId, BrokerEpoch] = {}
        self.deleted = DeletedTopics()
        self._is_complete = False
        self._brokers: dict[BrokerId, Broker] = {}
        #: The same, by id.
        self._live: tuple[Broker, ...] = ()
        self._topics: dict[str, dict[int, PartitionState]] = {}
        self._names: dict[TopicId, str] = {}
        self._waiters: list[asyncio.Future[None]] = []
        #: Called with topics that the controller says are deleted (not of those that a full request merely lacks).
        self.on_topics_deleted: Callable[[tuple[str, ...]], None] = lambda topics: None
        #: The same for partitions that were removed from their topics.
        self.on_partitions_removed: Callable[[tuple[TopicPartition, ...]], None] = lambda partitions: None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever learnt."""
        return self.version == 0

    @property
    def is_complete(self) -> bool:
        """Whether the whole cluster was ever learnt: before that a topic that is missing here may exist."""
        return self._is_complete

    def apply(self, request: UpdateMetadataRequest) -> bool:
        """Take over a request; the caller has checked its epochs. Returns whether the live brokers changed."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        before = self._topics
        if request.is_full:
            self._is_complete = True
            self._topics = {}
            self._names = {}
            self.deleted.heard_everything()
        for topic in request.deleted_topics:
            topic_id = NO_TOPIC_ID
            for state in before.pop(topic, {}).values():
                topic_id = state.topic_id
                self._names.pop(topic_id, None)
            self.deleted.add(topic, topic_id)
        for topic, number in request.deleted_partitions:
            self._topics.get(topic, {}).pop(number, None)
        for state in request.partitions:
            partitions = self._topics.setdefault(state.topic, {})
            known = partitions.get(state.partition)
            if known is not None and known.topic_id != state.topic_id:  # deleted and created again (invariant F18)
                self._names.pop(known.topic_id, None)
                self.deleted.add_id(known.topic_id)
                partitions.clear()
            partitions[state.partition] = state
            self.deleted.is_there(state.topic, state.topic_id)
            if state.topic_id != NO_TOPIC_ID:
                self._names[state.topic_id] = state.topic
        if request.is_full:
            self._note_replaced(before)
        epochs = {broker.broker_id: broker.broker_epoch for broker in request.brokers}
        is_changed = epochs != self.broker_epochs
        self._brokers = {broker.broker_id: broker for broker in request.brokers}
        self._sort_brokers()
        self.broker_epochs = epochs
        self._notify()
        if request.deleted_topics:
            self.on_topics_deleted(request.deleted_topics)
        if request.deleted_partitions:
            self.on_partitions_removed(tuple(TopicPartition(*each) for each in request.deleted_partitions))
        return is_changed

    def _note_replaced(self, before: Mapping[str, Mapping[int, PartitionState]]) -> None:
        """A topic whose name another one has now was deleted, even if this node did not hear of it: the controller was replaced meanwhile."""
        for name, partitions in before.items():
            topic_id = self.topic_id(name)
            known = next((state.topic_id for state in partitions.values()), topic_id)
            if topic_id not in (known, NO_TOPIC_ID):
                self.deleted.add_id(known)

    def learn_brokers(self, brokers: tuple[Broker, ...]) -> bool:
        """Brokers named by a command: later broker epochs replace what is known, no broker is forgotten. Returns whether any was new."""
        is_changed = False
        for broker in brokers:
            if broker.broker_epoch > self.broker_epochs.get(broker.broker_id, NO_BROKER_EPOCH):
                self._brokers[broker.broker_id] = broker
                self.broker_epochs[broker.broker_id] = broker.broker_epoch
                is_changed = True
        if is_changed:
            self._sort_brokers()
            self._notify()
        return is_changed

    def _sort_brokers(self) -> None:
        """Once for each change: every request for metadata asks for them."""
        self._live = tuple(self._brokers[broker_id] for broker_id in sorted(self._brokers))

    def brokers(self) -> tuple[Broker, ...]:
        """The live ones, by id."""
        return self._live

    def broker(self, broker_id: BrokerId) -> Broker | None:
        return self._brokers.get(broker_id)

    def rack_of(self, broker_id: BrokerId) -> str | None:
        """The rack of a live broker, if it is in one."""
        found = self.broker(broker_id)
        return None if found is None else found.rack

    def rpc_endpoint(self, broker_id: BrokerId) -> Endpoint | None:
        """Where a live broker listens for other nodes."""
        broker = self._brokers.get(broker_id)
        return Endpoint(broker.rpc_host, broker.rpc_port) if broker is not None else None

    def topic(self, name: str) -> dict[int, PartitionState] | None:
        """Partition number -> state; not to be changed by the caller."""
        return self._topics.get(name)

    def topic_id(self, name: str) -> TopicId:
        """NO_TOPIC_ID if the topic is unknown or has none."""
        for state in self._topics.get(name, {}).values():
            return state.topic_id
        return NO_TOPIC_ID

    def topic_name(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        return self._topics.get(topic_partition.topic, {}).get(topic_partition.partition)

    def all_topics(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted(self._topics))

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [other for other in self._waiters if not other.done()]
        self._waiters.append(waiter)
        return waiter

    def _notify(self) -> None:
        self.version += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
