"""What follows when settings of topics, users, brokers or this node have changed: each part of the node gets its own."""

from __future__ import annotations

from kafkalite.admin.acls import AclManager
from kafkalite.config import BrokerConfig
from kafkalite.controller.controller import Controller
from kafkalite.kafka.listener import KafkaListener
from kafkalite.log.log_manager import LogManager
from kafkalite.node.membership import ClusterMembership
from kafkalite.node.settings import CurrentSettings
from kafkalite.replica.replica_manager import ReplicaManager


class ChangedSettings:
    """The SettingsEvents of a node."""

    def __init__(
        self,
        *,
        settings: CurrentSettings,
        replicas: ReplicaManager,
        logs: LogManager,
        controller: Controller,
        membership: ClusterMembership,
        listener: KafkaListener,
        rights: AclManager,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._logs = logs
        self._membership = membership
        self._rights = rights
        self.topic_changed = replicas.topic_config_changed
        self.user_changed = listener.credentials_changed
        self.cluster_changed = controller.settings_changed

    def reconfigured(self, before: BrokerConfig) -> None:
        """See SettingsEvents."""
        config = self._settings.now
        self._rights.reconfigured(config)
        self._replicas.fetchers.resize(config.num_replica_fetchers)
        self._replicas.serving.throttled_rate = config.leader_replication_throttled_rate
        self._replicas.following.throttled_rate = config.follower_replication_throttled_rate
        housekeeping = self._logs.housekeeping
        housekeeping.change_cleaner_backoff(config.log_cleaner_backoff_ms)
        housekeeping.producer_id_expiration_ms = config.producer_id_expiration_ms
        housekeeping.max_producer_ids = config.max_producer_ids_per_broker
        self._logs.moves.change_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)
        self._logs.pool.cordon(config.cordoned_log_dirs)
        if (config.advertised_listeners, config.cordoned_log_dirs) != (
            before.advertised_listeners,
            before.cordoned_log_dirs,
        ):
            self._membership.settings_changed()
        if config.topic != before.topic:
            for topic in sorted({partition.topic_partition.topic for partition in self._replicas.hosted.all()}):
                self._replicas.topic_config_changed(topic)
