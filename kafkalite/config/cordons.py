"""Which log directories of a broker get no new replicas (`cordoned.log.dirs`, KIP-1066): a list of paths, or * for all. Pure.

A path is written as in `log.dirs`, which is also how DescribeLogDirs shows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.errors import ConfigError

CORDONED_LOG_DIRS = "cordoned.log.dirs"
_ALL = "*"


def cordoned_among(log_dirs: Iterable[str], cordoned: str) -> frozenset[str]:
    """Those of `log_dirs` that get no new replicas."""
    names = _names(cordoned)
    return frozenset(each for each in log_dirs if _ALL in names or each in names)


def check_cordoned(log_dirs: Iterable[str], cordoned: str) -> None:
    """Raises ConfigError: the broker has no such log directory."""
    own = list(log_dirs)
    for each in _names(cordoned):
        if each not in (_ALL, *own):
            raise ConfigError(f"{CORDONED_LOG_DIRS}: {each!r} is not one of log.dirs ({', '.join(own)})")


def _names(cordoned: str) -> list[str]:
    return [name for each in cordoned.split(",") if (name := each.strip())]
