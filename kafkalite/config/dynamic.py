"""Settings that change while a broker runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from kafkalite.config.broker import BROKER_KEYS, BrokerConfig
from kafkalite.config.cordons import CORDONED_LOG_DIRS
from kafkalite.config.listeners import kafka_listeners
from kafkalite.config.loading import broker_config
from kafkalite.config.parsing import ALIASES, parse
from kafkalite.config.topic import TOPIC_KEYS, usable_topic_config
from kafkalite.errors import ConfigError
from kafkalite.listeners import ADVERTISED, check_advertised


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
    elif key != CORDONED_LOG_DIRS:  # likewise
        broker_config({key: value})


def topic_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The defaults of topics among a broker's settings, by the topics' names for them."""
    keys = {ALIASES.get(raw, raw): value for raw, value in settings.items()}
    return {key: value for key, value in keys.items() if key in TOPIC_KEYS}


def with_dynamic(static: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """`static` with dynamic settings on top, the last layer the strongest (the cluster's, then the broker's own).

    What was written by hand and means nothing, or may not change, is left out, and so is what contradicts a weaker layer.
    """
    config = static
    for layer in layers:
        usable = {raw: value for raw, value in sorted(layer.items()) if _is_usable(raw, value)}
        topic = usable_topic_config(config.topic, topic_settings(usable))
        config = config if topic == config.topic else dataclasses.replace(config, topic=topic)
        for raw, value in usable.items():
            key = ALIASES.get(raw, raw)
            if key in TOPIC_KEYS:
                continue
            spec, kind = BROKER_KEYS[key]
            changed = dataclasses.replace(config, **{spec.name: parse(key, spec, kind, value)})
            with contextlib.suppress(ConfigError):
                kafka_listeners(changed)
                config = changed
    return config


def _is_usable(key: str, value: str) -> bool:
    try:
        check_dynamic(key, value)
    except ConfigError:
        return False
    return True
