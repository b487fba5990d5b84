"""How the internal topics are created: compacted (but for the state of share groups), and replicated as the configuration says."""

from __future__ import annotations

from dataclasses import replace

from kafkalite.config import BrokerConfig
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import GROUP_TOPIC, SCHEMA_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC, BrokerId
from kafkalite.replica.requests import MetadataResponse

#: Only the controller is known, before the first metadata.
NO_BROKER = BrokerId(-1)


def broker_count(known: MetadataResponse) -> int:
    """The brokers of the cluster: those that are alive, and those that have replicas; 0 as long as that is not known.

    Args:
        known: the metadata of all topics.
    A broker that is away for a moment must not cost an internal topic a replica for good. A node that has just started knows
    the brokers which its first command names, and no topics, until the controller has sent it the metadata.
    """
    if known.controller_id == NO_BROKER:
        return 0
    alive = {broker.broker_id for broker in known.brokers}
    return len(alive.union(*(part.replicas for topic in known.topics for part in topic.partitions)))


def internal_topic(name: str, config: BrokerConfig, brokers: int) -> NewTopic:
    """An internal topic as it is created. With fewer brokers than replicas wanted, all brokers have one; the controller adds the others when
    there are more (ADR 62).

    Args:
        brokers: see `broker_count`. Some of them may be away or take no replicas: see `with_fewest_replicas`.

    With three replicas an acknowledged record of a coordinator is on two nodes at least. With two replicas that would
    require both nodes to be up, so one is enough, unless `min.insync.replicas` of the broker says otherwise.
    """
    state_min_isr = config.transaction_state_log_min_isr
    segment_bytes = 104_857_600
    configs = {"cleanup.policy": "compact"}
    if name == GROUP_TOPIC:
        partitions, replicas = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        segment_bytes = config.offsets_topic_segment_bytes
    elif name == SCHEMA_TOPIC:
        partitions, replicas = 1, config.offsets_topic_replication_factor
    elif name == SHARE_TOPIC:
        partitions = config.share_coordinator_state_topic_num_partitions
        replicas = config.share_coordinator_state_topic_replication_factor
        state_min_isr = config.share_coordinator_state_topic_min_isr
        # Updates of a key add to each other: the coordinator deletes what it does not need (`shares.records`).
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        segment_bytes = config.share_coordinator_state_topic_segment_bytes
    else:
        assert name == TRANSACTION_TOPIC
        partitions, replicas = (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
        )
        segment_bytes = config.transaction_state_log_segment_bytes
    replicas = max(1, min(replicas, brokers))
    min_isr = max(
        1,
        min(state_min_isr, replicas - 1),
        min(config.topic.min_insync_replicas, replicas),
    )
    return NewTopic(
        name,
        partitions=partitions,
        replication_factor=replicas,
        configs={**configs, "segment.bytes": str(segment_bytes), "min.insync.replicas": str(min_isr)},
    )


def with_fewest_replicas(topic: NewTopic) -> NewTopic:
    """The same topic with as few replicas as it may have, for when too few brokers can take one now.

    It has as many replicas as its min.insync.replicas, so what is acknowledged is on as many nodes as with all brokers. The
    controller adds the others (ADR 62).
    """
    assert topic.configs is not None
    return replace(topic, replication_factor=int(topic.configs["min.insync.replicas"]))
