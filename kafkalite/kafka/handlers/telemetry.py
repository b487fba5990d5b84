"""GetTelemetrySubscriptions, PushTelemetry (KIP-714): translation; see `kafkalite.kafka.client_metrics`."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.client_instances import InstanceKey, MetricsClient
from kafkalite.kafka.client_metrics import MAX_CONTENT_BYTES, MAX_POINTS, MAX_PUSH_BYTES, ClientMetrics
from kafkalite.kafka.request import Handler, Request
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.record.compression import Codec
from kafkalite.record.inflating import pieces
from kafkalite.security.fair_room import user_of
from kafkalite.telemetry.otlp import Point, read_points

#: In the order in which clients should choose.
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
#: All metrics. An empty prefix means the same; some clients know only Kafka's word.
_ALL = "*"
#: Ids that mean something to Kafka: none, and the two of its metadata topic.
_RESERVED = frozenset({ZERO_UUID, (1).to_bytes(16)})


class TelemetryHandlers:
    def __init__(self, services: Services, metrics: ClientMetrics) -> None:
        self._services = services
        self._metrics = metrics

    def table(self) -> dict[str, Handler]:
        return {"GetTelemetrySubscriptions": self.subscriptions, "PushTelemetry": self.push}

    def subscriptions(
        self, request: Request, message: wire.GetTelemetrySubscriptionsRequest
    ) -> wire.GetTelemetrySubscriptionsResponse:
        instance_id = message.client_instance_id
        while instance_id in _RESERVED:  # a new client
            instance_id = UUID(bytes=self._services.entropy(16), version=4).bytes
        found = self._metrics.asked(_key(request, instance_id), _client(request, instance_id))
        return wire.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=found.subscription_id,
            accepted_compression_types=list(_CODECS),
            push_interval_ms=found.interval_ms,
            telemetry_max_bytes=MAX_PUSH_BYTES,
            delta_temporality=True,
            requested_metrics=[_ALL] if found.metrics == ("",) else found.metrics,
        )

    async def push(self, request: Request, message: wire.PushTelemetryRequest) -> wire.PushTelemetryResponse:
        instance_id = message.client_instance_id
        if instance_id in _RESERVED:
            raise api_error(ErrorCode.INVALID_REQUEST, "a push without the id of the client's instance")
        key, client = _key(request, instance_id), _client(request, instance_id)
        data = message.metrics
        is_readable = not message.compression_type or message.compression_type in _CODECS
        is_wanted = self._metrics.check_push(
            key, client, message.subscription_id, len(data), is_last=message.terminating, is_readable=is_readable
        )
        if data and is_wanted:
            work = partial(_read, message.compression_type, data)
            points, seconds = await request.connection.listener.executor.run(request.connection.owner, work)
            if request.throttle is not None:
                request.throttle.work_s += seconds
            self._metrics.took(key, points)
        return wire.PushTelemetryResponse()


def _read(codec: int, data: bytes) -> list[Point]:
    """Runs off the loop. Raises ApiError INVALID_RECORD, as Kafka for a payload that cannot be read."""
    try:
        return read_points(b"".join(pieces(codec, data, limit_bytes=MAX_CONTENT_BYTES)), MAX_POINTS)
    except (ValueError, ApiError) as error:
        raise api_error(ErrorCode.INVALID_RECORD, f"the metrics cannot be read: {error}") from None


def _key(request: Request, instance_id: bytes) -> InstanceKey:
    return InstanceKey(user_of(request.principal, request.client_host), instance_id)


def _client(request: Request, instance_id: bytes) -> MetricsClient:
    connection = request.connection
    name, version = connection.software
    port = connection.peer.rpartition(":")[2]
    return MetricsClient(
        topic_ids.from_wire(instance_id), request.client_id[:200], name, version, request.client_host, port
    )
