"""Addresses of clients as ACLs and limits compare them: one spelling each. Pure."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


def is_address(text: str) -> bool:
    """Whether it is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def canonical(host: str) -> str:
    """The same text for every spelling of an address; a text that is not an address stays as it is.

    0:0:0:0:0:0:0:1 is ::1, as Kafka writes it and as sockets do. An IPv4 client of a listener on `::` has an address such as
    ::ffff:10.0.0.7, which is 10.0.0.7.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


_Range = ipaddress.IPv4Network | ipaddress.IPv6Network
#: IPv4 addresses as IPv6 ones: clients never have them, see `canonical`.
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


@lru_cache(maxsize=4096)
def address_range(text: str) -> _Range | None:
    """The range that ADDRESS/BITS means (KIP-1276); None if it means none. Any address in the range may stand for it."""
    bits = text.rpartition("/")[2]
    if not (bits.isascii() and bits.isdigit()):
        return None
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    is_mapped = isinstance(found, ipaddress.IPv6Network) and found.subnet_of(_MAPPED)
    return None if is_mapped else found


@lru_cache(maxsize=4096)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_within(host: str, text: str) -> bool:
    """Whether an address is in the range that a text means, if it means one. `host`: canonical."""
    if "/" not in text:
        return False
    found, address = address_range(text), _address(host)
    return found is not None and address is not None and address in found


#: Bits of an IPv6 address that name a network; a client with one of its addresses can have all.
_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def guesser(host: str) -> str:
    """What a client that has not logged in is counted under: an IPv4 address; the network of an IPv6 one, because a host may take any address in it."""
    text = canonical(host)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return text
    return str(ipaddress.ip_network((int(address) >> _NETWORK_BITS << _NETWORK_BITS, _NETWORK_BITS)))
