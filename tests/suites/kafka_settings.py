"""The settings of a broker of Kafka's tests as a node of ours takes them, for all kinds of clusters. Pure, but for the file of users that it writes.

Kafka's listener of the controller has no counterpart; its authorizer's class and its JAAS texts have other ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafkalite.config import broker_config
from kafkalite.errors import ConfigError
from kafkalite.listener_settings import PREFIX, split

#: What tests of Kafka expect of a cluster unless they say otherwise.
DEFAULTS: Mapping[str, object] = {
    "default.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 18_000,
}
#: Key of Kafka -> ours, which does the same.
_OTHER_NAMES = {"producer.id.expiration.check.interval.ms": "log.retention.check.interval.ms"}
_SESSION, _LAG = "zookeeper.session.timeout.ms", "replica.lag.time.max.ms"
_FACTOR, _AUTO_FACTOR = "default.replication.factor", "auto.create.topics.replication.factor"
_CONTROLLER = "CONTROLLER"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = "plain.sasl.jaas.config"
_USER = re.compile(r"\buser_([^=\s]+)\s*=\s*\"?([^\"\s;]*)\"?")
_NO_SUCH = "no such configuration"
_NODE = {"inter.broker.username": re.compile(r"\busername=\"([^\"]*)\""), "inter.broker.password": re.compile(r"\bpassword=\"([^\"]*)\"")}  # fmt: skip


class NodeSettings(NamedTuple):
    """`ignored`: key -> why a node does not take it. `log_dirs`: those that were asked for."""

    taken: dict[str, object]
    ignored: dict[str, str]
    log_dirs: tuple[str, ...]


def node_settings(
    asked: Mapping[str, object],
    directory: Path,
    *,
    defaults: Mapping[str, object] = DEFAULTS,
    plain_listeners: Mapping[str, str] | None = None,
) -> NodeSettings:
    """Args:
    asked: with Kafka's names.
    directory: for files that settings name.
    plain_listeners: name -> address of more listeners, in plain text.
    """
    wanted = _as_kafka({**defaults, **asked})
    controllers = {_CONTROLLER, *(name.strip() for name in str(wanted.pop("controller.listener.names", "")).split(","))}
    ours = _logins(wanted, directory)
    ours |= _listeners(wanted, controllers, plain_listeners or {})
    if wanted.pop("authorizer.class.name", ""):
        ours["authorizer.enabled"] = True
    dirs = [str(wanted.pop(key, "")) for key in ("log.dirs", "log.dir")]
    for key in ("node.id", "broker.id"):
        wanted.pop(key, None)
    taken, ignored = _known(wanted)
    log_dirs = tuple(each.strip() for each in (dirs[0] or dirs[1]).split(",") if each.strip())
    return NodeSettings(taken | ours, ignored, log_dirs)


def as_named(address: str, settings: Mapping[str, object]) -> str:
    """Where a node listens, with the host that its first listener was given: its certificate has that name."""
    for given in _pairs(str(settings.get("listeners", "")), "://").values():
        return f"{given.rpartition(':')[0]}:{address.rpartition(':')[2]}"
    return address


def _as_kafka(asked: dict[str, object]) -> dict[str, object]:
    """What one setting of Kafka means for others of ours."""
    if _FACTOR in asked:  # topics that a client's use creates have as many replicas as others
        asked.setdefault(_AUTO_FACTOR, asked[_FACTOR])
    if _SESSION in asked and _LAG in asked:  # a node's session must end before its leader may be missed
        asked[_SESSION] = min(int(str(asked[_SESSION])), int(str(asked[_LAG])) * 3 // 4)
    return asked


def _logins(wanted: dict[str, object], directory: Path) -> dict[str, object]:
    """Take JAAS texts of PLAIN, and `sasl.plain.users` (lines of NAME=PASSWORD), out of `wanted`."""
    jaas = " ".join(str(wanted.pop(key)) for key in list(wanted) if key.endswith(_JAAS))
    lines = str(wanted.pop("sasl.plain.users", "")).splitlines()
    users = dict(line.split("=", 1) for line in lines if line) | dict(_USER.findall(jaas))
    if not users:
        return {}
    path = directory / "plain.users"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={password}\n" for name, password in users.items()))
    path.chmod(0o600)
    own = {key: found[1] for key, pattern in _NODE.items() if (found := pattern.search(jaas))}
    return {"sasl.plain.users.location": str(path), **own}


def _listeners(wanted: dict[str, object], controllers: set[str], more: Mapping[str, str]) -> dict[str, object]:
    """Take what is about listeners out of `wanted`; these settings are valid together only."""
    given = {key: _pairs(str(wanted.pop(key, "")), sign, controllers) for key, sign in _SIGNS.items()}
    listeners, advertised, protocols = given.values()
    prefixes = tuple(f"{PREFIX}{name.lower()}." for name in controllers if name)
    for key in [key for key in wanted if key.startswith(prefixes)]:
        del wanted[key]
    inter_broker = str(wanted.pop("inter.broker.listener.name", ""))
    inter_protocol = str(wanted.pop("security.inter.broker.protocol", ""))
    if not listeners:
        # Its certificates are for that host.
        listeners = {name: "localhost:0" for name, protocol in protocols.items() if protocol.endswith("SSL")}
    if not listeners and more:
        listeners = {"PLAINTEXT": "localhost:0"}
    if not listeners:
        return {"listener.security.protocol": next(iter(protocols.values()))} if protocols else {}
    protocols = {name: protocols.get(name, name if name in _PROTOCOLS else "PLAINTEXT") for name in listeners}
    if not inter_broker and inter_protocol:
        inter_broker = next((name for name in listeners if protocols[name] == inter_protocol), "")
    ours: dict[str, object] = {
        "listeners": _text(listeners | dict(more), "://"),
        "listener.security.protocol.map": _text(protocols | dict.fromkeys(more, "PLAINTEXT"), ":"),
        "rpc.security.protocol": "PLAINTEXT",
        "http.security.protocol": "PLAINTEXT",
        "ssl.endpoint.identification.algorithm": "",
    }
    if advertised:
        ours["advertised.listeners"] = _text(advertised | dict(more), "://")
    if inter_broker:
        ours["inter.broker.listener.name"] = inter_broker
    return ours


#: In the order in which `_listeners` takes them.
_SIGNS = {"listeners": "://", "advertised.listeners": "://", "listener.security.protocol.map": ":"}


def _known(wanted: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """What a node takes, and why not the others."""
    taken: dict[str, object] = {}
    refused: dict[str, str] = {}
    needed = {key: wanted[key] for key in (_SESSION,) if key in wanted}
    for asked, value in wanted.items():
        key = _OTHER_NAMES.get(asked, asked)
        reason = _reason({**needed, key: value})
        # Without its listener, a listener's own setting makes no sense.
        if reason and split(key) is None:
            refused[asked] = reason
        else:
            taken[key] = value
    # Some are valid only beside others, such as a short session beside a short interval of heartbeats.
    whole = {key: value for key, value in taken.items() if not key.startswith(PREFIX)}
    for some in (list(refused), *([each] for each in list(refused))):
        more = {
            _OTHER_NAMES.get(asked, asked): wanted[asked]
            for asked in some
            if not refused.get(asked, "").endswith(_NO_SUCH)
        }
        if more and not _reason(whole | more):
            taken |= more
            whole |= more
            refused = {asked: why for asked, why in refused.items() if _OTHER_NAMES.get(asked, asked) not in more}
    return taken, refused


def _reason(settings: Mapping[str, object]) -> str:
    """Why a node does not take these; empty: it does."""
    try:
        broker_config({key: str(value) for key, value in settings.items()})
    except ConfigError as error:
        return str(error)
    return ""


def _pairs(text: str, between: str, without: set[str] | None = None) -> dict[str, str]:
    """Name of a listener -> what stands behind it."""
    found = dict(each.strip().split(between, 1) for each in text.split(",") if each.strip())
    return {name: value for name, value in found.items() if name not in (without or ())}


def _text(pairs: Mapping[str, str], between: str) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in pairs.items())
