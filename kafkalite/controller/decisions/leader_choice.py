"""The leader and the ISR that a partition should have, from its state znode as just read. Pure (controller design A.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial

from kafkalite.controller.decisions import elections, restarts, vanished
from kafkalite.controller.decisions.eligible import NOTHING, KnownReplicas, LogEnd, carried, members, without_doubtful
from kafkalite.controller.decisions.events import (
    BeginDraining,
    ControlledShutdown,
    PreferredElection,
    Repair,
    Restart,
    StatesRead,
)
from kafkalite.controller.decisions.state import ControllerState, Elsewhere
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, BrokerId, LeaderAndIsr, Replicas, TopicPartition


@dataclass(frozen=True, slots=True)
class Choice:
    """What a partition's state should be; None: as it is.

    ask: these replicas are asked for their log ends first; `asks_everywhere`: all other brokers, too, for logs of it. `accepts_loss`: the leader may
    lack committed records; `begins_empty`: its log is on a disk that is lost. `doubtful`: the partition waits for what these, which may lack committed records, have; or for what is `elsewhere`.
    """

    state: LeaderAndIsr | None = None
    ask: tuple[BrokerId, ...] = ()
    asks_everywhere: bool = False
    elsewhere: Elsewhere | None = None
    accepts_loss: bool = False
    begins_empty: bool = False
    doubtful: frozenset[BrokerId] = frozenset()


def first_state(
    state: ControllerState, partition: TopicPartition, replicas: Replicas, event: StatesRead
) -> LeaderAndIsr | None:
    """Of a partition that is new; None: no replica is live."""
    return elections.first_state(
        replicas,
        state.live(partition),
        state.epoch,
        min_insync=event.min_insync.get(partition.topic, 1),
        keeps_elr={id_ for id_, broker in state.brokers.items() if broker.keeps_elr},
    )


class LeaderChoice:
    """The choice of one partition's leader and ISR among what is known of its replicas.

    Args:
        found: the state to go on from: what the znode says, or what it should have said.
        event: the reading of the znode, and why it was read.
    """

    __slots__ = (
        "_doubtful", "_event", "_found", "_is_unclean", "_is_unclean_election", "_known", "_leaving", "_live", "_log_ends", "_partition", "_replicas",
        "_restarted", "_state",
    )  # fmt: skip

    def __init__(
        self,
        state: ControllerState,
        partition: TopicPartition,
        replicas: Replicas,
        found: LeaderAndIsr,
        event: StatesRead,
    ) -> None:
        self._state = state
        self._partition = partition
        self._replicas = replicas
        self._found = found
        self._event = event
        self._live = state.live(partition)
        self._leaving = state.shutting_down
        #: None if they were not asked.
        self._log_ends = None if event.log_ends is None else event.log_ends.get(partition, {})
        purpose = event.purpose
        #: An administrator accepts the loss of records, even those that a replica which comes back is known to lack.
        self._is_unclean_election = isinstance(purpose, PreferredElection) and purpose.unclean
        self._is_unclean = self._is_unclean_election or partition.topic in event.unclean_topics
        self._known = KnownReplicas(
            min_insync=event.min_insync.get(partition.topic, 1),
            keeps_elr={id_ for id_, broker in state.registered() if broker.keeps_elr},
            is_unclean=self._is_unclean,
        )
        modified = event.modified.get(partition)
        bounced = purpose.bounced if isinstance(purpose, Repair) else ()
        #: They registered after the state was written, and may have come back with less than they had.
        self._restarted = {
            id_
            for id_, broker in state.registered()
            if (modified is not None and broker.broker_epoch > modified) or id_ in bounced
        }
        self._doubtful = {id_ for id_ in members(found) if self._is_doubtful(id_)}

    def choose(self, *, is_put_back: bool) -> Choice:
        """`is_put_back`: the znode was put back from an earlier time, and has to be written in any case."""
        if self._log_ends:
            # ZooKeeper was put back: no replica leads in an epoch that its log has already.
            latest = max(epoch for epoch, _ in self._log_ends.values())
            self._found = dataclasses.replace(self._found, leader_epoch=max(self._found.leader_epoch, latest))
        found, known = self._found, self._known
        choice = self._leader_and_isr()
        if choice.state is None and is_put_back and not choice.ask:
            # In a new leader epoch, by which all its replicas learn the znode's version.
            choice = Choice(elections.with_epoch(found, found.leader, found.isr, self._state.epoch))
        if choice.state is None or choice.doubtful:
            return choice
        silent = {id_ for id_ in self._restarted if id_ not in known.keeps_elr}
        gone = self._doubtful | silent | self._state.offline_replicas.get(self._partition, frozenset())
        return dataclasses.replace(choice, state=carried(found, choice.state, self._replicas, known, gone))

    def choose_most_complete(self) -> Choice:
        """The znode was put back from an earlier time, and no leader knows which replicas were in sync later. It stays as it is until
        enough replicas have reported their log ends, or all brokers that may have a log have: later replicas may be others. `found` has the later epoch."""
        event, partition, replicas = self._event, self._partition, self._replicas
        if event.log_ends is None or partition not in event.log_ends:
            ask = tuple(replica for replica in replicas if replica in self._live)
            return Choice(ask=ask, asks_everywhere=not self._is_unclean)
        if event.leading.get(partition, NO_LEADER_EPOCH) >= self._found.leader_epoch:
            return Choice()  # it reports what it knows
        if any(replica in event.unanswered for replica in replicas) and not self._is_unclean:
            return Choice()  # it may be leading; either it answers the next time, or its session ends
        heard = {id_: end for id_, end in event.log_ends[partition].items() if id_ in self._live}
        choose = partial(
            vanished.most_complete,
            replicas,
            self._found,
            self._state.epoch,
            heard,
            doubtful={
                *(id_ for id_, broker in self._state.registered() if broker.doubts(partition)),
                *event.doubtful.get(partition, ()),  # since it registered: a log was cut, or came back with less
            },
            min_insync=self._known.min_insync,
        )
        wanted, is_lossy = choose(unclean=self._is_unclean)
        if not self._is_unclean:
            elsewhere = self._elsewhere(heard, awaits_all=wanted is None)
            if elsewhere is not None and (wanted is None or elsewhere.holders):
                # A replica takes a log that it has set aside into service only where nobody leads.
                is_led = any(id_ in replicas for id_ in elsewhere.holders)
                found = event.states[partition] if is_led else None
                state = None if found is None else elections.without_leader(found, self._state.epoch)
                return Choice(state, elsewhere=elsewhere)
            if wanted is None:  # nobody has more
                wanted, is_lossy = choose(unclean=True)
        return Choice(wanted, accepts_loss=is_lossy)

    def _leader_and_isr(self) -> Choice:
        """The ELR follows from them."""
        kept = without_doubtful(self._found, self._doubtful)
        if kept is self._found and self._doubtful and (choice := self._after_doubt()) is not None:
            return choice
        live, restarted = self._usable(kept)
        # Nobody leads, and one that had every committed record has lost some. The next one may have lost some, too, and the logs may know more than this
        # state. A refused election would say so, but in an epoch that may have hidden it (ADR 78).
        if kept.leader == NO_LEADER and kept.last_known_elr and not self._is_unclean:
            if self._log_ends is None and any(id_ in live for id_ in members(kept)):
                return Choice(
                    ask=tuple(id_ for id_ in self._replicas if id_ in self._state.brokers), asks_everywhere=True
                )
            live = [id_ for id_ in live if id_ in (self._log_ends or {}) or id_ not in self._known.keeps_elr]
        if silent := self._silent(kept, live):
            return self._wait_for(kept, silent)
        if self._is_unclean and (choice := self._before_unclean(kept, live)) is not None:
            return choice
        repaired = self._repair(kept, live, restarted, unclean=self._is_unclean)
        if (
            self._is_unclean_election
            and (repaired or self._found).leader == NO_LEADER
            and (given_up := self._given_up())
        ):
            return given_up
        if repaired is None:
            return Choice(self._as_requested(live))
        # Where nobody else surely has more, the lead stays.
        repaired = self._repaired_as_requested(repaired, [id_ for id_ in live if id_ not in restarted])
        return Choice(repaired, accepts_loss=repaired.leader not in (NO_LEADER, *members(kept)))

    def _before_unclean(self, kept: LeaderAndIsr, live: Collection[BrokerId]) -> Choice | None:
        """Where no member is alive, the most complete replica is elected: those that are alive are asked, if there are several."""
        if self._log_ends is not None or any(id_ in live for id_ in members(kept)):
            return None
        alive = tuple(id_ for id_ in self._replicas if id_ in live)
        return Choice(ask=alive) if len(alive) > 1 else None

    def _after_doubt(self) -> Choice | None:
        """No replica is left that surely has every committed record; None: none that had them once is alive."""
        complete_once = elections.known_members(self._replicas, self._found)
        asked = [id_ for id_ in complete_once if id_ in self._state.brokers]
        if self._log_ends is None and asked:
            ask = tuple(id_ for id_ in self._replicas if id_ in self._state.brokers)
            return Choice(ask=ask, asks_everywhere=not self._is_unclean)
        ends = self._log_ends or {}
        if len(asked) == 1 and not ends:  # it runs older code, perhaps, and nobody else has answered
            ends = {asked[0]: NOTHING}
        # A replica that is offline for the controller may be back with more than it is chosen by; or it knows that it has nothing.
        heard = {id_: end for id_, end in ends.items() if id_ in self._live or end == NOTHING}
        if not self._is_unclean:
            waiting = Choice(
                elections.without_leader(self._found, self._state.epoch), doubtful=frozenset(self._doubtful)
            )
            if self._unknown({*self._doubtful, *complete_once}, heard):
                return waiting
            elsewhere = self._elsewhere(heard)
            if elsewhere is not None:
                return dataclasses.replace(waiting, elsewhere=elsewhere)
        chosen = elections.after_loss(self._replicas, self._found, self._live, self._leaving, self._state.epoch, ends)
        return None if chosen is None else Choice(chosen, accepts_loss=True)

    def _elsewhere(self, heard: Mapping[BrokerId, LogEnd], *, awaits_all: bool = False) -> Elsewhere | None:
        """The brokers that may have more than the replicas that have answered; None if there are none.

        If the replicas that were in sync have no record, the partition waits for all replicas, unless two of them (or the only one) prove that their empty
        logs were there before. If no replica has a record, or such a proof, or `awaits_all`, it waits for all brokers: the one with the records may be
        the last to start.
        """
        most = max(heard.values(), default=NOTHING)
        logs = self._event.elsewhere.get(self._partition, {})
        holders = sorted(id_ for id_, end in logs.items() if end > most)
        awaited: set[BrokerId] = set()
        members_once = [heard.get(id_, NOTHING) for id_ in elections.known_members(self._replicas, self._found)]
        is_proven = sum(end > NOTHING for end in members_once) >= min(2, len(self._replicas))
        if awaits_all or not (is_proven or any(offset for _, offset in members_once)):
            awaited.update(self._replicas)
        if awaits_all or most <= NOTHING:
            answered = (
                self._state.brokers.keys() - self._event.unanswered - self._event.incomplete - set(self._replicas)
            )
            awaited |= {*self._event.known_brokers, *self._state.brokers} - answered
        awaited -= {id_ for id_, each in self._state.registered() if not each.keeps_elr}
        silent = self._unknown(sorted(awaited), heard)
        return Elsewhere(tuple(holders), tuple(silent)) if holders or silent else None

    def _given_up(self) -> Choice | None:
        """An administrator gives up what is only in logs on disks that are lost: one of these replicas begins again, and leads. Not while a broker is away
        that was in sync: it would cut its log to nothing."""
        if any(id_ not in self._state.brokers for id_ in elections.known_members(self._replicas, self._found)):
            return None
        lost = self._state.offline_replicas.get(self._partition, frozenset()) & self._state.brokers.keys()
        candidates = [id_ for id_ in self._replicas if id_ in lost]
        if not candidates:
            return None
        leader = min(candidates, key=lambda id_: id_ in self._leaving)
        state = elections.with_epoch(self._found, leader, [leader], self._state.epoch)
        return Choice(state, accepts_loss=True, begins_empty=True)

    def _usable(self, kept: LeaderAndIsr) -> tuple[Collection[BrokerId], Collection[BrokerId]]:
        """The live brokers that may be chosen, and those that have restarted, without what was dropped from the state as doubtful."""
        if kept is self._found:
            return self._live, self._restarted
        dropped = set(members(self._found)) - set(members(kept))
        restarted = self._restarted - dropped
        if self._is_unclean_election:
            return self._live, restarted
        lost = {id_ for id_ in dropped if not self._is_unclean or self._lacks(id_)}
        return [id_ for id_ in self._live if id_ not in lost], restarted

    def _wait_for(self, kept: LeaderAndIsr, silent: frozenset[BrokerId]) -> Choice:
        """No election: the silent replicas may be gone, and the others lack what those have. A silent leader stays."""
        live = silent if kept.leader in silent else frozenset[BrokerId]()
        restarted = live if kept.leader in self._restarted else frozenset[BrokerId]()
        repaired = self._repair(kept, live, restarted, unclean=False)
        if repaired is not None:
            return Choice(repaired)
        return Choice(self._as_requested(live & {self._found.leader}))

    def _repair(
        self,
        kept: LeaderAndIsr,
        live: Collection[BrokerId],
        restarted: Collection[BrokerId],
        *,
        unclean: bool,
    ) -> LeaderAndIsr | None:
        epoch = self._state.epoch
        repaired = elections.repair(
            self._replicas,
            kept,
            live,
            self._leaving,
            epoch,
            restarted=restarted,
            unclean=unclean,
            log_ends=self._log_ends,
        )
        if repaired is None and kept is not self._found:
            changed = elections.with_epoch(self._found, kept.leader, kept.isr, epoch)
            if kept.leader == self._found.leader == NO_LEADER:
                # A log that has this epoch shows that ZooKeeper was put back: it stays visible.
                changed = dataclasses.replace(changed, leader_epoch=self._found.leader_epoch)
            return changed
        return repaired

    def _repaired_as_requested(self, repaired: LeaderAndIsr, able: Collection[BrokerId]) -> LeaderAndIsr:
        """What the purpose asks of a state that is repaired by the same write."""
        match self._event.purpose:
            case PreferredElection() if self._replicas[0] in repaired.isr and self._replicas[0] in able:
                return dataclasses.replace(repaired, leader=self._replicas[0])
            case ControlledShutdown() if len(self._replicas) > 1:
                stopped = elections.shut_down(self._replicas, repaired, able, self._leaving, self._state.epoch)
                if stopped is not None:
                    return dataclasses.replace(repaired, leader=stopped.leader, isr=stopped.isr)
        return repaired

    def _as_requested(self, live: Collection[BrokerId]) -> LeaderAndIsr | None:
        """What the purpose asks of a state that needs no repair."""
        found, epoch = self._found, self._state.epoch
        match self._event.purpose:
            case Restart() as purpose:
                return restarts.restarted(self._state, self._partition, found, purpose)
            case PreferredElection(_, unclean) if not unclean:
                return elections.preferred(self._replicas, found, live, epoch)
            case ControlledShutdown(broker_id) if len(self._replicas) > 1 and broker_id in found.isr:
                return elections.shut_down(self._replicas, found, live, self._leaving, epoch)
            case BeginDraining() if found.leader in live:
                return elections.with_epoch(found, found.leader, found.isr, epoch)
        return None

    def _is_doubtful(self, broker_id: BrokerId) -> bool:
        """Whether a live broker may lack committed records that it had when it became a member: its registration says so, if that
        is newer than the state; or it has refused to lead in this epoch because of that."""
        broker = self._state.brokers.get(broker_id)
        if broker is None:
            return False
        if broker_id in self._restarted and broker.doubts(self._partition):
            return True
        if broker_id in self._event.doubtful.get(self._partition, ()):  # it was asked
            return True
        # Older code does not report what it may have lost when it comes back, and makes a log on a dead disk again, empty.
        if broker_id in self._found.elr and broker_id not in self._known.keeps_elr:
            return True
        return self._state.doubts.get(self._partition, {}).get(broker_id, -1) >= self._found.leader_epoch

    def _unknown(self, asked: Collection[BrokerId], heard: Collection[BrokerId]) -> list[BrokerId]:
        """Those that have not said where their logs end, and may have more than the others: a disk that is offline can come back, and so can
        a broker that is away or does not answer. One whose log is gone says that it has nothing."""
        return [id_ for id_ in asked if id_ not in heard]

    def _lacks(self, broker_id: BrokerId) -> bool:
        broker = self._state.brokers.get(broker_id)
        return broker is not None and broker.lacks(self._partition)

    def _silent(self, kept: LeaderAndIsr, live: Collection[BrokerId]) -> frozenset[BrokerId]:
        """The brokers that are registered and silent, if none that is in sync or eligible is heard of: only the end of their sessions
        takes from them what nobody else has."""
        suspects = self._state.suspects
        if not suspects or any(id_ in live for id_ in members(kept)):
            return frozenset()
        offline = self._state.offline_replicas.get(self._partition, frozenset())
        return frozenset(id_ for id_ in members(kept) if id_ in suspects and id_ not in offline)
