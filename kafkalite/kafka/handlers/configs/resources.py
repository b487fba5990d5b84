"""What the requests for configurations name: resources, keys, brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.config import ALIASES
from kafkalite.config.keys import INT_MAX
from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.handlers.configs.entities import GROUP
from kafkalite.kafka.request import Request
from kafkalite.model import BrokerId
from kafkalite.protocol import wire

TOPIC, BROKER = 2, 4
#: Keys that are lists, of which IncrementalAlterConfigs can add and take away members.
LISTS = frozenset(
    {
        "cleanup.policy",
        "cordoned.log.dirs",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)

if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Resource = (
        wire.AlterConfigsRequest.AlterConfigsResource
        | wire.IncrementalAlterConfigsRequest.AlterConfigsResource
        | wire.DescribeConfigsRequest.DescribeConfigsResource
    )


def check_resource(request: Request, resource: _Resource) -> None:
    """Raises ApiError."""
    if resource.resource_type == TOPIC:
        if resource.resource_name in request.denied.topics:
            raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif resource.resource_type == GROUP:
        if resource.resource_name in request.denied.keys:
            raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif request.denied.cluster:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def canonical(settings: Mapping[str, str]) -> dict[str, str]:
    """Kafka's broker-wide spellings (log.retention.ms) as ours (retention.ms)."""
    return {ALIASES.get(key, key): value for key, value in settings.items()}


def broker_of(name: str) -> BrokerId | None:
    """None: all brokers. Raises ApiError."""
    if not name:
        return None
    if not (name.isascii() and name.isdigit()) or len(name) > 10 or int(name) > INT_MAX:
        raise api_error(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker id")
    return BrokerId(int(name))
