"""Who still answers: heartbeats over RPC from the controller to every broker, so that a failover need not wait for the
ZooKeeper session of the dead to end.

A suspicion is never proof, and need not be: electing another in-sync replica is safe at any time, because every write
is fenced by epoch and version and the old leader can commit nothing without its followers. What a wrong suspicion
costs is a pause; so brokers that were suspected wrongly get more patience. All of it is counted in own time: a controller
that was itself stopped, or got no processor, suspects nobody for what it has not heard meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from kafkalite.config import BrokerConfig
from kafkalite.controller.decisions.events import BrokerCleared, BrokerSuspected, Event
from kafkalite.controller.heartbeat import (
    FORGET_S,
    MAX_PATIENCE_FACTOR,
    MIN_WAIT_S,
    Dialler,
    PeerHeartbeat,
    ProbeOutcome,
)
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, BrokerInfo
from kafkalite.rpc.answers import RpcError, RpcRefused
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Time for which a suspected broker must answer each question, and at least two, before it is trusted again.
PROBATION_S = 1.0
#: A suspected broker gets more time for an answer with each question that it does not answer, up to this many times the timeout. One that is slow
#: is alive: partitions that have their only replica there get no leader before it is trusted.
MAX_SUSPECT_FACTOR = 8
#: Brokers that just took over partitions answer late: taking those away
#: again, from a node that is well, would leave them below min.insync.replicas. Duration of the extra patience, and its factor.
STRAIN_PER_PARTITION_S = 0.003
MAX_STRAIN_S = 30.0
STRAINED_FACTOR = 4
#: A broker is no longer busy after this number of responses in a row, each within this number of seconds.
CALM_ANSWERS = 10
CALM_ANSWER_S = 0.1
#: A broker that has just registered may not know its epoch yet: delay before it is asked again.
AGAIN_S = 0.03
#: How long a broker's host has, when an elected epoch begins, to say that nobody listens there.
REFUSAL_S = 0.1
#: After a heartbeat without a response the next one follows soon (seconds).
_SOON_S = 0.05


@dataclass(slots=True)
class _Watched:
    broker: BrokerInfo
    heartbeat: PeerHeartbeat
    task: asyncio.Task[None] | None = None
    is_suspected: bool = False
    #: Own time.
    heard_at: float = 0.0
    answering_since: float = 0.0
    #: Since the last question without an answer.
    answers: int = 0
    #: How many timeouts it has for an answer while it is suspected.
    suspect_factor: int = 1
    #: Quick answers in a row since the last failover.
    calm_answers: int = 0


class BrokerFailureDetector:
    """The heartbeats of one elected epoch.

    Args:
        post: takes the events.
        usable: False while our own session may be over: then nothing is suspected.
        own_id: never watched.
        last_heard: the controller before us, and when (own time) it was last heard: its silence has not begun with this epoch.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Env,
        own_time: OwnTime,
        supervisor: Supervisor,
        hello: Callable[[], HelloRequest],
        own_id: BrokerId,
        usable: Callable[[], bool],
        post: Callable[[Event], None],
        last_heard: tuple[BrokerId, float] | None = None,
    ) -> None:
        self._interval_s = config.broker_heartbeat_interval_ms / 1000
        self._timeout_s = config.broker_heartbeat_timeout_ms / 1000
        self._own_time = own_time
        self._supervisor = supervisor
        self._dialler = Dialler(env.network, supervisor, hello)
        self._own_id = own_id
        self._usable = usable
        self._post = post
        self._last_heard = last_heard
        self._watched: dict[BrokerId, _Watched] = {}
        #: Broker -> when (own time) it was suspected wrongly.
        self._wrong: dict[BrokerId, list[float]] = {}
        #: Until then (own time) brokers work off a failover.
        self._strained_until = float("-inf")

    async def refusing(
        self, registered: Mapping[BrokerId, BrokerInfo], *, some_restarted: bool = False
    ) -> frozenset[BrokerId]:
        """Of these the incarnations that have certainly ended, though they are still registered: nothing listens there any more, or a
        process that says that it is another incarnation (it waits for the old registration to go, and may have lost its disk).

        Args:
            some_restarted: members of ISRs have, so that only the others would be left of these ISRs: then answers are waited
                for until the last one, and a broker without an answer by then does not count either.
        """
        if self._timeout_s <= 0:
            return frozenset()
        found: set[BrokerId] = set()
        tasks = {
            id_: self._supervisor.spawn(
                f"controller.first_probe[{id_}]", self._probe(registered[id_], found, insist=some_restarted)
            )
            for id_ in sorted(registered)
            if id_ != self._own_id
        }
        if tasks:
            try:
                async with self._own_time.timeout(self._timeout_s if some_restarted else REFUSAL_S):
                    await asyncio.wait(tasks.values())
            except TimeoutError:
                if some_restarted:
                    found |= {id_ for id_, task in tasks.items() if not task.done()}
            for task in tasks.values():
                task.cancel()
        return frozenset(found)

    async def _probe(self, broker: BrokerInfo, found: set[BrokerId], *, insist: bool) -> None:
        """Add the broker to `found` if it is surely gone. `insist`: ask until there is an answer."""
        asked = 0
        while True:
            try:
                connection = await self._dialler.open(broker.rpc)
            except RpcRefused:
                break
            except (RpcError, ApiError):
                if not insist:
                    return
            else:
                peer = (connection.peer.node_id, connection.peer.broker_epoch)
                connection.abort("seen")
                if peer == (broker.broker_id, broker.broker_epoch):
                    return
                asked += 1
                if asked == 2:
                    break
            await asyncio.sleep(AGAIN_S)
        found.add(broker.broker_id)

    def follow(self, registered: Mapping[BrokerId, BrokerInfo], suspected: Container[BrokerId] = ()) -> None:
        """Watch exactly these brokers, in these epochs; `suspected` are those that have to answer before they are trusted."""
        if self._timeout_s <= 0:
            return
        for id_ in sorted(self._watched.keys() - registered.keys()):
            self._drop(id_)
        for id_ in sorted(registered):
            known = self._watched.get(id_)
            if id_ == self._own_id or (known is not None and known.broker == registered[id_]):
                continue
            self._drop(id_)
            heartbeat = PeerHeartbeat(self._dialler, self._own_time, id_, registered[id_].rpc)
            watched = self._watched[id_] = _Watched(registered[id_], heartbeat, is_suspected=id_ in suspected)
            watched.task = self._supervisor.spawn(f"controller.heartbeat[{id_}]", self._watch(watched))

    def strained(self, partitions: int) -> None:
        """Brokers were commanded to take over this number of partitions. A broker that refuses connections is suspected as before."""
        pause_s = min(MAX_STRAIN_S, partitions * STRAIN_PER_PARTITION_S)
        self._strained_until = max(self._strained_until, self._own_time.now() + pause_s)
        for watched in self._watched.values():
            watched.calm_answers = 0

    def close(self) -> None:
        """The elected epoch is over."""
        for id_ in sorted(self._watched):
            self._drop(id_)

    def _drop(self, id_: BrokerId) -> None:
        watched = self._watched.pop(id_, None)
        if watched is None:
            return
        assert watched.task is not None
        watched.task.cancel()
        watched.heartbeat.close("no longer watched")

    # --- one broker ------------------------------------------------------------------------------------------

    async def _watch(self, watched: _Watched) -> None:
        now = watched.heard_at = watched.answering_since = self._own_time.now()
        if self._last_heard is not None and self._last_heard[0] == watched.broker.broker_id:
            # It has an interval at least: what it did not answer were another connection's questions.
            watched.heard_at = min(now, max(self._last_heard[1], now - self._timeout_s + self._interval_s))
            self._last_heard = None
        while True:
            began = self._own_time.now()
            # When it was last heard counts, not when this question was put.
            left = max(self._due(watched) - began, MIN_WAIT_S)
            if watched.is_suspected:
                left = self._timeout_s * watched.suspect_factor
            outcome = await watched.heartbeat.beat(left)
            self._take(watched, outcome, began)
            if outcome is ProbeOutcome.REFUSED and watched.is_suspected:
                await asyncio.sleep(self._interval_s)
            elif outcome is ProbeOutcome.ANSWERED:
                await watched.heartbeat.pause(self._interval_s)
            else:
                await asyncio.sleep(min(self._interval_s, _SOON_S))

    def _take(self, watched: _Watched, outcome: ProbeOutcome, began: float) -> None:
        """The outcome of a heartbeat that was sent at `began` (own time)."""
        now = self._own_time.now()
        if outcome is ProbeOutcome.ANSWERED:
            watched.calm_answers = watched.calm_answers + 1 if now - began <= CALM_ANSWER_S else 0
            watched.heard_at = now
            watched.answers += 1
            if watched.answers == 1:
                watched.answering_since = now
            elif watched.is_suspected and now - watched.answering_since >= PROBATION_S:
                self._clear(watched, now)
            return
        refused = outcome is ProbeOutcome.REFUSED
        watched.answers = 0
        watched.suspect_factor = 1 if refused else min(MAX_SUSPECT_FACTOR, 2 * watched.suspect_factor)
        # Computed again: a failover may have begun during this request.
        if not watched.is_suspected and (refused or now >= self._due(watched)):
            self._suspect(watched, "refuses connections" if refused else "does not answer", refused=refused)

    # --- suspicion -------------------------------------------------------------------------------------------

    def _due(self, watched: _Watched) -> float:
        """When (own time) somebody who stays silent is suspected."""
        now = self._own_time.now()
        wrong = [at for at in self._wrong.get(watched.broker.broker_id, ()) if at > now - FORGET_S]
        due = watched.heard_at + self._timeout_s * min(MAX_PATIENCE_FACTOR, 1 << len(wrong))
        if watched.calm_answers >= CALM_ANSWERS:
            return due
        return max(due, min(watched.heard_at + self._timeout_s * STRAINED_FACTOR, self._strained_until))

    def _suspect(self, watched: _Watched, reason: str, *, refused: bool) -> None:
        others = [each for each in self._watched.values() if each.is_suspected]
        if not self._usable() or (not refused and 2 * (len(others) + 1) > len(self._watched) + 1):
            return  # we are more likely the partitioned side
        watched.is_suspected, watched.suspect_factor = True, 1
        broker = watched.broker
        _log.warning("broker.suspected", broker=broker.broker_id, reason=reason)
        self._post(BrokerSuspected(broker.broker_id, broker.broker_epoch, reason))

    def _clear(self, watched: _Watched, now: float) -> None:
        watched.is_suspected = False
        broker = watched.broker
        wrong = self._wrong.setdefault(broker.broker_id, [])
        wrong.append(now)
        del wrong[:-8]
        _log.warning("broker.trusted_again", broker=broker.broker_id, wrong_suspicions=len(wrong))
        self._post(BrokerCleared(broker.broker_id, broker.broker_epoch))
