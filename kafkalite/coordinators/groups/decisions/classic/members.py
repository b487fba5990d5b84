"""Members and states of a classic group. Values only."""

from __future__ import annotations

from enum import Enum

from kafkalite.coordinators.groups.decisions.classic.events import MemberIdentity, Token
from kafkalite.lazy_dataclass import dataclass


class GroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ClassicGroupMember:
    """`join_token` / `sync_token` is set while the member's request waits."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    #: The member is dropped when nothing was heard of it until then.
    deadline_ms: int = 0
    #: See JoinRequest; empty: the member was read from the log.
    user: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it waits for its answer."""
        return self.join_token is not None or self.sync_token is not None

    def identity(self) -> MemberIdentity:
        return MemberIdentity(
            self.member_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
        )

    def take(self, identity: MemberIdentity) -> None:
        self.member_id = identity.member_id
        self.client_id, self.client_host = identity.client_id, identity.client_host
        self.session_timeout_ms = identity.session_timeout_ms
        self.rebalance_timeout_ms = identity.rebalance_timeout_ms
        self.protocols = identity.protocols

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")
