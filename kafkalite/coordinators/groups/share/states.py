"""The kept states of the partitions that share groups share (KIP-932): when they begin, and when they are deleted.

The share coordinator has them. The group's own records say which ones there are, and are replicated before a state changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from kafkalite.coordinators.groups.decisions.share import states as rules
from kafkalite.coordinators.groups.decisions.share.group import (
    SharedTopic,
    SharedTopics,
    ShareGroup,
    ShareRecord,
    deletion_begun,
    joined,
    only,
    partitions_of,
    without,
)
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition, ShareRuntime
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.share.group_log import ShareGroupLog, need_share_group
from kafkalite.coordinators.shares.persistence import ShareKey, SharePersister
from kafkalite.env.side_by_side import SideBySide
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import NO_OFFSET, Offset, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: A member that joins waits for this long until the partitions of its topics can be assigned.
_PATIENCE_S = 3.0
#: States that are initialized or deleted at a time.
_CHUNK = 100
#: A group is deleted when nothing is begun or set while its states are deleted. So often it is tried.
_ROUNDS = 10
#: The pause after states of removed topics or partitions could not be deleted, in seconds.
_DELETE_AGAIN_S = 1.0

_Work = Callable[[], Coroutine[object, object, None]]


class ShareGroupStates:
    """See the module. Methods raise ApiError."""

    def __init__(self, parts: GroupParts, group_log: ShareGroupLog) -> None:
        self._services = parts.services
        self._log = parts.log
        self._topics = parts.topics
        self._group_log = group_log
        self._repeats = Repeats(parts.services.clock.monotonic)
        #: The one who makes this sets it. Called when a share group needs it: few clusters have any.
        self.persister: Callable[[], SharePersister]

    def has_due(self, entry: GroupEntry, group: ShareGroup) -> bool:
        """Whether there are partitions whose states are to begin now."""
        return bool(_due(entry, group))

    def loaded(self, entry: GroupEntry, group: ShareGroup) -> None:
        """The group was loaded: its coordinator before this one may have ended in the middle of a deletion."""
        initializing = partitions_of(group.shared.initializing)
        entry.share_runtime.doubtful = {topic_id: set(numbers) for topic_id, numbers in initializing.items()}

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group: what share coordinators are asked for is given up."""
        runtime = entry.share_runtime
        runtime.is_over = True
        for task in list(runtime.asking):
            task.cancel()

    def work(self, entry: GroupEntry, group: ShareGroup) -> None:
        """See to it that states begin, and that deletions end, soon."""
        runtime = entry.share_runtime
        if _left_to_delete(entry, group):
            name = f"groups.share_deletion.{group.group_id}"
            self._services.supervisor.spawn(name, self._resume_deletion(entry, group), Policy.ISOLATED)
        if _due(entry, group) and not runtime.is_initializing:
            runtime.is_initializing = True
            name = f"groups.share.{group.group_id}"
            self._services.supervisor.spawn(name, self._initialize(entry, group), Policy.ISOLATED)

    async def begun(self, entry: GroupEntry) -> None:
        """Return when the states are initialized, or after a while."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await entry.share_runtime.begun.wait()
        except TimeoutError:
            pass

    async def _initialize(self, entry: GroupEntry, group: ShareGroup) -> None:
        """Begin the states of partitions that are new. What cannot be begun now is tried again by a later heartbeat."""
        runtime = entry.share_runtime
        try:
            while self._group_log.is_current(entry, group):
                keys = list(islice(_keys_of(group.group_id, _due(entry, group)), _CHUNK))
                epoch, deletions = group.epoch, runtime.deletions
                await self._group_log.stored(entry, group)
                if runtime.deletions != deletions:
                    continue  # others are due by now
                begun = await _errors(
                    runtime,
                    (partial(self._begin, entry, group, topic_id, key, epoch, NO_OFFSET) for topic_id, key in keys),
                )
                if runtime.deletions != deletions:
                    continue  # what was deleted meanwhile, and is wanted again by now, begins another time
                done: dict[TopicId, set[int]] = {}
                for (topic_id, key), error in zip(keys, begun, strict=True):
                    if error is None:
                        done.setdefault(topic_id, set()).add(key.partition)
                if not done or not self._group_log.is_current(entry, group):
                    return
                found = {topic_id: frozenset(numbers) for topic_id, numbers in done.items()}
                self._group_log.write(entry, group, rules.initialized(group, found))
        except ApiError as error:
            _log.info("group.share_not_begun", group=group.group_id, error=str(error))
        finally:
            runtime.is_initializing = False
            begun_before, runtime.begun = runtime.begun, asyncio.Event()
            begun_before.set()
            runtime.rest()

    async def _begin(
        self, entry: GroupEntry, group: ShareGroup, topic_id: TopicId, key: ShareKey, epoch: int, start_offset: Offset
    ) -> None:
        """Begin the state of one partition, or set where it begins. Raises ApiError."""
        runtime = entry.share_runtime
        if key.partition in runtime.doubtful.get(topic_id, ()):
            async with runtime.doubts:
                if key.partition in runtime.doubtful[topic_id]:
                    await self.persister().delete(key)
                    runtime.doubtful[topic_id].discard(key.partition)
        if not _is_to_begin(entry, group, topic_id, key.partition):
            raise _not_deleted()
        runtime.beginning[key] += 1
        try:
            await self.persister().initialize(key, epoch, start_offset)
        finally:
            runtime.beginning[key] -= 1
            if not runtime.beginning[key]:
                del runtime.beginning[key]
            runtime.rest()

    async def _erase(self, runtime: ShareRuntime, key: ShareKey) -> None:
        """Delete the state of one partition, which is not to begin any more. Raises ApiError."""
        while key in runtime.beginning:
            await runtime.rested.wait()
        await self.persister().delete(key)

    async def delete_states(self, entry: GroupEntry, topic_ids: Iterable[TopicId]) -> dict[TopicId, ApiError | None]:
        """Forget how far the group is on these topics, and what became of each. Members get them no more meanwhile.

        What is being deleted now is left alone: a second deletion could end later, when its states have begun again.
        """
        group, runtime, named = need_share_group(entry), entry.share_runtime, set(topic_ids)
        found: dict[TopicId, ApiError | None] = {}
        while True:
            self._group_log.check_current(entry, group)
            left = named - found.keys()
            wanted = {key: each for key, each in rules.begun(group).items() if key in left}
            free = {key: each for key, each in wanted.items() if key not in runtime.being_deleted}
            # Nobody else begins to delete them while this is noted.
            runtime.being_deleted |= free.keys()
            try:
                doomed = await self._note_deletion(entry, group, free.keys())
            finally:
                runtime.being_deleted -= free.keys()
                runtime.rest()
            found |= await self._delete(entry, group, doomed)
            if len(doomed) == len(free):
                return found | {key: _not_deleted() for key in wanted.keys() - free.keys()}

    async def _note_deletion(
        self, entry: GroupEntry, group: ShareGroup, wanted: Collection[TopicId]
    ) -> dict[TopicId, SharedTopic]:
        """Of which topics it could be noted. A record that is nearly as large as it may be has no room for all: they are deleted in turn."""
        doomed: dict[TopicId, SharedTopic] = {}
        most = len(wanted)

        def noting() -> list[ShareRecord]:
            nonlocal doomed
            doomed = dict(islice(((key, each) for key, each in rules.begun(group).items() if key in wanted), most))
            return [deletion_begun(group.shared, doomed)] if doomed else []

        while most:
            try:
                await self._group_log.write_in_steps(entry, group, noting)
            except ApiError as error:
                if error.code is not ErrorCode.INVALID_COMMIT_OFFSET_SIZE or len(doomed) == 1:
                    raise
                most = len(doomed) // 2
            else:
                break
        return doomed

    async def _delete(
        self, entry: GroupEntry, group: ShareGroup, doomed: SharedTopics
    ) -> dict[TopicId, ApiError | None]:
        """Delete the states of topics that are noted as being deleted."""
        runtime = entry.share_runtime
        runtime.being_deleted |= doomed.keys()
        runtime.deletions += bool(doomed)
        try:
            await self._group_log.stored(entry, group)
            failed: dict[TopicId, ApiError | None] = dict.fromkeys(doomed)
            asked: list[TopicId] = []

            def erasing() -> Iterator[_Work]:
                for topic_id, key in _keys_of(group.group_id, doomed):
                    asked.append(topic_id)
                    yield partial(self._erase, runtime, key)

            errors = await _errors(runtime, erasing())
            for topic_id, error in zip(asked, errors, strict=True):
                failed[topic_id] = failed[topic_id] or error
            self._group_log.check_current(entry, group)
            kept = {key for key in doomed if failed[key]}
            await self._group_log.write_in_steps(entry, group, lambda: rules.deleted(group, doomed, kept))
        finally:
            runtime.being_deleted -= doomed.keys()
            runtime.rest()
        await self._group_log.replicated(entry)
        return failed

    async def _resume_deletion(self, entry: GroupEntry, group: ShareGroup) -> None:
        """What a coordinator before this one, or an attempt that failed, has begun to delete."""
        names = _left_to_delete(entry, group)
        if not names:
            return
        # Records of versions up to 2026-11 do not say which partitions.
        present = {
            topic.topic_id: SharedTopic(topic.name, frozenset(range(topic.partitions)))
            for topic in self._topics.lookup(set(names.values())).values()
        }
        noted = joined({key: SharedTopic(name, frozenset()) for key, name in names.items()}, rules.begun(group))
        doomed = {key: each for key, each in joined(noted, present).items() if key in names}
        try:
            await self._delete(entry, group, doomed)
        except ApiError as error:
            _log.info("group.share_states_kept", group=group.group_id, error=str(error))

    async def alter_offsets(
        self,
        entry: GroupEntry,
        wanted: Mapping[TopicId, tuple[str, Mapping[int, Offset]]],
    ) -> dict[tuple[TopicId, int], ApiError | None]:
        """Set start offsets of an empty group, which may be new. What was acknowledged from there on is forgotten."""
        group, runtime = entry.share or ShareGroup(entry.group.group_id), entry.share_runtime
        if not wanted.keys().isdisjoint(_left_to_delete(entry, group)):
            await self._resume_deletion(entry, group)
            self._group_log.check_current(entry, group)
            # What was deleted meanwhile would leave its states.
            wanted = {key: each for key, each in wanted.items() if self._topics.topic_id(each[0]) == key}
        if group.members:
            raise api_error(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        if not wanted.keys().isdisjoint(group.shared.deleting):
            raise _not_deleted()
        runtime.altering += 1
        try:
            return await self._alter_offsets(entry, group, wanted)
        finally:
            runtime.altering -= 1
            runtime.rest()
            if group.members:  # one that came meanwhile waits for states
                self.work(entry, group)

    async def _alter_offsets(
        self, entry: GroupEntry, group: ShareGroup, wanted: Mapping[TopicId, tuple[str, Mapping[int, Offset]]]
    ) -> dict[tuple[TopicId, int], ApiError | None]:
        runtime = entry.share_runtime
        deletions = runtime.deletions
        named = {key: SharedTopic(name, frozenset(each)) for key, (name, each) in wanted.items()}
        await self._group_log.write_in_steps(entry, group, lambda: rules.about_to_set(group, named))
        epoch = group.epoch
        await self._group_log.stored(entry, group)
        places: list[tuple[TopicId, int]] = []

        def beginnings() -> Iterator[_Work]:
            for topic_id, (_, offsets) in wanted.items():
                for number, offset in offsets.items():
                    places.append((topic_id, number))
                    key = ShareKey.of(group.group_id, topic_id, number)
                    yield partial(self._begin, entry, group, topic_id, key, epoch, offset)

        errors = await _errors(runtime, beginnings())
        results = dict(zip(places, errors, strict=True))
        self._group_log.check_current(entry, group)
        done = {
            topic_id: (name, frozenset(number for number in each if results[topic_id, number] is None))
            for topic_id, (name, each) in wanted.items()
        }

        def setting() -> list[ShareRecord]:
            if runtime.deletions != deletions:
                raise _not_deleted()
            return rules.set_by_hand(group, done)

        await self._group_log.write_in_steps(entry, group, setting)
        await self._group_log.replicated(entry)
        return results

    async def topics_deleted(self, names: Iterable[str]) -> None:
        """States of topics that are no more are deleted, however often it fails."""
        wanted = set(names)
        # By their ids: meanwhile there may be others of these names, and vanish for a moment.
        gone = {
            topic_id
            for partition in self._log.states()
            for entry in partition.entries.values()
            if entry.share is not None
            for topic_id, topic in rules.begun(entry.share).items()
            if topic.name in wanted and self._topics.topic_id(topic.name) != topic_id
        }
        is_done = not gone
        while not is_done:
            is_done = await self.forget(lambda topic_id, _: topic_id in gone, list(self._log.states()))
            if not is_done:
                await asyncio.sleep(_DELETE_AGAIN_S)

    async def forget(self, is_gone: Callable[[TopicId, str], bool], partitions: Sequence[GroupPartition]) -> bool:
        """Delete the states that groups of these partitions have of topics, by id and name, that are gone. Those of a topic that is there
        stay. Whether all could be deleted."""
        is_done = True
        for partition in partitions:
            for entry in list(partition.entries.values()):
                if entry.share is None:
                    continue
                doomed = [
                    topic_id
                    for topic_id, topic in rules.begun(entry.share).items()
                    if is_gone(topic_id, topic.name) and self._topics.topic_id(topic.name) != topic_id
                ]
                if doomed:
                    is_done &= await self._forgotten(entry, entry.share, doomed)
        return is_done

    async def _forgotten(self, entry: GroupEntry, group: ShareGroup, doomed: Sequence[TopicId]) -> bool:
        """Whether these states could be deleted, or are not for this node to delete any more."""
        errors: list[ApiError | None] = []
        try:
            errors += (await self.delete_states(entry, doomed)).values()
        except ApiError as error:
            errors.append(error)
        failure = next((error for error in errors if error is not None), None)
        if failure is None or not self._group_log.is_current(entry, group):
            return True
        suppressed = self._repeats.admit(group.group_id)
        if suppressed is not None:
            _log.info("group.share_states_kept", group=group.group_id, error=str(failure), suppressed=suppressed)
        return False

    async def partitions_removed(self, keys: Iterable[TopicPartition]) -> None:
        """States of partitions that topics do not have any more are deleted."""
        wanted: dict[str, set[int]] = {}
        for key in keys:
            wanted.setdefault(key.topic, set()).add(key.partition)
        gone = self._still_gone(wanted)
        await _side_by_side(
            [
                partial(self._delete_removed, entry, entry.share, doomed)
                for partition in self._log.states()
                for entry in partition.entries.values()
                if entry.share is not None and (doomed := only(rules.begun(entry.share), gone))
            ]
        )

    def _still_gone(self, numbers: Mapping[str, Iterable[int]]) -> dict[TopicId, frozenset[int]]:
        return {
            topic.topic_id: frozenset(number for number in numbers[name] if number >= topic.partitions)
            for name, topic in self._topics.lookup(numbers).items()
        }

    async def _delete_removed(self, entry: GroupEntry, group: ShareGroup, doomed: SharedTopics) -> None:
        """Delete the states of partitions that were removed from their topics, however often it fails.

        Until then these are partitions whose states have yet to begin: they begin again if the topics get them back.
        """
        runtime = entry.share_runtime
        runtime.leaving = joined(runtime.leaving, doomed)
        runtime.deletions += 1
        try:
            self._group_log.write(entry, group, rules.beginning_again(group, doomed))
            await self._group_log.stored(entry, group)
            keys = list(_keys_of(group.group_id, doomed))
            while keys and self._group_log.is_current(entry, group):
                erasing = [partial(self._erase, runtime, key) for _, key in keys[:_CHUNK]]
                errors = await _errors(runtime, erasing)
                failed = [key for key, error in zip(keys, errors, strict=False) if error is not None]
                keys = [*failed, *keys[_CHUNK:]]
                if failed:
                    await asyncio.sleep(_DELETE_AGAIN_S)
            gone = self._still_gone({topic.name: topic.partitions for topic in doomed.values()})
            if self._group_log.is_current(entry, group):
                self._group_log.write(entry, group, rules.forgotten(group, only(doomed, gone)))
        finally:
            runtime.leaving = without(runtime.leaving, partitions_of(doomed))

    async def delete_group(self, entry: GroupEntry) -> None:
        """Raises ApiError NON_EMPTY_GROUP too; and the group is left with the states that could not be deleted."""
        group, runtime = need_share_group(entry), entry.share_runtime
        for _ in range(_ROUNDS):
            # What begins or is set later would fence the next group of this name, and what is deleted later would take its states.
            while runtime.is_busy and not group.members:
                await runtime.rested.wait()
                self._group_log.check_current(entry, group)
            if group.members:
                raise api_error(ErrorCode.NON_EMPTY_GROUP)
            await self._resume_deletion(entry, group)
            if _left_to_delete(entry, group):
                raise _not_deleted()
            failed = await self.delete_states(entry, rules.begun(group))
            for error in failed.values():
                if error is not None:
                    raise error
            need_share_group(entry)  # raises if it was deleted meanwhile: by now there may be another one of this name
            if group.members:
                raise api_error(ErrorCode.NON_EMPTY_GROUP)
            if not (runtime.is_busy or rules.begun(group)):
                await self._group_log.delete(entry, group)
                return
        raise _not_deleted()


def _left_to_delete(entry: GroupEntry, group: ShareGroup) -> dict[TopicId, str]:
    """Topics whose deletion was noted, and that nobody deletes now, with their names."""
    runtime = entry.share_runtime
    return {key: name for key, name in group.shared.deleting.items() if key not in runtime.being_deleted}


def _due(entry: GroupEntry, group: ShareGroup) -> dict[TopicId, SharedTopic]:
    """The partitions whose states are to begin now. None while an administrator sets offsets: a state that began would undo that."""
    shared, runtime = group.shared, entry.share_runtime
    if runtime.altering:
        return {}
    due = without(shared.initializing, partitions_of(runtime.leaving))
    return {key: each for key, each in due.items() if key not in shared.deleting}


def _is_to_begin(entry: GroupEntry, group: ShareGroup, topic_id: TopicId, number: int) -> bool:
    leaving = entry.share_runtime.leaving.get(topic_id)
    return rules.is_to_begin(group, topic_id, number) and (leaving is None or number not in leaving.partitions)


def _keys_of(group_id: str, topics: SharedTopics) -> Iterator[tuple[TopicId, ShareKey]]:
    """The keys of all these partitions, sorted, each with its topic. One at a time: there may be more than one turn of the loop can make."""
    for topic_id in sorted(topics):
        for number in sorted(topics[topic_id].partitions):
            yield topic_id, ShareKey.of(group_id, topic_id, number)


async def _errors(runtime: ShareRuntime, work: Iterable[_Work]) -> list[ApiError | None]:
    """Ask share coordinators for all this, _CHUNK at a time side by side; the error of each. The work is taken as its turn comes."""
    left = iter(work)
    errors: list[ApiError | None] = []
    while some := [partial(_while_ours, runtime, each) for each in islice(left, _CHUNK)]:
        errors += await _side_by_side(some)
    return errors


async def _while_ours(runtime: ShareRuntime, work: _Work) -> None:
    """Do this as long as this node coordinates the group. Raises ApiError.

    The next coordinator does it as well. What this one asked for later would delete a state that has begun again, or begin one of a group
    that was deleted.
    """
    task = asyncio.current_task()
    assert task is not None
    if runtime.is_over:
        raise api_error(ErrorCode.NOT_COORDINATOR)
    runtime.asking.add(task)
    try:
        await work()
    except asyncio.CancelledError:
        if not runtime.is_over or task.uncancel():
            raise
        raise api_error(ErrorCode.NOT_COORDINATOR) from None
    finally:
        runtime.asking.discard(task)


async def _side_by_side(work: Sequence[_Work]) -> list[ApiError | None]:
    async def one(each: _Work) -> ApiError | None:
        try:
            await each()
        except ApiError as error:
            return error
        return None

    async with SideBySide() as tasks:
        found = [tasks.create_task(one(each)) for each in work]
    return [task.result() for task in found]


def _not_deleted() -> ApiError:
    """What is set while offsets are deleted may be deleted, too. A client that gets this error asks again."""
    return api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "offsets of the group are being deleted")
