"""Wire tables: the records of share groups (notation: `kafkalite.protocol.schema`)."""

TABLE = """
ShareFetchRequest 1-2 0+ 78
  group_id string 0+ ?0+ =null
  member_id string 0+ ?0+
  share_session_epoch int32 0+
  max_wait_ms int32 0+
  min_bytes int32 0+
  max_bytes int32 0+ =2147483647
  max_records int32 1+
  batch_size int32 1+
  share_acquire_mode int8 2+
  is_renew_ack bool 2+
  topics []FetchTopic 0+
    topic_id uuid 0+
    partitions []FetchPartition 0+
      partition_index int32 0+
      acknowledgement_batches []AcknowledgementBatch 0+
        first_offset int64 0+
        last_offset int64 0+
        acknowledge_types []int8 0+
  forgotten_topics_data []ForgottenTopic 0+
    topic_id uuid 0+
    partitions []int32 0+

ShareFetchResponse 1-2 0+ 78
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  acquisition_lock_timeout_ms int32 1+
  responses []ShareFetchableTopicResponse 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition_index int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      acknowledge_error_code int16 0+
      acknowledge_error_message string 0+ ?0+ =null
      current_leader LeaderIdAndEpoch 0+
        leader_id int32 0+
        leader_epoch int32 0+
      records records 0+
      acquired_records []AcquiredRecords 0+
        first_offset int64 0+
        last_offset int64 0+
        delivery_count int16 0+
  node_endpoints []NodeEndpoint 0+
    node_id int32 0+
    host string 0+
    port int32 0+
    rack string 0+ ?0+ =null

ShareAcknowledgeRequest 1-2 0+ 79
  group_id string 0+ ?0+ =null
  member_id string 0+ ?0+
  share_session_epoch int32 0+
  is_renew_ack bool 2+
  topics []AcknowledgeTopic 0+
    topic_id uuid 0+
    partitions []AcknowledgePartition 0+
      partition_index int32 0+
      acknowledgement_batches []AcknowledgementBatch 0+
        first_offset int64 0+
        last_offset int64 0+
        acknowledge_types []int8 0+

ShareAcknowledgeResponse 1-2 0+ 79
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  acquisition_lock_timeout_ms int32 2+
  responses []ShareAcknowledgeTopicResponse 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition_index int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      current_leader LeaderIdAndEpoch 0+
        leader_id int32 0+
        leader_epoch int32 0+
  node_endpoints []NodeEndpoint 0+
    node_id int32 0+
    host string 0+
    port int32 0+
    rack string 0+ ?0+ =null
"""
