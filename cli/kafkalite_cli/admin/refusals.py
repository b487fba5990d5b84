"""Raises errors in the responses of nodes; `main` prints them in one line."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.client.admin.refusals import refuse
from kafkalite.errors import ApiError, ErrorCode, api_error, error_code
from kafkalite.partition_values import TopicMetadata

_FORBIDDEN = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def raise_for_topic(topic: TopicMetadata) -> None:
    """Raise what metadata says of a topic, if it is an error."""
    code = error_code(topic.error)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise api_error(code, f"there is no topic {topic.topic!r}")
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise api_error(code, f"{topic.topic!r} is not a topic's name")
    refuse(topic.error, f"{topic.topic}: {code.name}")


def refuse_forbidden(answers: Iterable[object]) -> None:
    """Raise the first answer that says that we may not ask: that is no trouble of the node that said so."""
    for answer in answers:
        if isinstance(answer, ApiError) and answer.code in _FORBIDDEN:
            raise answer
