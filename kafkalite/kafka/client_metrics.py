"""Metrics that clients push (KIP-714): who is asked for which, what is taken, and what the metrics page shows of it.

An administrator subscribes to metrics with IncrementalAlterConfigs of a CLIENT_METRICS resource. A client asks for its
subscriptions, then pushes at their interval; without a subscription it asks again after five minutes and sends nothing.
Everything is bounded, because clients need not have authenticated: instances, series of one, bytes, points of one push. Source:
Kafka's ClientMetricsManager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import NamedTuple

from kafkalite.coordinators.patterns import full_match
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
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


class MetricsClient(NamedTuple):
    """What is known of who asks; the fields' names are those of the setting `match`."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class MetricsSubscription(NamedTuple):
    """`metrics`: prefixes of names; one empty prefix: all."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class _Instance:
    client: MetricsClient
    subscription: MetricsSubscription
    asked_ms: int = -1
    pushed_ms: int = -1
    is_over: bool = False
    may_ask: bool = True
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing is shown of it any more."""
        return now_ms - self.pushed_ms > _INTERVALS_SHOWN * self.subscription.interval_ms


class ClientMetrics:
    """
    Args:
        settings: all subscriptions, by name.
        now_ms: a monotonic clock, in ms.
    """

    def __init__(self, settings: Callable[[], Mapping[str, Mapping[str, str]]], now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        #: By id; the one that was heard of last is at the end.
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        self._series = 0
        self.pushes = 0
        self.refused = 0

    def asked(self, instance_id: bytes, client: MetricsClient) -> MetricsSubscription:
        """The client's subscriptions as one. Raises ApiError THROTTLING_QUOTA_EXCEEDED."""
        now = self._now_ms()
        known = self._known(instance_id, client)
        last = max(known.asked_ms, known.pushed_ms)
        wanted = subscription_of(client, self._settings())
        if (
            last >= 0
            and not known.may_ask
            and now - last < known.subscription.interval_ms
            and wanted == known.subscription
        ):
            raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked again before the push interval was over")
        self._subscribe(known, wanted)
        known.asked_ms, known.may_ask = now, False
        return wanted

    def check_push(
        self, instance_id: bytes, client: MetricsClient, subscription_id: int, size: int, *, is_last: bool
    ) -> None:
        """Raises ApiError if this push is not taken."""
        now = self._now_ms()
        known = self._known(instance_id, client)
        try:
            if known.is_over:
                raise api_error(ErrorCode.INVALID_REQUEST, "this client has said that it ends")
            is_early = known.pushed_ms >= known.asked_ms and now - known.pushed_ms < known.subscription.interval_ms
            if is_early and known.pushed_ms >= 0 and not is_last:
                raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushed before the push interval was over")
            current = subscription_of(client, self._settings())
            if subscription_id != current.subscription_id:
                known.may_ask = True
                raise api_error(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed")
            if size > MAX_PUSH_BYTES:
                raise api_error(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, at most {MAX_PUSH_BYTES}")
        except ApiError:
            self.refused += 1
            raise
        self._subscribe(known, current)
        known.pushed_ms, known.is_over = now, is_last
        if is_last:  # nothing of it is shown any more
            self._series -= len(known.series)
            known.series.clear()
        self.pushes += 1

    def took(self, instance_id: bytes, points: Iterable[Point]) -> None:
        """The numbers of a push that was taken: sums add up, gauges replace what was there."""
        known = self._instances.get(instance_id)
        if known is None or known.is_over:
            return
        prefixes = known.subscription.metrics
        if self._series >= MAX_ALL_SERIES:
            self._forget_silent()
        for point in points:
            if not point.name.startswith(prefixes):
                continue
            key = (point.name, point.attributes)
            if key not in known.series:
                if len(known.series) >= MAX_SERIES or self._series >= MAX_ALL_SERIES:
                    continue
                self._series += 1
            known.series[key] = point.value + (known.series.get(key, 0.0) if point.is_delta else 0.0)

    def shown(self) -> Iterable[tuple[MetricsClient, str, tuple[tuple[str, str], ...], float]]:
        """(client, metric, attributes, value) of those that push, for the metrics page."""
        now = self._now_ms()
        for known in list(self._instances.values()):
            if known.pushed_ms < 0 or known.is_over or known.is_silent(now):
                continue
            for (name, attributes), number in known.series.items():
                yield known.client, name, attributes, number

    def _subscribe(self, known: _Instance, wanted: MetricsSubscription) -> None:
        """Nothing is shown of metrics that are not asked for any more."""
        if wanted.metrics != known.subscription.metrics:
            left = {key: number for key, number in known.series.items() if key[0].startswith(wanted.metrics)}
            self._series -= len(known.series) - len(left)
            known.series = left
        known.subscription = wanted

    def _forget_silent(self) -> None:
        """Clients that were killed have not said that they end: their series make room for those of others."""
        now = self._now_ms()
        for known in self._instances.values():
            if known.is_silent(now):
                self._series -= len(known.series)
                known.series.clear()

    def _known(self, instance_id: bytes, client: MetricsClient) -> _Instance:
        known = self._instances.get(instance_id)
        if known is None:
            while len(self._instances) >= MAX_INSTANCES:
                _, gone = self._instances.popitem(last=False)
                self._series -= len(gone.series)
            subscription = subscription_of(client, self._settings())
            clipped = MetricsClient._make(each[:MAX_TEXT] for each in client)
            known = self._instances[instance_id] = _Instance(clipped, subscription)
        self._instances.move_to_end(instance_id)
        return known


def subscription_of(client: MetricsClient, settings: Mapping[str, Mapping[str, str]]) -> MetricsSubscription:
    """All subscriptions that match, as one: their prefixes together, the shortest interval. Its id changes with them."""
    prefixes: set[str] = set()
    intervals: list[int] = []
    for held in settings.values():
        if not _matches(str(value(CLIENT_METRICS_KEYS, held, "match")), client):
            continue
        metrics = [part.strip() for part in str(value(CLIENT_METRICS_KEYS, held, "metrics")).split(",") if part.strip()]
        if metrics:
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
