"""ZooKeeper's znodes about topics that go: requests to delete them, replicas that are left, states that may be needed again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kafkalite.controller.decisions.state import EndedDeletion, Leftover, Vanished
from kafkalite.controller.zk_access import MAX_BYTES, MAX_OPS, ZkAccess
from kafkalite.coordination import admin_znodes, config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import (
    Create,
    Delete,
    MultiFailedError,
    NoNodeError,
    NotSentError,
    Op,
    OutcomeUnknownError,
    SetData,
    Stat,
    Watch,
)
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.verbs import size_of_ops
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.model import NO_TOPIC_ID, TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Attempts to remove a topic's znodes; the next tick tries again.
REMOVE_ATTEMPTS = 5
#: Topics whose znodes are looked at together.
TOPICS_AT_ONCE = 500
#: Operations of one transaction beside the fence and those on the requests for deletion. What is below a topic that needs more goes before.
OPS_AT_ONCE = MAX_OPS - 3

#: A topic, and what removes its znodes.
_Doomed = tuple[EndedDeletion, list[Op]]


class DeletionStorage(ZkAccess):
    """The controller's access to requests for deletion, and to topics that are deleted or have vanished."""

    async def read_deletions(self, watch: Watch) -> tuple[tuple[str, ...], str | None]:
        """The topics whose deletion is requested: in /admin/delete_topics (ours), and as znodes below it (Kafka's); and why its data
        cannot be read, if so. The watch fires at any change of either."""
        found = await self.read_request(paths.DELETE_TOPICS, watch)
        if found is None:
            return (), None
        children = await self._children_if_there(paths.DELETE_TOPICS, watch)
        try:
            return tuple(dict.fromkeys([*admin_znodes.decode_delete_topics(found[0]), *children])), None
        except ZnodeError as error:
            return tuple(children), error.reason

    async def remove_deletion_requests(self, names: Iterable[str]) -> None:
        """Take names that are no topics out of /admin/delete_topics, and remove the znode with the last one.

        If an attempt was applied, and not answered, a topic may have the name by now, and its deletion may be requested: that request stays.
        """
        for _ in range(REMOVE_ATTEMPTS):
            ops = await self._without_requests(frozenset(names), spares_topics=True)
            if not ops or await self._fenced(ops):
                return

    async def _without_requests(self, names: frozenset[str], *, spares_topics: bool = False) -> list[Op]:
        """The operations that take the names out of /admin/delete_topics and remove them below it; none if they are not there.

        `spares_topics`: not those that topics have now.
        """
        try:
            data, stat = await self.read(lambda: self._zk.get(paths.DELETE_TOPICS))
            children = (await self.read(lambda: self._zk.children(paths.DELETE_TOPICS)))[0]
        except NoNodeError:
            return []
        if spares_topics:  # looked for after the request was read: one that is made later changes the version
            asked = sorted(names)
            found = await self.get_many([paths.topic(name) for name in asked])
            names = frozenset(name for name, each in zip(asked, found, strict=True) if each is None)
        ops: list[Op] = [Delete(paths.delete_topic(name)) for name in children if name in names]
        try:
            requested = admin_znodes.decode_delete_topics(data)
        except ZnodeError:
            return ops  # data that cannot be read is left alone
        left = [name for name in requested if name not in names]
        if not left and len(ops) == len(children) and (ops or requested):
            return [*ops, Delete(paths.DELETE_TOPICS, stat.version)]
        if len(left) != len(requested):
            kept = admin_znodes.encode_delete_topics(left) if left else b""
            ops.append(SetData(paths.DELETE_TOPICS, kept, stat.version))
        return ops

    async def read_leftovers(self) -> dict[TopicId, Leftover]:
        """The replicas that dead brokers still had when their topics were deleted."""
        names = await self._children(paths.DELETED_TOPICS)
        leftovers: dict[TopicId, Leftover] = {}
        for name, each in zip(names, await self.get_many([paths.deleted_topic(name) for name in names]), strict=True):
            if each is not None:
                try:
                    topic, waiting = admin_znodes.decode_deleted_topic(each[0], paths.deleted_topic(name))
                    leftovers[TopicId(name)] = Leftover(topic, waiting)
                except ZnodeError as error:
                    _log.warning("znode.malformed", path=error.path, reason=error.reason)
        return leftovers

    async def read_vanished(self) -> dict[str, Vanished]:
        """The last states of topics whose znodes had vanished, by name."""
        names = await self._children(paths.VANISHED_TOPICS)
        found: dict[str, Vanished] = {}
        for name, each in zip(names, await self.get_many([paths.vanished_topic(name) for name in names]), strict=True):
            if each is not None:
                try:
                    topic, states, since = topic_znodes.decode_vanished_topic(each[0], paths.vanished_topic(name))
                    found[topic] = Vanished(TopicId(name), states, since)
                except ZnodeError as error:
                    _log.warning("znode.malformed", path=error.path, reason=error.reason)
        return found

    async def keep_vanished(self, topic: str, vanished: Vanished) -> None:
        """Store them; if this fails, only this controller knows them."""
        path = paths.vanished_topic(vanished.topic_id)
        data = topic_znodes.encode_vanished_topic(topic, vanished.states, vanished.since)
        await self.read(lambda: self._zk.ensure_path(paths.VANISHED_TOPICS))
        is_there = await self.read(lambda: self._zk.exists(path)) is not None
        if not await self._fenced([SetData(path, data) if is_there else Create(path, data)]):
            _log.warning("controller.vanished_not_kept", topic=topic)

    async def drop_vanished(self, topic_id: TopicId) -> None:
        """Remove states that are not needed any more. If this fails, another controller removes them."""
        await self._fenced([Delete(paths.vanished_topic(topic_id))])

    async def drop_leftover(self, topic_id: TopicId) -> None:
        """No replica is left. If this fails, the next controller tries again."""
        await self._fenced([Delete(paths.deleted_topic(topic_id))])

    async def remove_topics(self, topics: Sequence[EndedDeletion]) -> frozenset[str]:
        """Remove topics' znodes, children first; the names of those that are not removed.

        Many topics share a transaction. It removes each of them with all below, its settings and the requests that name it, and records the
        replicas that are left on dead brokers. Only of a topic that is too large for one, partitions' znodes go before.

        If this stops half-way, the requests for the rest are still there, so the next attempt finishes them. If a transaction was applied,
        and not answered, other topics may have the names already: those stay.
        """
        if any(each.leftover for each in topics):
            await self.read(lambda: self._zk.ensure_path(paths.DELETED_TOPICS))
        left, alone = list(topics), set[str]()
        for _ in range(REMOVE_ATTEMPTS):
            failed: list[EndedDeletion] = []
            for start in range(0, len(left), TOPICS_AT_ONCE):
                doomed = await self._doomed(left[start : start + TOPICS_AT_ONCE])
                for group in _groups(doomed, alone):
                    if not await self._remove_group(group, alone):
                        failed += [each for each, _ in group]
            left = failed
            if not left:
                break
        if left:
            _log.warning("controller.topics_not_removed", topics=len(left), first=left[0].topic)
        return frozenset(each.topic for each in left)

    async def _remove_group(self, group: Sequence[_Doomed], alone: set[str]) -> bool:
        """Whether these topics are gone. `alone` gets their names if one of them does not let the others go."""
        ops = [op for _, each in group for op in each]
        before, ops = ops[:-OPS_AT_ONCE], ops[-OPS_AT_ONCE:]
        for start in range(0, len(before), MAX_OPS - 1):
            if not await self._fenced(before[start : start + MAX_OPS - 1]):
                return False  # something was there, or gone, unexpectedly: look again
        names = frozenset(each.topic for each, _ in group)
        requests = await self._without_requests(names)
        failure = await self._failure_of([*ops, *requests]) if ops or requests else None
        if failure is None:
            return True
        has_no_answer = isinstance(failure, NotSentError | OutcomeUnknownError)
        is_of_requests = isinstance(failure, MultiFailedError) and failure.index > len(
            ops
        )  # there is a new one meanwhile
        if not (has_no_answer or is_of_requests):
            alone |= names
        return False

    async def _doomed(self, topics: Sequence[EndedDeletion]) -> list[_Doomed]:
        """The operations that remove each of these topics, children before parents. Those whose names other topics have are left out."""
        where = [
            path
            for each in topics
            for path in (paths.topic(each.topic), paths.topic_partitions(each.topic), paths.config_topic(each.topic))
        ]
        records = [paths.deleted_topic(each.topic_id) for each in topics if each.leftover]
        changes, *found = await self.get_many([paths.CONFIG_CHANGES, *where, *records])
        znodes = {each.topic: found[at * 3 : at * 3 + 3] for at, each in enumerate(topics)}
        recorded = {path for path, each in zip(records, found[len(where) :], strict=True) if each is not None}
        mine = [each for each in topics if not _is_anothers(znodes[each.topic][0], each)]
        below = await self._below([each.topic for each in mine if znodes[each.topic][1] is not None])
        requests = await self._partition_requests({each.topic for each in mine})
        doomed: list[_Doomed] = []
        async for each in with_pauses(mine):
            topic, partitions, settings = znodes[each.topic]
            last = (paths.topic_partitions(each.topic), paths.topic(each.topic), paths.config_topic(each.topic))
            ops: list[Op] = [Delete(path) for path in below.get(each.topic, ())]
            # Else they would add and remove partitions of a later topic of this name.
            ops += map(Delete, requests.get(each.topic, ()))
            ops += [
                Delete(path) for path, is_there in zip(last, (partitions, topic, settings), strict=True) if is_there
            ]
            if each.leftover and (path := paths.deleted_topic(each.topic_id)) not in recorded:
                ops.append(Create(path, admin_znodes.encode_deleted_topic(each.topic, each.leftover)))
            if _has_settings(settings, last[-1]) and changes is not None:
                ops.append(notification(TOPICS, each.topic))  # else a topic of the same name would inherit the settings
            doomed.append((each, ops))
        return doomed

    async def _partition_requests(self, names: Container[str]) -> dict[str, list[str]]:
        """By topic the paths of requests to add partitions to it and to remove some, children before parents."""
        found: dict[str, list[str]] = {}
        for root in (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE):
            parents = [f"{root}/{name}" for name in await self._children(root) if name in names]
            for parent, children in zip(parents, await self._read_each(self._children, parents), strict=True):
                if children:
                    paths_of = found.setdefault(parent.rpartition("/")[2], [])
                    paths_of += [*(f"{parent}/{child}" for child in children), parent]
        return found

    async def _below(self, names: Sequence[str]) -> dict[str, list[str]]:
        """By topic the paths of its partitions and all that is below them, children before parents."""
        parents = [paths.topic_partitions(name) for name in names]
        numbers = await self._read_each(self._children, parents)
        partitions = [f"{parent}/{number}" for parent, each in zip(parents, numbers, strict=True) for number in each]
        states = iter(await self.get_many([f"{path}/state" for path in partitions]) if partitions else [])
        found: dict[str, list[str]] = {}
        for name, parent, each in zip(names, parents, numbers, strict=True):
            doomed = found[name] = []
            for path in (f"{parent}/{number}" for number in each):
                doomed += [f"{path}/state", path] if next(states) is not None else [path]
        return found


def _groups(doomed: Iterable[_Doomed], alone: Container[str]) -> list[list[_Doomed]]:
    """Topics that go in one transaction, with room for the operations on requests that name them; each of `alone` has its own."""
    groups: list[list[_Doomed]] = []
    room = room_bytes = 0
    for topic, ops in doomed:
        needed, size = len(ops) + 1, size_of_ops(ops)
        if topic.topic in alone or needed > room or size > room_bytes:
            groups.append([])
            room, room_bytes = OPS_AT_ONCE, MAX_BYTES
        groups[-1].append((topic, ops))
        room, room_bytes = (0, 0) if topic.topic in alone else (room - needed, room_bytes - size)
    return groups


def _is_anothers(found: tuple[bytes, Stat] | None, topic: EndedDeletion) -> bool:
    """Whether a topic with another id has this name."""
    if found is None or topic.topic_id == NO_TOPIC_ID:
        return False
    try:
        holder = topic_znodes.decode_topic(found[0], paths.topic(topic.topic)).topic_id
    except ZnodeError:
        return False
    return holder not in (topic.topic_id, NO_TOPIC_ID)


def _has_settings(znode: tuple[bytes, Stat] | None, path: str) -> bool:
    """Whether a node may know settings by this znode."""
    try:
        return znode is not None and bool(config_znodes.decode_config(znode[0], path))
    except ZnodeError:
        return True
