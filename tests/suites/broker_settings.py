"""Settings of Kafka's brokers in its own tests, as nodes of ours take them.

Kafka's listener of the controller, its authorizer's class and its JAAS texts have other counterparts here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_CONTROLLER = "CONTROLLER"
_USER = re.compile(r"\buser_(\w+)\s*=\s*\"([^\"]*)\"")
_NODE = {"inter.broker.username": re.compile(r"\busername=\"([^\"]*)\""), "inter.broker.password": re.compile(r"\bpassword=\"([^\"]*)\"")}  # fmt: skip
_JAAS = ".plain.sasl.jaas.config"


def translated(settings: Mapping[str, object], directory: Path) -> tuple[dict[str, object], dict[str, object]]:
    """(settings that have Kafka's names, ours for listeners and rights; those make sense together only).

    Users of SASL PLAIN go into a file in `directory`.
    """
    rest: dict[str, object] = {
        key: value for key, value in settings.items() if not key.startswith("listener.name.controller.")
    }
    protocols = _pairs(str(rest.pop("listener.security.protocol.map", "")), ":")
    listeners = _pairs(str(rest.pop("listeners", "")), "://")
    jaas = " ".join(str(rest.pop(key)) for key in list(rest) if key.endswith(_JAAS))
    ours: dict[str, object] = {}
    for name, protocol in protocols.items():
        if protocol.endswith("SSL") and name not in listeners:
            # Its certificates are for that host.
            listeners[name] = "localhost:0"
    if listeners:
        ours["listeners"] = ",".join(f"{name}://{address}" for name, address in listeners.items())
        ours["listener.security.protocol.map"] = ",".join(
            f"{name}:{protocols.get(name, 'PLAINTEXT')}" for name in listeners
        )
        ours["rpc.security.protocol"] = ours["http.security.protocol"] = "PLAINTEXT"
        ours["ssl.endpoint.identification.algorithm"] = ""
    elif protocols:
        ours["listener.security.protocol"] = next(iter(protocols.values()))
    if rest.pop("authorizer.class.name", ""):
        ours["authorizer.enabled"] = True
    if jaas:
        users = directory / "plain.users"
        users.parent.mkdir(parents=True, exist_ok=True)
        users.write_text("".join(f"{name}={password}\n" for name, password in _USER.findall(jaas)))
        ours["sasl.plain.users.location"] = str(users)
        ours |= {key: found[1] for key, pattern in _NODE.items() if (found := pattern.search(jaas))}
    return rest, ours


def as_named(address: str, ours: Mapping[str, object]) -> str:
    """Where a node listens, with the host that its first listener was given: its certificate has that name."""
    for given in _pairs(str(ours.get("listeners", "")), "://").values():
        return f"{given.rpartition(':')[0]}:{address.rpartition(':')[2]}"
    return address


def _pairs(text: str, between: str) -> dict[str, str]:
    """Name of a listener -> what stands behind it, without the controller's."""
    found = dict(each.strip().split(between, 1) for each in text.split(",") if each.strip())
    found.pop(_CONTROLLER, None)
    return found
