"""Guards the console against pages of other origins. Pure.

A browser sends a request that another site's page makes, and adds what it knows of the user (a name and password, a
certificate, or simply that it can reach the port). So a change needs a token that only a page of this origin can read
(https://cheatsheetseries.owasp.org, synchronizer token), and the Origin header must name this host. Another site can also
give its own name our address (DNS rebinding): a request without a login is therefore answered only under a name that is ours.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping

TOKEN_HEADER = "x-kafkalite-token"


def token_of(key: bytes, principal: str) -> str:
    """The token of one user's pages; of other use to nobody. `key`: a secret of this process."""
    return hmac.new(key, b"console\0" + principal.encode(), hashlib.sha256).hexdigest()[:32]


def foreign_host(headers: Mapping[str, str], own_names: Collection[str]) -> str:
    """Why a request without a login is refused; empty: it names this host as we know it."""
    host = _name(headers.get("host", ""))
    if _is_own(host, own_names):
        return ""
    return (
        f"{host or 'a request without a Host'} is not a name of this node: add it to http.allowed.hosts, "
        "or use its IP address"
    )


def foreign_change(headers: Mapping[str, str], own_names: Collection[str], token: str) -> str:
    """Why a change is refused; empty: it comes from a page of this console."""
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "a change comes as application/json"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "the request comes from a page of another site"
    origin = headers.get("origin")
    if origin is not None:
        scheme, separator, place = origin.partition("://")
        is_same = bool(separator) and scheme in ("http", "https") and place == headers.get("host", "")
        if not is_same and _name(place) not in own_names:
            return "the request comes from a page of another origin: see http.allowed.hosts"
    if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode()):
        return "the page is of an earlier start of this node: load it again"
    return ""


def _is_own(host: str, own_names: Collection[str]) -> bool:
    if host in own_names or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True  # an address is no name that anybody could let point elsewhere


def _name(place: str) -> str:
    """HOST of HOST or HOST:PORT, in lower case; of IPv6 with its brackets."""
    place = place.strip().lower()
    if place.startswith("["):
        return place.partition("]")[0] + "]"
    return place.partition(":")[0]
