"""What a directory that went offline waits for, if it returns without an operator, and when it is checked. Pure."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from kafkalite.errors import StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.failures import FaultScope, fault_scope

#: The pause between checks; it doubles each time the directory goes offline again within the hour.
_PAUSE_S = 5.0
_PAUSE_MAX_S = 300.0
_HOUR_S = 3600.0


class Awaited(Enum):
    """What brings an offline directory back. The value ends the sentence "it returns …"."""

    #: It failed: an operator brings it back, or a restart.
    OPERATOR = ""
    #: It was full.
    ROOM = "when there is room"
    #: It did not answer in time, and reported no error: the disk was busy, or its controller or network was away for a while.
    ANSWER = "when it answers"

    @classmethod
    def after(cls, error: StorageError) -> Awaited:
        """By the error that took the directory offline."""
        if fault_scope(error) is FaultScope.ROOM:
            return cls.ROOM
        return cls.ANSWER if isinstance(error.__cause__, TimeoutError) else cls.OPERATOR

    def describe(self, reason: str, missing: str = "") -> str:
        """The reason, and when the directory returns. `missing`: what it lacks."""
        return {
            Awaited.OPERATOR: reason,
            Awaited.ROOM: f"full; returns {self.value}{missing and f' ({missing})'}: {reason}",
            Awaited.ANSWER: f"returns {self.value}: {reason}",
        }[self]


@dataclass(slots=True)
class ReturnPauses:
    """When (monotonic seconds) one directory went offline, within the last hour; when it is checked next."""

    offline_at: list[float] = field(default_factory=list)
    next_check: float = 0.0

    def went_offline(self, now: float) -> None:
        """It is offline, and waits for something."""
        self.offline_at = [*(each for each in self.offline_at if now - each < _HOUR_S), now][-16:]
        self.checked(now)

    def checked(self, now: float) -> None:
        """What it waits for was not there."""
        times = max(1, len(self.offline_at))
        self.next_check = now + min(_PAUSE_S * (1 << min(times - 1, 8)), _PAUSE_MAX_S)
