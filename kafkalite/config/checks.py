"""What settings must be to one another."""

from __future__ import annotations

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.listeners import (
    advertised_http,
    advertised_rpc,
    for_listener,
    http_protocol,
    inter_broker_listener,
    kafka_listeners,
    rpc_protocol,
)
from kafkalite.errors import ConfigError
from kafkalite.listener_settings import HTTP, RPC, unknown_listener
from kafkalite.listeners import is_wildcard
from kafkalite.model import LISTENER_MECHANISMS


def check_addresses(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    inter_broker_listener(config)
    names = [each.name for each in kafka_listeners(config)]
    for name in (RPC, HTTP):
        if name in names:
            raise ConfigError(f"a Kafka listener cannot be named {name}: the node has another one of that name")
    if unknown := unknown_listener(config.per_listener, names):
        raise ConfigError(f"listener.name.{unknown.lower()}.…: there is no listener {unknown}")
    if is_wildcard(advertised_rpc(config, 0).host):
        raise ConfigError(
            f"host is {config.host or 'empty'}, which no node can connect to: set advertised.rpc=HOST:PORT"
        )
    if config.advertised_http and config.http_port < 0:
        raise ConfigError("advertised.http is set, but http.port is -1: the node has no HTTP listener")
    advertised_http(config, 0)


def check_limits(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    pairs = [("group.min.session.timeout.ms", "group.max.session.timeout.ms")]
    pairs += [
        (f"{name}num.partitions", "max.partitions.per.topic")
        for name in ("", "offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic.")
    ]
    for kind in ("consumer", "share", "streams"):
        pairs += [
            (f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        ]
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if _of(config, heartbeat) >= _of(config, session):
            raise ConfigError(
                f"{heartbeat} ({_of(config, heartbeat)}) must be less than {session} ({_of(config, session)}):"
                " members would be removed between two heartbeats"
            )
    for low, high in pairs:
        if _of(config, low) > _of(config, high):
            raise ConfigError(f"{low} ({_of(config, low)}) is above {high} ({_of(config, high)})")


def _of(config: BrokerConfig, key: str) -> int:
    return int(getattr(config, key.replace(".", "_")))


def check_security(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    between_nodes = inter_broker_listener(config)
    for listener in kafka_listeners(config):
        key = f"listener {listener.name}" if config.listeners.strip() else "listener.security.protocol"
        _check_protocol(config, listener.name, key, listener.protocol, is_for_nodes=listener == between_nodes)
    _check_protocol(config, RPC, "rpc.security.protocol", rpc_protocol(config), is_for_nodes=True)
    if config.http_port >= 0:
        _check_protocol(config, HTTP, "http.security.protocol", http_protocol(config), is_for_nodes=False)
    if rpc_protocol(config) == "SSL" and for_listener(config, RPC).ssl_client_auth == "none":
        raise ConfigError(
            "rpc.security.protocol is SSL: nodes know each other by their certificates, ask for them (ssl.client.auth, or"
            " listener.name.rpc.ssl.client.auth)"
        )
    if config.zookeeper_set_acl and not config.zookeeper_auth:
        raise ConfigError("zookeeper.set.acl needs zookeeper.auth")


def _check_protocol(config: BrokerConfig, name: str, key: str, protocol: str, *, is_for_nodes: bool) -> None:
    """Whether a listener has what its protocol needs. Raises ConfigError."""
    own = for_listener(config, name)
    if protocol.endswith("SSL") and not own.ssl_keystore_location:
        raise ConfigError(f"{key} is {protocol}: ssl.keystore.location is missing")
    if not protocol.startswith("SASL"):
        return
    unknown = [each for each in own.sasl_enabled_mechanisms if each not in LISTENER_MECHANISMS]
    if unknown:
        raise ConfigError(f"sasl.enabled.mechanisms: {unknown[0]!r} is not one of {', '.join(LISTENER_MECHANISMS)}")
    if "OAUTHBEARER" in own.sasl_enabled_mechanisms and not config.sasl_oauthbearer_jwks_endpoint_url:
        raise ConfigError("sasl.enabled.mechanisms: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url")
    if "PLAIN" in own.sasl_enabled_mechanisms and not own.sasl_plain_users_location:
        raise ConfigError("sasl.enabled.mechanisms: PLAIN needs sasl.plain.users.location")
    if not is_for_nodes:
        return
    if config.sasl_mechanism_inter_broker_protocol not in own.sasl_enabled_mechanisms:
        raise ConfigError("sasl.mechanism.inter.broker.protocol is not one of sasl.enabled.mechanisms")
    if not (config.inter_broker_username and config.inter_broker_password):
        raise ConfigError(f"{key} is {protocol}: inter.broker.username or inter.broker.password is missing")
