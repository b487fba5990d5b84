"""DescribeConfigs, ListConfigResources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.config import (
    ALIASES,
    BROKER_KEYS,
    TOPIC_KEYS,
    UNITS,
    BrokerConfig,
    broker_key_of,
    is_dynamic,
    is_limit,
    kafka_listeners,
    with_dynamic,
)
from kafkalite.config.keys import INT_MAX, SHORT_MAX
from kafkalite.coordination.broker_states import BROKER_STATE, state_of
from kafkalite.coordination.topic_configs import BROKERS, broker_entity
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka import stepped
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE, is_topic_name
from kafkalite.kafka.handlers.configs.entities import ENTITIES, EntityConfigs
from kafkalite.kafka.handlers.configs.entries import ConfigQuery, ConfigSource, ConfigType, Origin
from kafkalite.kafka.handlers.configs.resources import BROKER, LISTS, TOPIC, broker_of, canonical, check_resource
from kafkalite.kafka.handlers.configs.true_values import true_value_entries
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps
from kafkalite.listeners import ADVERTISED, LISTENERS
from kafkalite.model import ListenerAddress
from kafkalite.protocol import wire

if TYPE_CHECKING:
    from kafkalite.kafka.handlers.configs.entries import ConfigEntry

#: Dynamic settings of a broker, the strongest first: (source, key -> value).
Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]

_KINDS = {
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    int: ConfigType.LONG,
    float: ConfigType.DOUBLE,
    tuple: ConfigType.LIST,
}
#: Our name of a setting -> that of Kafka's brokers, where it is another one.
_OF_BROKERS = {ours: alias for alias, ours in ALIASES.items() if alias.startswith(("log.", "message."))}
#: As with Kafka, these are shown only if they are set: a program that removes one waits until it is gone.
SHOWN_IF_SET = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


def as_text(value: object) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


class DescribeConfigHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._entities = EntityConfigs(services)

    def table(self) -> dict[str, Handler]:
        return {"DescribeConfigs": self.describe, "ListConfigResources": self._entities.list_resources}

    async def describe(self, request: Request, message: wire.DescribeConfigsRequest) -> wire.DescribeConfigsResponse:
        result = wire.DescribeConfigsResponse.DescribeConfigsResult
        results = []
        # What is named twice is answered once: a response is two hundred times as large as what asks for it.
        once = {(resource.resource_type, resource.resource_name): resource for resource in message.resources}
        for resource in once.values():
            try:
                check_resource(request, resource)
                entries = await self._entries(request, resource, ConfigQuery.of(resource, message))
            except ApiError as error:
                results.append(result(int(error.code), str(error), resource.resource_type, resource.resource_name, ()))
            else:
                results.append(result(0, None, resource.resource_type, resource.resource_name, entries))
        return wire.DescribeConfigsResponse(results=results)

    async def _entries(
        self, request: Request, resource: wire.DescribeConfigsRequest.DescribeConfigsResource, query: ConfigQuery
    ) -> list[ConfigEntry]:
        if resource.resource_type == TOPIC:
            return await self._topic_entries(resource.resource_name, query)
        if resource.resource_type == BROKER:
            broker_id = broker_of(resource.resource_name)
            if broker_id is None:
                return self._cluster_entries(await self._services.entity_overrides(BROKERS, broker_entity(None)), query)
            if broker_id == self._services.broker_id:
                return await self._broker_entries(request, query)
            raise api_error(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._services.broker_id}; send the request to that broker",
            )
        if resource.resource_type in ENTITIES:
            return await self._entities.describe(resource, query, await self._broker_layers())
        raise api_error(ErrorCode.INVALID_REQUEST, f"nothing of type {resource.resource_type} has configurations")

    async def _topic_entries(self, topic: str, query: ConfigQuery) -> list[ConfigEntry]:
        if not is_topic_name(topic):
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAME_RULE)
        overrides = await self._services.topic_overrides(topic)
        config = self._services.effective_topic_config(topic, overrides)
        layers = await self._broker_layers()
        entries = []
        for key, (spec, _) in sorted(TOPIC_KEYS.items()):
            if query.wants(key):
                broker_key = broker_key_of(topic, key)
                origins = [(ConfigSource.TOPIC, key, overrides[key])] if key in overrides else []
                origins += self._origins(broker_key, _OF_BROKERS.get(broker_key, broker_key), layers)
                entries.append(_entry(query, key, getattr(config, spec.name), spec, origins))
        return entries

    async def _broker_entries(self, request: Request, query: ConfigQuery) -> list[ConfigEntry]:
        """Of this broker."""
        layers = await self._broker_layers()
        entries = await stepped.sliced(request, self._entries_of_keys(layers, query))
        entries += _limits(await self._services.entity_overrides(BROKERS, broker_entity(None)), query)
        entries += _broker_state(layers[0][1], query)
        entries += self._listeners(query, layers)
        return entries + true_value_entries(self._services.config, query)

    def _entries_of_keys(self, layers: Layers, query: ConfigQuery) -> Steps[list[ConfigEntry]]:
        """Of all keys but those of listeners."""
        entries = []
        for key in (*sorted(BROKER_KEYS), *sorted(TOPIC_KEYS)):
            if key not in (ADVERTISED, LISTENERS):
                yield
                entries += self._entries_of_key(key, layers, query)
        return entries

    def _entries_of_key(self, key: str, layers: Layers, query: ConfigQuery) -> list[ConfigEntry]:
        """A setting of this broker, under each of its names that is asked for."""
        names = [(name, divisor) for name, divisor in _names(key) if query.wants(name)]
        # What ZooKeeper has, not what this node has seen so far: a client that has set it expects to see it.
        source, _, text = self._origins(key, key, layers)[0]
        if not names or (key in SHOWN_IF_SET and source == ConfigSource.DEFAULT):
            return []
        config = self._services.config
        spec, value = _setting(config, key)
        if as_text(value) != text and is_dynamic(key):
            spec, value = _setting(with_dynamic(config, {key: text}), key)
        entries = []
        for name, divisor in names:
            shown = value if divisor == 1 or value < 0 else value // divisor
            is_read_only = divisor != 1 or not is_dynamic(key)
            entry = _entry(query, name, shown, spec, self._origins(key, name, layers), is_read_only=is_read_only)
            if divisor != 1:
                entry.synonyms = ()  # those values are in another unit
            entries.append(entry)
        return entries

    async def of_new_topic(
        self, topic: str, overrides: Mapping[str, str]
    ) -> list[wire.CreateTopicsResponse.CreatableTopicConfigs]:
        """All settings of a topic that is made with these, for the response (KIP-525)."""
        config = self._services.effective_topic_config(topic, overrides)
        layers = await self._broker_layers()
        found = []
        for key, (spec, _) in sorted(TOPIC_KEYS.items()):
            source = (
                ConfigSource.TOPIC if key in overrides else self._origins(broker_key_of(topic, key), key, layers)[0][0]
            )
            text = as_text(getattr(config, spec.name))
            found.append(wire.CreateTopicsResponse.CreatableTopicConfigs(key, text, config_source=source))
        return found

    async def _broker_layers(self) -> Layers:
        """Dynamic settings that hold here."""
        own = await self._services.entity_overrides(BROKERS, broker_entity(self._services.broker_id))
        everybody = await self._services.entity_overrides(BROKERS, broker_entity(None))
        return [(ConfigSource.DYNAMIC_BROKER, canonical(own)), (ConfigSource.DYNAMIC_DEFAULT, canonical(everybody))]

    def _origins(self, key: str, name: str, layers: Layers) -> list[Origin]:
        """Where a broker's value comes from, the strongest first. `name`: the setting's name there."""
        spec, static = _setting(self._services.static_config, key)
        origins = [(source, name, settings[key]) for source, settings in layers if key in settings]
        if static != spec.default:
            origins.append((ConfigSource.STATIC, name, as_text(static)))
        return [*origins, (ConfigSource.DEFAULT, name, as_text(spec.default))]

    def _cluster_entries(self, settings: Mapping[str, str], query: ConfigQuery) -> list[ConfigEntry]:
        """What is set for all brokers, under our name and under that of Kafka's brokers, and nothing else, as Kafka does."""
        entries = []
        config = with_dynamic(self._services.static_config, settings)
        for key, text in sorted(canonical(settings).items()):
            if is_dynamic(key):
                spec, value = _setting(config, key)
                entries += [
                    _entry(query, name, value, spec, [(ConfigSource.DYNAMIC_DEFAULT, name, text)])
                    for name, divisor in _names(key)
                    if divisor == 1 and query.wants(name)
                ]
        return entries + _limits(settings, query)

    def _listeners(self, query: ConfigQuery, layers: Layers) -> list[ConfigEntry]:
        """Where this broker listens, under the keys by which Kafka's tools look for it."""
        config = self._services.config
        listeners = kafka_listeners(config)
        known = self._services.metadata([]).brokers
        mine = next((broker for broker in known if broker.broker_id == self._services.broker_id), None)
        addresses = [(each.name, mine.kafka_on(each.name)) for each in listeners] if mine is not None else []
        advertised = ",".join(str(ListenerAddress(name, to.host, to.port)) for name, to in addresses if to is not None)
        source = ConfigSource.STATIC if self._services.static_config.advertised_listeners else ConfigSource.DEFAULT
        if ADVERTISED in layers[0][1]:
            source = ConfigSource.DYNAMIC_BROKER
        bound = ",".join(str(ListenerAddress(each.name, each.host, each.port)) for each in listeners)
        return [
            query.entry(origin[1], origin[2], [origin], ConfigType.STRING, is_read_only=origin[1] == LISTENERS)
            for origin in ((source, ADVERTISED, advertised), (ConfigSource.STATIC, LISTENERS, bound))
            if query.wants(origin[1])
        ]


def _setting(config: BrokerConfig, key: str) -> tuple[dataclasses.Field[Any], Any]:
    """The declaration of a key, and its value."""
    spec, _ = TOPIC_KEYS[key] if key in TOPIC_KEYS else BROKER_KEYS[key]
    return spec, getattr(config.topic if key in TOPIC_KEYS else config, spec.name)


def _names(key: str) -> list[tuple[str, int]]:
    """Our name of a broker's setting, and those that Kafka's brokers have for it; with each, what its value is divided by."""
    theirs = [(_OF_BROKERS[key], 1)] if key in _OF_BROKERS else []
    return [(key, 1), *theirs, *((name, factor) for name, (ours, factor) in UNITS.items() if ours == key)]


def _limits(settings: Mapping[str, str], query: ConfigQuery) -> list[ConfigEntry]:
    """The limits of reassignments (KIP-435), which are no keys of a configuration file."""
    return [
        query.entry(key, value, [(ConfigSource.DYNAMIC_DEFAULT, key, value)], ConfigType.STRING)
        for key, value in sorted(settings.items())
        if is_limit(key) and query.wants(key)
    ]


def _broker_state(own: Mapping[str, str], query: ConfigQuery) -> list[ConfigEntry]:
    """Whether the broker takes new replicas, which is no key of a configuration file."""
    if not query.wants(BROKER_STATE):
        return []
    source = ConfigSource.DYNAMIC_BROKER if BROKER_STATE in own else ConfigSource.DEFAULT
    return [query.entry(BROKER_STATE, state_of(own), [(source, BROKER_STATE, state_of(own))], ConfigType.STRING)]


def _entry(
    query: ConfigQuery,
    name: str,
    value: object,
    spec: dataclasses.Field[Any],
    origins: Sequence[Origin],
    *,
    is_read_only: bool = False,
) -> ConfigEntry:
    kind = _kind(name, value, spec)
    return query.entry(name, as_text(value), origins, kind, spec.metadata["doc"], is_read_only=is_read_only)


def _kind(name: str, value: object, spec: dataclasses.Field[Any]) -> ConfigType:
    high = spec.metadata["high"]
    if spec.metadata["secret"]:
        return ConfigType.PASSWORD
    if name in LISTS:
        return ConfigType.LIST
    if type(value) is int and high is not None and high <= INT_MAX:
        return ConfigType.SHORT if high == SHORT_MAX else ConfigType.INT
    return next(kind for type_, kind in _KINDS.items() if isinstance(value, type_))
