"""Secrets in files: so that they need not stand in a command line, nor in a configuration that many may read."""

from __future__ import annotations

from pathlib import Path

from kafkalite.errors import ConfigError
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


class PasswordFile:
    """Users and passwords (or tokens), one `NAME=SECRET` a line; read again when the file changes.

    `key`: the setting that names the file, for errors.

    What cannot be read leaves what was read before in force; one log line tells.
    """

    def __init__(self, path: str, key: str = "sasl.plain.users.location") -> None:
        self._path = Path(path)
        self._key = key
        self._seen: tuple[int, int, int] | None = None
        self._passwords: dict[str, str] = {}
        self._complaint = ""

    def load(self) -> dict[str, str]:
        """The present content. Raises ConfigError."""
        try:
            stat = self._path.stat()
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._key}: {error}") from None
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, equals, password = line.partition("=")
            if not equals or not name.strip() or not password:
                raise ConfigError(f"{self._key}: line {number} is not NAME=SECRET")
            found[name.strip()] = password
        self._seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        self._passwords = found
        self._complaint = ""
        return found

    def passwords(self) -> dict[str, str]:
        """Name -> password."""
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size, stat.st_ino) != self._seen:
                self.load()
        except (OSError, ConfigError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("users_file.not_read", error=str(error))
        return self._passwords
