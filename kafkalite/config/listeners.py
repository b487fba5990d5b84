"""A node's listeners: where they are, which protocol each has, which settings are its own."""

from __future__ import annotations

import dataclasses

from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import ConfigError
from kafkalite.listener_settings import HTTP, RPC
from kafkalite.listeners import (
    LISTENERS,
    PROTOCOL_MAP,
    KafkaListenerSettings,
    is_wildcard,
    one_listener,
    parse_advertised,
    several_listeners,
)
from kafkalite.model import Endpoint

#: Connections of the RPC listener, unless listener.name.rpc.max.connections says otherwise.
_RPC_CONNECTIONS = 10_000


def kafka_listeners(config: BrokerConfig) -> tuple[KafkaListenerSettings, ...]:
    """One at least. Raises ConfigError."""
    advertised = config.advertised_listeners.strip()
    if config.listeners.strip():
        return several_listeners(config.listeners, advertised, config.listener_security_protocol_map.strip())
    if config.listener_security_protocol_map:
        raise ConfigError(f"{PROTOCOL_MAP} is for the listeners of {LISTENERS}, which is not set")
    return (one_listener(config.host, config.kafka_port, config.listener_security_protocol, advertised),)


def inter_broker_listener(config: BrokerConfig) -> KafkaListenerSettings:
    """The Kafka listener to which other nodes connect. Raises ConfigError."""
    found = kafka_listeners(config)
    name = config.inter_broker_listener_name.strip().upper()
    if not name:
        return found[0]
    for each in found:
        if each.name == name:
            return each
    raise ConfigError(f"inter.broker.listener.name: there is no listener {name}")


def advertised_rpc(config: BrokerConfig, bound_port: int) -> Endpoint:
    """Where other nodes find the RPC listener. Raises ConfigError."""
    if not config.advertised_rpc:
        return Endpoint(config.host, bound_port)
    address = parse_advertised("advertised.rpc", config.advertised_rpc.strip())
    return Endpoint(address.host, address.port or bound_port)


def advertised_http(config: BrokerConfig, bound_port: int) -> Endpoint:
    """Where browsers find the HTTP listener. Raises ConfigError."""
    if config.advertised_http:
        address = parse_advertised("advertised.http", config.advertised_http.strip())
        return Endpoint(address.host, address.port or bound_port)
    host = advertised_rpc(config, 0).host if is_wildcard(config.host) else config.host
    return Endpoint(host, bound_port)


def console_url(config: BrokerConfig, bound_port: int) -> str:
    """What a browser opens to see this node's console. Raises ConfigError."""
    where = advertised_http(config, bound_port)
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"{'https' if http_protocol(config).endswith('SSL') else 'http'}://{host}:{where.port}"


def http_names(config: BrokerConfig) -> frozenset[str]:
    """By which browsers may open the status page."""
    names = {config.host, advertised_rpc(config, 0).host, advertised_http(config, 0).host}
    names |= {each.address(0).host for each in kafka_listeners(config)}
    names |= {part.strip() for part in config.http_allowed_hosts.split(",")}
    return frozenset(names - {""})


def for_listener(config: BrokerConfig, name: str) -> BrokerConfig:
    """With a listener's own settings (`listener.name.NAME.KEY`) in place of the node's. `name` in capitals; or RPC, HTTP."""
    own = config.per_listener.of(name)
    if name == HTTP and "ssl_client_auth" not in own and config.http_ssl_client_auth:
        own["ssl_client_auth"] = config.http_ssl_client_auth
    if (
        name == RPC
        and "ssl_client_auth" not in own
        and not config.rpc_security_protocol
        and config.ssl_client_auth == "none"
    ):
        own["ssl_client_auth"] = "required"  # nodes know each other by their certificates
    return dataclasses.replace(config, **own) if own else config


def max_connections(config: BrokerConfig, name: str) -> int:
    """How many connections a listener may have. `name`: as for `for_listener`, which is too slow for each connection.

    max.connections is for clients: however low it is, it does not part the nodes (KIP-402's protected listener).
    """
    of_all = _RPC_CONNECTIONS if name == RPC else config.max_connections
    own: int = config.per_listener.of(name).get("max_connections", of_all)
    return own


def is_secured(config: BrokerConfig) -> bool:
    """Whether any listener asks for more than plain text."""
    protocols = [rpc_protocol(config), http_protocol(config)]
    protocols += [listener.protocol for listener in kafka_listeners(config)]
    return any(protocol != "PLAINTEXT" for protocol in protocols) or bool(config.http_bearer_tokens_location)


def rpc_protocol(config: BrokerConfig) -> str:
    """The RPC listener's protocol: without a setting of its own, that of the Kafka listener to which nodes connect."""
    return config.rpc_security_protocol or inter_broker_listener(config).protocol


def http_protocol(config: BrokerConfig) -> str:
    """The HTTP listener's protocol: without a setting of its own it is as closed as the RPC listener (ADR 13)."""
    return config.http_security_protocol or rpc_protocol(config)
