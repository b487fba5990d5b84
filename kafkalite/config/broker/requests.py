"""Limits of connections and requests, quotas."""

from kafkalite.config.keys import INT_MAX, area, setting


@area
class RequestSettings:
    """Limits of connections and requests, quotas."""

    replica_selector_class: str = setting(
        "",
        "which replica consumers with a client.rack read from (KIP-392); empty: the leader",
        choices=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    )
    fetch_max_bytes: int = setting(
        57_671_680, "size of the largest response to a fetch request", low=1024, high=INT_MAX
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000, "maximum number of incremental fetch sessions of clients (KIP-227)", low=0, high=INT_MAX
    )
    max_connections: int = setting(
        10_000,
        "maximum number of open connections of the Kafka listeners together; if it is lowered, the clients that were silent for the"
        " longest time are disconnected; listener.name.NAME.max.connections: of that listener (without it, the HTTP listener has 100,"
        " the RPC listener 10000)",
        low=1,
        high=INT_MAX,
        dynamic=True,
    )
    max_inflight_requests_per_connection: int = setting(
        64, "maximum number of requests of one connection that are read before the first is answered", low=1
    )
    queued_max_request_bytes: int = setting(
        268_435_456,
        "memory for the requests in progress of all connections; responses that clients have not read yet may use the same amount again",
        low=1,
    )
    socket_request_max_bytes: int = setting(
        104_857_600, "size of the largest request on the Kafka listener", low=1024, high=INT_MAX
    )
    rpc_max_frame_bytes: int = setting(134_217_728, "size of the largest frame on the RPC listener", low=1024)
    connections_max_idle_ms: int = setting(600_000, "time after which an idle connection is closed", low=1)
    max_connections_per_ip: int = setting(
        INT_MAX,
        "maximum number of open connections from one address to the Kafka listeners together, and to each other listener (to the RPC listener"
        " 100 at least, unless it is 0)",
        low=0,
        high=INT_MAX,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        "", "limits of connections for individual addresses: HOST:COUNT,HOST:COUNT"
    )
    max_connection_creation_rate: int = setting(
        INT_MAX,
        "new connections per second on the node's Kafka listeners together, on average; those of 10 seconds may come at once; others are refused",
        low=0,
        high=INT_MAX,
        dynamic=True,
    )
    max_connection_creation_rate_per_ip: int = setting(
        1_000,
        "new connections per second from one address to the Kafka listeners together, and to each other listener, on average; those of"
        " 10 seconds may come at once; others are refused; 0: no limit",
        low=0,
        high=INT_MAX,
        dynamic=True,
    )
    quota_window_num: int = setting(
        11, "number of windows over which a client's rate is measured for quotas", low=2, high=3600
    )
    quota_window_size_seconds: int = setting(1, "length of a quota window", low=1, high=3600)
