"""What the values of settings may be: Kafka's ranges, and what contradicts each other."""

from __future__ import annotations

import pytest

from kafkalite.config import BROKER_KEYS, TOPIC_KEYS, broker_config
from kafkalite.errors import ConfigError
from kafkalite.resource_configs import GROUP_KEYS, group_setting

_INT_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("group.consumer.heartbeat.interval.ms", _INT_MAX),  # sent to members in a field of 32 bits
        ("group.streams.task.offset.interval.ms", _INT_MAX),
        ("zookeeper.session.timeout.ms", _INT_MAX),
        ("offsets.topic.replication.factor", 2**15 - 1),
        ("min.insync.replicas", _INT_MAX),
        ("max.message.bytes", _INT_MAX),
        ("retention.ms", 2**63 - 1),
        ("replica.lag.time.max.ms", 2**63 - 1),
    ],
)
def test_settings_have_the_size_of_kafkas(key: str, most: int) -> None:
    most_lag = {"replica.lag.time.max.ms": 2**63 - 1}
    longer = {f"group.{kind}.session.timeout.ms": _INT_MAX for kind in ("consumer", "share", "streams")}
    value = most - 1 if key.endswith("heartbeat.interval.ms") else most
    config, _ = broker_config({**most_lag, **longer, key: value})
    owner = config.topic if key in TOPIC_KEYS else config
    assert getattr(owner, key.replace(".", "_")) == value
    with pytest.raises(ConfigError, match=f"{key}: {most + 1} is not "):
        broker_config({key: most + 1})


def test_a_group_may_have_any_short_session_timeout() -> None:
    """Kafka's own tests set 0, as its EmbeddedKafkaCluster."""
    config, _ = broker_config({"group.min.session.timeout.ms": 0})
    assert config.group_min_session_timeout_ms == 0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"group.consumer.heartbeat.interval.ms": 45_000},
            r"group.consumer.heartbeat.interval.ms \(45000\) must be less than group.consumer.session.timeout.ms \(45000\)",
        ),
        ({"group.share.session.timeout.ms": 5_000}, "group.share.heartbeat.interval.ms .* must be less than"),
        ({"group.streams.session.timeout.ms": 5_000}, "group.streams.heartbeat.interval.ms .* must be less than"),
        (
            {"group.min.session.timeout.ms": 1_800_001},
            r"group.min.session.timeout.ms \(1800001\) is above group.max.session.timeout.ms \(1800000\)",
        ),
        ({"group.consumer.min.session.timeout.ms": 60_001}, "is above group.consumer.max.session.timeout.ms"),
        ({"group.share.max.heartbeat.interval.ms": 4_999}, "group.share.min.heartbeat.interval.ms .* is above"),
        ({"num.partitions": 100_001}, r"num.partitions \(100001\) is above max.partitions.per.topic \(100000\)"),
        ({"max.partitions.per.topic": 49}, "offsets.topic.num.partitions .* is above max.partitions.per.topic"),
        ({"group.streams.min.assignment.interval.ms": 15_001}, "is above group.streams.max.assignment.interval.ms"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        broker_config(settings)


def test_the_brokers_limits_hold_for_what_groups_have_set_before() -> None:
    """As Kafka 4.4, which takes the nearest value that is allowed; another version may have allowed more."""
    config, _ = broker_config({"group.streams.num.standby.replicas": 7})
    for name, stored, held in (
        ("share.partition.max.record.locks", "2147483647", 4_000),
        ("share.delivery.count.limit", "25", 10),
        ("consumer.session.timeout.ms", "1", 45_000),
        ("consumer.session.timeout.ms", "50000", 50_000),
        ("streams.num.standby.replicas", "3", 2),
        ("streams.num.standby.replicas", "7", 7),  # as the broker's own
        ("streams.task.offset.interval.ms", "2", 15_000),
    ):
        assert group_setting({name: stored}, name, config) == held, name


def test_a_queue_of_commands_has_room_for_all_that_a_broker_is_sent_first() -> None:
    """With less, sending a broker everything overflows its queue, so that everything is sent again, without end."""
    with pytest.raises(ConfigError, match=r"controller\.queue\.max\.requests: 9 is not at least 10"):
        broker_config({"controller.queue.max.requests": 9})


def test_a_number_within_the_range_may_be_none() -> None:
    for level in (-1, 1, 9):
        assert broker_config({"compression.gzip.level": level})[0].topic.compression_gzip_level == level
    with pytest.raises(ConfigError, match=r"compression\.gzip\.level: 0 is not supported: .* 1 to 9, -1"):
        broker_config({"compression.gzip.level": 0})


def test_every_number_has_a_least_value() -> None:
    numbers = [spec.metadata for keys in (BROKER_KEYS, TOPIC_KEYS) for spec, kind in keys.values() if kind is int]
    assert all(meta["low"] is not None for meta in numbers)
    assert GROUP_KEYS["consumer.session.timeout.ms"].high == _INT_MAX
