"""Room on the disk for a file before it is written (Linux's fallocate; Python has only the one that also makes the file longer)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

#: FALLOC_FL_KEEP_SIZE: the file does not become longer, so that no reader finds zeros behind its end, not even after a crash.
_KEEP_SIZE = 1


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    import ctypes  # few nodes need it

    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    function.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] = function
    return found


def reserve(descriptor: int, size: int) -> bool:
    """Room for `size` bytes from the file's beginning; its size stays. At most half of the free room is taken: others write, too.

    False: the file system cannot do that, or has too little room.
    """
    function = _fallocate()
    if function is None or size <= 0:
        return False
    disk = os.fstatvfs(descriptor)
    return disk.f_bavail * disk.f_frsize >= 2 * size and function(descriptor, _KEEP_SIZE, 0, size) == 0
