"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kafkalite.config import BROKER_KEYS, TOPIC_KEYS, TopicConfig, topic_config
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.kafka import wire
from kafkalite.kafka.apis import Handler
from kafkalite.kafka.connection import Request
from kafkalite.kafka.services import Services

_TOPIC, _BROKER = 2, 4
_SOURCE_TOPIC, _SOURCE_STATIC, _SOURCE_DEFAULT = 1, 4, 5
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
#: Keys that are lists, of which IncrementalAlterConfigs can add and take away members.
_LISTS = frozenset({"cleanup.policy"})
_KINDS = {bool: 1, str: 2, int: 5, tuple: 7}


def as_text(value: object) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


class ConfigHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def table(self) -> dict[str, Handler]:
        return {
            "DescribeConfigs": self.describe,
            "AlterConfigs": self.alter,
            "IncrementalAlterConfigs": self.alter_incrementally,
        }

    async def describe(self, request: Request, message: Any) -> Any:
        result = wire.DescribeConfigsResponse.DescribeConfigsResult
        results = []
        for resource in message.resources:
            try:
                _check_resource(request, resource)
                entries = await self._entries(resource, message)
            except ApiError as error:
                results.append(result(int(error.code), str(error), resource.resource_type, resource.resource_name, ()))
            else:
                results.append(result(0, None, resource.resource_type, resource.resource_name, entries))
        return wire.DescribeConfigsResponse(results=results)

    async def _entries(self, resource: Any, message: Any) -> list[Any]:
        wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
        base = self._services.config.topic
        entries = []
        if resource.resource_type == _TOPIC:
            overrides = await self._services.topic_overrides(resource.resource_name)
            config = topic_config(base, overrides)
            for key, (spec, _) in sorted(TOPIC_KEYS.items()):
                if wanted is None or key in wanted:
                    values = [(_SOURCE_TOPIC, overrides[key])] if key in overrides else []
                    values += _defaults(getattr(base, spec.name), spec.default)
                    entries.append(_entry(key, getattr(config, spec.name), spec, values, message, is_read_only=False))
        elif resource.resource_type == _BROKER:
            if resource.resource_name not in ("", str(self._services.broker_id)):
                raise api_error(
                    ErrorCode.INVALID_REQUEST, f"this is broker {self._services.broker_id}; ask the one you mean"
                )
            if resource.resource_name == "":
                return []  # cluster-wide dynamic defaults: none are set through this listener
            broker = self._services.config
            for owner, keys in ((broker, BROKER_KEYS), (base, TOPIC_KEYS)):
                for key, (spec, _) in sorted(keys.items()):
                    if wanted is None or key in wanted:
                        value = getattr(owner, spec.name)
                        values = _defaults(value, spec.default)
                        entries.append(_entry(key, value, spec, values, message, is_read_only=True))
            entries += self._listeners(wanted)
        else:
            raise api_error(ErrorCode.INVALID_REQUEST, "only topics and brokers have configurations here")
        return entries

    def _listeners(self, wanted: set[str] | None) -> list[Any]:
        """Where this broker listens, under the keys by which Kafka's tools look for it."""
        known = self._services.metadata([]).brokers
        protocol = self._services.config.listener_security_protocol
        mine = next((broker for broker in known if broker.broker_id == self._services.broker_id), None)
        where = f"{protocol}://{mine.kafka_host}:{mine.kafka_port}" if mine is not None else ""
        return [
            wire.DescribeConfigsResponse.DescribeConfigsResourceResult(
                name=key, value=where, read_only=True, config_source=source, config_type=2
            )
            for key, source in (("advertised.listeners", _SOURCE_DEFAULT), ("listeners", _SOURCE_STATIC))
            if wanted is None or key in wanted
        ]

    # --- changes ---

    async def alter(self, request: Request, message: Any) -> Any:
        response = wire.AlterConfigsResponse
        return await self._alter_all(request, message, response, _replace)

    async def alter_incrementally(self, request: Request, message: Any) -> Any:
        response = wire.IncrementalAlterConfigsResponse
        return await self._alter_all(request, message, response, _increment)

    async def _alter_all(self, request: Request, message: Any, response: Any, change: Any) -> Any:
        result = response.AlterConfigsResourceResponse
        results = []
        for resource in message.resources:
            code, text = 0, None
            try:
                _check_resource(request, resource)
                await self._alter(resource, change, message.validate_only)
            except ApiError as error:
                code, text = int(error.code), str(error)
            results.append(result(code, text, resource.resource_type, resource.resource_name))
        return response(responses=results)

    async def _alter(self, resource: Any, change: Any, validate_only: bool) -> None:
        if resource.resource_type != _TOPIC:
            raise api_error(ErrorCode.INVALID_REQUEST, "only topics can be configured through this listener")
        names = [entry.name for entry in resource.configs]
        if len(set(names)) != len(names):
            raise api_error(ErrorCode.INVALID_REQUEST, "the same configuration twice")
        before = dict(await self._services.topic_overrides(resource.resource_name))
        base = self._services.config.topic
        try:
            after = change(before, resource.configs, base)
            topic_config(base, after)
        except ConfigError as error:
            raise api_error(ErrorCode.INVALID_CONFIG, str(error)) from None
        if not validate_only and after != before:
            await self._services.set_topic_overrides(resource.resource_name, after)


def _check_resource(request: Request, resource: Any) -> None:
    """Raises ApiError."""
    if resource.resource_type == _TOPIC:
        if resource.resource_name in request.denied.topics:
            raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif request.denied.cluster:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _replace(before: Mapping[str, str], changes: list[Any], base: TopicConfig) -> dict[str, str]:
    """AlterConfigs: what is not named goes back to its default."""
    return {entry.name: _value(entry) for entry in changes}


def _increment(before: Mapping[str, str], changes: list[Any], base: TopicConfig) -> dict[str, str]:
    """IncrementalAlterConfigs (KIP-339)."""
    after = dict(before)
    for entry in changes:
        if entry.name not in TOPIC_KEYS:
            raise ConfigError(f"{entry.name}: no such topic configuration")
        match entry.config_operation:
            case 0:
                after[entry.name] = _value(entry)
            case 1:
                after.pop(entry.name, None)
            case 2 | 3 if entry.name in _LISTS:
                spec, _ = TOPIC_KEYS[entry.name]
                members = [part for part in after.get(entry.name, getattr(base, spec.name)).split(",") if part]
                named = [part.strip() for part in _value(entry).split(",")]
                if entry.config_operation == _APPEND:
                    members += [part for part in named if part not in members]
                else:
                    members = [part for part in members if part not in named]
                after[entry.name] = ",".join(members)
            case _:
                raise api_error(ErrorCode.INVALID_CONFIG, f"{entry.name} is no list, or the operation is unknown")
    return after


def _value(entry: Any) -> str:
    if entry.value is None:
        raise ConfigError(f"{entry.name}: there is no value")
    return str(entry.value)


def _defaults(value: object, default: object) -> list[tuple[int, str]]:
    """Where a broker-wide value comes from, most specific first."""
    static = [(_SOURCE_STATIC, as_text(value))] if value != default else []
    return [*static, (_SOURCE_DEFAULT, as_text(default))]


def _entry(
    key: str,
    value: object,
    spec: dataclasses.Field[Any],
    values: list[tuple[int, str]],
    message: Any,
    *,
    is_read_only: bool,
) -> Any:
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
        config_type=9
        if is_secret
        else 7
        if key in _LISTS
        else 5
        if isinstance(value, int) and abs(value) >= 2**31
        else _kind(value),
        documentation=spec.metadata["doc"] if message.include_documentation else None,
    )


def _kind(value: object) -> int:
    """Kafka's ConfigDef type: BOOLEAN 1, STRING 2, LONG 5, LIST 7."""
    return next(number for kind, number in _KINDS.items() if isinstance(value, kind))
