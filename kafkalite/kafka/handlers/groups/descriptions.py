"""What descriptions of groups of the newer protocols have in common: which group it is, and the topics that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.coordinators.groups.partition import GroupEntry
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
_Group = TypeVar("_Group")


def need_group(
    groups: GroupCoordinator, group_id: str, group_of: Callable[[GroupEntry], _Group | None], protocol: str
) -> _Group:
    """A group of this protocol. Raises ApiError GROUP_ID_NOT_FOUND: there is no group, or it is of another protocol."""
    entry = groups.describe(group_id)
    group = None if entry is None else group_of(entry)
    if group is None:
        what = "not found" if entry is None else f"is not a {protocol} group"
        raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group


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
