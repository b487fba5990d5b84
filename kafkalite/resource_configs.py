"""Settings of consumer groups and of client metrics: Kafka's resources GROUP (KIP-848) and CLIENT_METRICS (KIP-714).

Names and defaults are Kafka 4.4's (GroupConfig, ClientMetricsConfigs). A coordinator reads a group's settings with
`group_setting`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kafkalite.config import BrokerConfig
from kafkalite.config.keys import INT_MAX, MAX
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass

#: Fields of a client by which a subscription of client metrics can choose clients (KIP-714).
MATCH_FIELDS = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000

_NUMBER = "([0-9]{1,19})"
#: As Java's Duration reads it, without signs.
_DURATION = rf"by_duration:(?i:P(?=.)(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:\.([0-9]{{0,9}}))?S)?)?)"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. `kind`: bool, int, str or list (names with commas between them)."""

    kind: type
    default: bool | int | str
    doc: str
    low: int = 0
    high: int = INT_MAX
    choices: tuple[str, ...] = ()
    check: Callable[[str], str] | None = None

    def parse(self, name: str, text: str) -> bool | int | str:
        """The value of a text. Raises ConfigError, which names the key."""
        word = text.strip()
        if self.kind is bool:
            if word.lower() not in ("true", "false"):
                raise ConfigError(f"{name}: {text!r} is neither true nor false")
            return word.lower() == "true"
        if self.kind is int:
            if not re.fullmatch(r"-?[0-9]{1,10}", word) or not self.low <= int(word) <= self.high:
                raise ConfigError(f"{name}: {text!r} is not an integer from {self.low} to {self.high}")
            return int(word)
        if self.choices and word not in self.choices:
            raise ConfigError(f"{name}: {text!r} is not one of {', '.join(self.choices)}")
        if self.check is not None and (why := self.check(word)):
            raise ConfigError(f"{name}: {why}")
        return word


def _offset_reset(text: str) -> str:
    is_known = text in ("earliest", "latest") or duration_ms(text) is not None
    return "" if is_known else f"{text!r} is not earliest, latest or by_duration:PnDTnHnMnS"


def duration_ms(offset_reset: str) -> int | None:
    """How far back a share group begins by `by_duration:`; None for the other values, and for more seconds than a long has."""
    match = re.fullmatch(_DURATION, offset_reset)
    if match is None:
        return None
    *parts, fraction = match.groups(default="")
    seconds = sum(int(part or 0) * unit for part, unit in zip(parts, (86_400, 3_600, 60, 1), strict=True))
    return 1000 * seconds + int(f"{fraction:0<3}"[:3]) if seconds <= MAX else None


def _matches(text: str) -> str:
    try:
        parse_match(text)
    except ConfigError as error:
        return str(error)
    return ""


#: Of a group. A default holds only where the broker has no setting of that name with `group.` in front.
GROUP_KEYS: Mapping[str, Key] = {
    "consumer.session.timeout.ms": Key(int, 45_000, "time without a heartbeat after which a member leaves", 1),
    "consumer.heartbeat.interval.ms": Key(int, 5_000, "interval of the members' heartbeats", 1),
    "consumer.assignment.interval.ms": Key(int, 0, "least time between two assignments", 0),
    "share.session.timeout.ms": Key(int, 45_000, "time without a heartbeat after which a member leaves", 1),
    "share.heartbeat.interval.ms": Key(int, 5_000, "interval of the members' heartbeats", 1),
    "share.assignment.interval.ms": Key(int, 0, "least time between two assignments", 0),
    "share.record.lock.duration.ms": Key(int, 30_000, "time for which a delivered record belongs to a member", 1_000),
    "share.delivery.count.limit": Key(int, 5, "number of deliveries of a record", 2, 25),
    "share.partition.max.record.locks": Key(int, 2_000, "number of records of a partition that are delivered and open", 100),
    "share.auto.offset.reset": Key(
        str, "latest", "where a new group begins: earliest, latest or by_duration:PnDTnHnMnS", check=_offset_reset
    ),
    "share.isolation.level": Key(
        str,
        "read_uncommitted",
        "whether records of open and aborted transactions are delivered",
        choices=("read_committed", "read_uncommitted"),
    ),
    "share.renew.acknowledge.enable": Key(bool, default=True, doc="whether members may renew the lock of a record"),
    "streams.session.timeout.ms": Key(int, 45_000, "time without a heartbeat after which a member leaves", 1),
    "streams.heartbeat.interval.ms": Key(int, 5_000, "interval of the members' heartbeats", 1),
    "streams.assignment.interval.ms": Key(int, 1_000, "least time between two assignments", 0),
    "streams.num.standby.replicas": Key(int, 0, "number of standby tasks of each task", 0),
    "streams.initial.rebalance.delay.ms": Key(int, 3_000, "time that a new group waits for more members", 0),
    "streams.task.offset.interval.ms": Key(int, 60_000, "interval at which members report how far the state of their tasks is", 1),
    "streams.acceptable.recovery.lag": Key(int, 10_000, "records that a copy of a task's state may be behind to count as caught up", 0),
    "streams.assignor.name": Key(str, "sticky", "assignor of the group's tasks", choices=("sticky",)),
    "streams.rack.aware.assignment.tags": Key(list, "", "no effect: standby tasks are placed without tags"),
    "errors.deadletterqueue.topic.name": Key(str, "", "topic of records that a share group gives up; empty: none"),
    "errors.deadletterqueue.copy.record.enable": Key(bool, default=False, doc="whether such a record is copied with its value"),
}  # fmt: skip
#: Setting of a group -> the broker's least and greatest value for it (None: no limit).
_BOUNDS: Mapping[str, tuple[str | None, str | None]] = {
    **{
        f"{kind}.{name}": (f"group_{kind}_min_{field}", f"group_{kind}_max_{field}")
        for kind in ("consumer", "share", "streams")
        for name, field in (
            ("session.timeout.ms", "session_timeout_ms"),
            ("heartbeat.interval.ms", "heartbeat_interval_ms"),
            ("assignment.interval.ms", "assignment_interval_ms"),
        )
    },
    "share.record.lock.duration.ms": ("group_share_min_record_lock_duration_ms", "group_share_max_record_lock_duration_ms"),
    "share.delivery.count.limit": ("group_share_min_delivery_count_limit", "group_share_max_delivery_count_limit"),
    "share.partition.max.record.locks": (
        "group_share_min_partition_max_record_locks", "group_share_max_partition_max_record_locks",
    ),
    "streams.num.standby.replicas": (None, "group_streams_max_standby_replicas"),
    "streams.task.offset.interval.ms": ("group_streams_min_task_offset_interval_ms", None),
}  # fmt: skip
#: Of a subscription of client metrics.
CLIENT_METRICS_KEYS: Mapping[str, Key] = {
    "metrics": Key(list, "", "prefixes of the names of metrics that clients send; *: all; empty: none"),
    "interval.ms": Key(int, 300_000, "interval at which clients send them", MIN_INTERVAL_MS, MAX_INTERVAL_MS),
    "match": Key(list, "", "FIELD=PATTERN of the clients that send them, with commas; empty: all", check=_matches),
}


def check_all(keys: Mapping[str, Key], settings: Mapping[str, str]) -> None:
    """Raises ConfigError at the first setting that is unknown or malformed (regular expressions are not looked at)."""
    for name, text in settings.items():
        if name not in keys:
            raise ConfigError(f"{name}: no such configuration here")
        keys[name].parse(name, text)


def check_group(settings: Mapping[str, str], changed: Iterable[str], broker: BrokerConfig) -> None:
    """What a broker allows a group to set for itself; `changed`: the names that a request is about. Raises ConfigError.

    The broker's own value is always allowed, so that a broker with quicker heartbeats needs no second setting.
    """
    for name in sorted(set(changed) & settings.keys() & _BOUNDS.keys()):
        wanted = int(settings[name])
        if _within(name, wanted, broker) != wanted:
            raise ConfigError(f"{name} must be {_broken_limit(name, wanted, broker)}, not {wanted}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            int(settings.get(name, getattr(broker, _field(name)))) for name in (session, heartbeat)
        )
        if {session, heartbeat} & set(changed) and session_ms <= heartbeat_ms:
            raise ConfigError(
                f"{session} must be greater than {heartbeat}: {session_ms} is not greater than {heartbeat_ms}"
            )
    if settings.get("errors.deadletterqueue.topic.name", "").startswith("__"):
        raise ConfigError("errors.deadletterqueue.topic.name: the name must not start with '__'")


def _limits(name: str, broker: BrokerConfig) -> tuple[int, int]:
    least, greatest = _BOUNDS[name]
    return getattr(broker, least) if least else 0, getattr(broker, greatest) if greatest else INT_MAX


def _broken_limit(name: str, wanted: int, broker: BrokerConfig) -> str:
    """What the value must be, in Kafka's words: it names the broker's setting."""
    low, high = _limits(name, broker)
    least, greatest = ((each or "").replace("_", ".") for each in _BOUNDS[name])
    if wanted < low:
        return f"greater than or equal to {least} ({low})"
    return f"less than or equal to {greatest} ({high})"


def _within(name: str, wanted: int, broker: BrokerConfig) -> int:
    """The value nearest to `wanted` that a group may have."""
    if wanted == getattr(broker, _field(name), None):
        return wanted
    low, high = _limits(name, broker)
    return min(max(wanted, low), high)


def _field(name: str) -> str:
    """The broker's setting that holds for groups without one of their own."""
    return f"group_{name.replace('.', '_')}"


def value(keys: Mapping[str, Key], settings: Mapping[str, str], name: str) -> bool | int | str:
    """The value in force; what was written by hand and means nothing does not hold."""
    key = keys[name]
    try:
        return key.parse(name, settings[name]) if name in settings else key.default
    except ConfigError:
        return key.default


def broker_value(name: str, broker: BrokerConfig) -> bool | int | str:
    """What holds for groups that do not set it: the broker's setting if it has one of that name, else Kafka's default."""
    found: bool | int | str = getattr(broker, _field(name), GROUP_KEYS[name].default)
    return found


def group_setting(settings: Mapping[str, str], name: str, broker: BrokerConfig) -> bool | int | str:
    """The value of one of GROUP_KEYS that is in force for a group with these settings.

    A broker's limits also hold for what was set before they were (as in Kafka 4.4).
    """
    if name in settings:
        try:
            found = GROUP_KEYS[name].parse(name, settings[name])
        except ConfigError:
            pass  # written by hand, and means nothing
        else:
            return _within(name, found, broker) if isinstance(found, int) and name in _BOUNDS else found
    return broker_value(name, broker)


def parse_match(text: str) -> dict[str, str]:
    """Field -> regular expression of the setting `match`. Raises ConfigError."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        field, separator, pattern = part.partition("=")
        if not separator or field.strip() not in MATCH_FIELDS:
            raise ConfigError(f"{part!r} is not FIELD=PATTERN with one of {', '.join(MATCH_FIELDS)}")
        found[field.strip()] = pattern.strip()
    return found
