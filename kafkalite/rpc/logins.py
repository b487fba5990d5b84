"""A client's side of a session that ends (KIP-368): when to log in again, and doing so between other requests.

Logging in again takes nothing from the requests under way. Where it comes too late (the process was stopped), requests wait
for it: the server takes a login even then, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kafkalite.errors import ApiError, ProtocolError
from kafkalite.rpc.messages.base import Message
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.rpc.answers import Answer

_log = get_logger(__name__)

#: The share of a session after which one logs in again; each connection somewhere between, so that not all come at once.
RENEWED_AFTER = (0.6, 0.8)
#: Timeout of a login; the connection is closed with it.
LOGIN_TIMEOUT_S = 30.0


class LoginExchange(Protocol):
    """The client's side of a login, without I/O. `lifetime_s`: when it is complete, how long the session lasts; 0: for ever."""

    lifetime_s: float

    @property
    def request(self) -> Message | None:
        """What to send next; None: it is complete."""

    def answered(self, answer: Message) -> None:
        """Takes the response. Raises ApiError, ProtocolError."""


class RpcLogin:
    """One connection's session.

    Args:
        begin: a new exchange as the same user.
        began: when the last message of the first one was sent; the server counts from a little later.
        lifetime_s: as the server said.
        share: from 0 to 1, drawn for this connection.
    """

    def __init__(self, begin: Callable[[], LoginExchange], began: float, lifetime_s: float, share: float) -> None:
        self.begin = begin
        self._began = began
        self._lifetime_s = lifetime_s
        low, high = RENEWED_AFTER
        self._renewed_after = low + (high - low) * share

    @property
    def renew_at(self) -> float:
        return self._began + self._lifetime_s * self._renewed_after

    def has_ended(self, now: float) -> bool:
        """Whether the server takes nothing but a login."""
        return now > self._began + self._lifetime_s

    def renewed(self, began: float, lifetime_s: float) -> None:
        """Another exchange is complete. 0: the session has no end any more."""
        self._began = began
        self._lifetime_s = lifetime_s or float("inf")


@runtime_checkable
class LoginNetwork(Protocol):
    """A network that logs in whenever it dials."""

    async def log_in(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, RpcLogin | None]:
        """As Network.dial; None: the session has no end."""
        ...


class Renewable(Protocol):
    """What `keep_logged_in` needs of a connection."""

    closed: bool

    def send_first(self, message: Message) -> asyncio.Future[Answer]:
        """Send it although other requests wait."""
        ...

    def resume(self) -> None:
        """What waits may be sent."""
        ...

    def abort(self, reason: str) -> None: ...


async def keep_logged_in(connection: Renewable, login: RpcLogin) -> None:
    """Until the connection ends. A connection whose session cannot be renewed is closed; the next one gets the error."""
    # Kept here, and not in RpcConnection: it is loaded only where SASL is used.
    from kafkalite.rpc.answers import RpcError

    loop = asyncio.get_running_loop()
    while not connection.closed:
        pause = login.renew_at - loop.time()
        if pause == float("inf"):
            return
        await asyncio.sleep(max(0.0, pause))
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                exchange = login.begin()
                began = loop.time()
                while exchange.request is not None:
                    began = loop.time()
                    exchange.answered((await connection.send_first(exchange.request))[0])
        except (ApiError, ProtocolError, RpcError, TimeoutError) as error:
            if not connection.closed:
                _log.warning("rpc.not_logged_in_again", reason=str(error) or "no answer")
                connection.abort(f"could not log in again: {str(error) or 'no answer'}")
            return
        login.renewed(began, exchange.lifetime_s)
        connection.resume()
