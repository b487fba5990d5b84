"""Wire tables: streams groups and their records (KIP-1071, KIP-1331; notation: `kafkalite.protocol.schema`)."""

TABLE = """
StreamsGroupHeartbeatRequest 0-1 0+ 88
  group_id string 0+
  member_id string 0+
  member_epoch int32 0+
  endpoint_information_epoch int32 0+
  instance_id string 0+ ?0+ =null
  rack_id string 0+ ?0+ =null
  rebalance_timeout_ms int32 0+ =-1
  topology Topology 0+ ?0+ =null
    epoch int32 0+
    subtopologies []Subtopology 0+
      subtopology_id string 0+
      source_topics []string 0+
      source_topic_regex []string 0+
      state_changelog_topics []TopicInfo 0+
        name string 0+
        partitions int32 0+
        replication_factor int16 0+
        topic_configs []KeyValue 0+
          key string 0+
          value string 0+
      repartition_sink_topics []string 0+
      repartition_source_topics []TopicInfo 0+
        name string 0+
        partitions int32 0+
        replication_factor int16 0+
        topic_configs []KeyValue 0+
          key string 0+
          value string 0+
      copartition_groups []CopartitionGroup 0+
        source_topics []int16 0+
        source_topic_regex []int16 0+
        repartition_source_topics []int16 0+
  active_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  standby_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  warmup_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  process_id string 0+ ?0+ =null
  user_endpoint Endpoint 0+ ?0+ =null
    host string 0+
    port uint16 0+
  client_tags []KeyValue 0+ ?0+ =null
    key string 0+
    value string 0+
  task_offsets []TaskOffset 0+ ?0+ =null
    subtopology_id string 0+
    partition int32 0+
    offset int64 0+
  task_end_offsets []TaskOffset 0+ ?0+ =null
    subtopology_id string 0+
    partition int32 0+
    offset int64 0+
  shutdown_application bool 0+ =false

StreamsGroupHeartbeatResponse 0-1 0+ 88
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  member_id string 0+
  member_epoch int32 0+
  heartbeat_interval_ms int32 0+
  acceptable_recovery_lag_legacy int32 0
  task_offset_interval_ms int32 0+
  acceptable_recovery_lag int64 1+ =-1
  status []Status 0+ ?0+
    status_code int8 0+
    status_detail string 0+
  active_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  standby_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  warmup_tasks []TaskIds 0+ ?0+ =null
    subtopology_id string 0+
    partitions []int32 0+
  topology_description_required bool 1+ =false
  endpoint_information_epoch int32 0+
  partitions_by_user_endpoint []EndpointToPartitions 0+ ?0+ =null
    user_endpoint Endpoint 0+
      host string 0+
      port uint16 0+
    active_partitions []TopicPartition 0+
      topic string 0+
      partitions []int32 0+
    standby_partitions []TopicPartition 0+
      topic string 0+
      partitions []int32 0+

StreamsGroupDescribeRequest 0-1 0+ 89
  group_ids []string 0+
  include_authorized_operations bool 0+
  include_topology_description bool 1+ =false

StreamsGroupDescribeResponse 0-1 0+ 89
  throttle_time_ms int32 0+
  groups []DescribedGroup 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null
    group_id string 0+
    group_state string 0+
    group_epoch int32 0+
    assignment_epoch int32 0+
    topology Topology 0+ ?0+ =null
      epoch int32 0+
      subtopologies []Subtopology 0+ ?0+ =null
        subtopology_id string 0+
        source_topics []string 0+
        repartition_sink_topics []string 0+
        state_changelog_topics []TopicInfo 0+
          name string 0+
          partitions int32 0+
          replication_factor int16 0+
          topic_configs []KeyValue 0+
            key string 0+
            value string 0+
        repartition_source_topics []TopicInfo 0+
          name string 0+
          partitions int32 0+
          replication_factor int16 0+
          topic_configs []KeyValue 0+
            key string 0+
            value string 0+
    members []Member 0+
      member_id string 0+
      member_epoch int32 0+
      instance_id string 0+ ?0+ =null
      rack_id string 0+ ?0+ =null
      client_id string 0+
      client_host string 0+
      topology_epoch int32 0+
      process_id string 0+
      user_endpoint Endpoint 0+ ?0+ =null
        host string 0+
        port uint16 0+
      client_tags []KeyValue 0+
        key string 0+
        value string 0+
      task_offsets []TaskOffset 0+
        subtopology_id string 0+
        partition int32 0+
        offset int64 0+
      task_end_offsets []TaskOffset 0+
        subtopology_id string 0+
        partition int32 0+
        offset int64 0+
      assignment Assignment 0+
        active_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
        standby_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
        warmup_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
      target_assignment Assignment 0+
        active_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
        standby_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
        warmup_tasks []TaskIds 0+
          subtopology_id string 0+
          partitions []int32 0+
      is_classic bool 0+
    authorized_operations int32 0+ =-2147483648
    topology_description TopologyDescription 1+ ?1+ =null
      subtopologies []TopologyDescriptionSubtopology 1+
        subtopology_id string 1+
        nodes []TopologyDescriptionNode 1+
          name string 1+
          node_type int8 1+
          source_topics []string 1+
          sink_topic string 1+ ?1+ =null
          stores []string 1+
          successors []string 1+
      global_stores []TopologyDescriptionGlobalStore 1+
        source TopologyDescriptionNode 1+
          name string 1+
          node_type int8 1+
          source_topics []string 1+
          sink_topic string 1+ ?1+ =null
          stores []string 1+
          successors []string 1+
        processor TopologyDescriptionNode 1+
          name string 1+
          node_type int8 1+
          source_topics []string 1+
          sink_topic string 1+ ?1+ =null
          stores []string 1+
          successors []string 1+
    topology_description_status int8 1+ =0
    assignor_name string 1+ ?1+ =null

StreamsGroupTopologyDescriptionUpdateRequest 0 0+ 93
  group_id string 0+
  member_id string 0+
  topology_epoch int32 0+
  topology_description TopologyDescription 0+
    subtopologies []TopologyDescriptionSubtopology 0+
      subtopology_id string 0+
      nodes []TopologyDescriptionNode 0+
        name string 0+
        node_type int8 0+
        source_topics []string 0+
        sink_topic string 0+ ?0+ =null
        stores []string 0+
        successors []string 0+
    global_stores []TopologyDescriptionGlobalStore 0+
      source TopologyDescriptionNode 0+
        name string 0+
        node_type int8 0+
        source_topics []string 0+
        sink_topic string 0+ ?0+ =null
        stores []string 0+
        successors []string 0+
      processor TopologyDescriptionNode 0+
        name string 0+
        node_type int8 0+
        source_topics []string 0+
        sink_topic string 0+ ?0+ =null
        stores []string 0+
        successors []string 0+

StreamsGroupTopologyDescriptionUpdateResponse 0 0+ 93
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null

StreamsGroupMetadataKey 17 none
  group_id string 17

StreamsGroupMetadataValue 0 0+
  epoch int32 0+
  metadata_hash int64 0+
  validated_topology_epoch int32 0+ =-1 #0
  last_assignment_configs []LastAssignmentConfig 0+ ?0+ =null #1
    key string 0+
    value string 0+
  stored_description_topology_epoch int32 0+ =-1 #2
  failed_description_topology_epoch int32 0+ =-1 #3

StreamsGroupMemberMetadataKey 19 none
  group_id string 19
  member_id string 19

StreamsGroupMemberMetadataValue 0 0+
  instance_id string 0+ ?0+
  rack_id string 0+ ?0+
  client_id string 0+
  client_host string 0+
  rebalance_timeout_ms int32 0+ =-1
  topology_epoch int32 0+
  process_id string 0+
  user_endpoint Endpoint 0+ ?0+ =null
    host string 0+
    port uint16 0+
  client_tags []KeyValue 0+
    key string 0+
    value string 0+

StreamsGroupTargetAssignmentMetadataKey 20 none
  group_id string 20

StreamsGroupTargetAssignmentMetadataValue 0 0+
  assignment_epoch int32 0+
  assignment_timestamp int64 0+ =0 #0

StreamsGroupTargetAssignmentMemberKey 21 none
  group_id string 21
  member_id string 21

StreamsGroupTargetAssignmentMemberValue 0 0+
  active_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
  standby_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
  warmup_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+

StreamsGroupCurrentMemberAssignmentKey 22 none
  group_id string 22
  member_id string 22

StreamsGroupCurrentMemberAssignmentValue 0 0+
  member_epoch int32 0+
  previous_member_epoch int32 0+
  state int8 0+
  active_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  standby_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  warmup_tasks []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  active_tasks_pending_revocation []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  standby_tasks_pending_revocation []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0
  warmup_tasks_pending_revocation []TaskIds 0+
    subtopology_id string 0+
    partitions []int32 0+
    assignment_epochs []int32 0+ ?0+ =null #0

StreamsGroupTopologyKey 23 none
  group_id string 23

StreamsGroupTopologyValue 0 0+
  epoch int32 0+
  subtopologies []Subtopology 0+
    subtopology_id string 0+
    source_topics []string 0+
    source_topic_regex []string 0+
    state_changelog_topics []TopicInfo 0+
      name string 0+
      partitions int32 0+
      replication_factor int16 0+
      topic_configs []TopicConfig 0+
        key string 0+
        value string 0+
    repartition_sink_topics []string 0+
    repartition_source_topics []TopicInfo 0+
      name string 0+
      partitions int32 0+
      replication_factor int16 0+
      topic_configs []TopicConfig 0+
        key string 0+
        value string 0+
    copartition_groups []CopartitionGroup 0+
      source_topics []int16 0+
      source_topic_regex []int16 0+
      repartition_source_topics []int16 0+
"""
