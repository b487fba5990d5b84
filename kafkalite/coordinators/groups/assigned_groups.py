"""Groups whose members own what the coordinator assigns to them (KIP-848, KIP-1071): the shell around `decisions`.

A decision returns records. They are appended, then applied, so that what is in memory is what the log says; the answer goes
out when they are replicated. An answer without records waits for those of before: nothing that could still be lost is said.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from kafkalite.coordinators.append_sizes import cuts
from kafkalite.coordinators.groups.decisions.assigned_group import AssignedGroup
from kafkalite.coordinators.groups.decisions.assigned_heartbeats import Outcome, find_leaving, leave_for_a_while
from kafkalite.coordinators.groups.decisions.members import (
    LEAVE_FOR_A_WHILE_EPOCH,
    EpochHeartbeat,
    EpochMember,
    removed_together,
)
from kafkalite.coordinators.groups.group_log import GroupLog
from kafkalite.coordinators.groups.partition import AssignedRuntime, GroupEntry, WaitingMember
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Members that are overdue and could not be removed are looked at again after this time.
_AGAIN_MS = 1_000
#: Answers in one go: about two milliseconds.
_SETTLED_AT_ONCE = 50

G = TypeVar("G", bound=AssignedGroup[Any, Any])
M = TypeVar("M", bound=EpochMember)
T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=Outcome[Any, Any])
A = TypeVar("A")


class AssignedGroups(ABC, Generic[G, M, T, OutcomeT]):
    """See the module. Methods raise ApiError; `done` is called once if they do not. A subclass is one group protocol.

    Args:
        work: has the target assignment, and what it depends on, brought up to date.
    """

    #: The protocol's name in texts of errors.
    KIND: ClassVar[str]

    def __init__(self, parts: GroupParts, work: Callable[[GroupEntry], None]) -> None:
        self._services = parts.services
        self._group_log = GroupLog(parts.log)
        self._topics = parts.topics
        self._schedule = parts.schedule
        self._work = work

    # --- what a protocol adds ---

    @abstractmethod
    def of(self, entry: GroupEntry) -> tuple[G | None, AssignedRuntime[T, OutcomeT]]:
        """The entry's group of this protocol, and what is kept beside it."""

    @abstractmethod
    def _encode(self, group_id: str, record: Any) -> KeyValue: ...

    @abstractmethod
    def _settle(self, group: G, member_id: str, owned: T | None) -> OutcomeT:
        """The next step of a member that waited for its target. Raises ApiError UNKNOWN_MEMBER_ID."""

    @abstractmethod
    def remove(
        self,
        entry: GroupEntry,
        group: G,
        members: Sequence[M],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """These members are gone."""

    @abstractmethod
    def _session_ms(self, group: G, member: M) -> int: ...

    @abstractmethod
    def _new_runtime(self, entry: GroupEntry) -> None:
        """Forget what was kept beside the group."""

    def _take(self, entry: GroupEntry, group: G, outcome: OutcomeT) -> None:
        """An outcome was written."""

    def _proceeded(self, entry: GroupEntry, group: G) -> None:
        """An outcome was written, and its member answered or put among those that wait."""

    # --- heartbeats ---

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def _need(self, entry: GroupEntry) -> G:
        group, _ = self.of(entry)
        assert group is not None
        return group

    def _proceed(
        self,
        entry: GroupEntry,
        group: G,
        outcome: OutcomeT,
        owned: T | None,
        done: Callable[[ApiError | None, OutcomeT | None], None],
        *,
        applied: Sequence[Any] = (),
        before: Sequence[KeyValue] = (),
    ) -> None:
        """Write the outcome; answer with it when that is replicated, or when its member has a target to go by.

        Args:
            applied: records that are written first, and applied already.
            before: what else is written first.
        """

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, outcome)

        def take() -> None:
            self._take(entry, group, outcome)

        finish = nothing if outcome.waits else finished
        records = [*applied, *outcome.records]
        self._write(entry, group, records, finish, applied=len(applied), take=take, before=before)
        member_id = outcome.member.member_id
        if outcome.waits:
            self.of(entry)[1].waiting.append(WaitingMember(member_id, group.epoch, owned, done))
        times = group.times.get(member_id)
        if times is not None and times.is_any:
            self._schedule(entry, times.next())
        self._proceeded(entry, group)
        self._work(entry)

    def _leave(
        self,
        entry: GroupEntry,
        request: EpochHeartbeat,
        answer_of: Callable[[str], A],
        done: Callable[[ApiError | None, A | None], None],
    ) -> None:
        """A member leaves, for good or for a while. `answer_of`: the answer for this member id."""
        group, _ = self.of(entry)
        if group is None:
            text = f"there is no {self.KIND} group {entry.group.group_id!r}"
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, text)
        member = find_leaving(group, request.member_id, request.instance_id)
        answer = answer_of(member.member_id)

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, None if error else answer)

        if request.epoch == LEAVE_FOR_A_WHILE_EPOCH:
            self._write(entry, group, leave_for_a_while(group, member), finished)
            self._give_up(entry, ErrorCode.UNKNOWN_MEMBER_ID, [member])
        else:
            self.remove(entry, group, [member], finished)

    # --- what waits ---

    def settle(self, entry: GroupEntry, group: G) -> Iterator[None]:
        """There is a new target assignment: answer the members that wait for it. Yields now and then."""
        _, runtime = self.of(entry)
        while ready := [each for each in runtime.waiting if each.epoch <= group.target_epoch][:_SETTLED_AT_ONCE]:
            taken = set(map(id, ready))
            runtime.waiting = [each for each in runtime.waiting if id(each) not in taken]
            for each in ready:
                self._is_there(group, each.member_id)
                try:
                    outcome = self._settle(group, each.member_id, each.owned)
                    self._proceed(entry, group, outcome, each.owned, each.done)
                except ApiError as error:
                    each.done(error, None)
            yield

    def _give_up(self, entry: GroupEntry, error: ErrorCode, members: Sequence[M] | None = None) -> None:
        """The requests that wait get an error; `members`: only theirs."""
        _, runtime = self.of(entry)
        ids = {member.member_id for member in members or ()}
        waiting, runtime.waiting = runtime.waiting, []
        for each in waiting:
            if members is None or each.member_id in ids:
                each.done(api_error(error), None)
            else:
                runtime.waiting.append(each)

    def fail(self, entry: GroupEntry, error: ErrorCode) -> None:
        """All requests that wait get an error: the group is unloaded, or its target could not be stored."""
        self._give_up(entry, error)
        _, runtime = self.of(entry)
        uncommitted, runtime.uncommitted = runtime.uncommitted, []
        for _, finish in uncommitted:
            finish(error)

    # --- time ---

    def _is_there(self, group: G, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            group.expect(member_id).session = self._now() + self._session_ms(group, member)

    def tick(self, entry: GroupEntry) -> None:
        """Remove members that are overdue, as many as one append may have. A request that waits for a target is a sign of life."""
        group, now = self._need(entry), self._now()
        for each in self.of(entry)[1].waiting:
            self._is_there(group, each.member_id)
        gone = list(group.overdue(now))
        if not gone:
            return
        gone = gone[: removed_together(group.group_id, (member.member_id for member, _ in gone))]
        try:
            self.remove(entry, group, [member for member, _ in gone], nothing)
        except ApiError:  # not written: a later tick tries again
            for member, _ in gone:
                group.expect(member.member_id).put_off(now, now + _AGAIN_MS)
            return
        for member, reason in gone:
            _log.info("group.member_removed", group=group.group_id, member=member.member_id, reason=reason)

    def loaded(self, entry: GroupEntry) -> None:
        """Members have to find their new coordinator."""
        self._new_runtime(entry)
        self.give_time(entry)
        self._work(entry)

    def give_time(self, entry: GroupEntry) -> None:
        """No member could be heard: each has its whole time again for what it has to do."""
        group, now = self._need(entry), self._now()
        for member in group.members.values():
            times = group.expect(member.member_id)
            times.session = now + self._session_ms(group, member)
            if member.must_revoke:
                times.revocation, times.epoch = now + member.rebalance_timeout_ms, member.epoch
            times.join = times.join and now + member.rebalance_timeout_ms
            times.sync = times.sync and now + member.rebalance_timeout_ms
        self._schedule(entry, group.next_deadline())

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group."""
        group, _ = self.of(entry)
        if group is not None:
            group.is_dead = True
            self.fail(entry, ErrorCode.NOT_COORDINATOR)

    # --- the log ---

    def write(self, entry: GroupEntry, group: G, records: Sequence[Any]) -> None:
        """Append and apply, without waiting for replication. Raises ApiError: nothing was appended."""
        self._write(entry, group, records, nothing)

    def write_each(self, entry: GroupEntry, group: G, records: Sequence[Any]) -> None:
        """As `write`, of records that mean something without each other, in as many appends as they need."""
        _, runtime = self.of(entry)
        pairs = [self._encode(group.group_id, record) for record in records]

        def apply(written: Sequence[Any]) -> None:
            for record in written:
                group.apply(record)

        start = 0
        for end in cuts(pairs):
            self._group_log.write(
                entry.partition, runtime, pairs[start:end], partial(apply, records[start:end]), nothing
            )
            start = end

    def _write(
        self,
        entry: GroupEntry,
        group: G,
        records: Sequence[Any],
        done: Callable[[ErrorCode], None],
        *,
        applied: int = 0,
        take: Callable[[], None] | None = None,
        before: Sequence[KeyValue] = (),
        after: Sequence[KeyValue] = (),
    ) -> None:
        """Append `records` and apply all but the first `applied`, `take` what follows, and call `done` when it is replicated.

        `before` and `after`: what is appended with them. Raises ApiError: nothing was appended, and nothing has changed.
        """
        _, runtime = self.of(entry)

        def apply() -> None:
            for record in records[applied:]:
                group.apply(record)
            if take is not None:
                take()

        if not records:
            apply()
            self._group_log.when_committed(entry.partition, runtime, done)
            return
        pairs = [self._encode(group.group_id, record) for record in records]
        self._group_log.write(entry.partition, runtime, [*before, *pairs, *after], apply, done)


def nothing(*_: object) -> None:
    """Nobody waits for it."""
