"""A `FakeLog` behind a real RPC listener, in a thread of the test process: Spark's workers reach it over sockets.

One process, no ZooKeeper, no replication: what is tested is the data source. The cluster's own tests use real nodes.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from kafkalite.config import BrokerConfig
from kafkalite.env.real import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import CreateTopicsRequest, CreateTopicsResponse, TopicResult
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse
from kafkalite.model import BrokerEpoch, BrokerId, Offset, ProducerId, TopicPartition
from kafkalite.rpc.handling import Reply, Request
from kafkalite.rpc.messages.control import Broker
from kafkalite.rpc.messages.data import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
)
from kafkalite.rpc.messages.groups import CommitOffsetsRequest, CommitOffsetsResponse
from kafkalite.rpc.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkalite.rpc.server import Identity, RpcServer
from tests.spark.fake_log import FakeLog


class LogServer:
    """Serves `log` on 127.0.0.1 between `start` and `stop`."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="log-server", daemon=True)
        self._supervisor = Supervisor(lambda error: None)
        self._server = RpcServer(
            network=RealNetwork(),
            supervisor=self._supervisor,
            config=BrokerConfig(),
            identity=lambda: Identity("cluster", BrokerId(1), BrokerEpoch(1)),
            handlers={
                MetadataRequest: self._metadata,
                ListOffsetsRequest: self._list_offsets,
                FetchRequest: self._fetch,
                ProduceRequest: self._produce,
                InitProducerIdRequest: self._init_producer_id,
                CommitOffsetsRequest: self._commit_offsets,
                CreateTopicsRequest: self._create_topics,
                # transactions that are always granted: what is written shows at once
                FindCoordinatorRequest: lambda request: Reply(FindCoordinatorResponse(0, BrokerId(1))),
                AddPartitionsToTxnRequest: lambda request: Reply(AddPartitionsToTxnResponse(0)),
                EndTxnGroupRequest: lambda request: Reply(EndTxnGroupResponse(0, is_complete=True)),
            },
        )

    def start(self) -> None:
        self._thread.start()
        endpoint = self._run(self._server.start("127.0.0.1", 0))
        self.address = f"127.0.0.1:{endpoint.port}"
        self._port = endpoint.port

    def stop(self) -> None:
        self._run(self._server.close())
        self._run(self._supervisor.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, coroutine):
        future: Future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(10)

    # --- handlers: run on the server's loop, one at a time

    def _metadata(self, request: Request) -> Reply:
        answer = self.log.metadata(request.message.topics, allow_auto_create=request.message.allow_auto_create)
        broker = Broker(BrokerId(1), BrokerEpoch(1), "127.0.0.1", 1, "127.0.0.1", self._port)
        return Reply(MetadataResponse("cluster", BrokerId(1), (broker,), answer.topics))

    def _list_offsets(self, request: Request) -> Reply:
        asked = {TopicPartition(p.topic, p.partition): p.timestamp for p in request.message.partitions}
        return Reply(ListOffsetsResponse(tuple(self.log.list_offsets(asked).values())))

    def _fetch(self, request: Request) -> Reply:
        (asked,) = request.message.partitions
        tp = TopicPartition(asked.topic, asked.partition)
        try:
            got = self.log.fetch_raw(tp, asked.fetch_offset, asked.max_bytes, 0)
        except ApiError as error:
            nothing = FetchedPartition(*tp, int(error.code), Offset(-1), Offset(-1), Offset(-1), 0)
            return Reply(FetchResponse((nothing,)))
        end = Offset(got.high_watermark)
        partition = FetchedPartition(
            *tp, 0, end, end, Offset(got.log_start_offset), len(got.records), tuple(got.aborted)
        )
        return Reply(FetchResponse((partition,)), [got.records])

    def _produce(self, request: Request) -> Reply:
        position, answers = 0, []
        for part in request.message.partitions:
            batch = bytes(request.body[position : position + part.records_size])
            position += part.records_size
            tp = TopicPartition(part.topic, part.partition)
            if tp not in self.log.partitions:
                unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answers.append(ProducedPartition(*tp, unknown, Offset(-1)))
            else:
                answers.append(self.log.append(tp, batch))
        return Reply(ProduceResponse(tuple(answers)))

    def _init_producer_id(self, request: Request) -> Reply:
        producer_id, epoch = self.log.init_producer_id()
        return Reply(InitProducerIdResponse(0, ProducerId(producer_id), epoch))

    def _commit_offsets(self, request: Request) -> Reply:
        offsets = {TopicPartition(o.topic, o.partition): o.offset for o in request.message.offsets}
        self.log.commit_offsets(request.message.group, offsets)
        return Reply(CommitOffsetsResponse(0))

    def _create_topics(self, request: Request) -> Reply:
        results = []
        for topic in request.message.topics:
            exists = topic.topic in self.log.topic_ids
            if not exists:
                self.log.add_topic(topic.topic, topic.partitions)
            results.append(TopicResult(topic.topic, int(ErrorCode.TOPIC_ALREADY_EXISTS) if exists else 0))
        return Reply(CreateTopicsResponse(tuple(results)))
