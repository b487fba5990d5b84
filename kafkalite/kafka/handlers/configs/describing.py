"""DescribeConfigs, ListConfigResources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.config import (
    ALIASES,
    BROKER_KEYS,
    TOPIC_KEYS,
    UNITS,
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
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE, is_topic_name
from kafkalite.kafka.handlers.configs.entities import ENTITIES, EntityConfigs
from kafkalite.kafka.handlers.configs.resources import BROKER, LISTS, TOPIC, broker_of, canonical, check_resource
from kafkalite.kafka.handlers.configs.true_values import true_value_entries
from kafkalite.kafka.request import Handler, Request
from kafkalite.listeners import ADVERTISED, LISTENERS
from kafkalite.model import ListenerAddress
from kafkalite.protocol import wire

_SOURCE_TOPIC, _SOURCE_DYNAMIC_BROKER, _SOURCE_DYNAMIC_DEFAULT, _SOURCE_STATIC, _SOURCE_DEFAULT = 1, 2, 3, 4, 5
_KINDS = {bool: 1, str: 2, int: 5, float: 6, tuple: 7}
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


if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Entry = wire.DescribeConfigsResponse.DescribeConfigsResourceResult


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
                entries = await self._entries(resource, message)
            except ApiError as error:
                results.append(result(int(error.code), str(error), resource.resource_type, resource.resource_name, ()))
            else:
                results.append(result(0, None, resource.resource_type, resource.resource_name, entries))
        return wire.DescribeConfigsResponse(results=results)

    async def _entries(
        self, resource: wire.DescribeConfigsRequest.DescribeConfigsResource, message: wire.DescribeConfigsRequest
    ) -> list[_Entry]:
        # Nothing named is everything, as with Kafka: clients send either.
        wanted = set(resource.configuration_keys or ()) or None
        if resource.resource_type == TOPIC:
            return await self._topic_entries(resource.resource_name, wanted, message)
        if resource.resource_type == BROKER:
            broker_id = broker_of(resource.resource_name)
            if broker_id is None:
                return self._cluster_entries(
                    await self._services.entity_overrides(BROKERS, broker_entity(None)), wanted, message
                )
            if broker_id == self._services.broker_id:
                return await self._broker_entries(wanted, message)
            raise api_error(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._services.broker_id}; send the request to that broker",
            )
        if resource.resource_type in ENTITIES:
            return await self._entities.describe(resource, message, await self._broker_layers())
        raise api_error(ErrorCode.INVALID_REQUEST, f"nothing of type {resource.resource_type} has configurations")

    async def _topic_entries(
        self, topic: str, wanted: set[str] | None, message: wire.DescribeConfigsRequest
    ) -> list[_Entry]:
        if not is_topic_name(topic):
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAME_RULE)
        overrides = await self._services.topic_overrides(topic)
        config = self._services.effective_topic_config(topic, overrides)
        layers = await self._broker_layers()
        entries = []
        for key, (spec, _) in sorted(TOPIC_KEYS.items()):
            if wanted is None or key in wanted:
                broker_key = broker_key_of(topic, key)
                values = [(_SOURCE_TOPIC, overrides[key])] if key in overrides else []
                values += self._values(broker_key, layers)
                entry = _entry(key, getattr(config, spec.name), spec, values, message, is_read_only=False)
                for synonym in entry.synonyms:
                    if synonym.source != _SOURCE_TOPIC:
                        synonym.name = _OF_BROKERS.get(broker_key, broker_key)
                entries.append(entry)
        return entries

    async def _broker_entries(self, wanted: set[str] | None, message: wire.DescribeConfigsRequest) -> list[_Entry]:
        """Of this broker."""
        layers = await self._broker_layers()
        broker = self._services.config
        entries = []
        for owner, keys in ((broker, BROKER_KEYS), (broker.topic, TOPIC_KEYS)):
            for key, (spec, _) in sorted(keys.items()):
                names = [name for name in _names(key) if wanted is None or name in wanted]
                if key in (ADVERTISED, LISTENERS) or not names:
                    continue
                # What ZooKeeper has, not what this node has seen so far: a client that has set it expects to see it.
                values = self._values(key, layers)
                if key in SHOWN_IF_SET and values[0][0] == _SOURCE_DEFAULT:
                    continue
                value = with_dynamic(broker, {key: values[0][1]}) if is_dynamic(key) else broker
                shown = getattr(value.topic if owner is broker.topic else value, spec.name)
                read_only = not is_dynamic(key)
                for name in names:
                    factor = UNITS[name][1] if name in UNITS else 0
                    entry = _entry(name, shown, spec, values, message, is_read_only=read_only or bool(factor))
                    if factor:
                        entry.value, entry.synonyms = str(shown // factor if shown >= 0 else shown), ()
                    entries.append(entry)
        entries += _limits(await self._services.entity_overrides(BROKERS, broker_entity(None)), wanted, message)
        entries += _broker_state(layers[0][1], wanted, message)
        entries += self._listeners(wanted, layers)
        return entries + true_value_entries(broker, wanted, message)

    async def of_new_topic(
        self, topic: str, overrides: Mapping[str, str]
    ) -> list[wire.CreateTopicsResponse.CreatableTopicConfigs]:
        """All settings of a topic that is made with these, for the response (KIP-525)."""
        config = self._services.effective_topic_config(topic, overrides)
        layers = await self._broker_layers()
        found = []
        for key, (spec, _) in sorted(TOPIC_KEYS.items()):
            source = _SOURCE_TOPIC if key in overrides else self._values(broker_key_of(topic, key), layers)[0][0]
            text = as_text(getattr(config, spec.name))
            found.append(wire.CreateTopicsResponse.CreatableTopicConfigs(key, text, config_source=source))
        return found

    async def _broker_layers(self) -> list[tuple[int, dict[str, str]]]:
        """Dynamic settings that hold here, the strongest first: (source, key -> value)."""
        own = await self._services.entity_overrides(BROKERS, broker_entity(self._services.broker_id))
        everybody = await self._services.entity_overrides(BROKERS, broker_entity(None))
        return [(_SOURCE_DYNAMIC_BROKER, canonical(own)), (_SOURCE_DYNAMIC_DEFAULT, canonical(everybody))]

    def _values(self, key: str, layers: list[tuple[int, dict[str, str]]]) -> list[tuple[int, str]]:
        """Where a broker's value comes from, most specific first."""
        static = self._services.static_config
        owner, (spec, _) = (static.topic, TOPIC_KEYS[key]) if key in TOPIC_KEYS else (static, BROKER_KEYS[key])
        dynamic = [(source, settings[key]) for source, settings in layers if key in settings]
        return [*dynamic, *_defaults(getattr(owner, spec.name), spec.default)]

    def _cluster_entries(
        self, settings: Mapping[str, str], wanted: set[str] | None, message: wire.DescribeConfigsRequest
    ) -> list[_Entry]:
        """What is set for all brokers, under our name and under that of Kafka's brokers, and nothing else, as Kafka does."""
        entries = []
        config = with_dynamic(self._services.static_config, settings)
        for key, text in sorted(canonical(settings).items()):
            if not is_dynamic(key):
                continue
            spec, _ = TOPIC_KEYS[key] if key in TOPIC_KEYS else BROKER_KEYS[key]
            value = getattr(config.topic if key in TOPIC_KEYS else config, spec.name)
            values = [(_SOURCE_DYNAMIC_DEFAULT, text)]
            entries += [
                _entry(name, value, spec, values, message, is_read_only=False)
                for name in _names(key)
                if name not in UNITS and (wanted is None or name in wanted)
            ]
        return entries + _limits(settings, wanted, message)

    def _listeners(self, wanted: set[str] | None, layers: list[tuple[int, dict[str, str]]]) -> list[_Entry]:
        """Where this broker listens, under the keys by which Kafka's tools look for it."""
        config = self._services.config
        listeners = kafka_listeners(config)
        known = self._services.metadata([]).brokers
        mine = next((broker for broker in known if broker.broker_id == self._services.broker_id), None)
        addresses = [(each.name, mine.kafka_on(each.name)) for each in listeners] if mine is not None else []
        advertised = ",".join(str(ListenerAddress(name, to.host, to.port)) for name, to in addresses if to is not None)
        source = _SOURCE_STATIC if self._services.static_config.advertised_listeners else _SOURCE_DEFAULT
        if ADVERTISED in layers[0][1]:
            source = _SOURCE_DYNAMIC_BROKER
        bound = ",".join(str(ListenerAddress(each.name, each.host, each.port)) for each in listeners)
        return [
            wire.DescribeConfigsResponse.DescribeConfigsResourceResult(
                name=key, value=value, read_only=key == LISTENERS, config_source=source, config_type=2
            )
            for key, value, source in ((ADVERTISED, advertised, source), (LISTENERS, bound, _SOURCE_STATIC))
            if wanted is None or key in wanted
        ]


def _names(key: str) -> list[str]:
    """Our name of a broker's setting, and those that Kafka's brokers have for it."""
    theirs = [_OF_BROKERS[key]] if key in _OF_BROKERS else []
    return [key, *theirs, *(name for name, (ours, _) in UNITS.items() if ours == key)]


def _limits(settings: Mapping[str, str], wanted: set[str] | None, message: wire.DescribeConfigsRequest) -> list[_Entry]:
    """The limits of reassignments (KIP-435), which are no keys of a configuration file."""
    response = wire.DescribeConfigsResponse
    return [
        response.DescribeConfigsResourceResult(
            name=key,
            value=value,
            read_only=False,
            config_source=_SOURCE_DYNAMIC_DEFAULT,
            config_type=2,
            synonyms=[response.DescribeConfigsSynonym(key, value, _SOURCE_DYNAMIC_DEFAULT)]
            if message.include_synonyms
            else (),
        )
        for key, value in sorted(settings.items())
        if is_limit(key) and (wanted is None or key in wanted)
    ]


def _broker_state(
    own: Mapping[str, str], wanted: set[str] | None, message: wire.DescribeConfigsRequest
) -> list[_Entry]:
    """Whether the broker takes new replicas, which is no key of a configuration file."""
    if wanted is not None and BROKER_STATE not in wanted:
        return []
    source = _SOURCE_DYNAMIC_BROKER if BROKER_STATE in own else _SOURCE_DEFAULT
    response = wire.DescribeConfigsResponse
    return [
        response.DescribeConfigsResourceResult(
            name=BROKER_STATE,
            value=state_of(own),
            read_only=False,
            is_default=source == _SOURCE_DEFAULT,
            config_source=source,
            config_type=2,
            synonyms=[response.DescribeConfigsSynonym(BROKER_STATE, state_of(own), source)]
            if message.include_synonyms
            else (),
        )
    ]


def _defaults(value: object, default: object) -> list[tuple[int, str]]:
    """Where a broker-wide value comes from, most specific first."""
    static = [(_SOURCE_STATIC, as_text(value))] if value != default else []
    return [*static, (_SOURCE_DEFAULT, as_text(default))]


def _entry(
    key: str,
    value: object,
    spec: dataclasses.Field[Any],
    values: list[tuple[int, str]],
    message: wire.DescribeConfigsRequest,
    *,
    is_read_only: bool,
) -> _Entry:
    response = wire.DescribeConfigsResponse
    source = values[0][0]
    is_secret = spec.metadata["secret"]
    return response.DescribeConfigsResourceResult(
        name=key,
        value=None if is_secret else as_text(value),
        read_only=is_read_only,
        is_default=source == _SOURCE_DEFAULT,
        config_source=source,
        is_sensitive=is_secret,
        synonyms=[response.DescribeConfigsSynonym(key, None if is_secret else text, origin) for origin, text in values]
        if message.include_synonyms
        else (),
        config_type=9 if is_secret else 7 if key in LISTS else _kind(value, spec.metadata["high"]),
        documentation=spec.metadata["doc"] if message.include_documentation else None,
    )


def _kind(value: object, high: int | None) -> int:
    """Kafka's ConfigDef type: BOOLEAN 1, STRING 2, INT 3, SHORT 4, LONG 5, DOUBLE 6, LIST 7. `high`: the setting's largest value."""
    if type(value) is int and high is not None and high <= INT_MAX:
        return 4 if high == SHORT_MAX else 3
    return next(number for kind, number in _KINDS.items() if isinstance(value, kind))
