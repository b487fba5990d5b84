"""One elected epoch: one task, one inbox (invariant C21). Reads changes, decides, performs effects; contains no policy.

Watches only mark what has to be read again: they fire once and coalesce, so an event is always a full snapshot, read
when its turn comes. The outcomes of a decision's effects are handled before any other event (invariant F23), and nothing is
decided between the reading of a state and the effects of the decision about it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import assert_never

from kafkalite.controller.broker_failure_detector import BrokerFailureDetector
from kafkalite.controller.channels import Channels
from kafkalite.controller.cluster_reading import ClusterReader
from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    AskLogEnds,
    CloseChannel,
    CountLosses,
    DropLeftover,
    DropRestartRequests,
    DropVanished,
    Effect,
    KeepVanished,
    Note,
    OpenChannel,
    Post,
    RaiseMinInsync,
    ReadStates,
    RemoveAdminRequest,
    RemoveDeletionRequests,
    RemovePartitionRequests,
    RemovePartitions,
    RemoveReassignmentRequests,
    RemoveTopics,
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
    BrokerSuspected,
    ControlledShutdown,
    ControlledShutdownReceived,
    ControllerElected,
    Event,
    IsrsChanged,
    PartitionsDrained,
    PartitionsRemoved,
    PreferredElection,
    Purpose,
    Repair,
    Restart,
    StatesRead,
    StatesWritten,
    Ticked,
    TopicsChanged,
    TopicsRemoved,
    TopicsWritten,
)
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.inbox import Inbox
from kafkalite.controller.isr_notices import IsrNotices
from kafkalite.controller.sources import ADMIN, EventSource
from kafkalite.controller.stats import ControllerStats, FailoverPhases
from kafkalite.controller.storage import Storage
from kafkalite.controller.zk_access import ControllerMovedError
from kafkalite.coordination.coordinator import SessionExpiredError
from kafkalite.env.seams import Clock
from kafkalite.env.turns import SLICE_S, with_pauses
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId
from kafkalite.rpc.messages.control import ControlledShutdownResponse, IsrChangedRequest, IsrChangedResponse
from kafkalite.telemetry.history import History
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

TICK_S = 5.0
#: Number of ticks after which all topic znodes are read again, to see changes made from outside.
TICKS_PER_FULL_READ = 6
#: Longest time in seconds for which a node that leaves waits until the others know the new leaders: one of them may hang.
ANNOUNCED_S = 1.0

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


def _cause(purpose: Purpose) -> str:
    """Why states are written, for people: after an unclean election records may be lost, so it has a text of its own."""
    match purpose:
        case PreferredElection(_, True):
            return "an unclean election was requested"
        case PreferredElection(-1):
            return "the preferred leader is back"
    return _CAUSES[type(purpose)]


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
        inbox: Inbox,
        reader: ClusterReader,
        storage: Storage,
        channels: Channels,
        failure_detector: BrokerFailureDetector,
        clock: Clock,
        stats: ControllerStats,
        balance: Balance | None,
        on_moves: Callable[[], None],
        phases: FailoverPhases,
        history: History,
    ) -> None:
        self.state = state
        self.inbox = inbox
        self.channels = channels
        self.failure_detector = failure_detector
        self.reader = reader
        self._history = history
        self.ready = False
        self._storage = storage
        self._clock = clock
        self._stats = stats
        self._balance = balance
        self._on_moves = on_moves
        self._balance_due = float("inf") if balance is None else clock.monotonic() + balance.interval_s
        self._notices = IsrNotices(storage)
        self._ticks = 0
        #: A topic could not be written: a request for more partitions may stand, of which no watch speaks again. With the next
        #: tick, since a topic may never be writable (too large, forbidden).
        self._are_requests_due = False
        self._tick_due = clock.monotonic() + TICK_S
        self._shutdowns: dict[int, asyncio.Future[ControlledShutdownResponse]] = {}
        self._next_token = 0
        #: The failover that is being handled.
        self._phases: FailoverPhases | None = phases

    # --- from outside ----------------------------------------------------------------------------------------

    def isr_changed(self, request: IsrChangedRequest, answer: asyncio.Future[IsrChangedResponse]) -> None:
        """See kafkalite.controller.isr_notices."""
        self._notices.take(self.state, request, answer)
        self.inbox.arrived.set()

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> ControlledShutdownResponse:
        """Ask, and wait for the answer. Cancelled when the elected epoch ends."""
        self._next_token += 1
        token = self._next_token
        future: asyncio.Future[ControlledShutdownResponse] = asyncio.get_running_loop().create_future()
        self._shutdowns[token] = future
        self.inbox.post(ControlledShutdownReceived(broker_id, broker_epoch, token))
        try:
            response = await future
        finally:
            self._shutdowns.pop(token, None)
        await self._announced()
        return response

    async def _announced(self) -> None:
        """Return when all brokers have answered what they were sent so far, after ANNOUNCED_S at the latest.

        A node that leaves goes on answering until then: its clients get the new leaders from it, and others do not name it any more.
        """
        announced = asyncio.Event()
        self.channels.when_settled(announced.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANNOUNCED_S):
                await announced.wait()

    def close(self) -> None:
        """The elected epoch is over: nothing waits for us any more."""
        self.reader.close()
        self.failure_detector.close()
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
                        await self.inbox.arrived.wait()
            if self._clock.monotonic() >= self._tick_due:
                self._tick()
            self.inbox.arrived.clear()
            await self._turn()

    def _tick(self) -> None:
        self._tick_due = self._clock.monotonic() + TICK_S
        self._ticks += 1
        if self._ticks % TICKS_PER_FULL_READ == 0:
            self.reader.is_full_read_due = True
            # Requests, too: one whose write or removal was not answered fires no watch.
            for source in (EventSource.TOPICS, *ADMIN, EventSource.STATES):
                self.inbox.mark(source)
        if self._are_requests_due:
            self._are_requests_due = False
            self.inbox.mark(EventSource.PARTITION_REQUESTS)
        self.inbox.mark(EventSource.TICK)

    def _has_work(self) -> bool:
        return not self.inbox.is_empty or self._notices.is_due or self.reader.topic_watches.is_due

    async def _turn(self) -> None:
        """One event of each kind, so that none starves the others; the most urgent first."""
        inbox = self.inbox
        self._stats.queue_size = len(inbox.dirty) + len(inbox.posted) + self._notices.is_due
        if inbox.resign_reason is not None:
            raise ControllerMovedError(inbox.resign_reason)
        if inbox.is_expired:
            raise SessionExpiredError("the session is over")
        if inbox.must_verify:
            inbox.must_verify = False
            if await self._storage.verify() and inbox.latest_epoch > self.state.epoch:
                raise ControllerMovedError(
                    f"brokers follow controller epoch {inbox.latest_epoch}: ZooKeeper was put back"
                )
        if inbox.dirty:
            source = min(inbox.dirty)
            since = inbox.dirty.pop(source)
            self._stats.event_queue.add((self._clock.monotonic() - since) * 1000)
            await self._read_source(source, since)
        await self._notices.confirm()
        if changed := self._notices.changed():
            await self._handle(IsrsChanged(changed, self._notices.claims()))
        if drained := self._notices.drained():
            await self._handle(PartitionsDrained(drained))
        if self.reader.topic_watches.is_due and not inbox.dirty:
            stale = await self.reader.topic_watches.arm(self.state.topics)
            if stale:
                self.reader.stale_topics |= stale
                self.inbox.mark(EventSource.TOPICS)
        if self._balance is not None and self._clock.monotonic() >= self._balance_due:
            self._balance_due = self._clock.monotonic() + self._balance.interval_s
            await self._handle(BalanceDue(self._balance.percentage))
        if inbox.posted:
            event = inbox.posted.pop(0)
            if isinstance(event, BrokerSuspected) and self.state.has_broker(event.broker_id, event.broker_epoch):
                self._phases = FailoverPhases("broker", self._clock.monotonic(), detected_ms=0)
            await self._handle(event)

    async def _on_controller_elected(self) -> None:
        events = await self.reader.everything(self.state)
        if self._phases is not None:
            self._phases.read_ms = self._since(self._phases)
        for event in events:
            await self._handle(event)
        for source in (*(each for each, admin in ADMIN.items() if not admin.is_read_at_start), EventSource.MOVES):
            self.inbox.mark(source)
        self.ready = True
        _log.info("controller.ready", epoch=self.state.epoch)

    async def _read_source(self, source: EventSource, since: float) -> None:
        match source:
            case EventSource.BROKERS:
                event = await self.reader.brokers()
                if any(
                    id_ not in event.brokers or event.brokers[id_].broker_epoch != info.broker_epoch
                    for id_, info in self.state.brokers.items()
                ):
                    self._phases = FailoverPhases("broker", since)
                    self._phases.detected_ms = self._since(self._phases)
                await self._handle(event)
                self._on_moves()
            case EventSource.TOPICS:
                await self._handle(await self.reader.topics(self.state))
            case EventSource.MOVES:
                await self._handle(self.reader.moves(self.state))
                self._on_moves()
            case EventSource.TICK:
                await self._handle(Ticked())
            case EventSource.STATES:
                await self._handle(IsrsChanged(self._notices.next_to_check(self.state)))
            case _:
                admin = ADMIN[source]
                # The request first: a topic that it names is in what is read after it, whenever it was created.
                requested = await admin.read(self._storage, self.reader.watch(source))
                if admin.names_topics:
                    await self._handle(await self.reader.new_topics(self.state))
                await self._handle(requested)

    def _since(self, phases: FailoverPhases) -> float:
        return (self._clock.monotonic() - phases.started) * 1000

    # --- decisions and their effects -------------------------------------------------------------------------

    async def _handle(self, event: Event) -> None:
        """Decide, perform, and handle the outcomes depth first."""
        pending: list[Event] = [event]
        measured = self._phases
        began = self._clock.monotonic()
        while pending:
            if self._clock.monotonic() - began >= SLICE_S:  # decisions about thousands of partitions follow each other
                await asyncio.sleep(0)
                began = self._clock.monotonic()
            current = pending.pop(0)
            self._stats.events[type(current).__name__] += 1
            self.state, effects = decide(self.state, current)  # synchronous, hence atomic
            if measured is not None and isinstance(current, StatesRead) and measured.decided_ms < 0:
                measured.decided_ms = self._since(measured)
            outcomes = [outcome for effect in effects if (outcome := await self._perform(effect)) is not None]
            pending[:0] = outcomes
            if self.inbox.resign_reason is not None:
                raise ControllerMovedError(self.inbox.resign_reason)
        self.failure_detector.follow({**self.state.brokers, **self.state.suspects}, self.state.suspects)
        if measured is not None:
            self._phases = None
            self._finish(measured)

    def _finish(self, phases: FailoverPhases) -> None:
        """All commands of a failover are queued; note when they are answered."""
        phases.sent_ms = self._since(phases)
        if phases.kind == "broker":
            self.failure_detector.strained(phases.partitions)

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

    async def _perform(self, effect: Effect) -> Event | None:  # noqa: C901 - a case per effect
        match effect:
            case Send(broker_id, command):
                self.channels.offer(broker_id, command)
            case ReadStates():
                return await self._read(effect)
            case AskLogEnds():
                return await self.reader.log_ends(effect, self.state)
            case WriteStates():
                return await self._write(effect)
            case CountLosses(partitions):
                self._stats.unclean_elections += len(partitions)
                _log.error("controller.unclean_elections", partitions=len(partitions), first=str(partitions[0]))
            case WriteTopics(changes):
                written, failed = await self._storage.write_topics(changes)
                return TopicsWritten(tuple(written), tuple(failed))
            case RaiseMinInsync(topic, value):
                if await self._storage.raise_min_insync(topic, value):
                    self._on_moves()
            case RereadTopics(topics):
                return await self._reread(topics)
            case AdvanceReassignments():
                self.inbox.mark(EventSource.MOVES)
            case RemoveReassignmentRequests(done):
                await self._storage.remove_reassignment_requests(done)
            case RemovePartitionRequests(adds, removals):
                await self._storage.remove_partition_requests(adds, removals)
            case RemovePartitions(partitions):
                kept = await self._storage.remove_partitions(partitions)
                return PartitionsRemoved(tuple(each for each in partitions if each not in kept), tuple(sorted(kept)))
            case OpenChannel(broker):
                self.channels.open(broker)
            case CloseChannel(broker_id):
                self.channels.close(broker_id)
            case RemoveTopics(topics):
                kept_topics = await self._storage.remove_topics(topics)
                names = tuple(each.topic for each in topics)
                return TopicsRemoved(
                    tuple(name for name in names if name not in kept_topics), tuple(sorted(kept_topics))
                )
            case DropLeftover(topic_id):
                await self._storage.drop_leftover(topic_id)
            case KeepVanished(topic, vanished):
                await self._storage.keep_vanished(topic, vanished)
            case DropVanished(topic_id):
                await self._storage.drop_vanished(topic_id)
            case RemoveDeletionRequests(topics):
                await self._storage.remove_deletion_requests(topics)
            case RemoveAdminRequest(path, version):
                await self._storage.remove_admin_request(path, version)
            case DropRestartRequests(names):
                await self._storage.drop_restarts(names)
            case ReplyShutdown(token, response):
                self._reply(token, response)
            case Post(event):
                return event
            case Note():
                self._note(effect)
            case Resign(reason):
                raise ControllerMovedError(reason)
            case _:
                assert_never(effect)
        return None

    async def _read(self, effect: ReadStates) -> StatesRead:
        read = await self.reader.states(effect, self.state)
        if self._phases is not None and self._phases.read_ms < 0 and isinstance(effect.purpose, Repair):
            self._phases.read_ms = self._since(self._phases)
        return read

    async def _reread(self, topics: Collection[str]) -> TopicsChanged:
        self.reader.stale_topics |= set(topics)
        self._are_requests_due = True
        if self.state.removals:
            self.inbox.mark(EventSource.PARTITION_REQUESTS)
        return await self.reader.topics(self.state)

    def _reply(self, token: int, response: ControlledShutdownResponse) -> None:
        future = self._shutdowns.get(token)
        if future is not None and not future.done():
            future.set_result(response)

    def _note(self, note: Note) -> None:
        event = f"controller.{note.event}"
        log = _log.error if note.is_error else _log.info
        log(event, subject=note.subject, detail=note.detail)
        self._history.record(note.subject, event, note.detail, topic_id=self._topic_id(note.subject.rpartition("-")[0]))
        if note.event.startswith("balancer.") and note.subject != BALANCER:
            self._history.record(BALANCER, event, f"{note.subject}: {note.detail}")

    def _topic_id(self, name: str) -> TopicId:
        topic = self.state.topics.get(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id

    async def _write(self, effect: WriteStates) -> StatesWritten:
        written, conflicts = await self._storage.write_states(effect.writes, effect.chunk)
        self._stats.leader_elections += len(written)
        cause = _cause(effect.purpose)
        async for partition, state in with_pauses(written.items()):
            detail = f"leader {state.leader}, epoch {state.leader_epoch}, ISR {list(state.isr)}; {cause}"
            topic_id = self._topic_id(partition.topic)
            self._history.record(str(partition), "controller.elected", detail, topic_id=topic_id)
        for partition in conflicts:
            detail = f"its state was changed meanwhile; {cause}"
            topic_id = self._topic_id(partition.topic)
            self._history.record(str(partition), "controller.conflict", detail, topic_id=topic_id)
        if self._phases is not None:
            self._phases.written_ms = self._since(self._phases)
            self._phases.partitions += len(written)
        return StatesWritten(written, tuple(conflicts), effect.purpose, effect.chunk)
