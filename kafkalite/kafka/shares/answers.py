"""What ShareFetch and ShareAcknowledge have in common: the acknowledgements of a request, and errors of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.decisions.deliveries import Acknowledgement, AcknowledgeType
from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.request import Request
from kafkalite.kafka.shares.sessions import Listed
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH
from kafkalite.protocol import wire

#: A member's id is a UUID in text (Kafka's limit).
MAX_MEMBER_ID = 36
#: The client has to look for another leader.
MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Batches = (
    Sequence[wire.ShareFetchRequest.AcknowledgementBatch] | Sequence[wire.ShareAcknowledgeRequest.AcknowledgementBatch]
)


def acknowledgements(batches: Batches, *, is_renewing: bool) -> list[Acknowledgement]:
    """Raises ApiError INVALID_REQUEST if they overlap, go backwards, or have types that are none."""
    highest = AcknowledgeType.RENEW if is_renewing else AcknowledgeType.REJECT
    found: list[Acknowledgement] = []
    after = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first < after or last < first:
            raise api_error(ErrorCode.INVALID_REQUEST, f"acknowledged offsets {first} to {last} are out of order")
        if len(types) not in (1, last - first + 1):
            raise api_error(ErrorCode.INVALID_REQUEST, f"{len(types)} types for offsets {first} to {last}")
        if not all(AcknowledgeType.GAP <= kind <= highest for kind in types):
            raise api_error(ErrorCode.INVALID_REQUEST, "an unknown type of acknowledgement")
        found.append(Acknowledgement(first, last, types))
        after = last + 1
    return found


def leaders(
    services: Services, request: Request, moved: Sequence[Listed]
) -> tuple[dict[Listed, tuple[int, int]], dict[int, tuple[str, int, str | None]]]:
    """The leader and its epoch of each partition that this node does not lead, and the addresses of these leaders."""
    found: dict[Listed, tuple[int, int]] = {}
    addresses: dict[int, tuple[str, int, str | None]] = {}
    for topic_id, number in moved:
        name = services.topic_name(topic_id)
        if name is None:
            continue
        answer = services.metadata([name])
        for partition in answer.topics[0].partitions:
            if partition.partition == number:
                found[topic_id, number] = (partition.leader, partition.leader_epoch)
        leader, _ = found.get((topic_id, number), (NO_LEADER, NO_LEADER_EPOCH))
        for broker in answer.brokers:
            if broker.broker_id == leader and (endpoint := broker.kafka_on(request.listener_name)) is not None:
                addresses[leader] = (endpoint.host, endpoint.port, broker.rack)
    return found, addresses
