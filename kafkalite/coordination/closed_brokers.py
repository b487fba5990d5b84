"""Which brokers take no new replicas, as ZooKeeper says now. What the states mean: `broker_states`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.coordination import paths
from kafkalite.coordination.broker_states import closed_among, closed_brokers
from kafkalite.coordination.config_znodes import decode_config
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.registration import registered_brokers
from kafkalite.coordination.topic_configs import BROKERS
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.model import BrokerId


async def read_closed(coordinator: Coordinator, brokers: Iterable[BrokerId]) -> dict[BrokerId, str]:
    """Those of `brokers` that take no new replicas, as ZooKeeper says now."""
    ids = sorted(brokers)
    live, _ = registered_brokers(ids, await coordinator.get_many(list(map(paths.broker, ids))))
    return closed_brokers(await read_states(coordinator, ids), live.values())


async def read_states(coordinator: Coordinator, brokers: Iterable[BrokerId]) -> dict[BrokerId, str]:
    """Those of `brokers` that their settings close, with their states. Settings that cannot be read close nothing."""
    ids = sorted(brokers)
    found = await coordinator.get_many([paths.config_entity(BROKERS, str(id_)) for id_ in ids])
    settings: dict[BrokerId, Mapping[str, str]] = {}
    for id_, each in zip(ids, found, strict=True):
        if each is not None:
            try:
                settings[id_] = decode_config(each[0], paths.config_entity(BROKERS, str(id_)))
            except ZnodeError:
                continue  # `health` reports it
    return closed_among(settings)
