"""ZooKeeper's znodes about topics that go: requests to delete them, replicas that are left, states that may be needed again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalite.controller.decisions.state import Leftover, Vanished
from kafkalite.controller.zk_access import MAX_OPS, ZkAccess
from kafkalite.coordination import admin_znodes, config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete, NoNodeError, Op, SetData, Stat, Watch
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.model import NO_TOPIC_ID, BrokerId, TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Attempts to remove a topic's znodes; the next tick tries again.
REMOVE_ATTEMPTS = 5
#: Requests for partitions of a topic that go in the same transaction as the topic; further ones go before.
REQUESTS_AT_ONCE = MAX_OPS // 2


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

    async def remove_topic(self, name: str, topic_id: TopicId, leftover: Sequence[tuple[int, BrokerId]] = ()) -> bool:
        """Remove a topic's znodes, children first. One transaction removes the topic, its settings and the requests that name it, and
        records the replicas that are left on dead brokers.

        If this stops half-way, the request is still there, so the next attempt finishes it. If the last transaction was applied, and not
        answered, another topic may have the name already: that one stays.
        """
        if leftover:
            await self.read(lambda: self._zk.ensure_path(paths.DELETED_TOPICS))
        for _ in range(REMOVE_ATTEMPTS):
            if await self._is_anothers(name, topic_id):
                return True
            requests = await self._partition_requests(name)
            doomed = [*await self._below_topic(name), *requests[:-REQUESTS_AT_ONCE]]
            done = True
            for start in range(0, len(doomed), MAX_OPS - 1):
                done = done and await self._fenced(Delete(path) for path in doomed[start : start + MAX_OPS - 1])
            if not done:
                continue  # something was there, or gone, unexpectedly: look again
            last = [paths.topic_partitions(name), paths.topic(name), paths.config_topic(name)]
            *found, left, changes = await self.get_many(
                [*last, paths.deleted_topic(topic_id or "-"), paths.CONFIG_CHANGES]
            )
            ops: list[Op] = [Delete(path) for path, each in zip(last, found, strict=True) if each is not None]
            ops += await self._without_requests(frozenset([name]))
            # Else they would add and remove partitions of a later topic of this name.
            ops += map(Delete, requests[-REQUESTS_AT_ONCE:])
            if leftover and left is None:
                ops.append(Create(paths.deleted_topic(topic_id), admin_znodes.encode_deleted_topic(name, leftover)))
            if _has_settings(found[-1], last[-1]) and changes is not None:
                ops.append(notification(TOPICS, name))  # else a topic of the same name would inherit the settings
            if not ops or await self._fenced(ops):
                return True
        _log.warning("controller.topic_not_removed", topic=name)
        return False

    async def _is_anothers(self, name: str, topic_id: TopicId) -> bool:
        """Whether a topic with another id has this name."""
        path = paths.topic(name)
        (found,) = await self.get_many([path])
        if found is None or topic_id == NO_TOPIC_ID:
            return False
        try:
            return topic_znodes.decode_topic(found[0], path).topic_id not in (topic_id, NO_TOPIC_ID)
        except ZnodeError:
            return False

    async def _partition_requests(self, name: str) -> list[str]:
        """The paths of requests to add partitions to a topic and to remove some, children before parents."""
        found: list[str] = []
        for parent in (paths.partitions_add(name), paths.partitions_remove(name)):
            children = await self._children(parent)
            found += [*(f"{parent}/{child}" for child in children), *([parent] if children else [])]
        return found

    async def _below_topic(self, name: str) -> list[str]:
        """The paths of a topic's partitions and all that is below them, children before parents."""
        partitions = [
            f"{paths.topic_partitions(name)}/{child}" for child in await self._children(paths.topic_partitions(name))
        ]
        doomed: list[str] = []
        states = await self.get_many([f"{path}/state" for path in partitions])
        for path, each in zip(partitions, states, strict=True):
            if each is not None:
                doomed.append(f"{path}/state")
            doomed.append(path)
        return doomed


def _has_settings(znode: tuple[bytes, Stat] | None, path: str) -> bool:
    """Whether a node may know settings by this znode."""
    try:
        return znode is not None and bool(config_znodes.decode_config(znode[0], path))
    except ZnodeError:
        return True
