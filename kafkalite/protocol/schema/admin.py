"""Wire tables: administration (notation: `kafkalite.protocol.schema`).

`current_batch` is KIP-435's, as a tagged field, with a tag far from those that Kafka may give out: readers that do
not know it pass it over.
"""

TABLE = """
CreateTopicsRequest 0-7 5+ 19
  topics []CreatableTopic 0+
    name string 0+
    num_partitions int32 0+
    replication_factor int16 0+
    assignments []CreatableReplicaAssignment 0+
      partition_index int32 0+
      broker_ids []int32 0+
    configs []CreatableTopicConfig 0+
      name string 0+
      value string 0+ ?0+
  timeout_ms int32 0+ =60000
  validate_only bool 1+ =false

CreateTopicsResponse 0-7 5+ 19
  throttle_time_ms int32 2+
  topics []CreatableTopicResult 0+
    name string 0+
    topic_id uuid 7+
    error_code int16 0+
    error_message string 1+ ?0+
    topic_config_error_code int16 5+ #0
    num_partitions int32 5+ =-1
    replication_factor int16 5+ =-1
    configs []CreatableTopicConfigs 5+ ?5+
      name string 5+
      value string 5+ ?5+
      read_only bool 5+
      config_source int8 5+ =-1
      is_sensitive bool 5+

DeleteTopicsRequest 0-6 4+ 20
  topics []DeleteTopicState 6+
    name string 6+ ?6+ =null
    topic_id uuid 6+
  topic_names []string 0-5
  timeout_ms int32 0+

DeleteTopicsResponse 0-6 4+ 20
  throttle_time_ms int32 1+
  responses []DeletableTopicResult 0+
    name string 0+ ?6+
    topic_id uuid 6+
    error_code int16 0+
    error_message string 5+ ?5+ =null

CreatePartitionsRequest 0-3 2+ 37
  topics []CreatePartitionsTopic 0+
    name string 0+
    count int32 0+
    assignments []CreatePartitionsAssignment 0+ ?0+
      broker_ids []int32 0+
  timeout_ms int32 0+
  validate_only bool 0+

CreatePartitionsResponse 0-3 2+ 37
  throttle_time_ms int32 0+
  results []CreatePartitionsTopicResult 0+
    name string 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null

DescribeConfigsRequest 0-4 4+ 32
  resources []DescribeConfigsResource 0+
    resource_type int8 0+
    resource_name string 0+
    configuration_keys []string 0+ ?0+
  include_synonyms bool 1+ =false
  include_documentation bool 3+ =false

DescribeConfigsResponse 0-4 4+ 32
  throttle_time_ms int32 0+
  results []DescribeConfigsResult 0+
    error_code int16 0+
    error_message string 0+ ?0+
    resource_type int8 0+
    resource_name string 0+
    configs []DescribeConfigsResourceResult 0+
      name string 0+
      value string 0+ ?0+
      read_only bool 0+
      is_default bool 0
      config_source int8 1+ =-1
      is_sensitive bool 0+
      synonyms []DescribeConfigsSynonym 1+
        name string 1+
        value string 1+ ?0+
        source int8 1+
      config_type int8 3+ =0
      documentation string 3+ ?0+

AlterConfigsRequest 0-2 2+ 33
  resources []AlterConfigsResource 0+
    resource_type int8 0+
    resource_name string 0+
    configs []AlterableConfig 0+
      name string 0+
      value string 0+ ?0+
  validate_only bool 0+

AlterConfigsResponse 0-2 2+ 33
  throttle_time_ms int32 0+
  responses []AlterConfigsResourceResponse 0+
    error_code int16 0+
    error_message string 0+ ?0+
    resource_type int8 0+
    resource_name string 0+

IncrementalAlterConfigsRequest 0-1 1+ 44
  resources []AlterConfigsResource 0+
    resource_type int8 0+
    resource_name string 0+
    configs []AlterableConfig 0+
      name string 0+
      config_operation int8 0+
      value string 0+ ?0+
  validate_only bool 0+

IncrementalAlterConfigsResponse 0-1 1+ 44
  throttle_time_ms int32 0+
  responses []AlterConfigsResourceResponse 0+
    error_code int16 0+
    error_message string 0+ ?0+
    resource_type int8 0+
    resource_name string 0+

ElectLeadersRequest 0-2 2+ 43
  election_type int8 1+
  topic_partitions []TopicPartitions 0+ ?0+
    topic string 0+
    partitions []int32 0+
  timeout_ms int32 0+ =60000

ElectLeadersResponse 0-2 2+ 43
  throttle_time_ms int32 0+
  error_code int16 1+
  replica_election_results []ReplicaElectionResult 0+
    topic string 0+
    partition_result []PartitionResult 0+
      partition_id int32 0+
      error_code int16 0+
      error_message string 0+ ?0+

AlterPartitionReassignmentsRequest 0-1 0+ 45
  timeout_ms int32 0+ =60000
  allow_replication_factor_change bool 1+ =true
  topics []ReassignableTopic 0+
    name string 0+
    partitions []ReassignablePartition 0+
      partition_index int32 0+
      replicas []int32 0+ ?0+ =null

AlterPartitionReassignmentsResponse 0-1 0+ 45
  throttle_time_ms int32 0+
  allow_replication_factor_change bool 1+ =true
  error_code int16 0+
  error_message string 0+ ?0+
  responses []ReassignableTopicResponse 0+
    name string 0+
    partitions []ReassignablePartitionResponse 0+
      partition_index int32 0+
      error_code int16 0+
      error_message string 0+ ?0+

ListPartitionReassignmentsRequest 0 0+ 46
  timeout_ms int32 0+ =60000
  topics []ListPartitionReassignmentsTopics 0+ ?0+ =null
    name string 0+
    partition_indexes []int32 0+

ListPartitionReassignmentsResponse 0 0+ 46
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+
  topics []OngoingTopicReassignment 0+
    name string 0+
    partitions []OngoingPartitionReassignment 0+
      partition_index int32 0+
      replicas []int32 0+
      adding_replicas []int32 0+
      removing_replicas []int32 0+
  current_batch []CurrentBatchTopic 0+ #435
    name string 0+
    partitions []CurrentBatchPartition 0+
      partition_index int32 0+
      current_replicas []int32 0+
      target_replicas []int32 0+
"""
