"""The settings of a broker of Kafka's tests as a node of ours takes them. Pure, but for the files it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalite.config import broker_config
from kafkalite.errors import ConfigError

#: A Kafka listener on top of the test's own, in plain text, whose clients may do everything.
CONTROL = "CLUSTERCONTROL"
CONTROL_PRINCIPAL = "User:cluster_control"
_LISTENERS = ("listeners", "advertised.listeners")
_PROTOCOLS = "listener.security.protocol.map"
_KRAFT = ("CONTROLLER",)


def of_node(broker_id: int, settings: Mapping[str, str], directory: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(what a node takes, key -> why it does not take it). `directory`: for files that settings name."""
    wanted = dict(settings)
    controllers = {name.strip() for name in wanted.pop("controller.listener.names", "").split(",")} | set(_KRAFT)
    for key in _LISTENERS:
        wanted[key] = ",".join(_without(wanted.get(key, ""), controllers, "://"))
    if not wanted["advertised.listeners"]:
        del wanted["advertised.listeners"]
    listeners = wanted["listeners"] or "PLAINTEXT://localhost:0"
    wanted["listeners"] = f"{listeners},{CONTROL}://127.0.0.1:0"
    if "advertised.listeners" in wanted:
        wanted["advertised.listeners"] += f",{CONTROL}://127.0.0.1:0"
    protocols = _without(wanted.get(_PROTOCOLS, ""), controllers, ":")
    known = {each.partition(":")[0] for each in protocols}
    names = [each.partition("://")[0].strip() for each in listeners.split(",")]
    protocols += [f"{name}:{name}" for name in names if name not in known]
    wanted[_PROTOCOLS] = ",".join([*protocols, f"{CONTROL}:PLAINTEXT"])
    protocol = wanted.pop("security.inter.broker.protocol", "")
    if protocol and "inter.broker.listener.name" not in wanted:
        wanted["inter.broker.listener.name"] = _named(protocol, wanted[_PROTOCOLS], names)
    if wanted.pop("authorizer.class.name", ""):
        wanted["authorizer.enabled"] = "true"
    wanted["super.users"] = ";".join(part for part in (wanted.get("super.users", ""), CONTROL_PRINCIPAL) if part)
    if "sasl.plain.users" in wanted:
        path = directory / f"plain-{broker_id}.users"
        path.write_text(wanted.pop("sasl.plain.users"))
        wanted["sasl.plain.users.location"] = str(path)
    if "log.dir" in wanted and "log.dirs" not in wanted:
        wanted["log.dirs"] = wanted["log.dir"]
    wanted.pop("log.dir", None)
    dirs = [each.strip() for each in wanted.pop("log.dirs", str(directory / f"node-{broker_id}")).split(",")]
    for key in ("node.id", "broker.id"):
        wanted.pop(key, None)
    taken: dict[str, Any] = dict(wanted)
    refused: dict[str, str] = {}
    for key, value in wanted.items():
        try:
            broker_config({key: value})
        except ConfigError as error:
            # Alone, a listener's settings make no sense.
            if (key not in _TOGETHER and not key.startswith("listener.name.")) or str(error).endswith(_NO_SUCH):
                refused[key] = str(error)
                del taken[key]
    own = {"broker.id": broker_id, "log.dirs": dirs, "zookeeper.connect": "127.0.0.1:2181"}
    ports = {"http.port": -1, "rpc.port": 0, "rpc.security.protocol": "PLAINTEXT"}
    return {**taken, **own, **ports}, refused


#: Settings that are only valid together.
_TOGETHER = frozenset({*_LISTENERS, _PROTOCOLS, "inter.broker.listener.name"})
_NO_SUCH = "no such configuration"


def _without(entries: str, names: set[str], sign: str) -> list[str]:
    """The entries of a list that are not of one of these listeners."""
    found = [each.strip() for each in entries.split(",")]
    return [each for each in found if each and each.partition(sign)[0] not in names]


def _named(protocol: str, protocols: str, names: list[str]) -> str:
    """The first listener that has a protocol."""
    by_name = dict(each.split(":") for each in protocols.split(","))
    return next((name for name in names if by_name.get(name) == protocol), names[0])
