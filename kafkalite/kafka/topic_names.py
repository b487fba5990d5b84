"""Topics of requests: by their ids (KIP-516), and what is known of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from kafkalite.coordinators.services import Services
from kafkalite.partition_values import TopicMetadata
from kafkalite.protocol import topic_ids

#: Topics per step.
_STEP = 100


def name_topics(services: Services, topics: Iterable[Any]) -> None:
    """Put the name of each topic into the request; the empty name, which no topic has, for an id that nobody knows.

    Handlers then work with names in every version, and say UNKNOWN_TOPIC_ID of the empty one.
    """
    for topic in topics:
        topic.name = services.topic_name(topic_ids.from_wire(topic.topic_id)) or ""


def naming(services: Services, topics: Sequence[Any]) -> Generator[None, None, None]:
    """As `name_topics`, in steps: a request may name 12,000."""
    for start in range(0, len(topics), _STEP):
        if start:
            yield
        name_topics(services, topics[start : start + _STEP])


def described(services: Services, names: Sequence[str]) -> Generator[None, None, dict[str, TopicMetadata]]:
    """What the node knows of these topics, in steps."""
    found: dict[str, TopicMetadata] = {}
    for start in range(0, len(names), _STEP):
        if start:
            yield
        known = services.metadata(names[start : start + _STEP])
        found |= {topic.topic: topic for topic in known.topics}
    return found
