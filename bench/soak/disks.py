"""A node's disk as a small file system of its own, on a loop device: it can lose its power, and be filled. Needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: EXT4_IOC_SHUTDOWN, and its flag for "write nothing more, the journal neither".
_EXT4_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
#: Seconds between the file system's own commits; long, so that bytes that were not synced are lost.
_COMMIT_S = 300
_UNMOUNT_S = 20.0
_OWN_MOUNTS = "KAFKALITE_SOAK_OWN_MOUNTS"


def available() -> bool:
    """Whether this process can make such disks (root, mkfs.ext4, loop devices)."""
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None and Path("/dev/loop-control").exists()


def with_own_mounts(module: str, arguments: Sequence[str]) -> None:
    """Run the module again with mounts that no other process of the machine sees; returns if it runs so already.

    A namespace that somebody else makes meanwhile takes over every mount that it sees: a disk would stay in use after its unmount, and
    come back as the one that was shut down.
    """
    if _OWN_MOUNTS not in os.environ:
        os.environ[_OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", module, *arguments])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class LoopDisk:
    """An ext4 file system in a file, mounted at `mount`. Use as a context manager."""

    def __init__(self, image: Path, mount: Path, size_mb: int) -> None:
        self._image = image
        self.mount = mount
        self._size_mb = size_mb
        self._filler = mount / "filler"

    def __enter__(self) -> LoopDisk:
        self.mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def attach(self) -> None:
        """Mount it. Raises CalledProcessError."""
        _run("mount", "-o", f"loop,commit={_COMMIT_S}", str(self._image), str(self.mount))

    def detach(self) -> None:
        """Unmount it; if it is still in use, as soon as that ends."""
        until = time.monotonic() + _UNMOUNT_S
        while subprocess.run(["umount", str(self.mount)], capture_output=True, check=False).returncode:
            if time.monotonic() > until:
                subprocess.run(["umount", "-l", str(self.mount)], capture_output=True, check=False)
                return
            time.sleep(0.1)

    def power_off(self) -> None:
        """Nothing more reaches the image, not even earlier bytes that were not synced."""
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def fill(self) -> None:
        """Take all the room that is left."""
        with self._filler.open("wb", buffering=0) as filler:
            block = bytes(1 << 20)
            size = len(block)
            while size >= 512:
                try:
                    filler.write(block[:size])
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)
