"""Groups, share groups, streams groups and transactions."""

from typing import Any

from kafkalite.config.keys import INT_MAX, SHORT_MAX, area, setting


def _least(key: str, default: int, *, low: int, high: int = INT_MAX) -> Any:
    """The least value that a group may set for `key`."""
    return setting(default, f"least {key} of a group", low=low, high=high)


def _greatest(key: str, default: int, *, low: int, high: int = INT_MAX) -> Any:
    return setting(default, f"greatest {key} of a group", low=low, high=high)


@area
class CoordinatorSettings:
    """Groups, share groups, streams groups and transactions."""

    transactional_id_expiration_ms: int = setting(
        604_800_000, "time after which an idle transactional id is removed", low=1, high=INT_MAX
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "interval of the checks for transactional ids to remove", low=1, high=INT_MAX
    )
    # Kafka's is 10 s; a check costs next to nothing, and readers of committed records wait for the abort.
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        1_000, "interval of the checks for transactions that have timed out", low=1, high=INT_MAX
    )
    transaction_max_timeout_ms: int = setting(
        900_000, "longest transaction timeout that a producer may request", low=1, high=INT_MAX
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        "whether a leader asks the coordinator before a transaction begins on a partition; without it, late records of an aborted transaction may become visible",
        dynamic=True,
    )
    offsets_topic_num_partitions: int = setting(50, "number of partitions of __consumer_offsets", low=1, high=INT_MAX)
    offsets_topic_replication_factor: int = setting(
        3, "number of replicas of __consumer_offsets; fewer as long as there are fewer brokers", low=1, high=SHORT_MAX
    )
    # Kafka's are of 100 MB. What is in the active segment is not compacted, and Python takes seconds to load that (ADR 66).
    offsets_topic_segment_bytes: int = setting(
        10_485_760,
        "segment.bytes of __consumer_offsets when it is created, and while the topic has no setting of its own",
        low=14,
        high=INT_MAX,
    )
    offsets_retention_minutes: int = setting(
        10_080, "time for which the offsets of an empty group are kept", low=1, high=INT_MAX
    )
    transaction_state_log_min_isr: int = setting(
        2,
        "min.insync.replicas of __transaction_state and __consumer_offsets when they are created; at most one less than"
        " the number of their replicas, so that one of them may be missing",
        low=1,
        high=INT_MAX,
    )
    transaction_state_log_num_partitions: int = setting(
        50, "number of partitions of __transaction_state", low=1, high=INT_MAX
    )
    transaction_state_log_replication_factor: int = setting(
        3, "number of replicas of __transaction_state; fewer as long as there are fewer brokers", low=1, high=SHORT_MAX
    )
    transaction_state_log_segment_bytes: int = setting(
        10_485_760,
        "segment.bytes of __transaction_state when it is created, and while the topic has no setting of its own",
        low=14,
        high=INT_MAX,
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        50, "number of partitions of __share_group_state", low=1, high=INT_MAX
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        3, "number of replicas of __share_group_state; fewer as long as there are fewer brokers", low=1, high=SHORT_MAX
    )
    share_coordinator_state_topic_min_isr: int = setting(
        2,
        "min.insync.replicas of __share_group_state when it is created; at most one less than the number of its replicas,"
        " so that one of them may be missing",
        low=1,
        high=SHORT_MAX,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        104_857_600,
        "segment.bytes of __share_group_state when it is created, and while the topic has no setting of its own",
        low=1_048_576,
        high=INT_MAX,
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        300_000, "interval at which records of __share_group_state that are not needed any more are deleted", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, "number of update records of a shared partition after which its whole state is written", low=0, high=500
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        300_000,
        "time after which the state of a shared partition is written once more if it holds back records that could be deleted",
        low=1,
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "time that a new group waits for more members", low=0, high=INT_MAX
    )
    group_min_session_timeout_ms: int = setting(
        6_000, "shortest session timeout of a group member", low=0, high=INT_MAX
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "longest session timeout of a group member", low=1, high=INT_MAX
    )
    group_max_size: int = setting(10_000, "maximum number of members of a classic group", low=1, high=INT_MAX)
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        "server-side assignors that consumer groups may use (uniform, range); the first one is the default",
    )
    # Kafka waits a second. Here members that join meanwhile are assigned together anyway, and a lone one does not wait.
    group_consumer_assignment_interval_ms: int = setting(
        0, "least time between two assignments of a consumer group", low=0, high=INT_MAX, dynamic=True
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "interval at which members of consumer groups send heartbeats", low=1, high=INT_MAX
    )
    group_consumer_max_size: int = setting(10_000, "maximum number of members of a consumer group", low=1, high=INT_MAX)
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "whether a running group changes its protocol when members of the other protocol join or the last ones leave:"
        " upgrade (classic to consumer), downgrade, both (bidirectional), or disabled",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "interval at which regular expressions of consumer groups are resolved again", low=10_000
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "time without a heartbeat after which a member of a consumer group is removed", low=1, high=INT_MAX
    )
    group_share_assignment_interval_ms: int = setting(
        0, "least time between two assignments of a share group", low=0, high=INT_MAX, dynamic=True
    )
    group_share_delivery_count_limit: int = setting(
        5, "number of deliveries after which a record of a share group is given up", low=2, high=25
    )
    group_share_max_share_sessions: int = setting(
        2_000,
        "maximum number of share sessions (members of share groups that fetch from this node) of one user; a quarter more is kept for other users",
        low=1,
        high=INT_MAX,
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "number of open records of a partition at which a share group gets no new ones", low=100, high=10_000
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000,
        "time for which a record that was delivered belongs to the member of a share group",
        low=1_000,
        high=3_600_000,
    )
    group_streams_acceptable_recovery_lag: int = setting(
        10_000, "records that a copy of a task's state may be behind to count as caught up", low=0, high=INT_MAX
    )
    group_streams_assignment_interval_ms: int = setting(
        1_000, "least time between two assignments of a streams group", low=0, high=INT_MAX, dynamic=True
    )
    group_streams_heartbeat_interval_ms: int = setting(
        5_000, "interval at which members of streams groups send heartbeats", low=1, high=INT_MAX
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        3_000, "time that a new streams group waits for more members before its first assignment", low=0, high=INT_MAX
    )
    group_streams_max_size: int = setting(10_000, "maximum number of members of a streams group", low=1, high=INT_MAX)
    group_streams_num_standby_replicas: int = setting(
        0, "number of standby tasks of each task with state of a streams group", low=0, high=100
    )
    group_streams_session_timeout_ms: int = setting(
        45_000, "time without a heartbeat after which a member of a streams group is removed", low=1, high=INT_MAX
    )
    group_streams_task_offset_interval_ms: int = setting(
        60_000,
        "interval at which members of streams groups report how far the state of their tasks is",
        low=1,
        high=INT_MAX,
    )
    group_share_heartbeat_interval_ms: int = setting(
        5_000, "interval at which members of share groups send heartbeats", low=1, high=INT_MAX
    )
    group_share_max_size: int = setting(200, "maximum number of members of a share group", low=1, high=1_000)
    group_share_session_timeout_ms: int = setting(
        45_000, "time without a heartbeat after which a member of a share group is removed", low=1, high=INT_MAX
    )

    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False, "whether the dead letter topic of a share group is created when it is first needed", dynamic=True
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.", "how the names of dead letter topics of share groups must begin; empty: anything", dynamic=True
    )
    #: The range of what a group may set for itself; the value of the broker is always within it.
    group_consumer_min_heartbeat_interval_ms: int = _least("consumer.heartbeat.interval.ms", 5_000, low=1)
    group_consumer_max_heartbeat_interval_ms: int = _greatest("consumer.heartbeat.interval.ms", 15_000, low=1)
    group_consumer_min_session_timeout_ms: int = _least("consumer.session.timeout.ms", 45_000, low=1)
    group_consumer_max_session_timeout_ms: int = _greatest("consumer.session.timeout.ms", 60_000, low=1)
    group_consumer_min_assignment_interval_ms: int = _least("consumer.assignment.interval.ms", 0, low=0)
    group_consumer_max_assignment_interval_ms: int = _greatest("consumer.assignment.interval.ms", 15_000, low=0)
    group_share_min_heartbeat_interval_ms: int = _least("share.heartbeat.interval.ms", 5_000, low=1)
    group_share_max_heartbeat_interval_ms: int = _greatest("share.heartbeat.interval.ms", 15_000, low=1)
    group_share_min_session_timeout_ms: int = _least("share.session.timeout.ms", 45_000, low=1)
    group_share_max_session_timeout_ms: int = _greatest("share.session.timeout.ms", 60_000, low=1)
    group_share_min_assignment_interval_ms: int = _least("share.assignment.interval.ms", 0, low=0)
    group_share_max_assignment_interval_ms: int = _greatest("share.assignment.interval.ms", 15_000, low=0)
    group_streams_min_heartbeat_interval_ms: int = _least("streams.heartbeat.interval.ms", 5_000, low=1)
    group_streams_max_heartbeat_interval_ms: int = _greatest("streams.heartbeat.interval.ms", 15_000, low=1)
    group_streams_min_session_timeout_ms: int = _least("streams.session.timeout.ms", 45_000, low=1)
    group_streams_max_session_timeout_ms: int = _greatest("streams.session.timeout.ms", 60_000, low=1)
    group_streams_min_assignment_interval_ms: int = _least("streams.assignment.interval.ms", 0, low=0)
    group_streams_max_assignment_interval_ms: int = _greatest("streams.assignment.interval.ms", 15_000, low=0)
    group_share_min_delivery_count_limit: int = _least("share.delivery.count.limit", 2, low=2, high=5)
    group_share_max_delivery_count_limit: int = _greatest("share.delivery.count.limit", 10, low=5, high=25)
    group_share_min_record_lock_duration_ms: int = _least(
        "share.record.lock.duration.ms", 15_000, low=1_000, high=30_000
    )
    group_share_max_record_lock_duration_ms: int = _greatest(
        "share.record.lock.duration.ms", 60_000, low=30_000, high=3_600_000
    )
    group_share_min_partition_max_record_locks: int = _least(
        "share.partition.max.record.locks", 100, low=100, high=2_000
    )
    group_share_max_partition_max_record_locks: int = _greatest(
        "share.partition.max.record.locks", 4_000, low=2_000, high=10_000
    )
    group_streams_max_standby_replicas: int = _greatest("streams.num.standby.replicas", 2, low=0)
    group_streams_min_task_offset_interval_ms: int = _least("streams.task.offset.interval.ms", 15_000, low=1)
