"""The configuration: Kafka's names and defaults wherever Kafka has the key.

Attributes are the keys with dots turned into underscores. A new setting is one line: of a topic in `topic`, of a broker in the file of
its area in `broker/`.
"""

from kafkalite.config.broker import BROKER_KEYS, BrokerConfig
from kafkalite.config.cordons import CORDONED_LOG_DIRS, check_cordoned, cordoned_among
from kafkalite.config.dynamic import check_dynamic, is_dynamic, topic_settings, with_dynamic
from kafkalite.config.internal_topics import broker_key_of, internal_topic_config
from kafkalite.config.limits import (
    LEADER_MOVEMENTS,
    LIMIT_KEYS,
    LIMIT_PREFIXES,
    PARTITIONS,
    REPLICAS,
    is_limit,
    parse_limit,
)
from kafkalite.config.listeners import (
    advertised_http,
    advertised_rpc,
    console_url,
    for_listener,
    http_names,
    http_protocol,
    inter_broker_listener,
    is_secured,
    kafka_listeners,
    max_connections,
    rpc_protocol,
)
from kafkalite.config.loading import broker_config, flatten, load, settings_from
from kafkalite.config.parsing import ALIASES, OBSOLETE, UNITS
from kafkalite.config.topic import (
    FLUSH_BEFORE_ACK,
    TOPIC_KEYS,
    TopicConfig,
    topic_config,
    usable_topic_config,
)

__all__ = [
    "ALIASES",
    "BROKER_KEYS",
    "CORDONED_LOG_DIRS",
    "FLUSH_BEFORE_ACK",
    "LEADER_MOVEMENTS",
    "LIMIT_KEYS",
    "LIMIT_PREFIXES",
    "OBSOLETE",
    "PARTITIONS",
    "REPLICAS",
    "TOPIC_KEYS",
    "UNITS",
    "BrokerConfig",
    "TopicConfig",
    "advertised_http",
    "advertised_rpc",
    "broker_config",
    "broker_key_of",
    "check_cordoned",
    "check_dynamic",
    "console_url",
    "cordoned_among",
    "flatten",
    "for_listener",
    "http_names",
    "http_protocol",
    "inter_broker_listener",
    "internal_topic_config",
    "is_dynamic",
    "is_limit",
    "is_secured",
    "kafka_listeners",
    "load",
    "max_connections",
    "parse_limit",
    "rpc_protocol",
    "settings_from",
    "topic_config",
    "topic_settings",
    "usable_topic_config",
    "with_dynamic",
]
