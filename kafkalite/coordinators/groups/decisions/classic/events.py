"""What the group state machine takes and gives: requests to join, answers to those who wait, requests to store. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass

#: Comes with a request that waits and goes with its answer; means nothing to the state machine.
Token = object


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """To a JoinGroup. `members` is for the leader only: (member id, instance id, metadata)."""

    token: Token
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """To a SyncGroup."""

    token: Token
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The fields of a static member that replace the old ones: all but its instance id and its assignment."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class StaticReplacement:
    """A static member that came back under `member_id`; `before`: its old fields. `token` waits until that is durable."""

    instance_id: str
    member_id: str
    before: MemberIdentity
    token: Token
    skip_assignment: bool


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Store the group as it is, with these assignments; then call `stored` with this and the outcome."""

    generation: int
    assignments: Mapping[str, bytes]
    replacement: StaticReplacement | None = None


Effect = JoinAnswer | SyncAnswer | StoreGroup


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a JoinGroup says; `new_member_id` is the id to give if it has none yet (the shell draws it)."""

    token: Token
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_member_id: bool = False
    supports_skip_assignment: bool = False
    #: Whose memory the member takes (`security.fair_room.user_of`).
    user: str = ""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """What a SyncGroup says. `protocol_type`, `protocol`: None before version 5. `assignments`: the leader's, by member id."""

    token: Token
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


def refuse_join(request: JoinRequest, error: ErrorCode, member_id: str | None = None) -> JoinAnswer:
    return JoinAnswer(request.token, error, request.member_id if member_id is None else member_id)
