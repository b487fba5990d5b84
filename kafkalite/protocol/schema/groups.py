"""Wire tables: consumer groups and their offsets (notation: `kafkalite.protocol.schema`)."""

TABLE = """
FindCoordinatorRequest 0-6 3+ 10
  key string 0-3
  key_type int8 1+ =0
  coordinator_keys []string 4+

FindCoordinatorResponse 0-6 3+ 10
  throttle_time_ms int32 1+
  error_code int16 0-3
  error_message string 1-3 ?1-3
  node_id int32 0-3
  host string 0-3
  port int32 0-3
  coordinators []Coordinator 4+
    key string 4+
    node_id int32 4+
    host string 4+
    port int32 4+
    error_code int16 4+
    error_message string 4+ ?4+

JoinGroupRequest 0-9 6+ 11
  group_id string 0+
  session_timeout_ms int32 0+
  rebalance_timeout_ms int32 1+ =-1
  member_id string 0+
  group_instance_id string 5+ ?5+ =null
  protocol_type string 0+
  protocols []JoinGroupRequestProtocol 0+
    name string 0+
    metadata bytes 0+
  reason string 8+ ?8+ =null

JoinGroupResponse 0-9 6+ 11
  throttle_time_ms int32 2+
  error_code int16 0+
  generation_id int32 0+ =-1
  protocol_type string 7+ ?7+ =null
  protocol_name string 0+ ?7+
  leader string 0+
  skip_assignment bool 9+ =false
  member_id string 0+
  members []JoinGroupResponseMember 0+
    member_id string 0+
    group_instance_id string 5+ ?5+ =null
    metadata bytes 0+

SyncGroupRequest 0-5 4+ 14
  group_id string 0+
  generation_id int32 0+
  member_id string 0+
  group_instance_id string 3+ ?3+ =null
  protocol_type string 5+ ?5+ =null
  protocol_name string 5+ ?5+ =null
  assignments []SyncGroupRequestAssignment 0+
    member_id string 0+
    assignment bytes 0+

SyncGroupResponse 0-5 4+ 14
  throttle_time_ms int32 1+
  error_code int16 0+
  protocol_type string 5+ ?5+ =null
  protocol_name string 5+ ?5+ =null
  assignment bytes 0+

HeartbeatRequest 0-4 4+ 12
  group_id string 0+
  generation_id int32 0+
  member_id string 0+
  group_instance_id string 3+ ?3+ =null

HeartbeatResponse 0-4 4+ 12
  throttle_time_ms int32 1+
  error_code int16 0+

LeaveGroupRequest 0-5 4+ 13
  group_id string 0+
  member_id string 0-2
  members []MemberIdentity 3+
    member_id string 3+
    group_instance_id string 3+ ?3+ =null
    reason string 5+ ?5+ =null

LeaveGroupResponse 0-5 4+ 13
  throttle_time_ms int32 1+
  error_code int16 0+
  members []MemberResponse 3+
    member_id string 3+
    group_instance_id string 3+ ?3+
    error_code int16 3+

OffsetCommitRequest 0-10 8+ 8
  group_id string 0+
  generation_id_or_member_epoch int32 1+ =-1
  member_id string 1+
  group_instance_id string 7+ ?7+ =null
  retention_time_ms int64 2-4 =-1
  topics []OffsetCommitRequestTopic 0+
    name string 0-9
    topic_id uuid 10+
    partitions []OffsetCommitRequestPartition 0+
      partition_index int32 0+
      committed_offset int64 0+
      committed_leader_epoch int32 6+ =-1
      commit_timestamp int64 1 =-1
      committed_metadata string 0+ ?0+

OffsetCommitResponse 0-10 8+ 8
  throttle_time_ms int32 3+
  topics []OffsetCommitResponseTopic 0+
    name string 0-9
    topic_id uuid 10+
    partitions []OffsetCommitResponsePartition 0+
      partition_index int32 0+
      error_code int16 0+

OffsetFetchRequest 0-10 6+ 9
  group_id string 0-7
  topics []OffsetFetchRequestTopic 0-7 ?2-7
    name string 0-7
    partition_indexes []int32 0-7
  groups []OffsetFetchRequestGroup 8+
    group_id string 8+
    member_id string 9+ ?9+ =null
    member_epoch int32 9+ =-1
    topics []OffsetFetchRequestTopics 8+ ?8+
      name string 8-9
      topic_id uuid 10+
      partition_indexes []int32 8+
  require_stable bool 7+ =false

OffsetFetchResponse 0-10 6+ 9
  throttle_time_ms int32 3+
  topics []OffsetFetchResponseTopic 0-7
    name string 0-7
    partitions []OffsetFetchResponsePartition 0-7
      partition_index int32 0-7
      committed_offset int64 0-7
      committed_leader_epoch int32 5-7 =-1
      metadata string 0-7 ?0-7
      error_code int16 0-7
  error_code int16 2-7 =0
  groups []OffsetFetchResponseGroup 8+
    group_id string 8+
    topics []OffsetFetchResponseTopics 8+
      name string 8-9
      topic_id uuid 10+
      partitions []OffsetFetchResponsePartitions 8+
        partition_index int32 8+
        committed_offset int64 8+
        committed_leader_epoch int32 8+ =-1
        metadata string 8+ ?8+
        error_code int16 8+
    error_code int16 8+ =0

OffsetDeleteRequest 0 none 47
  group_id string 0+
  topics []OffsetDeleteRequestTopic 0+
    name string 0+
    partitions []OffsetDeleteRequestPartition 0+
      partition_index int32 0+

OffsetDeleteResponse 0 none 47
  error_code int16 0+
  throttle_time_ms int32 0+
  topics []OffsetDeleteResponseTopic 0+
    name string 0+
    partitions []OffsetDeleteResponsePartition 0+
      partition_index int32 0+
      error_code int16 0+

ListGroupsRequest 0-5 3+ 16
  states_filter []string 4+
  types_filter []string 5+

ListGroupsResponse 0-5 3+ 16
  throttle_time_ms int32 1+
  error_code int16 0+
  groups []ListedGroup 0+
    group_id string 0+
    protocol_type string 0+
    group_state string 4+
    group_type string 5+

DescribeGroupsRequest 0-6 5+ 15
  groups []string 0+
  include_authorized_operations bool 3+

DescribeGroupsResponse 0-6 5+ 15
  throttle_time_ms int32 1+
  groups []DescribedGroup 0+
    error_code int16 0+
    error_message string 6+ ?6+ =null
    group_id string 0+
    group_state string 0+
    protocol_type string 0+
    protocol_data string 0+
    members []DescribedGroupMember 0+
      member_id string 0+
      group_instance_id string 4+ ?4+ =null
      client_id string 0+
      client_host string 0+
      member_metadata bytes 0+
      member_assignment bytes 0+
    authorized_operations int32 3+ =-2147483648

DeleteGroupsRequest 0-3 2+ 42
  groups_names []string 0+

DeleteGroupsResponse 0-3 2+ 42
  throttle_time_ms int32 0+
  results []DeletableGroupResult 0+
    group_id string 0+
    error_code int16 0+
    error_message string 3+ ?3+ =null

ConsumerGroupHeartbeatRequest 0-1 0+ 68
  group_id string 0+
  member_id string 0+
  member_epoch int32 0+
  instance_id string 0+ ?0+ =null
  rack_id string 0+ ?0+ =null
  rebalance_timeout_ms int32 0+ =-1
  subscribed_topic_names []string 0+ ?0+ =null
  subscribed_topic_regex string 1+ ?1+ =null
  server_assignor string 0+ ?0+ =null
  topic_partitions []TopicPartitions 0+ ?0+ =null
    topic_id uuid 0+
    partitions []int32 0+

ConsumerGroupHeartbeatResponse 0-1 0+ 68
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

ConsumerGroupDescribeRequest 0-1 0+ 69
  group_ids []string 0+
  include_authorized_operations bool 0+

ConsumerGroupDescribeResponse 0-1 0+ 69
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
      instance_id string 0+ ?0+ =null
      rack_id string 0+ ?0+ =null
      member_epoch int32 0+
      client_id string 0+
      client_host string 0+
      subscribed_topic_names []string 0+
      subscribed_topic_regex string 0+ ?0+ =null
      assignment Assignment 0+
        topic_partitions []TopicPartitions 0+
          topic_id uuid 0+
          topic_name string 0+
          partitions []int32 0+
      target_assignment TargetAssignment 0+
        topic_partitions []TargetTopicPartitions 0+
          topic_id uuid 0+
          topic_name string 0+
          partitions []int32 0+
      member_type int8 1+ =-1
    authorized_operations int32 0+ =-2147483648
"""
