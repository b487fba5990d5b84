"""What consumer groups have committed."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind


@kind(86)
@dataclass(frozen=True, slots=True)
class CommittedOffsetsRequest(Message):
    """The offsets that the consumer groups of THIS coordinator have committed for these partitions (topic, number)."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupsOffset:
    """`lowest` of the offsets that `groups` groups have committed; unstable while a transaction may change one, or a share group reads it."""

    topic: str
    partition: int
    lowest: int
    groups: int
    is_unstable: bool = False


@kind(87)
@dataclass(frozen=True, slots=True)
class CommittedOffsetsResponse(Message):
    """`coordinated`: the partitions of __consumer_offsets whose groups are all known here now."""

    coordinated: tuple[int, ...]
    offsets: tuple[GroupsOffset, ...]
