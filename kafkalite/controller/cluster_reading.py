"""Reads what the controller knows from ZooKeeper, and makes events of it. Decides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from kafkalite.config import TopicConfig
from kafkalite.controller.broker_failure_detector import BrokerFailureDetector
from kafkalite.controller.decisions.effects import AskLogEnds, ReadStates
from kafkalite.controller.decisions.events import (
    BrokersChanged,
    ClusterRead,
    DeletionsRequested,
    MovesDue,
    Purpose,
    ReassignmentLimits,
    StatesRead,
    TopicsChanged,
)
from kafkalite.controller.decisions.partition_changes import with_unknown_epochs
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.inbox import Inbox
from kafkalite.controller.log_ends import LogEnds
from kafkalite.controller.sources import EventSource
from kafkalite.controller.storage import StatesFound, Storage
from kafkalite.controller.topic_watches import TopicWatches
from kafkalite.controller.zk_access import ControllerMovedError
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Watch
from kafkalite.coordination.retry import side_by_side
from kafkalite.model import TopicPartition


class ClusterReader:
    """Reading for one elected epoch.

    Args:
        topic_config: a topic's effective configuration.
        limits: how many reassignments may be under way, by the settings of now.
    """

    def __init__(
        self,
        storage: Storage,
        inbox: Inbox,
        failure_detector: BrokerFailureDetector,
        log_ends: LogEnds,
        *,
        topic_config: Callable[[str], TopicConfig],
        limits: Callable[[], ReassignmentLimits],
    ) -> None:
        self._storage = storage
        self._inbox = inbox
        self._failure_detector = failure_detector
        self._log_ends = log_ends
        self._topic_config = topic_config
        self._limits = limits
        self._watches: dict[EventSource, Watch] = {}
        self.topic_watches = TopicWatches(storage, inbox.arrived.set)
        #: Registrations that cannot be used: path -> reason.
        self.malformed_brokers: Mapping[str, str] = {}
        #: Topics whose znodes are to be read again.
        self.stale_topics: set[str] = set()
        #: All topic znodes are to be read again, to see changes made from outside.
        self.is_full_read_due = False

    def watch(self, source: EventSource) -> Watch:
        """The same object every time: a path on which it is armed already does not fire twice."""
        return self._watches.setdefault(source, lambda: self._inbox.mark(source))

    def close(self) -> None:
        """The elected epoch is over. The session may go on, and would keep all of this as long as the znodes do not change."""
        self._storage.forget([*self._watches.values(), *self.topic_watches.watches()])

    async def everything(self, state: ControllerState) -> list[ClusterRead | DeletionsRequested]:
        """Controller design D.3-9: read everything, then one event; and one more if the deletions cannot be read.

        Raises ControllerMovedError, SessionExpiredError.
        """
        # On a host without a free processor each answer of ZooKeeper takes a second: side by side, what no other reading depends on. Then
        # the topics, which live brokers host and requests name.
        storage = self._storage
        async with side_by_side() as group:
            registered = group.create_task(storage.read_brokers(self.watch(EventSource.BROKERS)))
            requested = group.create_task(storage.read_deletions(self.watch(EventSource.DELETIONS)))
            left = group.create_task(storage.read_leftovers())
            missing = group.create_task(storage.read_vanished())
            changing = group.create_task(storage.read_partition_requests(self.watch(EventSource.PARTITION_REQUESTS)))
        brokers, self.malformed_brokers = registered.result()
        deletions, unreadable = requested.result()
        leftovers, vanished, partition_requests = left.result(), missing.result(), changing.result()
        topics, malformed = await self._storage.read_topics({}, self.watch(EventSource.TOPICS), again=True)
        assigned = [
            TopicPartition(name, number) for name in sorted(topics) for number in sorted(topics[name].assignment)
        ]
        found = await self._storage.read_states(assigned)
        states = {partition: each for partition, each in found.states.items() if each is not None}
        newest = max((each.controller_epoch for each in states.values()), default=0)
        if newest > state.epoch:
            raise ControllerMovedError(f"a state was written by controller epoch {newest}")
        malformed |= {paths.partition_state(partition): reason for partition, reason in found.malformed.items()}
        # A registration outlives its process by a session. A controller that is elected after a common failure, and believed it, would make
        # the dead the only ones in sync: they have not restarted since, but every live broker has.
        some_restarted = any(
            id_ in brokers and brokers[id_].broker_epoch > found.modified[partition]
            for partition, each in states.items()
            for id_ in each.isr
        )
        refusing = await self._failure_detector.refusing(brokers, some_restarted=some_restarted)
        events: list[ClusterRead | DeletionsRequested] = [
            ClusterRead(
                brokers={id_: info for id_, info in brokers.items() if id_ not in refusing},
                suspects={id_: info for id_, info in brokers.items() if id_ in refusing},
                topics=topics,
                states=states,
                modified=found.modified,
                malformed=malformed,
                deletions=deletions,
                unclean_topics=self._unclean(topics),
                removals=partition_requests.removals,
                leftovers=leftovers,
                vanished=vanished,
                min_insync=self._min_insync(topics),
            )
        ]
        if unreadable is not None:
            events.append(DeletionsRequested(deletions, unreadable))
        self.topic_watches.follow(topics)
        return events

    async def brokers(self) -> BrokersChanged:
        """All registrations."""
        brokers, self.malformed_brokers = await self._storage.read_brokers(self.watch(EventSource.BROKERS))
        return BrokersChanged(brokers)

    async def topics(self, state: ControllerState) -> TopicsChanged:
        """Topics that are new, stale or malformed; all of them when a full read is due."""
        again, self.is_full_read_due = self.is_full_read_due, False
        return await self._topics(state, again=again)

    async def _topics(self, state: ControllerState, *, again: bool) -> TopicsChanged:
        unreadable = {path.rpartition("/")[2] for path in state.malformed if path.startswith(paths.TOPICS + "/")}
        unreadable |= self.stale_topics
        self.stale_topics.clear()
        known = {name: topic for name, topic in state.topics.items() if name not in unreadable}
        topics, malformed = await self._storage.read_topics(known, self.watch(EventSource.TOPICS), again=again)
        self.topic_watches.follow(topics)
        return TopicsChanged(topics, malformed)

    async def new_topics(self, state: ControllerState) -> TopicsChanged:
        """Topics that an administrator's request may name before they were heard of."""
        return await self._topics(state, again=False)

    def moves(self, state: ControllerState) -> MovesDue:
        """The limits of the reassignments under way."""
        names = {partition.topic for partition, _ in state.moves()}
        return MovesDue(self._limits(), self._min_insync(names))

    async def states(self, read: ReadStates, state: ControllerState) -> StatesRead:
        """The state znodes of these partitions."""
        found = await self._storage.read_states(read.partitions)
        return await self._as_read(found, read.purpose, read.chunk, state)

    async def log_ends(self, ask: AskLogEnds, state: ControllerState) -> StatesRead:
        """The states, and where the logs of these replicas end."""
        answers = await self._log_ends.ask(ask, state.brokers)
        found = await self._storage.read_states(tuple(sorted(ask.replicas)))
        known = await self._storage.known_brokers() if ask.everywhere else ()
        return dataclasses.replace(
            await self._as_read(found, ask.purpose, ask.chunk, state),
            log_ends=answers.ends,
            leading=answers.leading,
            unanswered=frozenset(answers.unanswered),
            doubtful=answers.doubtful,
            elsewhere=answers.elsewhere,
            incomplete=frozenset(answers.incomplete),
            known_brokers=frozenset(known),
        )

    async def _as_read(self, found: StatesFound, purpose: Purpose, chunk: int, state: ControllerState) -> StatesRead:
        topics = {partition.topic for partition in found.states}
        suspects = with_unknown_epochs(state, found.states)
        changed = await self._storage.changed_topics({name: state.topics[name] for name in suspects})
        return StatesRead(
            found.states,
            purpose,
            found.modified,
            found.malformed,
            self._unclean(topics),
            chunk,
            self._min_insync(topics),
            changed_topics=changed,
        )

    def _unclean(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in topics if self._topic_config(name).unclean_leader_election_enable)

    def _min_insync(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: self._topic_config(name).min_insync_replicas for name in sorted(topics)}
