"""Wire tables: idempotent and transactional producers (notation: `kafkalite.protocol.schema`)."""

TABLE = """
InitProducerIdRequest 0-5 2+ 22
  transactional_id string 0+ ?0+
  transaction_timeout_ms int32 0+
  producer_id int64 3+ =-1
  producer_epoch int16 3+ =-1

InitProducerIdResponse 0-5 2+ 22
  throttle_time_ms int32 0+
  error_code int16 0+
  producer_id int64 0+ =-1
  producer_epoch int16 0+

AddPartitionsToTxnRequest 0-5 3+ 24
  transactions []AddPartitionsToTxnTransaction 4+
    transactional_id string 4+
    producer_id int64 4+
    producer_epoch int16 4+
    verify_only bool 4+ =false
    topics []AddPartitionsToTxnTopic 4+
      name string 0+
      partitions []int32 0+
  v3_and_below_transactional_id string 0-3
  v3_and_below_producer_id int64 0-3
  v3_and_below_producer_epoch int16 0-3
  v3_and_below_topics []AddPartitionsToTxnTopic 0-3
    name string 0+
    partitions []int32 0+

AddPartitionsToTxnResponse 0-5 3+ 24
  throttle_time_ms int32 0+
  error_code int16 4+
  results_by_transaction []AddPartitionsToTxnResult 4+
    transactional_id string 4+
    topic_results []AddPartitionsToTxnTopicResult 4+
      name string 0+
      results_by_partition []AddPartitionsToTxnPartitionResult 0+
        partition_index int32 0+
        partition_error_code int16 0+
  results_by_topic_v3_and_below []AddPartitionsToTxnTopicResult 0-3
    name string 0+
    results_by_partition []AddPartitionsToTxnPartitionResult 0+
      partition_index int32 0+
      partition_error_code int16 0+

AddOffsetsToTxnRequest 0-4 3+ 25
  transactional_id string 0+
  producer_id int64 0+
  producer_epoch int16 0+
  group_id string 0+

AddOffsetsToTxnResponse 0-4 3+ 25
  throttle_time_ms int32 0+
  error_code int16 0+

EndTxnRequest 0-5 3+ 26
  transactional_id string 0+
  producer_id int64 0+
  producer_epoch int16 0+
  committed bool 0+

EndTxnResponse 0-5 3+ 26
  throttle_time_ms int32 0+
  error_code int16 0+
  producer_id int64 5+ =-1
  producer_epoch int16 5+ =-1

TxnOffsetCommitRequest 0-6 3+ 28
  transactional_id string 0+
  group_id string 0+
  producer_id int64 0+
  producer_epoch int16 0+
  generation_id_or_member_epoch int32 3+ =-1
  member_id string 3+
  group_instance_id string 3+ ?3+ =null
  topics []TxnOffsetCommitRequestTopic 0+
    name string 0-5
    topic_id uuid 6+
    partitions []TxnOffsetCommitRequestPartition 0+
      partition_index int32 0+
      committed_offset int64 0+
      committed_leader_epoch int32 2+ =-1
      committed_metadata string 0+ ?0+

TxnOffsetCommitResponse 0-6 3+ 28
  throttle_time_ms int32 0+
  topics []TxnOffsetCommitResponseTopic 0+
    name string 0-5
    topic_id uuid 6+
    partitions []TxnOffsetCommitResponsePartition 0+
      partition_index int32 0+
      error_code int16 0+

WriteTxnMarkersRequest 0-2 1+ 27
  markers []WritableTxnMarker 0+
    producer_id int64 0+
    producer_epoch int16 0+
    transaction_result bool 0+
    topics []WritableTxnMarkerTopic 0+
      name string 0+
      partition_indexes []int32 0+
    coordinator_epoch int32 0+
    transaction_version int8 2+ =0

WriteTxnMarkersResponse 0-2 1+ 27
  markers []WritableTxnMarkerResult 0+
    producer_id int64 0+
    topics []WritableTxnMarkerTopicResult 0+
      name string 0+
      partitions []WritableTxnMarkerPartitionResult 0+
        partition_index int32 0+
        error_code int16 0+

DescribeProducersRequest 0 0+ 61
  topics []TopicRequest 0+
    name string 0+
    partition_indexes []int32 0+

DescribeProducersResponse 0 0+ 61
  throttle_time_ms int32 0+
  topics []TopicResponse 0+
    name string 0+
    partitions []PartitionResponse 0+
      partition_index int32 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      active_producers []ProducerState 0+
        producer_id int64 0+
        producer_epoch int32 0+
        last_sequence int32 0+ =-1
        last_timestamp int64 0+ =-1
        coordinator_epoch int32 0+
        current_txn_start_offset int64 0+ =-1

DescribeTransactionsRequest 0 0+ 65
  transactional_ids []string 0+

DescribeTransactionsResponse 0 0+ 65
  throttle_time_ms int32 0+
  transaction_states []TransactionState 0+
    error_code int16 0+
    transactional_id string 0+
    transaction_state string 0+
    transaction_timeout_ms int32 0+
    transaction_start_time_ms int64 0+
    producer_id int64 0+
    producer_epoch int16 0+
    topics []TopicData 0+
      topic string 0+
      partitions []int32 0+

ListTransactionsRequest 0-2 0+ 66
  state_filters []string 0+
  producer_id_filters []int64 0+
  duration_filter int64 1+ =-1
  transactional_id_pattern string 2+ ?2+ =null

ListTransactionsResponse 0-2 0+ 66
  throttle_time_ms int32 0+
  error_code int16 0+
  unknown_state_filters []string 0+
  transaction_states []TransactionState 0+
    transactional_id string 0+
    producer_id int64 0+
    transaction_state string 0+
"""
