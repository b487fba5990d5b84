"""Followers, the ISR, and how fast replicas are copied."""

from kafkalite.config.keys import INT_MAX, MAX, area, setting


@area
class ReplicationSettings:
    """Followers, the ISR, and how fast replicas are copied."""

    replica_lag_time_max_ms: int = setting(
        30_000, "time without catching up after which a follower leaves the ISR", low=1
    )
    replica_fetch_max_bytes: int = setting(
        1_048_576, "bytes that a follower fetches per partition and request", low=1, high=INT_MAX
    )
    replica_fetch_response_max_bytes: int = setting(
        10_485_760, "bytes that a follower fetches per request", low=1, high=INT_MAX
    )
    replica_fetch_wait_max_ms: int = setting(500, "maximum duration of a follower's long poll", low=0, high=INT_MAX)
    replica_fetch_min_bytes: int = setting(
        1, "number of bytes with which a follower's long poll returns early", low=0, high=INT_MAX
    )
    replica_fetch_backoff_ms: int = setting(
        1_000, "longest pause of a follower after a failed fetch", low=0, high=INT_MAX
    )
    leader_replication_throttled_rate: int = setting(
        MAX,
        "bytes per second that a node gives to replicas, of topics whose leader.replication.throttled.replicas list the node",
        low=1,
        dynamic=True,
    )
    follower_replication_throttled_rate: int = setting(
        MAX,
        "bytes per second that a node copies, of topics whose follower.replication.throttled.replicas list the node",
        low=1,
        dynamic=True,
    )
    num_replica_fetchers: int = setting(1, "number of fetch connections to each leader", low=1, high=64, dynamic=True)
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "interval at which high watermarks are saved", low=1
    )
    replica_socket_timeout_ms: int = setting(
        30_000, "time without a response after which a follower gives up a fetch", low=1, high=INT_MAX
    )
