"""One elected epoch: one task, one inbox (invariant C21). Reads news, decides, performs effects; contains no policy.

Watches only mark what has to be read again: they fire once and coalesce, so the news is always a full snapshot, read
when its turn comes. The outcomes of a decision's effects are handled before any other news (invariant F23), and nothing is
decided between the reading of a state and the effects of the decision about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from kafkalite.config import TopicConfig
from kafkalite.controller.broker_failure_detector import BrokerFailureDetector
from kafkalite.controller.channels import Channels
from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    AskLogEnds,
    CloseChannel,
    DropLeftover,
    DropOrder,
    DropRestartRequests,
    DropVanished,
    Effect,
    KeepVanished,
    Note,
    OpenChannel,
    Post,
    ReadStates,
    RemoveDeletionRequests,
    RemovePartition,
    RemovePartitionRequests,
    RemoveReassignmentRequests,
    RemoveTopic,
    ReplyShutdown,
    RereadTopics,
    Resign,
    Send,
    WriteStates,
    WriteTopics,
)
from kafkalite.controller.decisions.events import (
    Advance,
    BalanceDue,
    BeginDraining,
    BrokersChanged,
    BrokerSuspected,
    ClusterRead,
    ControlledShutdown,
    ControlledShutdownReceived,
    ControllerElected,
    DeletionsRequested,
    Event,
    IsrsChanged,
    Limits,
    MovesDue,
    PartitionRemoved,
    PartitionsDrained,
    PreferredElection,
    Purpose,
    Repair,
    Restart,
    StatesRead,
    StatesWritten,
    Ticked,
    TopicRemoved,
    TopicsChanged,
    TopicsWritten,
)
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.isr_notices import IsrNotices
from kafkalite.controller.log_ends import LogEnds
from kafkalite.controller.sources import ADMIN, Source
from kafkalite.controller.stats import ControllerStats, FailoverPhases
from kafkalite.controller.storage import ControllerMovedError, StatesFound, Storage
from kafkalite.controller.topic_watches import TopicWatches
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import SessionExpiredError, Watch
from kafkalite.env.seams import Clock
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, TopicPartition
from kafkalite.rpc.messages.control import ControlledShutdownResponse, IsrChangedRequest, IsrChangedResponse
from kafkalite.telemetry.history import History
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

TICK_S = 5.0
#: Number of ticks after which all topic znodes are read again, to see changes made from outside.
TICKS_PER_FULL_READ = 6

#: The subject of the history of all that the balancer did.
BALANCER = "balancer"

#: Why states are written, for people.
_CAUSES: dict[type[Purpose], str] = {
    Restart: "the replica's node requested it: its disk failed, or is back",
    Repair: "brokers joined, left or changed",
    ControllerElected: "a controller was elected",
    PreferredElection: "an election was requested",
    ControlledShutdown: "a broker is being stopped",
    Advance: "a step of a reassignment",
    BeginDraining: "the partition is being removed",
}


@dataclass(frozen=True, slots=True)
class Balance:
    """auto.leader.rebalance.enable: how often to look, and how much may be out of place."""

    interval_s: float
    percentage: int


class ControllerEventLoop:
    """Runs until the session ends (SessionExpiredError) or another controller is elected (ControllerMovedError)."""

    def __init__(
        self,
        *,
        state: ControllerState,
        storage: Storage,
        channels: Callable[[Callable[[Event], None]], Channels],
        liveness: Callable[[Callable[[Event], None]], BrokerFailureDetector],
        clock: Clock,
        stats: ControllerStats,
        topic_config: Callable[[str], TopicConfig],
        limits: Callable[[], Limits],
        log_ends: LogEnds,
        balance: Balance | None,
        on_moves: Callable[[], None],
        phases: FailoverPhases,
        on_ready: Callable[[], None],
        history: History,
    ) -> None:
        self.state = state
        self._history = history
        self.ready = False
        #: Registrations that cannot be used: path -> reason.
        self._watches: dict[Source, Watch] = {}
        self.malformed_brokers: Mapping[str, str] = {}
        self.channels = channels(self.post)
        self.liveness = liveness(self.post)
        self._storage = storage
        self._clock = clock
        self._stats = stats
        self._topic_config = topic_config
        self._limits = limits
        self._log_ends = log_ends
        self._balance = balance
        self._on_moves = on_moves
        self._balance_due = float("inf") if balance is None else clock.monotonic() + balance.interval_s
        self._stale_topics: set[str] = set()
        self._topic_watches = TopicWatches(storage, lambda: self._wake.set())
        self._on_ready = on_ready
        self._wake = asyncio.Event()
        #: What has to be read -> when (monotonic seconds) that became known first.
        self._dirty: dict[Source, float] = {}
        self._posted: list[Event] = []
        self._notices = IsrNotices(storage)
        self._ticks = 0
        self._tick_due = clock.monotonic() + TICK_S
        self._shutdowns: dict[int, asyncio.Future[ControlledShutdownResponse]] = {}
        self._next_token = 0
        self._read_again = False
        self._resign_reason: str | None = None
        self._expired = False
        self._verify = False
        #: The failover that is being handled.
        self._phases: FailoverPhases | None = phases

    # --- from outside ----------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Handle this event when its turn comes. At most a few per command sent: bounded by the queues."""
        self._posted.append(event)
        self._wake.set()

    def mark(self, source: Source) -> None:
        """Something about this source may have changed."""
        self._dirty.setdefault(source, self._clock.monotonic())
        self._wake.set()

    def resign(self, reason: str) -> None:
        """There is a newer controller: resign as soon as the current step is over."""
        self._resign_reason = reason
        self._wake.set()

    def expire(self) -> None:
        """The session is over."""
        self._expired = True
        self._wake.set()

    def verify_election(self) -> None:
        """A broker says that it knows a newer controller: the next fenced write will tell; make one now."""
        self._verify = True
        self._wake.set()

    def verify_brokers(self) -> None:
        """A command met another life of its broker: look who is there."""
        self.mark(Source.BROKERS)

    def isr_changed(self, request: IsrChangedRequest, answer: asyncio.Future[IsrChangedResponse]) -> None:
        """See kafkalite.controller.isr_notices."""
        self._notices.take(self.state, request, answer)
        self._wake.set()

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> ControlledShutdownResponse:
        """Ask, and wait for the answer. Cancelled when the term ends."""
        self._next_token += 1
        token = self._next_token
        future: asyncio.Future[ControlledShutdownResponse] = asyncio.get_running_loop().create_future()
        self._shutdowns[token] = future
        self.post(ControlledShutdownReceived(broker_id, broker_epoch, token))
        try:
            return await future
        finally:
            self._shutdowns.pop(token, None)

    def close(self) -> None:
        """The term is over: nothing waits for us any more."""
        self.liveness.close()
        self.channels.close_all()
        self._notices.close()
        for token in sorted(self._shutdowns):
            self._shutdowns[token].cancel()

    # --- the task --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read everything, then handle events."""
        await self._on_controller_elected()
        while True:
            if not self._has_work():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        max(0, min(self._tick_due, self._balance_due) - self._clock.monotonic())
                    ):
                        await self._wake.wait()
            if self._clock.monotonic() >= self._tick_due:
                self._tick()
            self._wake.clear()
            await self._turn()

    def _tick(self) -> None:
        self._tick_due = self._clock.monotonic() + TICK_S
        self._ticks += 1
        if self._ticks % TICKS_PER_FULL_READ == 0:
            self._read_again = True
            for source in (Source.TOPICS, Source.RESTARTS, Source.STATES):
                self.mark(source)
        self.mark(Source.TICK)

    def _has_work(self) -> bool:
        return bool(
            self._dirty
            or self._posted
            or self._notices.is_due
            or self._resign_reason
            or self._expired
            or self._verify
            or self._topic_watches.is_due
        )

    async def _turn(self) -> None:
        """One piece of news of each kind, so that none starves the others; the most urgent first."""
        self._stats.queue_size = len(self._dirty) + len(self._posted) + self._notices.is_due
        if self._resign_reason is not None:
            raise ControllerMovedError(self._resign_reason)
        if self._expired:
            raise SessionExpiredError("the session is over")
        if self._verify:
            self._verify = False
            await self._storage.verify()
        if self._dirty:
            source = min(self._dirty)
            since = self._dirty.pop(source)
            self._stats.event_queue.add((self._clock.monotonic() - since) * 1000)
            await self._read_source(source, since)
        await self._notices.confirm()
        if changed := self._notices.changed():
            await self._handle(IsrsChanged(changed))
        if drained := self._notices.drained():
            await self._handle(PartitionsDrained(drained))
        if self._topic_watches.is_due and not self._dirty:
            stale = await self._topic_watches.arm(self.state.topics)
            if stale:
                self._stale_topics |= stale
                self.mark(Source.TOPICS)
        if self._balance is not None and self._clock.monotonic() >= self._balance_due:
            self._balance_due = self._clock.monotonic() + self._balance.interval_s
            await self._handle(BalanceDue(self._balance.percentage))
        if self._posted:
            event = self._posted.pop(0)
            if isinstance(event, BrokerSuspected) and self.state.has_broker(event.broker_id, event.broker_epoch):
                self._phases = FailoverPhases("broker", self._clock.monotonic(), detected_ms=0)
            await self._handle(event)

    def _watch(self, source: Source) -> Watch:
        """The same object every time: a path on which it is armed already does not fire twice."""
        return self._watches.setdefault(source, lambda: self.mark(source))

    async def _on_controller_elected(self) -> None:
        """Controller design D.3-9: read everything, then one event."""
        # The order of reading is that of need: who is alive, what was ordered, what there is.
        brokers, self.malformed_brokers = await self._storage.read_brokers(self._watch(Source.BROKERS))
        deletions, order_error = await self._storage.read_deletions(self._watch(Source.DELETIONS))
        leftovers = await self._storage.read_leftovers()
        vanished = await self._storage.read_vanished()
        partition_requests = await self._storage.read_partition_requests(self._watch(Source.PARTITION_ORDERS))
        topics, malformed = await self._storage.read_topics({}, self._watch(Source.TOPICS), again=True)
        assigned = [
            TopicPartition(name, number) for name in sorted(topics) for number in sorted(topics[name].assignment)
        ]
        found = await self._storage.read_states(assigned)
        states = {partition: state for partition, state in found.states.items() if state is not None}
        newest = max((state.controller_epoch for state in states.values()), default=0)
        if newest > self.state.epoch:
            raise ControllerMovedError(f"a state was written by controller epoch {newest}")
        malformed |= {paths.partition_state(partition): reason for partition, reason in found.malformed.items()}
        # A registration outlives its process by a session. A controller that is elected after a common failure, and believed it, would make
        # the dead the only ones in sync: they have not restarted since, as everybody has who is there.
        some_restarted = any(
            id_ in brokers and brokers[id_].broker_epoch > found.modified[partition]
            for partition, state in states.items()
            for id_ in state.isr
        )
        refusing = await self.liveness.refusing(brokers, some_restarted=some_restarted)
        if self._phases is not None:
            self._phases.read_ms = self._since(self._phases)
        await self._handle(
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
        )
        if order_error is not None:
            await self._handle(DeletionsRequested(deletions, order_error))
        for source in (*(each for each, admin in ADMIN.items() if not admin.is_read_at_start), Source.MOVES):
            self.mark(source)
        self._topic_watches.follow(topics)
        self.ready = True
        self._on_ready()

    async def _read_source(self, source: Source, since: float) -> None:
        match source:
            case Source.BROKERS:
                brokers, self.malformed_brokers = await self._storage.read_brokers(self._watch(Source.BROKERS))
                gone = [
                    id_
                    for id_, info in self.state.brokers.items()
                    if id_ not in brokers or brokers[id_].broker_epoch != info.broker_epoch
                ]
                if gone:
                    self._phases = FailoverPhases("broker", since)
                    self._phases.detected_ms = self._since(self._phases)
                await self._handle(BrokersChanged(brokers))
            case Source.TOPICS:
                await self._read_topics(again=self._read_again)
                self._read_again = False
            case Source.MOVES:
                names = {partition.topic for partition, _ in self.state.moves()}
                minimum = {name: self._topic_config(name).min_insync_replicas for name in sorted(names)}
                await self._handle(MovesDue(self._limits(), minimum))
                self._on_moves()
            case Source.TICK:
                await self._handle(Ticked())
            case Source.STATES:
                await self._handle(IsrsChanged(self._notices.next_to_check(self.state)))
            case _:
                admin = ADMIN[source]
                if admin.names_topics:
                    await self._read_topics(again=False)
                await self._handle(await admin.read(self._storage, self._watch(source)))

    async def _read_topics(self, *, again: bool) -> None:
        unreadable = {path.rpartition("/")[2] for path in self.state.malformed if path.startswith(paths.TOPICS + "/")}
        unreadable |= self._stale_topics
        self._stale_topics.clear()
        known = {name: topic for name, topic in self.state.topics.items() if name not in unreadable}
        topics, malformed = await self._storage.read_topics(known, self._watch(Source.TOPICS), again=again)
        await self._handle(TopicsChanged(topics, malformed))
        self._topic_watches.follow(topics)

    def _unclean(self, topics: Mapping[str, object] | set[str]) -> frozenset[str]:
        return frozenset(name for name in topics if self._topic_config(name).unclean_leader_election_enable)

    def _min_insync(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: self._topic_config(name).min_insync_replicas for name in sorted(topics)}

    def _as_read(self, found: StatesFound, purpose: Purpose, chunk: int) -> StatesRead:
        topics = {partition.topic for partition in found.states}
        return StatesRead(
            found.states,
            purpose,
            found.modified,
            found.malformed,
            self._unclean(topics),
            chunk,
            self._min_insync(topics),
        )

    def _since(self, phases: FailoverPhases) -> float:
        return (self._clock.monotonic() - phases.started) * 1000

    # --- decisions and their effects -------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        """Decide, perform, and handle the outcomes depth first."""
        pending: list[Event] = [event]
        measured = self._phases
        while pending:
            current = pending.pop(0)
            self._stats.events[type(current).__name__] += 1
            self.state, effects = decide(self.state, current)  # synchronous, hence atomic
            if measured is not None and isinstance(current, StatesRead) and measured.decided_ms < 0:
                measured.decided_ms = self._since(measured)
            outcomes = [outcome for effect in effects if (outcome := await self._perform(effect)) is not None]
            pending[:0] = outcomes
            if self._resign_reason is not None:
                raise ControllerMovedError(self._resign_reason)
        self.liveness.follow({**self.state.brokers, **self.state.suspects}, self.state.suspects)
        if measured is not None:
            self._phases = None
            self._finish(measured)

    def _finish(self, phases: FailoverPhases) -> None:
        """All commands of a failover are queued; note when they are answered."""
        phases.sent_ms = self._since(phases)
        if phases.kind == "broker":
            self.liveness.strained(phases.partitions)

        def acked() -> None:
            phases.acked_ms = self._since(phases)
            _log.info(
                "controller.failover",
                kind=phases.kind,
                partitions=phases.partitions,
                detected_ms=round(phases.detected_ms, 1),
                read_ms=round(phases.read_ms, 1),
                decided_ms=round(phases.decided_ms, 1),
                written_ms=round(phases.written_ms, 1),
                sent_ms=round(phases.sent_ms, 1),
                acked_ms=round(phases.acked_ms, 1),
            )

        if phases.kind == "broker":
            self._stats.last_broker_failover = phases
        else:
            self._stats.last_controller_failover = phases
        self.channels.when_settled(acked)

    async def _perform(self, effect: Effect) -> Event | None:
        match effect:
            case Send(broker_id, command):
                self.channels.offer(broker_id, command)
            case ReadStates(partitions, purpose, chunk):
                found = await self._storage.read_states(partitions)
                if self._phases is not None and self._phases.read_ms < 0 and isinstance(purpose, Repair):
                    self._phases.read_ms = self._since(self._phases)
                return self._as_read(found, purpose, chunk)
            case AskLogEnds(replicas, purpose, chunk):
                ends = await self._log_ends.ask(replicas, self.state.brokers)
                found = await self._storage.read_states(tuple(sorted(replicas)))
                return dataclasses.replace(self._as_read(found, purpose, chunk), log_ends=ends)
            case WriteStates():
                return await self._write(effect)
            case WriteTopics(changes):
                written, failed = await self._storage.write_topics(changes)
                return TopicsWritten(tuple(written), tuple(failed))
            case RereadTopics(topics):
                self._stale_topics |= set(topics)
                self.mark(Source.TOPICS)
                if self.state.removals:
                    self.mark(Source.PARTITION_ORDERS)
            case AdvanceReassignments():
                self.mark(Source.MOVES)
            case RemoveReassignmentRequests(done):
                await self._storage.remove_reassignment_requests(done)
            case RemovePartitionRequests(adds, removals):
                await self._storage.remove_partition_requests(adds, removals)
            case RemovePartition(partition):
                return PartitionRemoved(partition, await self._storage.remove_partition(partition))
            case OpenChannel(broker):
                self.channels.open(broker)
            case CloseChannel(broker_id):
                self.channels.close(broker_id)
            case RemoveTopic(topic, topic_id, leftover):
                return TopicRemoved(topic, await self._storage.remove_topic(topic, topic_id, leftover))
            case DropLeftover(topic_id):
                await self._storage.drop_leftover(topic_id)
            case KeepVanished(topic, vanished):
                await self._storage.keep_vanished(topic, vanished)
            case DropVanished(topic_id):
                await self._storage.drop_vanished(topic_id)
            case RemoveDeletionRequests(topics):
                await self._storage.remove_deletion_requests(topics)
            case DropOrder(path, version):
                await self._storage.drop_order(path, version)
            case DropRestartRequests(names):
                await self._storage.drop_restarts(names)
            case ReplyShutdown(token, response):
                future = self._shutdowns.get(token)
                if future is not None and not future.done():
                    future.set_result(response)
            case Post(event):
                return event
            case Note(event_name, subject, detail, is_error):
                log = _log.error if is_error else _log.info
                log(f"controller.{event_name}", subject=subject, detail=detail)
                self._history.record(subject, f"controller.{event_name}", detail)
                if event_name.startswith("balancer.") and subject != BALANCER:
                    self._history.record(BALANCER, f"controller.{event_name}", f"{subject}: {detail}")
            case Resign(reason):
                raise ControllerMovedError(reason)
            case _:
                assert_never(effect)
        return None

    async def _write(self, effect: WriteStates) -> StatesWritten:
        written, conflicts = await self._storage.write_states(effect.writes, effect.chunk)
        self._stats.unclean_elections += effect.unclean
        self._stats.leader_elections += len(written)
        cause = _CAUSES[type(effect.purpose)]
        for partition, state in written.items():
            detail = f"leader {state.leader}, epoch {state.leader_epoch}, ISR {list(state.isr)}; {cause}"
            self._history.record(str(partition), "controller.elected", detail)
        for partition in conflicts:
            self._history.record(str(partition), "controller.conflict", f"its state was changed meanwhile; {cause}")
        if self._phases is not None:
            self._phases.written_ms = self._since(self._phases)
            self._phases.partitions += len(written)
        return StatesWritten(written, tuple(conflicts), effect.purpose, effect.chunk)
