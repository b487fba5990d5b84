"""Extension: kafkalite's own requests (`kafkalite.extension.apis`), checked against their rows and handed to the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalite.coordinators.services import ExtensionHandler, Services
from kafkalite.errors import ErrorCode, ProtocolError, api_error
from kafkalite.extension import MAX_BODY_BYTES, MAX_ELEMENTS
from kafkalite.extension.apis import APIS, ExtensionApi, with_refusals, without
from kafkalite.extension.messages.open_transactions import AbortTransactionRequest, ListTransactionsRequest
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    NewTopic,
    RemovePartitionsRequest,
)
from kafkalite.extension.messages.transactions import BeginTxnGroupRequest, EndTxnGroupRequest
from kafkalite.kafka.mutations import EXCEEDED, may_change
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps, sliced
from kafkalite.protocol import wire
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message
from kafkalite.security.acl import CLUSTER_NAME
from kafkalite.security.requirements import REFUSALS, Need, Scope

#: Requests that this node's coordinators serve (TransactionExtension).
COORDINATED = frozenset({BeginTxnGroupRequest, EndTxnGroupRequest, ListTransactionsRequest, AbortTransactionRequest})


class ExtensionHandlers:
    """Serves the extension API: decodes a request, checks its row of rights, encodes the answer.

    Args:
        coordinated: handlers of the requests that this node's coordinators serve; the node serves all others. It is called with the
            first of these: most nodes have no coordinators.
    """

    def __init__(self, services: Services, coordinated: Callable[[], Mapping[type[Message], ExtensionHandler]]) -> None:
        self._services = services
        self._coordinated = coordinated

    def table(self) -> dict[str, Handler]:
        return {"Extension": self.serve}

    async def serve(self, request: Request, message: wire.ExtensionRequest) -> wire.ExtensionResponse:
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
        access = self._services.rights.access
        if access.authorizer is None:
            return await self._within_rate(request, api, asked)
        for need in api.needs:
            if need.scope is Scope.HIDE and api.mentions is not None:
                assert api.narrow is not None
                seen = await sliced(request, self._seen(request, need, dict.fromkeys(api.mentions(asked))))
                asked = api.narrow(asked, seen.__contains__)
        denied = (
            set()
            if api.names is None
            else await sliced(request, self._denied(request, api, dict.fromkeys(api.names(asked))))
        )
        kept = without(asked, denied) if denied else asked
        answer = None if kept is None else await self._within_rate(request, api, kept)
        if denied:
            return with_refusals(api, answer, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized")
        assert answer is not None
        for need in api.needs:
            if need.scope is Scope.HIDE:
                assert api.hide is not None
                seen = await sliced(request, self._seen(request, need, _names_in(api, answer)))
                answer = api.hide(answer, seen.__contains__)
        return answer

    def _denied(self, request: Request, api: ExtensionApi, names: Iterable[str]) -> Steps[set[str]]:
        """The names that are refused one by one. Raises ApiError: the request is refused as a whole."""
        denied: set[str] = set()
        for need in api.needs:
            for name in names if need.scope is not Scope.HIDE else ():
                yield
                if need.scope is Scope.WHOLE:
                    self._require(request, need, name)
                elif not self._services.rights.access.meets(request, need, name):
                    denied.add(name)
        return denied

    def _seen(self, request: Request, need: Need, names: Iterable[str]) -> Steps[set[str]]:
        """The names that the user may see."""
        is_visible = self._services.rights.access.visible(request, need)
        seen: set[str] = set()
        for name in names:
            yield
            if is_visible(name):
                seen.add(name)
        return seen

    async def _within_rate(self, request: Request, api: ExtensionApi, asked: Message) -> Message:
        """Serve what the quota of changes has room for, as of Kafka's requests (`kafka.mutations`). Raises ApiError."""
        is_coordinated = type(asked) in COORDINATED
        serve = self._coordinated()[type(asked)] if is_coordinated else self._services.serve_extension
        if request.throttle is None:
            return await serve(asked)
        if isinstance(asked, RemovePartitionsRequest):
            if not may_change(request, self._partitions(asked.topic) - asked.count):
                raise api_error(*EXCEEDED)
            return await serve(asked)
        costs: dict[str, int] = {}
        if isinstance(asked, CreateTopicsRequest) and not asked.validate_only:
            costs = {topic.topic: self._new_partitions(topic) for topic in asked.topics}
        elif isinstance(asked, DeleteTopicsRequest):
            costs = {name: self._partitions(name) for name in asked.topics}
        refused = frozenset(name for name, cost in costs.items() if not may_change(request, cost))
        kept = without(asked, refused) if refused else asked
        answer = None if kept is None else await serve(kept)
        if refused:
            return with_refusals(api, answer, refused, *EXCEEDED)
        assert answer is not None
        return answer

    def _partitions(self, topic: str) -> int:
        """How many it has; 0: there is no such topic."""
        found = self._services.metadata([topic]).topics[0]
        return 0 if found.error else len(found.partitions)

    def _new_partitions(self, topic: NewTopic) -> int:
        """What exists already, and is refused for that, costs nothing."""
        if self._partitions(topic.topic):
            return 0
        count = len(topic.assignment or ()) or topic.partitions
        return self._services.config.num_partitions if count == -1 else count

    def _require(self, request: Request, need: Need, name: str) -> None:
        """Raises ApiError."""
        if not self._services.rights.access.meets(request, need, name):
            raise api_error(REFUSALS[need.resource_type], f"not allowed: {need.operation.name} on {name[:200]}")


def _names_in(api: ExtensionApi, answer: Message) -> dict[str, None]:
    """The names that the answer lists, for a need that is left out."""
    assert api.hide is not None
    names: dict[str, None] = {}
    api.hide(answer, lambda name: names.setdefault(name) is not None)
    return names


def _row(message: wire.ExtensionRequest) -> ExtensionApi:
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
