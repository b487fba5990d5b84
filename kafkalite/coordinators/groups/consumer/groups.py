"""Consumer groups of the partitions that this node coordinates (KIP-848): the shell around `decisions`.

A decision returns records. They are appended, then applied, so that what is in memory is what the log says; the answer goes
out when they are replicated. An answer without records waits for those of before: nothing that could still be lost is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafkalite.coordinators.groups.decisions.assigned_group import find_leaving
from kafkalite.coordinators.groups.decisions.classic.events import Effect, JoinAnswer, JoinRequest, SyncAnswer
from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.consumer import classic_members, heartbeats, migration
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup, tombstones
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import (
    ConsumerHeartbeat,
    ConsumerOutcome,
    GroupSettings,
)
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Assignment,
    ConsumerMember,
    MemberState,
    Record,
)
from kafkalite.coordinators.groups.decisions.subscription import CONSUMER
from kafkalite.coordinators.groups.group_log import GroupLog
from kafkalite.coordinators.groups.partition import (
    ConsumerRuntime,
    GroupEntry,
    GroupPartition,
    MemberDone,
    WaitingMember,
)
from kafkalite.coordinators.groups.records import consumer as consumer_records
from kafkalite.coordinators.groups.records.common import classic_record
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.coordinators.patterns import full_match
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Answers in one go: about two milliseconds.
_SETTLED_AT_ONCE = 50

Perform = Callable[[GroupPartition, GroupEntry, Sequence[Effect]], None]


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`member` None: it has left, `epoch` says how."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    member: ConsumerMember | None = None
    shows_assignment: bool = False


HeartbeatDone = Callable[[ApiError | None, HeartbeatAnswer | None], None]


class ConsumerGroups:
    """See the module. Methods raise ApiError; `done` is called once if they do not.

    Args:
        perform: has effects of a classic group done, after a group has become one.
        schedule: has `tick` called for an entry when this moment (ms) has passed.
        work: has the target assignment, and what it depends on, brought up to date.
    """

    def __init__(
        self,
        services: Services,
        log: InternalLog[GroupPartition],
        topics: GroupTopics,
        perform: Perform,
        schedule: Callable[[GroupPartition, GroupEntry, int | None], None],
        work: Callable[[GroupPartition, GroupEntry], None],
    ) -> None:
        self._services = services
        self._group_log = GroupLog(services, log)
        self._topics = topics
        self._perform = perform
        self._schedule = schedule
        self._work = work

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def settings(self) -> GroupSettings:
        """Of all groups."""
        config = self._services.config
        policy = config.group_consumer_migration_policy
        return GroupSettings(
            config.group_consumer_assignors,
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            config.group_max_size,
            can_upgrade=policy in ("bidirectional", "upgrade"),
            can_downgrade=policy in ("bidirectional", "downgrade"),
        )

    # --- the consumer protocol ---

    def heartbeat(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        request: ConsumerHeartbeat,
        is_visible: Callable[[str], bool],
        done: HeartbeatDone,
    ) -> None:
        """A member joins, is there, or leaves. `is_visible`: topics that the client may know of."""
        if request.epoch < JOIN_EPOCH:
            self._leave(partition, entry, request, done)
            return
        if request.regex:
            full_match(request.regex)
        settings = self.settings()
        group, before = self._group_for(entry, request, settings)
        outcome = heartbeats.heartbeat(group, request, settings, self._now())
        interval_ms = settings.heartbeat_interval_ms
        shows = outcome.shows_assignment

        def answered(error: ApiError | None, member: ConsumerMember | None) -> None:
            if error is not None or member is None:
                done(error, None)
            else:
                done(None, HeartbeatAnswer(member.member_id, member.epoch, interval_ms, member, shows))

        if outcome.member.regex:
            entry.runtime.visible[outcome.member.regex] = is_visible
        self._proceed(partition, entry, group, before, outcome, request.owned, answered)

    def _group_for(
        self, entry: GroupEntry, request: ConsumerHeartbeat, settings: GroupSettings
    ) -> tuple[ConsumerGroup, list[Record]]:
        """The group, and the records that make it one; they are applied already, for nobody sees it yet."""
        if entry.consumer is not None:
            return entry.consumer, []
        group = ConsumerGroup(entry.group.group_id)
        if request.epoch != JOIN_EPOCH:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group.group_id!r}")
        before = migration.upgrade(entry.group, settings, self._topics.topic_id)
        for record in before:
            group.apply(record)
        for member in group.members.values():
            assert member.classic is not None
            group.expect(member.member_id).session = self._now() + member.classic.session_timeout_ms
        return group, before

    def _proceed(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: ConsumerGroup,
        before: Sequence[Record],
        outcome: ConsumerOutcome,
        owned: Assignment | None,
        done: MemberDone,
    ) -> None:
        """Write the outcome; answer with the member when that is replicated, or when it has a target to go by."""
        member = outcome.member

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, member)

        def take() -> None:
            if entry.consumer is not group:
                self._become(partition, entry, group)

        finish = _nothing if outcome.waits else finished
        self._write(partition, entry, group, [*before, *outcome.records], finish, applied=len(before), take=take)
        if outcome.waits:
            entry.runtime.waiting.append(WaitingMember(member.member_id, group.epoch, owned, done))
        times = group.times.get(member.member_id)
        if times is not None and times.is_any:
            self._schedule(partition, entry, times.next())
        self._work(partition, entry)

    def _become(self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup) -> None:
        """A classic group is a consumer group now; its members have to join again."""
        classic = entry.group
        entry.consumer = group
        entry.group = Group(classic.group_id, classic.initial_rebalance_delay_ms)
        if classic.members:
            _log.info("group.upgraded", group=classic.group_id, members=len(classic.members))
        self._schedule(partition, entry, group.next_deadline())
        self._perform(partition, entry, classic.close(ErrorCode.REBALANCE_IN_PROGRESS))

    def _leave(
        self, partition: GroupPartition, entry: GroupEntry, request: ConsumerHeartbeat, done: HeartbeatDone
    ) -> None:
        group = entry.consumer
        if group is None:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {entry.group.group_id!r}")
        member = find_leaving(group, request.member_id, request.instance_id)
        answer = HeartbeatAnswer(member.member_id, request.epoch, 0)

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, None if error else answer)

        if request.epoch == LEAVE_FOR_A_WHILE_EPOCH:
            outcome = heartbeats.leave_for_a_while(member)
            self._write(partition, entry, group, outcome.records, finished)
            return
        self.remove(partition, entry, group, [member], finished)

    def remove(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """These members are gone. If only members of the classic protocol are left, the group goes over to it."""
        if migration.is_downgraded(group, members, self.settings()):
            self._downgrade(partition, entry, group, {member.member_id for member in members}, done)
            return
        self._write(partition, entry, group, heartbeats.removed(group, members), done)
        self._work(partition, entry)

    def _downgrade(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: ConsumerGroup,
        leaving: set[str],
        done: Callable[[ErrorCode], None],
    ) -> None:
        now = self._now()
        delay_ms = self._services.config.group_initial_rebalance_delay_ms
        records, classic = migration.downgrade(group, leaving, self._topics.topic_name, delay_ms, now)

        def take() -> None:
            entry.group, entry.consumer = classic, None
            self._give_up(entry, ErrorCode.REBALANCE_IN_PROGRESS)
            _log.info("group.downgraded", group=group.group_id, members=len(classic.members))

        stored = classic_record(classic, {member.member_id: member.assignment for member in classic.members.values()})
        self._write(partition, entry, group, records, done, take=take, more=[stored])
        self._perform(partition, entry, classic.rebalance(now))

    # --- the classic protocol ---

    def join(self, partition: GroupPartition, entry: GroupEntry, request: JoinRequest) -> bool:
        """A member of the classic protocol joins; False: the group is a classic one (by now).

        `request.token` is called with the JoinAnswer.
        """
        group = entry.consumer
        assert group is not None
        token = request.token
        assert callable(token)
        if not group.members:
            self._write(partition, entry, group, tombstones(group), _nothing, take=lambda: _drop(entry))
            return False
        now = self._now()
        try:
            outcome, owned = classic_members.join(group, request, self.settings(), self._topics.topic_id, now)
        except ApiError as error:
            if error.code is not ErrorCode.MEMBER_ID_REQUIRED:
                raise
            token(JoinAnswer(token, error.code, request.new_member_id))
            return True

        def answered(error: ApiError | None, member: ConsumerMember | None) -> None:
            if error is not None or member is None:
                token(
                    JoinAnswer(
                        token, ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code, request.member_id
                    )
                )
                return
            if member.member_id in group.members and member.classic is not None:
                classic_members.joined(group, member, self._now())
                self._schedule(partition, entry, group.times[member.member_id].next())
            name = member.classic.protocols[0][0] if member.classic is not None else None
            token(JoinAnswer(token, ErrorCode.NONE, member.member_id, member.epoch, CONSUMER, name))

        self._proceed(partition, entry, group, (), outcome, owned, answered)
        self._end_if_classic(partition, entry, group)
        return True

    def _end_if_classic(self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup) -> None:
        """The last static member of the consumer protocol was replaced by one of the classic protocol."""
        if group.classic_members == len(group.members) and migration.may_be_classic(group, self.settings()):
            self._downgrade(partition, entry, group, set(), _nothing)

    def sync(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        token: Callable[[SyncAnswer], None],
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
    ) -> None:
        """`token` is called with the SyncAnswer."""
        group = entry.consumer
        assert group is not None
        member = classic_members.sync(group, member_id, instance_id, generation, protocol_type, protocol, self._now())
        assignment = classic_members.assignment_bytes(member, self._topics.topic_name)
        assert member.classic is not None
        name = protocol or member.classic.protocols[0][0]

        def finished(error: ErrorCode) -> None:
            token(SyncAnswer(token, error) if error else SyncAnswer(token, error, assignment, CONSUMER, name))

        self._when_committed(partition, entry, finished)

    def classic_heartbeat(
        self, partition: GroupPartition, entry: GroupEntry, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = entry.consumer
        assert group is not None
        code = classic_members.heartbeat(group, member_id, instance_id, generation, self._now())
        self._work(partition, entry)
        return code

    def classic_leave(
        self, partition: GroupPartition, entry: GroupEntry, member_id: str, instance_id: str | None
    ) -> None:
        group = entry.consumer
        assert group is not None
        # Of either protocol, as with Apache Kafka 4.4: an administrator may remove any member.
        member = classic_members.find_any(group, member_id, instance_id)
        self.remove(partition, entry, group, [member], _nothing)

    # --- what waits ---

    def settle(self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup) -> Iterator[None]:
        """There is a new target assignment: answer the members that wait for it. Yields now and then."""
        runtime = entry.runtime
        while ready := [each for each in runtime.waiting if each.epoch <= group.target_epoch][:_SETTLED_AT_ONCE]:
            taken = set(map(id, ready))
            runtime.waiting = [each for each in runtime.waiting if id(each) not in taken]
            for each in ready:
                try:
                    outcome = heartbeats.settle(group, each.member_id, each.owned, self._now())
                    self._proceed(partition, entry, group, (), outcome, each.owned, each.done)
                except ApiError as error:
                    each.done(error, None)
            yield

    def _give_up(self, entry: GroupEntry, error: ErrorCode) -> None:
        waiting, entry.runtime.waiting = entry.runtime.waiting, []
        for each in waiting:
            each.done(api_error(error), None)

    def fail(self, entry: GroupEntry, error: ErrorCode) -> None:
        """All requests that wait get an error: the group is unloaded, or its target could not be stored."""
        self._give_up(entry, error)
        uncommitted, entry.runtime.uncommitted = entry.runtime.uncommitted, []
        for _, finish in uncommitted:
            finish(error)

    # --- time ---

    def tick(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """Remove members that are overdue."""
        group = entry.consumer
        assert group is not None
        gone: list[ConsumerMember] = []
        for member, reason in group.overdue(self._now()):
            _log.info("group.member_removed", group=group.group_id, member=member.member_id, reason=reason)
            gone.append(member)
        if not gone:
            return
        try:
            self.remove(partition, entry, group, gone, _nothing)
        except ApiError:  # not written: the next tick tries again
            for member in gone:
                group.expect(member.member_id).session = self._now() + 1_000

    def loaded(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """Members get a whole session to find their new coordinator."""
        group = entry.consumer
        assert group is not None
        now, session_ms = self._now(), self.settings().session_timeout_ms
        entry.runtime = ConsumerRuntime()
        for member in group.members.values():
            times = group.expect(member.member_id)
            times.session = now + (session_ms if member.classic is None else member.classic.session_timeout_ms)
            if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
                times.revocation, times.epoch = now + member.rebalance_timeout_ms, member.epoch
        self._schedule(partition, entry, group.next_deadline())
        self._work(partition, entry)

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group."""
        if entry.consumer is not None:
            entry.consumer.is_dead = True
            self.fail(entry, ErrorCode.NOT_COORDINATOR)

    # --- the log ---

    def write(
        self, partition: GroupPartition, entry: GroupEntry, group: ConsumerGroup, records: Sequence[Record]
    ) -> None:
        """Append and apply, without waiting for replication. Raises ApiError: nothing was appended."""
        self._write(partition, entry, group, records, _nothing)

    def _write(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: ConsumerGroup,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        *,
        applied: int = 0,
        take: Callable[[], None] | None = None,
        more: Sequence[KeyValue] = (),
    ) -> None:
        """Append `records` and apply all but the first `applied`, `take` what follows, and call `done` when it is replicated.

        Raises ApiError: nothing was appended, and nothing has changed.
        """
        if not records:
            if take is not None:
                take()
            self._when_committed(partition, entry, done)
            return
        pairs = [consumer_records.encode_record(group.group_id, record) for record in records]

        def apply() -> None:
            for record in records[applied:]:
                group.apply(record)
            if take is not None:
                take()

        self._group_log.write(partition, entry.runtime, [*pairs, *more], apply, done)

    def _when_committed(self, partition: GroupPartition, entry: GroupEntry, done: Callable[[ErrorCode], None]) -> None:
        self._group_log.when_committed(partition, entry.runtime, done)


def _nothing(*_: object) -> None:
    """Nobody waits for it."""


def _drop(entry: GroupEntry) -> None:
    entry.consumer = None
    entry.runtime = ConsumerRuntime()
