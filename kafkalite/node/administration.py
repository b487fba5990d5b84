"""What administrators may ask of any node: a part for each subject."""

from __future__ import annotations

from kafkalite.admin.brokers import BrokerAdmin
from kafkalite.admin.configs import ConfigAdmin
from kafkalite.admin.disk_balancing import DiskBalancing
from kafkalite.admin.disk_healing import ReplicaSelfHealing
from kafkalite.admin.log_dirs import LogDirAdmin
from kafkalite.admin.partitions import PartitionAdmin
from kafkalite.admin.reassignments import ReassignmentAdmin
from kafkalite.admin.topic_requests import TopicRequests
from kafkalite.admin.topics import TopicAdmin
from kafkalite.env import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.log_manager import LogManager
from kafkalite.node.settings import CurrentSettings
from kafkalite.node.zookeeper_health import ZooKeeperHealth
from kafkalite.replica.replica_manager import ReplicaManager


class Administration:
    """Made once; `start` begins the care for the node's disks.

    Attributes:
        healing: brings replicas back whose disk has failed.
    """

    def __init__(
        self,
        env: Env,
        settings: CurrentSettings,
        zookeeper: ZooKeeperHealth,
        logs: LogManager,
        replicas: ReplicaManager,
        healing: ReplicaSelfHealing,
    ) -> None:
        self.healing = healing
        self._logs = logs
        self._replicas = replicas
        self.log_dirs = LogDirAdmin(
            logs, env.disk, healing, replicas, local=replicas.local, topic_configs=settings.configs.topics
        )
        self._disk_balancing = DiskBalancing(settings.current, logs, env.disk, replicas.hosted.history)
        topics = TopicAdmin(zookeeper.ordering, settings.current, env.random, settings.configs.topic)
        self.topics = TopicRequests(topics, replicas.metadata)
        metadata = replicas.metadata
        self.partitions = PartitionAdmin(
            topics,
            settings.current,
            env.random,
            lambda broker_id: metadata.is_empty or metadata.broker(broker_id) is not None,
        )
        self.reassignments = ReassignmentAdmin(topics)
        self.brokers = BrokerAdmin(topics)
        self.configs = ConfigAdmin(zookeeper.ordering)

    def start(self, supervisor: Supervisor) -> None:
        """Begin to take failed disks out of service, back into it, and to even out the others."""
        supervisor.spawn("disks.requests", self.healing.run_requests(self._replicas))
        supervisor.spawn("disks.balance", self._disk_balancing.run())
        supervisor.spawn("disks.care", self.healing.run(self._replicas, self._logs))
        supervisor.spawn("disks.returns", self.healing.run_returns(self._logs, self.log_dirs.take_back, supervisor))
