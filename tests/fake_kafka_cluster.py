"""A cluster in memory that speaks the Kafka protocol, to test clients against: it can be made to fail in all ways.

One log per partition, shared by all nodes (replication is perfect); a leader per partition; Kafka's checks of
producer id, epoch and sequence. Faults: kill and revive nodes, move leaders, errors to give, responses to lose
after the append, requests to leave unanswered. The server is not the product's listener: it is the simplest one
that keeps to the protocol, and each connection answers its requests in order, as a broker must.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import OFFERED
from kafkalite.model import EARLIEST_TIMESTAMP, Endpoint, TopicPartition
from kafkalite.protocol import codec, wire
from kafkalite.protocol.schema import schemas
from kafkalite.record.batch import MAX_SEQUENCE, assigned_head, parse_header, split_batches, verify_crc
from kafkalite.record.reader import Record, read_records

CLUSTER_ID = "fake-cluster"
_NO_ID = bytes(16)
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


class _Connection(asyncio.Protocol):
    """Takes frames, and answers them one after the other while the node is not hung."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._received = bytearray()
        self._waiting: deque[tuple[wire.RequestHeader, str, Any]] = deque()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._node.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self._node.connections.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := int.from_bytes(self._received[:4])):
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._take(frame)
        self.serve()

    def _take(self, frame: bytes) -> None:
        key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
        name = self._node.cluster.names.get(key)
        low, high = self._node.cluster.versions.get(name or "", (1, 0))
        if name != "ApiVersions" and not low <= version <= high:
            self.transport.abort()  # as a broker does with what it does not know
            return
        header, body = self._header(frame, name or "", version)
        if low <= version <= high:
            message = codec.decode(f"{name}Request", version, body)
        else:
            message = None  # an ApiVersions that is too new
        self._node.cluster.requests.append((self._node.number, f"{name}Request"))
        self._waiting.append((header, name or "", message))

    @staticmethod
    def _header(frame: bytes, name: str, version: int) -> tuple[Any, memoryview]:
        """The header, and the bytes after it (its own size is nowhere written)."""
        is_flexible = version in schemas()[f"{name}Request"].flexible
        size = int.from_bytes(frame[8:10], signed=True)
        end = 10 + max(size, 0)
        client_id = frame[10:end].decode() if size >= 0 else None
        if is_flexible:
            assert frame[end] == 0, "tagged fields in a request header"
            end += 1
        header = wire.RequestHeader(int.from_bytes(frame[:2]), version, int.from_bytes(frame[4:8]), client_id)
        return header, memoryview(frame)[end:]

    def serve(self) -> None:
        """Answer what waits."""
        while self._waiting and not self._node.hung and not self.transport.is_closing():
            header, name, message = self._waiting.popleft()
            self._answer(header, name, message)

    def _answer(self, header: Any, name: str, message: Any) -> None:
        version = header.request_api_version
        if message is None:
            answer, version = wire.ApiVersionsResponse(error_code=int(E.UNSUPPORTED_VERSION)), 0
        else:
            answer = self._node.answer(name, message, version)
        if answer is None:
            return
        schema = schemas()[f"{name}Response"]
        body = header.correlation_id.to_bytes(4)
        if name != "ApiVersions" and version in schema.flexible:
            body += b"\0"
        body += codec.encode(answer, version)
        self.transport.write(len(body).to_bytes(4) + body)


class FakeNode:
    """One broker."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.server: asyncio.Server | None = None
        self.endpoint = Endpoint("127.0.0.1", 0)
        self.connections: dict[_Connection, None] = {}
        self._hung = False
        #: Appends that many produces, then cuts the connections instead of answering.
        self.cut_after_append = 0
        #: Cuts before the append.
        self.cut_before_append = 0
        self.metadata_view: dict[TopicPartition, tuple[int, int]] | None = None
        self._handlers = {
            "ApiVersions": self._api_versions,
            "Metadata": self._metadata,
            "Produce": self._produce,
            "Fetch": self._fetch,
            "ListOffsets": self._list_offsets,
            "InitProducerId": self._init_producer_id,
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "DescribeCluster": self._describe_cluster,
        }

    @property
    def hung(self) -> bool:
        """Requests are taken and not answered (a stopped process); they are when it goes on."""
        return self._hung

    @hung.setter
    def hung(self, value: bool) -> None:
        self._hung = value
        for connection in list(self.connections):
            asyncio.get_running_loop().call_soon(connection.serve)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.endpoint.port)
        self.endpoint = Endpoint("127.0.0.1", self.server.sockets[0].getsockname()[1])

    async def kill(self) -> None:
        """As kill -9: every connection is cut."""
        assert self.server is not None
        self.server.close()
        self._cut()
        await self.server.wait_closed()
        self.server = None

    def _cut(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    def answer(self, name: str, message: Any, version: int) -> Any:
        """The response; None: there is none."""
        return self._handlers[name](message, version)

    def _leader(self, key: TopicPartition) -> tuple[int, int]:
        log = self.cluster.logs[key]
        view = self.metadata_view
        return view[key] if view is not None and key in view else (log.leader, log.epoch)

    def _api_versions(self, message: Any, version: int) -> Any:
        response = wire.ApiVersionsResponse
        keys = {name: key for key, name in self.cluster.names.items()}
        return response(
            api_keys=[response.ApiVersion(keys[name], *self.cluster.versions[name]) for name in sorted(keys)]
        )

    def _metadata(self, message: Any, version: int) -> Any:
        response = wire.MetadataResponse
        wants_all = message.topics is None or (version == 0 and not message.topics)
        names = sorted(self.cluster.topics) if wants_all else [each.name for each in message.topics]
        alive = self.cluster.alive()
        topics = []
        for name in names:
            if name not in self.cluster.topics:
                topics.append(response.MetadataResponseTopic(int(E.UNKNOWN_TOPIC_OR_PARTITION), name))
                continue
            partitions = []
            for number in range(self.cluster.topics[name]):
                leader, epoch = self._leader(TopicPartition(name, number))
                partitions.append(
                    response.MetadataResponsePartition(0, number, leader, epoch, sorted(self.cluster.nodes), alive, [])
                )
            topics.append(response.MetadataResponseTopic(0, name, topic_id(name), False, partitions))
        brokers = [response.MetadataResponseBroker(n, "127.0.0.1", port) for n, port in self.cluster.brokers()]
        return response(brokers=brokers, cluster_id=CLUSTER_ID, controller_id=1, topics=topics)

    def _produce(self, message: Any, version: int) -> Any:
        response = wire.ProduceResponse
        if self.cut_before_append:
            self.cut_before_append -= 1
            self._cut()
            return None
        topics = []
        for topic in message.topic_data:
            parts = []
            for part in topic.partition_data:
                code, offset = self._append(TopicPartition(topic.name, part.index), memoryview(part.records))
                parts.append(response.PartitionProduceResponse(part.index, int(code), offset))
            topics.append(response.TopicProduceResponse(topic.name, parts))
        if self.cut_after_append:
            self.cut_after_append -= 1
            self._cut()
            return None
        return response(topics) if message.acks else None

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

    def _fetch(self, message: Any, version: int) -> Any:
        response = wire.FetchResponse
        if message.session_epoch > 0:
            return response(error_code=int(E.FETCH_SESSION_ID_NOT_FOUND))
        answers = []
        for topic in message.topics:
            name = topic.topic if version < 13 else self.cluster.name_of(topic.topic_id)
            parts = [self._read(name, part) for part in topic.partitions]
            answers.append(response.FetchableTopicResponse(name, topic.topic_id, parts))
        return response(responses=answers)

    def _read(self, topic: str, wanted: Any) -> Any:
        log = self.cluster.logs.get(TopicPartition(topic, wanted.partition))
        code, data = E.NONE, b""
        if log is None:
            code = E.UNKNOWN_TOPIC_OR_PARTITION
        elif log.leader != self.number:
            code = E.NOT_LEADER_OR_FOLLOWER
        elif wanted.current_leader_epoch > log.epoch:
            code = E.UNKNOWN_LEADER_EPOCH
        elif 0 <= wanted.current_leader_epoch < log.epoch:
            code = E.FENCED_LEADER_EPOCH
        elif not log.start <= wanted.fetch_offset <= log.end:
            code = E.OFFSET_OUT_OF_RANGE
        else:
            data = log.read(wanted.fetch_offset, wanted.partition_max_bytes)
        end, start = (log.end, log.start) if log else (-1, -1)
        return wire.FetchResponse.PartitionData(
            wanted.partition, int(code), end, end, start, aborted_transactions=[], records=data
        )

    def _list_offsets(self, message: Any, version: int) -> Any:
        response = wire.ListOffsetsResponse
        topics = []
        for topic in message.topics:
            parts = []
            for wanted in topic.partitions:
                log = self.cluster.logs[TopicPartition(topic.name, wanted.partition_index)]
                code = E.NONE if log.leader == self.number else E.NOT_LEADER_OR_FOLLOWER
                offset = log.start if wanted.timestamp == EARLIEST_TIMESTAMP else log.end
                parts.append(
                    response.ListOffsetsPartitionResponse(
                        wanted.partition_index, int(code), timestamp=-1, offset=offset
                    )
                )
            topics.append(response.ListOffsetsTopicResponse(topic.name, parts))
        return response(topics=topics)

    def _init_producer_id(self, message: Any, version: int) -> Any:
        self.cluster.next_producer_id += 1
        return wire.InitProducerIdResponse(producer_id=self.cluster.next_producer_id, producer_epoch=0)

    def _create_topics(self, message: Any, version: int) -> Any:
        response = wire.CreateTopicsResponse
        results = []
        for topic in message.topics:
            code = E.TOPIC_ALREADY_EXISTS if topic.name in self.cluster.topics else E.NONE
            count = len(topic.assignments) if topic.assignments else max(1, topic.num_partitions)
            if code is E.NONE and not message.validate_only:
                self.cluster.create(topic.name, count)
            results.append(
                response.CreatableTopicResult(
                    topic.name,
                    topic_id(topic.name),
                    int(code),
                    code.name if code else None,
                    num_partitions=count,
                    replication_factor=1,
                    configs=[],
                )
            )
        return response(topics=results)

    def _delete_topics(self, message: Any, version: int) -> Any:
        response = wire.DeleteTopicsResponse
        names = [each.name for each in message.topics] if version >= 6 else message.topic_names
        results = []
        for name in names:
            count = self.cluster.topics.pop(name, None)
            code = E.UNKNOWN_TOPIC_OR_PARTITION if count is None else E.NONE
            for number in range(count or 0):
                del self.cluster.logs[TopicPartition(name, number)]
            results.append(response.DeletableTopicResult(name, _NO_ID, int(code), code.name if code else None))
        return response(responses=results)

    def _describe_cluster(self, message: Any, version: int) -> Any:
        response = wire.DescribeClusterResponse
        brokers = [response.DescribeClusterBroker(n, "127.0.0.1", port) for n, port in self.cluster.brokers()]
        return response(cluster_id=CLUSTER_ID, controller_id=1, brokers=brokers)


_SERVED = (
    "ApiVersions", "Metadata", "Produce", "Fetch", "ListOffsets", "InitProducerId", "CreateTopics", "DeleteTopics",
    "DescribeCluster",
)  # fmt: skip


class FakeCluster:
    """Nodes 1..n. `async with FakeCluster(3) as cluster`.

    Args:
        versions: API -> (lowest, highest) version, where the brokers are older than we are.
    """

    def __init__(self, nodes: int = 3, *, versions: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.versions = {name: OFFERED[name] for name in _SERVED} | dict(versions or {})
        #: API key -> name
        self.names = {schemas()[f"{name}Request"].api_key: name for name in self.versions}
        self.nodes = {number: FakeNode(self, number) for number in range(1, nodes + 1)}
        self.topics: dict[str, int] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        #: Codes for the next appends, one each; None lets one through.
        self.errors: deque[ErrorCode | None] = deque()
        #: (node, message) of every request that came in.
        self.requests: list[tuple[int, str]] = []
        self.next_producer_id = 1000
        self.max_message_bytes = 0

    async def __aenter__(self) -> FakeCluster:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for node in self.nodes.values():
            if node.server is not None:
                await node.kill()
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def bootstrap(self) -> list[str]:
        return [str(node.endpoint) for node in self.nodes.values() if node.server is not None]

    def alive(self) -> list[int]:
        """Ids of the nodes that were not killed."""
        return [number for number, node in sorted(self.nodes.items()) if node.server is not None]

    def brokers(self) -> list[tuple[int, int]]:
        """(id, port) of the live nodes, as the metadata tells."""
        return [(number, self.nodes[number].endpoint.port) for number in self.alive()]

    def name_of(self, wanted: bytes) -> str:
        """The topic with this id; "" if there is none."""
        return next((name for name in self.topics if topic_id(name) == wanted), "")

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


def topic_id(topic: str) -> bytes:
    """The id of the topic of this name."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes


def header_of(data: bytes) -> Any:
    return parse_header(data)
