"""How each API refuses a request as a whole: the same error for everything that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire

Refusal = Callable[[Any, int, int, str], Any]


def _produce(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.ProduceResponse
    return response(
        responses=[
            response.TopicProduceResponse(
                topic.name,
                [
                    response.PartitionProduceResponse(partition.index, code, -1, error_message=text or None)
                    for partition in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def _fetch(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.FetchResponse
    return response(
        error_code=code,
        responses=[
            response.FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [response.PartitionData(partition.partition, code, -1, records=b"") for partition in topic.partitions],
            )
            for topic in message.topics
        ],
    )


def _list_offsets(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.ListOffsetsResponse
    return response(
        topics=[
            response.ListOffsetsTopicResponse(
                topic.name,
                [
                    response.ListOffsetsPartitionResponse(partition.partition_index, code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _offset_for_leader_epoch(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.OffsetForLeaderEpochResponse
    return response(
        topics=[
            response.OffsetForLeaderTopicResult(
                topic.topic,
                [response.EpochEndOffset(code, partition.partition) for partition in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _delete_records(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.DeleteRecordsResponse
    return response(
        topics=[
            response.DeleteRecordsTopicResult(
                topic.name,
                [
                    response.DeleteRecordsPartitionResult(partition.partition_index, -1, code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _metadata(message: Any, version: int, code: int, text: str) -> Any:
    topics = message.topics or ()
    return wire.MetadataResponse(
        topics=[
            wire.MetadataResponse.MetadataResponseTopic(
                error_code=code, name=topic.name if version >= 12 else topic.name or "", topic_id=topic.topic_id
            )
            for topic in topics
        ]
    )


def _create_topics(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.CreateTopicsResponse.CreatableTopicResult
    return wire.CreateTopicsResponse(
        topics=[result(name=topic.name, error_code=code, error_message=text or None) for topic in message.topics]
    )


def _delete_topics(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.DeleteTopicsResponse.DeletableTopicResult
    named = [result(name=name, error_code=code, error_message=text or None) for name in message.topic_names]
    return wire.DeleteTopicsResponse(
        responses=named
        + [
            result(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text or None)
            for topic in message.topics
        ]
    )


def _create_partitions(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.CreatePartitionsResponse.CreatePartitionsTopicResult
    return wire.CreatePartitionsResponse(
        results=[result(name=topic.name, error_code=code, error_message=text or None) for topic in message.topics]
    )


def _describe_configs(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.DescribeConfigsResponse.DescribeConfigsResult
    return wire.DescribeConfigsResponse(
        results=[
            result(code, text or None, resource.resource_type, resource.resource_name) for resource in message.resources
        ]
    )


def _alter_configs(message: Any, version: int, code: int, text: str) -> Any:
    kind = type(message).__name__.removesuffix("Request")
    response = getattr(wire, kind + "Response")
    result = response.AlterConfigsResourceResponse
    return response(
        responses=[
            result(code, text or None, resource.resource_type, resource.resource_name) for resource in message.resources
        ]
    )


def _offset_commit(message: Any, version: int, code: int, text: str) -> Any:
    kind = type(message).__name__.removesuffix("Request")
    response = getattr(wire, kind + "Response")
    topic_class = getattr(response, kind + "ResponseTopic")
    partition_class = getattr(response, kind + "ResponsePartition")
    return response(
        topics=[
            topic_class(
                topic.name, [partition_class(partition.partition_index, code) for partition in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def _offset_fetch(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.OffsetFetchResponse
    if version >= 8:
        return response(
            groups=[
                response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in message.groups
            ]
        )
    return response(
        error_code=code,
        topics=[
            response.OffsetFetchResponseTopic(
                topic.name,
                [response.OffsetFetchResponsePartition(index, -1, -1, "", code) for index in topic.partition_indexes],
            )
            for topic in message.topics or ()
        ],
    )


def _find_coordinator(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.FindCoordinatorResponse
    if version >= 4:
        return response(
            coordinators=[response.Coordinator(key, -1, "", -1, code, text or None) for key in message.coordinator_keys]
        )
    return response(error_code=code, error_message=text or None, node_id=-1, host="", port=-1)


def _describe_groups(message: Any, version: int, code: int, text: str) -> Any:
    group = wire.DescribeGroupsResponse.DescribedGroup
    return wire.DescribeGroupsResponse(
        groups=[group(error_code=code, group_id=group_id) for group_id in message.groups]
    )


def _delete_groups(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.DeleteGroupsResponse.DeletableGroupResult
    return wire.DeleteGroupsResponse(results=[result(group_id, code) for group_id in message.groups_names])


def _add_partitions(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.AddPartitionsToTxnResponse

    def topics(asked: Any) -> list[Any]:
        return [
            response.AddPartitionsToTxnTopicResult(
                topic.name,
                [response.AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions],
            )
            for topic in asked
        ]

    if version >= 4:
        return response(
            error_code=code,
            results_by_transaction=[
                response.AddPartitionsToTxnResult(txn.transactional_id, topics(txn.topics))
                for txn in message.transactions
            ],
        )
    return response(results_by_topic_v3_and_below=topics(message.v3_and_below_topics))


def _write_markers(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.WriteTxnMarkersResponse
    return response(
        markers=[
            response.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    response.WritableTxnMarkerTopicResult(
                        topic.name,
                        [response.WritableTxnMarkerPartitionResult(index, code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


def _describe_producers(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.DescribeProducersResponse
    return response(
        topics=[
            response.TopicResponse(
                topic.name,
                [response.PartitionResponse(index, code, text or None) for index in topic.partition_indexes],
            )
            for topic in message.topics
        ]
    )


def _describe_transactions(message: Any, version: int, code: int, text: str) -> Any:
    state = wire.DescribeTransactionsResponse.TransactionState
    return wire.DescribeTransactionsResponse(
        transaction_states=[state(code, transactional_id) for transactional_id in message.transactional_ids]
    )


def _sasl_handshake(message: Any, version: int, code: int, text: str) -> Any:
    return wire.SaslHandshakeResponse(error_code=code, mechanisms=())


def _alter_users(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    names = dict.fromkeys(entry.name for entry in (*message.deletions, *message.upsertions))
    return wire.AlterUserScramCredentialsResponse(results=[result(name, code, text or None) for name in names])


def _create_acls(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.CreateAclsResponse.AclCreationResult
    return wire.CreateAclsResponse(results=[result(code, text or None) for _ in message.creations])


def _delete_acls(message: Any, version: int, code: int, text: str) -> Any:
    result = wire.DeleteAclsResponse.DeleteAclsFilterResult
    return wire.DeleteAclsResponse(filter_results=[result(code, text or None) for _ in message.filters])


def _describe_client_quotas(message: Any, version: int, code: int, text: str) -> Any:
    return wire.DescribeClientQuotasResponse(error_code=code, error_message=text or None, entries=None)


def _alter_client_quotas(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.AlterClientQuotasResponse
    return response(
        entries=[
            response.EntryData(
                code, text or None, [response.EntityData(part.entity_type, part.entity_name) for part in entry.entity]
            )
            for entry in message.entries
        ]
    )


def _elect_leaders(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.ElectLeadersResponse
    if version >= 1:
        return response(error_code=code)
    return response(
        replica_election_results=[
            response.ReplicaElectionResult(
                topic.topic, [response.PartitionResult(index, code, text or None) for index in topic.partitions]
            )
            for topic in message.topic_partitions or ()
        ]
    )


def _alter_replica_log_dirs(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.AlterReplicaLogDirsResponse
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(
                topic.name, [response.AlterReplicaLogDirPartitionResult(index, code) for index in topic.partitions]
            )
            for directory in message.dirs
            for topic in directory.topics
        ]
    )


def _describe_topic_partitions(message: Any, version: int, code: int, text: str) -> Any:
    response = wire.DescribeTopicPartitionsResponse
    return response(
        topics=[response.DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in message.topics]
    )


_BY_API: dict[str, Refusal] = {
    "Produce": _produce, "Fetch": _fetch, "ListOffsets": _list_offsets, "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "DeleteRecords": _delete_records, "Metadata": _metadata, "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics, "CreatePartitions": _create_partitions, "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs, "IncrementalAlterConfigs": _alter_configs, "OffsetCommit": _offset_commit,
    "TxnOffsetCommit": _offset_commit, "OffsetFetch": _offset_fetch, "FindCoordinator": _find_coordinator,
    "DescribeGroups": _describe_groups, "DeleteGroups": _delete_groups, "AddPartitionsToTxn": _add_partitions,
    "WriteTxnMarkers": _write_markers, "DescribeProducers": _describe_producers,
    "DescribeTransactions": _describe_transactions, "CreateAcls": _create_acls, "DeleteAcls": _delete_acls,
    "DescribeClientQuotas": _describe_client_quotas, "AlterClientQuotas": _alter_client_quotas,
    "SaslHandshake": _sasl_handshake, "AlterUserScramCredentials": _alter_users, "ElectLeaders": _elect_leaders,
    "AlterReplicaLogDirs": _alter_replica_log_dirs, "DescribeTopicPartitions": _describe_topic_partitions,
}  # fmt: skip


def refuse(api: str, message: Any, version: int, code: ErrorCode, text: str) -> Any:
    """The answer of `api` that says `code` to all of `message`."""
    shape = _BY_API.get(api)
    if shape is not None:
        return shape(message, version, int(code), text)
    # What is left has its error code on top, and everything else has defaults.
    answer = getattr(wire, api + "Response")(error_code=int(code))
    if hasattr(answer, "error_message"):
        answer.error_message = text or None
    return answer
