"""Secrets in files: so that they need not stand in a command line, nor in a configuration that many may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from kafkalite.config import BrokerConfig, for_listener
from kafkalite.errors import ConfigError
from kafkalite.listener_settings import PREFIX
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_FROM_FILE = "file:"


def reveal(key: str, value: str) -> str:
    """A secret as configured: `file:PATH` stands for the file's first line. Raises ConfigError, without the secret."""
    if not value.startswith(_FROM_FILE):
        return value
    try:
        text = Path(value.removeprefix(_FROM_FILE)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {error}") from None
    return text.split("\n", 1)[0].rstrip("\r")


def readable_by_others(paths: Mapping[str, str]) -> list[str]:
    """Warnings for files with secrets that every user of this machine may read (key -> path, or `file:PATH`)."""
    found = []
    for key, value in sorted(paths.items()):
        path = value.removeprefix(_FROM_FILE)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue  # an error of its own, or not a file
        if mode & stat.S_IROTH:
            found.append(f"{key}: every user of this machine may read {path}: chmod 600 {path}")
    return found


def open_directories(paths: Iterable[str]) -> list[str]:
    """Warnings for log directories that every user of this machine may read: ACLs are for clients, not for files."""
    found = []
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue  # the node makes it, or has an error of its own
        if mode & stat.S_IROTH and mode & stat.S_IXOTH:
            found.append(f"log.dirs: every user of this machine may read {path}: chmod -R o-rwx {path}")
    return found


def secret_files(config: BrokerConfig) -> dict[str, str]:
    """Key -> file, of all configured files with secrets."""
    found: dict[str, str] = {}
    own = (("", config), *((name, for_listener(config, name)) for name in sorted(config.per_listener.names())))
    for name, settings in own:
        prefix = f"{PREFIX}{name.lower()}." if name else ""
        for key in ("ssl.keystore.location", "sasl.plain.users.location"):
            found[prefix + key] = getattr(settings, key.replace(".", "_"))
        if settings.ssl_key_password.startswith(_FROM_FILE):
            found[f"{prefix}ssl.key.password"] = settings.ssl_key_password
    found["http.bearer.tokens.location"] = config.http_bearer_tokens_location
    found["zookeeper.ssl.keystore.location"] = config.zookeeper_ssl_keystore_location
    for key, value in (
        ("inter.broker.password", config.inter_broker_password),
        ("zookeeper.auth", config.zookeeper_auth),
        ("delegation.token.secret.key", config.delegation_token_secret_key),
    ):
        if value.startswith(_FROM_FILE):
            found[key] = value
    return {key: value for key, value in found.items() if value}


class WatchedFiles(Protocol):
    """What reads files again when they change: when it is asked for what they say, or when a thread calls `refresh`."""

    #: The health problem if they cannot be read.
    unusable: str
    #: The thread does: what asks finds what it has read last, and waits for no disk.
    is_watched: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""

    def refresh(self) -> None:
        """Look whether the files have changed, and read them if so."""


class PasswordFile:
    """Users and passwords (or tokens), one `NAME=SECRET` a line; read again when the file changes.

    `key`: the setting that names the file, for errors.
    `is_watched`: a thread calls `refresh`; the file is not looked at for each login.

    What cannot be read leaves what was read before in force; one log line says so.
    """

    unusable = "users.not_reloaded"

    def __init__(self, path: str, key: str = "sasl.plain.users.location") -> None:
        self._path = Path(path)
        self.key = key
        self._seen: tuple[int, int, int] | None = None
        self._passwords: dict[str, str] = {}
        #: Why the present content cannot be used; empty: it can.
        self.complaint = ""
        self.is_watched = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The file."""
        return (str(self._path),)

    def load(self) -> dict[str, str]:
        """The present content. Raises ConfigError."""
        try:
            now = self._path.stat()
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.key}: {error}") from None
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, equals, password = line.partition("=")
            if not equals or not name.strip() or not password:
                raise ConfigError(f"{self.key}: line {number} is not NAME=SECRET")
            found[name.strip()] = password
        self._seen = (now.st_mtime_ns, now.st_size, now.st_ino)
        self._passwords = found
        self.complaint = ""
        return found

    def passwords(self) -> dict[str, str]:
        """Name -> password."""
        if not self.is_watched:
            self.refresh()
        return self._passwords

    def refresh(self) -> None:
        """Look whether the file has changed. To be called by a thread."""
        try:
            now = self._path.stat()
            if (now.st_mtime_ns, now.st_size, now.st_ino) != self._seen:
                self.load()
            self.complaint = ""
        except (OSError, ConfigError) as error:
            if str(error) != self.complaint:
                self.complaint = str(error)
                _log.error("users_file.not_read", error=str(error))
