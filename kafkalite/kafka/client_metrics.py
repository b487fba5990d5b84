"""Metrics that clients push (KIP-714): who is asked for which, what is taken, and what the metrics page shows of it.

An administrator subscribes to metrics with IncrementalAlterConfigs of a CLIENT_METRICS resource. A client asks for its
subscriptions, then pushes at their interval; without a subscription it asks again after five minutes and sends nothing.
Everything is bounded, because clients need not have authenticated: instances, series of one, bytes, points of one push. What all share is
shared fairly (`kafkalite.kafka.client_instances`). Source: Kafka's ClientMetricsManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from kafkalite.coordinators.patterns import full_match
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.kafka.client_instances import (
    ClientInstances,
    Instance,
    InstanceKey,
    MetricsClient,
    MetricsSubscription,
    SeriesKey,
)
from kafkalite.record.checksum import crc32c
from kafkalite.resource_configs import CLIENT_METRICS_KEYS, parse_match, value
from kafkalite.telemetry.otlp import Point

#: Kafka's telemetry.max.bytes: of one push as it arrives. What it stands for is bounded by MAX_CONTENT_BYTES.
MAX_PUSH_BYTES = 1024 * 1024
MAX_CONTENT_BYTES = 4 * 1024 * 1024
MAX_POINTS = 2_000
MAX_INSTANCES = 1_000
MAX_SERIES = 200
#: Characters of what a client says of itself, as it is kept and shown.
MAX_TEXT = 120
#: Of all instances: a scrape of the metrics page holds the loop.
MAX_ALL_SERIES = 5_000
#: Intervals without a push after which nothing is shown of an instance.
_INTERVALS_SHOWN = 3
_ALL = "*"


class ClientMetrics:
    """What clients push, and what is shown of it.

    Args:
        settings: all subscriptions, by name.
        now_ms: a monotonic clock, in ms.
    """

    def __init__(self, settings: Callable[[], Mapping[str, Mapping[str, str]]], now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._instances = ClientInstances(MAX_INSTANCES, MAX_ALL_SERIES)
        self.pushes = 0
        self.refused = 0

    def asked(self, key: InstanceKey, client: MetricsClient) -> MetricsSubscription:
        """The client's subscriptions as one. Raises ApiError THROTTLING_QUOTA_EXCEEDED."""
        now = self._now_ms()
        known = self._known(key, client)
        last = max(known.asked_ms, known.pushed_ms)
        wanted = subscription_of(client, self._settings())
        if (
            last >= 0
            and not known.may_ask
            and now - last < known.subscription.interval_ms
            and wanted == known.subscription
        ):
            raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked again before the push interval was over")
        self._subscribe(key, known, wanted)
        known.asked_ms, known.may_ask = now, False
        return wanted

    def check_push(
        self,
        key: InstanceKey,
        client: MetricsClient,
        subscription_id: int,
        size: int,
        *,
        is_last: bool,
        is_readable: bool = True,
    ) -> bool:
        """Whether any of its numbers are asked for. Raises ApiError if this push is not taken. `is_readable`: its codec is one of ours."""
        now = self._now_ms()
        known = self._known(key, client)
        was_over, known.is_over = known.is_over, is_last  # also if it is refused, as in Kafka
        known.may_ask = False
        try:
            if was_over:
                raise api_error(ErrorCode.INVALID_REQUEST, "this client has said that it ends")
            current = subscription_of(client, self._settings())
            is_new = current != known.subscription  # the client hears of it at once
            self._subscribe(key, known, current)
            is_early = known.pushed_ms >= known.asked_ms and now - known.pushed_ms < current.interval_ms
            if is_early and known.pushed_ms >= 0 and not is_last and not is_new:
                raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushed before the push interval was over")
            known.pushed_ms = now  # also if it is refused: the next one has to wait, too
            if subscription_id != current.subscription_id:
                known.may_ask = True
                raise api_error(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed")
            if not is_readable:
                raise api_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if size > MAX_PUSH_BYTES:
                raise api_error(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, at most {MAX_PUSH_BYTES}")
        except ApiError:
            self.refused += 1
            raise
        if is_last:  # nothing of it is shown any more
            self._instances.keep(key, lambda series: False)
        self.pushes += 1
        return bool(known.subscription.metrics) and not is_last

    def took(self, key: InstanceKey, points: Iterable[Point]) -> None:
        """The numbers of a push that was taken: sums add up, gauges replace what was there."""
        known = self._instances.get(key)
        if known is None or known.is_over:
            return
        prefixes = known.subscription.metrics
        wanted = [point for point in points if point.name.startswith(prefixes)]
        new = {(point.name, point.attributes) for point in wanted} - known.series.keys()
        self._make_room(key, min(len(new), MAX_SERIES - len(known.series)))
        for point in wanted:
            series: SeriesKey = (point.name, point.attributes)
            if series not in known.series and len(known.series) >= MAX_SERIES:
                continue
            before = known.series.get(series, 0.0) if point.is_delta else 0.0
            self._instances.put(key, series, point.value + before)

    def shown(self) -> Iterable[tuple[MetricsClient, str, tuple[tuple[str, str], ...], float]]:
        """(client, metric, attributes, value) of those that push, for the metrics page."""
        now = self._now_ms()
        for known in self._instances:
            if known.pushed_ms < 0 or known.is_over or _is_silent(known, now):
                continue
            for (name, attributes), number in known.series.items():
                yield known.client, name, attributes, number

    def _subscribe(self, key: InstanceKey, known: Instance, wanted: MetricsSubscription) -> None:
        """Nothing is shown of metrics that are not asked for any more."""
        if wanted.metrics != known.subscription.metrics:
            self._instances.keep(key, lambda series: series[0].startswith(wanted.metrics))
        known.subscription = wanted

    def _make_room(self, key: InstanceKey, count: int) -> None:
        """Clients that were killed have not said that they end: their series make room for those of others, before others give any."""
        if count > self._instances.room:
            now = self._now_ms()
            self._instances.forget_all(lambda known: _is_silent(known, now))
            self._instances.make_room(key, count)

    def _known(self, key: InstanceKey, client: MetricsClient) -> Instance:
        def made() -> Instance:
            clipped = MetricsClient._make(each[:MAX_TEXT] for each in client)
            return Instance(clipped, subscription_of(client, self._settings()))

        return self._instances.heard(key, made)


def _is_silent(known: Instance, now_ms: int) -> bool:
    """Whether nothing is shown of it any more."""
    return now_ms - known.pushed_ms > _INTERVALS_SHOWN * known.subscription.interval_ms


def subscription_of(client: MetricsClient, settings: Mapping[str, Mapping[str, str]]) -> MetricsSubscription:
    """All subscriptions that match, as one: their prefixes together, the shortest interval. Its id changes with them."""
    prefixes: set[str] = set()
    intervals: list[int] = []
    for held in settings.values():
        if not _matches(str(value(CLIENT_METRICS_KEYS, held, "match")), client):
            continue
        metrics = [part.strip() for part in str(value(CLIENT_METRICS_KEYS, held, "metrics")).split(",") if part.strip()]
        prefixes.update("" if each == _ALL else each for each in metrics)
        intervals.append(int(value(CLIENT_METRICS_KEYS, held, "interval.ms")))
    metrics = [""] if "" in prefixes else sorted(prefixes)
    interval_ms = min(intervals, default=int(CLIENT_METRICS_KEYS["interval.ms"].default))
    digest = crc32c("\0".join([str(interval_ms), *metrics]).encode())
    return MetricsSubscription(digest - 2**32 if digest >= 2**31 else digest, interval_ms, tuple(metrics))


def _matches(text: str, client: MetricsClient) -> bool:
    try:
        return all(_matcher(pattern)(getattr(client, name)) for name, pattern in parse_match(text).items())
    except (ConfigError, ApiError):  # written by hand
        return False


@lru_cache(maxsize=1000)
def _matcher(pattern: str) -> Callable[[str], bool]:
    return full_match(pattern)
