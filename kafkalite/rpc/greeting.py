"""Whether to talk to the peer that says hello."""

from __future__ import annotations

from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.messages.base import MIN_PROTOCOL_VERSION, PROTOCOL_VERSION
from kafkalite.rpc.messages.connection import HelloRequest

#: How nodes before 0.1.0 named the connections on which they said no id.
_OLDER_NODES = frozenset({"controller-watch", "draining"})


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of this node for its hello. An empty cluster id: not known yet, every hello is deferred."""

    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch


def check_peer(hello: HelloRequest, own: Identity) -> tuple[ErrorCode, str]:
    """NONE, or why not."""
    if hello.max_version < MIN_PROTOCOL_VERSION or hello.min_version > PROTOCOL_VERSION:
        spoken = f"{MIN_PROTOCOL_VERSION}..{PROTOCOL_VERSION}"
        return ErrorCode.UNSUPPORTED_VERSION, f"versions {hello.min_version}..{hello.max_version}, here {spoken}"
    if hello.node_id < 0 and hello.client_id not in _OLDER_NODES:
        text = "this listener (rpc.port) is for nodes only; clients connect to the Kafka listener (kafka.port)"
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text
    if not own.cluster_id:
        return ErrorCode.BROKER_NOT_AVAILABLE, "starting"
    if hello.cluster_id != own.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID, f"cluster {hello.cluster_id!r}, here {own.cluster_id!r}"
    return ErrorCode.NONE, ""
