"""A `FakeLog` behind a Kafka listener of a few lines, in a thread of the test process: Spark's workers reach it over sockets.

One process, no ZooKeeper, no replication: what is tested is the data source. `versions` are those of a broker of some release.
The cluster's own tests use real nodes, `kafka_brokers.py` Apache Kafka.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import BeginTxnGroupResponse, EndTxnGroupResponse
from kafkalite.kafka.apis import OFFERED
from kafkalite.model import ProducerId, TopicPartition
from kafkalite.protocol import codec, wire
from kafkalite.protocol.schema import schemas
from kafkalite.protocol.topic_ids import to_wire
from kafkalite.rpc.codec import pack
from tests.spark.fake_log import FakeLog

_SERVED = (
    "ApiVersions", "Metadata", "Produce", "Fetch", "ListOffsets", "InitProducerId", "OffsetCommit", "OffsetFetch", "CreateTopics",
    "FindCoordinator", "AddPartitionsToTxn", "Extension",
)  # fmt: skip
#: What this release of Kafka offers of these APIs. Source: the message definitions of its branch.
KAFKA_2_1 = {
    "ApiVersions": (0, 2), "Metadata": (0, 7), "Produce": (0, 7), "Fetch": (0, 10), "ListOffsets": (0, 4),
    "InitProducerId": (0, 1), "OffsetCommit": (0, 6), "CreateTopics": (0, 3), "FindCoordinator": (0, 2),
    "AddPartitionsToTxn": (0, 1),
}  # fmt: skip


class _Connection(asyncio.Protocol):
    """Frames in, responses out, in their order."""

    def __init__(self, server: LogServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._server.transports.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := int.from_bytes(self._received[:4])):
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            answer = self._server.answer(frame)
            if answer is None:  # as a broker does with what it does not know
                self._transport.abort()
                return
            self._transport.write(len(answer).to_bytes(4) + answer)


class LogServer:
    """Serves `log` on 127.0.0.1 between `start` and `stop`."""

    def __init__(self, log: FakeLog, versions: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.log = log
        self.address = ""
        self.versions = {name: OFFERED[name] for name in _SERVED} if versions is None else dict(versions)
        #: (API, version) of the last requests.
        self.requests: deque[tuple[str, int]] = deque(maxlen=1000)
        self.transports: deque[Any] = deque(maxlen=100)
        self._names = {schemas()[f"{name}Request"].api_key: name for name in self.versions}
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="log-server", daemon=True)
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        self._thread.start()
        self._server = self._run(self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0))
        self._port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for transport in self.transports:
            transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)

    def _run(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(10)

    # --- frames: on the server's loop, one at a time

    def answer(self, frame: bytes) -> bytes | None:
        """The response's frame; None: the request is not known, or not in that version."""
        key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
        name = self._names.get(key, "")
        low, high = self.versions.get(name, (1, 0))
        self.requests.append((name, version))
        if name == "ApiVersions" and version > high:
            return frame[4:8] + codec.encode(wire.ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION)), 0)
        if not low <= version <= high:
            return None
        start = 10 + max(int.from_bytes(frame[8:10], signed=True), 0)
        if version in schemas()[f"{name}Request"].flexible:
            assert frame[start] == 0, "tagged fields in a request header"
            start += 1
        message = codec.decode(f"{name}Request", version, memoryview(frame)[start:])
        response = getattr(self, f"_{name}")(message, version)
        tags = b"\0" if name != "ApiVersions" and version in schemas()[f"{name}Response"].flexible else b""
        return frame[4:8] + tags + codec.encode(response, version)

    def _ApiVersions(self, message: Any, version: int) -> Any:
        response = wire.ApiVersionsResponse
        return response(
            api_keys=[response.ApiVersion(key, *self.versions[name]) for key, name in sorted(self._names.items())]
        )

    def _Metadata(self, message: Any, version: int) -> Any:
        response = wire.MetadataResponse
        asked = None if message.topics is None else [topic.name for topic in message.topics]
        found = self.log.metadata(asked, allow_auto_create=message.allow_auto_topic_creation)
        topics = [
            response.MetadataResponseTopic(
                topic.error,
                topic.topic,
                to_wire(topic.topic_id),
                is_internal=False,
                partitions=[
                    response.MetadataResponsePartition(0, p.partition, 1, 0, [1], [1], []) for p in topic.partitions
                ],
            )
            for topic in found.topics
        ]
        broker = response.MetadataResponseBroker(1, "127.0.0.1", self._port)
        return response(brokers=[broker], cluster_id="cluster", controller_id=1, topics=topics)

    def _ListOffsets(self, message: Any, version: int) -> Any:
        response = wire.ListOffsetsResponse
        asked = {TopicPartition(t.name, p.partition_index): p.timestamp for t in message.topics for p in t.partitions}
        found = self.log.list_offsets(asked, isolation=message.isolation_level)
        part = response.ListOffsetsPartitionResponse
        return response(
            topics=[
                response.ListOffsetsTopicResponse(
                    topic.name,
                    [
                        part(p.partition_index, 0, timestamp=entry.timestamp, offset=entry.offset)
                        for p in topic.partitions
                        for entry in [found[TopicPartition(topic.name, p.partition_index)]]
                    ],
                )
                for topic in message.topics
            ]
        )

    def _Fetch(self, message: Any, version: int) -> Any:
        response = wire.FetchResponse
        ids = {to_wire(topic_id): topic for topic, topic_id in self.log.topic_ids.items()}
        answers = []
        for topic in message.topics:
            name = topic.topic if version < 13 else ids[topic.topic_id]
            parts = [self._fetched(TopicPartition(name, part.partition), part) for part in topic.partitions]
            answers.append(response.FetchableTopicResponse(name, topic.topic_id, parts))
        return response(responses=answers)

    def _fetched(self, tp: TopicPartition, asked: Any) -> Any:
        part, aborted = wire.FetchResponse.PartitionData, wire.FetchResponse.AbortedTransaction
        try:
            got = self.log.fetch_raw(tp, asked.fetch_offset, asked.partition_max_bytes, 0)
        except ApiError as error:
            return part(asked.partition, int(error.code), -1, -1, -1, aborted_transactions=[], records=b"")
        end = got.high_watermark
        listed = [aborted(each.producer_id, each.first_offset) for each in got.aborted]
        return part(
            asked.partition, 0, end, end, got.log_start_offset, aborted_transactions=listed, records=got.records
        )

    def _Produce(self, message: Any, version: int) -> Any:
        response = wire.ProduceResponse
        topics = []
        for topic in message.topic_data:
            parts = []
            for part in topic.partition_data:
                tp = TopicPartition(topic.name, part.index)
                if tp not in self.log.partitions:
                    code, offset = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1
                else:
                    done = self.log.append(tp, bytes(part.records))
                    code, offset = done.error, done.base_offset
                parts.append(response.PartitionProduceResponse(part.index, code, offset))
            topics.append(response.TopicProduceResponse(topic.name, partition_responses=parts))
        return response(topics)

    def _InitProducerId(self, message: Any, version: int) -> Any:
        producer_id, epoch = self.log.init_producer_id()
        return wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    def _OffsetCommit(self, message: Any, version: int) -> Any:
        response = wire.OffsetCommitResponse
        offsets = {
            TopicPartition(t.name, p.partition_index): p.committed_offset for t in message.topics for p in t.partitions
        }
        self.log.commit_offsets(message.group_id, offsets)
        part = response.OffsetCommitResponsePartition
        return response(
            topics=[
                response.OffsetCommitResponseTopic(
                    t.name, partitions=[part(p.partition_index, 0) for p in t.partitions]
                )
                for t in message.topics
            ]
        )

    def _OffsetFetch(self, message: Any, version: int) -> Any:
        response = wire.OffsetFetchResponse
        committed = self.log.committed_offsets(message.groups[0].group_id if message.groups else message.group_id)
        topics: dict[str, list[Any]] = {}
        for tp, offset in committed.items():
            part = response.OffsetFetchResponsePartitions if message.groups else response.OffsetFetchResponsePartition
            topics.setdefault(tp.topic, []).append(part(tp.partition, offset, -1, "", 0))
        if not message.groups:
            return response(topics=[response.OffsetFetchResponseTopic(name, parts) for name, parts in topics.items()])
        found = [response.OffsetFetchResponseTopics(name, partitions=parts) for name, parts in topics.items()]
        return response(groups=[response.OffsetFetchResponseGroup(message.groups[0].group_id, found, 0)])

    def _CreateTopics(self, message: Any, version: int) -> Any:
        response = wire.CreateTopicsResponse
        results = []
        for topic in message.topics:
            exists = topic.name in self.log.topic_ids
            if not exists:
                self.log.add_topic(topic.name, topic.num_partitions)
            code = int(ErrorCode.TOPIC_ALREADY_EXISTS) if exists else 0
            results.append(response.CreatableTopicResult(topic.name, error_code=code, configs=[]))
        return response(topics=results)

    # transactions are always granted: what is written shows at once

    def _Extension(self, message: Any, version: int) -> Any:
        if message.kind == "BeginTxnGroupRequest":
            producer_id, epoch = self.log.init_producer_id()
            return wire.ExtensionResponse(body=pack(BeginTxnGroupResponse(0, "", ProducerId(producer_id), epoch)))
        assert message.kind == "EndTxnGroupRequest"
        return wire.ExtensionResponse(body=pack(EndTxnGroupResponse(0, is_complete=True)))

    def _FindCoordinator(self, message: Any, version: int) -> Any:
        response = wire.FindCoordinatorResponse
        where = (1, "127.0.0.1", self._port)
        if version < 4:
            return response(0, 0, None, *where)
        return response(coordinators=[response.Coordinator(key, *where, 0, None) for key in message.coordinator_keys])

    def _AddPartitionsToTxn(self, message: Any, version: int) -> Any:
        response = wire.AddPartitionsToTxnResponse
        topic_result = response.AddPartitionsToTxnTopicResult
        part = response.AddPartitionsToTxnPartitionResult

        def granted(topics: Any) -> list[Any]:
            return [topic_result(topic.name, [part(number, 0) for number in topic.partitions]) for topic in topics]

        if version < 4:
            return response(results_by_topic_v3_and_below=granted(message.v3_and_below_topics))
        result = response.AddPartitionsToTxnResult
        return response(
            results_by_transaction=[
                result(each.transactional_id, granted(each.topics)) for each in message.transactions
            ]
        )
