"""The Kafka listeners by name: where a node binds them, and the addresses that clients get. Pure.

Source: Kafka's settings `listeners` and `advertised.listeners`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import PROTOCOLS, Endpoint, ListenerAddress

LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
_ENTRY = r"([A-Za-z0-9][A-Za-z0-9._-]*)://(.*)"
_HOST_AND_PORT = r"(\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?\]|[^\[\]:/@\s]*):([0-9]{1,5})"
_HOST_NAME = r"[A-Za-z0-9._-]{1,255}"


@dataclass(frozen=True, slots=True)
class KafkaListenerSettings:
    """One Kafka listener of this node. `port` 0: any free port. `advertised`: None: `host` and the bound port."""

    name: str
    protocol: str
    host: str
    port: int
    advertised: Endpoint | None = None

    def address(self, bound_port: int) -> ListenerAddress:
        """What clients get. The host is as configured: a certificate is for a name, not for the address behind it."""
        to = self.advertised or Endpoint(self.host, 0)
        return ListenerAddress(self.name, to.host, to.port or bound_port)


def is_nobodys(host: str) -> bool:
    """Whether no client can connect to this: all addresses, several machines at once."""
    if is_wildcard(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_multicast or str(address) == "255.255.255.255"


def is_wildcard(host: str) -> bool:
    """Whether this stands for all addresses of a machine: a client cannot connect to it."""
    if not host:
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def parse_address(key: str, text: str) -> Endpoint:
    """HOST:PORT, an IPv6 address in brackets. The host may be empty. Raises ConfigError."""
    found = re.fullmatch(_HOST_AND_PORT, text)
    if found is None:
        hint = ": an IPv6 address needs brackets, [::1]:9092" if text.count(":") > 1 and "[" not in text else ""
        raise ConfigError(f"{key}: {text!r} is not HOST:PORT{hint}")
    host, port = found[1], int(found[2])
    if port > 65535:
        raise ConfigError(f"{key}: {text!r}: the port is above 65535")
    if host.startswith("["):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"{key}: {text!r}: {host!r} is not an IPv6 address") from None
    elif host and not re.fullmatch(_HOST_NAME, host):
        raise ConfigError(f"{key}: {text!r}: {host!r} is not a host name")
    return Endpoint(host, port)


def parse_advertised(key: str, text: str) -> Endpoint:
    """The same of an address that others connect to; port 0: the bound one. Raises ConfigError."""
    address = parse_address(key, text)
    if is_nobodys(address.host):
        raise ConfigError(f"{key}: {text!r}: nobody can connect to {address.host or 'an empty host'}; name a host")
    return address


def parse_listeners(key: str, text: str) -> tuple[ListenerAddress, ...]:
    """NAME://HOST:PORT entries with commas between them; names in capitals, as Kafka has them. Raises ConfigError."""
    found: list[ListenerAddress] = []
    for entry in (part.strip() for part in text.split(",")):
        match = re.fullmatch(_ENTRY, entry)
        if match is None:
            raise ConfigError(f"{key}: {entry!r} is not NAME://HOST:PORT")
        name = match[1].upper()
        if any(other.listener == name for other in found):
            raise ConfigError(f"{key}: two entries for listener {name}")
        address = parse_address(key, match[2])
        found.append(ListenerAddress(name, address.host, address.port))
    return tuple(found)


def check_advertised(text: str) -> None:
    """Whether this can be a value of `advertised.listeners` of some broker. Raises ConfigError."""
    if text.strip():
        for entry in parse_listeners(ADVERTISED, text):
            _advertised(entry)


def one_listener(host: str, port: int, protocol: str, advertised: str) -> KafkaListenerSettings:
    """The listener of `host`, `kafka.port` and `listener.security.protocol`. Raises ConfigError.

    Its name is that in `advertised.listeners`; without that setting, the name of its protocol.
    """
    if not advertised:
        if is_wildcard(host):
            raise ConfigError(
                f"host is {host or 'empty'}, which no client can connect to: set {ADVERTISED}={protocol}://HOST:PORT"
            )
        return KafkaListenerSettings(protocol, protocol, host, port)
    entries = parse_listeners(ADVERTISED, advertised)
    if len(entries) > 1:
        raise ConfigError(
            f"{ADVERTISED} has {len(entries)} entries, but there is one listener (set listeners for more)"
        )
    name = entries[0].listener
    if name in PROTOCOLS and name != protocol:
        raise ConfigError(f"{ADVERTISED} names {name}, but listener.security.protocol is {protocol}")
    return KafkaListenerSettings(name, protocol, host, port, _advertised(entries[0]))


def several_listeners(listeners: str, advertised: str, protocol_map: str) -> tuple[KafkaListenerSettings, ...]:
    """Those of `listeners`, in its order; an empty host is 0.0.0.0. Raises ConfigError."""
    entries = parse_listeners(LISTENERS, listeners)
    _check_binding(entries)
    protocols = _protocols(protocol_map)
    addresses = {}
    if advertised:
        addresses = {each.listener: _advertised(each) for each in parse_listeners(ADVERTISED, advertised)}
        names = {each.listener for each in entries}
        if unknown := sorted(addresses.keys() - names):
            raise ConfigError(f"{ADVERTISED}: listeners has no {unknown[0]}")
        if missing := sorted(names - addresses.keys()):
            raise ConfigError(f"{ADVERTISED}: no address for listener {missing[0]}")
    for each in entries:
        if each.listener not in protocols:
            raise ConfigError(f"{PROTOCOL_MAP}: no security protocol for listener {each.listener}")
        if not advertised and is_wildcard(each.host):
            raise ConfigError(
                f"{LISTENERS}: no client can connect to {each.host or 'an empty host'} ({each}): set {ADVERTISED}"
            )
    return tuple(
        KafkaListenerSettings(
            each.listener, protocols[each.listener], each.host or "0.0.0.0", each.port, addresses.get(each.listener)
        )
        for each in entries
    )


def kafka_endpoints(listeners: Sequence[KafkaListenerSettings]) -> list[str]:
    """Their names among the endpoints of a node: the first one is "kafka"."""
    return ["kafka", *(f"kafka.{each.name}" for each in listeners[1:])]


def _check_binding(entries: Sequence[ListenerAddress]) -> None:
    """Raises ConfigError."""
    for number, each in enumerate(entries):
        for other in entries[:number]:
            if (
                each.port
                and each.port == other.port
                and (each.host == other.host or is_wildcard(each.host) or is_wildcard(other.host))
                and {_ip_version(each.host), _ip_version(other.host)} != {4, 6}  # KIP-797
            ):
                raise ConfigError(f"{LISTENERS}: {other} and {each} have the same port")


def _ip_version(host: str) -> int:
    """4 or 6; 0: a name, which may be both. An empty host is 0.0.0.0."""
    try:
        return ipaddress.ip_address(host or "0.0.0.0").version
    except ValueError:
        return 0


def _protocols(text: str) -> dict[str, str]:
    """Listener -> protocol. A protocol's name stands for itself unless the setting says otherwise. Raises ConfigError."""
    found: dict[str, str] = {}
    for entry in (part.strip() for part in text.split(",") if text):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name:
            raise ConfigError(f"{PROTOCOL_MAP}: {entry!r} is not NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{PROTOCOL_MAP}: {entry!r}: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        if name in found:
            raise ConfigError(f"{PROTOCOL_MAP}: two entries for listener {name}")
        found[name] = protocol
    return {protocol: protocol for protocol in PROTOCOLS} | found


def _advertised(entry: ListenerAddress) -> Endpoint:
    if is_nobodys(entry.host):
        raise ConfigError(
            f"{ADVERTISED}: no client can connect to {entry.host or 'an empty host'} ({entry}); name a host"
        )
    return Endpoint(entry.host, entry.port)
