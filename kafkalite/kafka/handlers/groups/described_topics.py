"""The topics that a description of a group names: all of them, or the group is not described."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.request import Request
from kafkalite.security.access import Access
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import Need, Scope

DESCRIBE_TOPIC = Need(ResourceType.TOPIC, Operation.DESCRIBE, Scope.HIDE)


def check_visible(access: Access, request: Request, topics: Iterable[str]) -> None:
    """Raises ApiError TOPIC_AUTHORIZATION_FAILED: the user may not see all of these topics."""
    is_visible = access.visible(request, DESCRIBE_TOPIC)
    if not all(is_visible(topic) for topic in topics):
        text = "The group has described topic(s) that the client is not authorized to describe."
        raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
