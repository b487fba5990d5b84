"""Whether a disk that went offline because it was full has room again."""

from __future__ import annotations

import re

from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Disk
from kafkalite.log.failures import PROBE
from kafkalite.log.log_dir import DELETE_SUFFIX

#: A disk with less room than this stays offline.
MIN_ROOM_BYTES = 16 * 1024 * 1024
_DEADLINE_S = 15.0
_ROOM_PROBE = f"{PROBE}-room"
#: See `log_dir.set_aside_name`.
_DELETED = rf".+-\d+\.[0-9a-f]{{32}}{DELETE_SUFFIX}"


def needed_bytes(total_bytes: int) -> int:
    """The free bytes that a full disk needs to come back: more than the limit at which it goes offline."""
    return max(2 * MIN_ROOM_BYTES, min(4 * MIN_ROOM_BYTES, total_bytes // 10))


def _missing(disk: Disk, path: str) -> str:
    """See `missing_room`."""
    free, total = disk.free_bytes(path), disk.total_bytes(path)
    needed = needed_bytes(total)
    if free < needed:
        text = f"{needed:,} bytes must be free, {free:,} are"
        return text if total >= needed else f"{text}; it has {total:,} in all, which is too small to return"
    try:
        disk.write_file_atomic(f"{path}/{_ROOM_PROBE}", bytes(MIN_ROOM_BYTES))
    except OSError as error:
        return f"a file of {MIN_ROOM_BYTES:,} bytes cannot be written: {error.strerror or error}"
    finally:
        for name in (_ROOM_PROBE, f"{_ROOM_PROBE}.tmp"):
            disk.remove(f"{path}/{name}")
    return ""


def _remove_deleted(disk: Disk, path: str) -> None:
    """Logs that were to be removed when the disk went offline: nobody else removes them until it is back."""
    for name in disk.listdir(path):
        if re.fullmatch(_DELETED, name):
            disk.remove_tree(f"{path}/{name}")


async def missing_room(disk: Disk, path: str, own_time: OwnTime) -> str:
    """What the disk lacks before it has room again: free bytes, or (a quota does not show there) a file that may be written. Empty: nothing.

    If it lacks something, the logs that are deleted anyway are removed. Raises TimeoutError if the disk does not answer.
    """
    found = [""]

    def attempt() -> None:
        try:
            found[0] = _missing(disk, path)
            if found[0]:
                _remove_deleted(disk, path)
                found[0] = _missing(disk, path)
        except OSError as error:
            found[0] = f"it cannot be checked: {error.strerror or error}"

    async with own_time.timeout(_DEADLINE_S):
        await disk.run_blocking(attempt, path)
    return found[0]
