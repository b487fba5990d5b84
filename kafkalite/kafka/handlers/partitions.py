"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, DescribeProducers: single partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    ElectLeadersRequest,
    ListReassignmentsRequest,
    PartitionResult,
    Reassignment,
    WantedReassignment,
)
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE, is_topic_name
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps, sliced
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire

_PREFERRED, _UNCLEAN = 0, 1


class PartitionHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def table(self) -> dict[str, Handler]:
        return {
            "ElectLeaders": self.elect_leaders,
            "AlterPartitionReassignments": self.alter_reassignments,
            "ListPartitionReassignments": self.list_reassignments,
            "DescribeProducers": self.describe_producers,
        }

    # --- ElectLeaders ---

    async def elect_leaders(self, request: Request, message: wire.ElectLeadersRequest) -> wire.ElectLeadersResponse:
        """Of what is asked for, everything is answered in its order, as often as it is named (Kafka)."""
        response = wire.ElectLeadersResponse
        kind = message.election_type if request.version >= 1 else _PREFERRED
        asked = message.topic_partitions
        if kind not in (_PREFERRED, _UNCLEAN):
            if asked is not None and not asked:
                return response()
            raise api_error(ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}")
        wanted = None if asked is None else tuple((topic.topic, index) for topic in asked for index in topic.partitions)
        answer = await self._services.elect_leaders(ElectLeadersRequest(wanted, kind == _UNCLEAN, message.timeout_ms))
        if answer.error:
            raise api_error(ErrorCode(answer.error), answer.message)
        if asked is None:
            asked = [
                message.TopicPartitions(topic, [each.partition for each in results])
                for topic, results in _by_topic(answer.partitions).items()
            ]
        return response(replica_election_results=await sliced(request, _elected(asked, answer.partitions)))

    # --- reassignments ---

    async def alter_reassignments(
        self, request: Request, message: wire.AlterPartitionReassignmentsRequest
    ) -> wire.AlterPartitionReassignmentsResponse:
        response = wire.AlterPartitionReassignmentsResponse
        wanted = tuple(
            WantedReassignment(
                topic.name,
                partition.partition_index,
                None if partition.replicas is None else tuple(map(BrokerId, partition.replicas)),
            )
            for topic in message.topics
            for partition in topic.partitions
        )
        may_change = message.allow_replication_factor_change
        answer = await self._services.alter_reassignments(
            AlterReassignmentsRequest(wanted, message.timeout_ms, allow_replication_factor_change=may_change)
        )
        return response(
            allow_replication_factor_change=may_change,
            error_code=answer.error,
            error_message=answer.message or None,
            responses=[
                response.ReassignableTopicResponse(
                    topic,
                    [
                        response.ReassignablePartitionResponse(each.partition, each.error, each.message or None)
                        for each in results
                    ],
                )
                for topic, results in _by_topic(answer.partitions).items()
            ],
        )

    async def list_reassignments(
        self, request: Request, message: wire.ListPartitionReassignmentsRequest
    ) -> wire.ListPartitionReassignmentsResponse:
        """The whole plan, and in `current_batch` the steps that are under way now (KIP-435)."""
        asked = message.topics
        wanted = (
            None
            if asked is None
            else tuple((topic.name, index) for topic in asked for index in topic.partition_indexes)
        )
        answer = await self._services.list_reassignments(ListReassignmentsRequest(wanted))
        if answer.error:
            raise api_error(ErrorCode(answer.error), answer.message)
        return await sliced(request, _listed(answer.reassignments))

    # --- DescribeProducers ---

    def describe_producers(
        self, request: Request, message: wire.DescribeProducersRequest
    ) -> Steps[wire.DescribeProducersResponse]:
        response = wire.DescribeProducersResponse
        topics = []
        # One that is named twice is described once: it may have ten thousand producers.
        named: set[tuple[str, int]] = set()
        for topic in message.topics:
            partitions = []
            for index in dict.fromkeys(topic.partition_indexes):
                if (topic.name, index) in named:
                    continue
                named.add((topic.name, index))
                if not is_topic_name(topic.name):
                    code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
                    partitions.append(response.PartitionResponse(index, code, TOPIC_NAME_RULE))
                elif topic.name in request.denied.topics:
                    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    partitions.append(response.PartitionResponse(index, code, "not authorized"))
                else:
                    partitions.append((yield from self._producers(TopicPartition(topic.name, index))))
            topics.append(response.TopicResponse(topic.name, partitions))
        return response(topics=topics)

    def _producers(self, partition: TopicPartition) -> Steps[wire.DescribeProducersResponse.PartitionResponse]:
        response = wire.DescribeProducersResponse
        try:
            active = self._services.partitions.active_producers(partition)
        except ApiError as error:
            return response.PartitionResponse(partition.partition, int(error.code), str(error))
        described = []
        for number, each in enumerate(active, 1):
            if not number % STEP:
                yield
            described.append(
                response.ProducerState(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp_ms,
                    each.coordinator_epoch,
                    each.transaction_start_offset,
                )
            )
        return response.PartitionResponse(partition.partition, active_producers=described)


def _by_topic(results: Sequence[PartitionResult]) -> dict[str, list[PartitionResult]]:
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return topics


def _elected(
    asked: Sequence[wire.ElectLeadersRequest.TopicPartitions], results: Sequence[PartitionResult]
) -> Steps[list[wire.ElectLeadersResponse.ReplicaElectionResult]]:
    response = wire.ElectLeadersResponse
    found: dict[tuple[str, int], wire.ElectLeadersResponse.PartitionResult] = {}
    for each in results:
        yield
        result = response.PartitionResult(each.partition, each.error, each.message or None)
        found[each.topic, each.partition] = result
    elected = []
    for topic in asked:
        yield
        of_topic = [found[topic.topic, index] for index in topic.partitions if (topic.topic, index) in found]
        elected.append(response.ReplicaElectionResult(topic.topic, of_topic))
    return elected


def _listed(moves: Sequence[Reassignment]) -> Steps[wire.ListPartitionReassignmentsResponse]:
    response = wire.ListPartitionReassignmentsResponse
    plan: dict[str, list[wire.ListPartitionReassignmentsResponse.OngoingPartitionReassignment]] = {}
    batch: dict[str, list[wire.ListPartitionReassignmentsResponse.CurrentBatchPartition]] = {}
    for move in moves:
        yield
        plan.setdefault(move.topic, []).append(_ongoing(move))
        if move.step or move.dropping:
            step = response.CurrentBatchPartition(move.partition, move.replicas, move.step or move.replicas)
            batch.setdefault(move.topic, []).append(step)
    return response(
        error_message=None,
        topics=[response.OngoingTopicReassignment(topic, of_topic) for topic, of_topic in plan.items()],
        current_batch=[response.CurrentBatchTopic(topic, steps) for topic, steps in batch.items()],
    )


def _ongoing(move: Reassignment) -> wire.ListPartitionReassignmentsResponse.OngoingPartitionReassignment:
    """As in Kafka: all present and future replicas, of which some are being added and some removed.

    Its tools take `replicas` without `removing` for the target, and without `adding` for what was before, so both are
    parts of `replicas`, also those whose turn has not come.
    """
    replicas = tuple(dict.fromkeys([*move.target, *move.replicas, *move.dropping]))
    return wire.ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
        move.partition,
        replicas,
        [replica for replica in move.target if replica not in move.origin],
        [replica for replica in replicas if replica not in move.target],
    )
