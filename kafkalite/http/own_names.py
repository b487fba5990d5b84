"""The names under which browsers may open the status page (the Host header). Another site, whose name resolves to this node's
address, must not be able to read it (DNS rebinding). Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_HOST = r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?"


def is_own_name(header: str, names: Iterable[str]) -> bool:
    """Whether a request with this Host header is for this node.

    Addresses are; so is a name without a dot, which nobody can register, localhost, and each of `names`.
    """
    found = re.fullmatch(_HOST, header.strip())
    if found is None:
        return False
    host = found[1].strip("[]").rstrip(".").lower()
    if "." not in host or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host in {name.lower().rstrip(".") for name in names}
    return True
