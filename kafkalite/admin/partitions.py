"""Requests about partitions, on any node: add, remove, elect. Validated, written to ZooKeeper, and waited for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kafkalite.admin.decisions.placement import PlacementError, shifted
from kafkalite.admin.decisions.topic_checks import check_open, check_partition_count, closed_text
from kafkalite.admin.reassignments import POLL_S, readable_topics
from kafkalite.admin.topics import ATTEMPTS, TopicAdmin, patience
from kafkalite.config import BrokerConfig
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    Op,
)
from kafkalite.coordination.patience import waiting_at_most
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.reassignment import ElectLeadersRequest, ElectLeadersResponse, PartitionResult
from kafkalite.extension.messages.topics import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    NewPartitions,
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    TopicResult,
)
from kafkalite.model import INTERNAL_TOPICS, BrokerId, LeaderAndIsr, Replicas, TopicPartition
from kafkalite.telemetry.logs import get_logger
from kafkalite.wording import number_of

_log = get_logger(__name__)

#: Requests of one transaction (invariant F31).
MAX_PER_TRANSACTION = 400


class PartitionAdmin:
    """Writes; the controller acts.

    Args:
        is_alive: whether a broker answers, as far as this node knows; its session may last for a while.
    """

    def __init__(
        self,
        topics: TopicAdmin,
        config: Callable[[], BrokerConfig],
        rng: random.Random,
        is_alive: Callable[[BrokerId], bool],
    ) -> None:
        self._topics = topics
        self._config = config
        self._rng = rng
        self._is_alive = is_alive

    # --- add -------------------------------------------------------------------------------------------------

    async def add(self, request: AddPartitionsRequest) -> AddPartitionsResponse:
        """One result per topic; an error is a result, never raised. Returns when the partitions are in the topic."""
        with waiting_at_most(request.timeout_ms):
            results = [
                await self._add(each, request.timeout_ms, validate_only=request.validate_only)
                for each in request.topics
            ]
        return AddPartitionsResponse(tuple(results))

    async def missing(self, topics: Sequence[str], timeout_ms: int) -> frozenset[str]:
        """Those of the topics that do not exist; all are asked for at once. Empty if ZooKeeper does not answer in time."""
        znodes = [paths.topic(name) for name in topics]
        try:
            async with patience(timeout_ms):
                found = await self._topics.repeating(lambda zk: zk.get_many(znodes))
        except (TimeoutError, ApiError, CoordinatorError):
            return frozenset()
        return frozenset(name for name, each in zip(topics, found, strict=True) if each is None)

    async def _add(self, wanted: NewPartitions, timeout_ms: int, *, validate_only: bool) -> TopicResult:
        try:
            async with patience(timeout_ms):
                topic, new = await self._topics.repeating(lambda zk: self._new_partitions(zk, wanted))
                if not validate_only:
                    await self._topics.repeating(lambda zk: self._request_add(zk, wanted.topic, new))
                    await self._until(lambda zk: self._has(zk, wanted.topic, wanted.count))
        except TimeoutError:
            return TopicResult(
                wanted.topic, ErrorCode.REQUEST_TIMED_OUT, "the partitions were requested, but do not exist yet"
            )
        except ApiError as refusal:
            return TopicResult(wanted.topic, refusal.code, str(refusal))
        except CoordinatorError as error:
            return TopicResult(wanted.topic, ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")
        replicas = max((len(each) for each in new.values()), default=-1)
        return TopicResult(wanted.topic, ErrorCode.NONE, "", topic.topic_id, wanted.count, replicas)

    async def _new_partitions(
        self, zk: Coordinator, wanted: NewPartitions
    ) -> tuple[topic_znodes.TopicZnode, dict[int, Replicas]]:
        """What has to be requested. Raises ApiError."""
        _refuse_internal(wanted.topic)
        topic = (await readable_topics(zk, [wanted.topic])).get(wanted.topic)
        if topic is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.topic!r}")
        have = len(topic.partitions)
        if wanted.count == have:
            raise api_error(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
        if wanted.count < have:
            reason = (
                f"The topic {wanted.topic} currently has {have} partition(s); {wanted.count} would not be an increase."
            )
            raise api_error(ErrorCode.INVALID_PARTITIONS, reason)
        check_partition_count(wanted.count, self._config().max_partitions_per_topic)
        existing = await self._topics.existing(zk)
        if standing := await self._children(zk, paths.partitions_remove(wanted.topic)):
            where = [f"{paths.partitions_remove(wanted.topic)}/{each}" for each in standing]
            hosts = {broker for each in await zk.get_many(where) if each is not None for broker in _hosts(each[0])}
            absent = sorted(hosts - existing.brokers.keys())
            when = f" until brokers {absent} return (an empty one with the same id will do)" if absent else " yet"
            reason = f"partitions of {wanted.topic!r} are being removed; their numbers are not free{when}"
            raise api_error(ErrorCode.REASSIGNMENT_IN_PROGRESS, reason)
        brokers = existing.open
        count = wanted.count - have
        first = topic.moves[0].target if 0 in topic.moves else topic.partitions[0]
        if wanted.assignment is not None:
            self._check(wanted.assignment, count, frozenset(existing.brokers), len(first))
            check_open([broker for replicas in wanted.assignment for broker in replicas], existing.closed)
            return topic, {have + at: tuple(each) for at, each in enumerate(wanted.assignment)}
        try:
            ordered = sorted(brokers)
            start = ordered.index(first[0]) if first[0] in brokers else self._rng.randrange(max(1, len(ordered)))
            placed = shifted(brokers, count, len(first), start=start, shift=start, first_partition=have)
        except PlacementError as error:
            reason = f"{error}{closed_text(existing.closed)}"
            raise api_error(ErrorCode.INVALID_REPLICATION_FACTOR, reason) from None
        return topic, {have + at: replicas for at, replicas in enumerate(placed)}

    def _check(
        self, assignment: Sequence[Replicas], count: int, brokers: frozenset[BrokerId], replication_factor: int
    ) -> None:
        reason = None
        if len(assignment) != count:
            reason = f"{number_of(count, 'new partition')}, but replicas for {len(assignment)}"
        for replicas in assignment:
            unknown = sorted(set(replicas) - brokers)
            if not replicas or len(set(replicas)) != len(replicas):
                reason = reason or f"{list(replicas)} is not a list of different brokers"
            elif unknown:
                reason = reason or f"brokers that are not alive: {unknown}"
            elif len(replicas) != replication_factor:
                reason = reason or f"{list(replicas)}: the topic has {replication_factor} replicas of each partition"
        if reason is not None:
            raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    async def _request_add(self, zk: Coordinator, topic: str, new: dict[int, Replicas]) -> None:
        """May be repeated."""
        numbers = sorted(new)
        for start in range(0, len(numbers), MAX_PER_TRANSACTION):
            part = numbers[start : start + MAX_PER_TRANSACTION]
            ops: list[Op] = [
                Create(
                    paths.partition_add(TopicPartition(topic, number)), admin_znodes.encode_partition_add(new[number])
                )
                for number in part
            ]
            await self._create_below(zk, paths.partitions_add(topic), ops)
        _log.info("partitions.add_ordered", topic=topic, partitions=len(numbers))

    async def _create_below(self, zk: Coordinator, parent: str, ops: list[Op]) -> None:
        for _ in range(ATTEMPTS):
            await zk.ensure_path(parent)
            try:
                await zk.multi(ops)
                return
            except MultiFailedError as failed:
                if isinstance(failed.error, NodeExistsError):
                    ops = [op for at, op in enumerate(ops) if at != failed.index]  # requested before
                    if not ops:
                        return
                elif not isinstance(failed.error, NoNodeError):
                    raise failed.error from None
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")

    async def _has(self, zk: Coordinator, topic: str, count: int) -> bool:
        """Whether the topic has this number of partitions, all with a state; also if it is gone."""
        value = (await readable_topics(zk, [topic])).get(topic)
        if value is None or len(value.partitions) < count:
            return value is None
        states = await zk.get_many([paths.partition_state(TopicPartition(topic, number)) for number in range(count)])
        return all(each is not None for each in states)

    # --- remove ----------------------------------------------------------------------------------------------

    async def remove(self, request: RemovePartitionsRequest) -> RemovePartitionsResponse:
        """NONE: the request stands. With drain it is not waited for."""
        gone: tuple[int, ...] = ()
        try:
            async with patience(request.timeout_ms):
                before = request.before
                if before < 0:
                    before = await self._topics.repeating(lambda zk: self._count(zk, request.topic))
                gone = await self._topics.repeating(lambda zk: self._request_removal(zk, request, before))
                if not request.drain:
                    await self._until(lambda zk: self._is_removed(zk, request.topic))
        except TimeoutError:
            if not gone:
                reason = "ZooKeeper has not answered: it is unknown whether the request was stored"
                return RemovePartitionsResponse(ErrorCode.REQUEST_TIMED_OUT, reason)
            return RemovePartitionsResponse(ErrorCode.NONE, "the removal was requested and continues", gone)
        except ApiError as refusal:
            return RemovePartitionsResponse(refusal.code, str(refusal))
        except CoordinatorError as error:
            return RemovePartitionsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")
        return RemovePartitionsResponse(ErrorCode.NONE, "", gone, is_done=not request.drain)

    async def _count(self, zk: Coordinator, name: str) -> int:
        """The topic's number of partitions. Raises ApiError."""
        topic = (await readable_topics(zk, [name])).get(name)
        if topic is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return len(topic.partitions)

    async def _request_removal(self, zk: Coordinator, request: RemovePartitionsRequest, before: int) -> tuple[int, ...]:
        """The partitions from `count` to `before`; those that have left the topic already need no request. May be repeated."""
        _refuse_internal(request.topic)
        have = await self._count(zk, request.topic)
        if have > before:
            reason = f"topic {request.topic!r} has {have} partitions, not {before}; nothing was changed"
            raise api_error(ErrorCode.INVALID_PARTITIONS, reason)
        if not 1 <= request.count < before or have < request.count:
            reason = f"topic {request.topic!r} has {have} partitions: between 1 and {have - 1} can remain"
            raise api_error(ErrorCode.INVALID_PARTITIONS, reason)
        if await self._children(zk, paths.partitions_add(request.topic)):
            reason = f"partitions are being added to {request.topic!r}"
            raise api_error(ErrorCode.REASSIGNMENT_IN_PROGRESS, reason)
        # The last ones first, so that what is requested is always the end of the topic.
        for stop in range(have, request.count, -MAX_PER_TRANSACTION):
            part = range(max(request.count, stop - MAX_PER_TRANSACTION), stop)
            await self._write_removals(zk, request.topic, part, drain=request.drain)
        _log.info(
            "partitions.removal_requested",
            topic=request.topic,
            partitions=have - request.count,
            drain=request.drain,
        )
        return tuple(range(request.count, before))

    async def _write_removals(self, zk: Coordinator, topic: str, numbers: Iterable[int], *, drain: bool) -> None:
        requests = [paths.partition_remove(TopicPartition(topic, number)) for number in numbers]
        data = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=drain))
        for _ in range(ATTEMPTS):
            ops: list[Op] = []
            for path, standing in zip(requests, await zk.get_many(requests), strict=True):
                if standing is None:
                    ops.append(Create(path, data))
                elif not drain and _drains(standing[0]):
                    # Deleted and created, not set: the controller notices names that come and go.
                    ops += [Delete(path, standing[1].version), Create(path, data)]
            if not ops:
                return
            await zk.ensure_path(paths.partitions_remove(topic))
            try:
                await zk.multi(ops)
                return
            except MultiFailedError as failed:
                if not isinstance(failed.error, NodeExistsError | NoNodeError | BadVersionError):
                    raise failed.error from None
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")

    async def _is_removed(self, zk: Coordinator, topic: str) -> bool:
        return not await self._children(zk, paths.partitions_remove(topic))

    async def _children(self, zk: Coordinator, path: str) -> list[str]:
        try:
            return (await zk.children(path))[0]
        except NoNodeError:
            return []

    # --- elect -----------------------------------------------------------------------------------------------

    async def elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Write the request, wait until it has been executed, and return who leads."""
        try:
            async with patience(request.timeout_ms):
                wanted, results = await self._topics.repeating(lambda zk: self._due(zk, request))
                if wanted:
                    await self._topics.repeating(lambda zk: self._request_election(zk, wanted, unclean=request.unclean))
                    await self._until(lambda zk: self._is_absent(zk, paths.PREFERRED_REPLICA_ELECTION))
                    results += await self._topics.repeating(
                        lambda zk: self._outcomes(zk, wanted, unclean=request.unclean)
                    )
        except TimeoutError:
            reason = "the election was requested, but has not been held yet"
            return ElectLeadersResponse(ErrorCode.REQUEST_TIMED_OUT, reason)
        except ApiError as refusal:
            return ElectLeadersResponse(refusal.code, str(refusal))
        except CoordinatorError as error:
            return ElectLeadersResponse(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")
        return ElectLeadersResponse(ErrorCode.NONE, "", tuple(sorted(results, key=lambda r: (r.topic, r.partition))))

    async def _due(
        self, zk: Coordinator, request: ElectLeadersRequest
    ) -> tuple[list[TopicPartition], list[PartitionResult]]:
        """The partitions that need an election, and the results of the others, if they were named."""
        if request.partitions is None:
            names = (await zk.children(paths.TOPICS))[0]
        else:
            names = sorted({topic for topic, _ in request.partitions})
        topics = await readable_topics(zk, names)
        asked: Iterable[tuple[str, int]] = (
            ((name, number) for name in sorted(topics) for number in topics[name].partitions)
            if request.partitions is None
            else dict.fromkeys(request.partitions)
        )
        known: list[TopicPartition] = []
        due: list[TopicPartition] = []
        results: list[PartitionResult] = []
        async for name, number in with_pauses(asked):
            partition = TopicPartition(name, number)
            if name in topics and number in topics[name].partitions:
                known.append(partition)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.append(PartitionResult(*partition, code, f"there is no partition {partition}"))
        async for partition, state in with_pauses(zip(known, await self._states(zk, known), strict=True)):
            preferred = topics[partition.topic].partitions[partition.partition][0]
            is_led = state is not None and state.leader >= 0 and self._is_alive(state.leader)
            if not (is_led if request.unclean else (state is not None and state.leader == preferred)):
                due.append(partition)
            elif request.partitions is not None:
                results.append(PartitionResult(*partition, ErrorCode.ELECTION_NOT_NEEDED, "no election is needed"))
        return due, results

    async def _states(self, zk: Coordinator, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        states: list[LeaderAndIsr | None] = []
        znodes = await zk.get_many([paths.partition_state(partition) for partition in partitions])
        async for each in with_pauses(znodes):
            try:
                states.append(None if each is None else topic_znodes.decode_partition_state(each[0], each[1].version))
            except ZnodeError:
                states.append(None)
        return states

    async def _request_election(self, zk: Coordinator, partitions: Sequence[TopicPartition], *, unclean: bool) -> None:
        """One request at a time stands: another one of the same kind is joined, one of the other kind waited for."""
        for _ in range(ATTEMPTS * 50):
            try:
                data, stat = await zk.get(paths.PREFERRED_REPLICA_ELECTION)
            except NoNodeError:
                await zk.ensure_path(paths.parent(paths.PREFERRED_REPLICA_ELECTION))
                try:
                    data = admin_znodes.encode_preferred_election(partitions, unclean=unclean)
                    await zk.create(paths.PREFERRED_REPLICA_ELECTION, data)
                    return
                except NodeExistsError:
                    continue
            try:
                standing = admin_znodes.decode_preferred_election(data)
            except ZnodeError as error:
                reason = f"{error.path} is malformed ({error.reason}); remove or repair it first"
                raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None
            if standing.unclean == unclean:
                merged = tuple(dict.fromkeys([*standing.partitions, *partitions]))
                try:
                    data = admin_znodes.encode_preferred_election(merged, unclean=unclean)
                    await zk.set(paths.PREFERRED_REPLICA_ELECTION, data, stat.version)
                    return
                except (BadVersionError, NoNodeError):
                    continue
            await asyncio.sleep(POLL_S)
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "another election request is in progress")

    async def _is_absent(self, zk: Coordinator, path: str) -> bool:
        return await zk.exists(path) is None

    async def _outcomes(
        self, zk: Coordinator, partitions: Sequence[TopicPartition], *, unclean: bool
    ) -> list[PartitionResult]:
        topics = await readable_topics(zk, sorted({partition.topic for partition in partitions}))
        results: list[PartitionResult] = []
        async for partition, state in with_pauses(zip(partitions, await self._states(zk, partitions), strict=True)):
            topic = topics.get(partition.topic)
            if topic is None or partition.partition not in topic.partitions:
                results.append(PartitionResult(*partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is gone"))
            elif unclean and (state is None or state.leader < 0):
                reason = "no broker with a replica is alive"
                results.append(PartitionResult(*partition, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, reason))
            elif unclean and state is not None and not self._is_alive(state.leader):
                reason = f"broker {state.leader} leads it and does not answer; nobody else can lead before its ZooKeeper session has ended"
                results.append(PartitionResult(*partition, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, reason))
            elif not unclean and (state is None or state.leader != topic.partitions[partition.partition][0]):
                preferred = topic.partitions[partition.partition][0]
                reason = f"preferred leader {preferred} is not in sync"
                results.append(PartitionResult(*partition, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason))
            else:
                results.append(PartitionResult(*partition, ErrorCode.NONE))
        return results

    # --- waiting ---------------------------------------------------------------------------------------------

    async def _until(self, holds: Callable[[Coordinator], Awaitable[bool]]) -> None:
        """Look again and again; the caller has a deadline."""
        while not await self._topics.repeating(holds):  # noqa: ASYNC110 - several znodes, seen by whatever session there is
            await asyncio.sleep(POLL_S)


def _hosts(data: bytes) -> Replicas:
    """The brokers that had replicas of the partition when it left the topic."""
    try:
        return admin_znodes.decode_partition_remove(data).replicas
    except ZnodeError:
        return ()  # the controller reports it


def _drains(data: bytes) -> bool:
    """Whether a standing request waits until the partition is empty."""
    try:
        standing = admin_znodes.decode_partition_remove(data)
    except ZnodeError:
        return False  # the controller reports it
    return standing.drain and not standing.replicas


def _refuse_internal(topic: str) -> None:
    """Every group and transaction would be looked for elsewhere, and what it has committed be lost. Raises ApiError."""
    if topic in INTERNAL_TOPICS:
        raise api_error(ErrorCode.INVALID_REQUEST, f"the number of partitions of {topic} cannot be changed")
