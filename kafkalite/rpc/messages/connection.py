"""What every connection needs: hello, authentication, errors, heartbeats."""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.messages.base import MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, Message, kind


@kind(1)
@dataclass(frozen=True, slots=True)
class ErrorResponse(Message):
    """Answers any request that could not be handled as a whole (unknown kind, no permission, a bug)."""

    error: int
    message: str = ""


@kind(2)
@dataclass(frozen=True, slots=True)
class HelloRequest(Message):
    """The first frame on a connection. Only nodes are accepted (`node_id` from 0; `client_id` says what the connection is for)."""

    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch
    min_version: int = MIN_PROTOCOL_VERSION
    max_version: int = PROTOCOL_VERSION
    client_id: str = ""


@kind(3)
@dataclass(frozen=True, slots=True)
class HelloResponse(Message):
    """`error` INCONSISTENT_CLUSTER_ID or UNSUPPORTED_VERSION: the server closes the connection after it."""

    error: int
    message: str
    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch
    version: int = PROTOCOL_VERSION


@kind(4)
@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest(Message):
    """The next message of a SASL exchange (RFC 4616, RFC 5802). It comes before the hello, if the listener requires SASL.

    `mechanism` must be the same throughout. If the session has an end, the client sends this again before that, between other requests
    and as the same user (KIP-368).
    """

    mechanism: str
    data: str = field(repr=False)


@kind(5)
@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse(Message):
    """The server's next message. After an `error` the server closes the connection; once `is_complete`, say hello.

    `session_lifetime_ms`: with `is_complete`, the client must authenticate again by then, or it is no longer served; 0: no end.
    """

    error: int
    message: str
    data: str = field(repr=False)
    is_complete: bool = False
    session_lifetime_ms: int = 0


@kind(64)
@dataclass(frozen=True, slots=True)
class HeartbeatRequest(Message):
    """A sign of life: the controller asks brokers for it, and brokers ask the controller."""


@kind(65)
@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Message):
    pass
