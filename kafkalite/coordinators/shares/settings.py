"""What holds for one share group: its own settings, and where it has none those of the broker (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.config import BrokerConfig
from kafkalite.coordinators.shares.decisions.deliveries import DeliveryLimits
from kafkalite.resource_configs import group_setting

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
EARLIEST, LATEST = "earliest", "latest"


class ShareSettings(NamedTuple):
    limits: DeliveryLimits
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

    def own(name: str) -> bool | int | str:
        return group_setting(settings, name, config)

    is_committed = own("share.isolation.level") == "read_committed"
    return ShareSettings(
        DeliveryLimits(
            int(own("share.record.lock.duration.ms")),
            int(own("share.delivery.count.limit")),
            int(own("share.partition.max.record.locks")),
        ),
        _READ_COMMITTED if is_committed else _READ_UNCOMMITTED,
        str(own("share.auto.offset.reset")),
        bool(own("share.renew.acknowledge.enable")),
        str(own("errors.deadletterqueue.topic.name")),
        bool(own("errors.deadletterqueue.copy.record.enable")),
    )
