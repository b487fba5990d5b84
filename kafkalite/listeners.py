"""The Kafka listeners by name: where a node binds them, and the addresses that clients get. Pure.

Source: Kafka's settings `listeners` and `advertised.listeners`.
"""

from __future__ import annotations

import ipaddress
import re

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import PROTOCOLS, Endpoint, ListenerAddress

_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)://(.*)")
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?\]|[^\[\]:/@\s]*):([0-9]{1,5})")
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


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
    found = _HOST_AND_PORT.fullmatch(text)
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
    elif host and not _HOST_NAME.fullmatch(host):
        raise ConfigError(f"{key}: {text!r}: {host!r} is not a host name")
    return Endpoint(host, port)


def parse_advertised(key: str, text: str) -> Endpoint:
    """The same of an address that others connect to; port 0: the bound one. Raises ConfigError."""
    address = parse_address(key, text)
    if is_wildcard(address.host):
        raise ConfigError(f"{key}: {text!r}: nobody can connect to {address.host or 'an empty host'}; name a host")
    return address


def parse_listeners(key: str, text: str) -> tuple[ListenerAddress, ...]:
    """NAME://HOST:PORT entries with commas between them; names in capitals, as Kafka has them. Raises ConfigError."""
    found: list[ListenerAddress] = []
    for entry in (part.strip() for part in text.split(",")):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{key}: {entry!r} is not NAME://HOST:PORT")
        name = match[1].upper()
        if any(other.listener == name for other in found):
            raise ConfigError(f"{key}: two entries for listener {name}")
        address = parse_address(key, match[2])
        found.append(ListenerAddress(name, address.host, address.port))
    return tuple(found)


def one_listener(host: str, port: int, protocol: str, advertised: str) -> KafkaListenerSettings:
    """The listener of `host`, `kafka.port` and `listener.security.protocol`. Raises ConfigError.

    Its name is that in `advertised.listeners`; without that setting, the name of its protocol.
    """
    key = "advertised.listeners"
    if not advertised:
        if is_wildcard(host):
            raise ConfigError(
                f"host is {host or 'empty'}, which no client can connect to: set {key}={protocol}://HOST:PORT"
            )
        return KafkaListenerSettings(protocol, protocol, host, port)
    entries = parse_listeners(key, advertised)
    if len(entries) > 1:
        raise ConfigError(f"{key} has {len(entries)} entries, but there is one listener")
    name = entries[0].listener
    if name in PROTOCOLS and name != protocol:
        raise ConfigError(f"{key} names {name}, but listener.security.protocol is {protocol}")
    return KafkaListenerSettings(name, protocol, host, port, _advertised(key, entries[0]))


def _advertised(key: str, entry: ListenerAddress) -> Endpoint:
    if is_wildcard(entry.host):
        raise ConfigError(f"{key}: no client can connect to {entry.host or 'an empty host'} ({entry}); name a host")
    return Endpoint(entry.host, entry.port)
