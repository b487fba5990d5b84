"""The APIs that are served: their versions, their handlers, and how each refuses a whole request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.kafka.refusals import refuse
from kafkalite.kafka.request import Handler, ManyHandler, OfferedApi, Recall
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.protocol.schema import schemas

#: API -> (lowest, highest) version advertised. What is known below or above is refused politely.
OFFERED = {
    "Produce": (0, 13), "Fetch": (4, 18), "ListOffsets": (0, 11), "Metadata": (0, 13), "OffsetCommit": (0, 10),
    "OffsetFetch": (0, 10), "FindCoordinator": (0, 6), "JoinGroup": (0, 9), "Heartbeat": (0, 4), "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5), "DescribeGroups": (0, 6), "ListGroups": (0, 5), "ApiVersions": (0, 5), "CreateTopics": (0, 7),
    "DeleteTopics": (0, 6), "DeleteRecords": (0, 2), "InitProducerId": (0, 5), "OffsetForLeaderEpoch": (0, 4),
    "AddPartitionsToTxn": (0, 5), "AddOffsetsToTxn": (0, 4), "EndTxn": (0, 5), "WriteTxnMarkers": (0, 2),
    "TxnOffsetCommit": (0, 6), "DescribeConfigs": (0, 4), "AlterConfigs": (0, 2), "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 3), "IncrementalAlterConfigs": (0, 1), "OffsetDelete": (0, 0), "DescribeCluster": (0, 2), "DescribeLogDirs": (0, 5),
    "DescribeAcls": (0, 3), "CreateAcls": (0, 3), "DeleteAcls": (0, 3), "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1), "DescribeProducers": (0, 0), "DescribeTransactions": (0, 0), "ListTransactions": (0, 2),
    "SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2), "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0), "AlterReplicaLogDirs": (0, 2), "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0), "DescribeTopicPartitions": (0, 0),
    "UpdateFeatures": (0, 2), "UnregisterBroker": (0, 0), "ListConfigResources": (0, 1),
    "ConsumerGroupHeartbeat": (0, 1), "ConsumerGroupDescribe": (0, 1),
    "StreamsGroupHeartbeat": (0, 1), "StreamsGroupDescribe": (0, 1), "StreamsGroupTopologyDescriptionUpdate": (0, 0),
    "ShareGroupHeartbeat": (1, 1), "ShareGroupDescribe": (1, 1), "DescribeShareGroupOffsets": (0, 1),
    "AlterShareGroupOffsets": (0, 0), "DeleteShareGroupOffsets": (0, 0),
    "InitializeShareGroupState": (0, 0), "ReadShareGroupState": (0, 0), "WriteShareGroupState": (0, 1),
    "DeleteShareGroupState": (0, 0), "ReadShareGroupStateSummary": (0, 1),
    "ShareFetch": (1, 2), "ShareAcknowledge": (1, 2),
    "GetTelemetrySubscriptions": (0, 0), "PushTelemetry": (0, 0),
    "CreateDelegationToken": (1, 3), "RenewDelegationToken": (1, 2), "ExpireDelegationToken": (1, 2),
    "DescribeDelegationToken": (1, 3),
    "Extension": (0, 0),
}  # fmt: skip

#: Versions that are advertised and refused: librdkafka turns compression off unless Produce begins at 0
#: (KAFKA-18659), yet they carry message formats before version 2.
_REFUSED = {"Produce": range(3)}

#: Their answers say offsets, and a client takes the last one for the newest: an end offset from before the records of a fetch in front of
#: it makes a consumer's lag negative, and Kafka Streams then waits for the partition's next record.
_IN_TURN = frozenset({"ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch"})


def is_served(name: str, version: int) -> bool:
    """Whether an advertised version of the API `name` is served (rather than refused)."""
    return version not in _REFUSED.get(name, ())


def refusal(api: OfferedApi, message: Any, version: int, code: ErrorCode, text: str) -> Any:
    """The answer that says `code` for everything the request asks for."""
    return refuse(api.name, message, version, code, text)


def make_apis(
    handlers: Mapping[str, Handler],
    many: Mapping[str, ManyHandler],
    recall: Mapping[str, Recall],
    in_place: Mapping[str, int],
) -> dict[int, OfferedApi]:
    """The table of APIs by key for those that have a handler. `many`, `recall`, `in_place`: see `OfferedApi`."""
    table: dict[int, OfferedApi] = {}
    for name, handler in handlers.items():
        request = schemas()[name + "Request"]
        low, high = OFFERED[name]
        table[request.api_key] = OfferedApi(
            key=request.api_key,
            name=name,
            versions=range(low, high + 1),
            served_versions=frozenset(version for version in range(low, high + 1) if is_served(name, version)),
            known_versions=request.versions,
            flexible_requests=request.flexible,
            # KIP-511: a client that does not know the broker yet must be able to read this one's header.
            flexible_responses=range(0) if name == "ApiVersions" else schemas()[name + "Response"].flexible,
            handler=handler,
            many=many.get(name),
            recall=recall.get(name),
            in_place=in_place.get(name, ELEMENTS_AT_ONCE),
            is_in_turn=name in _IN_TURN,
        )
    return table
