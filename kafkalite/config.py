"""The configuration: Kafka's names and defaults wherever Kafka has the key.

Order of precedence: defaults < TOML file < environment (KAFKALITE_MIN_INSYNC_REPLICAS) < flags < dynamic.
Attributes are the keys with dots turned into underscores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_type_hints

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.listener_settings import HTTP, RPC, PerListener, unknown_listener
from kafkalite.listener_settings import split as split_listener_key
from kafkalite.listeners import (
    ADVERTISED,
    LISTENERS,
    PROTOCOL_MAP,
    KafkaListenerSettings,
    check_advertised,
    is_wildcard,
    one_listener,
    parse_advertised,
    several_listeners,
)
from kafkalite.model import LISTENER_MECHANISMS, PROTOCOLS, SASL_MECHANISMS, Endpoint

#: The largest number that Kafka's clients have for a setting (a long).
_MAX = 2**63 - 1

_REPLICAS = re.compile(r"|\*|\d{1,9}:\d{1,9}(,\d{1,9}:\d{1,9})*")

CLIENT_AUTH = ("none", "requested", "required")


def _key(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    dynamic: bool = False,
    is_set: bool = False,
    is_list_of_replicas: bool = False,
    is_only: bool | None = None,
) -> Any:
    """`secret`: the value is shown nowhere: not in a repr, an error, DescribeConfigs or a page.

    `is_set`: a text of names with commas between them; spaces around them, and a name that comes twice, mean nothing.
    `is_only`: the one value that is taken: Kafka has others.
    """
    meta = {
        "doc": doc, "low": low, "high": high, "choices": choices, "secret": secret, "dynamic": dynamic, "is_set": is_set,
        "is_list_of_replicas": is_list_of_replicas, "is_only": is_only,
    }  # fmt: skip
    return field(default=default, metadata=meta, repr=not secret)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic may set for itself; a broker's values are the defaults."""

    cleanup_policy: str = _key(
        "delete",
        "delete, compact, or both: what happens to old segments; empty: nothing",
        choices=("delete", "compact", "compact,delete", "delete,compact", ""),
        is_set=True,
    )
    compressed_content_validation_enable: bool = _key(
        True, "whether the content of compressed batches is checked before they are appended, as Kafka does"
    )
    compression_gzip_level: int = _key(-1, "level of compression.type gzip: 1 to 9, -1: zlib's own", low=-1, high=9)
    compression_lz4_level: int = _key(9, "level of compression.type lz4", low=1, high=17)
    compression_type: str = _key(
        "producer",
        "compression of a topic's batches; producer: as producers send them, else batches that come otherwise are"
        " decompressed and compressed again",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_zstd_level: int = _key(3, "level of compression.type zstd", low=-131_072, high=22)
    flush_messages: int = _key(_MAX, "number of records after which a log is fsynced", low=1)
    flush_ms: int = _key(_MAX, "time after which unsynced records are fsynced", low=0)
    follower_replication_throttled_replicas: str = _key(
        "",
        "replicas, PARTITION:BROKER,… or *, as Kafka's tools list them; copying is limited on the leader's side only",
        is_list_of_replicas=True,
    )
    index_interval_bytes: int = _key(4096, "bytes of log per entry of the offset index", low=0)
    leader_replication_throttled_replicas: str = _key(
        "",
        "replicas, PARTITION:BROKER,… or *, which get records at leader.replication.throttled.rate while they are not in sync",
        is_list_of_replicas=True,
    )
    local_retention_bytes: int = _key(-2, "has an effect only with tiered storage, which does not exist", low=-2)
    local_retention_ms: int = _key(-2, "has an effect only with tiered storage, which does not exist", low=-2)
    log_flush_before_ack: bool = _key(False, "fsync on every in-sync replica before a record counts as committed")
    max_message_bytes: int = _key(1_048_588, "size of the largest record batch", low=0)
    message_timestamp_after_max_ms: int = _key(
        3_600_000, "a record whose own timestamp is further ahead of the broker's clock is refused (CreateTime)", low=0
    )
    message_timestamp_before_max_ms: int = _key(
        _MAX, "a record whose own timestamp is further behind the broker's clock is refused (CreateTime)", low=0
    )
    message_timestamp_type: str = _key(
        "CreateTime",
        "whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime)",
        choices=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = _key(
        0.5, "share of the log that is not compacted yet from which a compaction starts", low=0, high=1
    )
    min_compaction_lag_ms: int = _key(0, "minimum time before a record may be compacted", low=0)
    max_compaction_lag_ms: int = _key(_MAX, "maximum time before a record must be compacted", low=1)
    delete_retention_ms: int = _key(86_400_000, "how long a compacted log keeps tombstones", low=0)
    file_delete_delay_ms: int = _key(
        60_000, "time between the deletion of a segment and the removal of its files", low=0
    )
    min_insync_replicas: int = _key(1, "minimum number of in-sync replicas for acks=all", low=1)
    preallocate: bool = _key(False, "files of segments are not given their room beforehand: only false", is_only=False)
    remote_storage_enable: bool = _key(False, "there is no tiered storage: only false", is_only=False)
    retention_bytes: int = _key(-1, "size of a partition above which old segments are deleted; -1: no limit", low=-1)
    retention_ms: int = _key(604_800_000, "age above which segments are deleted; -1: no limit", low=-1)
    segment_bytes: int = _key(1_073_741_824, "size at which a segment rolls", low=14, high=2**31 - 1)
    segment_index_bytes: int = _key(10_485_760, "size of an index file at which the segment rolls", low=4)
    segment_jitter_ms: int = _key(
        0, "maximum time that is taken off segment.ms, so that segments end at different times", low=0
    )
    segment_ms: int = _key(604_800_000, "age at which a segment rolls", low=1)
    unclean_leader_election_enable: bool = _key(
        False, "whether a replica that is not in sync may become the leader (records can be lost)"
    )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One node's configuration, checked as a whole by `load`."""

    broker_id: int = _key(-1, "this node's id (serve --id)", low=-1, high=2**31 - 1)
    log_dirs: tuple[str, ...] = _key(("./kafkalite-data",), "log directories, one per disk")
    zookeeper_connect: str = _key("127.0.0.1:2181", "addresses of the ZooKeeper ensemble: HOST:PORT,…/chroot")
    zookeeper_session_timeout_ms: int = _key(
        18_000, "timeout of the ZooKeeper session; must be below replica.lag.time.max.ms", low=200
    )
    host: str = _key(
        "127.0.0.1", "address or name that the listeners bind; clients and nodes get it as it is written here"
    )
    kafka_port: int = _key(9092, "port of the Kafka listener; 0: any free port", low=0, high=65535)
    rpc_port: int = _key(9192, "port of the RPC listener (msgpack); 0: any free port", low=0, high=65535)
    http_port: int = _key(9292, "port of metrics and console; 0: any free port, -1: no listener", low=-1, high=65535)
    listeners: str = _key(
        "",
        "Kafka listeners, NAME://HOST:PORT,NAME://HOST:PORT; port 0: any free port; empty: one listener at host and kafka.port"
        " with listener.security.protocol",
    )
    advertised_listeners: str = _key(
        "",
        "address that clients of each Kafka listener get, NAME://HOST:PORT,…; port 0: the bound port; empty: where it is bound."
        " NAME is that in listeners; of the one listener at kafka.port its security protocol, or any other name",
        dynamic=True,
    )
    listener_security_protocol_map: str = _key(
        "",
        "security protocols of the listeners in listeners, NAME:PROTOCOL,…; a listener that is named like a protocol needs no entry",
    )
    inter_broker_listener_name: str = _key(
        "", "Kafka listener to which the other nodes connect for transactions; empty: the first one"
    )
    advertised_rpc: str = _key(
        "", "address that other nodes get for the RPC listener, HOST:PORT; port 0: rpc.port; empty: host and rpc.port"
    )
    advertised_http: str = _key(
        "",
        "address at which browsers find the HTTP listener, HOST:PORT; the consoles of the other nodes link to it; port 0: http.port;"
        " empty: host and http.port, and if host is all addresses the host of advertised.rpc",
    )
    broker_rack: str = _key("", "rack of this broker, used to place replicas")

    auto_create_topics_enable: bool = _key(True, "whether a topic is created when a client first requests it")
    num_partitions: int = _key(1, "default number of partitions of a new topic", low=1)
    default_replication_factor: int = _key(1, "default number of replicas of a new topic", low=1)
    auto_create_topics_replication_factor: int = _key(
        0,
        "number of replicas of a topic that is created because a client uses it; 0: one on each of up to three live brokers, and at least"
        " default.replication.factor",
        low=0,
    )
    delete_topic_enable: bool = _key(True, "whether topics may be deleted")
    max_partitions_per_topic: int = _key(100_000, "maximum number of partitions of a topic", low=1)

    replica_lag_time_max_ms: int = _key(30_000, "time without catching up after which a follower leaves the ISR", low=1)
    replica_fetch_max_bytes: int = _key(1_048_576, "bytes that a follower fetches per partition and request", low=1)
    replica_fetch_response_max_bytes: int = _key(10_485_760, "bytes that a follower fetches per request", low=1)
    replica_fetch_wait_max_ms: int = _key(500, "maximum duration of a follower's long poll", low=0)
    replica_fetch_min_bytes: int = _key(1, "number of bytes with which a follower's long poll returns early", low=0)
    replica_fetch_backoff_ms: int = _key(1_000, "longest pause of a follower after a failed fetch", low=0)
    leader_replication_throttled_rate: int = _key(
        _MAX, "bytes per second that replicas listed by leader.replication.throttled.replicas get", low=1, dynamic=True
    )
    follower_replication_throttled_rate: int = _key(
        _MAX, "as Kafka's tools set it; copying is limited on the leader's side only", low=1, dynamic=True
    )
    num_replica_fetchers: int = _key(1, "number of fetch connections to each leader", low=1, high=64, dynamic=True)
    replica_high_watermark_checkpoint_interval_ms: int = _key(
        5_000, "interval at which high watermarks are saved", low=1
    )
    replica_socket_timeout_ms: int = _key(
        30_000, "time without a response after which a follower gives up a fetch", low=1
    )

    log_flush_offset_checkpoint_interval_ms: int = _key(60_000, "interval at which recovery points are saved", low=1)
    log_retention_check_interval_ms: int = _key(
        300_000, "interval of the checks for segments that retention deletes", low=1
    )
    log_cleaner_backoff_ms: int = _key(15_000, "pause between two searches for logs to compact", low=1, dynamic=True)
    log_dir_probe_interval_ms: int = _key(
        5_000,
        "interval at which a small file is written, synced and read on every disk, to detect a dead disk",
        low=100,
    )
    log_dir_probe_timeout_ms: int = _key(
        5_000, "timeout for a probe of a disk that answers slowly, but whose device completes operations", low=1_000
    )
    producer_id_expiration_ms: int = _key(
        86_400_000, "time after which the state of an inactive producer is removed", low=1, dynamic=True
    )
    stray_delete_delay_ms: int = _key(
        86_400_000,
        "minimum time for which a replica's directory that was set aside (-stray) is kept; it is also kept until its records are in sync elsewhere",
        low=0,
    )
    stray_max_fraction_percent: int = _key(
        50, "maximum share of local replicas that may be set aside as strays at once, in percent", low=0, high=100
    )

    replica_selector_class: str = _key(
        "",
        "which replica consumers with a client.rack read from (KIP-392); empty: the leader",
        choices=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    )
    fetch_max_bytes: int = _key(57_671_680, "size of the largest response to a fetch request", low=1024)
    max_incremental_fetch_session_cache_slots: int = _key(
        1_000, "maximum number of incremental fetch sessions of clients (KIP-227)", low=0
    )
    max_connections: int = _key(10_000, "maximum number of open connections per listener", low=1, dynamic=True)
    max_inflight_requests_per_connection: int = _key(
        64, "maximum number of requests of one connection that are read before the first is answered", low=1
    )
    queued_max_request_bytes: int = _key(
        268_435_456,
        "memory for the requests in progress of all connections; responses that clients have not read yet may use the same amount again",
        low=1,
    )
    socket_request_max_bytes: int = _key(104_857_600, "size of the largest request on the Kafka listener", low=1024)
    rpc_max_frame_bytes: int = _key(134_217_728, "size of the largest frame on the RPC listener", low=1024)
    connections_max_idle_ms: int = _key(600_000, "time after which an idle connection is closed", low=1)

    max_connections_per_ip: int = _key(
        2**31 - 1, "maximum number of open connections from one address, per listener", low=0
    )
    max_connections_per_ip_overrides: str = _key(
        "", "limits of connections for individual addresses: HOST:COUNT,HOST:COUNT"
    )

    max_connection_creation_rate: int = _key(
        2**31 - 1,
        "new connections per second on the node's Kafka listeners together, on average; those of 10 seconds may come at once; others are refused",
        low=0,
        dynamic=True,
    )
    max_connection_creation_rate_per_ip: int = _key(
        1_000,
        "new connections per second from one address, per listener, on average; those of 10 seconds may come at once; others are"
        " refused (a client that reconnects for each request evades its quotas); 0: no limit",
        low=0,
    )

    authorizer_enabled: bool = _key(False, "whether requests are refused that no ACL in ZooKeeper allows")
    super_users: str = _key("", "users that may do everything: User:NAME;User:NAME")
    allow_everyone_if_no_acl_found: bool = _key(False, "whether every user may use a resource that has no ACL")
    quota_window_num: int = _key(
        11, "number of windows over which a client's rate is measured for quotas", low=2, high=3600
    )
    quota_window_size_seconds: int = _key(1, "length of a quota window", low=1, high=3600)

    controller_quota_window_num: int = _key(
        11, "number of windows whose permits of controller_mutation_rate a client may use at once", low=1, high=3600
    )
    controller_quota_window_size_seconds: int = _key(
        1, "length of a window of controller_mutation_rate", low=1, high=3600
    )
    controller_socket_timeout_ms: int = _key(
        30_000, "time without a response to a controller's command after which health reports it", low=1
    )
    controller_queue_max_requests: int = _key(
        1_000, "maximum number of the controller's commands that wait per broker", low=1
    )
    broker_heartbeat_interval_ms: int = _key(300, "interval of the heartbeats between controller and brokers", low=10)
    broker_heartbeat_timeout_ms: int = _key(
        1_500,
        "time without a response to heartbeats after which a broker loses its leaderships, or the controller is replaced; 0: never",
        low=0,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = _key(
        0, "rate at which a replica is copied between disks of the node; 0: no fixed limit", low=0
    )
    auto_leader_rebalance_enable: bool = _key(
        True, "whether the controller periodically makes the preferred replicas the leaders"
    )
    leader_imbalance_check_interval_seconds: int = _key(
        300, "interval at which the controller checks the leader imbalance (auto.leader.rebalance.enable)", low=1
    )
    leader_imbalance_per_broker_percentage: int = _key(
        10,
        "share of its preferred leaderships that a broker may lack before the controller gives them back, in percent",
        low=0,
        high=100,
    )
    balancer_mode: str = _key(
        "advise",
        "off; advise: the controller reports that moves would make the load even; on: it makes these moves, and recreates the replicas of"
        " brokers that are lost (set it for the cluster)",
        choices=("off", "advise", "on"),
        dynamic=True,
    )
    balancer_interval_ms: int = _key(
        60_000, "interval at which the controller's balancer asks the brokers for their load", low=100, dynamic=True
    )
    balancer_max_moves: int = _key(
        10, "maximum number of partitions that the balancer moves at once", low=1, high=10_000, dynamic=True
    )
    balancer_throttle_bytes_per_second: int = _key(
        0, "limit per leader for the replicas that the balancer moves; 0: no limit", low=0, dynamic=True
    )
    balancer_tolerance_percent: int = _key(
        10,
        "share of the mean by which a broker's replicas, preferred leaders, bytes and bytes/s may differ before the balancer acts, in percent;"
        " it goes on until half of it is reached",
        low=1,
        high=100,
        dynamic=True,
    )
    balancer_max_disk_percent: int = _key(
        85,
        "share of a broker's disks up to which the balancer gives it replicas, in percent",
        low=1,
        high=100,
        dynamic=True,
    )
    balancer_broker_timeout_ms: int = _key(
        900_000,
        "time after which a broker that is not alive counts as lost: with balancer.mode=on its replicas are recreated on other brokers; 0: never",
        low=0,
        dynamic=True,
    )
    controlled_shutdown_enable: bool = _key(True, "whether a node moves its leaderships away before it stops")
    controlled_shutdown_max_wait_ms: int = _key(10_000, "maximum duration of a controlled shutdown", low=0)

    transactional_id_expiration_ms: int = _key(
        604_800_000, "time after which an idle transactional id is removed", low=1
    )
    transaction_max_timeout_ms: int = _key(900_000, "longest transaction timeout that a producer may request", low=1)
    transaction_partition_verification_enable: bool = _key(
        True,
        "whether a leader asks the coordinator before a transaction begins on a partition; without it, late records of an aborted transaction may become visible",
    )
    offsets_topic_num_partitions: int = _key(50, "number of partitions of __consumer_offsets", low=1)
    offsets_topic_replication_factor: int = _key(
        3, "number of replicas of __consumer_offsets; at most the number of brokers is used", low=1
    )
    offsets_retention_minutes: int = _key(10_080, "time for which the offsets of an empty group are kept", low=1)
    transaction_state_log_min_isr: int = _key(
        2,
        "min.insync.replicas of __transaction_state and __consumer_offsets when they are created; at most one less than"
        " the number of their replicas, so that one of them may be missing",
        low=1,
    )
    transaction_state_log_num_partitions: int = _key(50, "number of partitions of __transaction_state", low=1)
    transaction_state_log_replication_factor: int = _key(
        3, "number of replicas of __transaction_state; at most the number of brokers is used", low=1
    )
    share_coordinator_state_topic_num_partitions: int = _key(50, "number of partitions of __share_group_state", low=1)
    share_coordinator_state_topic_replication_factor: int = _key(
        3, "number of replicas of __share_group_state; at most the number of brokers is used", low=1
    )
    share_coordinator_state_topic_min_isr: int = _key(
        2,
        "min.insync.replicas of __share_group_state when it is created; at most one less than the number of its replicas,"
        " so that one of them may be missing",
        low=1,
    )
    share_coordinator_state_topic_segment_bytes: int = _key(
        104_857_600, "segment.bytes of __share_group_state when it is created", low=1_048_576
    )
    share_coordinator_state_topic_prune_interval_ms: int = _key(
        300_000, "interval at which records of __share_group_state that are not needed any more are deleted", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _key(
        500, "number of update records of a shared partition after which its whole state is written", low=0, high=500
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = _key(
        300_000,
        "time after which the state of a shared partition is written once more if it holds back records that could be deleted",
        low=1,
    )
    group_initial_rebalance_delay_ms: int = _key(3_000, "time that a new group waits for more members", low=0)
    group_min_session_timeout_ms: int = _key(6_000, "shortest session timeout of a group member", low=1)
    group_max_session_timeout_ms: int = _key(1_800_000, "longest session timeout of a group member", low=1)
    group_max_size: int = _key(10_000, "maximum number of members of a classic group", low=1, high=2**31 - 1)
    group_consumer_assignors: tuple[str, ...] = _key(
        ("uniform", "range"),
        "server-side assignors that consumer groups may use (uniform, range); the first one is the default",
    )
    group_consumer_heartbeat_interval_ms: int = _key(
        5_000, "interval at which members of consumer groups send heartbeats", low=1
    )
    group_consumer_max_size: int = _key(10_000, "maximum number of members of a consumer group", low=1, high=2**31 - 1)
    group_consumer_migration_policy: str = _key(
        "bidirectional",
        "whether a running group changes its protocol when members of the other protocol join or the last ones leave:"
        " upgrade (classic to consumer), downgrade, both (bidirectional), or disabled",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_regex_refresh_interval_ms: int = _key(
        600_000, "interval at which regular expressions of consumer groups are resolved again", low=10_000
    )
    group_consumer_session_timeout_ms: int = _key(
        45_000, "time without a heartbeat after which a member of a consumer group is removed", low=1
    )
    group_share_delivery_count_limit: int = _key(
        5, "number of deliveries after which a record of a share group is given up", low=2, high=25
    )
    group_share_max_share_sessions: int = _key(
        2_000, "maximum number of share sessions (members of share groups that fetch from this node)", low=1
    )
    group_share_partition_max_record_locks: int = _key(
        2_000, "number of open records of a partition at which a share group gets no new ones", low=100, high=10_000
    )
    group_share_record_lock_duration_ms: int = _key(
        30_000,
        "time for which a record that was delivered belongs to the member of a share group",
        low=1_000,
        high=3_600_000,
    )

    group_streams_acceptable_recovery_lag: int = _key(
        10_000, "records that a copy of a task's state may be behind to count as caught up", low=0
    )
    group_streams_assignment_interval_ms: int = _key(
        1_000, "least time between two assignments of a streams group", low=0
    )
    group_streams_heartbeat_interval_ms: int = _key(
        5_000, "interval at which members of streams groups send heartbeats", low=1
    )
    group_streams_initial_rebalance_delay_ms: int = _key(
        3_000, "time that a new streams group waits for more members before its first assignment", low=0
    )
    group_streams_max_size: int = _key(10_000, "maximum number of members of a streams group", low=1, high=2**31 - 1)
    group_streams_num_standby_replicas: int = _key(
        0, "number of standby tasks of each task with state of a streams group", low=0, high=100
    )
    group_streams_session_timeout_ms: int = _key(
        45_000, "time without a heartbeat after which a member of a streams group is removed", low=1
    )
    group_streams_task_offset_interval_ms: int = _key(
        60_000, "interval at which members of streams groups report how far the state of their tasks is", low=1
    )
    group_share_heartbeat_interval_ms: int = _key(
        5_000, "interval at which members of share groups send heartbeats", low=1
    )
    group_share_max_size: int = _key(200, "maximum number of members of a share group", low=1, high=1_000)
    group_share_session_timeout_ms: int = _key(
        45_000, "time without a heartbeat after which a member of a share group is removed", low=1
    )

    listener_security_protocol: str = _key(
        "PLAINTEXT",
        "security protocol of all listeners: of the Kafka listener, and of the others unless they have a setting of their own",
        choices=PROTOCOLS,
    )
    rpc_security_protocol: str = _key(
        "",
        "security protocol of the RPC listener, which is for nodes; empty: as the Kafka listener to which nodes connect"
        " (inter.broker.listener.name)",
        choices=("", *PROTOCOLS),
    )
    http_security_protocol: str = _key(
        "",
        "security protocol of the HTTP listener; SASL_* means a login with name and password (HTTP Basic); empty: as the RPC listener",
        choices=("", *PROTOCOLS),
    )
    ssl_keystore_location: str = _key("", "PEM file: this node's certificate, its chain and its key")
    ssl_truststore_location: str = _key("", "PEM file: the trusted certificate authorities; empty: those of the system")
    ssl_key_password: str = _key(
        "",
        "password of the key in ssl.keystore.location, if it is encrypted; file:PATH reads it from a file",
        secret=True,
    )
    ssl_client_auth: str = _key(
        "none",
        "whether clients of the Kafka and the RPC listener need a certificate; an RPC listener that is SSL because the Kafka listener"
        " is requires one",
        choices=CLIENT_AUTH,
    )
    ssl_enabled_protocols: tuple[str, ...] = _key(
        ("TLSv1.2", "TLSv1.3"), "versions of TLS that listeners accept: TLSv1.2, TLSv1.3"
    )
    ssl_cipher_suites: str = _key(
        "",
        "cipher suites of listeners, by their IANA or OpenSSL names, with commas between them; empty: those with forward secrecy and"
        " authenticated encryption",
    )
    http_ssl_client_auth: str = _key(
        "",
        "whether clients of the HTTP listener need a certificate; empty: the value of ssl.client.auth",
        choices=("", *CLIENT_AUTH),
    )
    http_bearer_tokens_location: str = _key(
        "", "file of NAME=TOKEN lines: users that log in on the HTTP listener with a token; read again on change"
    )
    http_allowed_hosts: str = _key(
        "",
        "host names, with commas between them, under which browsers reach the HTTP listener, for example that of a proxy in front of"
        " it; IP addresses, names without a dot, and the node's own names need no entry",
        is_set=True,
    )
    http_actions_enable: bool = _key(True, "whether the console can change the cluster; false: it only shows")
    ssl_endpoint_identification_algorithm: str = _key(
        "https",
        "https: the side that opens a connection checks the host in the certificate; empty: no check",
        choices=("https", ""),
    )
    ssl_principal_mapping_rules: str = _key(
        "DEFAULT", "rules that turn a certificate's subject into a user's name, as in Kafka"
    )
    sasl_enabled_mechanisms: tuple[str, ...] = _key(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "mechanisms with which clients may authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = _key(
        "",
        "where the keys of OAUTHBEARER's tokens are (a JWK set): file:///PATH, read again on change, or https://HOST/…",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _key(
        3_600_000, "interval at which the keys are fetched again from an https address", low=1_000
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _key(
        (), "audiences (aud) of which a token must name one; empty: any"
    )
    sasl_oauthbearer_expected_issuer: str = _key("", "issuer (iss) that a token must name; empty: any")
    sasl_oauthbearer_sub_claim_name: str = _key("sub", "claim of a token that is the user's name")
    sasl_oauthbearer_clock_skew_seconds: int = _key(
        30, "time by which the clocks of the tokens' issuer and of this node may differ", low=0
    )
    delegation_token_secret_key: str = _key(
        "",
        "secret from which delegation tokens are made (KIP-48), the same on all nodes; file:PATH reads it from a file; empty: no tokens",
        secret=True,
    )
    delegation_token_max_lifetime_ms: int = _key(
        604_800_000, "time after which a delegation token cannot be renewed any more", low=1
    )
    delegation_token_expiry_time_ms: int = _key(
        86_400_000, "time after which a delegation token ends unless it is renewed", low=1
    )
    delegation_token_expiry_check_interval_ms: int = _key(
        3_600_000, "interval at which the controller removes expired delegation tokens", low=1
    )
    sasl_plain_users_location: str = _key(
        "", "file of NAME=PASSWORD lines: the users of SASL PLAIN; read again on change"
    )
    sasl_mechanism_inter_broker_protocol: str = _key(
        "SCRAM-SHA-512", "SASL mechanism with which nodes authenticate to each other", choices=SASL_MECHANISMS
    )
    inter_broker_username: str = _key("", "user of this node, if SASL is used between nodes")
    inter_broker_password: str = _key(
        "", "password of inter.broker.username; file:PATH reads it from a file", secret=True
    )
    broker_principals: str = _key(
        "", "principals that may act as nodes, `User:a;User:CN=b`; this node's own principal always may"
    )
    security_transition: str = _key(
        "",
        "step of the transition from plain text: accept: accept both, connect in plain text; offer: accept both, connect"
        " with security; empty: no transition (docs/security.md)",
        choices=("", "accept", "offer"),
    )
    connections_max_reauth_ms: int = _key(
        0,
        "lifetime of a SASL session on the Kafka and the RPC listener; clients authenticate again before its end (KIP-368); 0: no limit",
        low=0,
    )
    connection_failed_authentication_delay_ms: int = _key(
        100, "delay of the response to a failed authentication", low=0, high=10_000
    )
    zookeeper_auth: str = _key(
        "", "USER:PASSWORD for ZooKeeper's digest authentication; file:PATH reads it from a file", secret=True
    )
    zookeeper_set_acl: bool = _key(
        False, "whether znodes are created so that only the identity of zookeeper.auth may change them"
    )
    zookeeper_ssl_client_enable: bool = _key(False, "whether connections to ZooKeeper use TLS")
    zookeeper_ssl_truststore_location: str = _key(
        "", "PEM file: the authorities that sign ZooKeeper's certificate; empty: those of the system"
    )
    zookeeper_ssl_keystore_location: str = _key(
        "", "PEM file: this node's certificate and key for connections to ZooKeeper"
    )

    security_open_acknowledged: str = _key(
        "",
        "listeners (PLAINTEXT, EXTERNAL, RPC, HTTP, …) and ZOOKEEPER that are open on purpose, with commas between them: every client"
        " that reaches them may use them; health does not report them",
    )

    #: Of `listener.name.NAME.KEY`.
    per_listener: PerListener = PerListener()
    topic: TopicConfig = TopicConfig()


#: Old spellings that are still taken: alias -> key.
ALIASES = {
    "log.dir": "log.dirs", "log.segment.bytes": "segment.bytes", "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes", "log.roll.ms": "segment.ms", "log.cleanup.policy": "cleanup.policy",
    "log.index.interval.bytes": "index.interval.bytes", "log.index.size.max.bytes": "segment.index.bytes",
    "log.flush.interval.messages": "flush.messages", "log.flush.interval.ms": "flush.ms",
    "log.segment.delete.delay.ms": "file.delete.delay.ms", "message.max.bytes": "max.message.bytes",
    "log.cleaner.delete.retention.ms": "delete.retention.ms", "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio", "zookeeper": "zookeeper.connect",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.roll.jitter.ms": "segment.jitter.ms", "log.preallocate": "preallocate",
    "log.local.retention.bytes": "local.retention.bytes", "log.local.retention.ms": "local.retention.ms",
}  # fmt: skip
#: Kafka's spellings in other units: -> (ours, milliseconds in one). The spelling in milliseconds wins.
UNITS = {
    "log.retention.minutes": ("retention.ms", 60_000), "log.retention.hours": ("retention.ms", 3_600_000),
    "log.roll.hours": ("segment.ms", 3_600_000), "log.roll.jitter.hours": ("segment.jitter.ms", 3_600_000),
}  # fmt: skip

FLUSH_BEFORE_ACK = "log.flush.before.ack"

#: Keys of the article (docs/sources.md) that have no effect any more; accepted with a warning (invariant C9).
OBSOLETE = frozenset({"replica.lag.max.messages", "replica.lag.max.bytes"})


_KINDS: dict[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


def _parse(key: str, spec: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """One value, from TOML or text, as `kind`. Raises ConfigError."""
    meta, given = spec.metadata, value
    try:
        if kind is bool:
            if isinstance(value, str):
                value = {"true": True, "false": False}[value.strip().lower()]
            if not isinstance(value, bool):
                raise ValueError
            if meta["is_only"] is not None and value is not meta["is_only"]:
                raise ConfigError(f"{key}: only {str(meta['is_only']).lower()} is supported")
        elif kind in (int, float):
            value = _number(kind, value)
            low, high = meta["low"], meta["high"]
            if abs(value) > _MAX:  # of 64 bits, as clients read them
                low, high = -_MAX if low is None else low, _MAX if high is None else high
            if key == "kafka.port" and value == -1:
                raise ConfigError("kafka.port: -1 (no listener) is not taken any more: clients have no other listener")
            if (low is not None and value < low) or (high is not None and value > high):
                raise ConfigError(f"{key}: {value} is not {_range_text(low, high)}")
        elif kind is str:
            if not isinstance(value, str):
                raise ValueError
            if meta["is_set"]:
                value = ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
            if meta["is_list_of_replicas"] and not _REPLICAS.fullmatch(value := value.replace(" ", "")):
                raise ConfigError(f"{key}: {given!r} is neither * nor PARTITION:BROKER,PARTITION:BROKER")
            if meta["choices"] and value not in meta["choices"]:
                raise ConfigError(f"{key}: {value!r} is not one of {', '.join(meta['choices'])}")
        else:
            value = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
            if not value or not all(isinstance(part, str) and part for part in value):
                raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        shown = "the value" if meta["secret"] else repr(given)
        raise ConfigError(f"{key}: {shown} is not {_KINDS.get(kind, 'a list of names')}") from None
    return value


def _number(kind: type[int] | type[float], value: Any) -> int | float:
    """Raises ValueError, also for what only Python takes for a number (1_000), and for what is none (nan, inf)."""
    expected = int | str if kind is int else int | float | str
    if isinstance(value, bool) or not isinstance(value, expected) or (isinstance(value, str) and "_" in value):
        raise ValueError
    number = kind(value)
    if kind is float and not math.isfinite(number):
        raise ValueError
    return number


def _range_text(low: int | None, high: int | None) -> str:
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"within {low}..{high}"


def _fields(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    hints = get_type_hints(cls)
    return {f.name.replace("_", "."): (f, hints[f.name]) for f in dataclasses.fields(cls) if f.metadata}


TOPIC_KEYS = _fields(TopicConfig)
BROKER_KEYS = _fields(BrokerConfig)


def topic_config(base: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """`base` with a topic's own settings on top. Raises ConfigError."""
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in TOPIC_KEYS:
            raise ConfigError(f"{key}: no such topic configuration")
        spec, kind = TOPIC_KEYS[key]
        changes[spec.name] = _parse(key, spec, kind, value)
    config = dataclasses.replace(base, **changes)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is above max.compaction.lag.ms"
            f" ({config.max_compaction_lag_ms})"
        )
    return config


def usable_topic_config(base: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """As `topic_config`, without what was written by hand and means nothing: the rest of the topic's settings hold."""
    try:
        return topic_config(base, overrides)
    except ConfigError:
        usable = base
        for key, value in sorted(overrides.items()):
            with contextlib.suppress(ConfigError):
                usable = topic_config(usable, {key: value})
        return usable


def internal_topic_config(base: TopicConfig, overrides: Mapping[str, str], *, others_flush: bool) -> TopicConfig:
    """The configuration of an internal topic.

    The decisions over a topic's transactions, and the offsets committed for it, are in internal topics. If the topic has
    log.flush.before.ack, these must be as durable as its records. So internal topics flush, too, unless their own settings
    say otherwise.

    Args:
        others_flush: whether any other topic has set log.flush.before.ack.
    """
    config = usable_topic_config(base, overrides)
    if others_flush and FLUSH_BEFORE_ACK not in overrides:
        config = dataclasses.replace(config, log_flush_before_ack=True)
    return config


def _in_milliseconds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Hours and minutes as milliseconds; of several spellings the finest holds, as with Kafka. Raises ConfigError."""
    plain = {raw: value for raw, value in settings.items() if raw not in UNITS}
    known = {ALIASES.get(raw, raw) for raw in plain}
    for raw, (key, factor) in UNITS.items():  # minutes before hours
        if raw in settings:
            try:
                number = int(_number(int, settings[raw]))
            except (ValueError, TypeError):
                raise ConfigError(f"{raw}: {settings[raw]!r} is not an integer") from None
            if key not in known:
                known.add(key)
                plain[key] = -1 if number < 0 else min(number * factor, _MAX)
    return plain


def broker_config(settings: Mapping[str, Any]) -> tuple[BrokerConfig, list[str]]:
    """The configuration that `settings` (key with dots -> value) describe, and warnings.

    Raises:
        ConfigError: an unknown key, a wrong type, a value out of range, or an impossible relation.
    """
    own: dict[str, Any] = {}
    for_topics: dict[str, Any] = {}
    warnings: list[str] = []
    per_listener: list[tuple[str, str, Any]] = []
    for raw, value in _in_milliseconds(settings).items():
        key = ALIASES.get(raw, raw)
        if (of_listener := split_listener_key(key)) is not None:
            spec, kind = BROKER_KEYS[of_listener[1]]
            per_listener.append((of_listener[0], spec.name, _parse(key, spec, kind, value)))
            continue
        if key in OBSOLETE:
            warnings.append(f"{key} is obsolete and ignored: lag is measured in time only (replica.lag.time.max.ms)")
        elif key in BROKER_KEYS:
            spec, kind = BROKER_KEYS[key]
            own[spec.name] = _parse(key, spec, kind, value)
        elif key in TOPIC_KEYS:
            for_topics[key] = value
        else:
            raise ConfigError(f"{raw}: no such configuration")
    config = BrokerConfig(
        topic=topic_config(TopicConfig(), for_topics), per_listener=PerListener(tuple(sorted(per_listener))), **own
    )
    if config.zookeeper_session_timeout_ms >= config.replica_lag_time_max_ms:
        raise ConfigError(
            f"zookeeper.session.timeout.ms ({config.zookeeper_session_timeout_ms}) must be below "
            f"replica.lag.time.max.ms ({config.replica_lag_time_max_ms}): an isolated leader would shrink its ISR to itself first"
        )
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        raise ConfigError(
            "replica.fetch.wait.max.ms must not exceed replica.lag.time.max.ms: idle followers would fall out of the ISR"
        )
    if len(set(config.log_dirs)) != len(config.log_dirs):
        raise ConfigError("log.dirs: the same directory twice")
    for name in ("kafka_port", "listener_security_protocol"):
        if config.listeners.strip() and name in own:
            raise ConfigError(f"{LISTENERS} is set: remove {name.replace('_', '.')}, it is for a single listener")
    _check_addresses(config)
    _check_security(config)
    return config, warnings


def kafka_listeners(config: BrokerConfig) -> tuple[KafkaListenerSettings, ...]:
    """One at least. Raises ConfigError."""
    advertised = config.advertised_listeners.strip()
    if config.listeners.strip():
        return several_listeners(config.listeners, advertised, config.listener_security_protocol_map.strip())
    if config.listener_security_protocol_map:
        raise ConfigError(f"{PROTOCOL_MAP} is for the listeners of {LISTENERS}, which is not set")
    return (one_listener(config.host, config.kafka_port, config.listener_security_protocol, advertised),)


def inter_broker_listener(config: BrokerConfig) -> KafkaListenerSettings:
    """The Kafka listener to which other nodes connect. Raises ConfigError."""
    found = kafka_listeners(config)
    name = config.inter_broker_listener_name.strip().upper()
    if not name:
        return found[0]
    for each in found:
        if each.name == name:
            return each
    raise ConfigError(f"inter.broker.listener.name: there is no listener {name}")


def advertised_rpc(config: BrokerConfig, bound_port: int) -> Endpoint:
    """Where other nodes find the RPC listener. Raises ConfigError."""
    if not config.advertised_rpc:
        return Endpoint(config.host, bound_port)
    address = parse_advertised("advertised.rpc", config.advertised_rpc.strip())
    return Endpoint(address.host, address.port or bound_port)


def advertised_http(config: BrokerConfig, bound_port: int) -> Endpoint:
    """Where browsers find the HTTP listener. Raises ConfigError."""
    if config.advertised_http:
        address = parse_advertised("advertised.http", config.advertised_http.strip())
        return Endpoint(address.host, address.port or bound_port)
    host = advertised_rpc(config, 0).host if is_wildcard(config.host) else config.host
    return Endpoint(host, bound_port)


def console_url(config: BrokerConfig, bound_port: int) -> str:
    """What a browser opens to see this node's console. Raises ConfigError."""
    where = advertised_http(config, bound_port)
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"{'https' if http_protocol(config).endswith('SSL') else 'http'}://{host}:{where.port}"


def http_names(config: BrokerConfig) -> frozenset[str]:
    """By which browsers may open the status page."""
    names = {config.host, advertised_rpc(config, 0).host, advertised_http(config, 0).host}
    names |= {each.address(0).host for each in kafka_listeners(config)}
    names |= {part.strip() for part in config.http_allowed_hosts.split(",")}
    return frozenset(names - {""})


def _check_addresses(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    inter_broker_listener(config)
    names = [each.name for each in kafka_listeners(config)]
    for name in (RPC, HTTP):
        if name in names:
            raise ConfigError(f"a Kafka listener cannot be named {name}: the node has another one of that name")
    if unknown := unknown_listener(config.per_listener, names):
        raise ConfigError(f"listener.name.{unknown.lower()}.…: there is no listener {unknown}")
    if is_wildcard(advertised_rpc(config, 0).host):
        raise ConfigError(
            f"host is {config.host or 'empty'}, which no node can connect to: set advertised.rpc=HOST:PORT"
        )
    if config.advertised_http and config.http_port < 0:
        raise ConfigError("advertised.http is set, but http.port is -1: the node has no HTTP listener")
    advertised_http(config, 0)


def for_listener(config: BrokerConfig, name: str) -> BrokerConfig:
    """With a listener's own settings (`listener.name.NAME.KEY`) in place of the node's. `name` in capitals; or RPC, HTTP."""
    own = config.per_listener.of(name)
    if name == HTTP and "ssl_client_auth" not in own and config.http_ssl_client_auth:
        own["ssl_client_auth"] = config.http_ssl_client_auth
    if (
        name == RPC
        and "ssl_client_auth" not in own
        and not config.rpc_security_protocol
        and config.ssl_client_auth == "none"
    ):
        own["ssl_client_auth"] = "required"  # nodes know each other by their certificates
    return dataclasses.replace(config, **own) if own else config


def is_secured(config: BrokerConfig) -> bool:
    """Whether any listener asks for more than plain text."""
    protocols = [rpc_protocol(config), http_protocol(config)]
    protocols += [listener.protocol for listener in kafka_listeners(config)]
    return any(protocol != "PLAINTEXT" for protocol in protocols) or bool(config.http_bearer_tokens_location)


def rpc_protocol(config: BrokerConfig) -> str:
    """The RPC listener's protocol: without a setting of its own, that of the Kafka listener to which nodes connect."""
    return config.rpc_security_protocol or inter_broker_listener(config).protocol


def http_protocol(config: BrokerConfig) -> str:
    """The HTTP listener's protocol: without a setting of its own it is as closed as the RPC listener (ADR 13)."""
    return config.http_security_protocol or rpc_protocol(config)


def _check_security(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    between_nodes = inter_broker_listener(config)
    for listener in kafka_listeners(config):
        key = f"listener {listener.name}" if config.listeners.strip() else "listener.security.protocol"
        _check_protocol(config, listener.name, key, listener.protocol, is_for_nodes=listener == between_nodes)
    _check_protocol(config, RPC, "rpc.security.protocol", rpc_protocol(config), is_for_nodes=True)
    if config.http_port >= 0:
        _check_protocol(config, HTTP, "http.security.protocol", http_protocol(config), is_for_nodes=False)
    if rpc_protocol(config) == "SSL" and for_listener(config, RPC).ssl_client_auth == "none":
        raise ConfigError(
            "rpc.security.protocol is SSL: nodes know each other by their certificates, ask for them (ssl.client.auth, or"
            " listener.name.rpc.ssl.client.auth)"
        )
    if config.zookeeper_set_acl and not config.zookeeper_auth:
        raise ConfigError("zookeeper.set.acl needs zookeeper.auth")


def _check_protocol(config: BrokerConfig, name: str, key: str, protocol: str, *, is_for_nodes: bool) -> None:
    """Whether a listener has what its protocol needs. Raises ConfigError."""
    own = for_listener(config, name)
    if protocol.endswith("SSL") and not own.ssl_keystore_location:
        raise ConfigError(f"{key} is {protocol}: ssl.keystore.location is missing")
    if not protocol.startswith("SASL"):
        return
    unknown = [each for each in own.sasl_enabled_mechanisms if each not in LISTENER_MECHANISMS]
    if unknown:
        raise ConfigError(f"sasl.enabled.mechanisms: {unknown[0]!r} is not one of {', '.join(LISTENER_MECHANISMS)}")
    if "OAUTHBEARER" in own.sasl_enabled_mechanisms and not config.sasl_oauthbearer_jwks_endpoint_url:
        raise ConfigError("sasl.enabled.mechanisms: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url")
    if "PLAIN" in own.sasl_enabled_mechanisms and not own.sasl_plain_users_location:
        raise ConfigError("sasl.enabled.mechanisms: PLAIN needs sasl.plain.users.location")
    if not is_for_nodes:
        return
    if config.sasl_mechanism_inter_broker_protocol not in own.sasl_enabled_mechanisms:
        raise ConfigError("sasl.mechanism.inter.broker.protocol is not one of sasl.enabled.mechanisms")
    if not (config.inter_broker_username and config.inter_broker_password):
        raise ConfigError(f"{key} is {protocol}: inter.broker.username or inter.broker.password is missing")


def is_dynamic(key: str) -> bool:
    """Whether a broker takes a new value of this key (in any spelling) without a restart, as Kafka's does."""
    key = ALIASES.get(key, key)
    return key in TOPIC_KEYS or (key in BROKER_KEYS and bool(BROKER_KEYS[key][0].metadata["dynamic"]))


def check_dynamic(key: str, value: str) -> None:
    """Raises ConfigError if a broker cannot be given this value while it runs."""
    if not is_dynamic(key):
        known = ALIASES.get(key, key) in BROKER_KEYS
        raise ConfigError(f"{key}: {'cannot be changed without a restart' if known else 'no such configuration'}")
    if key == ADVERTISED:  # whether the names fit depends on the broker
        check_advertised(value)
    else:
        broker_config({key: value})


def with_dynamic(static: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """`static` with dynamic settings on top, the last layer the strongest (the cluster's, then the broker's own).

    What was written by hand and means nothing, or may not change, is left out.
    """
    config = static
    for layer in layers:
        for raw, value in sorted(layer.items()):
            try:
                check_dynamic(raw, value)
            except ConfigError:
                continue
            key = ALIASES.get(raw, raw)
            if key in TOPIC_KEYS:
                config = dataclasses.replace(config, topic=topic_config(config.topic, {key: value}))
            else:
                spec, kind = BROKER_KEYS[key]
                changed = dataclasses.replace(config, **{spec.name: _parse(key, spec, kind, value)})
                with contextlib.suppress(ConfigError):
                    kafka_listeners(changed)
                    config = changed
    return config


#: The limits of reassignments (KIP-435, invariant C13): cluster-wide dynamic settings. The KIP's text has the first prefix, its table the
#: second one; the others are accepted because earlier versions accepted them.
LIMIT_PREFIXES = ("reassignment.parallel.", "reassignment.max.concurrent.", "parallel.reassignment.", "parallel.")
REPLICAS = "replica.count"
PARTITIONS = "partition.count"
LEADER_MOVEMENTS = "leader.movements"
#: As they are written by us.
LIMIT_KEYS = tuple(LIMIT_PREFIXES[0] + name for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def is_limit(key: str) -> bool:
    """Whether the key names a limit, in any spelling."""
    return any(key == prefix + name for prefix in LIMIT_PREFIXES for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def parse_limit(value: str) -> int | None:
    """A positive int, at most Kafka's Int.MAX; None if it is none."""
    text = value.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    return int(text) if 1 <= int(text) < 2**31 else None


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML's nested tables as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def load(text: str | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> tuple[BrokerConfig, list[str]]:
    """The configuration from a TOML text (or None), the environment and the flags, and warnings. Raises ConfigError."""
    return broker_config(settings_from(text, environ, flags))


def settings_from(text: str | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """What is set, by key, unchecked. Raises ConfigError if `text` is not TOML."""
    settings: dict[str, Any] = {}
    if text is not None:
        import tomllib  # a node without a file does not wait for it

        try:
            settings |= flatten(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"configuration file: {error}") from None
    known = BROKER_KEYS.keys() | TOPIC_KEYS.keys() | ALIASES.keys() | UNITS.keys()
    by_variable = {"KAFKALITE_" + key.upper().replace(".", "_"): key for key in known}
    settings |= {by_variable[name]: value for name, value in environ.items() if name in by_variable}
    settings |= flags
    return settings
