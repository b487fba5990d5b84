"""The settings of one streams group: its own, else the broker's."""

from __future__ import annotations

from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsSettings
from kafkalite.coordinators.groups.settings import int_setting
from kafkalite.coordinators.services import Services


def streams_settings(services: Services, group_id: str) -> StreamsSettings:
    """As they are now."""

    def setting(name: str) -> int:
        return int_setting(services, group_id, name)

    return StreamsSettings(
        setting("streams.session.timeout.ms"),
        setting("streams.heartbeat.interval.ms"),
        services.config.group_streams_max_size,
        setting("streams.num.standby.replicas"),
        setting("streams.initial.rebalance.delay.ms"),
        setting("streams.task.offset.interval.ms"),
        setting("streams.acceptable.recovery.lag"),
    )


def assignment_interval_s(services: Services, group_id: str) -> float:
    """The least time between two assignments."""
    return int_setting(services, group_id, "streams.assignment.interval.ms") / 1000
