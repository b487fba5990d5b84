"""A node that has changed something in ZooKeeper asks the others to read it before it answers the administrator (ADR 63)."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind

#: What can be read: the settings of topics, brokers, groups and features, with the quotas and SCRAM credentials of users; the
#: ACLs; the delegation tokens.
SETTINGS, ACLS, TOKENS = "settings", "acls", "tokens"


@kind(146)
@dataclass(frozen=True, slots=True)
class CatchUpRequest(Message):
    """Read what has changed in ZooKeeper before this request. The response comes when the node acts on it.

    `what`: settings, acls or tokens.
    """

    what: str


@kind(147)
@dataclass(frozen=True, slots=True)
class CatchUpResponse(Message):
    """The node has read the changes."""
