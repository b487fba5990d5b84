"""Whether a disk that went offline because it was full has room again. Then it returns without an operator."""

from __future__ import annotations

from dataclasses import field

from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Disk
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.failures import PROBE

#: A disk with less room than this stays offline.
MIN_ROOM_BYTES = 16 * 1024 * 1024
#: The pause between checks of a full disk; it doubles each time the disk is full again within the hour.
_PAUSE_S = 5.0
_PAUSE_MAX_S = 300.0
_HOUR_S = 3600.0
_DEADLINE_S = 15.0
_ROOM_PROBE = f"{PROBE}-room"


def needed_bytes(total_bytes: int) -> int:
    """The free bytes that a full disk needs to come back: more than the limit at which it goes offline."""
    return max(2 * MIN_ROOM_BYTES, min(4 * MIN_ROOM_BYTES, total_bytes // 10))


@dataclass(slots=True)
class RoomPauses:
    """When (monotonic seconds) one directory was full, within the last hour; when it is checked next."""

    full_at: list[float] = field(default_factory=list)
    next_check: float = 0.0

    def is_full_now(self, now: float) -> None:
        """It is offline because it is full."""
        self.full_at = [*(each for each in self.full_at if now - each < _HOUR_S), now][-16:]
        self.is_still_full(now)

    def is_still_full(self, now: float) -> None:
        """It is still full."""
        times = max(1, len(self.full_at))
        self.next_check = now + min(_PAUSE_S * (1 << min(times - 1, 8)), _PAUSE_MAX_S)


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
