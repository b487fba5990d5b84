"""The files of certificates, users and keys of a node: they are replaced, and time passes.

They may be on a disk that hangs. While the node runs, a thread looks at them each second, and nobody on the loop does (ADR 80).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from collections.abc import Callable, Mapping, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.security.files import WatchedFiles
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.own_certificate import periods, refusals

#: A check shakes hands in memory, some milliseconds for each listener.
_CHECK_MS = 60_000
#: A certificate is renewed in its last third or sooner. One with less than a tenth of its life left, and less than this, was forgotten.
_WARNED_S = 7 * 86_400.0
#: Time in seconds for all files to be read; then their disk does not answer.
_PATIENCE_S = 0.5
#: The pause in seconds between two looks: what is replaced holds within a second.
_PAUSE_S = 0.5


class SecurityHealth:
    """Asks all listeners that have TLS, and whatever else reads files.

    Args:
        unread: setting -> why what it names cannot be used now.
        readers: of users and keys, and what this node shows to others.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Sequence[ListenerSecurity],
        unread: Callable[[], Mapping[str, str]],
        clock: Clock,
        *,
        readers: Callable[[], Sequence[WatchedFiles]],
        disk: Disk,
        supervisor: Supervisor,
    ) -> None:
        self._config = config
        self._unread = unread
        self._listeners = [each for each in listeners if each.tls is not None]
        self._clock = clock
        self._readers = readers
        self._is_watched = False
        self._disk = disk
        self._supervisor = supervisor
        self._loading: asyncio.Task[None] | None = None
        #: When the thread that reads now has begun; whether it took too long.
        self._loading_since_ms = 0
        self._is_hung = False
        #: The file that the thread looks at now, and what it is called if that does not end.
        self._at: tuple[str, str] = ("", "")
        self._last: list[HealthProblem] = []
        self._checked: tuple[object, ...] = ()
        self._found: list[HealthProblem] = []

    async def run(self) -> None:
        """Watch the files until cancelled: from now on a thread alone looks at them."""
        self._is_watched = True
        while True:
            await self.load()
            await asyncio.sleep(_PAUSE_S)

    async def load(self) -> None:
        """Have a thread look at the files, as far as their disk answers in time. One that hangs keeps one thread."""
        if self._loading is None or self._loading.done():
            self._loading_since_ms = self._clock.wall_ms()
            self._loading = self._supervisor.spawn("security.files", self._load(), Policy.ISOLATED)
            self._is_hung = False
        loading = self._loading
        await asyncio.wait([loading], timeout=0 if self._is_hung else _PATIENCE_S)
        self._is_hung = not loading.done()

    async def _load(self) -> None:
        readers: list[WatchedFiles] = [
            *self._readers(),
            *(each.tls for each in self._listeners if each.tls is not None),
        ]
        for reader in readers:
            # Before the thread begins: the file that it meets first may never answer.
            reader.is_watched = self._is_watched
        with contextlib.suppress(OSError):  # no thread
            await self._disk.run_blocking(lambda: self._look(readers))

    def _look(self, readers: Sequence[WatchedFiles]) -> None:
        """In the thread."""
        for reader in readers:
            for path in reader.paths:
                self._at = (reader.unusable, path)
                # What is wrong with it is found by those that use it.
                with contextlib.suppress(OSError, ValueError):
                    os.stat(path)
            reader.refresh()
        if self._is_watched:
            self._check_certificates()

    def problems(self) -> list[HealthProblem]:
        """Those that the thread has seen last. To be called after `load`. While nobody watches: those of now."""
        if self._is_hung:
            what, path = self._at
            hung = HealthProblem(what, self._loading_since_ms, "the disk of this file does not answer", path)
            return [hung, *(each for each in self._last if each.subject != path)]
        if not self._is_watched:
            self._check_certificates()
        found = [HealthProblem("users.not_reloaded", 0, why, setting) for setting, why in self._unread().items()]
        self._last = [*found, *self._not_reloaded(), *self._found]
        return self._last

    def _not_reloaded(self) -> list[HealthProblem]:
        """Listeners whose files cannot be used any more: they go on, and the node would not start again."""
        names: dict[str, list[str]] = {}
        for each in self._listeners:
            assert each.tls is not None
            with contextlib.suppress(ConfigError):
                # The next handshake may be hours away. A thread that watches has just looked.
                each.tls.context()
            if each.tls.complaint:
                names.setdefault(each.tls.complaint, []).append(each.name)
        return [HealthProblem("tls.not_reloaded", 0, complaint, ", ".join(found)) for complaint, found in names.items()]

    def _check_certificates(self) -> None:
        if not self._listeners:
            return
        now_ms = self._clock.wall_ms()
        try:
            stamps = tuple(each.tls.files.stamp() for each in self._listeners if each.tls is not None)
            if (stamps, now_ms // _CHECK_MS) != self._checked:
                self._found = list(self._check(now_ms / 1000))
                self._checked = (stamps, now_ms // _CHECK_MS)
        except (OSError, ConfigError):
            # `_not_reloaded` says what is wrong with the files.
            self._found, self._checked = [], ()

    def _check(self, now_s: float) -> list[HealthProblem]:
        found = [HealthProblem("certificate.refused", 0, text, name) for name, text in refusals(self._config)]
        for keystore, (begin_s, end_s) in periods(self._config).items():
            left_s = end_s - now_s
            if 0 < left_s < min(_WARNED_S, (end_s - begin_s) / 10):
                until = datetime.datetime.fromtimestamp(end_s, datetime.UTC).isoformat(timespec="minutes")
                left = f"{left_s / 86_400:.0f} days" if left_s > 2 * 86_400 else f"{left_s / 3600:.0f} h"
                found.append(HealthProblem("certificate.ends", 0, f"valid until {until}, {left} left", keystore))
        return found
