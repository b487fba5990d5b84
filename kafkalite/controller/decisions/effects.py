"""What a controller decides: effects, performed by its shell in this order. Pure data.

The end of an effect is an event (kafkalite.controller.decisions.events): each says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kafkalite.controller.decisions.events import Event, Purpose, TopicChange
from kafkalite.controller.decisions.state import ControllerState, EndedDeletion, Vanished
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, BrokerInfo, LeaderAndIsr, Replicas, TopicId, TopicPartition
from kafkalite.rpc.messages.control import (
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

#: A controller's commands to brokers.
Command = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Read these state znodes; ends as StatesRead. `chunk` is handed on to the writes that follow."""

    partitions: tuple[TopicPartition, ...]
    purpose: Purpose
    chunk: int = 500


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Conditional writes, at most `chunk` operations a transaction; ends as StatesWritten.

    A state with partition epoch NOT_CREATED makes the znode, and its parents where they are missing.
    """

    writes: Mapping[TopicPartition, LeaderAndIsr]
    purpose: Purpose
    chunk: int


@dataclass(frozen=True, slots=True)
class CountLosses:
    """These partitions have got leaders that may lack committed records, and that is durable now."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask these replicas for their log ends, for a bounded time, then read the states again; ends as StatesRead with their
    answers. `everywhere`: all other live brokers are asked, too, for logs of these partitions that no replica has. `topic_ids`: by topic; logs of
    other topics of these names do not count."""

    replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]
    purpose: Purpose
    chunk: int = 500
    everywhere: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteTopics:
    """Each change is a transaction of its own; ends as TopicsWritten."""

    changes: tuple[TopicChange, ...]


@dataclass(frozen=True, slots=True)
class RaiseMinInsync:
    """Set min.insync.replicas of a topic, unless it is that or more already."""

    topic: str
    value: int


@dataclass(frozen=True, slots=True)
class RereadTopics:
    """What is known of these topics is not what is in ZooKeeper: read them again. Ends as a TopicsChanged."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdvanceReassignments:
    """Hand in a MovesDue as soon as it is its turn; any number of these is one."""


@dataclass(frozen=True, slots=True)
class RemoveReassignmentRequests:
    """Take these entries out of /admin/reassign_partitions, unless they say something else by now; the znode goes with
    the last one, or if it has none."""

    done: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class RemovePartitionRequests:
    """Take requests that cannot be carried out, or that ask for what is so already, out of /admin/partitions_*."""

    adds: tuple[TopicPartition, ...] = ()
    removals: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovePartitions:
    """Remove the znodes of these partitions, of each the request for its removal last; ends as PartitionsRemoved."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a command for a broker. Never waits for the broker."""

    broker_id: BrokerId
    command: Command


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """A broker has come, or has come back."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """A broker's registration has gone: forget what waits for it."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class RemoveTopics:
    """Remove topics' znodes, children first, and their names from /admin/delete_topics; ends as TopicsRemoved."""

    topics: tuple[EndedDeletion, ...]


@dataclass(frozen=True, slots=True)
class DropLeftover:
    """No replica of this deleted topic is left: remove its znode below /admin/deleted_topics."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class KeepVanished:
    """Store the states of a topic whose znode has vanished: it may come back without them."""

    topic: str
    vanished: Vanished


@dataclass(frozen=True, slots=True)
class DropVanished:
    """The topic is back with all its states, or is deleted for good."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class RemoveDeletionRequests:
    """Take names that are no topics out of /admin/delete_topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveAdminRequest:
    """Remove an admin znode if it still has this version: what it asks for is done."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class DropRestartRequests:
    """Remove these requests: they are done."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplyShutdown:
    """Answer the controlled shutdown request `token`."""

    token: int
    response: ControlledShutdownResponse


@dataclass(frozen=True, slots=True)
class Post:
    """Handle this event after the outcomes of the effects before it."""

    event: Event


@dataclass(frozen=True, slots=True)
class Note:
    """Something that an operator wants to find in the log."""

    event: str
    subject: str
    detail: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Resign:
    """Another controller is active."""

    reason: str


Effect = (
    ReadStates
    | AskLogEnds
    | WriteStates
    | WriteTopics
    | RaiseMinInsync
    | RereadTopics
    | CountLosses
    | AdvanceReassignments
    | RemoveReassignmentRequests
    | RemovePartitionRequests
    | RemovePartitions
    | Send
    | OpenChannel
    | CloseChannel
    | RemoveTopics
    | DropLeftover
    | KeepVanished
    | DropVanished
    | RemoveDeletionRequests
    | RemoveAdminRequest
    | DropRestartRequests
    | ReplyShutdown
    | Post
    | Note
    | Resign
)

#: The next state, and what is to be done, in this order.
Decision = tuple[ControllerState, list[Effect]]
