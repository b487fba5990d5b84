"""Groups and offsets that are forgotten: deleted, of topics that are no more, or too old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any

from kafkalite.coordinators.append_sizes import RECORD_BYTES, fitting
from kafkalite.coordinators.groups.commits import CommitResults, settled
from kafkalite.coordinators.groups.decisions.classic.members import GroupState
from kafkalite.coordinators.groups.decisions.consumer.group import tombstones as consumer_tombstones
from kafkalite.coordinators.groups.decisions.share.states import begun as share_topics
from kafkalite.coordinators.groups.decisions.streams.group import tombstones as streams_tombstones
from kafkalite.coordinators.groups.decisions.subscription import CONSUMER, reading_topics
from kafkalite.coordinators.groups.offsets import CommittedOffset, Snapshot
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.groups.records import consumer as consumer_records
from kafkalite.coordinators.groups.records import streams as streams_records
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.coordinators.services import Services
from kafkalite.env.side_by_side import SideBySide
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import Slices, Turns
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import NO_TOPIC_ID, Offset, TopicId, TopicPartition
from kafkalite.partition_values import TopicMetadata
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: Time in seconds between two sweeps, and sweeps between two expiries (offsets.retention.check.interval.ms).
_SWEEP_S = 60.0
_SWEEPS_PER_EXPIRY = 10
#: The sweep at which a partition is swept.
_SWEPT = 2
#: Offsets that one append deletes at most; fewer if they do not fit into a batch.
_DELETE_CHUNK = 1_000
#: Committed offsets that a sweep looks at in one step.
_STEP = 100
#: The pause after offsets of a removed topic or partition could not be purged, in seconds.
_PURGE_AGAIN_S = 1.0

Doomed = tuple[GroupEntry, Snapshot]


class GroupRemoval:
    """See the module. Methods raise ApiError."""

    def __init__(
        self,
        services: Services,
        log: InternalLog[GroupPartition],
        find: Callable[[str], GroupEntry | None],
        shares: ShareGroupStates,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._log = log
        self._find = find
        self._repeats = Repeats(services.clock.monotonic)
        self._turns = Turns(services.clock.monotonic)
        self._shares = shares

    async def delete_group(self, group_id: str) -> None:
        """Raises ApiError NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        entry = self._find(group_id) if group_id else None
        if entry is None or entry.is_dead or not entry.is_listed:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        if not entry.is_empty:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)
        if entry.share is not None:
            await self._shares.delete_group(entry)
            return
        doomed = settled(self._log, entry).snapshot(lambda _: True, self._log_end(entry.partition))
        await self._forget(entry, doomed, and_group=True)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> CommitResults:
        """Forget offsets of topics that no member subscribes to. Raises ApiError GROUP_ID_NOT_FOUND."""
        entry = self._find(group_id)
        if entry is None or entry.is_dead or not entry.is_listed or entry.share is not None:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        group = entry.group
        if group.members and group.protocol_type != CONSUMER:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)
        slices = Slices(self._turns, ("groups.offsets_deleted", group_id))
        subscribed = await slices.run(subscribed_topics(entry))
        if entry.is_dead or self._find(group_id) is not entry:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        results = await slices.run(_deletable(partitions, subscribed))
        if entry.is_dead or self._find(group_id) is not entry:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        log_end = self._log_end(entry.partition)
        doomed = settled(self._log, entry).snapshot(lambda key: results.get(key) is ErrorCode.NONE, log_end)
        if slices.is_over:
            await slices.next()
        slices.end()
        await self._forget(entry, doomed)
        return results

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Offsets of topics that are no more are purged, and what share groups have of them."""
        gone = frozenset(topics)
        await self._purge_everywhere(lambda key: key.topic in gone, lambda: self._shares.topics_deleted(gone))

    async def partitions_removed(self, keys: Iterable[TopicPartition]) -> None:
        """Offsets of partitions that are no more are purged, and what share groups have of them."""
        gone = frozenset(keys)
        await self._purge_everywhere(gone.__contains__, lambda: self._shares.partitions_removed(gone))

    async def _purge_everywhere(
        self, is_gone: Callable[[TopicPartition], bool], purge_shares: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Forget what every group has of this now, also where it is being loaded: the names may be those of new topics soon."""

        def loaded(partition: GroupPartition) -> None:
            purge = self._purge(self._doomed([partition], is_gone), purge_shares)
            self._services.supervisor.spawn("groups.purge", purge, Policy.ISOLATED)

        self._log.when_loaded(loaded)
        await self._purge(self._doomed(self._log.states(), is_gone), purge_shares)

    def _doomed(self, partitions: Iterable[GroupPartition], is_gone: Callable[[TopicPartition], bool]) -> list[Doomed]:
        found: list[Doomed] = []
        for partition in partitions:
            with suppress(ApiError):  # another node coordinates its groups
                log_end = self._log_end(partition)
                for entry in partition.entries.values():
                    doomed = settled(self._log, entry).snapshot(is_gone, log_end)
                    if doomed.partitions:
                        found.append((entry, doomed))
        return found

    def _log_end(self, partition: GroupPartition) -> Offset:
        """Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        return self._services.partitions.local_bounds(TopicPartition(self._log.topic, partition.index))[1]

    async def _purge(self, doomed: Iterable[Doomed], purge_shares: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Forget this, however often it is refused: offsets that stayed would be those of the next topic of this name."""
        async with SideBySide() as tasks:
            tasks.create_task(purge_shares())
            kept = await self._refused(doomed)
            while kept:
                await asyncio.sleep(_PURGE_AGAIN_S)
                kept = await self._refused(
                    (entry, found)
                    for entry, found in kept
                    if self._log.ready_state(entry.partition.index) is entry.partition
                )

    async def _refused(self, doomed: Iterable[Doomed]) -> list[Doomed]:
        """Forget this; returns what could not be written."""
        return [each for each in doomed if not await self._forget_quietly(*each)]

    async def _forget(self, entry: GroupEntry, doomed: Snapshot, *, and_group: bool = False) -> None:
        """Write tombstones, then forget what was committed before them. Raises ApiError if they could not be written.

        Only what is committed still as in `doomed` is meant: there may have been commits since, also between two appends. A tombstone
        would stand behind their records, whether these are durable or not. A group of a newer protocol is gone with the append: what a member
        that comes then says is written as for a new one. The log would lack what is not said again, the topology of a streams group.
        """
        group_id, offsets, keys = entry.group.group_id, entry.offsets, doomed.partitions
        entries, group_bytes = entry.partition.entries, len(group_id.encode())
        start, is_last = 0, False
        while not is_last:
            if entries.get(group_id) is not entry:
                return  # somebody else has deleted it meanwhile: the next group of this name has offsets of its own
            following = keys[start : start + _DELETE_CHUNK]
            end = start + fitting(group_bytes + len(key.topic) + RECORD_BYTES for key in following)
            chunk = [key for key in keys[start:end] if offsets.is_as_in(doomed, key)]
            start, is_last = end, end == len(keys)
            tombstones: list[KeyValue] = [(records.offset_key(group_id, key), None) for key in chunk]
            with_group = and_group and is_last and entry.is_empty
            if with_group:
                tombstones += _group_tombstones(entry)
            if not tombstones:
                continue
            appending = self._append(entry.partition, tombstones)
            if with_group:
                entry.drop_newer()
            error, base_offset = await appending
            for record_offset, key in enumerate(chunk, base_offset):
                if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    offsets.doubt(key, record_offset, None)
                elif not error:
                    offsets.forget(key, record_offset)
            if error:
                raise api_error(error)
        # A member or a commit that came meanwhile keeps the group, also one that has left again.
        is_over = and_group and entry.newer is None and entry.is_empty and offsets.is_empty()
        if is_over and entries.get(group_id) is entry:
            entry.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            del entries[group_id]

    def _append(self, partition: GroupPartition, pairs: Sequence[KeyValue]) -> Awaitable[tuple[ErrorCode, Offset]]:
        """Append; the awaitable has the error, and the offset of the first record (`InternalLog.append`). Raises ApiError: nothing was appended."""
        outcome: asyncio.Future[tuple[ErrorCode, Offset]] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode, base_offset: Offset) -> None:
            if not outcome.done():
                outcome.set_result((error, base_offset))

        self._log.append(partition.index, partition, pairs, done)
        if outcome.done() and (refusal := outcome.result()[0]):
            raise api_error(refusal)
        return outcome

    async def _forget_quietly(self, entry: GroupEntry, doomed: Snapshot, *, and_group: bool = False) -> bool:
        """Whether it could be written."""
        try:
            await self._forget(entry, doomed, and_group=and_group)
        except ApiError as error:
            if (suppressed := self._repeats.admit(("group.expiry_failed", error.code))) is not None:
                _log.warning(
                    "group.expiry_failed", group=entry.group.group_id, error=error.code.name, suppressed=suppressed
                )
            return False
        return True

    async def run(self) -> None:
        """Look for them now and then, for ever."""
        for number in count(1):
            await asyncio.sleep(_SWEEP_S)
            await self.sweep()
            if not number % _SWEEPS_PER_EXPIRY:
                await self.expire()

    async def sweep(self) -> None:
        """Forget offsets of what was deleted while nobody coordinated the group: once for each partition that is loaded. Those of a topic that
        is missing stay if this node has not heard of its deletion.

        Only at its second sweep: a node that has just taken over may hear of a new topic later than the one before it. After
        that, those of former topics: of a deletion just before a controller's end the next controller does not report. The same goes for
        states of share groups.
        """
        swept = [partition for partition in self._log.states() if partition.sweeps == _SWEPT]
        for partition in swept:
            await self._refused(await self._of_former_topics(partition))
            await asyncio.sleep(0)
        await self._forget_states(swept)
        due = [partition for partition in self._log.states() if partition.sweeps < _SWEPT]
        if not due:
            return
        topics = {topic.topic: topic for topic in self._services.metadata(None).topics}
        if self._log.topic not in topics:  # the metadata is not there yet
            return
        for partition in due:
            partition.sweeps += 1
            if partition.sweeps == _SWEPT and not await self._sweep(partition, topics):
                partition.sweeps -= 1
            await asyncio.sleep(0)

    async def _of_former_topics(self, partition: GroupPartition) -> list[Doomed]:
        """Offsets of deleted topics while there are others of their names."""

        @cache
        def is_former(topic_id: TopicId, name: str) -> bool:
            if topic_id == NO_TOPIC_ID or self._services.topic_name(topic_id) == name:
                return False
            topic = self._services.metadata([name]).topics[0]
            return not topic.error and topic.topic_id not in (NO_TOPIC_ID, topic_id)

        return await self._found(partition, lambda key, offset: is_former(offset.topic_id, key.topic))

    async def _found(
        self,
        partition: GroupPartition,
        may_be_gone: Callable[[TopicPartition, CommittedOffset], bool],
        is_gone: Callable[[TopicPartition, CommittedOffset], bool] | None = None,
    ) -> list[Doomed]:
        """The committed offsets that are gone, found in slices: a partition may have hundreds of thousands.

        Args:
            is_gone: asked of those that may be gone in the turn of the loop that counts: a topic may have come since the slices began,
                and an offset may have been committed for it. None: `may_be_gone` says the same at any time.
        """
        slices = Slices(self._turns, ("groups.sweep", partition.index))
        try:
            return await slices.run(self._finding(partition, may_be_gone, is_gone or may_be_gone))
        except ApiError:  # another node coordinates its groups
            return []

    def _finding(
        self,
        partition: GroupPartition,
        may_be_gone: Callable[[TopicPartition, CommittedOffset], bool],
        is_gone: Callable[[TopicPartition, CommittedOffset], bool],
    ) -> Generator[None, None, list[Doomed]]:
        doomed: list[Doomed] = []
        for entry in list(partition.entries.values()):
            offsets = settled(self._log, entry)
            keys = list(offsets.committed)
            for start in range(0, len(keys), _STEP):
                yield
                known = [(key, offsets.committed.get(key)) for key in keys[start : start + _STEP]]
                found = [(key, offset) for key, offset in known if offset is not None and may_be_gone(key, offset)]
                # A commit that is under way is for the present topic.
                gone = [key for key, offset in found if is_gone(key, offset) and not offsets.is_unstable(key)]
                if gone:
                    doomed.append((entry, offsets.snapshot_of(gone, self._log_end(partition))))
        return doomed

    async def _sweep(self, partition: GroupPartition, topics: Mapping[str, TopicMetadata]) -> bool:
        """Whether all could be written. `topics`: all of them."""
        doomed = await self._found(
            partition,
            lambda key, offset: self._is_gone(key, offset, topics.get(key.topic)),
            lambda key, offset: self._is_gone(key, offset, self._topic(key.topic)),
        )
        shared = [entry.share for entry in partition.entries.values() if entry.share is not None]
        kept = await self._refused(doomed)
        begun = [topic for group in shared for topic in share_topics(group).values() if topic.name in topics]
        is_done = await self._forget_states([partition])
        keys = [TopicPartition(topic.name, number) for topic in begun for number in topic.partitions]
        removed = [key for key in keys if _is_removed(key, topics[key.topic])]
        if removed:
            self._services.supervisor.spawn("groups.purge", self._shares.partitions_removed(removed), Policy.ISOLATED)
        return is_done and not kept

    async def _forget_states(self, partitions: Sequence[GroupPartition]) -> bool:
        """Delete the states that share groups of these partitions have of topics that are gone. Whether all could be deleted."""
        return await self._shares.forget(
            lambda topic_id, name: self._topic(name) is not None or self._services.is_deleted(name, topic_id),
            partitions,
        )

    def _topic(self, name: str) -> TopicMetadata | None:
        topic = self._services.metadata([name]).topics[0]
        return None if topic.error else topic

    def _is_gone(self, key: TopicPartition, offset: CommittedOffset, topic: TopicMetadata | None) -> bool:
        """Whether its topic was deleted, or its partition removed. `topic`: of this name; None: there is none, but it may have
        vanished, and then it comes back with its id (ADR 19)."""
        if topic is None:
            return self._services.is_deleted(key.topic, offset.topic_id)
        return _is_removed(key, topic) or offset.is_of_another(topic.topic_id)

    async def expire(self) -> None:
        """Forget offsets that have outlived `offsets.retention.minutes`, and groups with nothing left."""
        retention_ms = self._services.config.offsets_retention_minutes * 60_000
        for partition in list(self._log.states()):
            slices = Slices(self._turns, ("groups.expiry", partition.index))
            for group_id, entry in list(partition.entries.items()):
                if slices.is_over:
                    await slices.next()
                subscribed: Set[str] | None = None
                if settled(self._log, entry).expired(self._clock.wall_ms(), retention_ms, None):
                    subscribed = await slices.run(subscribed_topics(entry))
                if partition.entries.get(group_id) is not entry:
                    continue
                try:
                    log_end = self._log_end(partition)
                except ApiError:  # another node coordinates its groups
                    break
                # What was committed meanwhile has not expired.
                expired = frozenset(self._expired(entry, retention_ms, subscribed))
                doomed = entry.offsets.snapshot(expired.__contains__, log_end)
                is_over = (
                    entry.is_empty
                    and entry.share is None
                    and not entry.group.pending_members
                    and not entry.offsets.is_pending
                    and len(doomed.partitions) == len(entry.offsets.committed)
                )
                if doomed.partitions or is_over:
                    slices.end()
                    await self._forget_quietly(entry, doomed, and_group=is_over)

    def _expired(self, entry: GroupEntry, retention_ms: int, subscribed: Set[str] | None) -> list[TopicPartition]:
        """The partitions whose offsets nobody needs any more (KIP-211). `subscribed`: by its members; None: that is not known."""
        now_ms, group = self._clock.wall_ms(), entry.group
        is_classic = entry.consumer is None and entry.streams is None
        if is_classic and entry.is_empty:
            idle_since = group.stored_ms if group.protocol_type else None
            return entry.offsets.expired(now_ms, retention_ms, idle_since)
        if is_classic and not (group.state is GroupState.STABLE and group.protocol_type == CONSUMER):
            return []
        expired = entry.offsets.expired(now_ms, retention_ms, None)
        return [key for key in expired if subscribed is not None and key.topic not in subscribed]


def _is_removed(key: TopicPartition, topic: TopicMetadata) -> bool:
    """Whether the topic of this name has fewer partitions."""
    return key.partition > max((each.partition for each in topic.partitions), default=-1)


def _group_tombstones(entry: GroupEntry) -> list[KeyValue]:
    group_id = entry.group.group_id
    if entry.streams is not None:
        return [streams_records.encode_record(group_id, record) for record in streams_tombstones(entry.streams)]
    if entry.consumer is None:
        return [(records.group_key(group_id), None)]
    return [consumer_records.encode_record(group_id, record) for record in consumer_tombstones(entry.consumer)]


def _deletable(
    partitions: Iterable[TopicPartition], subscribed: Set[str] | None
) -> Generator[None, None, CommitResults]:
    """Whether the offsets of each may be deleted, in steps. `subscribed`: by members of the group; None: that is not known."""
    results: CommitResults = {}
    for number, key in enumerate(partitions, 1):
        is_read = subscribed is None or key.topic in subscribed
        results[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        if not number % _STEP:
            yield
    return results


def subscribed_topics(entry: GroupEntry) -> Generator[None, None, set[str] | None]:
    """The topics that members of a consumer group subscribe to, in steps: together they may name millions. None: one of them does not say it
    in a way we know."""
    if entry.streams is not None:
        return entry.streams.source_topics()
    if entry.consumer is not None:
        return (yield from entry.consumer.subscribed_topics())
    found: set[str] = set()
    for member in list(entry.group.members.values()):
        topics = yield from reading_topics(member.metadata(entry.group.protocol))
        if topics is None:
            return None
        found.update(topics)
        yield
    return found
