"""Dynamic settings of topics and brokers. Every function raises ApiError and RpcError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.configs import DescribeBrokerSettingsRequest, DescribeBrokerSettingsResponse
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.protocol import wire

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
#: Settings of one broker whose values only that broker can check: it knows its directories.
_CHECKED_THERE = frozenset({"cordoned.log.dirs"})
#: config_source of a resource's own dynamic settings: of a topic, of a broker, of all brokers.
_OF_TOPIC, _OF_BROKER, _OF_ALL_BROKERS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """The resource that has the settings: a topic, a broker, or the cluster."""

    resource_type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(_TOPIC, name)

    @classmethod
    def broker(cls, broker_id: BrokerId | None) -> ConfigResource:
        """None: the settings that hold for all brokers."""
        return cls(_BROKER, "" if broker_id is None else str(broker_id))

    @property
    def is_topic(self) -> bool:
        return self.resource_type == _TOPIC

    @property
    def broker_id(self) -> BrokerId | None:
        """The broker, if it is one."""
        return BrokerId(int(self.name)) if self.resource_type == _BROKER and self.name else None

    @property
    def own_source(self) -> int:
        """The config_source of its own dynamic settings."""
        if self.resource_type == _TOPIC:
            return _OF_TOPIC
        return _OF_BROKER if self.name else _OF_ALL_BROKERS


#: config_source -> where a value comes from.
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default"}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force. `source`: topic, broker, cluster (dynamic settings), file (the node's own configuration) or default."""

    value: str
    source: str
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """`own` is what is set for the resource itself; `effective`, of a topic, all that holds for it.

    `in_force`: all that holds, and where it comes from (of the cluster: what is set); None of a broker that is not alive.
    """

    own: dict[str, str]
    effective: dict[str, str]
    in_force: dict[str, Setting] | None


async def _described(client: AsyncClient, resource: ConfigResource, deadline: float) -> Sequence[Any] | None:
    """The entries of a DescribeConfigs response; None: only the broker itself could say, and it is not alive."""
    request = wire.DescribeConfigsRequest
    message = request(
        [request.DescribeConfigsResource(resource.resource_type, resource.name, None)], include_synonyms=True
    )
    if resource.broker_id is None:
        answer = await client.call_any(message, timeout_s=deadline - client.now())
    else:
        await client.metadata((), timeout_s=deadline - client.now())
        if resource.broker_id not in client.view.brokers:
            return None
        answer = await client.call_node(resource.broker_id, message, timeout_s=max(0.0, deadline - client.now()))
    [result] = answer.results
    refuse(result.error_code, result.error_message)
    entries: Sequence[Any] = result.configs
    return entries


async def describe_configs(
    client: AsyncClient, resource: ConfigResource, *, timeout_s: float | None = None
) -> Settings:
    """Settings as ZooKeeper has them. A broker need not be alive (that takes kafkalite's extension API)."""
    deadline = client.now() + client.patience_s(timeout_s)
    entries = await _described(client, resource, deadline)
    if entries is None:
        assert resource.broker_id is not None
        asked = DescribeBrokerSettingsRequest(resource.broker_id)
        found = await client.request(asked, DescribeBrokerSettingsResponse, timeout_s=deadline - client.now())
        refuse(found.error, found.message)
        return Settings(found.settings or {}, {}, None)
    own = {
        entry.name: entry.synonyms[0].value or "" if entry.synonyms else entry.value or ""
        for entry in entries
        if entry.config_source == resource.own_source
    }
    in_force = {
        entry.name: Setting(entry.value or "", _SOURCES.get(entry.config_source, "unknown"), entry.is_sensitive)
        for entry in entries
    }
    effective = {name: each.value for name, each in in_force.items()} if resource.is_topic else {}
    return Settings(own, effective, in_force)


async def alter_configs(
    client: AsyncClient,
    resource: ConfigResource,
    changes: Mapping[str, str],
    deletions: Iterable[str] = (),
    *,
    timeout_s: float | None = None,
) -> None:
    """Set and delete keys: all of them, or none if one is wrong."""
    request = wire.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(key, _SET, value) for key, value in sorted(changes.items())]
    configs += [request.AlterableConfig(key, _DELETE, None) for key in deletions]
    message = request([request.AlterConfigsResource(resource.resource_type, resource.name, configs)])
    if resource.broker_id is not None and any(each.name in _CHECKED_THERE for each in configs):
        await client.metadata((), timeout_s=timeout_s)
        answer = await client.call_node(resource.broker_id, message, timeout_s=timeout_s)
    else:
        answer = await client.call_controller(
            message, lambda each: [r.error_code for r in each.responses], timeout_s=timeout_s
        )
    [result] = answer.responses
    refuse(result.error_code, result.error_message)
