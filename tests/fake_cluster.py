"""A cluster in memory behind real RPC listeners, to test clients against: it can be made to fail in all ways.

One log per partition, shared by all nodes (replication is perfect); a leader per partition; Kafka's checks of
producer id, epoch and sequence. Faults: kill and revive nodes, move leaders, errors to give, answers to lose
after the append, requests to leave unanswered.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kafkalite.config import BrokerConfig
from kafkalite.env.real import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    ReplicaDescription,
    TopicResult,
)
from kafkalite.extension.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthProblem,
    HealthRequest,
    HealthResponse,
)
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from kafkalite.record.batch import MAX_SEQUENCE, assigned_head, parse_header, split_batches, verify_crc
from kafkalite.record.reader import Record, read_records
from kafkalite.rpc.handling import Reply, Request
from kafkalite.rpc.messages.control import Broker
from kafkalite.rpc.messages.data import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    TopicMetadata,
)
from kafkalite.rpc.server import Identity, RpcServer

CLUSTER_ID = "fake-cluster"
E = ErrorCode


@dataclass
class FakeLog:
    """A partition's log and its producers' last batches."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0
    start: int = 0
    leader: int = 1
    epoch: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        base = self.end
        for position, header in split_batches(records):
            verify_crc(records, position, header)
            if header.producer_id >= 0:
                code, known = self._check(header.producer_id, header.producer_epoch, header.base_sequence, header)
                if code is not None:
                    return code, known
            data = bytes(records[position : position + header.size])
            stored = assigned_head(header, self.end, self.epoch) + data[16:]
            self.batches.append((self.end, self.end + header.last_offset_delta, stored))
            self.end += header.last_offset_delta + 1
        return E.NONE, base

    def _check(self, producer: int, epoch: int, base: int, header: Any) -> tuple[ErrorCode | None, int]:
        last = (base + header.last_offset_delta) & MAX_SEQUENCE
        known = self.producers.get(producer)
        if known is None or epoch > known[0]:
            if base != 0 and known is not None:
                return E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if base != 0:
                return E.UNKNOWN_PRODUCER_ID if not self.batches else E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[producer] = (epoch, deque([(base, last, self.end)], maxlen=5))
            return None, 0
        if epoch < known[0]:
            return E.INVALID_PRODUCER_EPOCH, -1
        for first_seq, last_seq, offset in known[1]:
            if (first_seq, last_seq) == (base, last):
                return E.NONE, offset
        if base != (known[1][-1][1] + 1) & MAX_SEQUENCE:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known[1].append((base, last, self.end))
        return None, 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for _, last, data in self.batches:
            if last < offset:
                continue
            if found and size + len(data) > max_bytes:
                break
            found.append(data)
            size += len(data)
        return b"".join(found)

    def records(self) -> list[Record]:
        return list(read_records(b"".join(data for *_, data in self.batches)))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


class FakeNode:
    """One broker."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.server: RpcServer | None = None
        self.endpoint = Endpoint("127.0.0.1", 0)
        #: Requests are taken and never answered (a stopped process).
        self.hung = False
        #: Appends that many produces, then cuts the connection instead of answering.
        self.cut_after_append = 0
        #: Cuts before the append.
        self.cut_before_append = 0
        self.metadata_view: dict[TopicPartition, tuple[int, int]] | None = None

    async def start(self) -> None:
        handlers = {
            MetadataRequest: self._metadata,
            ProduceRequest: self._produce,
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            InitProducerIdRequest: self._init_producer_id,
            CreateTopicsRequest: self._create_topics,
            DeleteTopicsRequest: self._delete_topics,
            DescribeClusterRequest: self._describe_cluster,
            DescribeReplicasRequest: self._describe_replicas,
            HealthRequest: self._health,
        }
        self.server = RpcServer(
            network=self.cluster.network,
            supervisor=self.cluster.supervisor,
            config=dataclasses.replace(BrokerConfig(), **self.cluster.config),
            identity=lambda: Identity(CLUSTER_ID, BrokerId(self.number), BrokerEpoch(self.number * 100)),
            handlers={kind: self._hang_or(handler) for kind, handler in handlers.items()},
        )
        self.endpoint = await self.server.start("127.0.0.1", self.endpoint.port)

    async def kill(self) -> None:
        """As kill -9: every connection is cut."""
        assert self.server is not None
        for connection in list(self.server.connections.values()):
            connection.shut("killed", quietly=True, at_once=True)
        await self.server.close()
        self.server = None

    def _hang_or(self, handler: Any) -> Any:
        def handle(request: Request) -> Any:
            self.cluster.requests.append((self.number, type(request.message).__name__))
            if self.hung:
                return asyncio.get_running_loop().create_future()
            return handler(request)

        return handle

    def _leader(self, key: TopicPartition) -> tuple[int, int]:
        log = self.cluster.logs[key]
        view = self.metadata_view
        return view[key] if view is not None and key in view else (log.leader, log.epoch)

    def _cut(self) -> asyncio.Future[Reply | None]:
        assert self.server is not None
        loop = asyncio.get_running_loop()
        for connection in list(self.server.connections.values()):
            loop.call_soon(lambda c=connection: c.shut("cut", quietly=True, at_once=True))
        return loop.create_future()

    def _metadata(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, MetadataRequest)
        names = sorted(self.cluster.topics) if message.topics is None else message.topics
        alive = tuple(node.number for node in self.cluster.nodes.values() if node.server is not None)
        topics = []
        for name in names:
            if name not in self.cluster.topics:
                topics.append(TopicMetadata(name, int(E.UNKNOWN_TOPIC_OR_PARTITION), TopicId(""), ()))
                continue
            partitions = []
            for number in range(self.cluster.topics[name]):
                leader, epoch = self._leader(TopicPartition(name, number))
                ids = tuple(BrokerId(n) for n in sorted(self.cluster.nodes))
                isr = tuple(BrokerId(n) for n in alive)
                partitions.append(PartitionMetadata(number, 0, BrokerId(leader), LeaderEpoch(epoch), ids, isr))
            topics.append(TopicMetadata(name, 0, TopicId(f"id-of-{name}"), tuple(partitions)))
        return Reply(MetadataResponse(CLUSTER_ID, BrokerId(1), self.cluster.brokers(), tuple(topics)))

    def _produce(self, request: Request) -> Any:
        message = request.message
        assert isinstance(message, ProduceRequest)
        if self.cut_before_append:
            self.cut_before_append -= 1
            return self._cut()
        at = 0
        answers = []
        for entry in message.partitions:
            records = request.body[at : at + entry.records_size]
            at += entry.records_size
            code, offset = self._append(TopicPartition(entry.topic, entry.partition), records)
            answers.append(ProducedPartition(entry.topic, entry.partition, int(code), Offset(offset)))
        if self.cut_after_append:
            self.cut_after_append -= 1
            return self._cut()
        if message.acks == 0:
            return None
        return Reply(ProduceResponse(tuple(answers)))

    def _append(self, key: TopicPartition, records: memoryview) -> tuple[ErrorCode, int]:
        log = self.cluster.logs.get(key)
        if log is None:
            return E.UNKNOWN_TOPIC_OR_PARTITION, -1
        if log.leader != self.number:
            return E.NOT_LEADER_OR_FOLLOWER, -1
        if self.cluster.errors:
            error = self.cluster.errors.popleft()
            if error is not None:
                if error is E.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                    log.append(records)
                return error, -1
        if self.cluster.max_message_bytes and len(records) > self.cluster.max_message_bytes:
            return E.MESSAGE_TOO_LARGE, -1
        return log.append(records)

    def _fetch(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, FetchRequest)
        answers, bodies = [], []
        for entry in message.partitions:
            log = self.cluster.logs.get(TopicPartition(entry.topic, entry.partition))
            code, data = E.NONE, b""
            if log is None:
                code = E.UNKNOWN_TOPIC_OR_PARTITION
            elif log.leader != self.number:
                code = E.NOT_LEADER_OR_FOLLOWER
            elif entry.current_leader_epoch > log.epoch:
                code = E.UNKNOWN_LEADER_EPOCH
            elif 0 <= entry.current_leader_epoch < log.epoch:
                code = E.FENCED_LEADER_EPOCH
            elif not log.start <= entry.fetch_offset <= log.end:
                code = E.OFFSET_OUT_OF_RANGE
            else:
                data = log.read(entry.fetch_offset, entry.max_bytes)
            end = Offset(log.end if log else -1)
            start = Offset(log.start if log else -1)
            answers.append(FetchedPartition(entry.topic, entry.partition, int(code), end, end, start, len(data)))
            bodies.append(data)
        return Reply(FetchResponse(tuple(answers)), bodies)

    def _list_offsets(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, ListOffsetsRequest)
        answers = []
        for entry in message.partitions:
            log = self.cluster.logs[TopicPartition(entry.topic, entry.partition)]
            code = E.NONE if log.leader == self.number else E.NOT_LEADER_OR_FOLLOWER
            offset = log.start if entry.timestamp == EARLIEST_TIMESTAMP else log.end
            answers.append(ListedOffset(entry.topic, entry.partition, int(code), -1, Offset(offset)))
        return Reply(ListOffsetsResponse(tuple(answers)))

    def _init_producer_id(self, request: Request) -> Reply:
        self.cluster.next_producer_id += 1
        return Reply(InitProducerIdResponse(0, ProducerId(self.cluster.next_producer_id), 0))

    def _create_topics(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, CreateTopicsRequest)
        results = []
        for topic in message.topics:
            code = E.TOPIC_ALREADY_EXISTS if topic.topic in self.cluster.topics else E.NONE
            count = len(topic.assignment) if topic.assignment else max(1, topic.partitions)
            if code is E.NONE and not message.validate_only:
                self.cluster.create(topic.topic, count)
            results.append(TopicResult(topic.topic, int(code), code.name if code else "", partitions=count))
        return Reply(CreateTopicsResponse(tuple(results)))

    def _delete_topics(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, DeleteTopicsRequest)
        results = []
        for topic in message.topics:
            count = self.cluster.topics.pop(topic, None)
            code = E.UNKNOWN_TOPIC_OR_PARTITION if count is None else E.NONE
            for number in range(count or 0):
                del self.cluster.logs[TopicPartition(topic, number)]
            results.append(TopicResult(topic, int(code), code.name if code else ""))
        return Reply(DeleteTopicsResponse(tuple(results)))

    def _describe_cluster(self, request: Request) -> Reply:
        brokers = self.cluster.brokers()
        return Reply(DescribeClusterResponse(CLUSTER_ID, BrokerId(1), ControllerEpoch(4), brokers))

    def _describe_replicas(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, DescribeReplicasRequest)
        ids = tuple(BrokerId(n) for n in sorted(self.cluster.nodes))
        replicas = tuple(
            ReplicaDescription(
                key.topic,
                key.partition,
                TopicId(f"id-of-{key.topic}"),
                log.leader == self.number,
                BrokerId(log.leader),
                LeaderEpoch(log.epoch),
                ids,
                ids,
                PartitionEpoch(3),
                Offset(log.end),
                Offset(log.start),
                Offset(log.end),
                1234,
                "/data",
            )
            for key, log in sorted(self.cluster.logs.items())
            if not message.topics or key.topic in message.topics
        )
        return Reply(DescribeReplicasResponse(BrokerId(self.number), BrokerEpoch(self.number * 100), replicas))

    def _health(self, request: Request) -> Reply:
        return Reply(HealthResponse(BrokerId(self.number), tuple(self.cluster.problems)))


class FakeCluster:
    """Nodes 1..n. `async with FakeCluster(3) as cluster`."""

    def __init__(self, nodes: int = 3, **config: Any) -> None:
        self.fatal: list[BaseException] = []
        self.supervisor = Supervisor(self.fatal.append)
        self.network = RealNetwork(self.fatal.append)
        self.config = config
        self.nodes = {number: FakeNode(self, number) for number in range(1, nodes + 1)}
        self.topics: dict[str, int] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        #: Codes for the next appends, one each; None lets one through.
        self.errors: deque[ErrorCode | None] = deque()
        self.problems: list[HealthProblem] = []
        self.requests: list[tuple[int, str]] = []
        self.next_producer_id = 1000
        self.max_message_bytes = 0

    async def __aenter__(self) -> FakeCluster:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.server is not None:
                await node.kill()
        await self.supervisor.stop()
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.fatal == []

    @property
    def bootstrap(self) -> list[str]:
        return [str(node.endpoint) for node in self.nodes.values() if node.server is not None]

    def brokers(self) -> tuple[Broker, ...]:
        return tuple(
            Broker(BrokerId(n), BrokerEpoch(n * 100), "127.0.0.1", 9092, node.endpoint.host, node.endpoint.port)
            for n, node in sorted(self.nodes.items())
            if node.server is not None
        )

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = partitions
        for number in range(partitions):
            self.logs[TopicPartition(topic, number)] = FakeLog(leader=1 + number % len(self.nodes))

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        return self.logs[TopicPartition(topic, partition)]

    def move_leader(self, topic: str, partition: int, leader: int) -> None:
        log = self.log(topic, partition)
        log.leader = leader
        log.epoch += 1

    async def kill(self, number: int, *, new_leader: int) -> None:
        """Kill a node; what it led is led by `new_leader`."""
        await self.nodes[number].kill()
        for key, log in self.logs.items():
            if log.leader == number:
                self.move_leader(key.topic, key.partition, new_leader)


def header_of(data: bytes) -> Any:
    return parse_header(data)
