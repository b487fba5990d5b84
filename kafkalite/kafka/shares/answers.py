"""What ShareFetch and ShareAcknowledge have in common: the acknowledgements of a request, and errors of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.coordinators.shares.decisions.deliveries import Acknowledgement, AcknowledgeType, Part, add_parts
from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.stepped import STEP, Steps

if TYPE_CHECKING:  # a class of `wire` is made when it is first named
    from kafkalite.protocol import wire

    Batches = (
        Sequence[wire.ShareFetchRequest.AcknowledgementBatch]
        | Sequence[wire.ShareAcknowledgeRequest.AcknowledgementBatch]
    )


def acknowledged(batches: Batches, *, is_renewing: bool) -> Steps[list[Part]]:
    """What is said of which offsets, in steps. Raises ApiError INVALID_REQUEST if they overlap, go backwards, or have types that do not exist."""
    highest = AcknowledgeType.RENEW if is_renewing else AcknowledgeType.REJECT
    found: list[Part] = []
    after = elements = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        elements += len(types)
        if elements > STEP and found:
            yield
            elements = 0
        if first < after or last < first:
            raise api_error(ErrorCode.INVALID_REQUEST, f"acknowledged offsets {first} to {last} are out of order")
        if len(types) not in (1, last - first + 1):
            raise api_error(ErrorCode.INVALID_REQUEST, f"{len(types)} types for offsets {first} to {last}")
        if min(types) < AcknowledgeType.GAP or max(types) > highest:
            raise api_error(ErrorCode.INVALID_REQUEST, "an unknown type of acknowledgement")
        add_parts(found, Acknowledgement(first, last, types))
        after = last + 1
    return found
