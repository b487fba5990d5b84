"""Consumer groups and their offsets."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Offset
from kafkalite.rpc.messages.base import Message, kind
from kafkalite.rpc.messages.control import PartitionError


@kind(86)
@dataclass(frozen=True, slots=True)
class CommittedOffsetsRequest(Message):
    """What have the consumer groups that THIS node coordinates committed for these partitions (topic, number)?"""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupsOffset:
    """`lowest` of the offsets that `groups` groups have committed; unstable while a transaction may change one."""

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


@kind(124)
@dataclass(frozen=True, slots=True)
class ListGroupsRequest(Message):
    """The consumer groups that THIS node coordinates."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    state: str
    protocol_type: str
    members: int


@kind(125)
@dataclass(frozen=True, slots=True)
class ListGroupsResponse(Message):
    error: int
    message: str = ""
    groups: tuple[ListedGroup, ...] = ()


@kind(126)
@dataclass(frozen=True, slots=True)
class DescribeGroupRequest(Message):
    """One group, of the node that coordinates it."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`partitions`: what it is assigned, if the group's protocol is that of consumers."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`offset`: the next record to read."""

    topic: str
    partition: int
    offset: Offset
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1


@kind(127)
@dataclass(frozen=True, slots=True)
class DescribeGroupResponse(Message):
    """`state` Dead: there is no such group."""

    error: int
    message: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()


@kind(128)
@dataclass(frozen=True, slots=True)
class DeleteGroupRequest(Message):
    """A group without members, with its offsets; of the node that coordinates it."""

    group: str


@kind(129)
@dataclass(frozen=True, slots=True)
class DeleteGroupResponse(Message):
    error: int
    message: str = ""


@kind(130)
@dataclass(frozen=True, slots=True)
class CommitOffsetsRequest(Message):
    """Set offsets of a group, and forget those of `deletions`; as a member, or with generation -1 of a group without any."""

    group: str
    offsets: tuple[GroupOffset, ...]
    member_id: str = ""
    generation: int = -1
    deletions: tuple[tuple[str, int], ...] = ()


@kind(131)
@dataclass(frozen=True, slots=True)
class CommitOffsetsResponse(Message):
    """`partitions` lists refusals only."""

    error: int
    message: str = ""
    partitions: tuple[PartitionError, ...] = ()


@kind(132)
@dataclass(frozen=True, slots=True)
class JoinGroupRequest(Message):
    """Take part in a group of consumers; answered when the round is over. `member_id` is empty the first time."""

    group: str
    member_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    member_id: str
    topics: tuple[str, ...]


@kind(133)
@dataclass(frozen=True, slots=True)
class JoinGroupResponse(Message):
    """`members` is for the leader of the group only: it shares the partitions out and sends them with its sync."""

    error: int
    message: str = ""
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    member_id: str
    partitions: tuple[tuple[str, int], ...]


@kind(134)
@dataclass(frozen=True, slots=True)
class SyncGroupRequest(Message):
    """Ask for one's share; the leader brings everybody's."""

    group: str
    member_id: str
    generation: int
    assignments: tuple[Assignment, ...] = ()


@kind(135)
@dataclass(frozen=True, slots=True)
class SyncGroupResponse(Message):
    error: int
    message: str = ""
    partitions: tuple[tuple[str, int], ...] = ()


@kind(136)
@dataclass(frozen=True, slots=True)
class GroupHeartbeatRequest(Message):
    """`is_leaving`: the member goes; the others share its partitions out at once."""

    group: str
    member_id: str
    generation: int
    is_leaving: bool = False


@kind(137)
@dataclass(frozen=True, slots=True)
class GroupHeartbeatResponse(Message):
    """REBALANCE_IN_PROGRESS: join again."""

    error: int
    message: str = ""
