"""Whether a disk that went offline because it was full has room again."""

from __future__ import annotations

from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Disk
from kafkalite.log.failures import PROBE

#: A disk with less room than this stays offline.
MIN_ROOM_BYTES = 16 * 1024 * 1024
_DEADLINE_S = 15.0
_ROOM_PROBE = f"{PROBE}-room"


def needed_bytes(total_bytes: int) -> int:
    """The free bytes that a full disk needs to come back: more than the limit at which it goes offline."""
    return max(2 * MIN_ROOM_BYTES, min(4 * MIN_ROOM_BYTES, total_bytes // 10))


async def has_room(disk: Disk, path: str, own_time: OwnTime) -> bool:
    """Whether the disk has room again: free bytes, and (a quota does not show there) a file that may be written.

    Raises TimeoutError if the disk does not answer.
    """
    found: list[bool] = []

    def attempt() -> None:
        try:
            if disk.free_bytes(path) < needed_bytes(disk.total_bytes(path)):
                return
            try:
                disk.write_file_atomic(f"{path}/{_ROOM_PROBE}", bytes(MIN_ROOM_BYTES))
                found.append(True)
            finally:
                for name in (_ROOM_PROBE, f"{_ROOM_PROBE}.tmp"):
                    disk.remove(f"{path}/{name}")
        except OSError:
            return

    async with own_time.timeout(_DEADLINE_S):
        await disk.run_blocking(attempt, path)
    return bool(found)
