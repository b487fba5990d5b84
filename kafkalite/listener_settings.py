"""Settings of single listeners, `listener.name.NAME.KEY`, as in Kafka. Pure.

NAME is a Kafka listener's, or `rpc` or `http` for the node's other two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from kafkalite.lazy_dataclass import dataclass

PREFIX = "listener.name."
RPC = "RPC"
HTTP = "HTTP"
#: Keys that a listener may have for itself; without that, the node's value counts.
KEYS = (
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.plain.users.location",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.principal.mapping.rules",
    "ssl.truststore.location",
)


@dataclass(frozen=True, slots=True)
class PerListener:
    """Values by listener (in capitals) and key (with underscores). Not shown: one of them is a password."""

    values: tuple[tuple[str, str, Any], ...] = field(default=(), repr=False)

    def of(self, name: str) -> dict[str, Any]:
        """A listener's own."""
        return {key: value for listener, key, value in self.values if listener == name}

    def names(self) -> set[str]:
        """Of all listeners that have any."""
        return {listener for listener, _, _ in self.values}


def split(key: str) -> tuple[str, str] | None:
    """(listener in capitals, key) of `listener.name.NAME.KEY`; None if it is something else. A name may have dots."""
    if not key.startswith(PREFIX):
        return None
    rest = key.removeprefix(PREFIX)
    for own in KEYS:
        if rest.endswith("." + own) and len(rest) > len(own) + 1:
            return rest[: -len(own) - 1].upper(), own
    return None


def unknown_listener(values: PerListener, kafka_names: Iterable[str]) -> str:
    """A listener that has settings but is not there; empty if there is none."""
    unknown = values.names() - {*kafka_names, RPC, HTTP}
    return min(unknown, default="")
