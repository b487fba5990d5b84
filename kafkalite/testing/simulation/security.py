"""Users of a simulated cluster whose listeners ask for SASL: one for the nodes, one for the clients.

Without TLS: nobody listens in on a simulated network. The credentials are in ZooKeeper before the first node starts, as
`kafkalite admin users set --zookeeper` would have put them there.
"""

from __future__ import annotations

from functools import cache

from kafkalite.coordination import paths
from kafkalite.coordination.config_znodes import encode_config
from kafkalite.coordination.coordinator import Create
from kafkalite.coordination.topic_configs import USERS
from kafkalite.security.dialling import ClientSecurity, Dialling
from kafkalite.security.scram import make_credential

_MECHANISM = "SCRAM-SHA-256"
_NODE, _CLIENT = "node", "client"


def settings(reauth_ms: int) -> dict[str, int | str]:
    """What a node is configured with. `reauth_ms`: how long a session lasts; 0 it has no end."""
    return {
        "listener.security.protocol": "SASL_PLAINTEXT",
        "rpc.security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": _MECHANISM,
        "sasl.mechanism.inter.broker.protocol": _MECHANISM,
        "inter.broker.username": _NODE,
        "inter.broker.password": _password(_NODE),
        "connections.max.reauth.ms": reauth_ms,
    }


def znodes() -> list[Create]:
    """The credentials, and the znodes above them."""
    users = [Create(paths.config_entity(USERS, name), encode_config({_MECHANISM: _text(name)})) for name in _names()]
    return [Create("/config"), Create(paths.CONFIG_USERS), *users]


def dialling() -> Dialling:
    """How a client connects; a process of its own should have one of its own."""
    return ClientSecurity("SASL_PLAINTEXT", mechanism=_MECHANISM, username=_CLIENT, password=_password(_CLIENT)).open()


def _names() -> tuple[str, ...]:
    return (_NODE, _CLIENT)


def _password(user: str) -> str:
    return f"{user}'s secret"


@cache
def _text(user: str) -> str:
    return make_credential(_MECHANISM, _password(user), f"salt of {user}".encode()).text()
