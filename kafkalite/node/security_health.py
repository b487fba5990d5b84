"""What is wrong with the certificates, users and keys of a node's listeners: files are replaced, and time passes.

The files may be on a disk that hangs. A thread reads them first, so that the loop finds them in the page cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Mapping, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.own_certificate import periods, refusals

#: A check shakes hands in memory, some milliseconds for each listener.
_CHECK_MS = 60_000
#: A certificate is renewed in its last third or sooner. One with less than a tenth of its life left, and less than this, was forgotten.
_WARNED_S = 7 * 86_400.0
#: Time in seconds for all files to be read; then their disk does not answer.
_PATIENCE_S = 0.5
#: Of each file that are read; no file of ours is larger.
_MAX_BYTES = 2**20


class SecurityHealth:
    """Asks all listeners that have TLS, and whatever reads users and keys.

    Args:
        unread: setting -> why what it names cannot be used now.
        other_files: of users and keys.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Sequence[ListenerSecurity],
        unread: Callable[[], Mapping[str, str]],
        clock: Clock,
        *,
        other_files: Callable[[], Sequence[str]],
        disk: Disk,
        supervisor: Supervisor,
    ) -> None:
        self._config = config
        self._unread = unread
        self._listeners = [each for each in listeners if each.tls is not None]
        self._clock = clock
        self._other_files = other_files
        self._disk = disk
        self._supervisor = supervisor
        self._loading: asyncio.Task[None] | None = None
        #: When the thread that reads now has begun; whether it took too long.
        self._loading_since_ms = 0
        self._is_hung = False
        #: The file that the thread reads now, and what it is called if that does not end.
        self._at: tuple[str, str] = ("", "")
        self._last: list[HealthProblem] = []
        self._checked: tuple[object, ...] = ()
        self._found: list[HealthProblem] = []

    async def load(self) -> None:
        """Have the files in the page cache, as far as their disk answers in time. One that hangs keeps one thread."""
        if self._loading is None or self._loading.done():
            self._loading_since_ms = self._clock.wall_ms()
            self._loading = self._supervisor.spawn("security.files", self._load(), Policy.ISOLATED)
            self._is_hung = False
        loading = self._loading
        await asyncio.wait([loading], timeout=0 if self._is_hung else _PATIENCE_S)
        self._is_hung = not loading.done()

    async def _load(self) -> None:
        files = [("users.not_reloaded", path) for path in self._other_files()]
        for each in self._listeners:
            assert each.tls is not None
            stores = (each.tls.files.keystore, each.tls.files.truststore)
            files += [("tls.not_reloaded", path) for path in stores if path]
        if not files:
            return
        self._at = files[0]

        def read() -> None:
            for what, path in dict.fromkeys(files):
                self._at = (what, path)
                # What is wrong with it is found by those that use it.
                with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
                    file.read(_MAX_BYTES)

        with contextlib.suppress(OSError):  # no thread
            await self._disk.run_blocking(read)

    def problems(self) -> list[HealthProblem]:
        """Those of now: files that have changed are read first. To be called after `load`."""
        if self._is_hung:
            what, path = self._at
            hung = HealthProblem(what, self._loading_since_ms, "the disk of this file does not answer", path)
            return [hung, *(each for each in self._last if each.subject != path)]
        self._last = self._problems()
        return self._last

    def _problems(self) -> list[HealthProblem]:
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
