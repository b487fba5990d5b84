"""What is wrong with the certificates, users and keys of a node's listeners: files are replaced, and time passes."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Clock
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.own_certificate import periods, refusals

#: A check shakes hands in memory, some milliseconds for each listener.
_CHECK_MS = 60_000
#: A certificate is renewed in its last third or sooner. One with less than a tenth of its life left, and less than this, was forgotten.
_WARNED_S = 7 * 86_400.0


class SecurityHealth:
    """Asks all listeners that have TLS, and whatever reads users and keys.

    Args:
        unread: setting -> why what it names cannot be used now.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Sequence[ListenerSecurity],
        unread: Callable[[], Mapping[str, str]],
        clock: Clock,
    ) -> None:
        self._config = config
        self._unread = unread
        self._listeners = [each for each in listeners if each.tls is not None]
        self._clock = clock
        self._checked: tuple[object, ...] = ()
        self._found: list[HealthProblem] = []

    def problems(self) -> list[HealthProblem]:
        """Those of now: files that have changed are read first."""
        found = [HealthProblem("users.not_reloaded", 0, why, setting) for setting, why in self._unread().items()]
        return [*found, *self._not_reloaded(), *self._doubtful()] if self._listeners else found

    def _not_reloaded(self) -> list[HealthProblem]:
        """Listeners whose files cannot be used any more: they go on, and the node would not start again."""
        names: dict[str, list[str]] = {}
        for each in self._listeners:
            assert each.tls is not None
            with contextlib.suppress(ConfigError):
                each.tls.context()  # the next handshake may be hours away
            if each.tls.complaint:
                names.setdefault(each.tls.complaint, []).append(each.name)
        return [HealthProblem("tls.not_reloaded", 0, complaint, ", ".join(found)) for complaint, found in names.items()]

    def _doubtful(self) -> list[HealthProblem]:
        now_ms = self._clock.wall_ms()
        try:
            stamps = tuple(each.tls.files.stamp() for each in self._listeners if each.tls is not None)
            if (stamps, now_ms // _CHECK_MS) != self._checked:
                self._found = list(self._check(now_ms / 1000))
                self._checked = (stamps, now_ms // _CHECK_MS)
        except (OSError, ConfigError):
            return []  # `_not_reloaded` says what is wrong with the files
        return self._found

    def _check(self, now_s: float) -> list[HealthProblem]:
        found = [HealthProblem("certificate.refused", 0, text, name) for name, text in refusals(self._config)]
        for keystore, (begin_s, end_s) in periods(self._config).items():
            left_s = end_s - now_s
            if 0 < left_s < min(_WARNED_S, (end_s - begin_s) / 10):
                until = datetime.datetime.fromtimestamp(end_s, datetime.UTC).isoformat(timespec="minutes")
                left = f"{left_s / 86_400:.0f} days" if left_s > 2 * 86_400 else f"{left_s / 3600:.0f} h"
                found.append(HealthProblem("certificate.ends", 0, f"valid until {until}, {left} left", keystore))
        return found
