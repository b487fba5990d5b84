"""Metrics that clients push (KIP-714)."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.kafka import client_metrics
from kafkalite.kafka.client_instances import InstanceKey
from kafkalite.kafka.client_instances import MetricsClient as Pusher
from kafkalite.kafka.client_metrics import ClientMetrics, subscription_of
from kafkalite.protocol import wire
from kafkalite.telemetry.otlp import Point, read_points

from .conftest import Broker, FrameClient

_CLIENT = Pusher("id", "orders", "librdkafka", "2.16", "10.0.0.1", "5")
_ME = InstanceKey("User:me", bytes(range(16)))


def _instance(number: int) -> InstanceKey:
    return InstanceKey("User:me", number.to_bytes(16))


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _nested(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _attribute(key: str, text: str) -> bytes:
    return _nested(7, _nested(1, key.encode()), _nested(2, _nested(1, text.encode())))


def _metrics(*metrics: bytes) -> bytes:
    return _nested(1, _nested(2, *(_nested(2, metric) for metric in metrics)))


def gauge(name: str, value: float, *attributes: bytes) -> bytes:
    point = _varint(4 << 3 | 1) + struct.pack("<d", value)
    return _nested(1, name.encode()) + _nested(5, _nested(1, point, *attributes))


def delta(name: str, value: int) -> bytes:
    point = _varint(6 << 3 | 1) + struct.pack("<q", value)
    return _nested(1, name.encode()) + _nested(7, _nested(1, point), _varint(2 << 3) + _varint(1))


def test_numbers_are_read() -> None:
    data = _metrics(gauge("a.rate", 2.5, _attribute("topic", "t"), _attribute("node", "1")), delta("a.total", 7))
    assert read_points(data, 10) == [
        Point("a.rate", (("node", "1"), ("topic", "t")), 2.5, is_delta=False),
        Point("a.total", (), 7.0, is_delta=True),
    ]
    assert len(read_points(_metrics(*[delta("a", 1)] * 50), 10)) == 10


@pytest.mark.parametrize("place", [(), (1,), (1, 2, 2), (1, 2, 2, 5), (1, 2, 2, 7, 1), (1, 2, 2, 5, 1, 7, 2)])
def test_a_push_of_small_fields_costs_no_more_than_one_of_points(place: tuple[int, ...]) -> None:
    """Compressed, a million of them take 2 kB; a point has some forty fields at most."""
    full = _metrics(*[gauge("a", 1.0, *[_attribute("key", "text")] * 6)] * 2_000)
    assert len(read_points(full, 2_000)) == 2_000
    body = _varint(3 << 3) + _varint(1)
    data = body * 200_001
    for number in reversed(place):
        data = _nested(number, data)
    with pytest.raises(ValueError, match="more than 200,000 fields"):
        read_points(data, 2_000)


@pytest.mark.parametrize("field", [4, 6])
def test_a_number_of_another_size_is_none(field: int) -> None:
    metric = _nested(1, b"a") + _nested(5, _nested(1, _nested(field, b"abc")))
    assert read_points(_metrics(metric), 10) == []


def test_random_bytes_are_refused_or_read_and_nothing_else() -> None:
    source = random.Random(3)
    whole = _metrics(gauge("a.rate", 2.5, _attribute("topic", "t")), delta("a.total", 7))
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(source.randrange(1, 5)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            read_points(bytes(data[: source.randrange(len(data))]), 100)
        except ValueError:
            continue


def test_subscriptions_of_a_client_are_one() -> None:
    settings = {
        "all": {"metrics": "a.,b.", "interval.ms": "60000"},
        "mine": {"metrics": "c.", "interval.ms": "1000", "match": "client_id=ord.*,client_software_name=librdkafka"},
        "others": {"metrics": "*", "match": "client_id=pay.*"},
        "bad": {"metrics": "d.", "match": "client_id=("},
    }
    found = subscription_of(_CLIENT, settings)
    assert (found.interval_ms, found.metrics) == (1000, ("a.", "b.", "c."))
    assert subscription_of(_CLIENT._replace(client_id="pay"), settings).metrics == ("",)
    # One without metrics says when to ask again, as with Kafka.
    assert subscription_of(_CLIENT, {"none": {"metrics": "", "interval.ms": "5000"}}).interval_ms == 5_000
    assert subscription_of(_CLIENT, {}).metrics == () and subscription_of(_CLIENT, {}).interval_ms == 300_000
    assert found.subscription_id != subscription_of(_CLIENT, {"all": settings["all"]}).subscription_id


class _Rig:
    def __init__(self) -> None:
        self.now = 0
        self.settings: dict[str, dict[str, str]] = {"s": {"metrics": "a.", "interval.ms": "1000"}}
        self.metrics = ClientMetrics(lambda: self.settings, lambda: self.now)

    def push(self, *points: Point, **fields: Any) -> ErrorCode:
        subscription = subscription_of(_CLIENT, self.settings).subscription_id
        values = {"subscription_id": subscription, "size": 10, "is_last": False} | fields
        try:
            self.metrics.check_push(_ME, _CLIENT, values["subscription_id"], values["size"], is_last=values["is_last"])
        except ApiError as error:
            return error.code
        self.metrics.took(_ME, points)
        return ErrorCode.NONE

    def shown(self) -> dict[str, float]:
        return {name: value for _, name, _, value in self.metrics.shown()}


def test_pushes_add_up_or_replace() -> None:
    rig = _Rig()
    assert rig.metrics.asked(_ME, _CLIENT).interval_ms == 1000
    for value in (3.0, 4.0):
        assert not rig.push(Point("a.sum", (), value, is_delta=True), Point("a.now", (), value, is_delta=False))
        rig.now += 1000
    rig.push(Point("b.not.asked.for", (), 1.0, is_delta=False))
    assert rig.shown() == {"a.sum": 7.0, "a.now": 4.0}
    rig.now += 4000
    assert rig.shown() == {}  # it does not push any more


def test_what_is_refused() -> None:
    rig = _Rig()
    rig.metrics.asked(_ME, _CLIENT)
    assert rig.push() is ErrorCode.NONE
    assert rig.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with pytest.raises(ApiError):
        rig.metrics.asked(_ME, _CLIENT)
    rig.now += 1000
    assert rig.push(size=client_metrics.MAX_PUSH_BYTES + 1) is ErrorCode.TELEMETRY_TOO_LARGE
    assert rig.push(subscription_id=5) is ErrorCode.THROTTLING_QUOTA_EXCEEDED  # one that is refused counts, too
    rig.now += 1000
    assert rig.push(subscription_id=5) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    rig.settings["more"] = {"metrics": "c."}
    assert rig.push(subscription_id=5) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID  # at once: its subscriptions have changed
    rig.now += 1
    assert rig.metrics.asked(_ME, _CLIENT).metrics == ("a.", "c.")  # at once: its subscriptions have changed
    assert rig.push() is ErrorCode.NONE
    assert rig.push(is_last=True) is ErrorCode.NONE  # the last one may come early
    assert rig.push() is ErrorCode.INVALID_REQUEST
    assert rig.metrics.pushes == 3 and rig.metrics.refused == 6
    assert rig.push(is_last=True) is ErrorCode.NONE  # that one was not the last, as with Kafka 4.4.0
    assert rig.push(is_last=True) is ErrorCode.INVALID_REQUEST


def test_a_last_push_that_is_refused_was_the_last() -> None:
    rig = _Rig()
    rig.metrics.asked(_ME, _CLIENT)
    assert rig.push(subscription_id=5, is_last=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert rig.push() is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError):  # its last error is another one
        rig.metrics.asked(_ME, _CLIENT)


def test_instances_and_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "MAX_ALL_SERIES", 500)
    rig = _Rig()
    wanted = subscription_of(_CLIENT, rig.settings).subscription_id
    for number in range(client_metrics.MAX_INSTANCES + 50):
        rig.metrics.check_push(_instance(number), _CLIENT, wanted, 1, is_last=False)
        rig.metrics.took(_instance(number), [Point(f"a.{n}", (), 1.0, is_delta=False) for n in range(300)])
    assert len(list(rig.metrics.shown())) <= 500
    rig.metrics.check_push(_instance(10**30), _CLIENT, wanted, 1, is_last=False)
    for number in range(client_metrics.MAX_INSTANCES):
        rig.metrics.check_push(_instance(10**31 + number), _CLIENT, wanted, 1, is_last=False)
    rig.metrics.took(_instance(10**31), [Point(f"a.{n}", (), 1.0, is_delta=False) for n in range(300)])
    assert len(list(rig.metrics.shown())) == client_metrics.MAX_SERIES  # those that are gone have freed their room


def test_clients_that_were_killed_keep_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have not said that they end. A client that starts again has another id each time."""
    monkeypatch.setattr(client_metrics, "MAX_ALL_SERIES", 500)
    rig = _Rig()
    wanted = subscription_of(_CLIENT, rig.settings).subscription_id
    points = [Point(f"a.{n}", (), 1.0, is_delta=False) for n in range(100)]
    for number in range(20):
        instance = _instance(number)
        for _ in range(2):
            rig.metrics.check_push(instance, _CLIENT, wanted, 1, is_last=False)
            rig.metrics.took(instance, points)
            rig.now += 1000
        assert len(list(rig.metrics.shown())) == min(number + 1, 2) * 100, number
    rig.metrics.took(_instance(0), points)
    assert len(list(rig.metrics.shown())) == 200


def test_metrics_that_are_not_asked_for_any_more_are_not_shown() -> None:
    rig = _Rig()
    rig.settings["s"]["metrics"] = "a.,b."
    both = Point("a.now", (), 1.0, is_delta=False), Point("b.now", (), 2.0, is_delta=False)
    assert rig.push(*both) is ErrorCode.NONE
    assert rig.shown() == {"a.now": 1.0, "b.now": 2.0}
    rig.settings["s"]["metrics"] = "b."
    rig.now += 1000
    assert rig.push(*both) is ErrorCode.NONE
    assert rig.shown() == {"b.now": 2.0}


def test_what_a_client_says_of_itself_is_kept_short() -> None:
    """A client id of 32 kB in each of 5,000 lines made a page of the metrics of 160 MB."""
    rig = _Rig()
    boaster = Pusher("id", "c" * 32_000, "s" * 32_000, "v" * 32_000, "10.0.0.1", "5")
    wanted = subscription_of(boaster, rig.settings).subscription_id
    rig.metrics.check_push(_ME, boaster, wanted, 1, is_last=False)
    rig.metrics.took(_ME, [Point("a.sum", (), 1.0, is_delta=False)])
    [(client, *_)] = rig.metrics.shown()
    assert all(len(text) <= client_metrics.MAX_TEXT for text in client)


async def test_a_client_asks_and_pushes(broker: Broker) -> None:
    client: FrameClient = await broker.client()
    request = wire.IncrementalAlterConfigsRequest
    settings = [request.AlterableConfig("metrics", 0, "*"), request.AlterableConfig("interval.ms", 0, "100")]
    await client.ask(request([request.AlterConfigsResource(16, "s", settings)]), 1)
    await client.ask(wire.ApiVersionsRequest("librdkafka", "2.16"), 3)
    found = await client.ask(wire.GetTelemetrySubscriptionsRequest(), 0)
    assert found.error_code == 0 and found.client_instance_id != bytes(16)
    assert (list(found.requested_metrics), found.push_interval_ms, found.delta_temporality) == (["*"], 100, True)
    data = zlib.compress(_metrics(gauge("org.apache.kafka.x", 5.0)), wbits=31)
    push = wire.PushTelemetryRequest(
        found.client_instance_id, found.subscription_id, terminating=False, compression_type=1, metrics=data
    )
    assert (await client.ask(push, 0)).error_code == 0
    [(pusher, name, _, value)] = broker.side.client_metrics.shown()
    assert (pusher.client_id, pusher.client_software_name, name, value) == (
        "test",
        "librdkafka",
        "org.apache.kafka.x",
        5.0,
    )
    again = await client.ask(wire.GetTelemetrySubscriptionsRequest(), 0)
    bad = wire.PushTelemetryRequest(
        again.client_instance_id, again.subscription_id, terminating=False, compression_type=1, metrics=b"no gzip"
    )
    assert (await client.ask(bad, 0)).error_code == ErrorCode.INVALID_RECORD
    strange = wire.PushTelemetryRequest(
        again.client_instance_id, again.subscription_id, terminating=True, compression_type=9, metrics=b""
    )
    assert (await client.ask(strange, 0)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    strange.client_instance_id = bytes(range(16))  # that one has sent its last push
    strange.subscription_id += 1  # of several errors Kafka's
    assert (await client.ask(strange, 0)).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    nobody = wire.PushTelemetryRequest(
        bytes(16), again.subscription_id, terminating=False, compression_type=0, metrics=b""
    )
    assert (await client.ask(nobody, 0)).error_code == ErrorCode.INVALID_REQUEST


async def test_what_nobody_asks_for_is_not_read(broker: Broker) -> None:
    """By default nobody asks for metrics, and any client could have a thread read megabytes, under an id of its choice each time."""
    client: FrameClient = await broker.client()
    found = await client.ask(wire.GetTelemetrySubscriptionsRequest(), 0)
    assert list(found.requested_metrics) == []
    push = wire.PushTelemetryRequest(
        found.client_instance_id, found.subscription_id, terminating=False, compression_type=1, metrics=b"no gzip"
    )
    assert (await client.ask(push, 0)).error_code == 0
