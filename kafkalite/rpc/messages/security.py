"""ACLs, quotas, and users."""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One entry of one pattern; numbers are Kafka's (ResourceType, PatternType, AclOperation, AclPermissionType)."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None and ANY (1) match whatever; pattern type MATCH (2) asks for the patterns that cover a resource `name`."""

    resource_type: int = 1
    name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


@kind(140)
@dataclass(frozen=True, slots=True)
class DescribeAclsRequest(Message):
    filter: AclFilter


@kind(141)
@dataclass(frozen=True, slots=True)
class DescribeAclsResponse(Message):
    error: int
    message: str = ""
    acls: tuple[AclBinding, ...] = ()


@kind(142)
@dataclass(frozen=True, slots=True)
class AlterAclsRequest(Message):
    """Add these, or remove what the filters match (first). Safe to repeat."""

    additions: tuple[AclBinding, ...] = ()
    removals: tuple[AclFilter, ...] = ()


@kind(143)
@dataclass(frozen=True, slots=True)
class AlterAclsResponse(Message):
    """`error` is the first there was; `removed` what the filters have removed."""

    error: int
    message: str = ""
    removed: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """A user, a client id, or a user's client. None: whatever; "": those who have no limit of their own."""

    user: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """`limits`: producer_byte_rate, consumer_byte_rate (bytes/s), request_percentage (of one core), each as text."""

    entity: QuotaEntity
    limits: dict[str, str]


@kind(144)
@dataclass(frozen=True, slots=True)
class DescribeQuotasRequest(Message):
    """Everything that is set."""


@kind(145)
@dataclass(frozen=True, slots=True)
class DescribeQuotasResponse(Message):
    error: int
    message: str = ""
    entries: tuple[QuotaEntry, ...] = ()


@kind(146)
@dataclass(frozen=True, slots=True)
class AlterQuotasRequest(Message):
    entity: QuotaEntity
    limits: dict[str, str]
    deletions: tuple[str, ...] = ()


@kind(147)
@dataclass(frozen=True, slots=True)
class AlterQuotasResponse(Message):
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user that has SCRAM credentials: mechanism -> iterations."""

    name: str
    mechanisms: dict[str, int]


@kind(160)
@dataclass(frozen=True, slots=True)
class DescribeUsersRequest(Message):
    """Users with SCRAM credentials. No names: all users."""

    names: tuple[str, ...] = ()


@kind(161)
@dataclass(frozen=True, slots=True)
class DescribeUsersResponse(Message):
    error: int
    message: str
    users: tuple[UserDescription, ...] = ()


@kind(162)
@dataclass(frozen=True, slots=True)
class AlterUserRequest(Message):
    """Set a user's credentials; "" deletes. A credential is Kafka's text (salt, keys, iterations), never a password."""

    name: str
    credentials: dict[str, str] = field(repr=False)


@kind(163)
@dataclass(frozen=True, slots=True)
class AlterUserResponse(Message):
    error: int
    message: str
