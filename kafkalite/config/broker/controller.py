"""The controller, its failure detectors, the balancer."""

from kafkalite.config.keys import INT_MAX, area, setting


@area
class ControllerSettings:
    """The controller, its failure detectors, the balancer."""

    controller_quota_window_num: int = setting(
        11, "number of windows whose permits of controller_mutation_rate a client may use at once", low=1, high=3600
    )
    controller_quota_window_size_seconds: int = setting(
        1, "length of a window of controller_mutation_rate", low=1, high=3600
    )
    controller_socket_timeout_ms: int = setting(
        30_000, "time without a response to a controller's command after which health reports it", low=1, high=INT_MAX
    )
    controller_queue_max_requests: int = setting(
        1_000, "maximum number of the controller's commands that wait per broker", low=10
    )
    broker_heartbeat_interval_ms: int = setting(
        300, "interval of the heartbeats between controller and brokers", low=10, high=INT_MAX
    )
    broker_heartbeat_timeout_ms: int = setting(
        1_500,
        "time without a response to heartbeats after which a broker loses its leaderships, or the controller is replaced; 0: never",
        low=0,
        high=INT_MAX,
    )
    auto_leader_rebalance_enable: bool = setting(
        True, "whether the controller periodically makes the preferred replicas the leaders"
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, "interval at which the controller checks the leader imbalance (auto.leader.rebalance.enable)", low=1
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        "share of its preferred leaderships that a broker may lack before the controller gives them back, in percent",
        low=0,
        high=100,
    )
    balancer_mode: str = setting(
        "advise",
        "off; advise: the controller reports that moves would make the load even; on: it makes these moves, and recreates the replicas of"
        " brokers that are lost (set it for the cluster)",
        choices=("off", "advise", "on"),
        dynamic=True,
    )
    balancer_interval_ms: int = setting(
        60_000, "interval at which the controller's balancer asks the brokers for their load", low=100, dynamic=True
    )
    balancer_max_moves: int = setting(
        10, "maximum number of partitions that the balancer moves at once", low=1, high=10_000, dynamic=True
    )
    balancer_throttle_bytes_per_second: int = setting(
        0, "limit per leader for the replicas that the balancer moves; 0: no limit", low=0, dynamic=True
    )
    balancer_tolerance_percent: int = setting(
        10,
        "share of the mean by which a broker's replicas, preferred leaders, bytes and bytes/s may differ before the balancer acts, in percent;"
        " it goes on until half of it is reached",
        low=1,
        high=100,
        dynamic=True,
    )
    balancer_max_disk_percent: int = setting(
        85,
        "share of a broker's disks up to which the balancer gives it replicas, in percent",
        low=1,
        high=100,
        dynamic=True,
    )
    balancer_broker_timeout_ms: int = setting(
        900_000,
        "time after which a broker that is not alive counts as lost: with balancer.mode=on its replicas are recreated on other brokers; 0: never",
        low=0,
        dynamic=True,
    )
    controlled_shutdown_enable: bool = setting(True, "whether a node moves its leaderships away before it stops")
    controlled_shutdown_max_wait_ms: int = setting(10_000, "maximum duration of a controlled shutdown", low=0)
