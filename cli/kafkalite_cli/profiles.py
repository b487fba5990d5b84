"""Profiles: addresses and security of clusters under a name, in the user's directory of settings (XDG)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from kafkalite.client.bootstrap import parse_bootstrap
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.dialling import KEYS, ClientSecurity
from kafkalite_cli.parameters import os_error_text

VARIABLE = "KAFKALITE_PROFILE"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_PROFILES = 1000
#: Shown as "(hidden)".
SECRETS = frozenset({"sasl.password", "ssl.key.password", "sasl.jaas.config"})
_BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True)
class Profile:
    """`settings`: a client's security, under Kafka's names."""

    name: str
    bootstrap: str
    settings: Mapping[str, str]

    def security(self) -> ClientSecurity | None:
        """Raises ConfigError."""
        try:
            return ClientSecurity.parse(self.settings)
        except ConfigError as error:
            raise ConfigError(f"profile {self.name!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class Profiles:
    """All of a user's; `current` "": none."""

    current: str
    by_name: Mapping[str, Profile]

    def named(self, name: str) -> Profile:
        """Raises ConfigError."""
        if name not in self.by_name:
            raise ConfigError(f"there is no profile {name!r}; 'kafkalite profile list' shows them")
        return self.by_name[name]


def profiles_path() -> Path:
    """$XDG_CONFIG_HOME/kafkalite/profiles.toml, by default in ~/.config. Raises ConfigError: this user has no home."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        return (Path(home) if home.startswith("/") else Path.home() / ".config") / "kafkalite" / "profiles.toml"
    except RuntimeError:
        raise ConfigError("this user has no home directory: set HOME or XDG_CONFIG_HOME") from None


def read_profiles() -> Profiles:
    """None at all if there is no file. Raises ConfigError."""
    try:
        path = profiles_path()
    except ConfigError:
        return Profiles("", {})
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = tomllib.load(file)
    except FileNotFoundError:
        return Profiles("", {})
    except OSError as error:
        raise ConfigError(os_error_text(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    tables = found.get("profiles", {})
    current = found.get("current", "")
    if not isinstance(tables, dict) or not isinstance(current, str):
        raise ConfigError(f"{path}: 'current' must be a name, and 'profiles' tables")
    profiles = {name: _profile(path, name, table) for name, table in tables.items()}
    has_secret = any(SECRETS & profile.settings.keys() for profile in profiles.values())
    if has_secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path}: it has passwords, and other users may open it: chmod 600 {path}")
    return Profiles(current, profiles)


def _profile(path: Path, name: str, table: object) -> Profile:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ConfigError(f"{path}: profile {name!r}: every value is text")
    settings = dict(table)
    return Profile(name, check_bootstrap(settings.pop(_BOOTSTRAP, "")), settings)


def check_bootstrap(text: str) -> str:
    """Raises ConfigError."""
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return text


def check_profile(name: str, bootstrap: str, settings: Mapping[str, str]) -> Profile:
    """A new one. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a profile's name: letters, digits, '.', '_' and '-', at most 64")
    unknown = sorted(settings.keys() - set(KEYS))
    if unknown:
        raise ConfigError(f"{unknown[0]}: no such setting of a client; there are {', '.join(KEYS)}")
    profile = Profile(name, check_bootstrap(bootstrap), settings)
    profile.security()
    return profile


def change_profiles(change: Callable[[Profiles], Profiles]) -> Profiles:
    """Read the file, change it and write it, one command at a time. Raises ConfigError (also what `change` raises), OSError."""
    path = profiles_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        changed = change(read_profiles())
        write_profiles(changed)
        return changed


def write_profiles(profiles: Profiles) -> None:
    """Only the user may read the file, also while it is written. Raises ConfigError, OSError."""
    if len(profiles.by_name) > _MAX_PROFILES:
        raise ConfigError(f"more than {_MAX_PROFILES} profiles")
    path = profiles_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    lines = [f"current = {_quoted(profiles.current)}"]
    for name, profile in sorted(profiles.by_name.items()):
        lines += ["", f"[profiles.{_quoted(name)}]", f"{_BOOTSTRAP} = {_quoted(profile.bootstrap)}"]
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(profile.settings.items())]
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
