"""How the internal topics are created: compacted, and replicated as the configuration says."""

from __future__ import annotations

from kafkalite.config import BrokerConfig
from kafkalite.model import GROUP_TOPIC, TRANSACTION_TOPIC
from kafkalite.rpc.messages.topics import NewTopic


def internal_topic(name: str, config: BrokerConfig, alive: int) -> NewTopic:
    """The order for an internal topic. With fewer brokers than replicas wanted, all brokers have one."""
    if name == GROUP_TOPIC:
        partitions, replicas = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
    else:
        assert name == TRANSACTION_TOPIC
        partitions, replicas = (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
        )
    return NewTopic(
        name,
        partitions=partitions,
        replication_factor=max(1, min(replicas, alive)),
        configs={"cleanup.policy": "compact", "segment.bytes": "104857600"},
    )
