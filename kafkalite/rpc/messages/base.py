"""What all messages have in common: their base class, and the register of their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

#: Highest message version this software speaks; negotiated by Hello as the lower of the two sides.
PROTOCOL_VERSION = 1
MIN_PROTOCOL_VERSION = 1


class Message:
    """Base of all messages that stand alone in a frame."""

    __slots__ = ()
    kind: ClassVar[int]


T = TypeVar("T", bound=Message)
M = TypeVar("M", bound=type[Message])
by_kind: dict[int, type[Message]] = {}


def kind(number: int) -> Callable[[M], M]:
    """Registers a class of messages under its number."""

    def register(cls: M) -> M:
        owner = by_kind.setdefault(number, cls)
        assert owner is cls, f"{cls.__name__} reuses kind {number} of {owner.__name__}"
        cls.kind = number
        return cls

    return register


def response_kind(request: type[Message]) -> int:
    """The kind of the answer to a request."""
    return request.kind + 1


def of_kind(answer: object, cls: type[T]) -> T:
    """The response as the class that its request says it has; the reader of the frame has checked that."""
    assert isinstance(answer, cls)
    return answer
