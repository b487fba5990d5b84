"""Kafka's requests as this client asks them, and its responses as plain values. Pure.

Fields that only some versions have are all filled: a broker of any version finds its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkalite.client.results import LiveBroker, Metadata
from kafkalite.errors import ErrorCode, error_code
from kafkalite.extension.messages.topics import NewTopic, TopicResult
from kafkalite.model import (
    NO_LEADER_EPOCH,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
    numbers_by_topic,
)
from kafkalite.partition_values import (
    AbortedTransaction,
    FetchedPartition,
    ListedOffset,
    PartitionMetadata,
    ProducedPartition,
    TopicMetadata,
)
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire

GROUP, TRANSACTION = 0, 1


# --- metadata ------------------------------------------------------------------------------------


def metadata_request(topics: Iterable[str] | None, *, allow_auto_create: bool = False) -> Any:
    """None: all topics."""
    request = wire.MetadataRequest
    wanted = None if topics is None else [request.MetadataRequestTopic(name=name) for name in sorted(set(topics))]
    return request(topics=wanted, allow_auto_topic_creation=allow_auto_create)


def metadata_of(response: Any) -> Metadata:
    return Metadata(
        response.cluster_id or "",
        BrokerId(response.controller_id),
        tuple(LiveBroker(BrokerId(b.node_id), b.host, b.port, b.rack) for b in response.brokers),
        tuple(_topic(topic) for topic in response.topics),
    )


def _topic(topic: Any) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            each.partition_index,
            each.error_code,
            BrokerId(each.leader_id),
            LeaderEpoch(each.leader_epoch),
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in topic.partitions
    )
    return TopicMetadata(topic.name or "", topic.error_code, from_wire(topic.topic_id), partitions)


def describe_partitions_request(topics: Iterable[str], cursor: Any) -> Any:
    """From the response's cursor on."""
    request = wire.DescribeTopicPartitionsRequest
    where = None if cursor is None else request.Cursor(cursor.topic_name, cursor.partition_index)
    return request([request.TopicRequest(name) for name in sorted(topics)], cursor=where)


#: Fields of a PartitionMetadata.
_More = dict[TopicPartition, dict[str, Any]]


def take_eligible(response: Any, more: _More) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            fields = more.setdefault(TopicPartition(topic.name or "", each.partition_index), {})
            fields["elr"] = tuple(each.eligible_leader_replicas or ())
            fields["last_known_elr"] = tuple(each.last_known_elr or ())


def take_adding(response: Any, more: _More) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            fields = more.setdefault(TopicPartition(topic.name, each.partition_index), {})
            fields["adding"] = tuple(each.adding_replicas)


def completed(found: Metadata, more: _More) -> Metadata:
    topics = tuple(
        replace(
            topic,
            partitions=tuple(
                replace(each, **more.get(TopicPartition(topic.topic, each.partition), {})) for each in topic.partitions
            ),
        )
        for topic in found.topics
    )
    return replace(found, topics=topics)


# --- offsets and records -------------------------------------------------------------------------


def list_offsets_request(
    wanted: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, LeaderEpoch], isolation: int, timeout_ms: int
) -> Any:
    """`wanted`: timestamps (ms since 1970, or a constant such as LATEST_TIMESTAMP)."""
    request = wire.ListOffsetsRequest
    topics = [
        request.ListOffsetsTopic(
            name,
            [
                request.ListOffsetsPartition(
                    number, epochs.get(key := TopicPartition(name, number), NO_LEADER_EPOCH), wanted[key], 1
                )
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(wanted).items()
    ]
    return request(-1, isolation, topics, timeout_ms)


def listed_offsets(response: Any) -> Iterator[ListedOffset]:
    for topic in response.topics:
        for each in topic.partitions:
            yield ListedOffset(
                topic.name,
                each.partition_index,
                each.error_code,
                each.timestamp,
                Offset(each.offset),
                LeaderEpoch(each.leader_epoch),
            )


def fetch_request(
    positions: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, LeaderEpoch],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation: int,
) -> Any:
    """A fetch without a session: every partition each time."""
    request = wire.FetchRequest
    topics = [
        request.FetchTopic(
            topic=name,
            partitions=[
                request.FetchPartition(
                    partition=number,
                    current_leader_epoch=epochs.get(key := TopicPartition(name, number), NO_LEADER_EPOCH),
                    fetch_offset=positions[key],
                    partition_max_bytes=partition_max_bytes,
                )
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(positions).items()
    ]
    return request(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, isolation_level=isolation, topics=topics)


def fetched(response: Any) -> Iterator[tuple[FetchedPartition, memoryview]]:
    """Each partition, and its records as a view of what was received."""
    for topic in response.responses:
        for each in topic.partitions:
            records = each.records if each.records is not None else memoryview(b"")
            aborted = tuple(
                AbortedTransaction(ProducerId(one.producer_id), Offset(one.first_offset))
                for one in each.aborted_transactions or ()
            )
            head = FetchedPartition(
                topic.topic,
                each.partition_index,
                response.error_code or each.error_code,
                Offset(each.high_watermark),
                Offset(each.last_stable_offset),
                Offset(each.log_start_offset),
                len(records),
                aborted,
                BrokerId(each.preferred_read_replica),
            )
            yield head, records


def epoch_ends_request(
    epochs: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, LeaderEpoch]
) -> Any:
    """Where `epochs` end in the leaders' logs."""
    request = wire.OffsetForLeaderEpochRequest
    topics = [
        request.OffsetForLeaderTopic(
            name,
            [
                request.OffsetForLeaderPartition(
                    number, leader_epochs.get(key := TopicPartition(name, number), NO_LEADER_EPOCH), epochs[key]
                )
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(epochs).items()
    ]
    return request(-1, topics)


def epoch_ends(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, int]]:
    """(partition, error, offset behind the epoch's last record); -1: nothing of the epoch or of an earlier one is known."""
    for topic in response.topics:
        for each in topic.partitions:
            end = each.end_offset if each.leader_epoch >= 0 else -1
            yield TopicPartition(topic.topic, each.partition), error_code(each.error_code), end


def produce_request(
    batches: Mapping[TopicPartition, Buffer], acks: int, timeout_ms: int, transactional_id: str | None = None
) -> Any:
    """One record batch for each partition; they are not copied."""
    request = wire.ProduceRequest
    data = [
        request.TopicProduceData(
            name,
            partition_data=[
                request.PartitionProduceData(number, batches[TopicPartition(name, number)]) for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(batches).items()
    ]
    return request(transactional_id, acks, timeout_ms, data)


def produced(response: Any) -> Iterator[ProducedPartition]:
    for topic in response.responses:
        for each in topic.partition_responses:
            yield ProducedPartition(
                topic.name,
                each.index,
                each.error_code,
                Offset(each.base_offset),
                each.log_append_time_ms,
                Offset(each.log_start_offset),
                each.error_message or "",
            )


# --- topics --------------------------------------------------------------------------------------


def create_topics_request(topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool) -> Any:
    request = wire.CreateTopicsRequest
    return request(
        [
            request.CreatableTopic(
                topic.topic,
                -1 if topic.assignment else topic.partitions,
                -1 if topic.assignment else topic.replication_factor,
                [
                    request.CreatableReplicaAssignment(number, list(replicas))
                    for number, replicas in sorted((topic.assignment or {}).items())
                ],
                [request.CreatableTopicConfig(key, value) for key, value in sorted((topic.configs or {}).items())],
            )
            for topic in topics
        ],
        timeout_ms,
        validate_only,
    )


def delete_topics_request(topics: Sequence[str], timeout_ms: int) -> Any:
    request = wire.DeleteTopicsRequest
    return request([request.DeleteTopicState(name) for name in topics], list(topics), timeout_ms)


def created(response: Any) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(
            each.name,
            each.error_code,
            each.error_message or "",
            from_wire(each.topic_id),
            each.num_partitions,
            each.replication_factor,
        )
        for each in response.topics
    )


def deleted(response: Any) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(each.name or "", each.error_code, each.error_message or "", from_wire(each.topic_id))
        for each in response.responses
    )


# --- coordinators --------------------------------------------------------------------------------


def find_coordinator_request(key: str, kind: int) -> Any:
    """`kind`: GROUP or TRANSACTION."""
    return wire.FindCoordinatorRequest(key, kind, [key])


def coordinator_of(response: Any) -> tuple[int, str, LiveBroker]:
    """(error, message, the node)."""
    found = response.coordinators[0] if response.coordinators else response
    return found.error_code, found.error_message or "", LiveBroker(BrokerId(found.node_id), found.host, found.port)


def commit_offsets_request(
    group: str, offsets: Mapping[TopicPartition, int], *, member_id: str = "", generation: int = -1
) -> Any:
    """As a member of a generation, or with -1 of a group without members."""
    request = wire.OffsetCommitRequest
    topics = [
        request.OffsetCommitRequestTopic(
            name,
            partitions=[
                request.OffsetCommitRequestPartition(
                    number, offsets[TopicPartition(name, number)], committed_metadata=""
                )
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(sorted(offsets)).items()
    ]
    return request(group, generation, member_id, topics=topics)


def fetch_offsets_request(group: str) -> Any:
    """All offsets of a group."""
    request = wire.OffsetFetchRequest
    return request(group, None, [request.OffsetFetchRequestGroup(group, topics=None)])


def fetched_error(response: Any) -> int:
    return int(response.groups[0].error_code if response.groups else response.error_code)


def fetched_topics(response: Any) -> Any:
    return response.groups[0].topics if response.groups else response.topics


def first_commit_error(response: Any) -> tuple[int, str]:
    """Of an OffsetCommit or OffsetDelete: (error, where)."""
    if error := getattr(response, "error_code", 0):
        return error, ""
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                return each.error_code, f"{topic.name}-{each.partition_index}: {error_code(each.error_code).name}"
    return 0, ""


def add_partitions_request(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
) -> Any:
    request = wire.AddPartitionsToTxnRequest
    topics = [
        request.AddPartitionsToTxnTopic(name, numbers) for name, numbers in numbers_by_topic(sorted(partitions)).items()
    ]
    return request(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=topics,
    )


def first_added_error(response: Any) -> tuple[int, str]:
    """(error, where) of an AddPartitionsToTxn: the cause, not that others were left out because of it."""
    found = (0, "")
    for topic in response.results_by_topic_v3_and_below:
        for each in topic.results_by_partition:
            number = each.partition_error_code
            if number and found[0] in (0, ErrorCode.OPERATION_NOT_ATTEMPTED):
                found = number, f"{topic.name}-{each.partition_index}: {error_code(number).name}"
    return found
