"""Requests whose handler works in steps: small ones in one turn of the loop, large ones in slices (`kafkalite.env.turns`).

For APIs whose elements depend on each other, so that the request cannot be cut (`kafkalite.kafka.pieces`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.env.loop_times import COUNTED_S
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import Slices
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.apis import refusal

if TYPE_CHECKING:
    from kafkalite.kafka.request import Request

_T = TypeVar("_T")
#: What a handler works in; it returns the answer, or None if it answers through `request.respond` itself.
Steps = Generator[None, None, _T]
#: Elements per step.
STEP = 100


def answer(request: Request, message: Any, steps: Steps[Any]) -> None:
    """Answer with what the steps return. If one turn is not enough, the requests behind it on its connection wait."""
    connection = request.connection
    assert request.api is not None
    if request.api.is_read_only:
        _answer_read_only(request, refusing(request, message, request.while_read(steps)))
        return
    is_held = is_over = False

    def then(result: Any) -> None:
        nonlocal is_over
        is_over = True
        if result is not None and not connection.is_closed:
            request.respond(result)
        if is_held:
            connection.release_requests()

    connection.listener.turns.run(connection.owner, refusing(request, message, steps), then, _count(request))
    if not is_over:
        is_held = True
        connection.hold_requests()


def _answer_read_only(request: Request, steps: Steps[Any]) -> None:
    connection = request.connection
    try:
        next(steps)
    except StopIteration as stop:
        if stop.value is not None:
            request.respond(stop.value)
        return
    connection.hold_requests()
    assert request.api is not None
    supervisor = connection.listener.services.supervisor
    supervisor.spawn(f"kafka.{request.api.name}.steps", _answered_in_turn(request, steps), Policy.ISOLATED)


async def _answered_in_turn(request: Request, steps: Steps[Any]) -> None:
    """A few at a time, clients in turn: an answer may take megabytes until it is sent, and thousands of them may have been asked for."""
    connection, throttle = request.connection, request.throttle
    slices = Slices(connection.listener.turns, connection.owner)
    try:
        async with connection.listener.listings.turn(connection.owner):
            connection.end_if_gone()
            found = await slices.run(steps)
            slices.end()
            if throttle is not None:
                throttle.work_s += slices.spent
                throttle.settle(found)
            if found is not None:
                await slices.run(request.responding(found))
    finally:
        if not request.is_answered:
            connection.abort()
        connection.release_requests()


def run(request: Request, steps: Steps[None]) -> None:
    """Work for a request that waited for something. The requests behind it go on."""
    request.connection.listener.turns.run(request.connection.owner, steps, _nothing, _count(request))


async def sliced(request: Request, steps: Steps[_T]) -> _T:
    """What the steps of a coroutine return, which change nothing: in slices, whose time counts as the client's.

    Raises ApiError: the client is gone, and nobody hears of it.
    """
    connection = request.connection
    slices = Slices(connection.listener.turns, connection.owner)
    try:
        async with connection.listener.listings.turn(connection.owner):
            connection.end_if_gone()
            found = await slices.run(request.while_read(steps))
    finally:
        slices.end()
        if request.throttle is not None:
            request.throttle.work_s += slices.spent
    if found is None:
        raise api_error(ErrorCode.NETWORK_EXCEPTION)
    return found


async def in_slices(request: Request, steps: Steps[_T]) -> _T:
    """What the steps of a coroutine return: its first step now, the others in slices, whose time counts as the client's. Raises what they raise."""
    try:
        next(steps)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    slices = Slices(request.connection.listener.turns, request.connection.owner)
    try:
        return await slices.run(steps)
    finally:
        slices.end()
        if request.throttle is not None:
            request.throttle.work_s += slices.spent


def respond(request: Request, steps: Steps[Any]) -> None:
    """Answer a request that has been carried out with what the steps return. Those behind it need not wait."""
    connection = request.connection

    def then(result: Any) -> None:
        if not connection.is_closed:
            request.respond(result)

    connection.listener.turns.run(connection.owner, steps, then, _count(request))


def refusing(request: Request, message: Any, steps: Steps[Any]) -> Steps[Any]:
    """What the steps return, or the answer that refuses the request."""
    assert request.api is not None
    try:
        return (yield from steps)
    except ApiError as error:
        return refusal(request.api, message, request.version, error.code, str(error))
    except BaseException:  # a bug, or the node stops: this client must not wait for ever
        request.connection.abort()
        raise


def _count(request: Request) -> Any:
    """What is called with the seconds of each slice."""

    def spent(seconds: float) -> None:
        if request.throttle is not None:
            request.throttle.work_s += seconds
        if seconds > COUNTED_S and request.api is not None:
            cause, connection = request.api.name, request.connection
            connection.listener.loop_times.held(cause, seconds, request.client_id, str(request.principal))

    return spent


def _nothing(result: None) -> None:
    pass
