"""Which records `consume` prints, and how."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kafkalite.client.consumed import ConsumedRecord
from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """`wanted` None: all records. `maximum` None: until a signal."""

    show: Callable[[ConsumedRecord], bytes]
    wanted: Callable[[ConsumedRecord], bool] | None
    maximum: int | None
    exit_at_end: bool

    @property
    def most(self) -> int:
        """The number of records after which it ends."""
        return sys.maxsize if self.maximum is None else self.maximum

    def has(self, record: ConsumedRecord) -> bool:
        """Whether the record is one of them."""
        return self.wanted is None or self.wanted(record)
