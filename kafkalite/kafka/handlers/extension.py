"""Extension: kafkalite's own requests (`kafkalite.extension.apis`), checked against their rows and handed to the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions.extension import ExtensionHandler
from kafkalite.env.turns import Slices
from kafkalite.errors import ErrorCode, ProtocolError, api_error
from kafkalite.extension import MAX_BODY_BYTES, MAX_ELEMENTS
from kafkalite.extension.apis import APIS, ExtensionApi, with_refusals, without
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafkalite.kafka.mutations import may_change
from kafkalite.kafka.request import Handler, Request
from kafkalite.protocol import wire
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message
from kafkalite.security.acl import CLUSTER_NAME
from kafkalite.security.requirements import REFUSALS, Need, Scope


class ExtensionHandlers:
    """
    Args:
        coordinated: handlers of the requests that this node's coordinators serve; the node serves all others.
    """

    def __init__(self, services: Services, coordinated: Mapping[type[Message], ExtensionHandler]) -> None:
        self._services = services
        self._coordinated = coordinated

    def table(self) -> dict[str, Handler]:
        return {"Extension": self.serve}

    async def serve(self, request: Request, message: Any) -> Any:
        """Raises ApiError: the request is refused as a whole."""
        api = _row(message)
        is_about_cluster = api.names is None and any(need.scope is Scope.WHOLE for need in api.needs)
        if is_about_cluster:  # before it is decoded, which takes longer for those who may send it
            for need in api.needs:
                self._require(request, need, CLUSTER_NAME)
        asked = _decoded(api, message.body, None if is_about_cluster else MAX_ELEMENTS)
        answer = await self._checked(request, api, asked)
        return wire.ExtensionResponse(body=pack(answer))

    async def _checked(self, request: Request, api: ExtensionApi, asked: Message) -> Message:
        """Serve what the row's needs leave of it. Raises ApiError."""
        serve = self._coordinated.get(type(asked), self._services.serve_extension)
        access = self._services.rights.access
        if access.authorizer is None:
            self._pay(request, asked)
            return await serve(asked)
        denied: set[str] = set()
        slices = Slices(request.connection.listener.turns, request.connection.owner)
        names = dict.fromkeys(api.names(asked)) if api.names is not None else ()
        for need in api.needs:
            for name in names if need.scope is not Scope.HIDE else ():
                if slices.is_over:
                    await slices.next()
                if need.scope is Scope.WHOLE:
                    self._require(request, need, name)
                elif not access.meets(request, need, name):
                    denied.add(name)
        kept = without(asked, denied) if denied else asked
        answer = None
        if kept is not None:
            self._pay(request, kept)
            answer = await serve(kept)
        if denied:
            return with_refusals(api, answer, denied)
        assert answer is not None
        for need in api.needs:
            if need.scope is Scope.HIDE:
                assert api.hide is not None
                answer = api.hide(answer, access.visible(request, need))
        return answer

    def _pay(self, request: Request, asked: Any) -> None:
        """For what changes the cluster (KIP-599): it is made, and the client waits, as with old versions of Kafka's APIs."""
        if request.throttle is None:
            return
        if isinstance(asked, CreateTopicsRequest) and not asked.validate_only:
            default = self._services.config.num_partitions
            counts = [len(each.assignment or ()) or each.partitions for each in asked.topics]
            may_change(request, sum(default if count == -1 else count for count in counts))
        elif isinstance(asked, DeleteTopicsRequest):
            may_change(request, sum(len(each.partitions) for each in self._services.metadata(asked.topics).topics))

    def _require(self, request: Request, need: Need, name: str) -> None:
        """Raises ApiError."""
        if not self._services.rights.access.meets(request, need, name):
            raise api_error(REFUSALS[need.resource_type], f"not allowed: {need.operation.name} on {name[:200]}")


def _row(message: Any) -> ExtensionApi:
    """Raises ApiError UNSUPPORTED_VERSION, INVALID_REQUEST."""
    api = APIS.get(message.kind)
    if api is None:
        raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"unknown extension request {message.kind[:100]!r}")
    if len(message.body) > MAX_BODY_BYTES:
        raise api_error(
            ErrorCode.INVALID_REQUEST, f"{api.kind} of {len(message.body)} bytes; at most {MAX_BODY_BYTES} are read"
        )
    return api


def _decoded(api: ExtensionApi, body: bytes, most_elements: int | None) -> Message:
    """Raises ApiError INVALID_REQUEST."""
    try:
        return unpack_as(api.request, body, most_elements=most_elements)
    except (ProtocolError, ValueError) as error:
        raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
