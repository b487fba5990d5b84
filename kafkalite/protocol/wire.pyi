"""Types of the generated message classes. Written by `make docs` from kafkalite/protocol/schema: do not edit.

An array is decoded as a list and may be built of any sequence. `| None`: some version has a null there, or a version
without this struct leaves it out. Records are decoded as a memoryview and may be built of several buffers.
"""

from collections.abc import Sequence

from kafkalite.model import BrokerId, Buffer, LeaderEpoch, Offset, ProducerId
from kafkalite.protocol.structs import WireStruct

class ProduceRequest(WireStruct):
    class TopicProduceData(WireStruct):
        name: str
        topic_id: bytes
        partition_data: Sequence[ProduceRequest.PartitionProduceData]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partition_data: Sequence[ProduceRequest.PartitionProduceData] = ...,
        ) -> None: ...

    class PartitionProduceData(WireStruct):
        index: int
        records: Buffer | None
        def __init__(
            self,
            index: int = ...,
            records: Buffer | Sequence[Buffer] | None = ...,
        ) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequest.TopicProduceData]
    def __init__(
        self,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: Sequence[ProduceRequest.TopicProduceData] = ...,
    ) -> None: ...

class ProduceResponse(WireStruct):
    class TopicProduceResponse(WireStruct):
        name: str
        topic_id: bytes
        partition_responses: Sequence[ProduceResponse.PartitionProduceResponse]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partition_responses: Sequence[ProduceResponse.PartitionProduceResponse] = ...,
        ) -> None: ...

    class PartitionProduceResponse(WireStruct):
        index: int
        error_code: int
        base_offset: Offset
        log_append_time_ms: int
        log_start_offset: Offset
        record_errors: Sequence[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch | None
        def __init__(
            self,
            index: int = ...,
            error_code: int = ...,
            base_offset: int = ...,
            log_append_time_ms: int = ...,
            log_start_offset: int = ...,
            record_errors: Sequence[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = ...,
            current_leader: ProduceResponse.LeaderIdAndEpoch | None = ...,
        ) -> None: ...

    class BatchIndexAndErrorMessage(WireStruct):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(
            self,
            batch_index: int = ...,
            batch_index_error_message: str | None = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(WireStruct):
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class NodeEndpoint(WireStruct):
        node_id: BrokerId
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    responses: Sequence[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: Sequence[ProduceResponse.NodeEndpoint]
    def __init__(
        self,
        responses: Sequence[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: Sequence[ProduceResponse.NodeEndpoint] = ...,
    ) -> None: ...

class FetchRequest(WireStruct):
    class ReplicaState(WireStruct):
        replica_id: int
        replica_epoch: int
        def __init__(
            self,
            replica_id: int = ...,
            replica_epoch: int = ...,
        ) -> None: ...

    class FetchTopic(WireStruct):
        topic: str
        topic_id: bytes
        partitions: Sequence[FetchRequest.FetchPartition]
        def __init__(
            self,
            topic: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[FetchRequest.FetchPartition] = ...,
        ) -> None: ...

    class FetchPartition(WireStruct):
        partition: int
        current_leader_epoch: LeaderEpoch
        fetch_offset: Offset
        last_fetched_epoch: int
        log_start_offset: Offset
        partition_max_bytes: int
        replica_directory_id: bytes
        high_watermark: int
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            fetch_offset: int = ...,
            last_fetched_epoch: int = ...,
            log_start_offset: int = ...,
            partition_max_bytes: int = ...,
            replica_directory_id: bytes = ...,
            high_watermark: int = ...,
        ) -> None: ...

    class ForgottenTopic(WireStruct):
        topic: str
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchRequest.FetchTopic]
    forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: FetchRequest.ReplicaState | None = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: Sequence[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = ...,
    ) -> None: ...

class FetchResponse(WireStruct):
    class FetchableTopicResponse(WireStruct):
        topic: str
        topic_id: bytes
        partitions: Sequence[FetchResponse.PartitionData]
        def __init__(
            self,
            topic: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[FetchResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: Offset
        log_start_offset: Offset
        diverging_epoch: FetchResponse.EpochEndOffset | None
        current_leader: FetchResponse.LeaderIdAndEpoch | None
        snapshot_id: FetchResponse.SnapshotId | None
        aborted_transactions: Sequence[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: Buffer | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            high_watermark: int = ...,
            last_stable_offset: int = ...,
            log_start_offset: int = ...,
            diverging_epoch: FetchResponse.EpochEndOffset | None = ...,
            current_leader: FetchResponse.LeaderIdAndEpoch | None = ...,
            snapshot_id: FetchResponse.SnapshotId | None = ...,
            aborted_transactions: Sequence[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = ...,
            records: Buffer | Sequence[Buffer] | None = ...,
        ) -> None: ...

    class EpochEndOffset(WireStruct):
        epoch: int
        end_offset: Offset
        def __init__(
            self,
            epoch: int = ...,
            end_offset: int = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(WireStruct):
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class SnapshotId(WireStruct):
        end_offset: Offset
        epoch: int
        def __init__(
            self,
            end_offset: int = ...,
            epoch: int = ...,
        ) -> None: ...

    class AbortedTransaction(WireStruct):
        producer_id: ProducerId
        first_offset: Offset
        def __init__(
            self,
            producer_id: int = ...,
            first_offset: int = ...,
        ) -> None: ...

    class NodeEndpoint(WireStruct):
        node_id: BrokerId
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Sequence[FetchResponse.FetchableTopicResponse]
    node_endpoints: Sequence[FetchResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: Sequence[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: Sequence[FetchResponse.NodeEndpoint] = ...,
    ) -> None: ...

class ListOffsetsRequest(WireStruct):
    class ListOffsetsTopic(WireStruct):
        name: str
        partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition] = ...,
        ) -> None: ...

    class ListOffsetsPartition(WireStruct):
        partition_index: int
        current_leader_epoch: LeaderEpoch
        timestamp: int
        max_num_offsets: int
        def __init__(
            self,
            partition_index: int = ...,
            current_leader_epoch: int = ...,
            timestamp: int = ...,
            max_num_offsets: int = ...,
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: Sequence[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ListOffsetsResponse(WireStruct):
    class ListOffsetsTopicResponse(WireStruct):
        name: str
        partitions: Sequence[ListOffsetsResponse.ListOffsetsPartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
        ) -> None: ...

    class ListOffsetsPartitionResponse(WireStruct):
        partition_index: int
        error_code: int
        old_style_offsets: Sequence[int]
        timestamp: int
        offset: Offset
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            old_style_offsets: Sequence[int] = ...,
            timestamp: int = ...,
            offset: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponse.ListOffsetsTopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(WireStruct):
    class OffsetForLeaderTopic(WireStruct):
        topic: str
        partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
        ) -> None: ...

    class OffsetForLeaderPartition(WireStruct):
        partition: int
        current_leader_epoch: LeaderEpoch
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    def __init__(
        self,
        replica_id: int = ...,
        topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(WireStruct):
    class OffsetForLeaderTopicResult(WireStruct):
        topic: str
        partitions: Sequence[OffsetForLeaderEpochResponse.EpochEndOffset]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
        ) -> None: ...

    class EpochEndOffset(WireStruct):
        error_code: int
        partition: int
        leader_epoch: LeaderEpoch
        end_offset: Offset
        def __init__(
            self,
            error_code: int = ...,
            partition: int = ...,
            leader_epoch: int = ...,
            end_offset: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
    ) -> None: ...

class DeleteRecordsRequest(WireStruct):
    class DeleteRecordsTopic(WireStruct):
        name: str
        partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
        ) -> None: ...

    class DeleteRecordsPartition(WireStruct):
        partition_index: int
        offset: Offset
        def __init__(
            self,
            partition_index: int = ...,
            offset: int = ...,
        ) -> None: ...

    topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteRecordsResponse(WireStruct):
    class DeleteRecordsTopicResult(WireStruct):
        name: str
        partitions: Sequence[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
        ) -> None: ...

    class DeleteRecordsPartitionResult(WireStruct):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            low_watermark: int = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponse.DeleteRecordsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
    ) -> None: ...

class ApiVersionsRequest(WireStruct):
    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: BrokerId
    def __init__(
        self,
        client_software_name: str = ...,
        client_software_version: str = ...,
        cluster_id: str | None = ...,
        node_id: int = ...,
    ) -> None: ...

class ApiVersionsResponse(WireStruct):
    class ApiVersion(WireStruct):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self,
            api_key: int = ...,
            min_version: int = ...,
            max_version: int = ...,
        ) -> None: ...

    class SupportedFeatureKey(WireStruct):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self,
            name: str = ...,
            min_version: int = ...,
            max_version: int = ...,
        ) -> None: ...

    class FinalizedFeatureKey(WireStruct):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self,
            name: str = ...,
            max_version_level: int = ...,
            min_version_level: int = ...,
        ) -> None: ...

    error_code: int
    api_keys: Sequence[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        error_code: int = ...,
        api_keys: Sequence[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: Sequence[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: Sequence[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
    ) -> None: ...

class MetadataRequest(WireStruct):
    class MetadataRequestTopic(WireStruct):
        topic_id: bytes
        name: str | None
        def __init__(
            self,
            topic_id: bytes = ...,
            name: str | None = ...,
        ) -> None: ...

    topics: Sequence[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(
        self,
        topics: Sequence[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = ...,
        include_cluster_authorized_operations: bool = ...,
        include_topic_authorized_operations: bool = ...,
    ) -> None: ...

class MetadataResponse(WireStruct):
    class MetadataResponseBroker(WireStruct):
        node_id: BrokerId
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    class MetadataResponseTopic(WireStruct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: Sequence[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: bytes = ...,
            is_internal: bool = ...,
            partitions: Sequence[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = ...,
        ) -> None: ...

    class MetadataResponsePartition(WireStruct):
        error_code: int
        partition_index: int
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        offline_replicas: Sequence[int]
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: Sequence[int] = ...,
            isr_nodes: Sequence[int] = ...,
            offline_replicas: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    brokers: Sequence[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: BrokerId
    topics: Sequence[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        brokers: Sequence[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: Sequence[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = ...,
        error_code: int = ...,
    ) -> None: ...

class DescribeClusterRequest(WireStruct):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(
        self,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
    ) -> None: ...

class DescribeClusterResponse(WireStruct):
    class DescribeClusterBroker(WireStruct):
        broker_id: BrokerId
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: BrokerId
    brokers: Sequence[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: Sequence[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = ...,
    ) -> None: ...

class DescribeTopicPartitionsRequest(WireStruct):
    class TopicRequest(WireStruct):
        name: str
        def __init__(
            self,
            name: str = ...,
        ) -> None: ...

    class Cursor(WireStruct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
        ) -> None: ...

    topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    def __init__(
        self,
        topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest] = ...,
        response_partition_limit: int = ...,
        cursor: DescribeTopicPartitionsRequest.Cursor | None = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponse(WireStruct):
    class DescribeTopicPartitionsResponseTopic(WireStruct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: bytes = ...,
            is_internal: bool = ...,
            partitions: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = ...,
        ) -> None: ...

    class DescribeTopicPartitionsResponsePartition(WireStruct):
        error_code: int
        partition_index: int
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        replica_nodes: Sequence[int]
        isr_nodes: Sequence[int]
        eligible_leader_replicas: Sequence[int] | None
        last_known_elr: Sequence[int] | None
        offline_replicas: Sequence[int]
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: Sequence[int] = ...,
            isr_nodes: Sequence[int] = ...,
            eligible_leader_replicas: Sequence[int] | None = ...,
            last_known_elr: Sequence[int] | None = ...,
            offline_replicas: Sequence[int] = ...,
        ) -> None: ...

    class Cursor(WireStruct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: DescribeTopicPartitionsResponse.Cursor | None = ...,
    ) -> None: ...

class DescribeLogDirsRequest(WireStruct):
    class DescribableLogDirTopic(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    def __init__(
        self,
        topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...,
    ) -> None: ...

class DescribeLogDirsResponse(WireStruct):
    class DescribeLogDirsResult(WireStruct):
        error_code: int
        log_dir: str
        topics: Sequence[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(
            self,
            error_code: int = ...,
            log_dir: str = ...,
            topics: Sequence[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = ...,
            usable_bytes: int = ...,
            is_cordoned: bool = ...,
        ) -> None: ...

    class DescribeLogDirsTopic(WireStruct):
        name: str
        partitions: Sequence[DescribeLogDirsResponse.DescribeLogDirsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
        ) -> None: ...

    class DescribeLogDirsPartition(WireStruct):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(
            self,
            partition_index: int = ...,
            partition_size: int = ...,
            offset_lag: int = ...,
            is_future_key: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
    ) -> None: ...

class AlterReplicaLogDirsRequest(WireStruct):
    class AlterReplicaLogDir(WireStruct):
        path: str
        topics: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        def __init__(
            self,
            path: str = ...,
            topics: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
        ) -> None: ...

    class AlterReplicaLogDirTopic(WireStruct):
        name: str
        partitions: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    dirs: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    def __init__(
        self,
        dirs: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(WireStruct):
    class AlterReplicaLogDirTopicResult(WireStruct):
        topic_name: str
        partitions: Sequence[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Sequence[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...,
        ) -> None: ...

    class AlterReplicaLogDirPartitionResult(WireStruct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
    ) -> None: ...

class CreateTopicsRequest(WireStruct):
    class CreatableTopic(WireStruct):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: Sequence[CreateTopicsRequest.CreatableTopicConfig]
        def __init__(
            self,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: Sequence[CreateTopicsRequest.CreatableTopicConfig] = ...,
        ) -> None: ...

    class CreatableReplicaAssignment(WireStruct):
        partition_index: int
        broker_ids: Sequence[int]
        def __init__(
            self,
            partition_index: int = ...,
            broker_ids: Sequence[int] = ...,
        ) -> None: ...

    class CreatableTopicConfig(WireStruct):
        name: str
        value: str | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
        ) -> None: ...

    topics: Sequence[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: Sequence[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreateTopicsResponse(WireStruct):
    class CreatableTopicResult(WireStruct):
        name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Sequence[CreateTopicsResponse.CreatableTopicConfigs] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: Sequence[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
        ) -> None: ...

    class CreatableTopicConfigs(WireStruct):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponse.CreatableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[CreateTopicsResponse.CreatableTopicResult] = ...,
    ) -> None: ...

class DeleteTopicsRequest(WireStruct):
    class DeleteTopicState(WireStruct):
        name: str | None
        topic_id: bytes
        def __init__(
            self,
            name: str | None = ...,
            topic_id: bytes = ...,
        ) -> None: ...

    topics: Sequence[DeleteTopicsRequest.DeleteTopicState]
    topic_names: Sequence[str]
    timeout_ms: int
    def __init__(
        self,
        topics: Sequence[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: Sequence[str] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteTopicsResponse(WireStruct):
    class DeletableTopicResult(WireStruct):
        name: str | None
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(
            self,
            name: str | None = ...,
            topic_id: bytes = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponse.DeletableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Sequence[DeleteTopicsResponse.DeletableTopicResult] = ...,
    ) -> None: ...

class CreatePartitionsRequest(WireStruct):
    class CreatePartitionsTopic(WireStruct):
        name: str
        count: int
        assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        def __init__(
            self,
            name: str = ...,
            count: int = ...,
            assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
        ) -> None: ...

    class CreatePartitionsAssignment(WireStruct):
        broker_ids: Sequence[int]
        def __init__(
            self,
            broker_ids: Sequence[int] = ...,
        ) -> None: ...

    topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreatePartitionsResponse(WireStruct):
    class CreatePartitionsTopicResult(WireStruct):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponse.CreatePartitionsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
    ) -> None: ...

class DescribeConfigsRequest(WireStruct):
    class DescribeConfigsResource(WireStruct):
        resource_type: int
        resource_name: str
        configuration_keys: Sequence[str] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configuration_keys: Sequence[str] | None = ...,
        ) -> None: ...

    resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
    ) -> None: ...

class DescribeConfigsResponse(WireStruct):
    class DescribeConfigsResult(WireStruct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Sequence[DescribeConfigsResponse.DescribeConfigsResourceResult]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
        ) -> None: ...

    class DescribeConfigsResourceResult(WireStruct):
        name: str
        value: str | None
        read_only: bool
        is_default: bool
        config_source: int
        is_sensitive: bool
        synonyms: Sequence[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            is_default: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            synonyms: Sequence[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = ...,
            documentation: str | None = ...,
        ) -> None: ...

    class DescribeConfigsSynonym(WireStruct):
        name: str
        value: str | None
        source: int
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            source: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponse.DescribeConfigsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[DescribeConfigsResponse.DescribeConfigsResult] = ...,
    ) -> None: ...

class AlterConfigsRequest(WireStruct):
    class AlterConfigsResource(WireStruct):
        resource_type: int
        resource_name: str
        configs: Sequence[AlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[AlterConfigsRequest.AlterableConfig] = ...,
        ) -> None: ...

    class AlterableConfig(WireStruct):
        name: str
        value: str | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
        ) -> None: ...

    resources: Sequence[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: Sequence[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterConfigsResponse(WireStruct):
    class AlterConfigsResourceResponse(WireStruct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Sequence[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(WireStruct):
    class AlterConfigsResource(WireStruct):
        resource_type: int
        resource_name: str
        configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
        ) -> None: ...

    class AlterableConfig(WireStruct):
        name: str
        config_operation: int
        value: str | None
        def __init__(
            self,
            name: str = ...,
            config_operation: int = ...,
            value: str | None = ...,
        ) -> None: ...

    resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(WireStruct):
    class AlterConfigsResourceResponse(WireStruct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Sequence[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
    ) -> None: ...

class ElectLeadersRequest(WireStruct):
    class TopicPartitions(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    election_type: int
    topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self,
        election_type: int = ...,
        topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ElectLeadersResponse(WireStruct):
    class ReplicaElectionResult(WireStruct):
        topic: str
        partition_result: Sequence[ElectLeadersResponse.PartitionResult]
        def __init__(
            self,
            topic: str = ...,
            partition_result: Sequence[ElectLeadersResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition_id: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponse.ReplicaElectionResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: Sequence[ElectLeadersResponse.ReplicaElectionResult] = ...,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(WireStruct):
    class ReassignableTopic(WireStruct):
        name: str
        partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
        ) -> None: ...

    class ReassignablePartition(WireStruct):
        partition_index: int
        replicas: Sequence[int] | None
        def __init__(
            self,
            partition_index: int = ...,
            replicas: Sequence[int] | None = ...,
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic]
    def __init__(
        self,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(WireStruct):
    class ReassignableTopicResponse(WireStruct):
        name: str
        partitions: Sequence[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...,
        ) -> None: ...

    class ReassignablePartitionResponse(WireStruct):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Sequence[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
    ) -> None: ...

class ListPartitionReassignmentsRequest(WireStruct):
    class ListPartitionReassignmentsTopics(WireStruct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        timeout_ms: int = ...,
        topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(WireStruct):
    class OngoingTopicReassignment(WireStruct):
        name: str
        partitions: Sequence[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...,
        ) -> None: ...

    class OngoingPartitionReassignment(WireStruct):
        partition_index: int
        replicas: Sequence[int]
        adding_replicas: Sequence[int]
        removing_replicas: Sequence[int]
        def __init__(
            self,
            partition_index: int = ...,
            replicas: Sequence[int] = ...,
            adding_replicas: Sequence[int] = ...,
            removing_replicas: Sequence[int] = ...,
        ) -> None: ...

    class CurrentBatchTopic(WireStruct):
        name: str
        partitions: Sequence[ListPartitionReassignmentsResponse.CurrentBatchPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[ListPartitionReassignmentsResponse.CurrentBatchPartition] = ...,
        ) -> None: ...

    class CurrentBatchPartition(WireStruct):
        partition_index: int
        current_replicas: Sequence[int]
        target_replicas: Sequence[int]
        def __init__(
            self,
            partition_index: int = ...,
            current_replicas: Sequence[int] = ...,
            target_replicas: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    current_batch: Sequence[ListPartitionReassignmentsResponse.CurrentBatchTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Sequence[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
        current_batch: Sequence[ListPartitionReassignmentsResponse.CurrentBatchTopic] = ...,
    ) -> None: ...

class FindCoordinatorRequest(WireStruct):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]
    def __init__(
        self,
        key: str = ...,
        key_type: int = ...,
        coordinator_keys: Sequence[str] = ...,
    ) -> None: ...

class FindCoordinatorResponse(WireStruct):
    class Coordinator(WireStruct):
        key: str
        node_id: BrokerId
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: BrokerId
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponse.Coordinator]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: Sequence[FindCoordinatorResponse.Coordinator] = ...,
    ) -> None: ...

class JoinGroupRequest(WireStruct):
    class JoinGroupRequestProtocol(WireStruct):
        name: str
        metadata: bytes
        def __init__(
            self,
            name: str = ...,
            metadata: bytes = ...,
        ) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    def __init__(
        self,
        group_id: str = ...,
        session_timeout_ms: int = ...,
        rebalance_timeout_ms: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str = ...,
        protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = ...,
    ) -> None: ...

class JoinGroupResponse(WireStruct):
    class JoinGroupResponseMember(WireStruct):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            metadata: bytes = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponse.JoinGroupResponseMember]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: Sequence[JoinGroupResponse.JoinGroupResponseMember] = ...,
    ) -> None: ...

class SyncGroupRequest(WireStruct):
    class SyncGroupRequestAssignment(WireStruct):
        member_id: str
        assignment: bytes
        def __init__(
            self,
            member_id: str = ...,
            assignment: bytes = ...,
        ) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment]
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
    ) -> None: ...

class SyncGroupResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes = ...,
    ) -> None: ...

class HeartbeatRequest(WireStruct):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
    ) -> None: ...

class HeartbeatResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...

class LeaveGroupRequest(WireStruct):
    class MemberIdentity(WireStruct):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequest.MemberIdentity]
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        members: Sequence[LeaveGroupRequest.MemberIdentity] = ...,
    ) -> None: ...

class LeaveGroupResponse(WireStruct):
    class MemberResponse(WireStruct):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponse.MemberResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: Sequence[LeaveGroupResponse.MemberResponse] = ...,
    ) -> None: ...

class OffsetCommitRequest(WireStruct):
    class OffsetCommitRequestTopic(WireStruct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
        ) -> None: ...

    class OffsetCommitRequestPartition(WireStruct):
        partition_index: int
        committed_offset: Offset
        committed_leader_epoch: LeaderEpoch
        commit_timestamp: int
        committed_metadata: str | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            commit_timestamp: int = ...,
            committed_metadata: str | None = ...,
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
    ) -> None: ...

class OffsetCommitResponse(WireStruct):
    class OffsetCommitResponseTopic(WireStruct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetCommitResponse.OffsetCommitResponsePartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
        ) -> None: ...

    class OffsetCommitResponsePartition(WireStruct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponse.OffsetCommitResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
    ) -> None: ...

class OffsetFetchRequest(WireStruct):
    class OffsetFetchRequestTopic(WireStruct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    class OffsetFetchRequestGroup(WireStruct):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        def __init__(
            self,
            group_id: str = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
        ) -> None: ...

    class OffsetFetchRequestTopics(WireStruct):
        name: str
        topic_id: bytes
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
    ) -> None: ...

class OffsetFetchResponse(WireStruct):
    class OffsetFetchResponseTopic(WireStruct):
        name: str
        partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartition(WireStruct):
        partition_index: int
        committed_offset: Offset
        committed_leader_epoch: LeaderEpoch
        metadata: str | None
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetFetchResponseGroup(WireStruct):
        group_id: str
        topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            group_id: str = ...,
            topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetFetchResponseTopics(WireStruct):
        name: str
        topic_id: bytes
        partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartitions]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartitions(WireStruct):
        partition_index: int
        committed_offset: Offset
        committed_leader_epoch: LeaderEpoch
        metadata: str | None
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: Sequence[OffsetFetchResponse.OffsetFetchResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: Sequence[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
    ) -> None: ...

class OffsetDeleteRequest(WireStruct):
    class OffsetDeleteRequestTopic(WireStruct):
        name: str
        partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
        ) -> None: ...

    class OffsetDeleteRequestPartition(WireStruct):
        partition_index: int
        def __init__(
            self,
            partition_index: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
    ) -> None: ...

class OffsetDeleteResponse(WireStruct):
    class OffsetDeleteResponseTopic(WireStruct):
        name: str
        partitions: Sequence[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
        ) -> None: ...

    class OffsetDeleteResponsePartition(WireStruct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    def __init__(
        self,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
    ) -> None: ...

class ListGroupsRequest(WireStruct):
    states_filter: Sequence[str]
    types_filter: Sequence[str]
    def __init__(
        self,
        states_filter: Sequence[str] = ...,
        types_filter: Sequence[str] = ...,
    ) -> None: ...

class ListGroupsResponse(WireStruct):
    class ListedGroup(WireStruct):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponse.ListedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: Sequence[ListGroupsResponse.ListedGroup] = ...,
    ) -> None: ...

class DescribeGroupsRequest(WireStruct):
    groups: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self,
        groups: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class DescribeGroupsResponse(WireStruct):
    class DescribedGroup(WireStruct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Sequence[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: Sequence[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class DescribedGroupMember(WireStruct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            member_metadata: bytes = ...,
            member_assignment: bytes = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Sequence[DescribeGroupsResponse.DescribedGroup] = ...,
    ) -> None: ...

class DeleteGroupsRequest(WireStruct):
    groups_names: Sequence[str]
    def __init__(
        self,
        groups_names: Sequence[str] = ...,
    ) -> None: ...

class DeleteGroupsResponse(WireStruct):
    class DeletableGroupResult(WireStruct):
        group_id: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            group_id: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponse.DeletableGroupResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[DeleteGroupsResponse.DeletableGroupResult] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(WireStruct):
    class TopicPartitions(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: Sequence[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(WireStruct):
    class Assignment(WireStruct):
        topic_partitions: Sequence[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self,
            topic_partitions: Sequence[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...,
        ) -> None: ...

    class TopicPartitions(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(WireStruct):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self,
        group_ids: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(WireStruct):
    class DescribedGroup(WireStruct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Sequence[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: Sequence[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class Member(WireStruct):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Sequence[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.TargetAssignment
        member_type: int
        def __init__(
            self,
            member_id: str = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: Sequence[str] = ...,
            subscribed_topic_regex: str | None = ...,
            assignment: ConsumerGroupDescribeResponse.Assignment | None = ...,
            target_assignment: ConsumerGroupDescribeResponse.TargetAssignment | None = ...,
            member_type: int = ...,
        ) -> None: ...

    class Assignment(WireStruct):
        topic_partitions: Sequence[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(
            self,
            topic_partitions: Sequence[ConsumerGroupDescribeResponse.TopicPartitions] = ...,
        ) -> None: ...

    class TopicPartitions(WireStruct):
        topic_id: bytes
        topic_name: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            topic_name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    class TargetAssignment(WireStruct):
        topic_partitions: Sequence[ConsumerGroupDescribeResponse.TargetTopicPartitions]
        def __init__(
            self,
            topic_partitions: Sequence[ConsumerGroupDescribeResponse.TargetTopicPartitions] = ...,
        ) -> None: ...

    class TargetTopicPartitions(WireStruct):
        topic_id: bytes
        topic_name: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            topic_name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Sequence[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class InitProducerIdRequest(WireStruct):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: ProducerId
    producer_epoch: int
    def __init__(
        self,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

class InitProducerIdResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    producer_id: ProducerId
    producer_epoch: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(WireStruct):
    class AddPartitionsToTxnTransaction(WireStruct):
        transactional_id: str
        producer_id: ProducerId
        producer_epoch: int
        verify_only: bool
        topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(
            self,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopic(WireStruct):
        name: str
        partitions: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: ProducerId
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    def __init__(
        self,
        transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(WireStruct):
    class AddPartitionsToTxnResult(WireStruct):
        transactional_id: str
        topic_results: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            transactional_id: str = ...,
            topic_results: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(WireStruct):
        name: str
        results_by_partition: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        def __init__(
            self,
            name: str = ...,
            results_by_partition: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...,
        ) -> None: ...

    class AddPartitionsToTxnPartitionResult(WireStruct):
        partition_index: int
        partition_error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            partition_error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...

class AddOffsetsToTxnRequest(WireStruct):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...

class EndTxnRequest(WireStruct):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
    ) -> None: ...

class EndTxnResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    producer_id: ProducerId
    producer_epoch: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

class TxnOffsetCommitRequest(WireStruct):
    class TxnOffsetCommitRequestTopic(WireStruct):
        name: str
        topic_id: bytes
        partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
        ) -> None: ...

    class TxnOffsetCommitRequestPartition(WireStruct):
        partition_index: int
        committed_offset: Offset
        committed_leader_epoch: LeaderEpoch
        committed_metadata: str | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: ProducerId
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...

class TxnOffsetCommitResponse(WireStruct):
    class TxnOffsetCommitResponseTopic(WireStruct):
        name: str
        topic_id: bytes
        partitions: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
        ) -> None: ...

    class TxnOffsetCommitResponsePartition(WireStruct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(WireStruct):
    class WritableTxnMarker(WireStruct):
        producer_id: ProducerId
        producer_epoch: int
        transaction_result: bool
        topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            transaction_result: bool = ...,
            topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = ...,
            transaction_version: int = ...,
        ) -> None: ...

    class WritableTxnMarkerTopic(WireStruct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker]
    def __init__(
        self,
        markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker] = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(WireStruct):
    class WritableTxnMarkerResult(WireStruct):
        producer_id: ProducerId
        topics: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        def __init__(
            self,
            producer_id: int = ...,
            topics: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
        ) -> None: ...

    class WritableTxnMarkerTopicResult(WireStruct):
        name: str
        partitions: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
        ) -> None: ...

    class WritableTxnMarkerPartitionResult(WireStruct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    markers: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    def __init__(
        self,
        markers: Sequence[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...,
    ) -> None: ...

class DescribeProducersRequest(WireStruct):
    class TopicRequest(WireStruct):
        name: str
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    topics: Sequence[DescribeProducersRequest.TopicRequest]
    def __init__(
        self,
        topics: Sequence[DescribeProducersRequest.TopicRequest] = ...,
    ) -> None: ...

class DescribeProducersResponse(WireStruct):
    class TopicResponse(WireStruct):
        name: str
        partitions: Sequence[DescribeProducersResponse.PartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[DescribeProducersResponse.PartitionResponse] = ...,
        ) -> None: ...

    class PartitionResponse(WireStruct):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Sequence[DescribeProducersResponse.ProducerState]
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            active_producers: Sequence[DescribeProducersResponse.ProducerState] = ...,
        ) -> None: ...

    class ProducerState(WireStruct):
        producer_id: ProducerId
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: Offset
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            last_sequence: int = ...,
            last_timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_start_offset: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponse.TopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Sequence[DescribeProducersResponse.TopicResponse] = ...,
    ) -> None: ...

class DescribeTransactionsRequest(WireStruct):
    transactional_ids: Sequence[str]
    def __init__(
        self,
        transactional_ids: Sequence[str] = ...,
    ) -> None: ...

class DescribeTransactionsResponse(WireStruct):
    class TransactionState(WireStruct):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: ProducerId
        producer_epoch: int
        topics: Sequence[DescribeTransactionsResponse.TopicData]
        def __init__(
            self,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: Sequence[DescribeTransactionsResponse.TopicData] = ...,
        ) -> None: ...

    class TopicData(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponse.TransactionState]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        transaction_states: Sequence[DescribeTransactionsResponse.TransactionState] = ...,
    ) -> None: ...

class ListTransactionsRequest(WireStruct):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        state_filters: Sequence[str] = ...,
        producer_id_filters: Sequence[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
    ) -> None: ...

class ListTransactionsResponse(WireStruct):
    class TransactionState(WireStruct):
        transactional_id: str
        producer_id: ProducerId
        transaction_state: str
        def __init__(
            self,
            transactional_id: str = ...,
            producer_id: int = ...,
            transaction_state: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponse.TransactionState]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: Sequence[str] = ...,
        transaction_states: Sequence[ListTransactionsResponse.TransactionState] = ...,
    ) -> None: ...

class RequestHeader(WireStruct):
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    def __init__(
        self,
        request_api_key: int = ...,
        request_api_version: int = ...,
        correlation_id: int = ...,
        client_id: str | None = ...,
    ) -> None: ...

class ResponseHeader(WireStruct):
    correlation_id: int
    def __init__(
        self,
        correlation_id: int = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(WireStruct):
    class TopicPartition(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    topics: Sequence[str]
    user_data: bytes | None
    owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        topics: Sequence[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(WireStruct):
    class TopicPartition(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    def __init__(
        self,
        assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = ...,
    ) -> None: ...

class OffsetCommitKey(WireStruct):
    group: str
    topic: str
    partition: int
    def __init__(
        self,
        group: str = ...,
        topic: str = ...,
        partition: int = ...,
    ) -> None: ...

class OffsetCommitValue(WireStruct):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    def __init__(
        self,
        offset: int = ...,
        leader_epoch: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        expire_timestamp: int = ...,
    ) -> None: ...

class GroupMetadataKey(WireStruct):
    group: str
    def __init__(
        self,
        group: str = ...,
    ) -> None: ...

class GroupMetadataValue(WireStruct):
    class MemberMetadata(WireStruct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            rebalance_timeout: int = ...,
            session_timeout: int = ...,
            subscription: bytes = ...,
            assignment: bytes = ...,
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: Sequence[GroupMetadataValue.MemberMetadata]
    def __init__(
        self,
        protocol_type: str = ...,
        generation: int = ...,
        protocol: str | None = ...,
        leader: str | None = ...,
        current_state_timestamp: int = ...,
        members: Sequence[GroupMetadataValue.MemberMetadata] = ...,
    ) -> None: ...

class ConsumerGroupMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ConsumerGroupMetadataValue(WireStruct):
    epoch: int
    metadata_hash: int
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
    ) -> None: ...

class ConsumerGroupPartitionMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(WireStruct):
    class ClassicMemberMetadata(WireStruct):
        session_timeout_ms: int
        supported_protocols: Sequence[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        def __init__(
            self,
            session_timeout_ms: int = ...,
            supported_protocols: Sequence[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...,
        ) -> None: ...

    class ClassicProtocol(WireStruct):
        name: str
        metadata: bytes
        def __init__(
            self,
            name: str = ...,
            metadata: bytes = ...,
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: Sequence[str] = ...,
        subscribed_topic_regex: str | None = ...,
        rebalance_timeout_ms: int = ...,
        server_assignor: str | None = ...,
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(WireStruct):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(WireStruct):
    class TopicPartition(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    topic_partitions: Sequence[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    def __init__(
        self,
        topic_partitions: Sequence[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(WireStruct):
    class TopicPartitions(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        assignment_epochs: Sequence[int] | None
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
            assignment_epochs: Sequence[int] | None = ...,
        ) -> None: ...

    class PendingRevocation(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        assignment_epochs: Sequence[int] | None
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
            assignment_epochs: Sequence[int] | None = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: Sequence[ConsumerGroupCurrentMemberAssignmentValue.PendingRevocation]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        partitions_pending_revocation: Sequence[ConsumerGroupCurrentMemberAssignmentValue.PendingRevocation] = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionKey(WireStruct):
    group_id: str
    regular_expression: str
    def __init__(
        self,
        group_id: str = ...,
        regular_expression: str = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(WireStruct):
    topics: Sequence[str]
    version: int
    timestamp: int
    def __init__(
        self,
        topics: Sequence[str] = ...,
        version: int = ...,
        timestamp: int = ...,
    ) -> None: ...

class TransactionLogKey(WireStruct):
    transactional_id: str
    def __init__(
        self,
        transactional_id: str = ...,
    ) -> None: ...

class TransactionLogValue(WireStruct):
    class PartitionsSchema(WireStruct):
        topic: str
        partition_ids: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partition_ids: Sequence[int] = ...,
        ) -> None: ...

    producer_id: ProducerId
    previous_producer_id: ProducerId
    next_producer_id: ProducerId
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: Sequence[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    def __init__(
        self,
        producer_id: int = ...,
        previous_producer_id: int = ...,
        next_producer_id: int = ...,
        producer_epoch: int = ...,
        transaction_timeout_ms: int = ...,
        transaction_status: int = ...,
        transaction_partitions: Sequence[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = ...,
        transaction_start_timestamp_ms: int = ...,
        client_transaction_version: int = ...,
    ) -> None: ...

class TransactionGroupKey(WireStruct):
    group: str
    def __init__(
        self,
        group: str = ...,
    ) -> None: ...

class TransactionGroupValue(WireStruct):
    owner: str
    version: int
    updated_ms: int
    def __init__(
        self,
        owner: str = ...,
        version: int = ...,
        updated_ms: int = ...,
    ) -> None: ...

class DescribeAclsRequest(WireStruct):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class DescribeAclsResponse(WireStruct):
    class DescribeAclsResource(WireStruct):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Sequence[DescribeAclsResponse.AclDescription]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            acls: Sequence[DescribeAclsResponse.AclDescription] = ...,
        ) -> None: ...

    class AclDescription(WireStruct):
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponse.DescribeAclsResource]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: Sequence[DescribeAclsResponse.DescribeAclsResource] = ...,
    ) -> None: ...

class CreateAclsRequest(WireStruct):
    class AclCreation(WireStruct):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    creations: Sequence[CreateAclsRequest.AclCreation]
    def __init__(
        self,
        creations: Sequence[CreateAclsRequest.AclCreation] = ...,
    ) -> None: ...

class CreateAclsResponse(WireStruct):
    class AclCreationResult(WireStruct):
        error_code: int
        error_message: str | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[CreateAclsResponse.AclCreationResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[CreateAclsResponse.AclCreationResult] = ...,
    ) -> None: ...

class DeleteAclsRequest(WireStruct):
    class DeleteAclsFilter(WireStruct):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(
            self,
            resource_type_filter: int = ...,
            resource_name_filter: str | None = ...,
            pattern_type_filter: int = ...,
            principal_filter: str | None = ...,
            host_filter: str | None = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    filters: Sequence[DeleteAclsRequest.DeleteAclsFilter]
    def __init__(
        self,
        filters: Sequence[DeleteAclsRequest.DeleteAclsFilter] = ...,
    ) -> None: ...

class DeleteAclsResponse(WireStruct):
    class DeleteAclsFilterResult(WireStruct):
        error_code: int
        error_message: str | None
        matching_acls: Sequence[DeleteAclsResponse.DeleteAclsMatchingAcl]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            matching_acls: Sequence[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
        ) -> None: ...

    class DeleteAclsMatchingAcl(WireStruct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponse.DeleteAclsFilterResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        filter_results: Sequence[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
    ) -> None: ...

class DescribeClientQuotasRequest(WireStruct):
    class ComponentData(WireStruct):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self,
            entity_type: str = ...,
            match_type: int = ...,
            match: str | None = ...,
        ) -> None: ...

    components: Sequence[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    def __init__(
        self,
        components: Sequence[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(WireStruct):
    class EntryData(WireStruct):
        entity: Sequence[DescribeClientQuotasResponse.EntityData]
        values: Sequence[DescribeClientQuotasResponse.ValueData]
        def __init__(
            self,
            entity: Sequence[DescribeClientQuotasResponse.EntityData] = ...,
            values: Sequence[DescribeClientQuotasResponse.ValueData] = ...,
        ) -> None: ...

    class EntityData(WireStruct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
        ) -> None: ...

    class ValueData(WireStruct):
        key: str
        value: float
        def __init__(
            self,
            key: str = ...,
            value: float = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponse.EntryData] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: Sequence[DescribeClientQuotasResponse.EntryData] | None = ...,
    ) -> None: ...

class AlterClientQuotasRequest(WireStruct):
    class EntryData(WireStruct):
        entity: Sequence[AlterClientQuotasRequest.EntityData]
        ops: Sequence[AlterClientQuotasRequest.OpData]
        def __init__(
            self,
            entity: Sequence[AlterClientQuotasRequest.EntityData] = ...,
            ops: Sequence[AlterClientQuotasRequest.OpData] = ...,
        ) -> None: ...

    class EntityData(WireStruct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
        ) -> None: ...

    class OpData(WireStruct):
        key: str
        value: float
        remove: bool
        def __init__(
            self,
            key: str = ...,
            value: float = ...,
            remove: bool = ...,
        ) -> None: ...

    entries: Sequence[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    def __init__(
        self,
        entries: Sequence[AlterClientQuotasRequest.EntryData] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterClientQuotasResponse(WireStruct):
    class EntryData(WireStruct):
        error_code: int
        error_message: str | None
        entity: Sequence[AlterClientQuotasResponse.EntityData]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: Sequence[AlterClientQuotasResponse.EntityData] = ...,
        ) -> None: ...

    class EntityData(WireStruct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    entries: Sequence[AlterClientQuotasResponse.EntryData]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        entries: Sequence[AlterClientQuotasResponse.EntryData] = ...,
    ) -> None: ...

class ShareFetchRequest(WireStruct):
    class FetchTopic(WireStruct):
        topic_id: bytes
        partitions: Sequence[ShareFetchRequest.FetchPartition]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ShareFetchRequest.FetchPartition] = ...,
        ) -> None: ...

    class FetchPartition(WireStruct):
        partition_index: int
        acknowledgement_batches: Sequence[ShareFetchRequest.AcknowledgementBatch]
        def __init__(
            self,
            partition_index: int = ...,
            acknowledgement_batches: Sequence[ShareFetchRequest.AcknowledgementBatch] = ...,
        ) -> None: ...

    class AcknowledgementBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        acknowledge_types: Sequence[int]
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: Sequence[int] = ...,
        ) -> None: ...

    class ForgottenTopic(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: Sequence[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: Sequence[ShareFetchRequest.ForgottenTopic]
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: Sequence[ShareFetchRequest.FetchTopic] = ...,
        forgotten_topics_data: Sequence[ShareFetchRequest.ForgottenTopic] = ...,
    ) -> None: ...

class ShareFetchResponse(WireStruct):
    class ShareFetchableTopicResponse(WireStruct):
        topic_id: bytes
        partitions: Sequence[ShareFetchResponse.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ShareFetchResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: Buffer | None
        acquired_records: Sequence[ShareFetchResponse.AcquiredRecords]
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            acknowledge_error_code: int = ...,
            acknowledge_error_message: str | None = ...,
            current_leader: ShareFetchResponse.LeaderIdAndEpoch | None = ...,
            records: Buffer | Sequence[Buffer] | None = ...,
            acquired_records: Sequence[ShareFetchResponse.AcquiredRecords] = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(WireStruct):
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class AcquiredRecords(WireStruct):
        first_offset: Offset
        last_offset: Offset
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    class NodeEndpoint(WireStruct):
        node_id: BrokerId
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareFetchResponse.ShareFetchableTopicResponse]
    node_endpoints: Sequence[ShareFetchResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Sequence[ShareFetchResponse.ShareFetchableTopicResponse] = ...,
        node_endpoints: Sequence[ShareFetchResponse.NodeEndpoint] = ...,
    ) -> None: ...

class ShareAcknowledgeRequest(WireStruct):
    class AcknowledgeTopic(WireStruct):
        topic_id: bytes
        partitions: Sequence[ShareAcknowledgeRequest.AcknowledgePartition]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ShareAcknowledgeRequest.AcknowledgePartition] = ...,
        ) -> None: ...

    class AcknowledgePartition(WireStruct):
        partition_index: int
        acknowledgement_batches: Sequence[ShareAcknowledgeRequest.AcknowledgementBatch]
        def __init__(
            self,
            partition_index: int = ...,
            acknowledgement_batches: Sequence[ShareAcknowledgeRequest.AcknowledgementBatch] = ...,
        ) -> None: ...

    class AcknowledgementBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        acknowledge_types: Sequence[int]
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: Sequence[int] = ...,
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: Sequence[ShareAcknowledgeRequest.AcknowledgeTopic]
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: Sequence[ShareAcknowledgeRequest.AcknowledgeTopic] = ...,
    ) -> None: ...

class ShareAcknowledgeResponse(WireStruct):
    class ShareAcknowledgeTopicResponse(WireStruct):
        topic_id: bytes
        partitions: Sequence[ShareAcknowledgeResponse.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ShareAcknowledgeResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch | None = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(WireStruct):
        leader_id: BrokerId
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class NodeEndpoint(WireStruct):
        node_id: BrokerId
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Sequence[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse]
    node_endpoints: Sequence[ShareAcknowledgeResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Sequence[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: Sequence[ShareAcknowledgeResponse.NodeEndpoint] = ...,
    ) -> None: ...

class UpdateFeaturesRequest(WireStruct):
    class FeatureUpdateKey(WireStruct):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(
            self,
            feature: str = ...,
            max_version_level: int = ...,
            allow_downgrade: bool = ...,
            upgrade_type: int = ...,
        ) -> None: ...

    timeout_ms: int
    feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    def __init__(
        self,
        timeout_ms: int = ...,
        feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class UpdateFeaturesResponse(WireStruct):
    class UpdatableFeatureResult(WireStruct):
        feature: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            feature: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponse.UpdatableFeatureResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Sequence[UpdateFeaturesResponse.UpdatableFeatureResult] = ...,
    ) -> None: ...

class UnregisterBrokerRequest(WireStruct):
    broker_id: BrokerId
    def __init__(
        self,
        broker_id: int = ...,
    ) -> None: ...

class UnregisterBrokerResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class ListConfigResourcesRequest(WireStruct):
    resource_types: Sequence[int]
    def __init__(
        self,
        resource_types: Sequence[int] = ...,
    ) -> None: ...

class ListConfigResourcesResponse(WireStruct):
    class ConfigResource(WireStruct):
        resource_name: str
        resource_type: int
        def __init__(
            self,
            resource_name: str = ...,
            resource_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponse.ConfigResource]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        config_resources: Sequence[ListConfigResourcesResponse.ConfigResource] = ...,
    ) -> None: ...

class StreamsGroupHeartbeatRequest(WireStruct):
    class Topology(WireStruct):
        epoch: int
        subtopologies: Sequence[StreamsGroupHeartbeatRequest.Subtopology]
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: Sequence[StreamsGroupHeartbeatRequest.Subtopology] = ...,
        ) -> None: ...

    class Subtopology(WireStruct):
        subtopology_id: str
        source_topics: Sequence[str]
        source_topic_regex: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: Sequence[str]
        repartition_source_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: Sequence[StreamsGroupHeartbeatRequest.CopartitionGroup]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: Sequence[str] = ...,
            source_topic_regex: Sequence[str] = ...,
            state_changelog_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            repartition_sink_topics: Sequence[str] = ...,
            repartition_source_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            copartition_groups: Sequence[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...,
        ) -> None: ...

    class TopicInfo(WireStruct):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupHeartbeatRequest.KeyValue]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: Sequence[StreamsGroupHeartbeatRequest.KeyValue] = ...,
        ) -> None: ...

    class KeyValue(WireStruct):
        key: str
        value: str
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
        ) -> None: ...

    class CopartitionGroup(WireStruct):
        source_topics: Sequence[int]
        source_topic_regex: Sequence[int]
        repartition_source_topics: Sequence[int]
        def __init__(
            self,
            source_topics: Sequence[int] = ...,
            source_topic_regex: Sequence[int] = ...,
            repartition_source_topics: Sequence[int] = ...,
        ) -> None: ...

    class TaskIds(WireStruct):
        subtopology_id: str
        partitions: Sequence[int]
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    class Endpoint(WireStruct):
        host: str
        port: int
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
        ) -> None: ...

    class TaskOffset(WireStruct):
        subtopology_id: str
        partition: int
        offset: Offset
        def __init__(
            self,
            subtopology_id: str = ...,
            partition: int = ...,
            offset: int = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupHeartbeatRequest.Topology | None
    active_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    standby_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    warmup_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None
    client_tags: Sequence[StreamsGroupHeartbeatRequest.KeyValue] | None
    task_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None
    task_end_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None
    shutdown_application: bool
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        endpoint_information_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        topology: StreamsGroupHeartbeatRequest.Topology | None = ...,
        active_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        standby_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        warmup_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        process_id: str | None = ...,
        user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = ...,
        client_tags: Sequence[StreamsGroupHeartbeatRequest.KeyValue] | None = ...,
        task_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        task_end_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        shutdown_application: bool = ...,
    ) -> None: ...

class StreamsGroupHeartbeatResponse(WireStruct):
    class Status(WireStruct):
        status_code: int
        status_detail: str
        def __init__(
            self,
            status_code: int = ...,
            status_detail: str = ...,
        ) -> None: ...

    class TaskIds(WireStruct):
        subtopology_id: str
        partitions: Sequence[int]
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    class EndpointToPartitions(WireStruct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint
        active_partitions: Sequence[StreamsGroupHeartbeatResponse.TopicPartition]
        standby_partitions: Sequence[StreamsGroupHeartbeatResponse.TopicPartition]
        def __init__(
            self,
            user_endpoint: StreamsGroupHeartbeatResponse.Endpoint | None = ...,
            active_partitions: Sequence[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            standby_partitions: Sequence[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
        ) -> None: ...

    class Endpoint(WireStruct):
        host: str
        port: int
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
        ) -> None: ...

    class TopicPartition(WireStruct):
        topic: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag_legacy: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    status: Sequence[StreamsGroupHeartbeatResponse.Status] | None
    active_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None
    standby_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None
    warmup_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None
    topology_description_required: bool
    endpoint_information_epoch: int
    partitions_by_user_endpoint: Sequence[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        acceptable_recovery_lag_legacy: int = ...,
        task_offset_interval_ms: int = ...,
        acceptable_recovery_lag: int = ...,
        status: Sequence[StreamsGroupHeartbeatResponse.Status] | None = ...,
        active_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        standby_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        warmup_tasks: Sequence[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        topology_description_required: bool = ...,
        endpoint_information_epoch: int = ...,
        partitions_by_user_endpoint: Sequence[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None = ...,
    ) -> None: ...

class StreamsGroupDescribeRequest(WireStruct):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    include_topology_description: bool
    def __init__(
        self,
        group_ids: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
        include_topology_description: bool = ...,
    ) -> None: ...

class StreamsGroupDescribeResponse(WireStruct):
    class DescribedGroup(WireStruct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribeResponse.Topology | None
        members: Sequence[StreamsGroupDescribeResponse.Member]
        authorized_operations: int
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None
        topology_description_status: int
        assignor_name: str | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            topology: StreamsGroupDescribeResponse.Topology | None = ...,
            members: Sequence[StreamsGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = ...,
            topology_description_status: int = ...,
            assignor_name: str | None = ...,
        ) -> None: ...

    class Topology(WireStruct):
        epoch: int
        subtopologies: Sequence[StreamsGroupDescribeResponse.Subtopology] | None
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: Sequence[StreamsGroupDescribeResponse.Subtopology] | None = ...,
        ) -> None: ...

    class Subtopology(WireStruct):
        subtopology_id: str
        source_topics: Sequence[str]
        repartition_sink_topics: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: Sequence[StreamsGroupDescribeResponse.TopicInfo]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: Sequence[str] = ...,
            repartition_sink_topics: Sequence[str] = ...,
            state_changelog_topics: Sequence[StreamsGroupDescribeResponse.TopicInfo] = ...,
            repartition_source_topics: Sequence[StreamsGroupDescribeResponse.TopicInfo] = ...,
        ) -> None: ...

    class TopicInfo(WireStruct):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupDescribeResponse.KeyValue]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: Sequence[StreamsGroupDescribeResponse.KeyValue] = ...,
        ) -> None: ...

    class KeyValue(WireStruct):
        key: str
        value: str
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
        ) -> None: ...

    class Member(WireStruct):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None
        client_tags: Sequence[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: Sequence[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: Sequence[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: bool
        def __init__(
            self,
            member_id: str = ...,
            member_epoch: int = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            topology_epoch: int = ...,
            process_id: str = ...,
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = ...,
            client_tags: Sequence[StreamsGroupDescribeResponse.KeyValue] = ...,
            task_offsets: Sequence[StreamsGroupDescribeResponse.TaskOffset] = ...,
            task_end_offsets: Sequence[StreamsGroupDescribeResponse.TaskOffset] = ...,
            assignment: StreamsGroupDescribeResponse.Assignment | None = ...,
            target_assignment: StreamsGroupDescribeResponse.Assignment | None = ...,
            is_classic: bool = ...,
        ) -> None: ...

    class Endpoint(WireStruct):
        host: str
        port: int
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
        ) -> None: ...

    class TaskOffset(WireStruct):
        subtopology_id: str
        partition: int
        offset: Offset
        def __init__(
            self,
            subtopology_id: str = ...,
            partition: int = ...,
            offset: int = ...,
        ) -> None: ...

    class Assignment(WireStruct):
        active_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds]
        def __init__(
            self,
            active_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds] = ...,
            standby_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds] = ...,
            warmup_tasks: Sequence[StreamsGroupDescribeResponse.TaskIds] = ...,
        ) -> None: ...

    class TaskIds(WireStruct):
        subtopology_id: str
        partitions: Sequence[int]
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    class TopologyDescription(WireStruct):
        subtopologies: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology]
        global_stores: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore]
        def __init__(
            self,
            subtopologies: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = ...,
            global_stores: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = ...,
        ) -> None: ...

    class TopologyDescriptionSubtopology(WireStruct):
        subtopology_id: str
        nodes: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionNode]
        def __init__(
            self,
            subtopology_id: str = ...,
            nodes: Sequence[StreamsGroupDescribeResponse.TopologyDescriptionNode] = ...,
        ) -> None: ...

    class TopologyDescriptionNode(WireStruct):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]
        def __init__(
            self,
            name: str = ...,
            node_type: int = ...,
            source_topics: Sequence[str] = ...,
            sink_topic: str | None = ...,
            stores: Sequence[str] = ...,
            successors: Sequence[str] = ...,
        ) -> None: ...

    class TopologyDescriptionGlobalStore(WireStruct):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode
        def __init__(
            self,
            source: StreamsGroupDescribeResponse.TopologyDescriptionNode | None = ...,
            processor: StreamsGroupDescribeResponse.TopologyDescriptionNode | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Sequence[StreamsGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Sequence[StreamsGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class StreamsGroupTopologyDescriptionUpdateRequest(WireStruct):
    class TopologyDescription(WireStruct):
        subtopologies: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology]
        global_stores: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore]
        def __init__(
            self,
            subtopologies: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = ...,
            global_stores: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = ...,
        ) -> None: ...

    class TopologyDescriptionSubtopology(WireStruct):
        subtopology_id: str
        nodes: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode]
        def __init__(
            self,
            subtopology_id: str = ...,
            nodes: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = ...,
        ) -> None: ...

    class TopologyDescriptionNode(WireStruct):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]
        def __init__(
            self,
            name: str = ...,
            node_type: int = ...,
            source_topics: Sequence[str] = ...,
            sink_topic: str | None = ...,
            stores: Sequence[str] = ...,
            successors: Sequence[str] = ...,
        ) -> None: ...

    class TopologyDescriptionGlobalStore(WireStruct):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        def __init__(
            self,
            source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode | None = ...,
            processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode | None = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        topology_epoch: int = ...,
        topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription | None = ...,
    ) -> None: ...

class StreamsGroupTopologyDescriptionUpdateResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class StreamsGroupMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class StreamsGroupMetadataValue(WireStruct):
    class LastAssignmentConfig(WireStruct):
        key: str
        value: str
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
        ) -> None: ...

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: Sequence[StreamsGroupMetadataValue.LastAssignmentConfig] | None
    stored_description_topology_epoch: int
    failed_description_topology_epoch: int
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
        validated_topology_epoch: int = ...,
        last_assignment_configs: Sequence[StreamsGroupMetadataValue.LastAssignmentConfig] | None = ...,
        stored_description_topology_epoch: int = ...,
        failed_description_topology_epoch: int = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataValue(WireStruct):
    class Endpoint(WireStruct):
        host: str
        port: int
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
        ) -> None: ...

    class KeyValue(WireStruct):
        key: str
        value: str
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None
    client_tags: Sequence[StreamsGroupMemberMetadataValue.KeyValue]
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        rebalance_timeout_ms: int = ...,
        topology_epoch: int = ...,
        process_id: str = ...,
        user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = ...,
        client_tags: Sequence[StreamsGroupMemberMetadataValue.KeyValue] = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataValue(WireStruct):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberValue(WireStruct):
    class TaskIds(WireStruct):
        subtopology_id: str
        partitions: Sequence[int]
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    active_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    standby_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    warmup_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    def __init__(
        self,
        active_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        standby_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        warmup_tasks: Sequence[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentValue(WireStruct):
    class TaskIds(WireStruct):
        subtopology_id: str
        partitions: Sequence[int]
        assignment_epochs: Sequence[int] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: Sequence[int] = ...,
            assignment_epochs: Sequence[int] | None = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    active_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        active_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        active_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
    ) -> None: ...

class StreamsGroupTopologyKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class StreamsGroupTopologyValue(WireStruct):
    class Subtopology(WireStruct):
        subtopology_id: str
        source_topics: Sequence[str]
        source_topic_regex: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupTopologyValue.TopicInfo]
        repartition_sink_topics: Sequence[str]
        repartition_source_topics: Sequence[StreamsGroupTopologyValue.TopicInfo]
        copartition_groups: Sequence[StreamsGroupTopologyValue.CopartitionGroup]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: Sequence[str] = ...,
            source_topic_regex: Sequence[str] = ...,
            state_changelog_topics: Sequence[StreamsGroupTopologyValue.TopicInfo] = ...,
            repartition_sink_topics: Sequence[str] = ...,
            repartition_source_topics: Sequence[StreamsGroupTopologyValue.TopicInfo] = ...,
            copartition_groups: Sequence[StreamsGroupTopologyValue.CopartitionGroup] = ...,
        ) -> None: ...

    class TopicInfo(WireStruct):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupTopologyValue.TopicConfig]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: Sequence[StreamsGroupTopologyValue.TopicConfig] = ...,
        ) -> None: ...

    class TopicConfig(WireStruct):
        key: str
        value: str
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
        ) -> None: ...

    class CopartitionGroup(WireStruct):
        source_topics: Sequence[int]
        source_topic_regex: Sequence[int]
        repartition_source_topics: Sequence[int]
        def __init__(
            self,
            source_topics: Sequence[int] = ...,
            source_topic_regex: Sequence[int] = ...,
            repartition_source_topics: Sequence[int] = ...,
        ) -> None: ...

    epoch: int
    subtopologies: Sequence[StreamsGroupTopologyValue.Subtopology]
    def __init__(
        self,
        epoch: int = ...,
        subtopologies: Sequence[StreamsGroupTopologyValue.Subtopology] = ...,
    ) -> None: ...

class GetTelemetrySubscriptionsRequest(WireStruct):
    client_instance_id: bytes
    def __init__(
        self,
        client_instance_id: bytes = ...,
    ) -> None: ...

class GetTelemetrySubscriptionsResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    client_instance_id: bytes
    subscription_id: int
    accepted_compression_types: Sequence[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Sequence[str]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        client_instance_id: bytes = ...,
        subscription_id: int = ...,
        accepted_compression_types: Sequence[int] = ...,
        push_interval_ms: int = ...,
        telemetry_max_bytes: int = ...,
        delta_temporality: bool = ...,
        requested_metrics: Sequence[str] = ...,
    ) -> None: ...

class PushTelemetryRequest(WireStruct):
    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    def __init__(
        self,
        client_instance_id: bytes = ...,
        subscription_id: int = ...,
        terminating: bool = ...,
        compression_type: int = ...,
        metrics: bytes = ...,
    ) -> None: ...

class PushTelemetryResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...

class CreateDelegationTokenRequest(WireStruct):
    class CreatableRenewers(WireStruct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: Sequence[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: int
    def __init__(
        self,
        owner_principal_type: str | None = ...,
        owner_principal_name: str | None = ...,
        renewers: Sequence[CreateDelegationTokenRequest.CreatableRenewers] = ...,
        max_lifetime_ms: int = ...,
    ) -> None: ...

class CreateDelegationTokenResponse(WireStruct):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        principal_type: str = ...,
        principal_name: str = ...,
        token_requester_principal_type: str = ...,
        token_requester_principal_name: str = ...,
        issue_timestamp_ms: int = ...,
        expiry_timestamp_ms: int = ...,
        max_timestamp_ms: int = ...,
        token_id: str = ...,
        hmac: bytes = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class RenewDelegationTokenRequest(WireStruct):
    hmac: bytes
    renew_period_ms: int
    def __init__(
        self,
        hmac: bytes = ...,
        renew_period_ms: int = ...,
    ) -> None: ...

class RenewDelegationTokenResponse(WireStruct):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class ExpireDelegationTokenRequest(WireStruct):
    hmac: bytes
    expiry_time_period_ms: int
    def __init__(
        self,
        hmac: bytes = ...,
        expiry_time_period_ms: int = ...,
    ) -> None: ...

class ExpireDelegationTokenResponse(WireStruct):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class DescribeDelegationTokenRequest(WireStruct):
    class DescribeDelegationTokenOwner(WireStruct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    owners: Sequence[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    def __init__(
        self,
        owners: Sequence[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...,
    ) -> None: ...

class DescribeDelegationTokenResponse(WireStruct):
    class DescribedDelegationToken(WireStruct):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: Sequence[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes = ...,
            renewers: Sequence[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...,
        ) -> None: ...

    class DescribedDelegationTokenRenewer(WireStruct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    error_code: int
    tokens: Sequence[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        tokens: Sequence[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequest(WireStruct):
    class AlterShareGroupOffsetsRequestTopic(WireStruct):
        topic_name: str
        partitions: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...,
        ) -> None: ...

    class AlterShareGroupOffsetsRequestPartition(WireStruct):
        partition_index: int
        start_offset: Offset
        def __init__(
            self,
            partition_index: int = ...,
            start_offset: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponse(WireStruct):
    class AlterShareGroupOffsetsResponseTopic(WireStruct):
        topic_name: str
        topic_id: bytes
        partitions: Sequence[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...,
        ) -> None: ...

    class AlterShareGroupOffsetsResponsePartition(WireStruct):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Sequence[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(WireStruct):
    class DeleteShareGroupOffsetsRequestTopic(WireStruct):
        topic_name: str
        def __init__(
            self,
            topic_name: str = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(WireStruct):
    class DeleteShareGroupOffsetsResponseTopic(WireStruct):
        topic_name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: bytes = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Sequence[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Sequence[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...

class DeleteShareGroupStateRequest(WireStruct):
    class DeleteStateData(WireStruct):
        topic_id: bytes
        partitions: Sequence[DeleteShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[DeleteShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition: int
        def __init__(
            self,
            partition: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[DeleteShareGroupStateRequest.DeleteStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[DeleteShareGroupStateRequest.DeleteStateData] = ...,
    ) -> None: ...

class DeleteShareGroupStateResponse(WireStruct):
    class DeleteStateResult(WireStruct):
        topic_id: bytes
        partitions: Sequence[DeleteShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[DeleteShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    results: Sequence[DeleteShareGroupStateResponse.DeleteStateResult]
    def __init__(
        self,
        results: Sequence[DeleteShareGroupStateResponse.DeleteStateResult] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(WireStruct):
    class DescribeShareGroupOffsetsRequestGroup(WireStruct):
        group_id: str
        topics: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        def __init__(
            self,
            group_id: str = ...,
            topics: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsRequestTopic(WireStruct):
        topic_name: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    groups: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    def __init__(
        self,
        groups: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(WireStruct):
    class DescribeShareGroupOffsetsResponseGroup(WireStruct):
        group_id: str
        topics: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        def __init__(
            self,
            group_id: str = ...,
            topics: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponseTopic(WireStruct):
        topic_name: str
        topic_id: bytes
        partitions: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: bytes = ...,
            partitions: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponsePartition(WireStruct):
        partition_index: int
        start_offset: Offset
        leader_epoch: LeaderEpoch
        lag: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition_index: int = ...,
            start_offset: int = ...,
            leader_epoch: int = ...,
            lag: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Sequence[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...,
    ) -> None: ...

class InitializeShareGroupStateRequest(WireStruct):
    class InitializeStateData(WireStruct):
        topic_id: bytes
        partitions: Sequence[InitializeShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[InitializeShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition: int
        state_epoch: int
        start_offset: Offset
        def __init__(
            self,
            partition: int = ...,
            state_epoch: int = ...,
            start_offset: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[InitializeShareGroupStateRequest.InitializeStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[InitializeShareGroupStateRequest.InitializeStateData] = ...,
    ) -> None: ...

class InitializeShareGroupStateResponse(WireStruct):
    class InitializeStateResult(WireStruct):
        topic_id: bytes
        partitions: Sequence[InitializeShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[InitializeShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    results: Sequence[InitializeShareGroupStateResponse.InitializeStateResult]
    def __init__(
        self,
        results: Sequence[InitializeShareGroupStateResponse.InitializeStateResult] = ...,
    ) -> None: ...

class ReadShareGroupStateRequest(WireStruct):
    class ReadStateData(WireStruct):
        topic_id: bytes
        partitions: Sequence[ReadShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ReadShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition: int
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            partition: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[ReadShareGroupStateRequest.ReadStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[ReadShareGroupStateRequest.ReadStateData] = ...,
    ) -> None: ...

class ReadShareGroupStateResponse(WireStruct):
    class ReadStateResult(WireStruct):
        topic_id: bytes
        partitions: Sequence[ReadShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ReadShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: Offset
        state_batches: Sequence[ReadShareGroupStateResponse.StateBatch]
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            start_offset: int = ...,
            state_batches: Sequence[ReadShareGroupStateResponse.StateBatch] = ...,
        ) -> None: ...

    class StateBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    results: Sequence[ReadShareGroupStateResponse.ReadStateResult]
    def __init__(
        self,
        results: Sequence[ReadShareGroupStateResponse.ReadStateResult] = ...,
    ) -> None: ...

class ReadShareGroupStateSummaryRequest(WireStruct):
    class ReadStateSummaryData(WireStruct):
        topic_id: bytes
        partitions: Sequence[ReadShareGroupStateSummaryRequest.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ReadShareGroupStateSummaryRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition: int
        leader_epoch: LeaderEpoch
        def __init__(
            self,
            partition: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[ReadShareGroupStateSummaryRequest.ReadStateSummaryData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...,
    ) -> None: ...

class ReadShareGroupStateSummaryResponse(WireStruct):
    class ReadStateSummaryResult(WireStruct):
        topic_id: bytes
        partitions: Sequence[ReadShareGroupStateSummaryResponse.PartitionResult]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[ReadShareGroupStateSummaryResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: LeaderEpoch
        start_offset: Offset
        delivery_complete_count: int
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
        ) -> None: ...

    results: Sequence[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult]
    def __init__(
        self,
        results: Sequence[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...,
    ) -> None: ...

class ShareGroupDescribeRequest(WireStruct):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self,
        group_ids: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(WireStruct):
    class DescribedGroup(WireStruct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Sequence[ShareGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: Sequence[ShareGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class Member(WireStruct):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Sequence[str]
        assignment: ShareGroupDescribeResponse.Assignment
        def __init__(
            self,
            member_id: str = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: Sequence[str] = ...,
            assignment: ShareGroupDescribeResponse.Assignment | None = ...,
        ) -> None: ...

    class Assignment(WireStruct):
        topic_partitions: Sequence[ShareGroupDescribeResponse.TopicPartitions]
        def __init__(
            self,
            topic_partitions: Sequence[ShareGroupDescribeResponse.TopicPartitions] = ...,
        ) -> None: ...

    class TopicPartitions(WireStruct):
        topic_id: bytes
        topic_name: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            topic_name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Sequence[ShareGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Sequence[ShareGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class ShareGroupHeartbeatRequest(WireStruct):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: Sequence[str] | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatResponse(WireStruct):
    class Assignment(WireStruct):
        topic_partitions: Sequence[ShareGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self,
            topic_partitions: Sequence[ShareGroupHeartbeatResponse.TopicPartitions] = ...,
        ) -> None: ...

    class TopicPartitions(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupHeartbeatResponse.Assignment | None = ...,
    ) -> None: ...

class WriteShareGroupStateRequest(WireStruct):
    class WriteStateData(WireStruct):
        topic_id: bytes
        partitions: Sequence[WriteShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[WriteShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(WireStruct):
        partition: int
        state_epoch: int
        leader_epoch: LeaderEpoch
        start_offset: Offset
        delivery_complete_count: int
        state_batches: Sequence[WriteShareGroupStateRequest.StateBatch]
        def __init__(
            self,
            partition: int = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
            state_batches: Sequence[WriteShareGroupStateRequest.StateBatch] = ...,
        ) -> None: ...

    class StateBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[WriteShareGroupStateRequest.WriteStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[WriteShareGroupStateRequest.WriteStateData] = ...,
    ) -> None: ...

class WriteShareGroupStateResponse(WireStruct):
    class WriteStateResult(WireStruct):
        topic_id: bytes
        partitions: Sequence[WriteShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[WriteShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(WireStruct):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    results: Sequence[WriteShareGroupStateResponse.WriteStateResult]
    def __init__(
        self,
        results: Sequence[WriteShareGroupStateResponse.WriteStateResult] = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentValue(WireStruct):
    class TopicPartitions(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[ShareGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: Sequence[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
    ) -> None: ...

class ShareGroupMemberMetadataKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ShareGroupMemberMetadataValue(WireStruct):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    def __init__(
        self,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: Sequence[str] = ...,
    ) -> None: ...

class ShareGroupMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ShareGroupMetadataValue(WireStruct):
    epoch: int
    metadata_hash: int
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataValue(WireStruct):
    class TopicPartitionsInfo(WireStruct):
        topic_id: bytes
        topic_name: str
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            topic_name: str = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    class TopicInfo(WireStruct):
        topic_id: bytes
        topic_name: str
        def __init__(
            self,
            topic_id: bytes = ...,
            topic_name: str = ...,
        ) -> None: ...

    initializing_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    initialized_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    deleting_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicInfo]
    def __init__(
        self,
        initializing_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        initialized_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        deleting_topics: Sequence[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMemberKey(WireStruct):
    group_id: str
    member_id: str
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMemberValue(WireStruct):
    class TopicPartition(WireStruct):
        topic_id: bytes
        partitions: Sequence[int]
        def __init__(
            self,
            topic_id: bytes = ...,
            partitions: Sequence[int] = ...,
        ) -> None: ...

    topic_partitions: Sequence[ShareGroupTargetAssignmentMemberValue.TopicPartition]
    def __init__(
        self,
        topic_partitions: Sequence[ShareGroupTargetAssignmentMemberValue.TopicPartition] = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataKey(WireStruct):
    group_id: str
    def __init__(
        self,
        group_id: str = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataValue(WireStruct):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
    ) -> None: ...

class ShareSnapshotKey(WireStruct):
    group_id: str
    topic_id: bytes
    partition: int
    def __init__(
        self,
        group_id: str = ...,
        topic_id: bytes = ...,
        partition: int = ...,
    ) -> None: ...

class ShareSnapshotValue(WireStruct):
    class StateBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: Sequence[ShareSnapshotValue.StateBatch]
    def __init__(
        self,
        snapshot_epoch: int = ...,
        state_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        create_timestamp: int = ...,
        write_timestamp: int = ...,
        state_batches: Sequence[ShareSnapshotValue.StateBatch] = ...,
    ) -> None: ...

class ShareUpdateKey(WireStruct):
    group_id: str
    topic_id: bytes
    partition: int
    def __init__(
        self,
        group_id: str = ...,
        topic_id: bytes = ...,
        partition: int = ...,
    ) -> None: ...

class ShareUpdateValue(WireStruct):
    class StateBatch(WireStruct):
        first_offset: Offset
        last_offset: Offset
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int
    state_batches: Sequence[ShareUpdateValue.StateBatch]
    def __init__(
        self,
        snapshot_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        state_batches: Sequence[ShareUpdateValue.StateBatch] = ...,
    ) -> None: ...

class SaslHandshakeRequest(WireStruct):
    mechanism: str
    def __init__(
        self,
        mechanism: str = ...,
    ) -> None: ...

class SaslHandshakeResponse(WireStruct):
    error_code: int
    mechanisms: Sequence[str]
    def __init__(
        self,
        error_code: int = ...,
        mechanisms: Sequence[str] = ...,
    ) -> None: ...

class SaslAuthenticateRequest(WireStruct):
    auth_bytes: bytes
    def __init__(
        self,
        auth_bytes: bytes = ...,
    ) -> None: ...

class SaslAuthenticateResponse(WireStruct):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes = ...,
        session_lifetime_ms: int = ...,
    ) -> None: ...

class DescribeUserScramCredentialsRequest(WireStruct):
    class UserName(WireStruct):
        name: str
        def __init__(
            self,
            name: str = ...,
        ) -> None: ...

    users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None
    def __init__(
        self,
        users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(WireStruct):
    class DescribeUserScramCredentialsResult(WireStruct):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Sequence[DescribeUserScramCredentialsResponse.CredentialInfo]
        def __init__(
            self,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: Sequence[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
        ) -> None: ...

    class CredentialInfo(WireStruct):
        mechanism: int
        iterations: int
        def __init__(
            self,
            mechanism: int = ...,
            iterations: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Sequence[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...,
    ) -> None: ...

class AlterUserScramCredentialsRequest(WireStruct):
    class ScramCredentialDeletion(WireStruct):
        name: str
        mechanism: int
        def __init__(
            self,
            name: str = ...,
            mechanism: int = ...,
        ) -> None: ...

    class ScramCredentialUpsertion(WireStruct):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(
            self,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes = ...,
            salted_password: bytes = ...,
        ) -> None: ...

    deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    def __init__(
        self,
        deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
    ) -> None: ...

class AlterUserScramCredentialsResponse(WireStruct):
    class AlterUserScramCredentialsResult(WireStruct):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Sequence[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...,
    ) -> None: ...

class ExtensionRequest(WireStruct):
    kind: str
    body: bytes
    def __init__(
        self,
        kind: str = ...,
        body: bytes = ...,
    ) -> None: ...

class ExtensionResponse(WireStruct):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    body: bytes | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        body: bytes | None = ...,
    ) -> None: ...
