"""Client quotas as Kafka has them: who has which limit, rates over windows, and how long to wait. Pure.

Limits are set for users, client ids, and both, each with a default; the most specific one counts. A rate is what was
counted in the last windows divided by their time; beyond the limit a client waits until the rate, with nothing more
counted, would be at the limit again. What changes the cluster (KIP-599) is paid from a bucket that fills at the limit's rate; addresses have
a limit of new connections (KIP-612). Sources: Kafka 3.9's ClientQuotaManager, Rate, QuotaUtils, ControllerMutationQuotaManager and TokenBucket,
KIP-13, 55, 124, 219, 599, 612.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import StrEnum

from kafkalite.lazy_dataclass import dataclass

#: As a user or a client id in an entity: all that have no limit of their own.
DEFAULT = ""
#: Rates kept at the same time; the one that was used longest ago goes first.
MAX_SENSORS = 10_000
#: Time after which an unused rate is removed.
SENSOR_LIFE_MS = 3_600_000
_MAX_CHOICES = 20_000
#: Characters of a client id that distinguish its rate: the client chooses it, and it may have 32,767.
_MAX_CLIENT_ID = 256
MAX_THROTTLE_MS = 2**31 - 1


class Kind(StrEnum):
    """What is limited: bytes/s, bytes/s, per cent of the node's one event loop, partitions created or deleted per second."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


#: Of an address: new connections per second.
CONNECTION_RATE = "connection_creation_rate"
#: Limits that may be fractions.
_FRACTIONS = frozenset({str(Kind.REQUEST), str(Kind.MUTATION)})
#: How far a whole number may be off: clients compute with floating point. Source: Kafka's ClientQuotaControlManager.
_ROUNDING = 1e-6
_MAX_RATE = 2**31 - 1
#: A long. The float that is nearest to it, with which clients say "no limit", is one more.
_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """Whose limits: a user, a client id, a user's client, or an address. None: whatever; DEFAULT: those without their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __post_init__(self) -> None:
        is_client = self.user is not None or self.client_id is not None
        assert is_client != (self.ip is not None), "an entity needs a user or a client id, or it is an address"

    @property
    def keys(self) -> tuple[str, ...]:
        """The limits that it can have."""
        return (CONNECTION_RATE,) if self.ip is not None else tuple(map(str, Kind))


def parse_limit(key: str, text: str) -> float:
    """A limit as a znode holds it. Raises ValueError."""
    if key != CONNECTION_RATE:
        Kind(key)
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{key}: {text!r} is not positive")
    if key not in _FRACTIONS and not (value > 0.5 and abs(value - round(value)) <= _ROUNDING):
        raise ValueError(f"{key}: {text!r} is not a whole number")
    most = _MAX_RATE if key == CONNECTION_RATE else _MAX_BYTES
    if key not in _FRACTIONS and value > float(most):
        raise ValueError(f"{key}: {text!r} is more than {most}")
    return value


def limit_text(key: str, value: float) -> str:
    """A limit as Kafka writes it: whole numbers for rates of bytes and connections."""
    return str(value) if key in _FRACTIONS else str(min(round(value), _MAX_BYTES))


class Rate:
    """What was counted lately, per second."""

    __slots__ = ("_samples", "_window_ms", "_windows", "owed_until_ms", "used_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        #: When all that was counted is paid for by waiting; longer than what the windows remember.
        self.owed_until_ms = 0
        self._windows = windows
        self._window_ms = window_ms
        #: [when it began, what was counted], oldest first; at most `windows` of them.
        self._samples: deque[list[float]] = deque()
        self.used_ms = 0

    def add(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            self._forget(now_ms)
            samples.append([now_ms, 0.0])
            while len(samples) > self._windows:
                samples.popleft()
        samples[-1][1] += amount
        self.used_ms = now_ms

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._windows * self._window_ms:
            samples.popleft()

    def span_ms(self, now_ms: int) -> float:
        """The time over which the rate is taken: all windows but the one under way are taken as full."""
        elapsed = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._windows - 1 - elapsed // self._window_ms
        return max(self._window_ms, elapsed + max(0, missing) * self._window_ms)

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        return max(0.0, sum(sample[1] for sample in self._samples)) * 1000 / self.span_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait: X = (O - T) / T * W brings the observed rate O over W down to the limit T."""
        observed = self.per_second(now_ms)
        if observed <= limit:
            return 0
        return round(min(MAX_THROTTLE_MS, (observed - limit) / limit * self.span_ms(now_ms)))


class Bucket:
    """Permits that fill up at the limit's rate, from `burst_s` times the limit on; it may be in debt."""

    __slots__ = ("_burst_s", "permits", "used_ms")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self.permits = math.inf
        self.used_ms = 0

    def fill(self, limit: float, now_ms: int) -> None:
        most = self._burst_s * limit
        self.permits = min(most, self.permits + limit * max(0, now_ms - self.used_ms) / 1000)
        self.used_ms = now_ms

    def wait_ms(self, limit: float) -> int:
        """Until it is out of debt."""
        return round(min(MAX_THROTTLE_MS, max(0.0, -self.permits / limit * 1000)))


@dataclass(frozen=True, slots=True)
class _Choice:
    """The limit that counts for a (user, client id), and the name of the rate that it shares."""

    shared: tuple[str, str]
    limit: float


def _place(entity: Entity) -> tuple[str, str, bool, bool]:
    """Of a client, in the order in which they are listed."""
    return entity.user or "", entity.client_id or "", entity.user is None, entity.client_id is None


class Quotas:
    """The limits in force and the rates under them.

    Attributes:
        is_active: whether any limit is set. Nobody asks for anything else while it is False.
        throttled: by kind, how many answers made a client wait; `throttled_ms`: how long in all.
    """

    def __init__(self, windows: int = 11, window_s: int = 1, mutation_burst_s: float = 11.0) -> None:
        """`mutation_burst_s`: time whose permits for changes a client may use at once."""
        self._mutation_burst_s = mutation_burst_s
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        self._connection_rates: dict[str, float] = {}
        self._windows = windows
        self._window_ms = window_s * 1000
        self._limits: dict[Kind, dict[Entity, float]] = {kind: {} for kind in Kind}
        self._choices: dict[tuple[Kind, str, str], _Choice | None] = {}
        self._rates: OrderedDict[tuple[Kind, str, str], Rate] = OrderedDict()
        self.is_active = False
        self.limits_requests = False
        self.throttled: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self.throttled_ms: dict[Kind, int] = dict.fromkeys(Kind, 0)

    # --- limits ---

    def put(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace an entity's limits; keys that it cannot have are not ours."""
        if entity.ip is not None:
            self._connection_rates.pop(entity.ip, None)
            if (rate := limits.get(CONNECTION_RATE)) is not None:
                self._connection_rates[entity.ip] = rate
            return
        for kind, known in self._limits.items():
            value = limits.get(kind)
            if value is None:
                known.pop(entity, None)
            else:
                known[entity] = value
        self._choices.clear()
        for each in self._rates.values():
            each.owed_until_ms = 0  # computed from limits that may have changed
        self.is_active = any(self._limits.values())
        self.limits_requests = bool(self._limits[Kind.REQUEST])
        if not self.is_active:
            self._rates.clear()
            self._buckets.clear()

    def entities(self) -> dict[Entity, dict[str, float]]:
        """Everything that is set, in order."""
        found: dict[Entity, dict[str, float]] = {}
        for kind, known in self._limits.items():
            for entity, value in known.items():
                found.setdefault(entity, {})[str(kind)] = value
        ordered = sorted(found.items(), key=lambda item: _place(item[0]))
        addresses = [(Entity(ip=ip), {CONNECTION_RATE: rate}) for ip, rate in sorted(self._connection_rates.items())]
        return dict([*ordered, *addresses])

    def connection_rate(self, ip: str) -> float | None:
        """New connections per second that an address may have, in its one spelling; None: no limit is set."""
        rates = self._connection_rates
        return rates.get(ip, rates.get(DEFAULT)) if rates else None

    def limit(self, kind: Kind, user: str, client_id: str) -> float | None:
        """The limit that counts for somebody; None: none."""
        choice = self._choose(kind, user, client_id)
        return None if choice is None else choice.limit

    def _choose(self, kind: Kind, user: str, client_id: str) -> _Choice | None:
        question = (kind, user, client_id)
        if question in self._choices:
            return self._choices[question]
        if len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        known = self._limits[kind]
        found = None
        for entity, shared in _precedence(user, client_id):
            value = known.get(entity)
            if value is not None:
                found = _Choice(shared, value)
                break
        if len(client_id) <= _MAX_CLIENT_ID:
            self._choices[question] = found
        return found

    # --- rates ---

    def count(self, kind: Kind, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Add to the rate; returns how many ms the client has to wait."""
        choice = self._choose(kind, user, client_id)
        if choice is None:
            return 0
        rate = self._rate(kind, choice, now_ms)
        rate.add(amount, now_ms)
        wait_ms = rate.throttle_ms(choice.limit, now_ms)
        if kind is Kind.REQUEST:
            # Kafka: a client that took too much time waits one window at most.
            wait_ms = min(wait_ms, self._window_ms)
        rate.owed_until_ms = max(rate.owed_until_ms, now_ms + wait_ms)
        return wait_ms

    def owed_ms(self, kind: Kind, user: str, client_id: str, now_ms: int) -> int:
        """How long a new connection has to wait for what others have used under the same limit.

        Kafka's wait ends with the connection, so that a client which reconnects waits for nothing.
        """
        choice = self._choose(kind, user, client_id)
        if choice is None:
            return 0
        if kind is Kind.MUTATION:
            bucket = self._buckets.get(choice.shared)
            if bucket is None:
                return 0
            bucket.fill(choice.limit, now_ms)
            return bucket.wait_ms(choice.limit)
        rate = self._rates.get((kind, *choice.shared))
        return 0 if rate is None else min(MAX_THROTTLE_MS, max(0, rate.owed_until_ms - now_ms))

    def take_back(self, kind: Kind, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """What was counted was not given after all."""
        choice = self._choose(kind, user, client_id)
        if choice is not None:
            self._rate(kind, choice, now_ms).add(-amount, now_ms)

    def mutate(self, user: str, client_id: str, permits: float, now_ms: int, *, is_strict: bool) -> tuple[bool, int]:
        """Pay for a change of the cluster (KIP-599): whether it may be made, and how many ms the client has to wait.

        Strict: a client that is in debt gets nothing, and one that is not may get into debt. Otherwise all is allowed, and a client in debt waits.
        """
        choice = self._choose(Kind.MUTATION, user, client_id)
        if choice is None:
            return True, 0
        bucket = self._buckets.get(choice.shared)
        if bucket is None:
            bucket = self._buckets[choice.shared] = Bucket(self._mutation_burst_s)
            if len(self._buckets) > MAX_SENSORS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(choice.shared)
        bucket.fill(choice.limit, now_ms)
        if is_strict and (wait_ms := bucket.wait_ms(choice.limit)):
            return False, wait_ms
        bucket.permits -= permits
        return True, 0 if is_strict else bucket.wait_ms(choice.limit)

    def most_at_once(self, kind: Kind, user: str, client_id: str) -> int | None:
        """More than this in one answer would exceed the limit whatever came before; None: there is no limit."""
        limit = self.limit(kind, user, client_id)
        return None if limit is None else max(1, int(limit * (self._windows - 1) * self._window_ms / 1000))

    def record_throttled(self, kind: Kind, wait_ms: int) -> None:
        """An answer made a client wait."""
        self.throttled[kind] += 1
        self.throttled_ms[kind] += wait_ms

    def _rate(self, kind: Kind, choice: _Choice, now_ms: int) -> Rate:
        key = (kind, *choice.shared)
        rate = self._rates.get(key)
        if rate is None:
            self._expire(now_ms)
            rate = self._rates[key] = Rate(self._windows, self._window_ms)
            if len(self._rates) > MAX_SENSORS:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(key)
        return rate

    def _expire(self, now_ms: int) -> None:
        while self._rates:
            key, oldest = next(iter(self._rates.items()))
            if now_ms - oldest.used_ms < SENSOR_LIFE_MS:
                return
            del self._rates[key]


def _precedence(user: str, client_id: str) -> tuple[tuple[Entity, tuple[str, str]], ...]:
    """Entities from the most specific on, each with the (user, client id) whose rate its limit is held against."""
    shared_id = client_id[:_MAX_CLIENT_ID]
    both, users, clients = (user, shared_id), (user, DEFAULT), (DEFAULT, shared_id)
    return (
        (Entity(user, client_id), both),
        (Entity(user, DEFAULT), both),
        (Entity(user, None), users),
        (Entity(DEFAULT, client_id), both),
        (Entity(DEFAULT, DEFAULT), both),
        (Entity(DEFAULT, None), users),
        (Entity(None, client_id), clients),
        (Entity(None, DEFAULT), clients),
    )
