"""The topics that a description of a group names: all of them, or the group is not described."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.request import Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.model import TopicId
from kafkalite.protocol.topic_ids import to_wire
from kafkalite.security.access import Access
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import Need, Scope

DESCRIBE_TOPIC = Need(ResourceType.TOPIC, Operation.DESCRIBE, Scope.HIDE)


def check_visible(access: Access, request: Request, topics: Iterable[Iterable[str]]) -> Steps[None]:
    """In steps: 300 members may name three million topics. Raises ApiError TOPIC_AUTHORIZATION_FAILED: the user may not see all of these."""
    if access.authorizer is None:
        return
    is_visible = access.visible(request, DESCRIBE_TOPIC)
    number = 0
    for names in topics:
        for name in names:
            number += 1
            if not number % STEP:
                yield
            if not is_visible(name):
                text = "The group has described topic(s) that the client is not authorized to describe."
                raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)


def still_assigned(assignments: Iterable[Iterable[TopicId]], topics: GroupTopics) -> set[str]:
    """The names of the topics in them: members may have partitions of topics to which nobody subscribes any more."""
    ids = {topic_id for assignment in assignments for topic_id in assignment}
    return {name for topic_id in ids if (name := topics.topic_name(topic_id)) is not None}


def named(assignment: Assignment, topics: GroupTopics) -> Iterable[tuple[bytes, str, list[int]]]:
    """(id, name, partitions) of each topic, as descriptions of members have it."""
    for topic_id, partitions in sorted(assignment.items()):
        yield to_wire(topic_id), topics.topic_name(topic_id) or "<UNKNOWN>", sorted(partitions)
