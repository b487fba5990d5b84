"""What a node's configuration leaves open: what must not start, and what starts with a warning. Pure.

A cluster is secured listener by listener, and one that was forgotten opens all of it: every client that reaches an RPC
listener without authentication can act as a node. So one key secures all listeners, a contradiction does not start, and what
is open to other machines is a problem of the node's health until `security.open.acknowledged` names it.
"""

from __future__ import annotations

import ipaddress

from kafkalite.config import (
    BrokerConfig,
    advertised_http,
    advertised_rpc,
    for_listener,
    http_protocol,
    inter_broker_listener,
    kafka_listeners,
    rpc_protocol,
)
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.listener_settings import HTTP, RPC
from kafkalite.model import PROTOCOLS
from kafkalite.security.principal_settings import principal_warnings

ZOOKEEPER = "ZOOKEEPER"
ACKNOWLEDGED = "security.open.acknowledged"
_ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class ListenerPosture:
    """One listener. `key`: the setting of its protocol. `authenticates`: every client proves who it is."""

    name: str
    key: str
    protocol: str
    host: str
    authenticates: bool

    @property
    def is_local(self) -> bool:
        """Whether only processes of the same machine reach it."""
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Something that is open to other machines and not acknowledged. `name`: how to acknowledge it."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Posture:
    """`refusals`: the node must not start. `exposures` are warnings that health repeats."""

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]
    exposures: tuple[Exposure, ...]


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def listeners_of(config: BrokerConfig) -> tuple[ListenerPosture, ...]:
    """The Kafka listeners, RPC, HTTP (if it has a port). Raises ConfigError."""
    found = []
    for each in kafka_listeners(config):
        key = f"the protocol of listener {each.name}" if config.listeners.strip() else "listener.security.protocol"
        found.append(
            ListenerPosture(each.name, key, each.protocol, each.host, _proves(config, each.name, each.protocol))
        )
    rpc = rpc_protocol(config)
    found.append(ListenerPosture(RPC, "rpc.security.protocol", rpc, config.host, _proves(config, RPC, rpc)))
    if config.http_port >= 0:
        protocol = http_protocol(config)
        proves = _proves(config, HTTP, protocol) or bool(config.http_bearer_tokens_location)
        found.append(ListenerPosture(HTTP, "http.security.protocol", protocol, config.host, proves))
    return tuple(found)


def posture(config: BrokerConfig) -> Posture:
    """Of a configuration that is valid otherwise. Raises ConfigError."""
    listeners = listeners_of(config)
    acknowledged = {part.strip().upper() for part in config.security_open_acknowledged.split(",") if part.strip()}
    known = {each.name for each in listeners} | {RPC, HTTP, ZOOKEEPER, *PROTOCOLS}
    if unknown := sorted(acknowledged - known):
        raise ConfigError(f"{ACKNOWLEDGED}: there is no listener {unknown[0]}")
    refusals = [*_authorizer_refusals(config, listeners), *_half_secured(config, listeners, acknowledged)]
    exposures = [] if refusals else _exposures(config, listeners, acknowledged)
    warnings = [
        *_authorizer_warnings(config),
        *principal_warnings(config, tuple(each.name for each in listeners if each.protocol == "SSL")),
        *_checks_off(config, listeners),
        *_transition_warnings(config),
        *_local_warnings(config, listeners),
        *_password_warnings(config, listeners),
        *_useless(config, listeners),
        *_unreachable(config),
    ]
    return Posture(tuple(refusals), tuple(warnings), tuple(exposures))


def _proves(config: BrokerConfig, name: str, protocol: str) -> bool:
    if config.security_transition:
        return False  # it accepts plain text, too
    return protocol.startswith("SASL") or (
        protocol == "SSL" and for_listener(config, name).ssl_client_auth == "required"
    )


def _may_all(config: BrokerConfig) -> bool:
    """Whether a client that proves nothing may do everything."""
    supers = {part.strip() for part in config.super_users.split(";")}
    return not config.authorizer_enabled or config.allow_everyone_if_no_acl_found or _ANONYMOUS in supers


def _authorizer_refusals(config: BrokerConfig, listeners: tuple[ListenerPosture, ...]) -> list[str]:
    if _may_all(config) or config.security_transition == "offer":
        return []
    between_nodes = inter_broker_listener(config).name
    for each in listeners:
        if each.name in (RPC, between_nodes) and not each.authenticates:
            return [
                f"authorizer.enabled is true, but nodes do not authenticate on listener {each.name}: it would refuse their own"
                f" requests. Set {each.key} to SASL_SSL, or to SSL with ssl.client.auth=required"
                + (" (and remove security.transition)" if config.security_transition else "")
            ]
    return []


def _half_secured(config: BrokerConfig, listeners: tuple[ListenerPosture, ...], acknowledged: set[str]) -> list[str]:
    """A listener through which everything is open, beside others that authenticate."""
    closed = next((each for each in listeners if each.authenticates), None)
    if closed is None:
        return []
    refusals = []
    for each in listeners:
        is_named = bool(config.listeners.strip()) and each.name != RPC
        if each.authenticates or each.is_local or each.name in acknowledged or each.name == HTTP or is_named:
            continue
        if each.name != RPC and (each.protocol != "PLAINTEXT" or not _may_all(config)):
            continue
        what = "can act as a node" if each.name == RPC else "may do everything"
        refusals.append(
            f"{each.key} is {each.protocol} at {each.host or '0.0.0.0'}, but listener {closed.name} is {closed.protocol}: every"
            f" client that reaches {each.name} {what}. Set {each.key}={closed.protocol}, or {ACKNOWLEDGED}={each.name} if"
            " only nodes can reach it"
        )
    return refusals


def _exposures(config: BrokerConfig, listeners: tuple[ListenerPosture, ...], acknowledged: set[str]) -> list[Exposure]:
    found = []
    for each in listeners:
        is_open = not each.authenticates and (each.name == RPC or _may_all(config))
        if is_open and not each.is_local and each.name not in acknowledged:
            encrypted = ", without clients' certificates (ssl.client.auth)" if each.protocol == "SSL" else ""
            what = "see topics, groups and settings" if each.name == HTTP else "read and change everything"
            found.append(
                Exposure(
                    each.name,
                    f"listener {each.name} ({each.protocol}{encrypted}) at {each.host or '0.0.0.0'} is open: every client that"
                    f" reaches it may {what}. Set {each.key}, or {ACKNOWLEDGED}={each.name}",
                )
            )
    is_secured = any(each.authenticates for each in listeners)
    if (
        is_secured
        and not config.zookeeper_set_acl
        and ZOOKEEPER not in acknowledged
        and not _is_local_zookeeper(config)
    ):
        found.append(
            Exposure(
                ZOOKEEPER,
                "zookeeper.set.acl is false: every client that reaches ZooKeeper can make itself super user. Set zookeeper.auth and"
                f" zookeeper.set.acl, or {ACKNOWLEDGED}={ZOOKEEPER}",
            )
        )
    return found


def _is_local_zookeeper(config: BrokerConfig) -> bool:
    hosts = config.zookeeper_connect.partition("/")[0].split(",")
    return all(is_loopback(host.strip().rpartition(":")[0].strip("[]") or host.strip()) for host in hosts)


def _authorizer_warnings(config: BrokerConfig) -> list[str]:
    if not config.authorizer_enabled:
        return ["super.users has no effect: authorizer.enabled is false"] if config.super_users else []
    if not _may_all(config):
        return []
    reason = (
        "allow.everyone.if.no.acl.found is true"
        if config.allow_everyone_if_no_acl_found
        else f"{_ANONYMOUS} is a super user"
    )
    return [
        f"authorizer.enabled is true, but {reason}: clients that do not authenticate may do everything that no ACL denies"
    ]


def _transition_warnings(config: BrokerConfig) -> list[str]:
    if not config.security_transition:
        return []
    return ["security.transition is set: every listener accepts clients without authentication until it is removed"]


def _local_warnings(config: BrokerConfig, listeners: tuple[ListenerPosture, ...]) -> list[str]:
    """Open to this machine only, beside others that authenticate."""
    if not any(each.authenticates for each in listeners):
        return []
    return [
        f"{each.key} is {each.protocol}: every process on this machine can act as a node"
        for each in listeners
        if each.name == RPC and not each.authenticates and each.is_local
    ]


def _password_warnings(config: BrokerConfig, listeners: tuple[ListenerPosture, ...]) -> list[str]:
    found = []
    for each in listeners:
        if each.is_local:
            continue
        if each.name == HTTP and each.protocol == "PLAINTEXT" and config.http_bearer_tokens_location:
            found.append(f"{each.key} is PLAINTEXT: tokens are accepted from this machine only. Set it to SSL")
        if each.protocol != "SASL_PLAINTEXT":
            continue
        if each.name == HTTP:
            found.append(
                f"{each.key} is SASL_PLAINTEXT: passwords are accepted from this machine only. Set it to SASL_SSL"
            )
        elif "PLAIN" in for_listener(config, each.name).sasl_enabled_mechanisms:
            found.append(
                f"listener {each.name} takes passwords without encryption (SASL_PLAINTEXT with PLAIN): they can be read on the"
                f" network. Set {each.key} to SASL_SSL, or remove PLAIN from sasl.enabled.mechanisms"
            )
    return found


def _checks_off(config: BrokerConfig, listeners: tuple[ListenerPosture, ...]) -> list[str]:
    """Others that are taken for somebody they are not."""
    found = []
    if any(each.protocol.endswith("SSL") for each in listeners) and not config.ssl_endpoint_identification_algorithm:
        found.append(
            "ssl.endpoint.identification.algorithm is empty: a client with any certificate of the trusted authorities can pose as a"
            " node towards this one"
        )
    takes_tokens = any(
        each.protocol.startswith("SASL") and "OAUTHBEARER" in for_listener(config, each.name).sasl_enabled_mechanisms
        for each in listeners
    )
    if takes_tokens and not config.sasl_oauthbearer_expected_audience:
        found.append(
            "sasl.oauthbearer.expected.audience is empty: a token that was issued for another service is accepted here"
        )
    return found


def _useless(config: BrokerConfig, listeners: tuple[ListenerPosture, ...]) -> list[str]:
    """Settings of a security that no listener has."""
    found = []
    if not any(each.protocol.endswith("SSL") for each in listeners):
        for key, value in (
            ("ssl.keystore.location", config.ssl_keystore_location),
            ("ssl.client.auth", config.ssl_client_auth),
        ):
            if value not in ("", "none"):
                found.append(f"{key} has no effect: no listener uses TLS")
    if not any(each.protocol.startswith("SASL") for each in listeners):
        for key, value in (
            ("inter.broker.username", config.inter_broker_username),
            ("sasl.plain.users.location", config.sasl_plain_users_location),
        ):
            if value:
                found.append(f"{key} has no effect: no listener uses SASL")
    if config.security_transition and all(each.protocol == "PLAINTEXT" for each in listeners):
        found.append("security.transition has no effect: every listener is PLAINTEXT")
    return found


def _unreachable(config: BrokerConfig) -> list[str]:
    """Advertised addresses that other machines cannot reach, although the listener is there for them."""
    found = []
    for each in kafka_listeners(config):
        advertised = each.advertised
        if advertised is not None and is_loopback(advertised.host) and not is_loopback(each.host):
            found.append(
                f"advertised.listeners: listener {each.name} is bound to {each.host}, but clients get {advertised.host}: only those"
                " on this machine can connect"
            )
    rpc = advertised_rpc(config, config.rpc_port)
    if is_loopback(rpc.host) and not is_loopback(config.host):
        found.append(f"advertised.rpc: {rpc.host} is this machine only: nodes on other machines cannot connect")
    if config.advertised_http:
        http = advertised_http(config, config.http_port)
        if is_loopback(http.host) and not is_loopback(config.host):
            found.append(
                f"advertised.http: {http.host} is this machine only: browsers on other machines cannot connect"
            )
    return found
