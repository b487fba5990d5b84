"""Requests with too many elements for one turn of the loop: decoded, authorised, answered and encoded in slices.

The requests behind it on its connection wait, so that a client's requests are served in its order and its memory is bounded. A few
such requests are under way at a time, clients in turn. See `kafkalite.kafka.pieces`, `kafkalite.env.turns`.
"""

from __future__ import annotations

from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalite.coordinators.services import Services
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.heap import uncollected
from kafkalite.env.turns import Slices, Turns
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka import stepped
from kafkalite.kafka.apis import refusal
from kafkalite.kafka.pieces import (
    CUTS,
    MAX_NEW_PARTITIONS,
    Joined,
    most_uncut,
    pieces_of,
    released,
    repeated,
    wanted_partitions,
)
from kafkalite.kafka.refusals import refusing
from kafkalite.protocol.codec import decoding
from kafkalite.protocol.errors import TooManyAtOnce, WireError

if TYPE_CHECKING:
    from kafkalite.kafka.guard import Guard
    from kafkalite.kafka.request import Request


class Checked(NamedTuple):
    """What the guard has said of a request: the answer that refuses it, or None."""

    refusal: Any


class RequestHost(Protocol):
    """What the listener lends. `large`, `listings`: turns of such requests, and of those that only list what they are about."""

    turns: Turns
    large: FairExecutor
    listings: FairExecutor
    services: Services

    def start_part(self, part: Request, message: Any) -> Any:
        """A piece: its answer, or a coroutine or steps that return it."""
        ...

    guard: Guard | None

    def handle(self, request: Request, message: Any, checked: Checked | None = None) -> None:
        """Start it as a whole. `checked`: what the guard has said of it."""
        ...

    async def finish_part(self, part: Request, message: Any, work: CoroutineType[Any, Any, Any]) -> Any:
        """What the coroutine returns."""
        ...


async def serve(listener: RequestHost, request: Request, body: bytes) -> None:
    """Answer it. `body`: the message's bytes."""
    connection, api = request.connection, request.api
    assert api is not None
    slices = Slices(listener.turns, connection.owner)
    is_served = False
    if request.throttle is not None and (wait_ms := request.throttle.started()):
        connection.mute(wait_ms)
    try:
        if api.name not in CUTS:
            is_served = await _serve_whole(listener, request, body, slices)
        elif api.many is not None and request.version in api.served_versions:
            async with listener.listings.turn(connection.owner), uncollected():
                connection.end_if_gone()
                if connection.is_closed:
                    return
                message = await slices.run(decoding(api.name + "Request", request.version, memoryview(body)))
                await slices.run(api.many(request, message))
                is_served = True
                _count(request, slices)
                await slices.run(released(message))
        else:
            async with listener.large.turn(connection.owner), uncollected():
                connection.end_if_gone()
                if connection.is_closed:
                    return
                message = await slices.run(decoding(api.name + "Request", request.version, memoryview(body)))
                answer = await _answer(listener, request, message, slices)
                await _respond(request, message, answer, slices)
    except WireError as error:
        connection.refuse("request.malformed", str(error))
    finally:
        if not request.is_answered and not is_served:
            # Refused, or a bug, or the node stops: the client must not wait for ever.
            connection.abort()
        connection.out.hold(-len(body))
        connection.release_requests()


async def _respond(request: Request, message: Any, answer: Any, slices: Slices) -> None:
    """Send the response, unless the client has gone, and let go of both in steps."""
    await slices.run(released(message))
    if request.connection.is_closed:
        return
    _count(request, slices)
    if request.throttle is not None:
        request.throttle.settle(answer)
    await slices.run(request.responding(answer))
    await slices.run(released(answer))


def _count(request: Request, slices: Slices) -> None:
    """What it has cost so far."""
    slices.end()
    if request.throttle is not None:
        request.throttle.work_s += slices.spent


async def _serve_whole(listener: RequestHost, request: Request, body: bytes, slices: Slices) -> bool:
    """Its elements depend on each other: only decoding is done in slices. Whether it was handed to its handler. Raises WireError."""
    assert request.api is not None
    name = request.api.name
    try:
        message = await slices.run(decoding(name + "Request", request.version, memoryview(body), most_uncut(name)))
    except TooManyAtOnce:
        await _refuse(listener, request, body, slices)
        return False
    checked = None
    if listener.guard is not None and request.version in request.api.served_versions:
        checked = Checked(await slices.run(listener.guard.checking(request, message)))
    _count(request, slices)
    if request.throttle is not None:
        request.throttle.settle(None)  # what follows is counted by `handle`
    await slices.next()
    if request.connection.is_closed:
        return False
    listener.handle(request, message, checked)
    return True


async def _refuse(listener: RequestHost, request: Request, body: bytes, slices: Slices) -> None:
    """Say that it has too many elements: a client whose connection is closed repeats it for ever. Raises WireError: even for that."""
    connection, api = request.connection, request.api
    assert api is not None
    async with listener.large.turn(connection.owner), uncollected():
        connection.end_if_gone()
        if connection.is_closed:
            return
        message = await slices.run(decoding(api.name + "Request", request.version, memoryview(body)))
        if getattr(message, "acks", None) == 0:
            raise TooManyAtOnce("the request has too many elements, and expects no answer")
        code, text = ErrorCode.INVALID_REQUEST, f"the request has more than {most_uncut(api.name):,} elements"
        if request.version not in api.served_versions:
            code, text = ErrorCode.UNSUPPORTED_VERSION, ""
        answer = await slices.run(refusing(api.name, message, request.version, code, text))
        await _respond(request, message, answer, slices)


async def _answer(listener: RequestHost, request: Request, message: Any, slices: Slices) -> Any:
    api = request.api
    assert api is not None
    refused: ApiError | None = None
    if request.version not in api.served_versions:
        refused = api_error(ErrorCode.UNSUPPORTED_VERSION, "")
    elif await slices.run(repeated(api.name, message)):
        refused = api_error(ErrorCode.INVALID_REQUEST, "something is named twice in a large request")
    elif api.name == "CreateTopics":
        wanted = await slices.run(wanted_partitions(message, listener.services.config.num_partitions))
        if wanted > MAX_NEW_PARTITIONS:
            refused = api_error(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    joined = Joined(api.name)
    timeout_ms = getattr(message, "timeout_ms", None)
    for piece in pieces_of(api.name, message):
        if slices.is_over:
            await slices.next()
        if request.connection.is_closed:
            return None
        part = request.part()
        if refused is not None:
            joined.add(refusal(api, piece, request.version, refused.code, str(refused)))
            continue
        if timeout_ms is not None:  # what is left of the whole request's time
            piece.timeout_ms = max(0, timeout_ms - int((listener.turns.monotonic() - request.began) * 1000))
        result = listener.start_part(part, piece)
        if type(result) is CoroutineType:
            slices.end()
            result = await listener.finish_part(part, piece, result)
        elif type(result) is GeneratorType:
            result = await slices.run(stepped.refusing(part, piece, result))
        joined.add(result)
    return joined.response
