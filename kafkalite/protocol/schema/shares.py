"""Wire tables: share groups, the state of what they consume, and their records (notation: `kafkalite.protocol.schema`)."""

TABLE = """
AlterShareGroupOffsetsRequest 0 0+ 91
  group_id string 0+
  topics []AlterShareGroupOffsetsRequestTopic 0+
    topic_name string 0+
    partitions []AlterShareGroupOffsetsRequestPartition 0+
      partition_index int32 0+
      start_offset int64 0+

AlterShareGroupOffsetsResponse 0 0+ 91
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  responses []AlterShareGroupOffsetsResponseTopic 0+
    topic_name string 0+
    topic_id uuid 0+
    partitions []AlterShareGroupOffsetsResponsePartition 0+
      partition_index int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null

DeleteShareGroupOffsetsRequest 0 0+ 92
  group_id string 0+
  topics []DeleteShareGroupOffsetsRequestTopic 0+
    topic_name string 0+

DeleteShareGroupOffsetsResponse 0 0+ 92
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  responses []DeleteShareGroupOffsetsResponseTopic 0+
    topic_name string 0+
    topic_id uuid 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null

DeleteShareGroupStateRequest 0 0+ 86
  group_id string 0+
  topics []DeleteStateData 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition int32 0+

DeleteShareGroupStateResponse 0 0+ 86
  results []DeleteStateResult 0+
    topic_id uuid 0+
    partitions []PartitionResult 0+
      partition int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null

DescribeShareGroupOffsetsRequest 0-1 0+ 90
  groups []DescribeShareGroupOffsetsRequestGroup 0+
    group_id string 0+
    topics []DescribeShareGroupOffsetsRequestTopic 0+ ?0+
      topic_name string 0+
      partitions []int32 0+

DescribeShareGroupOffsetsResponse 0-1 0+ 90
  throttle_time_ms int32 0+
  groups []DescribeShareGroupOffsetsResponseGroup 0+
    group_id string 0+
    topics []DescribeShareGroupOffsetsResponseTopic 0+
      topic_name string 0+
      topic_id uuid 0+
      partitions []DescribeShareGroupOffsetsResponsePartition 0+
        partition_index int32 0+
        start_offset int64 0+
        leader_epoch int32 0+
        lag int64 1+ =-1
        error_code int16 0+
        error_message string 0+ ?0+ =null
    error_code int16 0+
    error_message string 0+ ?0+ =null

InitializeShareGroupStateRequest 0 0+ 83
  group_id string 0+
  topics []InitializeStateData 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition int32 0+
      state_epoch int32 0+
      start_offset int64 0+

InitializeShareGroupStateResponse 0 0+ 83
  results []InitializeStateResult 0+
    topic_id uuid 0+
    partitions []PartitionResult 0+
      partition int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null

ReadShareGroupStateRequest 0 0+ 84
  group_id string 0+
  topics []ReadStateData 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition int32 0+
      leader_epoch int32 0+

ReadShareGroupStateResponse 0 0+ 84
  results []ReadStateResult 0+
    topic_id uuid 0+
    partitions []PartitionResult 0+
      partition int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      state_epoch int32 0+
      start_offset int64 0+
      state_batches []StateBatch 0+
        first_offset int64 0+
        last_offset int64 0+
        delivery_state int8 0+
        delivery_count int16 0+

ReadShareGroupStateSummaryRequest 0-1 0+ 87
  group_id string 0+
  topics []ReadStateSummaryData 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition int32 0+
      leader_epoch int32 0+

ReadShareGroupStateSummaryResponse 0-1 0+ 87
  results []ReadStateSummaryResult 0+
    topic_id uuid 0+
    partitions []PartitionResult 0+
      partition int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      state_epoch int32 0+
      leader_epoch int32 0+
      start_offset int64 0+
      delivery_complete_count int32 1+ =-1

ShareGroupDescribeRequest 1 0+ 77
  group_ids []string 0+
  include_authorized_operations bool 0+

ShareGroupDescribeResponse 1 0+ 77
  throttle_time_ms int32 0+
  groups []DescribedGroup 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null
    group_id string 0+
    group_state string 0+
    group_epoch int32 0+
    assignment_epoch int32 0+
    assignor_name string 0+
    members []Member 0+
      member_id string 0+
      rack_id string 0+ ?0+ =null
      member_epoch int32 0+
      client_id string 0+
      client_host string 0+
      subscribed_topic_names []string 0+
      assignment Assignment 0+
        topic_partitions []TopicPartitions 0+
          topic_id uuid 0+
          topic_name string 0+
          partitions []int32 0+
    authorized_operations int32 0+ =-2147483648

ShareGroupHeartbeatRequest 1 0+ 76
  group_id string 0+
  member_id string 0+
  member_epoch int32 0+
  rack_id string 0+ ?0+ =null
  subscribed_topic_names []string 0+ ?0+ =null

ShareGroupHeartbeatResponse 1 0+ 76
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  member_id string 0+ ?0+ =null
  member_epoch int32 0+
  heartbeat_interval_ms int32 0+
  assignment Assignment 0+ ?0+ =null
    topic_partitions []TopicPartitions 0+
      topic_id uuid 0+
      partitions []int32 0+

WriteShareGroupStateRequest 0-1 0+ 85
  group_id string 0+
  topics []WriteStateData 0+
    topic_id uuid 0+
    partitions []PartitionData 0+
      partition int32 0+
      state_epoch int32 0+
      leader_epoch int32 0+
      start_offset int64 0+
      delivery_complete_count int32 1+ =-1
      state_batches []StateBatch 0+
        first_offset int64 0+
        last_offset int64 0+
        delivery_state int8 0+
        delivery_count int16 0+

WriteShareGroupStateResponse 0-1 0+ 85
  results []WriteStateResult 0+
    topic_id uuid 0+
    partitions []PartitionResult 0+
      partition int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null

ShareGroupCurrentMemberAssignmentKey 14 none
  group_id string 14
  member_id string 14

ShareGroupCurrentMemberAssignmentValue 0 0+
  member_epoch int32 0+
  previous_member_epoch int32 0+
  state int8 0+
  assigned_partitions []TopicPartitions 0+
    topic_id uuid 0+
    partitions []int32 0+

ShareGroupMemberMetadataKey 10 none
  group_id string 10
  member_id string 10

ShareGroupMemberMetadataValue 0 0+
  rack_id string 0+ ?0+
  client_id string 0+
  client_host string 0+
  subscribed_topic_names []string 0+

ShareGroupMetadataKey 11 none
  group_id string 11

ShareGroupMetadataValue 0 0+
  epoch int32 0+
  metadata_hash int64 0+

ShareGroupStatePartitionMetadataKey 15 none
  group_id string 15

ShareGroupStatePartitionMetadataValue 0 0+
  initializing_topics []TopicPartitionsInfo 0+
    topic_id uuid 0+
    topic_name string 0+
    partitions []int32 0+
  initialized_topics []TopicPartitionsInfo 0+
    topic_id uuid 0+
    topic_name string 0+
    partitions []int32 0+
  deleting_topics []TopicInfo 0+
    topic_id uuid 0+
    topic_name string 0+

ShareGroupTargetAssignmentMemberKey 13 none
  group_id string 13
  member_id string 13

ShareGroupTargetAssignmentMemberValue 0 0+
  topic_partitions []TopicPartition 0+
    topic_id uuid 0+
    partitions []int32 0+

ShareGroupTargetAssignmentMetadataKey 12 none
  group_id string 12

ShareGroupTargetAssignmentMetadataValue 0 0+
  assignment_epoch int32 0+
  assignment_timestamp int64 0+ =0 #0

ShareSnapshotKey 0 none
  group_id string 0
  topic_id uuid 0
  partition int32 0

ShareSnapshotValue 0 0+
  snapshot_epoch int32 0+
  state_epoch int32 0+
  leader_epoch int32 0+
  start_offset int64 0+
  delivery_complete_count int32 0+ =-1 #0
  create_timestamp int64 0+
  write_timestamp int64 0+
  state_batches []StateBatch 0+
    first_offset int64 0+
    last_offset int64 0+
    delivery_state int8 0+
    delivery_count int16 0+

ShareUpdateKey 1 none
  group_id string 1
  topic_id uuid 1
  partition int32 1

ShareUpdateValue 0 0+
  snapshot_epoch int32 0+
  leader_epoch int32 0+
  start_offset int64 0+
  delivery_complete_count int32 0+ =-1 #0
  state_batches []StateBatch 0+
    first_offset int64 0+
    last_offset int64 0+
    delivery_state int8 0+
    delivery_count int16 0+
"""
