"""Rights of the files that a server or a backup creates: records, and credentials in ZooKeeper's data."""

from __future__ import annotations

import os

_OTHERS = 0o007


def keep_from_others() -> None:
    """Files that this process makes from now on are for its user, and for its group as far as the umask allows."""
    os.umask(os.umask(_OTHERS) | _OTHERS)
