"""Requests to reassign partitions, on any node: validated, merged into /admin/reassign_partitions, and listed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from kafkalite.admin.topics import ATTEMPTS, TopicAdmin, patience
from kafkalite.controller.decisions.reassignments import is_over
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.closed_brokers import read_closed
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    NodeExistsError,
    NoNodeError,
    TooBigError,
)
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    PartitionResult,
    Reassignment,
    WantedReassignment,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition
from kafkalite.telemetry.logs import get_logger
from kafkalite.wording import number_of

_log = get_logger(__name__)

#: How long a request waits to be taken up by the controller, so that a listing right after it shows it.
TAKE_UP_WAIT_S = 2.0
POLL_S = 0.02
#: Partitions of a request that are checked before others run.
_CHECKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What a request is checked against."""

    topics: Mapping[str, topic_znodes.TopicZnode]
    brokers: frozenset[BrokerId]
    #: Brokers that take no new replicas, with their states.
    closed: Mapping[BrokerId, str]
    requested: Mapping[TopicPartition, Replicas]
    throttles: Mapping[TopicPartition, int]
    version: int | None
    limits: admin_znodes.RequestLimits = admin_znodes.NO_LIMITS


class ReassignmentAdmin:
    """Writes and reads; the controller acts."""

    def __init__(self, topics: TopicAdmin) -> None:
        self._topics = topics

    # --- altering --------------------------------------------------------------------------------------------

    async def alter(self, request: AlterReassignmentsRequest) -> AlterReassignmentsResponse:
        """One result per partition; an error is a result, never raised. NONE: the request stands."""
        accepted: set[TopicPartition] = set()
        try:
            async with patience(request.timeout_ms):
                results, written = await self._topics.repeating(lambda zk: self._alter(zk, request, accepted))
        except TimeoutError:
            reason = "ZooKeeper has not answered: it is unknown whether the request was stored"
            return AlterReassignmentsResponse(ErrorCode.REQUEST_TIMED_OUT, reason)
        except ApiError as refusal:
            return AlterReassignmentsResponse(refusal.code, str(refusal))
        except CoordinatorError as error:
            return AlterReassignmentsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")
        if written:
            await self._wait_for_controller(written)
        return AlterReassignmentsResponse(ErrorCode.NONE, "", results)

    async def _alter(
        self, zk: Coordinator, request: AlterReassignmentsRequest, accepted: set[TopicPartition]
    ) -> tuple[tuple[PartitionResult, ...], dict[TopicPartition, Replicas]]:
        """The results, and what was written; may be repeated: `accepted` has what an earlier attempt may have written.

        Raises ApiError, CoordinatorError.
        """
        for _ in range(ATTEMPTS):
            cluster = await self._read(zk, {wanted.topic for wanted in request.partitions})
            results, good = await _check_all(request, cluster, accepted)
            refused = any(result.error != ErrorCode.NONE for result in results)
            if not good or (request.is_atomic and refused):
                return tuple(results), {}
            new = {TopicPartition(w.topic, w.partition): w.replicas or () for w in good}
            accepted.update(new)
            throttles = {TopicPartition(w.topic, w.partition): w.throttle for w in good}
            limits = request.limits if any(request.limits) else cluster.limits
            if len(new) > _CHECKED_AT_ONCE:
                await asyncio.sleep(0)
            data = admin_znodes.encode_reassignment(
                {**cluster.requested, **new}, {**cluster.throttles, **throttles}, limits
            )
            try:
                await _write(zk, data, cluster.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # somebody else has changed it
            except TooBigError:
                reason = f"{len(new)} partitions do not fit into one znode: request them in parts"
                raise api_error(ErrorCode.INVALID_REQUEST, reason) from None
            _log.info("reassignment.requested", partitions=len(new))
            return tuple(results), new
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")

    async def _read(self, zk: Coordinator, names: set[str]) -> _Cluster:
        topics = await readable_topics(zk, sorted(names))
        brokers, _ = paths.broker_ids((await zk.children(paths.BROKER_IDS))[0])
        closed = await read_closed(zk, brokers)
        try:
            data, stat = await zk.get(paths.REASSIGN_PARTITIONS)
        except NoNodeError:
            return _Cluster(topics, frozenset(brokers), closed, {}, {}, None)
        try:
            requested, throttles = admin_znodes.decode_reassignment(data), admin_znodes.decode_throttles(data)
        except ZnodeError as error:
            reason = f"{error.path} is malformed ({error.reason}); remove or repair it first"
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None
        limits = admin_znodes.decode_request_limits(data)
        return _Cluster(topics, frozenset(brokers), closed, requested, throttles, stat.version, limits)

    async def _wait_for_controller(self, written: Mapping[TopicPartition, Replicas]) -> None:
        """Until the topics' znodes show what was requested."""
        try:
            async with asyncio.timeout(TAKE_UP_WAIT_S):
                while True:
                    names = sorted({partition.topic for partition in written})
                    topics = await self._topics.repeating(partial(readable_topics, names=names))
                    if all(_is_taken_up(topics.get(p.topic), p.partition, written[p]) for p in written):
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            _log.info("reassignment.not_taken_up_yet", partitions=len(written))

    # --- listing ---------------------------------------------------------------------------------------------

    async def list(self, request: ListReassignmentsRequest) -> ListReassignmentsResponse:
        """From the topics' znodes, where the truth is: any node answers the same."""
        try:
            async with patience(None):
                return await self._topics.repeating(lambda zk: self._list(zk, request))
        except TimeoutError:
            return ListReassignmentsResponse(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper has not answered")
        except CoordinatorError as error:
            return ListReassignmentsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")

    async def _list(self, zk: Coordinator, request: ListReassignmentsRequest) -> ListReassignmentsResponse:
        if request.partitions is None:
            names, _ = await zk.children(paths.TOPICS)
        else:
            names = sorted({topic for topic, _ in request.partitions})
        topics = await readable_topics(zk, names)
        wanted = None if request.partitions is None else set(request.partitions)
        moving = [
            TopicPartition(name, number)
            async for name in with_pauses(sorted(topics))
            for number, move in topics[name].moves.items()
            if not is_over(topics[name].partitions[number], move)
            if wanted is None or (name, number) in wanted
        ]
        states = await zk.get_many([paths.partition_state(partition) for partition in moving])
        # Files on dead brokers are removed when these return: no step waits for that.
        live, _ = paths.broker_ids((await zk.children(paths.BROKER_IDS))[0] if moving else ())
        found: list[Reassignment] = []
        async for partition, each in with_pauses(zip(moving, states, strict=True)):
            topic = topics[partition.topic]
            move = topic.moves[partition.partition]
            isr: Replicas = ()
            leader = BrokerId(-1)
            if each is not None:
                try:
                    state = topic_znodes.decode_partition_state(each[0], each[1].version)
                    isr, leader = state.isr, state.leader
                except ZnodeError:
                    pass  # `health` reports it
            found.append(
                Reassignment(
                    partition.topic,
                    partition.partition,
                    topic.partitions[partition.partition],
                    move.target,
                    move.origin,
                    move.step,
                    tuple(broker for broker in move.dropping if broker in live),
                    isr,
                    leader,
                    move.throttle,
                )
            )
        return ListReassignmentsResponse(ErrorCode.NONE, "", tuple(found))


async def _check_all(
    request: AlterReassignmentsRequest, cluster: _Cluster, accepted: Collection[TopicPartition]
) -> tuple[list[PartitionResult], list[WantedReassignment]]:
    """The results, and what is to be written. `accepted`: what an earlier attempt may have written."""
    results: list[PartitionResult] = []
    good: list[WantedReassignment] = []
    seen: set[TopicPartition] = set()
    for number, wanted in enumerate(request.partitions, 1):
        if not number % _CHECKED_AT_ONCE:
            await asyncio.sleep(0)
        partition = TopicPartition(wanted.topic, wanted.partition)
        if partition in seen:
            result = _result(wanted, ErrorCode.INVALID_REQUEST, "the partition occurs twice")
        else:
            result = _check(wanted, cluster, request)
        seen.add(partition)
        if result.error == ErrorCode.NONE:
            good.append(wanted)
        elif result.error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and partition in accepted:
            result = _result(wanted, ErrorCode.NONE)  # it is rolled back already
        results.append(result)
    return results, good


async def _write(zk: Coordinator, data: bytes, version: int | None) -> None:
    """On top of this version of the request; None: there is none yet. Raises CoordinatorError."""
    if version is None:
        await zk.ensure_path(paths.parent(paths.REASSIGN_PARTITIONS))
        await zk.create(paths.REASSIGN_PARTITIONS, data)
    else:
        await zk.set(paths.REASSIGN_PARTITIONS, data, version)


async def readable_topics(zk: Coordinator, names: Sequence[str]) -> dict[str, topic_znodes.TopicZnode]:
    """The topics that are there and can be read."""
    topics: dict[str, topic_znodes.TopicZnode] = {}
    parsed = 0
    for name, each in zip(names, await zk.get_many([paths.topic(name) for name in names]), strict=True):
        if each is not None:
            try:
                topics[name] = topic_znodes.decode_topic(each[0], paths.topic(name))
            except ZnodeError as error:
                _log.warning("znode.malformed", path=error.path, reason=error.reason)
            parsed += len(each[0])
            if parsed > topic_znodes.BYTES_AT_ONCE:  # the loop has other things to do as well
                parsed = 0
                await asyncio.sleep(0)
    return topics


def _result(wanted: WantedReassignment, code: ErrorCode, message: str = "") -> PartitionResult:
    return PartitionResult(wanted.topic, wanted.partition, code, message)


def _check(wanted: WantedReassignment, cluster: _Cluster, request: AlterReassignmentsRequest) -> PartitionResult:
    """Kafka's checks and codes, and ours."""
    name = f"{wanted.topic}-{wanted.partition}"
    topic = cluster.topics.get(wanted.topic)
    if topic is None or wanted.partition not in topic.partitions:
        return _result(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
    move = topic.moves.get(wanted.partition)
    if move is not None and is_over(topic.partitions[wanted.partition], move):
        move = None
    partition = TopicPartition(wanted.topic, wanted.partition)
    standing, throttle = (None, 0) if move is None else (move.target, move.throttle)
    if partition in cluster.requested:
        standing, throttle = cluster.requested[partition], cluster.throttles.get(partition, 0)
    replicas = wanted.replicas
    if replicas is None:
        if standing is None:
            return _result(wanted, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned")
        return _result(wanted, ErrorCode.NONE)
    before = move.origin if move is not None else topic.partitions[wanted.partition]
    problem = _malformed(replicas)
    if problem is None and wanted.throttle < 0:
        return _result(wanted, ErrorCode.INVALID_REQUEST, f"{name}: a throttle of {wanted.throttle} bytes/s")
    problem = problem or _unavailable(replicas, cluster, {*topic.partitions[wanted.partition], *before})
    if problem is not None:
        return _result(wanted, ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}: {problem}")
    if len(replicas) != len(before) and not request.allow_replication_factor_change:
        reason = f"{name} has {number_of(len(before), 'replica')}, the request has {len(replicas)}"
        return _result(wanted, ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    is_the_same = (standing, throttle) == (replicas, wanted.throttle)  # sent again after a lost answer
    if standing is not None and not is_the_same and not request.may_replace:
        return _result(wanted, ErrorCode.REASSIGNMENT_IN_PROGRESS, f"{name} is being reassigned already")
    return _result(wanted, ErrorCode.NONE)


def _malformed(replicas: Replicas) -> str | None:
    """Why these are the replicas of no partition; None: they can be."""
    if not replicas:
        return "no replicas"
    if len(set(replicas)) != len(replicas):
        return f"the same broker twice in {list(replicas)}"
    if min(replicas) < 0:
        return f"{min(replicas)} is not a broker id"
    return None


def _unavailable(replicas: Replicas, cluster: _Cluster, has: Collection[BrokerId]) -> str | None:
    """Why the cluster cannot place these replicas; None: it can. `has`: the brokers that have the partition now, or had it before its move;
    one that is away may keep it, and the move waits for that broker (KafkaController.validateReplicas)."""
    if unknown := sorted(set(replicas).difference(cluster.brokers, has)):
        return f"brokers that are not alive: {unknown}"
    if shut := sorted(each for each in replicas if each in cluster.closed and each not in has):
        return f"broker {shut[0]} is {cluster.closed[shut[0]]}: it takes no new replicas"
    return None


def _is_taken_up(topic: topic_znodes.TopicZnode | None, partition: int, requested: Replicas) -> bool:
    if topic is None or partition not in topic.partitions:
        return True
    move = topic.moves.get(partition)
    if move is None:
        return requested in ((), topic.partitions[partition])
    return move.target == (requested or move.origin)
