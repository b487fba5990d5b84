"""Wire tables: reading and writing partitions (notation: `kafkalite.protocol.schema`)."""

TABLE = """
ProduceRequest 0-13 9+ 0
  transactional_id string 3+ ?3+ =null
  acks int16 0+
  timeout_ms int32 0+
  topic_data []TopicProduceData 0+
    name string 0-12
    topic_id uuid 13+
    partition_data []PartitionProduceData 0+
      index int32 0+
      records records 0+ ?0+

ProduceResponse 0-13 9+ 0
  responses []TopicProduceResponse 0+
    name string 0-12
    topic_id uuid 13+
    partition_responses []PartitionProduceResponse 0+
      index int32 0+
      error_code int16 0+
      base_offset int64 0+
      log_append_time_ms int64 2+ =-1
      log_start_offset int64 5+ =-1
      record_errors []BatchIndexAndErrorMessage 8+
        batch_index int32 8+
        batch_index_error_message string 8+ ?8+ =null
      error_message string 8+ ?8+ =null
      current_leader LeaderIdAndEpoch 10+ #0
        leader_id int32 10+ =-1
        leader_epoch int32 10+ =-1
  throttle_time_ms int32 1+ =0
  node_endpoints []NodeEndpoint 10+ #0
    node_id int32 10+
    host string 10+
    port int32 10+
    rack string 10+ ?10+ =null

FetchRequest 0-18 12+ 1
  cluster_id string 12+ ?12+ =null #0
  replica_id int32 0-14 =-1
  replica_state ReplicaState 15+ #1
    replica_id int32 15+ =-1
    replica_epoch int64 15+ =-1
  max_wait_ms int32 0+
  min_bytes int32 0+
  max_bytes int32 3+ =2147483647
  isolation_level int8 4+ =0
  session_id int32 7+ =0
  session_epoch int32 7+ =-1
  topics []FetchTopic 0+
    topic string 0-12
    topic_id uuid 13+
    partitions []FetchPartition 0+
      partition int32 0+
      current_leader_epoch int32 9+ =-1
      fetch_offset int64 0+
      last_fetched_epoch int32 12+ =-1
      log_start_offset int64 5+ =-1
      partition_max_bytes int32 0+
      replica_directory_id uuid 17+ #0
      high_watermark int64 18+ =9223372036854775807 #1
  forgotten_topics_data []ForgottenTopic 7+
    topic string 7-12
    topic_id uuid 13+
    partitions []int32 7+
  rack_id string 11+

FetchResponse 0-18 12+ 1
  throttle_time_ms int32 1+
  error_code int16 7+
  session_id int32 7+ =0
  responses []FetchableTopicResponse 0+
    topic string 0-12
    topic_id uuid 13+
    partitions []PartitionData 0+
      partition_index int32 0+
      error_code int16 0+
      high_watermark int64 0+
      last_stable_offset int64 4+ =-1
      log_start_offset int64 5+ =-1
      diverging_epoch EpochEndOffset 12+ #0
        epoch int32 12+ =-1
        end_offset int64 12+ =-1
      current_leader LeaderIdAndEpoch 12+ #1
        leader_id int32 12+ =-1
        leader_epoch int32 12+ =-1
      snapshot_id SnapshotId 12+ #2
        end_offset int64 0+ =-1
        epoch int32 0+ =-1
      aborted_transactions []AbortedTransaction 4+ ?4+
        producer_id int64 4+
        first_offset int64 4+
      preferred_read_replica int32 11+ =-1
      records records 0+ ?0+
  node_endpoints []NodeEndpoint 16+ #0
    node_id int32 16+
    host string 16+
    port int32 16+
    rack string 16+ ?16+ =null

ListOffsetsRequest 0-11 6+ 2
  replica_id int32 0+
  isolation_level int8 2+
  topics []ListOffsetsTopic 0+
    name string 0+
    partitions []ListOffsetsPartition 0+
      partition_index int32 0+
      current_leader_epoch int32 4+ =-1
      timestamp int64 0+
      max_num_offsets int32 0 =1
  timeout_ms int32 10+

ListOffsetsResponse 0-11 6+ 2
  throttle_time_ms int32 2+
  topics []ListOffsetsTopicResponse 0+
    name string 0+
    partitions []ListOffsetsPartitionResponse 0+
      partition_index int32 0+
      error_code int16 0+
      old_style_offsets []int64 0
      timestamp int64 1+ =-1
      offset int64 1+ =-1
      leader_epoch int32 4+ =-1

OffsetForLeaderEpochRequest 0-4 4+ 23
  replica_id int32 3+ =-2
  topics []OffsetForLeaderTopic 0+
    topic string 0+
    partitions []OffsetForLeaderPartition 0+
      partition int32 0+
      current_leader_epoch int32 2+ =-1
      leader_epoch int32 0+

OffsetForLeaderEpochResponse 0-4 4+ 23
  throttle_time_ms int32 2+
  topics []OffsetForLeaderTopicResult 0+
    topic string 0+
    partitions []EpochEndOffset 0+
      error_code int16 0+
      partition int32 0+
      leader_epoch int32 1+ =-1
      end_offset int64 0+ =-1

DeleteRecordsRequest 0-2 2+ 21
  topics []DeleteRecordsTopic 0+
    name string 0+
    partitions []DeleteRecordsPartition 0+
      partition_index int32 0+
      offset int64 0+
  timeout_ms int32 0+

DeleteRecordsResponse 0-2 2+ 21
  throttle_time_ms int32 0+
  topics []DeleteRecordsTopicResult 0+
    name string 0+
    partitions []DeleteRecordsPartitionResult 0+
      partition_index int32 0+
      low_watermark int64 0+
      error_code int16 0+
"""
