"""What must hold in every simulated cluster, looked at from outside the product.

`ZkChecker` sees every transaction that ZooKeeper commits. `ReplicaChecker` sees the replicas at intervals, and reads
their logs. `History` holds the responses that clients got. Each raises Violation with a sentence that names what broke.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from kafkalite.coordination.coordinator import Create, Delete, Op, SetData
from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulation.checkers.log_view import BatchView

_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state$")

Partition = tuple[str, int]


class Violation(Exception):
    """A promise is broken. The message says which, and with what."""


def _broken(promise: str, detail: str) -> Violation:
    return Violation(f"{promise}: {detail}")


def _demand(holds: bool, promise: str, detail: str) -> None:  # noqa: FBT001 - like assert
    if not holds:
        raise _broken(promise, detail)


def _last_offset(batch: BatchView) -> int:
    return batch.last_offset


# --- ZooKeeper -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateZnode:
    """A partition's state znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, int, tuple[int, ...]]:
        """What clients are shown of it: leader, leader epoch, ISR."""
        return self.leader, self.leader_epoch, self.isr


class ZkChecker:
    """Follows the committed transactions.

    Args:
        read: data of a znode as it is now, None if it is not there.
    """

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self.states: dict[Partition, StateZnode] = {}
        self.controller_epoch = 0
        #: (partition, leader epoch) -> who led.
        self._leaders: dict[tuple[Partition, int], int] = {}
        #: Topic -> its znode, as last written.
        self._topics: dict[str, dict[str, Any]] = {}
        #: The same of topics whose znode is gone: if it returns, its replicas have been in sync before.
        self._vanished: dict[str, dict[str, Any]] = {}
        #: Members of the AR that have been in the ISR since they joined it: who of these is missing, is so by a fault.
        self._settled: dict[Partition, set[int]] = {}
        self._latest_epochs: dict[Partition, int] = {}
        #: Whose states are from an earlier time, until somebody leads in a later epoch than this one.
        self._put_back: dict[Partition, int] = {}
        #: Whose states a shell has put back as they were, until somebody leads in a later epoch: nodes cannot know that they are not from earlier.
        self._returned: dict[Partition, int] = {}
        #: Replicas that have said, when they were to lead, that they may lack committed records.
        self._refusing: set[tuple[int, Partition]] = set()
        self.changes = 0

    @property
    def present_states(self) -> dict[Partition, StateZnode]:
        """All but those that were put back from an earlier time."""
        return {each: state for each, state in self.states.items() if each not in self._put_back}

    @staticmethod
    def touches_states(ops: Iterable[Op]) -> bool:
        """Whether a transaction changes a partition's state."""
        return any(isinstance(op, Create | SetData | Delete) and _STATE.match(op.path) for op in ops)

    def committed(self, zxid: int, host: str, ops: Iterable[Op]) -> None:
        """One transaction, after it was applied."""
        before = dict(self.states)
        written: dict[str, None] = {}
        for op in ops:
            if isinstance(op, Create | SetData):
                if op.path == "/controller_epoch":
                    self._controller_epoch(int(op.data))
                elif found := _STATE.match(op.path):
                    self._state((found[1], int(found[2])), op.data, f"by {host or 'a shell'} in zxid {zxid}")
            elif isinstance(op, Delete) and (found := _STATE.match(op.path)):
                self.states.pop((found[1], int(found[2])), None)
            if found := _TOPIC.fullmatch(getattr(op, "path", "")):
                self._forget_removed(found[1])
                written[found[1]] = None
        for topic in written:
            self._assigned(topic, before, f"by {host or 'a shell'} in zxid {zxid}")

    def _assigned(self, topic: str, before: dict[Partition, StateZnode], where: str) -> None:
        """A topic's znode was written: a step of a move lets nobody go for whom nobody has come (invariants C14 to C16)."""
        old = self._topics.pop(topic, None) or self._vanished.pop(topic, None)
        data = self._read(f"/brokers/topics/{topic}")
        if data is None:
            if old is not None:
                self._vanished[topic] = old
            return
        new = self._topics[topic] = json.loads(data)
        same = old is not None and old.get("topic_id") == new.get("topic_id")
        for number, replicas in new["partitions"].items():
            partition = (topic, int(number))
            earlier = old["partitions"].get(number) if old is not None and same else None
            if earlier is None:
                known = self.states.get(partition)
                self._settled[partition] = set() if known is None else set(known.isr)
                continue
            settled = self._settled.setdefault(partition, set())
            settled &= set(replicas)
            was, state = before.get(partition), self.states.get(partition)
            if old is None or was is None or state is None or set(earlier) <= set(replicas):
                continue
            move = old.get("moves", {}).get(number, {})
            least = min(len(move.get("origin", earlier)), len(move.get("target", replicas)))
            detail = f"{topic}-{number} {earlier} -> {replicas}, {was} -> {state}, {move} {where}"
            _demand(len(replicas) >= least, "a move never has fewer replicas than before it or after it", detail)
            excused = settled - set(was.isr)
            _demand(
                len(state.isr) + len(excused) >= min(least, len(was.isr)),
                "a move costs no redundancy without a fault",
                f"{detail}; out of sync by faults: {sorted(excused)}",
            )

    def _forget_removed(self, topic: str) -> None:
        """What comes later under the name of a partition that has left its topic is another one: its epochs start again."""
        data = self._read(f"/brokers/topics/{topic}")
        left = set() if data is None else {int(number) for number in json.loads(data)["partitions"]}
        self._leaders = {
            key: leader for key, leader in self._leaders.items() if key[0][0] != topic or key[0][1] in left
        }

    def _controller_epoch(self, epoch: int) -> None:
        _demand(epoch >= self.controller_epoch, "controller epoch goes up", f"{self.controller_epoch} -> {epoch}")
        self.controller_epoch = epoch

    def _state(self, partition: Partition, data: bytes, where: str) -> None:
        text = json.loads(data)
        elr, last = tuple(text.get("elr", ())), tuple(text.get("last_known_elr", ()))
        new = StateZnode(text["leader"], text["leader_epoch"], tuple(text["isr"]), text["controller_epoch"], elr, last)
        old = self.states.get(partition)
        detail = f"{partition} {old} -> {new} {where}"
        self.changes += 1
        self._note_epoch(partition, new.leader_epoch, is_shell="by a shell" in where)
        is_put_back = partition in self._put_back
        # The replica with the most leads then (ADR 78).
        has_returned = is_put_back or partition in self._returned
        _demand(bool(new.isr), "the ISR is never empty", detail)
        _demand(len(set(new.isr)) == len(new.isr), "the ISR names each replica once", detail)
        _demand(new.leader == -1 or new.leader in new.isr, "the leader is in the ISR", detail)
        _demand(not set(new.elr) & set(new.isr), "who is eligible is not in the ISR", detail)
        assigned = self._assignment(partition)
        # A partition that is being removed has left the topic's znode; its leader may not have heard of that.
        is_going = not assigned and old is not None and (new.leader, new.leader_epoch) == (old.leader, old.leader_epoch)
        _demand(is_going or set(new.isr) <= assigned, "the ISR is within the AR", f"{detail}; AR {sorted(assigned)}")
        if old is not None:
            _demand(new.leader_epoch >= old.leader_epoch, "the leader epoch goes up", detail)
            _demand(new.controller_epoch >= old.controller_epoch, "a partition's controller epoch goes up", detail)
            moved = new.leader != old.leader
            _demand(not moved or new.leader_epoch > old.leader_epoch, "a new leader has a new epoch", detail)
            clean = new.leader == -1 or new.leader in (*old.isr, *old.elr)
            # Everybody has lost its power: the most complete log leads (also at once after one that refuses to lead).
            clean = clean or (not old.elr and new.leader in old.last_known_elr)
            # The same, and a replica outside of the ISR has more than those (ADR 78). What becomes of the records is checked elsewhere.
            clean = clean or self.are_all_in_doubt(partition, old)
            _demand(
                clean or not moved or has_returned, "only a member of the ISR or an eligible replica is elected", detail
            )
            known_to_have = set(old.isr) | set(old.elr)
            _demand(set(new.elr) <= known_to_have, "only who was in sync or eligible is eligible", detail)
        # (A person with a shell puts back what was there.)
        if (old is None and "by a shell" not in where) or (old is not None and new.leader_epoch != old.leader_epoch):
            # Invariant F4: a controller that moves leaders has checked, in the same transaction, that it is still the controller.
            _demand(new.controller_epoch == self.controller_epoch, "only the present controller moves leaders", detail)
        if new.leader != -1 and not is_put_back:
            known = self._leaders.setdefault((partition, new.leader_epoch), new.leader)
            _demand(known == new.leader, "one leader per epoch", detail)
        self.states[partition] = new
        self._settled.setdefault(partition, set()).update(new.isr)
        if new.leader != -1 and new.leader_epoch > self._put_back.get(partition, new.leader_epoch):
            del self._put_back[partition]
        if new.leader != -1 and new.leader_epoch > self._returned.get(partition, new.leader_epoch):
            del self._returned[partition]

    def logged(self, broker: int, event: dict[str, Any]) -> None:
        """A line of a node's log: of a replica that may lack committed records, and that of its end."""
        if event.get("event") in ("replica.refuses_to_lead", "replica.trusted"):
            topic, _, number = event["partition"].rpartition("-")
            replica = (broker, (topic, int(number)))
            if event["event"] == "replica.trusted":
                self._refusing.discard(replica)
            else:
                self._refusing.add(replica)

    def are_all_in_doubt(self, partition: Partition, state: StateZnode) -> bool:
        """Whether no replica that may lead knows that it has all committed records."""
        return all(self._is_in_doubt(member, partition) for member in (*state.isr, *state.elr))

    def _is_in_doubt(self, broker: int, partition: Partition) -> bool:
        """Whether the broker's registration says that its log may lack committed records, or is gone; or its replica has refused to lead."""
        if (broker, partition) in self._refusing:
            return True
        data = self._read(f"/brokers/ids/{broker}")
        registration = {} if data is None else json.loads(data)
        name, number = partition
        return any(number in registration.get(what, {}).get(name, ()) for what in ("doubtful", "missing"))

    def _note_epoch(self, partition: Partition, epoch: int, *, is_shell: bool) -> None:
        latest = self._latest_epochs.get(partition, -1)
        if is_shell and epoch < latest:
            self._put_back[partition] = latest
        elif is_shell and epoch == latest:
            self._returned[partition] = latest
        self._latest_epochs[partition] = max(latest, epoch)

    def _assignment(self, partition: Partition) -> set[int]:
        data = self._read(f"/brokers/topics/{partition[0]}")
        if data is None:
            return set()
        return set(json.loads(data)["partitions"].get(str(partition[1]), ()))


# --- replicas ------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReplicaView:
    """One replica as its node sees it, and how to read its log: (start, end) -> batches.

    Not to be changed; not frozen, as one is made for each replica at each step, and freezing doubles what that takes.
    """

    broker: int
    #: The life of the node's process.
    incarnation: int
    partition: Partition
    is_leader: bool
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    read: Callable[[int, int], list[BatchView]]
    #: As the node knows them; it may not know the latest.
    isr: tuple[int, ...] = (1, 2)
    partition_epoch: int = 0
    #: Of its directory.
    path: str = ""
    #: Of the latest controller that the node has taken a command of.
    controller_epoch: int = 0
    #: It does not lead, and says itself that it may lack committed records.
    gives_way: bool = False

    def __str__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return (
            f"{self.partition[0]}-{self.partition[1]} on {self.broker}#{self.incarnation} ({role}, epoch "
            f"{self.leader_epoch}, HW {self.high_watermark}, {self.log_start_offset}..{self.log_end_offset})"
        )


class ReplicaChecker:
    """Follows the replicas. The committed log of a partition is what any replica's high watermark has covered.

    Args:
        min_insync_replicas: of every topic.
        lone: topics of one replica, which need no other.
        compacted: topics whose replicas may differ in what they have compacted: their records are not compared.
    """

    def __init__(self, min_insync_replicas: int = 2, compacted: Iterable[str] = (), lone: Iterable[str] = ()) -> None:
        self._lone = frozenset(lone)
        self._min_insync_replicas = min_insync_replicas
        self._compacted = frozenset(compacted)
        self._compacted_ends: dict[Partition, int] = {}
        #: Brokers whose hosts have just lost unsynced bytes: they are in the ISR until the controller knows.
        self.excused: frozenset[int] = frozenset()
        #: Leaders that knew, at the last look, that their ISR is below the minimum: their state and high watermark then.
        self._frozen: dict[tuple[int, Partition], tuple[tuple[int, int, int], int]] = {}
        #: partition -> its committed batches, in order.
        self.committed: dict[Partition, list[BatchView]] = {}
        self._leaders: dict[tuple[Partition, int], int] = {}
        self._high_watermarks: dict[tuple[Partition, int, int], int] = {}
        self._checked: dict[tuple[int, Partition], tuple[int, int]] = {}
        #: (broker, life of its process) -> the latest controller epoch it was seen to follow.
        self._commanded: dict[tuple[int, int], int] = {}

    def committed_end(self, partition: Partition) -> int:
        """The offset after the last committed record."""
        if partition[0] in self._compacted:
            return self._compacted_ends.get(partition, 0)
        batches = self.committed.get(partition)
        return batches[-1].last_offset + 1 if batches else 0

    def observe(self, views: Iterable[ReplicaView], states: dict[Partition, StateZnode]) -> None:
        """All replicas at one instant, and the state znodes."""
        seen = list(views)
        for view in seen:
            self._one(view)
            self._under_minimum(view)
        for view in seen:
            current = states.get(view.partition)
            if current is None or view.broker in self.excused:
                continue
            end = self.committed_end(view.partition)
            if view.log_end_offset >= end or view.gives_way:
                continue
            # Whatever commands it got: a node that came back with an empty disk is none, either (invariant F28).
            if view.broker in current.isr and view.log_end_offset <= 0:
                raise _broken("an empty replica is not counted in the ISR", f"{view}, committed up to {end}, {current}")
            # A replica that reports a doubt leaves as soon as the controller has read that; it must not lead.
            if current.leader_epoch == view.leader_epoch and view.broker in (*current.isr, *current.elr):
                raise _broken(
                    "a member of the ISR, or an eligible replica, has all that is committed",
                    f"{view}, committed up to {end}, {current}",
                )

    def _under_minimum(self, view: ReplicaView) -> None:
        """Invariant F14: a leader that knows its ISR to be below min.insync.replicas commits nothing, however long it is so."""
        key = (view.broker, view.partition)
        before = self._frozen.pop(key, None)
        if not view.is_leader or len(view.isr) >= self._min_insync_replicas or view.partition[0] in self._lone:
            return
        state = (view.incarnation, view.leader_epoch, view.partition_epoch)
        if before is not None and before[0] == state and before[1] != view.high_watermark:
            raise _broken(
                "nothing is committed below min.insync.replicas",
                f"{view}, ISR {view.isr}: the high watermark was {before[1]}",
            )
        self._frozen[key] = (state, view.high_watermark)

    def _one(self, view: ReplicaView) -> None:
        life_of_broker = (view.broker, view.incarnation)
        commanded = self._commanded.get(life_of_broker, view.controller_epoch)
        # (The sentences are made when something is wrong only: this runs for each replica at each step.)
        if view.controller_epoch < commanded:
            raise _broken(
                "a broker follows no controller of the past",
                f"{view}: it took commands of controller epoch {commanded}, then of {view.controller_epoch}",
            )
        self._commanded[life_of_broker] = view.controller_epoch
        if not view.log_start_offset <= view.high_watermark <= view.log_end_offset:
            raise _broken("log start offset <= high watermark <= log end offset", str(view))
        if view.is_leader:
            known = self._leaders.setdefault((view.partition, view.leader_epoch), view.broker)
            if known != view.broker:
                raise _broken("one leader per epoch", f"{view}, but {known} led in this epoch")
            life = (view.partition, view.leader_epoch, view.incarnation)
            before = self._high_watermarks.get(life, 0)
            if view.high_watermark < before:
                raise _broken("the high watermark goes up within an epoch", f"{view}, it was {before}")
            self._high_watermarks[life] = view.high_watermark
        if view.partition[0] in self._compacted:
            end = self._compacted_ends.get(view.partition, 0)
            self._compacted_ends[view.partition] = max(end, view.high_watermark)
            return
        self._below_high_watermark(view)

    def _below_high_watermark(self, view: ReplicaView) -> None:
        """Compare what is new below this replica's high watermark with the committed log, or extend that."""
        key = (view.broker, view.partition)
        incarnation, checked = self._checked.get(key, (view.incarnation, 0))
        if incarnation != view.incarnation:
            checked = 0
        checked = max(min(checked, view.log_end_offset), view.log_start_offset)
        if view.high_watermark > checked:
            self.compare(view, checked, view.high_watermark)
            checked = view.high_watermark
        self._checked[key] = (view.incarnation, checked)

    def compare(self, view: ReplicaView, start: int, end: int) -> None:
        """Demand that the replica's log from `start` to `end` is the committed one; what is not known yet is added."""
        committed = self.committed.setdefault(view.partition, [])
        if start == end:
            return  # a replica that has come after all its records were deleted
        mine = view.read(start, end)
        if not mine or mine[0].base_offset > start or mine[-1].last_offset + 1 < end:
            raise _broken(
                "a replica has what its high watermark covers", f"{view} from {start}: {mine[:1]}..{mine[-1:]}"
            )
        for one, following in pairwise(mine):
            if following.base_offset != one.last_offset + 1:
                raise _broken("the log has no gap", f"{view}: {one}, {following}")
        known_end = committed[-1].last_offset + 1 if committed else 0
        # The committed batches are in the order of their offsets, without a gap.
        position = bisect_left(committed, start, key=_last_offset)
        for batch in mine:
            if batch.base_offset >= known_end:
                if batch.base_offset != known_end:
                    raise _broken("the log has no gap", f"{view}: {batch} after {known_end}")
                # A watermark inside a batch commits the batch: it is written and replicated whole.
                committed.append(batch)
                known_end = batch.last_offset + 1
            else:
                known = committed[position] if position < len(committed) else None
                if known != batch:
                    raise _broken("all logs are equal below the high watermark", f"{view}: {batch}, was {known}")
            position += 1


# --- clients -------------------------------------------------------------------------------------


class RecordHistory:
    """What clients sent, what they got, and what they read. A record is named by (producer, partition number, count)."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        #: Producers with a failed record: for those the order is not promised any more.
        self._failed: dict[str, None] = {}
        #: partition -> offset -> record acknowledged there.
        self.acknowledged: dict[Partition, dict[int, str]] = {}
        self._names: dict[str, tuple[Partition, int]] = {}
        #: partition -> offset -> record read there.
        self.read: dict[Partition, dict[int, str]] = {}
        #: Fetches of consumers that followers have answered.
        self.followers_asked = 0

    def ack(self, partition: Partition, offset: int, record: str) -> None:
        """The cluster promised to keep `record` at `offset`."""
        there = self.acknowledged.setdefault(partition, {}).setdefault(offset, record)
        if there != record:
            raise _broken("one record per offset", f"{partition} {offset}: acknowledged {there} and {record}")
        place = self._names.setdefault(record, (partition, offset))
        _demand(place == (partition, offset), "one acknowledgement", f"{record}: {place} and {(partition, offset)}")

    def fail(self, record: str) -> None:
        """The producer gave `record` up: it may be there or not, but not twice."""
        self.failed += 1
        self._failed[record.rpartition(":")[0]] = None

    def out_of_range(self, partition: Partition, position: int) -> None:
        """A consumer that has read up to `position` got the error that there is no such offset."""
        raise Violation(f"what was read stays readable: {partition} at {position} is out of range")

    def consumed(self, partition: Partition, offset: int, record: str) -> None:
        """A consumer was given `record`."""
        there = self.read.setdefault(partition, {}).setdefault(offset, record)
        _demand(there == record, "readers agree", f"{partition} {offset}: read {there} and {record}")

    @property
    def acknowledgements(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def final(self, logs: dict[Partition, list[tuple[int, str]]]) -> None:
        """Check the whole against the final log of each partition: (offset, record) in order."""
        for partition, records in logs.items():
            at = dict(records)
            for kind, promised in (("acknowledged", self.acknowledged), ("read", self.read)):
                for offset, record in sorted(promised.get(partition, {}).items()):
                    _demand(
                        at.get(offset) == record,
                        f"what was {kind} is there at the end",
                        f"{partition} {offset}: {record}, found {at.get(offset)}",
                    )
            self._once_and_in_order(partition, records)

    def _once_and_in_order(self, partition: Partition, records: list[tuple[int, str]]) -> None:
        """Idempotent producers: no record twice, and each producer's in the order sent."""
        seen: dict[str, int] = {}
        last: dict[str, int] = {}
        for offset, record in records:
            there = seen.setdefault(record, offset)
            _demand(there == offset, "each record is there once", f"{partition}: {record} at {there} and {offset}")
            producer, _, count = record.rpartition(":")
            before = last.get(producer, -1)
            _demand(
                int(count) > before or producer in self._failed,
                "each producer's records are in the order sent",
                f"{partition}: {record} at {offset} after number {before}",
            )
            last[producer] = int(count)
