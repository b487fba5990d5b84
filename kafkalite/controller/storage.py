"""ZooKeeper as the controller reads and writes it: pipelined, in chunks, every write fenced. No Kafka policy.

How reads are repeated and writes fenced: kafkalite.controller.zk_access. Topics that go: kafkalite.controller.deletion_storage.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalite.controller.decisions.elections import NOT_CREATED
from kafkalite.controller.decisions.events import PartitionRequests, RestartRequested, RestartsRequested, TopicChange
from kafkalite.controller.decisions.state import Topic
from kafkalite.controller.deletion_storage import REMOVE_ATTEMPTS, DeletionStorage
from kafkalite.controller.stats import ControllerStats
from kafkalite.controller.zk_access import MAX_BYTES, MAX_OPS, Connectivity
from kafkalite.coordination import admin_znodes, config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NoNodeError,
    Op,
    OpResult,
    SetData,
    Stat,
    TooBigError,
    Watch,
)
from kafkalite.coordination.registration import GONE, registered_brokers
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, BrokerInfo, LeaderAndIsr, PartitionEpoch, Replicas, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

MIN_INSYNC = "min.insync.replicas"
#: Requests under /restart_partitions that are read at once.
MAX_RESTARTS = 200


@dataclass(frozen=True, slots=True)
class StatesFound:
    """State znodes: value (None: no znode), transaction that wrote it last (mzxid), reason why it cannot be read."""

    states: dict[TopicPartition, LeaderAndIsr | None]
    modified: dict[TopicPartition, int]
    malformed: dict[TopicPartition, str]


class Storage(DeletionStorage):
    """The access of one elected epoch to ZooKeeper. Every method raises SessionExpiredError; those that write also ControllerMovedError."""

    def __init__(
        self, coordinator: Coordinator, connectivity: Connectivity, epoch_version: int, stats: ControllerStats
    ) -> None:
        super().__init__(coordinator, connectivity, epoch_version, stats)
        #: Topics that had nothing below their znodes when those were read just now: their partitions' znodes need not be
        #: looked for. If somebody else makes one meanwhile, ours cannot be created, and the write is reported as a conflict.
        self._bare: set[str] = set()

    # --- what there is ---------------------------------------------------------------------------------------

    async def read_brokers(self, watch: Watch) -> tuple[dict[BrokerId, BrokerInfo], dict[str, str]]:
        """Live brokers by id, and path -> reason for registrations that cannot be used.

        The watch also fires when a registration changes: a broker may get other addresses while it runs (KIP-226).
        """
        ids, names = paths.broker_ids(await self._children(paths.BROKER_IDS, watch))
        malformed = {f"{paths.BROKER_IDS}/{name}": "not a broker id" for name in names}
        self._stats.zk_ops["read"] += len(ids)
        found = await self._read_each(
            lambda path: self._registration(path, watch), [paths.broker(broker_id) for broker_id in ids]
        )
        brokers, unusable = registered_brokers(ids, found)
        return brokers, malformed | unusable

    async def known_brokers(self) -> list[BrokerId]:
        """All that have ever started in this cluster, and were not unregistered."""
        ids, _ = paths.broker_ids(await self._children(paths.BROKER_STARTS, None))
        found = await self.get_many([paths.broker_starts(each) for each in ids])
        return [each for each, node in zip(ids, found, strict=True) if node is not None and node[0] != GONE]

    async def _registration(self, path: str, watch: Watch) -> tuple[bytes, Stat] | None:
        try:
            return await self.read(lambda: self._zk.get(path, watch))
        except NoNodeError:
            return None

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
        self._bare.clear()
        parsed = 0
        for name, each in zip(unread, found, strict=True):
            if each is None:
                continue
            try:
                topics[name] = _topic(topic_znodes.decode_topic(each[0], paths.topic(name)), each[1])
            except ZnodeError as error:
                malformed[paths.topic(name)] = error.reason
            else:
                if not each[1].child_count:
                    self._bare.add(name)
            parsed += len(each[0])
            if parsed > topic_znodes.BYTES_AT_ONCE:
                parsed = 0
                await asyncio.sleep(0)
        return dict(sorted(topics.items())), malformed

    async def watch_topics(self, names: Sequence[str], watch_of: Callable[[str], Watch]) -> dict[str, Stat | None]:
        """Set a watch on each topic's data, which may be written by hand. Returns the present znodes."""
        self._stats.zk_ops["read"] += len(names)

        async def arm(name: str) -> Stat | None:
            return await self.read(lambda: self._zk.exists(paths.topic(name), watch_of(name)))

        return dict(zip(names, await self._read_each(arm, names), strict=True))

    async def read_states(self, partitions: Sequence[TopicPartition]) -> StatesFound:
        """State by partition, None where there is none.

        Partitions of a topic whose own znode is gone are left out: nothing can be written there.
        """
        made = [partition for partition in partitions if partition.topic not in self._bare]
        fresh = [partition for partition in partitions if partition.topic in self._bare]
        where = [paths.partition_state(partition) for partition in made]
        found = await self.get_many(where) if where else []
        states: dict[TopicPartition, LeaderAndIsr | None] = {}
        malformed: dict[TopicPartition, str] = {}
        modified = {partition: each[1].mzxid for partition, each in zip(made, found, strict=True) if each is not None}
        async for partition, path, each in with_pauses(zip(made, where, found, strict=True)):
            try:
                states[partition] = (
                    None if each is None else topic_znodes.decode_partition_state(each[0], each[1].version, path)
                )
            except ZnodeError as error:
                malformed[partition] = error.reason
        stateless = sorted({partition.topic for partition, state in states.items() if state is None})
        if stateless:
            there = await self.get_many([paths.topic(name) for name in stateless])
            gone = {name for name, each in zip(stateless, there, strict=True) if each is None}
            states = {partition: state for partition, state in states.items() if partition.topic not in gone}
        states |= dict.fromkeys(fresh)
        return StatesFound(states, modified, malformed)

    async def changed_topics(self, known: Mapping[str, Topic]) -> tuple[str, ...]:
        """Those of the known topics whose znodes are others by now, or gone."""
        if not known:
            return ()
        found = await self.get_many([paths.topic(name) for name in known])
        return tuple(
            name
            for (name, topic), each in zip(known.items(), found, strict=True)
            if each is None or (each[1].version, each[1].czxid) != (topic.version, topic.created)
        )

    # --- states ----------------------------------------------------------------------------------------------

    async def write_states(
        self, writes: Mapping[TopicPartition, LeaderAndIsr], chunk: int
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Conditional writes in pipelined transactions of at most `chunk` operations.

        Returns:
            What was written, with its new partition epochs; and the partitions of transactions that failed, or whose
            outcome is unknown. What ZooKeeper's ACLs forbid is in neither.
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
        refused: list[TopicPartition] = []
        by_partition = dict(groups)
        for partitions, result in zip(members, results, strict=True):
            await asyncio.sleep(0)
            if isinstance(result, CoordinatorError):
                self._raise_if_moved(result)
                (refused if len(partitions) == 1 and _is_forbidden(result) else conflicts).extend(partitions)
                continue
            at = 1
            for partition in partitions:
                at += len(by_partition[partition])
                written[partition] = _with_version(writes[partition], result[at - 1])
        self._stats.zk_ops["conflict"] += len(conflicts)
        if refused:  # to decide again would not help, and would keep all others waiting
            _log.error("controller.states_forbidden", partitions=len(refused), first=str(refused[0]))
        return written, conflicts

    async def _operations(self, writes: Mapping[TopicPartition, LeaderAndIsr]) -> list[tuple[TopicPartition, list[Op]]]:
        """Per partition its operations, the one on the state last; parents that are missing come first."""
        new = [partition for partition in writes if writes[partition].partition_epoch == NOT_CREATED]
        unsure = [partition for partition in new if partition.topic not in self._bare]
        parents = _parents(unsure)
        found = await self.get_many(parents) if parents else []
        missing = {path for path, each in zip(parents, found, strict=True) if each is None}
        missing.update(_parents([partition for partition in new if partition.topic in self._bare]))
        self._bare.difference_update({partition.topic for partition in new})
        groups: list[tuple[TopicPartition, list[Op]]] = []
        async for partition, state in with_pauses(writes.items()):
            path, data = paths.partition_state(partition), topic_znodes.encode_partition_state(state)
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
                SetData(
                    paths.partition_state(partition), topic_znodes.encode_partition_state(state), state.partition_epoch
                )
                for partition, state in change.states.items()
            ]
            ops += [Delete(paths.partition_add(partition)) for partition in change.added]
            ops += [
                SetData(paths.partition_remove(partition), admin_znodes.encode_partition_remove(request))
                for partition, request in change.removed.items()
            ]
            transactions.append(ops)
        self._stats.zk_ops["transaction"] += len(transactions)
        self._stats.zk_ops["write"] += sum(len(transaction) - 1 for transaction in transactions)
        results = await self._zk.multi_many(transactions)
        written: list[TopicChange] = []
        failed: list[str] = []
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, CoordinatorError):
                self._raise_if_moved(result)
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

    async def raise_min_insync(self, topic: str, value: int) -> bool:
        """Set min.insync.replicas of a topic to at least `value`; False: not now."""
        path = paths.config_topic(topic)
        (found,) = await self.get_many([path])
        try:
            settings = {} if found is None else config_znodes.decode_config(found[0], path)
        except ZnodeError:
            return False  # `admin health` names it
        held = settings.get(MIN_INSYNC, "")
        if held.isdecimal() and int(held) >= value:
            return True
        data = config_znodes.encode_config({**settings, MIN_INSYNC: str(value)})
        write = Create(path, data) if found is None else SetData(path, data, found[1].version)
        return await self._fenced([write, notification(TOPICS, topic)])

    async def read_partition_requests(self, watch: Watch) -> PartitionRequests:
        """Everything below /admin/partitions_add and /admin/partitions_remove; the watch fires at any change of names."""
        adds: dict[TopicPartition, Replicas] = {}
        removals: dict[TopicPartition, admin_znodes.PartitionRemoval] = {}
        malformed: dict[str, str] = {}
        for root in (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE):
            topics = await self._children(root, watch)
            requested = await self._read_each(
                lambda parent: self._children_if_there(parent, watch), [f"{root}/{topic}" for topic in topics]
            )
            names = [(topic, name) for topic, found in zip(topics, requested, strict=True) for name in found]
            where = [f"{root}/{topic}/{name}" for topic, name in names]
            for (topic, name), path, each in zip(names, where, await self.get_many(where), strict=True):
                if each is None:
                    continue
                number = paths.decimal(name)
                if number is None or len(name) > 9:
                    malformed[path] = "not a partition"
                    continue
                partition = TopicPartition(topic, number)
                try:
                    if root == paths.PARTITIONS_ADD:
                        adds[partition] = admin_znodes.decode_partition_add(each[0], path)
                    else:
                        removals[partition] = admin_znodes.decode_partition_remove(each[0], path)
                except ZnodeError as error:
                    malformed[path] = error.reason
        return PartitionRequests(adds, removals, malformed)

    async def remove_partition_requests(
        self, adds: Iterable[TopicPartition], removals: Iterable[TopicPartition]
    ) -> None:
        """Take requests away; the topics' nodes go with the last one."""
        doomed = [(paths.partition_add(each), paths.partitions_add(each.topic)) for each in adds]
        doomed += [(paths.partition_remove(each), paths.partitions_remove(each.topic)) for each in removals]
        for path, _ in doomed:
            await self._remove_if_empty(path)
        for parent in dict.fromkeys(parent for _, parent in doomed):
            await self._remove_if_empty(parent)

    async def remove_partitions(self, partitions: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        """Remove partitions' znodes and the requests for their removal, in a transaction for each; those that are not removed.

        If it stops half-way, the requests of the rest still stand.
        """
        left = list(partitions)
        for _ in range(REMOVE_ATTEMPTS):
            doomed = [
                (paths.partition_state(each), paths.partition(each), paths.partition_remove(each)) for each in left
            ]
            found = iter(await self.get_many([path for each in doomed for path in each]))
            transactions: list[list[Op]] = [
                [self._fence, *(Delete(path) for path in each if next(found) is not None)] for each in doomed
            ]
            self._stats.zk_ops["transaction"] += len(transactions)
            results = await self._zk.multi_many(transactions)
            failed: list[TopicPartition] = []
            for partition, result in zip(left, results, strict=True):
                if isinstance(result, CoordinatorError):
                    self._raise_if_moved(result)
                    failed.append(partition)
            left = failed
            if not left:
                break
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            await self._remove_if_empty(paths.partitions_remove(topic))
        if left:
            _log.warning("controller.partitions_not_removed", partitions=len(left), first=str(left[0]))
        return frozenset(left)

    async def remove_reassignment_requests(self, done: Mapping[TopicPartition, Replicas]) -> None:
        """Take entries out of /admin/reassign_partitions that still say the same; the znode goes with the last one."""
        for _ in range(REMOVE_ATTEMPTS):
            try:
                data, stat = await self.read(lambda: self._zk.get(paths.REASSIGN_PARTITIONS))
                requested, throttles = admin_znodes.decode_reassignment(data), admin_znodes.decode_throttles(data)
                limits = admin_znodes.decode_request_limits(data)
            except (NoNodeError, ZnodeError):
                return
            left = {partition: target for partition, target in requested.items() if done.get(partition) != target}
            if left and len(left) == len(requested):
                return
            op: Op = Delete(paths.REASSIGN_PARTITIONS, stat.version)
            if left:
                op = SetData(
                    paths.REASSIGN_PARTITIONS, admin_znodes.encode_reassignment(left, throttles, limits), stat.version
                )
            if await self._fenced([op]):
                return

    # --- requests ----------------------------------------------------------------------------------------------

    async def remove_admin_request(self, path: str, version: int) -> None:
        """Remove the request; one that was written again, or created again, meanwhile stays, and its watch has fired."""
        made: int | None = None
        for _ in range(REMOVE_ATTEMPTS):
            stat = await self.read(lambda: self._zk.exists(path))
            if stat is None or stat.version != version or made not in (None, stat.czxid):
                return
            made = stat.czxid
            if await self._fenced([Delete(path, version)]):
                return

    async def read_restarts(self, watch: Watch) -> RestartsRequested:
        """The oldest requests under /restart_partitions; those that are left over come with the watch."""
        names = (await self._children(paths.RESTART_PARTITIONS, watch))[:MAX_RESTARTS]
        where = [f"{paths.RESTART_PARTITIONS}/{name}" for name in names]
        self._stats.zk_ops["read"] += len(names)
        found = await self.read(lambda: self._zk.get_many(where))
        restarts: list[RestartRequested] = []
        malformed: dict[str, str] = {}
        for name, path, each in zip(names, where, found, strict=True):
            if each is None:
                continue
            try:
                request = admin_znodes.decode_restart_request(each[0], path)
            except ZnodeError as error:
                malformed[path] = error.reason
                continue
            restarts.append(
                RestartRequested(name, request.broker_id, request.partitions, each[1].czxid, request.online)
            )
        return RestartsRequested(tuple(restarts), malformed)

    async def drop_restarts(self, names: Iterable[str]) -> None:
        """Remove requests. One that is not removed comes again with the next reading: handling it twice does no harm."""
        transactions: list[list[Op]] = [[self._fence, Delete(f"{paths.RESTART_PARTITIONS}/{name}")] for name in names]
        self._stats.zk_ops["transaction"] += len(transactions)
        for result in await self._zk.multi_many(transactions):
            if isinstance(result, CoordinatorError):
                self._raise_if_moved(result)


def _topic(value: topic_znodes.TopicZnode, stat: Stat) -> Topic:
    return Topic(
        value.topic_id,
        value.partitions,
        value.adding_replicas,
        value.removing_replicas,
        value.moves,
        stat.version,
        stat.czxid,
    )


def _topic_data(topic: Topic) -> bytes:
    value = topic_znodes.TopicZnode(topic.topic_id, topic.assignment, topic.adding, topic.removing, topic.moves)
    return topic_znodes.encode_topic(value)


def _parents(partitions: Sequence[TopicPartition]) -> list[str]:
    """The znodes that must be there before the partitions' states."""
    topics = dict.fromkeys(partition.topic for partition in partitions)
    return [*map(paths.topic_partitions, topics), *map(paths.partition, partitions)]


def _size(op: Op) -> int:
    """Bytes of an operation on the wire, about."""
    data = op.data if isinstance(op, Create | SetData) else b""
    return len(op.path) + len(data) + 64


def _is_forbidden(error: CoordinatorError) -> bool:
    return isinstance(error, MultiFailedError) and isinstance(error.error, AuthFailedError)


def _with_version(state: LeaderAndIsr, result: OpResult) -> LeaderAndIsr:
    version = result if isinstance(result, int) else 0  # a znode just made has version 0
    return dataclasses.replace(state, partition_epoch=PartitionEpoch(version))
