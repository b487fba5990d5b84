"""Which mount of a file system a path is on."""

from __future__ import annotations

import contextlib
import os

#: Where the kernel lists block devices by number, and mounted file systems by kind and device.
_SYS_BLOCK, _SYS_FS = "/sys/dev/block", "/sys/fs"


def mount_id(path: str) -> str:
    """A new number that the kernel gives to each mount of a file system on a block device; empty if it gives none.

    ext4, xfs and others have a directory in sysfs while they are mounted. Its inode number is never used again. A bind mount,
    hence the restart of a container, leaves it as it is.
    """
    device = os.stat(path).st_dev
    try:
        name = os.path.basename(os.path.realpath(f"{_SYS_BLOCK}/{os.major(device)}:{os.minor(device)}", strict=True))
        for kind in sorted(os.listdir(_SYS_FS)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return f"/{os.stat(f'{_SYS_FS}/{kind}/{name}').st_ino}"
    except OSError:
        pass  # no block device, or no sysfs: the boot alone has to do
    return ""


def mount_of(path: str) -> tuple[int, str]:
    """What distinguishes the file system at `path` from one that is mounted there at another time. Raises OSError."""
    return os.stat(path).st_dev, mount_id(path)
