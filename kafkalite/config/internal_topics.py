"""What internal topics are configured with where they have no settings of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import FLUSH_BEFORE_ACK, TopicConfig, usable_topic_config
from kafkalite.model import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

_SEGMENT_BYTES = "segment.bytes"
_SEGMENT_KEYS = {
    GROUP_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTION_TOPIC: "transaction.state.log.segment.bytes",
    SHARE_TOPIC: "share.coordinator.state.topic.segment.bytes",
}


def broker_key_of(topic: str, key: str) -> str:
    """The broker's setting that a topic's `key` has its default from: for segment.bytes of internal topics one of its own."""
    return _SEGMENT_KEYS.get(topic, key) if key == _SEGMENT_BYTES else key


def internal_topic_config(
    config: BrokerConfig, topic: str, overrides: Mapping[str, str], *, others_flush: bool
) -> TopicConfig:
    """The configuration of an internal topic.

    The decisions over a topic's transactions, and the offsets committed for it, are in internal topics. If the topic has
    log.flush.before.ack, these must be as durable as its records. So internal topics flush, too, unless their own settings
    say otherwise.

    Args:
        others_flush: whether any other topic has set log.flush.before.ack.
    """
    base = config.topic
    if topic in _SEGMENT_KEYS:
        size: int = getattr(config, _SEGMENT_KEYS[topic].replace(".", "_"))
        base = dataclasses.replace(base, segment_bytes=size)
    effective = usable_topic_config(base, overrides)
    if others_flush and FLUSH_BEFORE_ACK not in overrides:
        effective = dataclasses.replace(effective, log_flush_before_ack=True)
    return effective
