"""A request of each API in each version, naming one resource of each type, and the code with which each type is refused."""

from __future__ import annotations

from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.protocol import topic_ids, wire
from kafkalite.security.acl import CLUSTER_NAME, ResourceType

from .conftest import Broker, batch, produce
from .coordinator_requests import commit, join

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
USER = ResourceType.USER
#: What the requests below name.
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, TRANSACTION: "x", USER: "User:bob"}
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
REFUSALS = frozenset(CODES.values())


def _topics(request: Any, topic: str, partition: str, *values: Any, **more: Any) -> Any:
    parts = [getattr(request, partition)(0, *values)]
    return request(topics=[getattr(request, topic)("t", parts)], **more)


def request_of(api: str, version: int, broker: Broker) -> Any:
    """A request of that API which names the resources in NAMES."""
    request = getattr(wire, api + "Request")
    topic_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    match api:
        case "Produce":
            message = produce("t", (0, batch(b"v")), acks=1)
            message.topic_data[0].topic_id = topic_id
            return message
        case "Fetch":
            part = request.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
            topic = request.FetchTopic("t", topic_id if version >= 13 else bytes(16), [part])
            return request(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])
        case "ListOffsets":
            part = request.ListOffsetsPartition(0, -1, -1)
            return request(-1, topics=[request.ListOffsetsTopic("t", [part])])
        case "OffsetForLeaderEpoch":
            return _topics(request, "OffsetForLeaderTopic", "OffsetForLeaderPartition", -1, 0)
        case "DeleteRecords":
            return _topics(request, "DeleteRecordsTopic", "DeleteRecordsPartition", 0, timeout_ms=100)
        case "Metadata":
            return request([request.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        case "OffsetCommit":
            message = commit("g", 3)
            message.topics[0].topic_id = topic_id
            return message
        case "OffsetFetch":
            old = [request.OffsetFetchRequestTopic("t", [0])]
            groups = [
                request.OffsetFetchRequestGroup(
                    "g", topics=[request.OffsetFetchRequestTopics("t", topic_id if version >= 10 else bytes(16), [0])]
                )
            ]
            return request("g", old) if version < 8 else request(groups=groups)
        case "OffsetDelete":
            return _topics(request, "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", group_id="g")
        case "FindCoordinator":
            return request("g", 0, ["g"])
        case "JoinGroup":
            return join("g", session_timeout_ms=100, rebalance_timeout_ms=100)
        case "SyncGroup":
            return request("g", 1, "m", None, "consumer", "range")
        case "Heartbeat":
            return request("g", 1, "m")
        case "LeaveGroup":
            return request("g", "m", [request.MemberIdentity("m")])
        case "Extension":  # free as such: tests/unit/kafka/test_extension.py
            return request("DescribeClusterRequest", b"")
        case "DescribeGroups":
            return request(["g"])
        case "DeleteGroups" | "ConsumerGroupDescribe" | "StreamsGroupDescribe":
            return request(["g"])
        case "ConsumerGroupHeartbeat":
            return request("g", "m", 0, None, None, 1_000, ["t"], None, None, [])
        case "StreamsGroupHeartbeat":
            topology = request.Topology(1, [request.Subtopology("0", ["t"])])
            owned: dict[str, list[Any]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
            return request("g", "m", 0, rebalance_timeout_ms=1_000, topology=topology, process_id="p", **owned)
        case "StreamsGroupTopologyDescriptionUpdate":
            return request("g", "m", 1, request.TopologyDescription())
        case "CreateTopics":
            return request([request.CreatableTopic("t", 1, 1)], 100, validate_only=True)
        case "DeleteTopics":
            return request(topics=[request.DeleteTopicState("t")], topic_names=["t"], timeout_ms=100)
        case "CreatePartitions":
            return request([request.CreatePartitionsTopic("t", 2, None)], 100, validate_only=True)
        case "InitProducerId":
            return request("x", 60_000)
        case "AddPartitionsToTxn":
            topics = [request.AddPartitionsToTxnTopic("t", [0])]
            new = [request.AddPartitionsToTxnTransaction("x", 0, 0, verify_only=False, topics=topics)]
            return request(new, "x", 0, 0, topics)
        case "AddOffsetsToTxn":
            return request("x", 0, 0, "g")
        case "EndTxn":
            return request("x", 0, 0, committed=False)
        case "TxnOffsetCommit":
            part = request.TxnOffsetCommitRequestPartition(0, 3, committed_metadata="")
            return request("x", "g", 0, 0, topics=[request.TxnOffsetCommitRequestTopic("t", topic_id, [part])])
        case "WriteTxnMarkers":
            topics = [request.WritableTxnMarkerTopic("t", [0])]
            return request(
                [request.WritableTxnMarker(0, 0, transaction_result=False, topics=topics, coordinator_epoch=0)]
            )
        case "ShareGroupHeartbeat":
            return request("g", "m", 0, None, ["t"])
        case "ShareGroupDescribe":
            return request(["g"])
        case "DescribeShareGroupOffsets":
            topics = [request.DescribeShareGroupOffsetsRequestTopic("t", [0])]
            return request([request.DescribeShareGroupOffsetsRequestGroup("g", topics)])
        case "AlterShareGroupOffsets":
            part = request.AlterShareGroupOffsetsRequestPartition(0, 3)
            return request("g", [request.AlterShareGroupOffsetsRequestTopic("t", [part])])
        case "DeleteShareGroupOffsets":
            return request("g", [request.DeleteShareGroupOffsetsRequestTopic("t")])
        case "InitializeShareGroupState":
            return request("g", [request.InitializeStateData(topic_id, [request.PartitionData(0, 1, -1)])])
        case "ReadShareGroupState":
            return request("g", [request.ReadStateData(topic_id, [request.PartitionData(0, 1)])])
        case "WriteShareGroupState":
            return request("g", [request.WriteStateData(topic_id, [request.PartitionData(0, 1, 1, 0)])])
        case "DeleteShareGroupState":
            return request("g", [request.DeleteStateData(topic_id, [request.PartitionData(0)])])
        case "ReadShareGroupStateSummary":
            return request("g", [request.ReadStateSummaryData(topic_id, [request.PartitionData(0, 1)])])
        case "ShareFetch":
            return request(
                "g", "m", 0, max_records=1, topics=[request.FetchTopic(topic_id, [request.FetchPartition(0)])]
            )
        case "ShareAcknowledge":
            return request("g", "m", 1)
        case "DescribeTransactions":
            return request(["x"])
        case "DescribeConfigs":
            return request(
                [request.DescribeConfigsResource(kind, name, None) for kind, name in ((2, "t"), (32, "g"), (4, "1"))]
            )
        case "AlterConfigs" | "IncrementalAlterConfigs":
            return request(
                [request.AlterConfigsResource(kind, name, []) for kind, name in ((2, "t"), (32, "g"), (4, "1"))],
                validate_only=True,
            )
        case "CreateDelegationToken":
            return request("User" if version >= 3 else None, "bob" if version >= 3 else None, (), -1)
        case "RenewDelegationToken" | "ExpireDelegationToken":
            return request(b"hmac", -1)
        case "DescribeDelegationToken":
            return request(None)
        case "GetTelemetrySubscriptions" | "PushTelemetry":
            return request(bytes(range(16)))
        case "UpdateFeatures":
            return request(feature_updates=[request.FeatureUpdateKey("transaction.version", 2)], validate_only=True)
        case "UnregisterBroker":
            return request(7)
        case "ListConfigResources":
            return request()
        case "DescribeAcls":
            return request(1, None, 1, None, None, 1, 1)
        case "CreateAcls":
            return request([request.AclCreation(2, "n", 3, "User:a", "*", 3, 3)])
        case "DeleteAcls":
            return request([request.DeleteAclsFilter(2, "n", 3, None, None, 1, 1)])
        case "AlterClientQuotas":
            entity = [request.EntityData("user", "u")]
            return request(
                [request.EntryData(entity, [request.OpData("producer_byte_rate", 1.0, remove=False)])],
                validate_only=True,
            )
        case "ElectLeaders":
            return request(0, [request.TopicPartitions("t", [0])], 100)
        case "AlterPartitionReassignments":
            return request(100, topics=[request.ReassignableTopic("t", [request.ReassignablePartition(0, [1])])])
        case "ListPartitionReassignments":
            return request(100, None)
        case "AlterReplicaLogDirs":
            return request([request.AlterReplicaLogDir("/d", [request.AlterReplicaLogDirTopic("t", [0])])])
        case "DescribeProducers":
            return request([request.TopicRequest("t", [0])])
        case "DescribeTopicPartitions":
            return request([request.TopicRequest("t")])
        case "SaslHandshake":
            return request("PLAIN")
        case "SaslAuthenticate":
            return request(b"")
        case "DescribeUserScramCredentials":
            return request(None)
        case "AlterUserScramCredentials":
            return request([request.ScramCredentialDeletion("u", 1)], [])
        case "ApiVersions":
            return request("test", "1")
        case "DescribeLogDirs" | "ListGroups" | "ListTransactions" | "DescribeClientQuotas" | "DescribeCluster":
            return request()
    raise AssertionError(f"{api}: nobody tells this test how to ask for it")
