"""The possible results of a request: no I/O, so that the blocking client shares it."""

from __future__ import annotations

from kafkalite.errors import ErrorCode, KafkaliteError, ProtocolError, api_error, error_code
from kafkalite.rpc.codec import from_fields
from kafkalite.rpc.framing import Frame
from kafkalite.rpc.messages.base import Message, by_kind, response_kind
from kafkalite.rpc.messages.connection import ErrorResponse, HelloRequest, HelloResponse, SaslAuthenticateRequest

Answer = tuple[Message, memoryview]


class RpcError(KafkaliteError):
    """A request got no answer."""


class RpcNotSent(RpcError):
    """The request has not been executed: not one byte of it has left, or the peer ended our session before it came."""


class RpcRefused(RpcNotSent):
    """Nothing listens there: the process is gone, or has not begun to listen."""


class RpcDisconnected(RpcError):
    """The connection ended before the answer: whether the request was executed is not known."""


class RpcTimeout(RpcError):
    """No answer in time: whether the request was, or will be, executed is not known."""


def dialling_error(error: OSError) -> str:
    """Why there is no connection. asyncio's error has no text if the peer closed it during the TLS handshake."""
    closed = "the connection was closed during the TLS handshake: a listener without TLS?"
    return error.strerror or str(error) or closed


def answer_of(request: type[Message], frame: Frame) -> Answer:
    """The answer in a frame.

    Raises:
        ApiError: the peer refused the request as a whole. RpcNotSent: our session has ended.
        ProtocolError: it is no answer to such a request.
    """
    if frame.kind == ErrorResponse.kind:
        refusal = from_fields(ErrorResponse, frame.fields)
        assert isinstance(refusal, ErrorResponse)
        if refusal.error == ErrorCode.SASL_AUTHENTICATION_FAILED and request not in (
            HelloRequest,
            SaslAuthenticateRequest,
        ):
            # The peer did not process it, and closes: a new connection authenticates again, or gets the error.
            raise RpcNotSent(refusal.message)
        raise api_error(error_code(refusal.error), refusal.message)
    kind = response_kind(request)
    if frame.kind != kind:
        raise ProtocolError(f"{request.__name__} answered by a message of kind {frame.kind}")
    return from_fields(by_kind[kind], frame.fields), frame.body


def check_hello(answer: Message) -> HelloResponse:
    """The peer's hello, if it will talk to us. Raises ApiError."""
    assert isinstance(answer, HelloResponse)
    if answer.error:
        raise api_error(error_code(answer.error), answer.message)
    return answer
