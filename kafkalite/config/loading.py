"""A node's configuration from everything that sets it.

Order of precedence: defaults < TOML file < environment (KAFKALITE_MIN_INSYNC_REPLICAS) < flags < dynamic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.config.broker import BROKER_KEYS, BrokerConfig
from kafkalite.config.checks import check_addresses, check_limits, check_security
from kafkalite.config.cordons import check_cordoned
from kafkalite.config.parsing import ALIASES, OBSOLETE, UNITS, in_milliseconds, parse
from kafkalite.config.topic import TOPIC_KEYS, TopicConfig, topic_config
from kafkalite.errors import ConfigError
from kafkalite.listener_settings import PerListener
from kafkalite.listener_settings import split as split_listener_key
from kafkalite.listeners import LISTENERS


def broker_config(settings: Mapping[str, Any]) -> tuple[BrokerConfig, list[str]]:
    """The configuration that `settings` (key with dots -> value) describe, and warnings.

    Raises:
        ConfigError: an unknown key, a wrong type, a value out of range, or an impossible relation.
    """
    own: dict[str, Any] = {}
    for_topics: dict[str, Any] = {}
    warnings: list[str] = []
    per_listener: dict[tuple[str, str], Any] = {}
    for raw, value in in_milliseconds(settings).items():
        key = ALIASES.get(raw, raw)
        if (of_listener := split_listener_key(key)) is not None:
            spec, kind = BROKER_KEYS[of_listener[1]]
            per_listener[of_listener[0], spec.name] = parse(key, spec, kind, value)
            continue
        if key in OBSOLETE:
            warnings.append(f"{key} is obsolete and ignored: lag is measured in time only (replica.lag.time.max.ms)")
        elif key in BROKER_KEYS:
            spec, kind = BROKER_KEYS[key]
            own[spec.name] = parse(key, spec, kind, value)
        elif key in TOPIC_KEYS:
            for_topics[key] = value
        else:
            raise ConfigError(f"{raw}: no such configuration")
    of_listeners = PerListener(tuple((*key, value) for key, value in sorted(per_listener.items())))
    config = BrokerConfig(topic=topic_config(TopicConfig(), for_topics), per_listener=of_listeners, **own)
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
    check_cordoned(config.log_dirs, config.cordoned_log_dirs)
    for name in ("kafka_port", "listener_security_protocol"):
        if config.listeners.strip() and name in own:
            raise ConfigError(f"{LISTENERS} is set: remove {name.replace('_', '.')}, it is for a single listener")
    check_limits(config)
    check_addresses(config)
    check_security(config)
    return config, warnings


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML's nested tables as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def load(
    text: str | None, environ: Mapping[str, str], flags: Mapping[str, Any], name: str = ""
) -> tuple[BrokerConfig, list[str]]:
    """The configuration from a TOML text (or None), the environment and the flags, and warnings. Raises ConfigError.

    Args:
        name: the text's file, for errors.
    """
    return broker_config(settings_from(text, environ, flags, name))


def settings_from(
    text: str | None, environ: Mapping[str, str], flags: Mapping[str, Any], name: str = ""
) -> dict[str, Any]:
    """What is set, by key, in whatever spelling it was set; unchecked. Raises ConfigError if `text` is not TOML."""
    settings: dict[str, Any] = {}
    if text is not None:
        import tomllib  # a node without a file does not wait for it

        try:
            settings |= _canonical(flatten(tomllib.loads(text)))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"configuration file: {name}{': ' if name else ''}{error}") from None
    known = BROKER_KEYS.keys() | TOPIC_KEYS.keys() | ALIASES.keys() | UNITS.keys()
    by_variable = {"KAFKALITE_" + key.upper().replace(".", "_"): key for key in known}
    settings |= _canonical({by_variable[name]: value for name, value in environ.items() if name in by_variable})
    return settings | _canonical(flags)


def _canonical(settings: Mapping[str, Any]) -> dict[str, Any]:
    """By our spellings, so that another spelling in a stronger source takes the place of it. Raises ConfigError."""
    return {ALIASES.get(raw, raw): value for raw, value in in_milliseconds(settings).items()}
