"""Wire tables: headers, and what the internal topics and the consumer protocol hold (notation: `kafkalite.protocol.schema`)."""

TABLE = """
RequestHeader 0-2 2+
  request_api_key int16 0+
  request_api_version int16 0+
  correlation_id int32 0+
  client_id string 1+ ?1+ ~none

ResponseHeader 0-1 1+
  correlation_id int32 0+

ConsumerProtocolSubscription 0-3 none
  topics []string 0+
  user_data bytes 0+ ?0+ =null
  owned_partitions []TopicPartition 1+
    topic string 1+
    partitions []int32 1+
  generation_id int32 2+ =-1
  rack_id string 3+ ?3+ =null

ConsumerProtocolAssignment 0-3 none
  assigned_partitions []TopicPartition 0+
    topic string 0+
    partitions []int32 0+
  user_data bytes 0+ ?0+ =null

OffsetCommitKey 0-1 none
  group string 0-1
  topic string 0-1
  partition int32 0-1

OffsetCommitValue 0-4 4+
  offset int64 0+
  leader_epoch int32 3+ =-1
  metadata string 0+
  commit_timestamp int64 0+
  expire_timestamp int64 1 =-1
  topic_id uuid 4+ #0

GroupMetadataKey 2 none
  group string 2

GroupMetadataValue 0-4 4+
  protocol_type string 0+
  generation int32 0+
  protocol string 0+ ?0+
  leader string 0+ ?0+
  current_state_timestamp int64 2+ =-1
  members []MemberMetadata 0+
    member_id string 0+
    group_instance_id string 3+ ?3+ =null
    client_id string 0+
    client_host string 0+
    rebalance_timeout int32 1+ =-1
    session_timeout int32 0+
    subscription bytes 0+
    assignment bytes 0+

ConsumerGroupMetadataKey 3 none
  group_id string 3

ConsumerGroupMetadataValue 0 0+
  epoch int32 0+
  metadata_hash int64 0+ =0 #0

ConsumerGroupPartitionMetadataKey 4 none
  group_id string 4

ConsumerGroupMemberMetadataKey 5 none
  group_id string 5
  member_id string 5

ConsumerGroupMemberMetadataValue 0 0+
  instance_id string 0+ ?0+
  rack_id string 0+ ?0+
  client_id string 0+
  client_host string 0+
  subscribed_topic_names []string 0+
  subscribed_topic_regex string 0+ ?0+
  rebalance_timeout_ms int32 0+ =-1
  server_assignor string 0+ ?0+
  classic_member_metadata ClassicMemberMetadata 0+ ?0+ =null #0
    session_timeout_ms int32 0+
    supported_protocols []ClassicProtocol 0+
      name string 0+
      metadata bytes 0+

ConsumerGroupTargetAssignmentMetadataKey 6 none
  group_id string 6

ConsumerGroupTargetAssignmentMetadataValue 0 0+
  assignment_epoch int32 0+
  assignment_timestamp int64 0+ =0 #0

ConsumerGroupTargetAssignmentMemberKey 7 none
  group_id string 7
  member_id string 7

ConsumerGroupTargetAssignmentMemberValue 0 0+
  topic_partitions []TopicPartition 0+
    topic_id uuid 0+
    partitions []int32 0+

ConsumerGroupCurrentMemberAssignmentKey 8 none
  group_id string 8
  member_id string 8

ConsumerGroupCurrentMemberAssignmentValue 0 0+
  member_epoch int32 0+
  previous_member_epoch int32 0+
  state int8 0+
  assigned_partitions []TopicPartitions 0+
    topic_id uuid 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  partitions_pending_revocation []PendingRevocation 0+
    topic_id uuid 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0

ConsumerGroupRegularExpressionKey 16 none
  group_id string 16
  regular_expression string 16

ConsumerGroupRegularExpressionValue 0 0+
  topics []string 0+
  version int64 0+
  timestamp int64 0+

TransactionLogKey 0 none
  transactional_id string 0

TransactionLogValue 0-1 1+
  producer_id int64 0+
  previous_producer_id int64 1+ =-1 #0
  next_producer_id int64 1+ =-1 #1
  producer_epoch int16 0+
  transaction_timeout_ms int32 0+
  transaction_status int8 0+
  transaction_partitions []PartitionsSchema 0+ ?0+
    topic string 0+
    partition_ids []int32 0+
  transaction_last_update_timestamp_ms int64 0+
  transaction_start_timestamp_ms int64 0+
  client_transaction_version int16 1+ =0 #2

TransactionGroupKey 0 none
  group string 0

TransactionGroupValue 0 none
  owner string 0
  version int64 0
  updated_ms int64 0
"""
