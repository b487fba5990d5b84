"""What the Kafka listener needs of its node. The node provides one object; tests provide an in-memory one.

The listener decodes, calls these services, and encodes. It has no policy of its own; the coordinators of groups, transactions
and share groups stand here, over partitions of internal topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.fair_queue import Owner
from kafkalite.env.loop_times import LoopTimes
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
)
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from kafkalite.features import Finalized
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.record_checks import RecordRules
from kafkalite.model import BrokerId, Buffer, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition
from kafkalite.partition_values import CurrentLeader
from kafkalite.replica.client_fetch import AT_ONCE, ClientFetch, FetchDone, FetchEntry, FetchTerms, Pacing
from kafkalite.replica.purgatory import ProduceDone, ResponseLimit
from kafkalite.replica.requests import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
)
from kafkalite.rpc.messages.base import Message
from kafkalite.security.access import Access, Subject
from kafkalite.security.acl import AclEntry, Binding, Filter, Pattern
from kafkalite.security.connection_limits import ConnectionLimits
from kafkalite.security.principal import Principal
from kafkalite.security.quotas import Entity, Quotas
from kafkalite.security.tokens import SecretToken, Token

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity

#: Returns the response to a request of one class of the extension API.
ExtensionHandler = Callable[[Any], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """One replica in a directory. `lag`: records that its log end is behind, the high watermark or (`is_future`: it is
    on its way into this directory) the replica that it will replace."""

    partition: TopicPartition
    size_bytes: int
    lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory; -1 bytes: not known."""

    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: tuple[LogDirReplica, ...]
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers. -1 where there is nothing; `transaction_start_offset` of an open one."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: Offset


class Partitions(Protocol):
    """Partitions on this node (ReplicaManager and its logs). Everything here is synchronous and answers per partition."""

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        client: Callable[[], str] | None = None,
    ) -> None:
        """Append in call order; buffers are not used after the return. `done` is called exactly once, maybe at once.

        `guards`: of partitions where a transaction may begin, from `begin_verification`; None: nothing is verified.
        `client`: names whose records they are.
        """
        ...

    def record_rules(self, partition: TopicPartition) -> RecordRules | None:
        """What a partition that is led here asks of records; None: it is not led here."""
        ...

    def begin_verification(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        begins_at_zero: bool = False,
    ) -> int:
        """The guard to append with once the coordinator has confirmed the transaction; 0: there is no need to ask.

        `begins_at_zero`: the producer has another epoch for each transaction, so its first batch anywhere has the sequence 0.
        """
        ...

    def last_coordinator_epoch(self, partition: TopicPartition, producer_id: int) -> int:
        """Leader epoch of the coordinator that wrote the producer's last marker there; -1: none is known."""
        ...

    def end_verification(self, partition: TopicPartition, producer_id: int, guard: int) -> None:
        """The coordinator has refused: no batch will use `guard`."""
        ...

    def refused(self, partition: TopicPartition, records: Buffer, error: ErrorCode) -> None:
        """This batch is answered with `error` and not appended: what comes directly behind it gets the same error."""
        ...

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Like `produce` with acks=all, by a coordinator of this node: control batches and internal topics are allowed.

        `transaction_version`: of markers; from 2 on their epoch must be above that of the transaction (KIP-1228).
        """
        ...

    def fetch(
        self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit, pacing: Pacing = AT_ONCE
    ) -> None:
        """Long poll; records up to the high watermark (isolation 1: the last stable offset). `done` is called once."""
        ...

    def read_entry(self, entry: FetchEntry, max_bytes: int, *, is_first: bool) -> None:
        """Read one entry of a single fetch now: records, an error, or what is missing in the page cache are in the entry."""
        ...

    def wait_for_entries(self, fetch: ClientFetch, wait_ms: int, reader: Owner, complete: Callable[[], None]) -> bool:
        """Call `complete` once: when more of one entry can be read, at a change, or after `wait_ms`; then
        `fetch.unwatch` must follow. False: too many wait already."""
        ...

    def entry_sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        """Records of it were given to a client: for the metrics."""
        ...

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse: ...

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        """The partitions of `topic` that this node leads now, with the epochs."""
        ...

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        """The epoch in which this node leads the partition now; None: it does not."""
        ...

    def may_be_replaced(self, partition: TopicPartition) -> bool:
        """Whether another node may lead the partition that this node leads: nobody follows it, or it has lost its lease (ADR 15)."""
        ...

    async def leadership_changed(self) -> None:
        """Return when `led_partitions` may have changed since the last call, or after a while."""
        ...

    async def load_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> None:
        """Have what `read_local` would return in the page cache, read off the loop. Raises what it raises."""
        ...

    def read_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> list[Buffer]:
        """Whole batches from the log of a partition led here, up to its log end; empty at the end.

        A loading coordinator reads its own past. Raises ApiError NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE; StorageError.
        """
        ...

    def local_bounds(self, partition: TopicPartition) -> tuple[Offset, Offset]:
        """(log start offset, log end offset) of a partition led here. Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        ...

    def local_high_watermark(self, partition: TopicPartition) -> Offset:
        """Of a partition led here. Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        ...

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_epoch: LeaderEpoch, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch at most `epoch` and its end offset; (-1, -1) if none. Raises ApiError."""
        ...

    def delete_records(self, partition: TopicPartition, before: Offset) -> Awaitable[Offset]:
        """Advance the log start offset (-1: to the high watermark), at once. The awaitable returns the new offset
        when no failover can bring the records back. Both raise ApiError."""
        ...

    def active_producers(self, partition: TopicPartition) -> Iterator[ActiveProducer]:
        """The idempotent and transactional producers of a partition with a replica here, by id.

        Raises ApiError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        ...


class Rights(Protocol):
    """Who may do what, and how fast."""

    access: Access
    quotas: Quotas

    def connection_limits(
        self, rate_of_all: Callable[[], float] = ..., *, is_for_nodes: bool = False
    ) -> ConnectionLimits:
        """For one listener. `rate_of_all`: new connections per second that it takes in all; 0: no limit."""
        ...

    def describe_acls(self, wanted: Filter) -> Iterator[tuple[Pattern, list[AclEntry]]]:
        """Each pattern that the filter means, with its entries that match. Raises ApiError SECURITY_DISABLED."""
        ...

    async def create_acls(self, subject: Subject, bindings: Sequence[Binding]) -> list[ApiError | None]:
        """Errors by position; None, too, for a binding that is there already. Raises ApiError SECURITY_DISABLED."""
        ...

    async def delete_acls(self, subject: Subject, filters: Sequence[Filter]) -> list[list[Binding] | ApiError]:
        """What each filter removed. Raises ApiError SECURITY_DISABLED."""
        ...

    async def alter_quotas(
        self, subject: Subject, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set limits, remove those whose value is None. Raises ApiError."""
        ...


class DelegationTokens(Protocol):
    """The delegation tokens (KIP-48). Everything raises ApiError, DELEGATION_TOKEN_AUTH_DISABLED where there are none."""

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int
    ) -> SecretToken:
        """A new token that lives at most this long (0 or less: as configured)."""
        ...

    async def renew(self, principal: Principal, value: bytes, period_ms: int) -> int:
        """Extend the life of the token with this HMAC; returns its end in milliseconds since the epoch."""
        ...

    async def expire(self, principal: Principal, value: bytes, period_ms: int) -> int:
        """Let it end after this time, or (below 0) now; returns its end."""
        ...

    def describe(
        self, requester: Principal, owners: Collection[Principal] | None, may_see: Callable[[Token], bool]
    ) -> Generator[None, None, list[SecretToken]]:
        """The tokens of these owners or renewers (None: all) that concern the requester, or that it may see, in steps."""
        ...


class Services(Protocol):
    """Everything else of the node."""

    clock: Clock
    loop_times: LoopTimes
    network: Network
    random: random.Random
    supervisor: Supervisor
    #: Bytes for salts and nonces.
    entropy: Callable[[int], bytes]

    @property
    def security(self) -> Mapping[str, ListenerSecurity]:
        """What the Kafka listeners ask for, by name, without those that ask for nothing."""
        ...

    @property
    def node_principals(self) -> Collection[Principal]:
        """Who may act as a node."""
        ...

    @property
    def rights(self) -> Rights: ...

    @property
    def tokens(self) -> DelegationTokens: ...

    @property
    def config(self) -> BrokerConfig:
        """As it is now; `static_config`: without dynamic settings."""
        ...

    @property
    def static_config(self) -> BrokerConfig: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def cluster_id(self) -> str: ...

    def current_leader(self, partition: TopicPartition, listener_name: str) -> CurrentLeader | None:
        """As far as this node knows: the newer one of its own replica's and its metadata's. None: no leader is known, or it is not alive
        or has no such listener."""
        ...

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """What is known of these topics (None: all). Unknown ones carry UNKNOWN_TOPIC_OR_PARTITION. Synchronous: a cache."""
        ...

    @property
    def metadata_version(self) -> int:
        """Higher than before if `metadata` may have changed since."""
        ...

    async def metadata_changed(self) -> None:
        """Return when `metadata` may have changed since the last call, or after a while (a tenth of a second will do)."""
        ...

    def topic_name(self, topic_id: TopicId) -> str | None: ...

    def is_deleted(self, name: str, topic_id: TopicId) -> bool:
        """Whether this node has heard that the topic was deleted. One that is missing without that may have vanished (ADR 19).

        NO_TOPIC_ID: the caller knows its name only.
        """
        ...

    def is_id_deleted(self, topic_id: TopicId) -> bool:
        """The same of the topic of this id, whatever its name was."""
        ...

    def features(self) -> Finalized:
        """The features in force now, as this node knows them. Synchronous: a cache."""
        ...

    def feature_level(self, name: str) -> int:
        """The level in force of a feature (`kafkalite.features` has the names); 0: it is off."""
        ...

    async def update_features(self, levels: Mapping[str, int]) -> None:
        """Choose these levels, which were checked. Raises ApiError, CoordinatorError."""
        ...

    async def forget_broker(self, broker_id: BrokerId) -> bool:
        """A broker that is not running is gone for good; False if it has never started. Raises CoordinatorError."""
        ...

    async def known_everywhere(self, what: str) -> None:
        """Return when the live nodes act on the changes written before this call, or after a second. `what`: as in CatchUpRequest."""
        ...

    def settings_of(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """Dynamic settings of all groups or client metrics (`topic_configs`), by name, as this node knows them."""
        ...

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Dynamic settings of one group, as this node knows them. Cheap: heartbeats ask for them."""
        ...

    async def entity_overrides(self, entity_type: str, name: str) -> Mapping[str, str]:
        """Dynamic settings of one entity that is no topic, as ZooKeeper has them. Raises ApiError, CoordinatorError."""
        ...

    async def replace_entity_overrides(
        self, entity_type: str, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> bool:
        """Replace an entity's settings (already validated) if they are still `before`; False: they are not.

        Raises ApiError, CoordinatorError.
        """
        ...

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse: ...

    async def delete_topics(self, request: DeleteTopicsRequest, ids: Mapping[str, TopicId]) -> DeleteTopicsResponse:
        """`ids`: of topics that are deleted only if they still have this id."""
        ...

    async def missing_topics(self, topics: Sequence[str], timeout_ms: int) -> frozenset[str]:
        """Those that do not exist, wherever they may have been created a moment ago. Empty if that cannot be said in time."""
        ...

    async def create_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[BrokerId]] | None,
        *,
        timeout_ms: int,
        validate_only: bool,
    ) -> TopicResult:
        """Add partitions until there are `count`; `assignments` are those of the new ones. Errors are in the result.
        `timeout_ms`: how long their coming is waited for.
        """
        ...

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse: ...

    async def alter_reassignments(self, request: AlterReassignmentsRequest) -> AlterReassignmentsResponse: ...

    async def list_reassignments(self, request: ListReassignmentsRequest) -> ListReassignmentsResponse: ...

    async def check_broker_state(self, broker_id: BrokerId, state: str) -> None:
        """Whether the broker may be given this `broker.state`. Raises ApiError, CoordinatorError."""
        ...

    async def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """The topic's own settings. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """The effective configuration of a topic with these settings on this node."""
        ...

    def log_dirs(self) -> Generator[None, None, list[LogDirDescription]]:
        """The directories of this node's logs and what is in them, in steps."""
        ...

    async def dial_kafka(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
        """A connection to another node's Kafka listener, authenticated as this node, and for how long (seconds, or inf).

        Raises OSError, ApiError.
        """
        ...

    async def run_blocking(self, function: Callable[[], object]) -> object:
        """Run a function that takes long in a thread. Raises what it raises; OSError."""
        ...

    async def scram_users(self, names: Sequence[str] | None) -> Mapping[str, Mapping[str, int]]:
        """User -> mechanism -> iterations, of these users (None: all) that have SCRAM credentials. Raises CoordinatorError."""
        ...

    async def alter_scram_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set a user's credentials (mechanism -> text as Kafka keeps it), delete where None. Raises CoordinatorError."""
        ...

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Move replicas of this node into directories (KIP-113); an answer for each, NONE when the move has begun.

        LOG_DIR_NOT_FOUND: no such directory here; KAFKA_STORAGE_ERROR: it is offline; REPLICA_NOT_AVAILABLE: there is
        no such replica here.
        """
        ...

    async def serve_extension(self, message: Message) -> Message:
        """The response to a request of the extension API (`kafkalite.extension.apis`) that is allowed. Raises ApiError."""
        ...

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        """A block of fresh producer ids: (first, how many). Raises CoordinatorError."""
        ...
