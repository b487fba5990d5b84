"""The states of records that a share group has got, as they are stored (KIP-932). Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple

from kafkalite.model import Offset


class DeliveryState(enum.IntEnum):
    """State of the records of a batch, with the numbers of KIP-932's state records. ACQUIRED (1) is never stored.

    ARCHIVING: given up, and on the way to the dead letter topic of the group (KIP-1191).
    """

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Offsets `first` to `last`, both included, in one state after `delivery_count` deliveries."""

    first: Offset
    last: Offset
    state: DeliveryState
    delivery_count: int
