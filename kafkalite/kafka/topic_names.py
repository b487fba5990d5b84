"""Topics of requests that name them by id (KIP-516)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalite.coordinators.services import Services
from kafkalite.protocol import topic_ids


def name_topics(services: Services, topics: Iterable[Any]) -> None:
    """Put the name of each topic into the request; the empty name, which no topic has, for an id that nobody knows.

    Handlers then work with names in every version, and say UNKNOWN_TOPIC_ID of the empty one.
    """
    for topic in topics:
        topic.name = services.topic_name(topic_ids.from_wire(topic.topic_id)) or ""
