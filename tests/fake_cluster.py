"""A cluster in memory behind real listeners that speak Kafka's protocol, to test clients against: it can be made to fail in all ways.

One log per partition, shared by all nodes (replication is perfect); a leader per partition; Kafka's checks of
producer id, epoch and sequence. Faults: kill and revive nodes, move leaders, errors to give, answers to lose
after the append, requests to leave unanswered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Listener
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.disks import DescribeDisksRequest, DescribeDisksResponse
from kafkalite.extension.messages.topics import DescribeReplicasRequest, DescribeReplicasResponse, ReplicaDescription
from kafkalite.extension.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthProblem,
    HealthRequest,
    HealthResponse,
)
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decoder, encode
from kafkalite.protocol.schema import schemas
from kafkalite.record.batch import parse_header
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import Broker
from tests.fake_log import FakeLog

CLUSTER_ID = "fake-cluster"
E = ErrorCode


#: What a handler returns; None: no response is sent.
Answer = Any | None


class FakeNode:
    """One broker. Responses leave a connection in the order of its requests."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.server: Listener | None = None
        self.endpoint = Endpoint("127.0.0.1", 0)
        #: Requests are taken and never answered, but for those that open a connection (a process stopped after that).
        self.hung = False
        #: The same for these requests only.
        self.unanswered: set[str] = set()
        #: It has just started: this number of its next Metadata responses have neither brokers nor topics.
        self.empty_metadata = 0
        #: Appends that many produces, then cuts the connection instead of answering.
        self.cut_after_append = 0
        #: Cuts before the append.
        self.cut_before_append = 0
        self.metadata_view: dict[TopicPartition, tuple[int, int]] | None = None
        #: API -> its highest version here; those that are missing are not offered.
        self.versions = {
            schema.api_key: (schema.versions.start, schema.versions.stop - 1)
            for name, schema in schemas().items()
            if name.endswith("Request") and schema.api_key >= 0
        }
        self._connections: set[asyncio.StreamWriter] = set()
        self._handlers: dict[str, Callable[[Any], Answer]] = {
            "MetadataRequest": self._metadata,
            "ProduceRequest": self._produce,
            "FetchRequest": self._fetch,
            "ListOffsetsRequest": self._list_offsets,
            "OffsetForLeaderEpochRequest": self._epoch_ends,
            "InitProducerIdRequest": self._init_producer_id,
            "CreateTopicsRequest": self._create_topics,
            "DeleteTopicsRequest": self._delete_topics,
            "DescribeTopicPartitionsRequest": self._describe_partitions,
            "ListPartitionReassignmentsRequest": lambda _: wire.ListPartitionReassignmentsResponse(),
        }
        self._extension: dict[type[Message], Callable[[Any], Message]] = {
            DescribeClusterRequest: self._describe_cluster,
            DescribeReplicasRequest: self._describe_replicas,
            DescribeDisksRequest: lambda _: DescribeDisksResponse(BrokerId(self.number), ()),
            HealthRequest: self._health,
        }

    async def start(self) -> None:
        self.server = await self.cluster.network.listen("127.0.0.1", self.endpoint.port, self._serve)
        self.endpoint = Endpoint(self.server.host, self.server.port)

    async def kill(self) -> None:
        """As kill -9: every connection is cut."""
        assert self.server is not None
        for writer in self._connections:
            writer.transport.abort()
        await self.server.close()
        self.server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        names = {schema.api_key: name for name, schema in schemas().items() if name.endswith("Request")}
        try:
            while True:
                frame = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4))))
                key, version, number = (int.from_bytes(frame[a:b]) for a, b in ((0, 2), (2, 4), (4, 8)))
                schema = schemas()[names[key]]
                start = 10 + max(0, int.from_bytes(frame[8:10], signed=True)) + (version in schema.flexible)
                message, _ = decoder(schema.name, version)(frame[start:])
                answer = self._answer(message)
                if answer is None:
                    continue
                response = schemas()[type(answer).__name__]
                tags = b"\0" if version in response.flexible and response.name != "ApiVersionsResponse" else b""
                body = number.to_bytes(4) + tags + encode(answer, version)
                writer.write(len(body).to_bytes(4) + body)
        except (OSError, EOFError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, message: Any) -> Any:
        name = type(message).__name__
        if name == "ApiVersionsRequest":
            return self._api_versions(message)
        inside: Message | None = None
        if name == "ExtensionRequest":
            kind = next(kind for kind in self._extension if kind.__name__ == message.kind)
            inside, name = unpack_as(kind, message.body), message.kind
        self.cluster.requests.append((self.number, name))
        if self.hung or name in self.unanswered:
            return None
        if inside is not None:
            return wire.ExtensionResponse(body=pack(self._extension[type(inside)](inside)))
        return self._handlers[name](message)

    def _api_versions(self, _: Any) -> Answer:
        response = wire.ApiVersionsResponse
        return response(0, [response.ApiVersion(key, *each) for key, each in sorted(self.versions.items())])

    def _leader(self, key: TopicPartition) -> tuple[int, int]:
        log = self.cluster.logs[key]
        view = self.metadata_view
        return view[key] if view is not None and key in view else (log.leader, log.epoch)

    def _cut(self) -> None:
        for writer in self._connections:
            asyncio.get_running_loop().call_soon(writer.transport.abort)

    def _metadata(self, message: Any) -> Answer:
        response = wire.MetadataResponse
        names = sorted(self.cluster.topics) if message.topics is None else [each.name for each in message.topics]
        if self.empty_metadata:
            self.empty_metadata -= 1
            return response(0, [], CLUSTER_ID)
        alive = [node.number for node in self.cluster.nodes.values() if node.server is not None]
        topics = []
        for name in names:
            if name not in self.cluster.topics:
                topics.append(response.MetadataResponseTopic(int(E.UNKNOWN_TOPIC_OR_PARTITION), name))
                continue
            partitions = []
            for number in range(self.cluster.topics[name]):
                leader, epoch = self._leader(TopicPartition(name, number))
                partitions.append(
                    response.MetadataResponsePartition(0, number, leader, epoch, sorted(self.cluster.nodes), alive)
                )
            topics.append(response.MetadataResponseTopic(0, name, topic_id_of(name), partitions=partitions))
        brokers = [
            response.MetadataResponseBroker(each.broker_id, each.kafka_host, each.kafka_port)
            for each in self.cluster.brokers()
        ]
        return response(0, brokers, CLUSTER_ID, BrokerId(1), topics)

    def _describe_partitions(self, message: Any) -> Answer:
        return wire.DescribeTopicPartitionsResponse()

    def _produce(self, message: Any) -> Answer:
        if self.cut_before_append:
            self.cut_before_append -= 1
            self._cut()
            return None
        response = wire.ProduceResponse
        topics = []
        for topic in message.topic_data:
            parts = []
            for entry in topic.partition_data:
                code, offset = self._append(TopicPartition(topic.name, entry.index), entry.records)
                parts.append(response.PartitionProduceResponse(entry.index, int(code), Offset(offset)))
            topics.append(response.TopicProduceResponse(topic.name, partition_responses=parts))
        if self.cut_after_append:
            self.cut_after_append -= 1
            self._cut()
            return None
        return None if message.acks == 0 else response(topics)

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

    def _fetch(self, message: Any) -> Answer:
        response = wire.FetchResponse
        topics = []
        for topic in message.topics:
            parts = []
            for entry in topic.partitions:
                log = self.cluster.logs.get(TopicPartition(topic.topic, entry.partition))
                code, data = E.NONE, b""
                preferred = NO_LEADER
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
                elif message.rack_id and self.cluster.preferred != NO_LEADER:
                    preferred = self.cluster.preferred
                else:
                    data = log.read(entry.fetch_offset, entry.partition_max_bytes)
                end = Offset(log.end if log else -1)
                start = Offset(log.start if log else -1)
                parts.append(
                    response.PartitionData(
                        entry.partition,
                        int(code),
                        end,
                        end,
                        start,
                        aborted_transactions=None,
                        records=data,
                        preferred_read_replica=preferred,
                    )
                )
            topics.append(response.FetchableTopicResponse(topic.topic, partitions=parts))
        return response(responses=topics)

    def _list_offsets(self, message: Any) -> Answer:
        response = wire.ListOffsetsResponse
        topics = []
        for topic in message.topics:
            parts = []
            for entry in topic.partitions:
                log = self.cluster.logs[TopicPartition(topic.name, entry.partition_index)]
                code = E.NONE if log.leader == self.number else E.NOT_LEADER_OR_FOLLOWER
                offset = Offset(log.start if entry.timestamp == EARLIEST_TIMESTAMP else log.end)
                parts.append(
                    response.ListOffsetsPartitionResponse(
                        entry.partition_index, int(code), timestamp=-1, offset=offset, leader_epoch=LeaderEpoch(-1)
                    )
                )
            topics.append(response.ListOffsetsTopicResponse(topic.name, parts))
        return response(0, topics)

    def _epoch_ends(self, message: Any) -> Answer:
        response = wire.OffsetForLeaderEpochResponse
        topics = []
        for topic in message.topics:
            ends = []
            for entry in topic.partitions:
                log = self.cluster.logs[TopicPartition(topic.topic, entry.partition)]
                code = E.NONE if log.leader == self.number else E.NOT_LEADER_OR_FOLLOWER
                epoch, end = log.end_of(entry.leader_epoch)
                ends.append(response.EpochEndOffset(int(code), entry.partition, LeaderEpoch(epoch), Offset(end)))
            topics.append(response.OffsetForLeaderTopicResult(topic.topic, ends))
        return response(0, topics)

    def _init_producer_id(self, message: Any) -> Answer:
        self.cluster.next_producer_id += 1
        return wire.InitProducerIdResponse(0, 0, self.cluster.next_producer_id, 0)

    def _create_topics(self, message: Any) -> Answer:
        response = wire.CreateTopicsResponse
        results = []
        for topic in message.topics:
            code = E.TOPIC_ALREADY_EXISTS if topic.name in self.cluster.topics else E.NONE
            count = len(topic.assignments) if topic.assignments else max(1, topic.num_partitions)
            if code is E.NONE and not message.validate_only:
                self.cluster.create(topic.name, count)
            results.append(
                response.CreatableTopicResult(
                    topic.name, error_code=int(code), error_message=code.name if code else None, num_partitions=count
                )
            )
        return response(0, results)

    def _delete_topics(self, message: Any) -> Answer:
        response = wire.DeleteTopicsResponse
        results = []
        for topic in message.topics:
            count = self.cluster.topics.pop(topic.name, None)
            code = E.UNKNOWN_TOPIC_OR_PARTITION if count is None else E.NONE
            for number in range(count or 0):
                del self.cluster.logs[TopicPartition(topic.name, number)]
            results.append(
                response.DeletableTopicResult(
                    topic.name, error_code=int(code), error_message=code.name if code else None
                )
            )
        return response(0, results)

    def _describe_cluster(self, _: DescribeClusterRequest) -> DescribeClusterResponse:
        return DescribeClusterResponse(CLUSTER_ID, BrokerId(1), ControllerEpoch(4), self.cluster.brokers())

    def _describe_replicas(self, message: DescribeReplicasRequest) -> DescribeReplicasResponse:
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
        return DescribeReplicasResponse(BrokerId(self.number), BrokerEpoch(self.number * 100), replicas)

    def _health(self, _: HealthRequest) -> HealthResponse:
        return HealthResponse(BrokerId(self.number), tuple(self.cluster.problems))


class FakeCluster:
    """Nodes 1..n. `async with FakeCluster(3) as cluster`."""

    def __init__(self, nodes: int = 3) -> None:
        self.fatal: list[BaseException] = []
        self.supervisor = Supervisor(self.fatal.append)
        self.network = RealNetwork(self.fatal.append)
        self.nodes = {number: FakeNode(self, number) for number in range(1, nodes + 1)}
        self.topics: dict[str, int] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        #: Codes for the next appends, one each; None lets one through.
        self.errors: deque[ErrorCode | None] = deque()
        self.problems: list[HealthProblem] = []
        self.requests: list[tuple[int, str]] = []
        #: The replica that leaders name to consumers that say their rack (KIP-392).
        self.preferred = NO_LEADER
        self.next_producer_id = 1000
        self.max_message_bytes = 0

    async def __aenter__(self) -> FakeCluster:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
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
            Broker(BrokerId(n), BrokerEpoch(n * 100), node.endpoint.host, node.endpoint.port, "127.0.0.1", 9192)
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


def topic_id_of(name: str) -> bytes:
    """16 bytes."""
    return name.encode().ljust(16, b"-")[:16]


def header_of(data: bytes) -> Any:
    return parse_header(data)
