"""What the server hands to the handler of a request, and what the handler hands back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, Buffer
from kafkalite.rpc.messages.base import Message
from kafkalite.security.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Peer:
    """The node at the other end."""

    node_id: BrokerId
    broker_epoch: BrokerEpoch
    client_id: str
    address: str
    principal: Principal = ANONYMOUS

    @property
    def client_host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0]


@dataclass(slots=True)
class RpcRequest:
    """One request. `body` is valid until the answer is given; whoever keeps it longer copies it."""

    message: Message
    body: memoryview
    peer: Peer


@dataclass(slots=True)
class Reply:
    """One answer. The buffers of `body` must not change until they are written."""

    message: Message
    body: Sequence[Buffer] = ()


#: Called in arrival order; None is no answer. A future may be cancelled when its connection is gone (check
#: `done()` before setting it); a coroutine runs to its end, its answer is dropped then.
Handler = Callable[[RpcRequest], Reply | Awaitable[Reply | None] | None]
