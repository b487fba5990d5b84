"""What each request needs: one table for the Kafka APIs, one for RPC, one for pages. Pure. (Extension: its own table.)

A request without a row is refused when the cluster is secure, and fails a test before that. Source: Kafka 3.9's
KafkaApis; for RPC messages without a counterpart in Kafka, the operation of the API that does the nearest thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.acl import Operation, ResourceType

_ALL = range(2**15)


class Scope(Enum):
    """What a refusal covers: the whole request, each thing that it names, or silently what an answer would list."""

    WHOLE = "refused as a whole"
    EACH = "refused one by one"
    HIDE = "left out"
    OTHERS = "refused for other users' things; a user needs no right to its own"


@dataclass(frozen=True, slots=True)
class Need:
    """`operation` on the resources of this type that a request names.

    or_cluster: this operation on the cluster does as well. or_any: so does this one on any one topic. versions: those
    of the API's requests that need it.
    """

    resource_type: ResourceType
    operation: Operation
    scope: Scope = Scope.WHOLE
    or_cluster: Operation | None = None
    or_any_topic: Operation | None = None
    versions: range = _ALL


Row = tuple[Need, ...]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_EACH, _HIDE = Scope.EACH, Scope.HIDE
_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

#: Anybody may: it shows or changes nothing that an ACL could be about.
FREE: Row = ()
_DESCRIBE_CLUSTER: Row = (Need(_CLUSTER, _DESCRIBE),)
_ALTER_CLUSTER: Row = (Need(_CLUSTER, _ALTER),)
_READ_GROUP: Row = (Need(_GROUP, _READ),)
#: Of resources of several types: of a topic or group its own operation, of anything else the cluster's.
_CONFIGS_DESCRIBED: Row = tuple(Need(each, _DESCRIBE_CONFIGS, _EACH) for each in (_TOPIC, _GROUP, _CLUSTER))
_CONFIGS_ALTERED: Row = tuple(Need(each, _ALTER_CONFIGS, _EACH) for each in (_TOPIC, _GROUP, _CLUSTER))
_NODES_ONLY: Row = (Need(_CLUSTER, Operation.CLUSTER_ACTION),)
_IDEMPOTENT = Need(_CLUSTER, Operation.IDEMPOTENT_WRITE, or_any_topic=_WRITE)

#: API -> what it needs. APIs that are not offered yet have their rows, so that offering one does not open it.
KAFKA: Mapping[str, Row] = {
    "Produce": (Need(_TRANSACTION, _WRITE), Need(_TOPIC, _WRITE, _EACH)),
    "Fetch": (Need(_TOPIC, _READ, _EACH),),
    "ListOffsets": (Need(_TOPIC, _DESCRIBE, _EACH),),
    "Metadata": (Need(_TOPIC, _DESCRIBE, _EACH), Need(_TOPIC, _CREATE, _EACH, or_cluster=_CREATE)),
    "OffsetCommit": (*_READ_GROUP, Need(_TOPIC, _READ, _EACH)),
    "OffsetFetch": (
        Need(_GROUP, _DESCRIBE, versions=range(8)),
        Need(_GROUP, _DESCRIBE, _EACH, versions=range(8, 2**15)),
        Need(_TOPIC, _DESCRIBE, _EACH),
    ),
    "FindCoordinator": (Need(_GROUP, _DESCRIBE, _EACH), Need(_TRANSACTION, _DESCRIBE, _EACH)),
    "JoinGroup": _READ_GROUP,
    "Heartbeat": _READ_GROUP,
    "LeaveGroup": _READ_GROUP,
    "SyncGroup": _READ_GROUP,
    "DescribeGroups": (Need(_GROUP, _DESCRIBE, _EACH),),
    "ConsumerGroupHeartbeat": (*_READ_GROUP, Need(_TOPIC, _DESCRIBE, _EACH)),
    "ConsumerGroupDescribe": (Need(_GROUP, _DESCRIBE, _EACH), Need(_TOPIC, _DESCRIBE, _HIDE)),
    "StreamsGroupHeartbeat": (*_READ_GROUP, Need(_TOPIC, _DESCRIBE, _EACH)),
    "StreamsGroupDescribe": (Need(_GROUP, _DESCRIBE, _EACH), Need(_TOPIC, _DESCRIBE, _HIDE)),
    "StreamsGroupTopologyDescriptionUpdate": _READ_GROUP,
    "ShareGroupHeartbeat": (*_READ_GROUP, Need(_TOPIC, _DESCRIBE, _EACH)),
    "ShareGroupDescribe": (Need(_GROUP, _DESCRIBE, _EACH), Need(_TOPIC, _DESCRIBE, _HIDE)),
    "DescribeShareGroupOffsets": (Need(_GROUP, _DESCRIBE, _EACH), Need(_TOPIC, _DESCRIBE, _EACH)),
    "AlterShareGroupOffsets": (*_READ_GROUP, Need(_TOPIC, _READ, _EACH)),
    "DeleteShareGroupOffsets": (Need(_GROUP, _DELETE), Need(_TOPIC, _READ, _EACH)),
    **dict.fromkeys(
        (
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
        ),
        _NODES_ONLY,
    ),
    "ShareFetch": (*_READ_GROUP, Need(_TOPIC, _READ, _EACH)),
    "ShareAcknowledge": (*_READ_GROUP, Need(_TOPIC, _READ, _EACH)),
    "ListGroups": (Need(_GROUP, _DESCRIBE, _HIDE, or_cluster=_DESCRIBE),),
    "SaslHandshake": FREE,
    "ApiVersions": FREE,
    "CreateTopics": (Need(_TOPIC, _CREATE, _EACH, or_cluster=_CREATE),),
    "DeleteTopics": (Need(_TOPIC, _DELETE, _EACH, or_cluster=_DELETE),),
    "DeleteRecords": (Need(_TOPIC, _DELETE, _EACH),),
    "InitProducerId": (Need(_TRANSACTION, _WRITE), _IDEMPOTENT),
    "OffsetForLeaderEpoch": (Need(_TOPIC, _DESCRIBE, _EACH, or_cluster=Operation.CLUSTER_ACTION),),
    "AddPartitionsToTxn": (
        Need(_TRANSACTION, _WRITE, versions=range(4)),
        Need(_TOPIC, _WRITE, _EACH, versions=range(4)),
        Need(_CLUSTER, Operation.CLUSTER_ACTION, versions=range(4, 2**15)),
    ),
    "AddOffsetsToTxn": (Need(_TRANSACTION, _WRITE), *_READ_GROUP),
    "EndTxn": (Need(_TRANSACTION, _WRITE),),
    "WriteTxnMarkers": (Need(_CLUSTER, Operation.CLUSTER_ACTION, or_cluster=_ALTER),),
    "TxnOffsetCommit": (Need(_TRANSACTION, _WRITE), *_READ_GROUP, Need(_TOPIC, _READ, _EACH)),
    "DescribeAcls": _DESCRIBE_CLUSTER,
    "CreateAcls": _ALTER_CLUSTER,
    "DeleteAcls": _ALTER_CLUSTER,
    "DescribeConfigs": _CONFIGS_DESCRIBED,
    "AlterConfigs": _CONFIGS_ALTERED,
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "SaslAuthenticate": FREE,
    "CreatePartitions": (Need(_TOPIC, _ALTER, _EACH),),
    "DeleteGroups": (Need(_GROUP, _DELETE, _EACH),),
    "ElectLeaders": _ALTER_CLUSTER,
    "IncrementalAlterConfigs": _CONFIGS_ALTERED,
    "AlterPartitionReassignments": _ALTER_CLUSTER,
    "ListPartitionReassignments": _DESCRIBE_CLUSTER,
    "OffsetDelete": (Need(_GROUP, _DELETE), Need(_TOPIC, _READ, _EACH)),
    "DescribeClientQuotas": (Need(_CLUSTER, _DESCRIBE_CONFIGS),),
    "AlterClientQuotas": (Need(_CLUSTER, _ALTER_CONFIGS),),
    "DescribeUserScramCredentials": _DESCRIBE_CLUSTER,
    "AlterUserScramCredentials": _ALTER_CLUSTER,
    "DescribeCluster": FREE,
    "DescribeProducers": (Need(_TOPIC, _READ, _EACH),),
    "DescribeTransactions": (Need(_TRANSACTION, _DESCRIBE, _EACH), Need(_TOPIC, _DESCRIBE, _HIDE)),
    "ListTransactions": (Need(_TRANSACTION, _DESCRIBE, _HIDE),),
    "DescribeTopicPartitions": (Need(_TOPIC, _DESCRIBE, _EACH),),
    "UpdateFeatures": _ALTER_CLUSTER,
    "UnregisterBroker": _ALTER_CLUSTER,
    # A client learns which metrics of its own are asked for, and sends them.
    "GetTelemetrySubscriptions": FREE,
    "PushTelemetry": FREE,
    "ListConfigResources": (Need(_CLUSTER, _DESCRIBE_CONFIGS),),
    # One's own tokens need no right; a token's owner and its renewers may renew and end it, by its HMAC.
    "CreateDelegationToken": (Need(ResourceType.USER, Operation.CREATE_TOKENS, Scope.OTHERS),),
    "RenewDelegationToken": FREE,
    "ExpireDelegationToken": FREE,
    "DescribeDelegationToken": (
        Need(ResourceType.DELEGATION_TOKEN, _DESCRIBE, _HIDE),
        Need(ResourceType.USER, Operation.DESCRIBE_TOKENS, _HIDE),
    ),
    # Each of its requests has its own row: kafkalite.extension.apis.
    "Extension": FREE,
}

#: RPC request -> what it needs: nodes alone speak RPC.
RPC: Mapping[str, Row] = {
    "HeartbeatRequest": FREE,
    **dict.fromkeys(
        (
            "LeaderAndIsrRequest",
            "LogEndsRequest",
            "LoadRequest",
            "CatchUpRequest",
            "StopReplicaRequest",
            "UpdateMetadataRequest",
            "IsrChangedRequest",
            "ControlledShutdownRequest",
            "ReplicaFetchRequest",
            "ReplicaFetchWake",
            "CommittedOffsetsRequest",
            # For a user, with the user's rights: kafkalite.kafka.forwarded.
            "ForwardRequest",
            # Of all nodes, for the status page of one.
            "DescribeDisksRequest",
            "DescribeGroupLagRequest",
            "DescribeReplicasRequest",
            "DescribeTrafficRequest",
            "HealthRequest",
            "HistoryRequest",
            # From the node that a client of the schema registry has asked.
            "SchemaRegistryRequest",
        ),
        _NODES_ONLY,
    ),
}

#: Trees of the schema registry's REST API. Each of its operations needs the rights of the topics that it is about
#: (kafkalite.schemas.rest); here only a login, where that is asked for.
SCHEMAS = frozenset({"/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts"})
#: Pages of the console: for every user who has logged in, where a login is asked for. Their answers need the rights of the Kafka
#: APIs and extension requests that they stand for (kafkalite.http.console.rights).
CONSOLE = frozenset(
    {
        "/console",
        "/api/console/me",
        "/api/console/topics",
        "/api/console/topic",
        "/api/console/messages",
        "/api/console/groups",
        "/api/console/group",
        "/api/console/transactions",
        "/api/console/security",
        "/api/console/rates",
        "/api/console/do",
    }
)

#: Page of the HTTP listener -> what it needs: as its counterparts on RPC, for all of them show names of topics. Probes of
#: process supervisors and load balancers log in nowhere: they get answers that reveal nothing of the cluster.
HTTP: Mapping[str, Row] = {
    "/": _DESCRIBE_CLUSTER,
    "/api/status": _DESCRIBE_CLUSTER,
    "/api/why": _DESCRIBE_CLUSTER,
    "/metrics": _DESCRIBE_CLUSTER,
    "/healthz": (Need(_CLUSTER, _DESCRIBE, _HIDE),),
    "/readyz": FREE,
    **dict.fromkeys(sorted(SCHEMAS), FREE),
    **dict.fromkeys(sorted(CONSOLE), FREE),
}

REFUSALS: Mapping[ResourceType, ErrorCode] = {
    _TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
