"""What holds for one share group: its own settings, and where it has none those of the broker (KIP-932). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.config import BrokerConfig
from kafkalite.coordinators.shares.decisions.deliveries import Limits
from kafkalite.resource_configs import group_setting

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_UNITS_S = (86_400, 3_600, 60, 1)
EARLIEST, LATEST = "earliest", "latest"


class ShareSettings(NamedTuple):
    limits: Limits
    #: Of a fetch: 0 up to the high watermark, 1 up to the last stable offset and without aborted transactions.
    isolation: int
    #: Where a group begins: earliest, latest, or by_duration:PnDTnHnMnS.
    offset_reset: str
    may_renew: bool
    #: Where records that are given up go, "" for nowhere, and whether with their keys and values (KIP-1191).
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False


def share_settings(config: BrokerConfig, settings: Mapping[str, str]) -> ShareSettings:
    """`settings`: those of the group (the resource GROUP)."""

    def number(name: str, default: int) -> int:
        return int(group_setting(settings, name)) if name in settings else default

    is_committed = group_setting(settings, "share.isolation.level") == "read_committed"
    return ShareSettings(
        Limits(
            number("share.record.lock.duration.ms", config.group_share_record_lock_duration_ms),
            number("share.delivery.count.limit", config.group_share_delivery_count_limit),
            number("share.partition.max.record.locks", config.group_share_partition_max_record_locks),
        ),
        _READ_COMMITTED if is_committed else _READ_UNCOMMITTED,
        str(group_setting(settings, "share.auto.offset.reset")),
        bool(group_setting(settings, "share.renew.acknowledge.enable")),
        str(group_setting(settings, "errors.deadletterqueue.topic.name")),
        bool(group_setting(settings, "errors.deadletterqueue.copy.record.enable")),
    )


def duration_ms(offset_reset: str) -> int | None:
    """How far back a group begins by `by_duration:`; None for the other values."""
    match = _DURATION.fullmatch(offset_reset)
    if match is None:
        return None
    return round(sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True) if part) * 1000)
