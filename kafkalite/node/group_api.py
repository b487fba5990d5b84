"""Consumer groups on the RPC listener: offsets of readers that have no membership (Spark queries), for lag tools to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.messages import Message, OffsetCommitRequest, OffsetCommitResponse
from kafkalite.rpc.server import Handler, Reply, Request


class GroupApi:
    """Handlers. Refusals are in the answers."""

    def __init__(self, kafka: Callable[[], KafkaSide], metadata: MetadataCache) -> None:
        self._kafka_side = kafka
        self._metadata = metadata

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {OffsetCommitRequest: self._commit}

    async def _commit(self, request: Request) -> Reply:
        message = request.message
        assert isinstance(message, OffsetCommitRequest)
        coordinator = BrokerId(-1)
        try:
            kafka = self._kafka_side()
            if not kafka.is_coordinating:
                raise api_error(ErrorCode.UNSUPPORTED_VERSION, "this node has no Kafka listener, so it keeps no groups")
            offsets = {TopicPartition(entry.topic, entry.partition): entry.offset for entry in message.offsets}
            for partition in sorted(offsets):
                if self._metadata.partition(partition) is None:
                    raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {partition}")
            node_id, _, _ = await kafka.groups.log.coordinator_of(message.group_id)
            coordinator = BrokerId(node_id)
            await kafka.groups.commit_alone(message.group_id, offsets)
        except ApiError as error:
            return Reply(OffsetCommitResponse(error.code, coordinator, str(error)))
        except CoordinatorError as error:
            return Reply(OffsetCommitResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, message=str(error)))
        return Reply(OffsetCommitResponse(ErrorCode.NONE, coordinator))
