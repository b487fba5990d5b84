"""What the server hands to the handler of a request, and what the handler hands back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, Buffer
from kafkalite.rpc.messages.base import Message
from kafkalite.security.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Peer:
    """The node at the other end. `connection` grows with every connection that this node accepts."""

    node_id: BrokerId
    broker_epoch: BrokerEpoch
    client_id: str
    address: str
    principal: Principal = ANONYMOUS
    connection: int = 0

    @property
    def client_host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0]


@dataclass(slots=True)
class RpcRequest:
    """One request. `body` is valid until the response is given; copy it to keep it longer."""

    message: Message
    body: memoryview
    peer: Peer


@dataclass(slots=True)
class Reply:
    """One answer. The buffers of `body` must not change until they are written."""

    message: Message
    body: Sequence[Buffer] = ()


class LateReply:
    """A reply that its handler gives later, from the event loop, with one call and no task or future in between.

    It forgets the reply and the callback as soon as they have met. Otherwise they would keep each other alive until the
    collector of cycles runs, and the buffers of a reply are megabytes.
    """

    __slots__ = ("_is_given", "_on_given", "_reply")

    def __init__(self) -> None:
        self._reply: Reply | None = None
        self._is_given = False
        self._on_given: Callable[[Reply], None] | None = None

    def give(self, reply: Reply) -> None:
        """Once."""
        assert not self._is_given, "a request was answered twice"
        self._is_given = True
        on_given, self._on_given = self._on_given, None
        if on_given is None:
            self._reply = reply
        else:
            on_given(reply)

    def then(self, on_given: Callable[[Reply], None]) -> Reply | None:
        """The reply, if it is given already; otherwise None, and `on_given` is called with it. Once."""
        if self._is_given:
            reply, self._reply = self._reply, None
            return reply
        self._on_given = on_given
        return None


#: Called in arrival order; None is no answer. A future may be cancelled when its connection is gone (check
#: `done()` before setting it); a coroutine runs to its end, its answer is dropped then.
Handler = Callable[[RpcRequest], Reply | LateReply | Awaitable[Reply | None] | None]
