"""The whole cluster as one node sees it: for the status page and `kafkalite top`.

Leaders come from the metadata cache; offsets, disks, problems and the progress of moves are asked of the other
nodes, for one page of partitions only and only while somebody watches. What all pages share is kept for a moment, so
that many watchers cost no more than one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from kafkalite.admin.reassignments import ReassignmentAdmin
from kafkalite.client.admin.moves import Tracker, part_of
from kafkalite.coordination.broker_states import ACTIVE, DRAINING
from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.seams import Clock
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError
from kafkalite.extension.messages.disks import DescribeDisksRequest, DescribeDisksResponse
from kafkalite.extension.messages.reassignment import ListReassignmentsRequest, Reassignment
from kafkalite.extension.messages.topics import DescribeReplicasRequest, DescribeReplicasResponse, ReplicaDescription
from kafkalite.extension.messages.watching import (
    BrokerStatus,
    HealthRequest,
    HealthResponse,
    MoveStatus,
    PartitionStatus,
    StatusRequest,
    StatusResponse,
    TopicStatus,
)
from kafkalite.model import INTERNAL_TOPICS, NO_LEADER, BrokerId, Endpoint, TopicPartition, is_under_replicated
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.peers import Peers
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.control import PartitionState

#: The largest page, even if a request asks for more.
MAX_ROWS = 200
#: Moves that are measured and listed; the rest is a number.
MAX_MOVES = 100
#: Minimum interval at which the data shared by all viewers are collected.
_FRESH_S = 1.0
#: The list of reassignments is read from ZooKeeper: more seldom while there is none.
_IDLE_MOVES_S = 5.0
#: If ZooKeeper does not answer within this time, the moves of before are shown.
_ZOOKEEPER_S = 4.0
#: A node that does not answer within this time is shown as such.
_PATIENCE_S = 1.5
#: Partitions counted in one turn of the loop: well below a millisecond.
_STEP = 100


class OverviewSource(Protocol):
    """What it needs of the node."""

    metadata: MetadataCache
    session: SessionKeeper
    local: LocalBroker


class Overview:
    """Answers StatusRequest.

    Args:
        peers: all nodes, this one included.
        closed: the brokers that take no new replicas, with their `broker.state`.
    """

    def __init__(
        self,
        host: OverviewSource,
        clock: Clock,
        peers: Peers,
        closed: Callable[[], Mapping[BrokerId, str]],
        reassignments: ReassignmentAdmin,
    ) -> None:
        self._reassignments = reassignments
        self._closed = closed
        self._host = host
        self._clock = clock
        self._peers = peers
        self._gathering = asyncio.Lock()
        self._brokers: dict[BrokerId, BrokerStatus] = {}
        self._gathered_at = float("-inf")
        self._moves: tuple[MoveStatus, ...] = ()
        self._moves_total = 0
        self._moves_at = float("-inf")
        self._trackers: dict[TopicPartition, Tracker] = {}

    async def answer(self, request: StatusRequest) -> StatusResponse:
        """One page."""
        cache = self._host.metadata
        if min(request.offset, request.limit, request.topics_offset, request.topics_limit) < 0:
            return self._response(ErrorCode.INVALID_REQUEST, "a page cannot have a negative offset or limit")
        async with self._gathering:
            await self._gather()
        live = frozenset(cache.broker_epochs)
        matched: list[PartitionState] = []
        counts = _PartitionCounts()
        topics: list[TopicStatus] = []
        seen = 0
        for name, states in self._all():
            partitions, offline, troubled = counts.partitions, counts.offline, counts.troubled
            for state in states:
                counts.add(state, live)
                if _fits(request, state, live):
                    matched.append(state)
                seen += 1
                if not seen % _STEP:
                    await asyncio.sleep(0)  # thousands of partitions: the node has other things to do as well
            if request.text in name or (request.topic and request.topic == name):
                factor = max((len(state.replicas) for state in states), default=0)
                mine = counts.partitions - partitions, factor, counts.offline - offline, counts.troubled - troubled
                topics.append(TopicStatus(name, *mine))
        page = matched[request.offset : request.offset + min(request.limit, MAX_ROWS)]
        first = request.topics_offset
        rows = tuple(await self._rows(page, live))
        return replace(
            self._response(ErrorCode.NONE, ""),
            brokers=self._with_counts(counts),
            topics=tuple(topics[first : first + min(request.topics_limit, MAX_ROWS)]),
            topics_total=len(cache.all_topics()),
            topics_matched=len(topics),
            partitions=rows,
            partitions_total=counts.partitions,
            partitions_matched=len(matched),
            partitions_offline=counts.offline,
            partitions_troubled=counts.troubled,
            moves=self._moves,
            moves_total=self._moves_total,
        )

    def _response(self, code: ErrorCode, message: str) -> StatusResponse:
        host, cache = self._host, self._host.metadata
        return StatusResponse(
            code, message, host.local.broker_id, host.session.usable(), self._clock.wall_ms(), host.local.cluster_id,
            cache.controller_id, cache.controller_epoch,
        )  # fmt: skip

    def _all(self) -> Iterator[tuple[str, list[PartitionState]]]:
        cache = self._host.metadata
        for name in cache.all_topics():
            states = cache.topic(name) or {}  # it may be gone by now
            yield name, [states[number] for number in sorted(states)]

    # --- what the other nodes know ---------------------------------------------------------------------------

    async def _gather(self) -> None:
        now = self._clock.monotonic()
        if now - self._gathered_at >= _FRESH_S:
            await self._gather_brokers()
            self._gathered_at = self._clock.monotonic()
        is_due = now - self._moves_at >= (_FRESH_S if self._moves_total else _IDLE_MOVES_S)
        if is_due and self._host.session.away_s() is None:
            await self._gather_moves()
            self._moves_at = self._clock.monotonic()

    async def _gather_brokers(self) -> None:
        cache = self._host.metadata
        health = await self._peers.every_node(HealthRequest(), timeout_s=_PATIENCE_S)
        disks = await self._peers.every_node(DescribeDisksRequest(), timeout_s=_PATIENCE_S)
        found: dict[BrokerId, BrokerStatus] = {}
        for broker in cache.brokers():
            node = broker.broker_id
            reported, has = health.get(node), disks.get(node)
            error = (
                str(reported) if isinstance(reported, KafkaliteError) else "" if reported is not None else "no answer"
            )
            known = reported if isinstance(reported, HealthResponse) else HealthResponse(node, ())
            found[node] = BrokerStatus(
                broker_id=node,
                kafka=str(Endpoint(broker.kafka_host, broker.kafka_port)) if broker.kafka_port >= 0 else "",
                rpc=str(Endpoint(broker.rpc_host, broker.rpc_port)),
                rack=broker.rack or "",
                leaders=0,
                replicas=0,
                out_of_sync=0,
                disks=has.disks if isinstance(has, DescribeDisksResponse) else (),
                problems=known.problems,
                longest_turn_ms=known.longest_turn_ms,
                longest_turn=known.longest_turn,
                error=error,
                http=broker.http,
                release=broker.release,
            )
        self._brokers = found

    def _with_counts(self, counts: _PartitionCounts) -> tuple[BrokerStatus, ...]:
        """Those that live, and those that are gone and still have replicas."""
        reported: list[BrokerStatus] = []
        closed = self._closed()
        for node in sorted({*self._brokers, *counts.replicas}):
            known = self._brokers.get(node)
            if known is None or node not in self._host.metadata.broker_epochs:
                known = BrokerStatus(node, "", "", "", 0, 0, 0, error="not alive")
            state = closed.get(node, ACTIVE)
            if state == DRAINING and not counts.replicas[node]:
                state = "drained"
            reported.append(
                replace(
                    known,
                    leaders=counts.leaders[node],
                    replicas=counts.replicas[node],
                    out_of_sync=counts.out_of_sync[node],
                    broker_state=state,
                )
            )
        return tuple(reported)

    async def _rows(self, page: Sequence[PartitionState], live: frozenset[BrokerId]) -> list[PartitionStatus]:
        by_leader: dict[BrokerId, list[tuple[str, int]]] = {}
        for state in page:
            if state.leader in live:
                by_leader.setdefault(state.leader, []).append((state.topic, state.partition))
        replicas: dict[tuple[str, int], ReplicaDescription] = {}
        for node, reported in (await self._describe(by_leader)).items():
            wanted = set(by_leader[node])
            replicas |= {(r.topic, r.partition): r for r in reported.replicas if (r.topic, r.partition) in wanted}
        return [_row(state, replicas.get((state.topic, state.partition)), live) for state in page]

    async def _describe(
        self, wanted: dict[BrokerId, list[tuple[str, int]]]
    ) -> dict[BrokerId, DescribeReplicasResponse]:
        """All at once; a node that does not answer is left out."""
        questions = {
            # The topics are for nodes that do not know of the partitions yet.
            node: DescribeReplicasRequest(tuple(sorted({topic for topic, _ in partitions})), tuple(partitions))
            for node, partitions in sorted(wanted.items())
        }
        answers = await self._peers.ask_nodes(questions, timeout_s=_PATIENCE_S)
        return {node: each for node, each in answers.items() if isinstance(each, DescribeReplicasResponse)}

    # --- moves -----------------------------------------------------------------------------------------------

    async def _gather_moves(self) -> None:
        try:
            async with asyncio.timeout(_ZOOKEEPER_S):
                listed = await self._reassignments.list(ListReassignmentsRequest())
        except (ApiError, TimeoutError):
            return
        if listed.error:
            return  # the moves of before are shown
        moves = sorted(listed.reassignments, key=lambda move: (not (move.step or move.dropping), move.topic, move.partition))  # fmt: skip
        self._moves_total = len(moves)
        shown = moves[:MAX_MOVES]
        wanted: dict[BrokerId, list[tuple[str, int]]] = {}
        for move in shown:
            for broker in sorted({*move.replicas, *move.target}):
                if broker in self._host.metadata.broker_epochs:
                    wanted.setdefault(broker, []).append((move.topic, move.partition))
        held = {
            (TopicPartition(replica.topic, replica.partition), node): replica.size_bytes
            for node, reported in (await self._describe(wanted)).items()
            for replica in reported.replicas
        }
        keys = {TopicPartition(move.topic, move.partition) for move in shown}
        self._trackers = {key: tracker for key, tracker in self._trackers.items() if key in keys}
        self._moves = tuple(self._move(move, held) for move in shown)

    def _move(self, move: Reassignment, held: dict[tuple[TopicPartition, BrokerId], int]) -> MoveStatus:
        part = part_of(move, held)
        tracker = self._trackers.setdefault(part.partition, Tracker())
        tracker.take((part,), self._clock.monotonic())
        return MoveStatus(
            move.topic,
            move.partition,
            move.replicas,
            move.target,
            part.is_under_way,
            tracker.done_bytes,
            tracker.total_bytes,
            int(tracker.rate),
            -1 if tracker.eta_s is None else int(tracker.eta_s + 0.5),
            move.throttle,
        )


class _PartitionCounts:
    """Partitions of the cluster, and by broker."""

    def __init__(self) -> None:
        self.partitions = self.offline = self.troubled = 0
        self.leaders, self.replicas, self.out_of_sync = Counter[BrokerId](), Counter[BrokerId](), Counter[BrokerId]()

    def add(self, state: PartitionState, live: frozenset[BrokerId]) -> None:
        self.partitions += 1
        self.offline += state.leader not in live
        self.troubled += _is_troubled(state, live)
        if state.leader != NO_LEADER:
            self.leaders[state.leader] += 1
        for broker in state.replicas:
            self.replicas[broker] += 1
            if broker not in state.isr and broker not in state.adding_replicas:
                self.out_of_sync[broker] += 1


def _is_troubled(state: PartitionState, live: frozenset[BrokerId]) -> bool:
    return state.leader not in live or is_under_replicated(state.replicas, state.isr, state.adding_replicas)


def _fits(request: StatusRequest, state: PartitionState, live: frozenset[BrokerId]) -> bool:
    if request.topic and state.topic != request.topic:
        return False
    if request.broker_id >= 0 and request.broker_id not in state.replicas:
        return False
    if request.text and request.text not in f"{state.topic}-{state.partition}":
        return False
    match request.state:
        case "troubled":
            return _is_troubled(state, live)
        case "offline":
            return state.leader not in live
        case "moving":
            return bool(state.adding_replicas or state.removing_replicas)
        case "user":
            return state.topic not in INTERNAL_TOPICS
        case "internal":
            return state.topic in INTERNAL_TOPICS
    return True


def _row(state: PartitionState, reported: ReplicaDescription | None, live: frozenset[BrokerId]) -> PartitionStatus:
    leader = state.leader if state.leader in live else NO_LEADER
    row = PartitionStatus(
        state.topic, state.partition, leader, state.leader_epoch, state.isr, state.replicas, state.adding_replicas
    )
    if reported is None or not reported.is_leader:
        return row
    ends = [follower.log_end_offset for follower in reported.followers]
    return replace(
        row,
        leader_epoch=reported.leader_epoch,
        isr=reported.isr,
        high_watermark=reported.high_watermark,
        log_start_offset=reported.log_start_offset,
        log_end_offset=reported.log_end_offset,
        size_bytes=reported.size_bytes,
        lag=reported.log_end_offset - max(min(ends), reported.log_start_offset) if ends else 0,
    )
