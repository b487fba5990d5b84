"""Configurations of groups and of client metrics, and ListConfigResources (KIP-848, KIP-714, KIP-1142)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.config import BROKER_KEYS, BrokerConfig
from kafkalite.coordination.topic_configs import CLIENT_METRICS, GROUPS
from kafkalite.coordinators.patterns import full_match
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.kafka.handlers.configs.entries import ConfigQuery, ConfigSource, ConfigType, Origin
from kafkalite.kafka.request import Request
from kafkalite.kafka.stepped import Steps
from kafkalite.protocol import wire
from kafkalite.resource_configs import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    Key,
    check_all,
    check_group,
    group_setting,
    parse_match,
    value,
)

if TYPE_CHECKING:
    from kafkalite.kafka.handlers.configs.entries import ConfigEntry

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS_TYPE, GROUP = 2, 4, 8, 16, 32
#: Resource type -> (type of the entity in ZooKeeper, its keys, the source of what it sets).
ENTITIES: Mapping[int, tuple[str, Mapping[str, Key], ConfigSource]] = {
    CLIENT_METRICS_TYPE: (CLIENT_METRICS, CLIENT_METRICS_KEYS, ConfigSource.CLIENT_METRICS),
    GROUP: (GROUPS, GROUP_KEYS, ConfigSource.GROUP),
}
_KINDS = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING, int: ConfigType.INT, list: ConfigType.LIST}
#: (settings before, what the request says, the defaults of lists) -> settings after.
Change = Callable[[Mapping[str, str], Sequence[Any], Mapping[str, str]], dict[str, str]]


def _text(found: object) -> str:
    return str(found).lower() if isinstance(found, bool) else str(found)


class EntityConfigs:
    """What is set is in ZooKeeper. For groups that set nothing the broker's own settings hold, else Kafka's defaults."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def describe(
        self,
        resource: wire.DescribeConfigsRequest.DescribeConfigsResource,
        query: ConfigQuery,
        layers: Sequence[tuple[ConfigSource, Mapping[str, str]]],
    ) -> list[ConfigEntry]:
        """All keys of a group or subscription, whether it exists or not. Raises ApiError.

        Args:
            layers: the broker's dynamic settings, the strongest first: (source, key -> value).
        """
        entity_type, keys, dynamic = ENTITIES[resource.resource_type]
        settings = await self._services.entity_overrides(entity_type, _named(resource.resource_name))
        entries = []
        for name, key in sorted(keys.items()):
            if not query.wants(name):
                continue
            origins = [(dynamic, name, settings[name])] if name in settings else []
            held = value(keys, settings, name)
            if resource.resource_type == GROUP:
                held = group_setting(settings, name, self._services.config)
                inherited = _of_broker(name, self._services.static_config, layers)
                origins += inherited or [(ConfigSource.DEFAULT, name, _text(key.default))]
            entries.append(query.entry(name, _text(held), origins, _KINDS[key.kind], key.doc))
        return entries

    async def alter(
        self, resource_type: int, name: str, changes: Sequence[Any], change: Change, *, validate_only: bool
    ) -> bool:
        """False: somebody else has changed the settings meanwhile. Raises ApiError, ConfigError."""
        entity_type, keys, _ = ENTITIES[resource_type]
        before = dict(await self._services.entity_overrides(entity_type, _named(name)))
        # Kafka adds nothing to the lists of client metrics and takes nothing away: its KafkaConfigSchema does not have them.
        lists = {each: str(key.default) for each, key in keys.items() if key.kind is list and resource_type == GROUP}
        after = change(before, changes, lists)
        unknown = sorted(after.keys() - keys.keys())
        if unknown and resource_type == CLIENT_METRICS_TYPE:
            raise api_error(ErrorCode.INVALID_REQUEST, f"{unknown[0]}: no such configuration here")
        check_all(keys, after)
        for pattern in parse_match(after.get("match", "")).values():
            try:
                full_match(pattern)
            except ApiError as error:
                raise ConfigError(f"match: {error}") from None
        if resource_type == GROUP:
            changed = [each for each in before | after if after.get(each) != before.get(each)]
            check_group(after, changed, self._services.config)
        unchanged = validate_only or after == before
        return unchanged or await self._services.replace_entity_overrides(entity_type, name, before, after)

    def list_resources(
        self, request: Request, message: wire.ListConfigResourcesRequest
    ) -> Steps[wire.ListConfigResourcesResponse]:
        """Version 0 knows client metrics only. Groups and subscriptions are those with settings."""
        response = wire.ListConfigResourcesResponse
        wanted = set(message.resource_types) if request.version >= 1 else {CLIENT_METRICS_TYPE}
        known = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS_TYPE, GROUP}
        if wanted - known:
            return response(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
        found: list[wire.ListConfigResourcesResponse.ConfigResource] = []
        metadata = self._services.metadata(None)
        for kind in sorted(wanted or known):
            if kind == TOPIC:
                names = [topic.topic for topic in metadata.topics]
            elif kind in ENTITIES:
                settings = self._services.settings_of(ENTITIES[kind][0])
                names = sorted(name for name in settings if settings[name])
            else:
                names = [str(broker.broker_id) for broker in metadata.brokers]
            for name in names:
                yield
                found.append(response.ConfigResource(name, kind))
        return response(config_resources=found)


def _of_broker(
    name: str, static: BrokerConfig, layers: Sequence[tuple[ConfigSource, Mapping[str, str]]]
) -> list[Origin]:
    """What holds for a group that does not set `name`, the strongest first."""
    found = BROKER_KEYS.get(f"group.{name}")
    if found is None:
        return []
    spec, _ = found
    key = f"group.{name}"
    values = [(ConfigSource.DEFAULT, key, _text(spec.default))]
    if (text := _text(getattr(static, spec.name))) != values[0][2]:
        values.insert(0, (ConfigSource.STATIC, key, text))
    return [*((source, key, settings[key]) for source, settings in layers if key in settings), *values]


def _named(name: str) -> str:
    if not name:
        raise api_error(ErrorCode.INVALID_REQUEST, "the resource has no name")
    return name
