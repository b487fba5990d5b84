"""Consumer groups of the partitions that this node coordinates (KIP-848): the shell around `decisions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

from kafkalite.coordinators.groups.assigned_groups import AssignedGroups, nothing
from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.consumer import classic_members, heartbeats, migration
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup, ConsumerGroupState, tombstones
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import (
    ConsumerHeartbeat,
    ConsumerOutcome,
    GroupSettings,
)
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    Assignment,
    ConsumerMember,
    Record,
)
from kafkalite.coordinators.groups.decisions.subscription import CONSUMER
from kafkalite.coordinators.groups.partition import (
    ConsumerRuntime,
    GroupEntry,
)
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.records import consumer as consumer_records
from kafkalite.coordinators.groups.records.common import classic_record
from kafkalite.coordinators.groups.settings import int_setting
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.coordinators.patterns import full_match
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

Perform = Callable[[GroupEntry, Sequence[Effect]], None]


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`member` None: it has left, `epoch` says how."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    member: ConsumerMember | None = None
    shows_assignment: bool = False


HeartbeatDone = Callable[[ApiError | None, HeartbeatAnswer | None], None]


class ConsumerGroups(AssignedGroups[ConsumerGroup, ConsumerMember, Assignment, ConsumerOutcome]):
    """See `AssignedGroups`. It also serves members that speak the classic protocol.

    Args:
        perform: has effects of a classic group done, after a group has become one.
    """

    KIND: ClassVar = "consumer"

    def __init__(
        self,
        parts: GroupParts,
        work: Callable[[GroupEntry], None],
        perform: Perform,
    ) -> None:
        super().__init__(parts, work)
        self._perform = perform

    def of(self, entry: GroupEntry) -> tuple[ConsumerGroup | None, ConsumerRuntime]:
        return entry.consumer, entry.runtime

    def _encode(self, group_id: str, record: Record) -> KeyValue:
        return consumer_records.encode_record(group_id, record)

    def _settle(self, group: ConsumerGroup, member_id: str, owned: Assignment | None) -> ConsumerOutcome:
        return heartbeats.settle(group, member_id, owned, self._now())

    def _session_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        return member.classic.session_timeout_ms if member.classic else self.settings(group.group_id).session_timeout_ms

    def _new_runtime(self, entry: GroupEntry) -> None:
        entry.runtime = ConsumerRuntime()

    def settings(self, group_id: str) -> GroupSettings:
        """The group's own, or the broker's."""
        config = self._services.config
        policy = config.group_consumer_migration_policy
        return GroupSettings(
            config.group_consumer_assignors,
            int_setting(self._services, group_id, "consumer.session.timeout.ms"),
            int_setting(self._services, group_id, "consumer.heartbeat.interval.ms"),
            config.group_consumer_max_size,
            config.group_max_size,
            can_upgrade=policy in ("bidirectional", "upgrade"),
            can_downgrade=policy in ("bidirectional", "downgrade"),
        )

    # --- the consumer protocol ---

    def heartbeat(
        self,
        entry: GroupEntry,
        request: ConsumerHeartbeat,
        is_visible: Callable[[str], bool],
        done: HeartbeatDone,
    ) -> None:
        """A member joins, is there, or leaves. `is_visible`: topics that the client may know of."""
        if request.epoch < JOIN_EPOCH:
            epoch = request.epoch
            self._leave(entry, request, lambda member_id: HeartbeatAnswer(member_id, epoch, 0), done)
            return
        if request.regex:
            full_match(request.regex)
        settings = self.settings(entry.group.group_id)
        group, before = self._group_for(entry, request, settings)
        outcome = heartbeats.heartbeat(group, request, settings, self._now())
        interval_ms = settings.heartbeat_interval_ms

        def answered(error: ApiError | None, outcome: ConsumerOutcome | None) -> None:
            if error is not None or outcome is None:
                done(error, None)
                return
            member = outcome.member
            done(None, HeartbeatAnswer(member.member_id, member.epoch, interval_ms, member, outcome.shows_assignment))

        if outcome.member.regex:
            entry.runtime.visible[outcome.member.regex] = is_visible, request.client_host
        self._proceed(entry, group, outcome, request.owned, answered, applied=before)

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

    def _take(self, entry: GroupEntry, group: ConsumerGroup, outcome: ConsumerOutcome) -> None:
        if entry.consumer is not group:
            self._become(entry, group)

    def _become(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """A classic group is a consumer group now; its members have to join again."""
        classic = entry.group
        entry.consumer = group
        entry.group = Group(classic.group_id, classic.initial_rebalance_delay_ms)
        if classic.members:
            _log.info("group.upgraded", group=classic.group_id, members=len(classic.members))
        self._schedule(entry, group.next_deadline())
        self._perform(entry, classic.close(ErrorCode.REBALANCE_IN_PROGRESS))

    def remove(
        self,
        entry: GroupEntry,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """These members are gone. If only members of the classic protocol are left, the group goes over to it."""
        if migration.is_downgraded(group, members, self.settings(group.group_id)):
            self._downgrade(entry, group, {member.member_id for member in members}, done)
            return
        self._write(entry, group, heartbeats.removed(group, members), done)
        self._give_up(entry, ErrorCode.UNKNOWN_MEMBER_ID, members)
        self._work(entry)

    def _downgrade(
        self,
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
            self._new_runtime(entry)
            _log.info("group.downgraded", group=group.group_id, members=len(classic.members))

        classic.stored_ms = self._services.clock.wall_ms()
        stored = classic_record(classic, {member.member_id: member.assignment for member in classic.members.values()})
        # If a static member was replaced in a group where all have what they should, they go on with it, as in Kafka.
        goes_on = not leaving and group.state is ConsumerGroupState.STABLE
        self._write(entry, group, records, done, take=take, after=[stored])
        if not goes_on:
            self._perform(entry, classic.rebalance(now))

    # --- the classic protocol ---

    def join(self, entry: GroupEntry, request: JoinRequest) -> bool:
        """A member of the classic protocol joins; False: the group is a classic one (by now).

        `request.token` is called with the JoinAnswer.
        """
        group = entry.consumer
        assert group is not None
        token = request.token
        assert callable(token)
        if not group.members:
            self._write(entry, group, tombstones(group), nothing, take=entry.drop_newer)
            return False
        now = self._now()
        try:
            outcome, owned = classic_members.join(
                group, request, self.settings(group.group_id), self._topics.topic_id, now
            )
        except ApiError as error:
            is_invited = error.code is ErrorCode.MEMBER_ID_REQUIRED
            token(JoinAnswer(token, error.code, request.new_member_id if is_invited else ""))
            return True

        def answered(error: ApiError | None, outcome: ConsumerOutcome | None) -> None:
            if error is not None or outcome is None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
                token(JoinAnswer(token, code, request.member_id))
                return
            member = outcome.member
            if member.member_id in group.members and member.classic is not None:
                classic_members.joined(group, member, self._now())
                self._schedule(entry, group.times[member.member_id].next())
            name = member.classic.protocols[0][0] if member.classic is not None else None
            token(JoinAnswer(token, ErrorCode.NONE, member.member_id, member.epoch, CONSUMER, name))

        self._proceed(entry, group, outcome, owned, answered)
        self._end_if_classic(entry, group)
        return True

    def _end_if_classic(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """The last static member of the consumer protocol was replaced by one of the classic protocol."""
        if group.classic_members == len(group.members) and migration.may_be_classic(
            group, self.settings(group.group_id)
        ):
            with suppress(ApiError):  # the join was written, and has its answer; the next join tries again
                self._downgrade(entry, group, set(), nothing)

    def sync(self, entry: GroupEntry, request: SyncRequest) -> None:
        """`request.token` is called with the SyncAnswer."""
        group, token = entry.consumer, request.token
        assert group is not None and callable(token)
        member = classic_members.sync(group, request, self._now())
        assignment = classic_members.assignment_bytes(member, self._topics.topic_name)
        assert member.classic is not None
        name = request.protocol or member.classic.protocols[0][0]

        def finished(error: ErrorCode) -> None:
            token(SyncAnswer(token, error) if error else SyncAnswer(token, error, assignment, CONSUMER, name))

        self._group_log.when_committed(entry.partition, entry.runtime, finished)

    def classic_heartbeat(
        self, entry: GroupEntry, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = entry.consumer
        assert group is not None
        code = classic_members.heartbeat(group, member_id, instance_id, generation, self._now())
        self._work(entry)
        return code

    def classic_leave(self, entry: GroupEntry, member_id: str, instance_id: str | None) -> None:
        group = entry.consumer
        assert group is not None
        # Of either protocol, as with Apache Kafka 4.4: an administrator may remove any member.
        member = classic_members.find_any(group, member_id, instance_id)
        self.remove(entry, group, [member], nothing)
