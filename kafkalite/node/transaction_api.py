"""Transactions on the RPC listener: the coordinator's answers, for whoever asks the node that coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import BrokerId, ProducerId, TopicPartition
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.handling import Handler, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.rpc.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_NO_PRODUCER = ProducerId(-1)


class TransactionApi:
    """Handlers. Refusals are in the answers."""

    def __init__(self, kafka: Callable[[], KafkaSide], metadata: MetadataCache) -> None:
        self._kafka_side = kafka
        self._metadata = metadata

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            FindCoordinatorRequest: self._find_coordinator,
            AddPartitionsToTxnRequest: self._add_partitions,
            EndTxnGroupRequest: self._end_group,
        }

    def _kafka(self) -> KafkaSide:
        kafka = self._kafka_side()
        if not kafka.is_coordinating:
            raise api_error(
                ErrorCode.UNSUPPORTED_VERSION,
                "this node has no Kafka listener (kafka.port), which nodes need for transaction markers",
            )
        return kafka

    async def _find_coordinator(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, FindCoordinatorRequest)
        try:
            kafka = self._kafka()
            if message.is_consumer_group:
                node_id, _, _ = await kafka.groups.log.coordinator_of(message.key)
            else:
                node_id, _, _ = await kafka.transactions.coordinator_of(message.key)
        except ApiError as error:
            return Reply(FindCoordinatorResponse(error.code, message=str(error)))
        except CoordinatorError as error:
            return Reply(FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, message=str(error)))
        return Reply(FindCoordinatorResponse(ErrorCode.NONE, BrokerId(node_id)))

    async def init_producer(self, message: InitProducerIdRequest) -> Reply:
        """For a transactional id."""
        assert message.transactional_id is not None
        try:
            kafka = self._kafka()
            if message.group_owner:
                granted = await kafka.transaction_groups.begin(
                    message.transactional_id, message.transaction_timeout_ms, message.group_owner, message.group_version
                )
            else:
                granted = await kafka.transactions.init_producer(
                    message.transactional_id,
                    message.transaction_timeout_ms,
                    (message.producer_id, message.producer_epoch),
                )
        except ApiError as error:
            return Reply(InitProducerIdResponse(error.code, _NO_PRODUCER, -1, message=str(error)))
        except CoordinatorError as error:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Reply(InitProducerIdResponse(code, _NO_PRODUCER, -1, message=str(error)))
        if granted is None:
            return Reply(InitProducerIdResponse(ErrorCode.NONE, _NO_PRODUCER, -1, is_decided=True))
        return Reply(InitProducerIdResponse(ErrorCode.NONE, *granted))

    async def _add_partitions(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, AddPartitionsToTxnRequest)
        wanted = [TopicPartition(topic, partition) for topic, partition in message.partitions]
        try:
            for partition in wanted:
                if self._metadata.partition(partition) is None:
                    raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {partition}")
            await self._kafka().transactions.add_partitions(
                message.transactional_id, message.producer_id, message.producer_epoch, wanted
            )
        except ApiError as error:
            return Reply(AddPartitionsToTxnResponse(error.code, str(error)))
        return Reply(AddPartitionsToTxnResponse(ErrorCode.NONE))

    async def _end_group(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, EndTxnGroupRequest)
        try:
            return Reply(await self._kafka().transaction_groups.end(message))
        except ApiError as error:
            return Reply(EndTxnGroupResponse(error.code, message=str(error)))
