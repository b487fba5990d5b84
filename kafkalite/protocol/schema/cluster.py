"""Wire tables: the cluster as clients see it (notation: `kafkalite.protocol.schema`)."""

TABLE = """
ApiVersionsRequest 0-5 3+ 18
  client_software_name string 3+
  client_software_version string 3+
  cluster_id string 5+ ?5+ =null
  node_id int32 5+ =-1

ApiVersionsResponse 0-5 3+ 18
  error_code int16 0+
  api_keys []ApiVersion 0+
    api_key int16 0+
    min_version int16 0+
    max_version int16 0+
  throttle_time_ms int32 1+
  supported_features []SupportedFeatureKey 3+ #0
    name string 3+
    min_version int16 3+
    max_version int16 3+
  finalized_features_epoch int64 3+ =-1 #1
  finalized_features []FinalizedFeatureKey 3+ #2
    name string 3+
    max_version_level int16 3+
    min_version_level int16 3+
  zk_migration_ready bool 3+ =false #3

MetadataRequest 0-13 9+ 3
  topics []MetadataRequestTopic 0+ ?1+
    topic_id uuid 10+
    name string 0+ ?10+
  allow_auto_topic_creation bool 4+ =true
  include_cluster_authorized_operations bool 8-10
  include_topic_authorized_operations bool 8+

MetadataResponse 0-13 9+ 3
  throttle_time_ms int32 3+
  brokers []MetadataResponseBroker 0+
    node_id int32 0+
    host string 0+
    port int32 0+
    rack string 1+ ?1+ =null
  cluster_id string 2+ ?2+ =null
  controller_id int32 1+ =-1
  topics []MetadataResponseTopic 0+
    error_code int16 0+
    name string 0+ ?12+
    topic_id uuid 10+
    is_internal bool 1+ =false
    partitions []MetadataResponsePartition 0+
      error_code int16 0+
      partition_index int32 0+
      leader_id int32 0+
      leader_epoch int32 7+ =-1
      replica_nodes []int32 0+
      isr_nodes []int32 0+
      offline_replicas []int32 5+
    topic_authorized_operations int32 8+ =-2147483648
  cluster_authorized_operations int32 8-10 =-2147483648
  error_code int16 13+

DescribeClusterRequest 0-2 0+ 60
  include_cluster_authorized_operations bool 0+
  endpoint_type int8 1+ =1
  include_fenced_brokers bool 2+

DescribeClusterResponse 0-2 0+ 60
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  endpoint_type int8 1+ =1
  cluster_id string 0+
  controller_id int32 0+ =-1
  brokers []DescribeClusterBroker 0+
    broker_id int32 0+
    host string 0+
    port int32 0+
    rack string 0+ ?0+ =null
    is_fenced bool 2+
  cluster_authorized_operations int32 0+ =-2147483648

DescribeTopicPartitionsRequest 0 0+ 75
  topics []TopicRequest 0+
    name string 0+
  response_partition_limit int32 0+ =2000
  cursor Cursor 0+ ?0+ =null
    topic_name string 0+
    partition_index int32 0+

DescribeTopicPartitionsResponse 0 0+ 75
  throttle_time_ms int32 0+
  topics []DescribeTopicPartitionsResponseTopic 0+
    error_code int16 0+
    name string 0+ ?0+
    topic_id uuid 0+
    is_internal bool 0+ =false
    partitions []DescribeTopicPartitionsResponsePartition 0+
      error_code int16 0+
      partition_index int32 0+
      leader_id int32 0+
      leader_epoch int32 0+ =-1
      replica_nodes []int32 0+
      isr_nodes []int32 0+
      eligible_leader_replicas []int32 0+ ?0+ =null
      last_known_elr []int32 0+ ?0+ =null
      offline_replicas []int32 0+
    topic_authorized_operations int32 0+ =-2147483648
  next_cursor Cursor 0+ ?0+ =null
    topic_name string 0+
    partition_index int32 0+

DescribeLogDirsRequest 0-5 2+ 35
  topics []DescribableLogDirTopic 0+ ?0+
    topic string 0+
    partitions []int32 0+

DescribeLogDirsResponse 0-5 2+ 35
  throttle_time_ms int32 0+
  error_code int16 3+
  results []DescribeLogDirsResult 0+
    error_code int16 0+
    log_dir string 0+
    topics []DescribeLogDirsTopic 0+
      name string 0+
      partitions []DescribeLogDirsPartition 0+
        partition_index int32 0+
        partition_size int64 0+
        offset_lag int64 0+
        is_future_key bool 0+
    total_bytes int64 4+ =-1
    usable_bytes int64 4+ =-1
    is_cordoned bool 5+

AlterReplicaLogDirsRequest 0-2 2+ 34
  dirs []AlterReplicaLogDir 0+
    path string 0+
    topics []AlterReplicaLogDirTopic 0+
      name string 0+
      partitions []int32 0+

AlterReplicaLogDirsResponse 0-2 2+ 34
  throttle_time_ms int32 0+
  results []AlterReplicaLogDirTopicResult 0+
    topic_name string 0+
    partitions []AlterReplicaLogDirPartitionResult 0+
      partition_index int32 0+
      error_code int16 0+
"""
