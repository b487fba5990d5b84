"""A network whose outgoing connections are authenticated: TLS, then SASL, then the bytes of its user.

All RPC connections are opened through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.env.seams import ConnectionHandler, Listener, Network
from kafkalite.errors import AuthenticationFailed, ErrorCode, ProtocolError, api_error, error_code
from kafkalite.rpc.answers import answer_of
from kafkalite.rpc.framing import HELLO_FRAME_BYTES, Frame, RpcFrameReader, encode_frame
from kafkalite.rpc.logins import RpcLogin
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkalite.security.dialling import Dialling
from kafkalite.security.sasl import Entropy, SaslClient
from kafkalite.security.tls import ClientTls, ServerTls


class SaslExchange:
    """The client's side over RPC frames, without I/O: `request` is what to send, `answered` takes the answer.

    `lifetime_s`: when complete, how long the session lasts; 0: it has no end.
    """

    def __init__(self, mechanism: str, client: SaslClient) -> None:
        self._mechanism = mechanism
        self._client = client
        self.lifetime_s = 0.0
        self.request: SaslAuthenticateRequest | None = self._message(client.first())

    def _message(self, data: bytes) -> SaslAuthenticateRequest:
        return SaslAuthenticateRequest(self._mechanism, data.decode())

    def answered(self, answer: Message) -> None:
        """Afterwards `request` is the next one, or None: done. Raises ApiError, ProtocolError."""
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error:
            raise api_error(error_code(answer.error), answer.message)
        try:
            data = self._client.step(answer.data.encode())
        except AuthenticationFailed as error:
            raise api_error(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
        if self._client.is_complete != answer.is_complete:
            raise ProtocolError("the two sides disagree whether the authentication is complete")
        self.lifetime_s = max(0, answer.session_lifetime_ms) / 1000
        self.request = None if self._client.is_complete else self._message(data)


class AuthenticatedNetwork:
    """`network`, with `dialling` at the beginning of every connection that is dialled. Listening is as before."""

    def __init__(self, network: Network, dialling: Dialling, entropy: Entropy) -> None:
        self._network = network
        self._dialling = dialling
        self._entropy = entropy

    async def dial(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError, and ApiError when the peer does not believe us or we not the peer."""
        reader, writer, _ = await self.log_in(host, port, tls)
        return reader, writer

    async def log_in(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, RpcLogin | None]:
        """As `dial`, with the session if it has an end: the owner of the connection authenticates again (rpc.logins)."""
        reader, writer = await self._network.dial(host, port, tls or self._dialling.tls)
        credentials = self._dialling.credentials
        if credentials is None:
            return reader, writer, None

        def begin() -> SaslExchange:
            return SaslExchange(credentials.mechanism, credentials.client(self._entropy))

        try:
            exchange = begin()
            began = await _authenticate(reader, writer, exchange)
        except ProtocolError as error:
            writer.transport.abort()
            raise OSError(str(error)) from None
        except BaseException:
            writer.transport.abort()
            raise
        if not exchange.lifetime_s:
            return reader, writer, None
        return reader, writer, RpcLogin(begin, began, exchange.lifetime_s, self._entropy(1)[0] / 255)

    async def listen(self, host: str, port: int, handler: ConnectionHandler, tls: ServerTls | None = None) -> Listener:
        return await self._network.listen(host, port, handler, tls)

    async def listen_protocol(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
    ) -> Listener:
        return await self._network.listen_protocol(host, port, factory, tls)


async def _authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: SaslExchange) -> float:
    """When its last message was sent (the loop's seconds)."""
    began = 0.0
    frames = RpcFrameReader(max_frame_bytes=HELLO_FRAME_BYTES, max_header_bytes=HELLO_FRAME_BYTES)
    number = 0
    while exchange.request is not None:
        number += 1
        began = asyncio.get_running_loop().time()
        writer.writelines(encode_frame(number, exchange.request))
        answers: list[Frame] = []
        while not answers:
            data = await reader.read(HELLO_FRAME_BYTES)
            if not data:
                raise ConnectionResetError("the peer closed the connection during the authentication")
            answers = frames.feed(data)
        if len(answers) != 1 or frames.buffered:
            raise ProtocolError("more than one answer to one request")
        exchange.answered(answer_of(SaslAuthenticateRequest, answers[0])[0])
    return began
