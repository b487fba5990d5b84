"""A user's request of Kafka's protocol, from the node that the user has asked to the node that answers (as KIP-590's envelope)."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind


@kind(144)
@dataclass(frozen=True, slots=True)
class ForwardRequest(Message):
    """A client's request, to be answered as if the user had sent it to the receiver's Kafka listener: with the user's rights and
    quotas.

    `principal` (KIND:NAME) and `host`: the user, as the sending node has authenticated it.
    The frame's body has header and body of the request, without its length.
    """

    principal: str
    host: str


@kind(145)
@dataclass(frozen=True, slots=True)
class ForwardResponse(Message):
    """The frame's body has the response, without its length."""
