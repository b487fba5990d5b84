"""ZooKeeper as the controller reads and writes it: pipelined, in chunks, every write fenced. No Kafka policy.

Each transaction begins with a check of /controller_epoch: a controller that has been succeeded changes nothing any
more (F4, KAFKA-6082). Reads are repeated until the session answers or ends; a write whose outcome is unknown is
reported as a conflict, and the caller reads before it decides again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kafkalite.controller.elections import NOT_CREATED
from kafkalite.controller.events import PartitionOrders, RestartOrder, RestartsRequested, TopicChange
from kafkalite.controller.state import Leftover, Replicas, Topic, Vanished
from kafkalite.controller.stats import ControllerStats
from kafkalite.coordination import order_znodes, paths, znodes
from kafkalite.coordination.coordinator import (
    Check,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NoNodeError,
    NotSentError,
    Op,
    OpResult,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    TooBigError,
    Watch,
)
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, BrokerInfo, LeaderAndIsr, PartitionEpoch, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

T = TypeVar("T")

#: Operations and bytes of one transaction (F31: larger ones cut the connection for everybody).
MAX_OPS = 500
MAX_BYTES = 512 * 1024
#: Requests under /restart_partitions that are read at once.
MAX_RESTARTS = 200
#: How long a read that found no connection waits at most before it is tried again.
RETRY_S = 0.25
#: Attempts to remove a topic's znodes before the next tick takes it up again.
REMOVE_ATTEMPTS = 5


class DeposedError(KafkaliteError):
    """/controller_epoch is not ours any more: another controller is in office."""


@dataclass(frozen=True, slots=True)
class StatesFound:
    """State znodes: value (None: no znode), transaction that wrote it last (mzxid), reason why it cannot be read."""

    states: dict[TopicPartition, LeaderAndIsr | None]
    modified: dict[TopicPartition, int]
    malformed: dict[TopicPartition, str]


class Connectivity:
    """Wakes who waits for a session to be connected again, or to be over."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._changed = asyncio.Event()
        coordinator.on_state(lambda _: self._changed.set())

    async def wait(self) -> None:
        """Wait for a change of state, but no longer than RETRY_S. Raises SessionExpiredError."""
        if self._coordinator.state is SessionState.EXPIRED:
            raise SessionExpiredError("the session is over")
        self._changed.clear()
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return


class Storage:
    """One term of office's access to ZooKeeper.

    Args:
        epoch_version: zkVersion of /controller_epoch as our election left it.
    Every method raises SessionExpiredError; those that write also DeposedError.
    """

    def __init__(
        self, coordinator: Coordinator, connectivity: Connectivity, epoch_version: int, stats: ControllerStats
    ) -> None:
        self._zk = coordinator
        self._connectivity = connectivity
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._stats = stats

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read until it is answered."""
        while True:
            try:
                return await call()
            except (NotSentError, OutcomeUnknownError):
                await self._connectivity.wait()

    async def get_many(self, where: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data and stat by path, None where there is no znode."""
        self._stats.zk_ops["read"] += len(where)
        return await self.read(lambda: self._zk.get_many(where))

    # --- what there is ---------------------------------------------------------------------------------------

    async def _children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names; empty if the znode is missing (it is made, so that the watch can be armed)."""
        while True:
            try:
                self._stats.zk_ops["read"] += 1
                return (await self.read(lambda: self._zk.children(path, watch)))[0]
            except NoNodeError:
                if watch is None:
                    return []
                await self.read(lambda: self._zk.ensure_path(path))

    async def read_brokers(self, watch: Watch) -> tuple[dict[BrokerId, BrokerInfo], dict[str, str]]:
        """Live brokers by id, and path -> reason for registrations that cannot be used."""
        ids, strangers = paths.broker_ids(await self._children(paths.BROKER_IDS, watch))
        malformed = {f"{paths.BROKER_IDS}/{name}": "not a broker id" for name in strangers}
        brokers: dict[BrokerId, BrokerInfo] = {}
        found = await self.read(lambda: self._zk.get_many([paths.broker(id_) for id_ in ids]))
        for id_, each in zip(ids, found, strict=True):
            if each is None:
                continue  # gone since the names were read; the watch tells
            data, stat = each
            try:
                brokers[id_] = znodes.decode_broker(data, paths.broker(id_)).info(id_, BrokerEpoch(stat.czxid))
            except ZnodeError as error:
                malformed[paths.broker(id_)] = error.reason
        return brokers, malformed

    async def read_topics(
        self, known: Mapping[str, Topic], watch: Watch | None, *, again: bool
    ) -> tuple[dict[str, Topic], dict[str, str]]:
        """All topics, and path -> reason for those that cannot be read.

        Args:
            known: topics whose znode need not be read, unless `again`.
        """
        names = await self._children(paths.TOPICS, watch)
        unread = [name for name in names if again or name not in known]
        found = await self.get_many([paths.topic(name) for name in unread])
        topics = {name: known[name] for name in names if not again and name in known}
        malformed: dict[str, str] = {}
        for name, each in zip(unread, found, strict=True):
            if each is None:
                continue
            try:
                topics[name] = _topic(znodes.decode_topic(each[0], paths.topic(name)), each[1].version)
            except ZnodeError as error:
                malformed[paths.topic(name)] = error.reason
        return dict(sorted(topics.items())), malformed

    async def watch_topics(self, names: Sequence[str], watch_of: Callable[[str], Watch]) -> dict[str, Stat | None]:
        """Arm a watch on each topic's data: somebody may write it by hand. Returns what is there now."""
        self._stats.zk_ops["read"] += len(names)

        async def arm(name: str) -> Stat | None:
            return await self.read(lambda: self._zk.exists(paths.topic(name), watch_of(name)))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {name: group.create_task(arm(name)) for name in names}
        except* SessionExpiredError as errors:
            raise SessionExpiredError("the session is over") from errors
        return {name: task.result() for name, task in tasks.items()}

    async def read_states(self, partitions: Sequence[TopicPartition]) -> StatesFound:
        """State by partition, None where there is none.

        Partitions of a topic whose own znode is gone are left out: nothing can be written there.
        """
        self._stats.zk_ops["read"] += len(partitions)
        where = [paths.partition_state(partition) for partition in partitions]
        found = await self.read(lambda: self._zk.get_many(where))
        states: dict[TopicPartition, LeaderAndIsr | None] = {}
        malformed: dict[TopicPartition, str] = {}
        modified = {
            partition: each[1].mzxid for partition, each in zip(partitions, found, strict=True) if each is not None
        }
        for partition, path, each in zip(partitions, where, found, strict=True):
            try:
                states[partition] = (
                    None if each is None else znodes.decode_partition_state(each[0], each[1].version, path)
                )
            except ZnodeError as error:
                malformed[partition] = error.reason
        stateless = sorted({partition.topic for partition, state in states.items() if state is None})
        if stateless:
            there = await self.get_many([paths.topic(name) for name in stateless])
            gone = {name for name, each in zip(stateless, there, strict=True) if each is None}
            states = {partition: state for partition, state in states.items() if partition.topic not in gone}
        return StatesFound(states, modified, malformed)

    async def read_order(self, path: str, watch: Watch) -> tuple[bytes, int] | None:
        """An admin znode's data and version, None if there is no order; the watch fires in both cases."""
        while True:
            self._stats.zk_ops["read"] += 2
            if await self.read(lambda: self._zk.exists(path, watch)) is None:
                return None
            try:
                data, stat = await self.read(lambda: self._zk.get(path))
            except NoNodeError:
                continue
            return data, stat.version

    # --- states ----------------------------------------------------------------------------------------------

    async def write_states(
        self, writes: Mapping[TopicPartition, LeaderAndIsr], chunk: int
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Conditional writes in pipelined transactions of at most `chunk` operations.

        Returns:
            What was written, with its new partition epochs; and the partitions of transactions that failed, or whose
            outcome is unknown.
        """
        groups = await self._operations(writes)
        transactions: list[list[Op]] = []
        members: list[list[TopicPartition]] = []
        size = MAX_BYTES
        for partition, ops in groups:
            bytes_needed = sum(_size(op) for op in ops)
            if (
                not transactions
                or size + bytes_needed > MAX_BYTES
                or len(transactions[-1]) + len(ops) > min(chunk, MAX_OPS)
            ):
                transactions.append([self._fence])
                members.append([])
                size = _size(self._fence)
            transactions[-1] += ops
            members[-1].append(partition)
            size += bytes_needed
        self._stats.zk_ops["transaction"] += len(transactions)
        self._stats.zk_ops["write"] += len(writes)
        results = await self._zk.multi_many(transactions)
        written: dict[TopicPartition, LeaderAndIsr] = {}
        conflicts: list[TopicPartition] = []
        by_partition = dict(groups)
        for partitions, result in zip(members, results, strict=True):
            if isinstance(result, CoordinatorError):
                self._judge(result)
                conflicts += partitions
                continue
            at = 1
            for partition in partitions:
                at += len(by_partition[partition])
                written[partition] = _with_version(writes[partition], result[at - 1])
        self._stats.zk_ops["conflict"] += len(conflicts)
        return written, conflicts

    async def _operations(self, writes: Mapping[TopicPartition, LeaderAndIsr]) -> list[tuple[TopicPartition, list[Op]]]:
        """Per partition its operations, the one on the state last; parents that are missing come first."""
        new = [partition for partition in writes if writes[partition].partition_epoch == NOT_CREATED]
        parents = list(dict.fromkeys(paths.topic_partitions(partition.topic) for partition in new))
        parents += [paths.partition(partition) for partition in new]
        found = await self.get_many(parents) if parents else []
        missing = {path for path, each in zip(parents, found, strict=True) if each is None}
        groups: list[tuple[TopicPartition, list[Op]]] = []
        for partition, state in writes.items():
            path, data = paths.partition_state(partition), znodes.encode_partition_state(state)
            ops: list[Op] = []
            if state.partition_epoch == NOT_CREATED:
                for parent in (paths.topic_partitions(partition.topic), paths.partition(partition)):
                    if parent in missing:
                        missing.remove(parent)
                        ops.append(Create(parent))
                ops.append(Create(path, data))
            else:
                ops.append(SetData(path, data, state.partition_epoch))
            groups.append((partition, ops))
        return groups

    def _judge(self, error: CoordinatorError) -> None:
        """Raise what ends the term of office."""
        if isinstance(error, SessionExpiredError):
            raise error
        if isinstance(error, MultiFailedError) and error.index == 0:
            raise DeposedError(f"{paths.CONTROLLER_EPOCH} has changed: {error.error!r}")

    async def _fenced(self, ops: Iterable[Op]) -> bool:
        """One fenced transaction; False if it failed or nobody knows."""
        self._stats.zk_ops["transaction"] += 1
        try:
            await self._zk.multi([self._fence, *ops])
        except CoordinatorError as error:
            self._judge(error)
            return False
        return True

    async def verify(self) -> bool:
        """Whether we are surely in office; False if ZooKeeper has not said. Raises DeposedError if another one is."""
        return await self._fenced([])

    # --- topics' znodes --------------------------------------------------------------------------------------

    async def write_topics(self, changes: Sequence[TopicChange]) -> tuple[list[TopicChange], list[str]]:
        """One fenced transaction per topic, pipelined.

        Returns:
            What was written, with the new versions; and the topics of transactions that failed, or whose outcome
            is unknown.
        """
        transactions: list[list[Op]] = []
        for change in changes:
            ops: list[Op] = [
                self._fence,
                SetData(paths.topic(change.name), _topic_data(change.topic), change.topic.version),
            ]
            ops += [
                SetData(paths.partition_state(partition), znodes.encode_partition_state(state), state.partition_epoch)
                for partition, state in change.states.items()
            ]
            ops += [Delete(paths.partition_add(partition)) for partition in change.added]
            ops += [
                SetData(paths.partition_remove(partition), order_znodes.encode_partition_remove(order))
                for partition, order in change.removed.items()
            ]
            transactions.append(ops)
        self._stats.zk_ops["transaction"] += len(transactions)
        self._stats.zk_ops["write"] += sum(len(transaction) - 1 for transaction in transactions)
        results = await self._zk.multi_many(transactions)
        written: list[TopicChange] = []
        failed: list[str] = []
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, CoordinatorError):
                self._judge(result)
                if isinstance(result, TooBigError):
                    _log.error("controller.topic_too_big", topic=change.name, partitions=len(change.topic.assignment))
                failed.append(change.name)
                continue
            version = result[1]
            assert isinstance(version, int)
            states = {
                partition: _with_version(state, result[2 + at])
                for at, (partition, state) in enumerate(change.states.items())
            }
            topic = dataclasses.replace(change.topic, version=version)
            written.append(dataclasses.replace(change, topic=topic, states=states))
            await self._remove_if_empty(paths.partitions_add(change.name) if change.added else None)
        self._stats.zk_ops["conflict"] += len(failed)
        return written, failed

    async def _remove_if_empty(self, path: str | None) -> None:
        """A topic's node below /admin/partitions_*; one that has got new children meanwhile stays."""
        if path is not None and await self.read(lambda: self._zk.exists(path)) is not None:
            await self._fenced([Delete(path)])

    async def read_partition_orders(self, watch: Watch) -> PartitionOrders:
        """Everything below /admin/partitions_add and /admin/partitions_remove; the watch fires at any change of names."""
        adds: dict[TopicPartition, Replicas] = {}
        removals: dict[TopicPartition, order_znodes.PartitionRemoval] = {}
        malformed: dict[str, str] = {}
        for root in (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE):
            for topic in await self._children(root, watch):
                names = await self._children_if_there(f"{root}/{topic}", watch)
                where = [f"{root}/{topic}/{name}" for name in names]
                for name, path, each in zip(names, where, await self.get_many(where), strict=True):
                    if each is None:
                        continue
                    number = paths.decimal(name)
                    if number is None or len(name) > 9:
                        malformed[path] = "not a partition"
                        continue
                    partition = TopicPartition(topic, number)
                    try:
                        if root == paths.PARTITIONS_ADD:
                            adds[partition] = order_znodes.decode_partition_add(each[0], path)
                        else:
                            removals[partition] = order_znodes.decode_partition_remove(each[0], path)
                    except ZnodeError as error:
                        malformed[path] = error.reason
        return PartitionOrders(adds, removals, malformed)

    async def _children_if_there(self, path: str, watch: Watch) -> list[str]:
        try:
            self._stats.zk_ops["read"] += 1
            return (await self.read(lambda: self._zk.children(path, watch)))[0]
        except NoNodeError:
            return []

    async def drop_partition_orders(self, adds: Iterable[TopicPartition], removals: Iterable[TopicPartition]) -> None:
        """Take orders away; the topics' nodes go with the last one."""
        doomed = [(paths.partition_add(each), paths.partitions_add(each.topic)) for each in adds]
        doomed += [(paths.partition_remove(each), paths.partitions_remove(each.topic)) for each in removals]
        for path, _ in doomed:
            await self._remove_if_empty(path)
        for parent in dict.fromkeys(parent for _, parent in doomed):
            await self._remove_if_empty(parent)

    async def remove_partition(self, partition: TopicPartition) -> bool:
        """Remove a partition's znodes and the order for its removal. If it stops half-way, the order still stands."""
        doomed = [paths.partition_state(partition), paths.partition(partition), paths.partition_remove(partition)]
        for _ in range(REMOVE_ATTEMPTS):
            found = await self.get_many(doomed)
            ops = [Delete(path) for path, each in zip(doomed, found, strict=True) if each is not None]
            if not ops or await self._fenced(ops):
                await self._remove_if_empty(paths.partitions_remove(partition.topic))
                return True
        _log.warning("controller.partition_not_removed", partition=str(partition))
        return False

    async def settle_order(self, done: Mapping[TopicPartition, Replicas]) -> None:
        """Take entries out of /admin/reassign_partitions that still say the same; the znode goes with the last one."""
        for _ in range(REMOVE_ATTEMPTS):
            try:
                data, stat = await self.read(lambda: self._zk.get(paths.REASSIGN_PARTITIONS))
                ordered, throttles = order_znodes.decode_reassignment(data), order_znodes.decode_throttles(data)
                limits = order_znodes.decode_order_limits(data)
            except (NoNodeError, ZnodeError):
                return
            left = {partition: target for partition, target in ordered.items() if done.get(partition) != target}
            if left and len(left) == len(ordered):
                return
            op: Op = Delete(paths.REASSIGN_PARTITIONS, stat.version)
            if left:
                op = SetData(
                    paths.REASSIGN_PARTITIONS, order_znodes.encode_reassignment(left, throttles, limits), stat.version
                )
            if await self._fenced([op]):
                return

    # --- orders ----------------------------------------------------------------------------------------------

    async def drop_preferred_election(self, version: int) -> None:
        """Remove the order; one that was written anew meanwhile stays, its watch has fired."""
        for _ in range(REMOVE_ATTEMPTS):
            if await self._fenced([Delete(paths.PREFERRED_REPLICA_ELECTION, version)]):
                return
            stat = await self.read(lambda: self._zk.exists(paths.PREFERRED_REPLICA_ELECTION))
            if stat is None or stat.version != version:
                return

    async def read_restarts(self, watch: Watch) -> RestartsRequested:
        """The oldest requests under /restart_partitions; those that are left over come with the watch."""
        names = (await self._children(paths.RESTART_PARTITIONS, watch))[:MAX_RESTARTS]
        where = [f"{paths.RESTART_PARTITIONS}/{name}" for name in names]
        self._stats.zk_ops["read"] += len(names)
        found = await self.read(lambda: self._zk.get_many(where))
        orders: list[RestartOrder] = []
        malformed: dict[str, str] = {}
        for name, path, each in zip(names, where, found, strict=True):
            if each is None:
                continue
            try:
                request = order_znodes.decode_restart_request(each[0], path)
            except ZnodeError as error:
                malformed[path] = error.reason
                continue
            orders.append(RestartOrder(name, request.broker_id, request.partitions, each[1].czxid, request.online))
        return RestartsRequested(tuple(orders), malformed)

    async def drop_restarts(self, names: Iterable[str]) -> None:
        """Remove requests. One that is not removed comes again with the next reading: handling it twice does no harm."""
        for name in names:
            await self._fenced([Delete(f"{paths.RESTART_PARTITIONS}/{name}")])

    async def read_deletions(self, watch: Watch) -> tuple[tuple[str, ...], str | None]:
        """The topics ordered to be deleted: in /admin/delete_topics (ours), and as znodes below it (Kafka's); and why its data
        cannot be read, if so. The watch fires at any change of either."""
        order = await self.read_order(paths.DELETE_TOPICS, watch)
        if order is None:
            return (), None
        children = await self._children_if_there(paths.DELETE_TOPICS, watch)
        try:
            return tuple(dict.fromkeys([*order_znodes.decode_delete_topics(order[0]), *children])), None
        except ZnodeError as error:
            return tuple(children), error.reason

    async def drop_deletion_orders(self, names: Iterable[str]) -> None:
        """Take names out of /admin/delete_topics; the znode goes with the last one."""
        for _ in range(REMOVE_ATTEMPTS):
            ops = await self._without_orders(frozenset(names))
            if not ops or await self._fenced(ops):
                return

    async def _without_orders(self, names: frozenset[str]) -> list[Op]:
        """What takes the names out of /admin/delete_topics and from below it; nothing if they are not there."""
        try:
            data, stat = await self.read(lambda: self._zk.get(paths.DELETE_TOPICS))
            children = (await self.read(lambda: self._zk.children(paths.DELETE_TOPICS)))[0]
        except NoNodeError:
            return []
        ops: list[Op] = [Delete(paths.delete_topic(name)) for name in children if name in names]
        try:
            ordered = order_znodes.decode_delete_topics(data)
        except ZnodeError:
            return ops  # left alone, as far as it cannot be read
        left = [name for name in ordered if name not in names]
        if not left and len(ops) == len(children) and (ops or ordered):
            return [*ops, Delete(paths.DELETE_TOPICS, stat.version)]
        if len(left) != len(ordered):
            kept = order_znodes.encode_delete_topics(left) if left else b""
            ops.append(SetData(paths.DELETE_TOPICS, kept, stat.version))
        return ops

    async def read_leftovers(self) -> dict[TopicId, Leftover]:
        """What dead brokers still had of deleted topics when these went."""
        names = await self._children(paths.DELETED_TOPICS)
        leftovers: dict[TopicId, Leftover] = {}
        for name, each in zip(names, await self.get_many([paths.deleted_topic(name) for name in names]), strict=True):
            if each is not None:
                try:
                    topic, waiting = order_znodes.decode_deleted_topic(each[0], paths.deleted_topic(name))
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
                    topic, states = znodes.decode_vanished_topic(each[0], paths.vanished_topic(name))
                    found[topic] = Vanished(TopicId(name), states)
                except ZnodeError as error:
                    _log.warning("znode.malformed", path=error.path, reason=error.reason)
        return found

    async def keep_vanished(self, topic: str, topic_id: TopicId, states: Mapping[int, LeaderAndIsr]) -> None:
        """If this fails, only this controller knows them."""
        path, data = paths.vanished_topic(topic_id), znodes.encode_vanished_topic(topic, states)
        await self.read(lambda: self._zk.ensure_path(paths.VANISHED_TOPICS))
        is_there = await self.read(lambda: self._zk.exists(path)) is not None
        if not await self._fenced([SetData(path, data) if is_there else Create(path, data)]):
            _log.warning("controller.vanished_not_kept", topic=topic)

    async def drop_vanished(self, topic_id: TopicId) -> None:
        """They are not needed any more. If this fails they are dropped again by another controller."""
        await self._fenced([Delete(paths.vanished_topic(topic_id))])

    async def drop_leftover(self, topic_id: TopicId) -> None:
        """All of it is gone. If this fails the next controller finds that out again."""
        await self._fenced([Delete(paths.deleted_topic(topic_id))])

    async def remove_topic(self, name: str, topic_id: TopicId, leftover: Sequence[tuple[int, BrokerId]] = ()) -> bool:
        """Remove a topic's znodes: what is below first; the topic, its settings and the order for it in one go, in which is
        written down, too, what is left of it on dead brokers.

        Whenever this stops half-way, the order still stands, so that the next attempt finishes it.
        """
        if leftover:
            await self.read(lambda: self._zk.ensure_path(paths.DELETED_TOPICS))
        for _ in range(REMOVE_ATTEMPTS):
            doomed = await self._below_topic(name)
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
            ops += await self._without_orders(frozenset([name]))
            if leftover and left is None:
                ops.append(Create(paths.deleted_topic(topic_id), order_znodes.encode_deleted_topic(name, leftover)))
            if found[-1] is not None and changes is not None:
                ops.append(notification(TOPICS, name))  # else a topic of the same name would inherit the settings
            if not ops or await self._fenced(ops):
                return True
        _log.warning("controller.topic_not_removed", topic=name)
        return False

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


def _topic(value: znodes.TopicZnode, version: int) -> Topic:
    return Topic(value.topic_id, value.partitions, value.adding_replicas, value.removing_replicas, value.moves, version)


def _topic_data(topic: Topic) -> bytes:
    value = znodes.TopicZnode(topic.topic_id, topic.assignment, topic.adding, topic.removing, topic.moves)
    return znodes.encode_topic(value)


def _size(op: Op) -> int:
    """Bytes of an operation on the wire, about."""
    data = op.data if isinstance(op, Create | SetData) else b""
    return len(op.path) + len(data) + 64


def _with_version(state: LeaderAndIsr, result: OpResult) -> LeaderAndIsr:
    version = result if isinstance(result, int) else 0  # a znode just made has version 0
    return LeaderAndIsr(state.leader, state.leader_epoch, state.isr, state.controller_epoch, PartitionEpoch(version))
