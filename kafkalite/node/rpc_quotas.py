"""Quotas on the RPC listener: bytes produced and fetched by clients, counted around the two handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkalite.env.seams import Clock
from kafkalite.node.rpc_guard import Outcome, then
from kafkalite.rpc.handling import SILENCE, Handler, Reply, RpcRequest
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.data import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from kafkalite.security.quotas import Kind, Quotas


class RpcQuotas:
    """Wraps handlers. While no quota is set a request costs one look at `quotas.is_active`."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def limited(self, handlers: Mapping[type[Message], Handler]) -> dict[type[Message], Handler]:
        return {
            **handlers,
            ProduceRequest: self._produce(handlers[ProduceRequest]),
            FetchRequest: self._fetch(handlers[FetchRequest]),
        }

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _produce(self, handler: Handler) -> Handler:
        quotas = self._quotas

        def handle(request: RpcRequest) -> Outcome:
            if not quotas.is_active:
                return handler(request)
            peer = request.peer
            wait_ms = quotas.count(Kind.PRODUCE, peer.principal.name, peer.client_id, len(request.body), self._now_ms())
            outcome = handler(request)
            if not wait_ms:
                return outcome
            quotas.record_throttled(Kind.PRODUCE, wait_ms)

            def reported(reply: Reply) -> Reply:
                message = reply.message
                if isinstance(message, ProduceResponse):
                    message = replace(message, throttle_ms=wait_ms)
                return Reply(message, reply.body, wait_ms)

            return Reply(SILENCE, throttle_ms=wait_ms) if outcome is None else then(outcome, reported)

        return handle

    def _fetch(self, handler: Handler) -> Handler:
        quotas = self._quotas

        def handle(request: RpcRequest) -> Outcome:
            if not quotas.is_active:
                return handler(request)
            user, client_id = request.peer.principal.name, request.peer.client_id
            message = request.message
            assert isinstance(message, FetchRequest)
            most = quotas.most_at_once(Kind.FETCH, user, client_id)
            if most is not None and most < message.max_bytes:
                request = RpcRequest(replace(message, max_bytes=most), request.body, request.peer)

            def reported(reply: Reply) -> Reply:
                size = sum(map(len, reply.body))
                answer = reply.message
                if not size or not isinstance(answer, FetchResponse):
                    return reply
                wait_ms = quotas.count(Kind.FETCH, user, client_id, size, self._now_ms())
                if not wait_ms:
                    return reply
                quotas.record_throttled(Kind.FETCH, wait_ms)
                if most is None or size > most:
                    # One batch that is more than the quota of all windows: given, or it would never be.
                    return Reply(replace(answer, throttle_ms=wait_ms), reply.body, wait_ms)
                # Nothing now, the same again after the wait (KIP-219): so nothing was used up either.
                quotas.take_back(Kind.FETCH, user, client_id, size, self._now_ms())
                empty = tuple(replace(part, records_size=0, aborted=()) for part in answer.partitions)
                return Reply(FetchResponse(empty, wait_ms), (), wait_ms)

            return then(handler(request), reported)

        return handle
