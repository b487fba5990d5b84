"""What a partition's leader keeps of a share group, and the interface through which it keeps it (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalite.coordinators.shares.delivery_states import StateBatch
from kafkalite.model import Offset, TopicId
from kafkalite.protocol.topic_ids import to_wire


class ShareKey(NamedTuple):
    """A partition as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int

    @classmethod
    def of(cls, group_id: str, topic_id: TopicId, partition: int) -> ShareKey:
        """`topic_id` as text, as the rest of the program has it."""
        return cls(group_id, UUID(bytes=to_wire(topic_id)), partition)


class ShareState(NamedTuple):
    """The stored state. `start_offset` is -1 if the group has not begun on this partition.

    `leader_epoch` is the epoch of the last leader that wrote. Batches are in the order of their offsets and do not overlap.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: Offset
    batches: Sequence[StateBatch]


class SharePersister(Protocol):
    """Reads and writes the state at the share coordinator of a key, wherever it is in the cluster.

    All raise ApiError: FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH if the caller's epoch is older than the stored one,
    GROUP_ID_NOT_FOUND or UNKNOWN_TOPIC_OR_PARTITION if the state was never initialised or is deleted, COORDINATOR_* and
    NOT_COORDINATOR if the coordinator cannot be reached now.
    """

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: Offset) -> None:
        """Begin a state; used by the group coordinator when a group subscribes to a topic or its offsets are altered."""

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """The whole state; `leader_epoch` fences every writer with an older one."""

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, start_offset: Offset, batches: Sequence[StateBatch]
    ) -> None:
        """Store changed batches; returns when they are committed. `start_offset` -1 leaves the stored one."""

    async def delete(self, key: ShareKey) -> None:
        """Forget the state; succeeds if there is none."""

    async def start_offset(self, key: ShareKey) -> Offset:
        """The stored start offset alone, -1 if the group has not begun there."""
