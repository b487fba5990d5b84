"""AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.config import (
    ALIASES,
    BROKER_KEYS,
    CORDONED_LOG_DIRS,
    TOPIC_KEYS,
    UNITS,
    TopicConfig,
    check_cordoned,
    check_dynamic,
    is_dynamic,
    is_limit,
    kafka_listeners,
    parse_limit,
    topic_config,
    topic_settings,
)
from kafkalite.coordination.broker_states import BROKER_STATE, check_state, state_of
from kafkalite.coordination.topic_configs import BROKERS, TOPICS, broker_entity
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE, is_topic_name
from kafkalite.kafka.handlers.configs.entities import ENTITIES, Change, EntityConfigs
from kafkalite.kafka.handlers.configs.resources import BROKER, LISTS, TOPIC, broker_of, canonical, check_resource
from kafkalite.kafka.handlers.configs.true_values import TRUE_VALUES
from kafkalite.kafka.request import Handler, Request
from kafkalite.listener_settings import split
from kafkalite.listeners import ADVERTISED
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import SETTINGS

_SET, _DELETE, _APPEND = 0, 1, 2
#: Configurations of one resource in one request: there are some hundred names.
_MOST_CONFIGS = 1_000
#: Attempts at a change that others keep winning.
_ATTEMPTS = 20


if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Altered = wire.AlterConfigsRequest.AlterConfigsResource | wire.IncrementalAlterConfigsRequest.AlterConfigsResource
    _Setting = wire.AlterConfigsRequest.AlterableConfig | wire.IncrementalAlterConfigsRequest.AlterableConfig


class AlterConfigHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._entities = EntityConfigs(services)

    def table(self) -> dict[str, Handler]:
        return {"AlterConfigs": self.alter, "IncrementalAlterConfigs": self.alter_incrementally}

    async def alter(self, request: Request, message: wire.AlterConfigsRequest) -> wire.AlterConfigsResponse:
        response = wire.AlterConfigsResponse
        results = await self._alter_all(request, message, _replace)
        return response(responses=[response.AlterConfigsResourceResponse(*result) for result in results])

    async def alter_incrementally(
        self, request: Request, message: wire.IncrementalAlterConfigsRequest
    ) -> wire.IncrementalAlterConfigsResponse:
        response = wire.IncrementalAlterConfigsResponse
        results = await self._alter_all(request, message, _increment)
        return response(responses=[response.AlterConfigsResourceResponse(*result) for result in results])

    async def _alter_all(
        self,
        request: Request,
        message: wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest,
        change: Change,
    ) -> list[tuple[int, str | None, int, str]]:
        """Error code, its text, type and name of each resource."""
        results = []
        times = Counter((resource.resource_type, resource.resource_name) for resource in message.resources)
        for resource in message.resources:
            code, text = 0, None
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise api_error(ErrorCode.INVALID_REQUEST, "the resource is named twice")
                check_resource(request, resource)
                await self._alter(resource, change, validate_only=message.validate_only)
            except ApiError as error:
                code, text = int(error.code), str(error)
            results.append((code, text, resource.resource_type, resource.resource_name))
        if not message.validate_only and not all(code for code, *_ in results):
            await self._services.known_everywhere(SETTINGS)
        return results

    async def _alter(self, resource: _Altered, change: Change, *, validate_only: bool) -> None:
        if len(resource.configs) > _MOST_CONFIGS:
            raise api_error(ErrorCode.INVALID_REQUEST, f"more than {_MOST_CONFIGS} configurations of one resource")
        names = [ALIASES.get(entry.name, entry.name) for entry in resource.configs]
        if len(set(names)) != len(names):
            raise api_error(ErrorCode.INVALID_REQUEST, "the same configuration twice")
        if missing := [entry.name for entry in resource.configs if entry.value is None and not _is_delete(entry)]:
            raise api_error(ErrorCode.INVALID_REQUEST, f"{', '.join(missing)}: there is no value")
        for _ in range(_ATTEMPTS):
            try:
                if await self._altered(resource, change, validate_only=validate_only):
                    return
            except ConfigError as error:
                # Of a broker it is INVALID_REQUEST, as with Kafka, which keeps that for old programs (KAFKA-13609).
                is_broker = resource.resource_type == BROKER
                code = ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG
                raise api_error(code, str(error)) from None
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "others keep changing these settings: try again")

    async def _altered(self, resource: _Altered, change: Change, *, validate_only: bool) -> bool:
        """False: somebody else has changed the settings meanwhile. Raises ApiError, ConfigError."""
        if resource.resource_type == TOPIC:
            return await self._alter_topic(resource, change, validate_only=validate_only)
        if resource.resource_type == BROKER:
            return await self._alter_broker(resource, change, validate_only=validate_only)
        if resource.resource_type in ENTITIES:
            kind, name = resource.resource_type, resource.resource_name
            return await self._entities.alter(kind, name, resource.configs, change, validate_only=validate_only)
        raise api_error(ErrorCode.INVALID_REQUEST, f"nothing of type {resource.resource_type} has configurations")

    async def _alter_topic(self, resource: _Altered, change: Change, *, validate_only: bool) -> bool:
        if not resource.resource_name:
            raise api_error(ErrorCode.INVALID_REQUEST, "the topic has no name")
        if not is_topic_name(resource.resource_name):
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAME_RULE)
        before = dict(await self._services.topic_overrides(resource.resource_name))
        base = self._services.config.topic
        for entry in resource.configs:
            if entry.name not in TOPIC_KEYS and not _is_delete(entry):
                raise ConfigError(f"{entry.name}: no such topic configuration")
        after = change(before, resource.configs, _lists(base))
        topic_config(base, after)
        unchanged = validate_only or after == before
        return unchanged or await self._services.replace_entity_overrides(TOPICS, resource.resource_name, before, after)

    async def _alter_broker(self, resource: _Altered, change: Change, *, validate_only: bool) -> bool:
        """Of one broker, or with an empty name of all of them (KIP-226)."""
        broker_id = broker_of(resource.resource_name)
        _check_names([entry.name for entry in resource.configs if not _is_delete(entry)], broker_id)
        settings = await self._services.entity_overrides(BROKERS, broker_entity(broker_id))
        before = canonical({key: value for key, value in settings.items() if _is_changeable(key)})
        # What was written by hand.
        others = {key: value for key, value in settings.items() if not _is_changeable(key)}
        after = change(before, resource.configs, _lists(self._services.config.topic))
        if change is _replace:  # limits belong to the moves under way: they change only if they are named
            after = {key: value for key, value in before.items() if is_limit(key) or key == BROKER_STATE} | after
        for key, value in after.items():
            _check_value(key, value)
        topic_config(TopicConfig(), topic_settings(after))  # valid one by one, they may contradict each other
        if broker_id == self._services.broker_id and ADVERTISED in after:
            kafka_listeners(dataclasses.replace(self._services.static_config, advertised_listeners=after[ADVERTISED]))
        if broker_id is not None and (cordoned := after.get(CORDONED_LOG_DIRS, "")) != before.get(
            CORDONED_LOG_DIRS, ""
        ):
            if broker_id != self._services.broker_id:
                text = f"{CORDONED_LOG_DIRS}: broker {broker_id} knows its directories; send the request to that broker"
                raise api_error(ErrorCode.INVALID_REQUEST, text)
            check_cordoned(self._services.static_config.log_dirs, cordoned)
        if broker_id is not None and (state := state_of(after)) != state_of(before):
            await self._services.check_broker_state(broker_id, state)
        unchanged = validate_only or after == before
        return unchanged or await self._services.replace_entity_overrides(
            BROKERS, broker_entity(broker_id), settings, {**others, **after}
        )


def _check_names(wanted: Sequence[str], broker_id: BrokerId | None) -> None:
    """Whether they can be set, for one broker or (None) for the cluster. Raises ApiError, ConfigError."""
    fixed = [name for name in wanted if not _is_changeable(name)]
    if fixed:
        names = ", ".join(fixed)
        if all(map(_is_known, fixed)):
            facts = [f"{name} is no setting here ({TRUE_VALUES[name][2]})" for name in fixed if name in TRUE_VALUES]
            why = "; ".join(facts) if facts and fixed != ["node.id"] else "they need a restart"
            text = f"Cannot update these configs dynamically: [{names}]; {why}"
        else:
            text = f"{names}: no such broker configuration"
        raise api_error(ErrorCode.INVALID_REQUEST, text)
    if broker_id is not None:
        if limits := [name for name in wanted if is_limit(name)]:
            raise ConfigError(f"{', '.join(limits)}: holds for the cluster, not for one broker")
        return
    for name in (BROKER_STATE, ADVERTISED, CORDONED_LOG_DIRS):
        if name in wanted:
            raise ConfigError(f"{name}: holds for one broker, not for the cluster")


def _check_value(key: str, value: str) -> None:
    """Raises ConfigError."""
    if key == BROKER_STATE:
        check_state(value)
    elif not is_limit(key):
        check_dynamic(key, value)
    elif parse_limit(value) is None:
        raise ConfigError(f"{key}: {value!r} is not an integer of at least 1")


def _is_changeable(name: str) -> bool:
    """Whether a broker's or the cluster's setting of this name can change while nodes run."""
    return name == BROKER_STATE or is_dynamic(name) or is_limit(name)


def _is_known(name: str) -> bool:
    """Whether a configuration file may have it, or DescribeConfigs shows it."""
    return ALIASES.get(name, name) in BROKER_KEYS or name in UNITS or name in TRUE_VALUES or split(name) is not None


def _is_delete(entry: _Setting) -> bool:
    """Kafka's tools delete what they have never set; that changes nothing, whatever its name."""
    return getattr(entry, "config_operation", _SET) == _DELETE


def _lists(base: TopicConfig) -> dict[str, str]:
    """Keys that are lists, and the values that hold where nothing is set."""
    return {key: getattr(base, TOPIC_KEYS[key][0].name) if key in TOPIC_KEYS else "" for key in LISTS}


def _replace(before: Mapping[str, str], changes: Sequence[_Setting], lists: Mapping[str, str]) -> dict[str, str]:
    """AlterConfigs: what is not named goes back to its default."""
    return {ALIASES.get(entry.name, entry.name): entry.value or "" for entry in changes}


def _increment(
    before: Mapping[str, str],
    changes: Sequence[wire.IncrementalAlterConfigsRequest.AlterableConfig],
    lists: Mapping[str, str],
) -> dict[str, str]:
    """IncrementalAlterConfigs (KIP-339)."""
    after = dict(before)
    for entry in changes:
        key = ALIASES.get(entry.name, entry.name)
        match entry.config_operation:
            case 0:  # SET
                after[key] = entry.value or ""
            case 1:  # DELETE
                after.pop(key, None)
            case 2 | 3 if key in lists:  # APPEND, SUBTRACT
                members = [part.strip() for part in after.get(key, lists[key]).split(",") if part.strip()]
                named = [part.strip() for part in (entry.value or "").split(",")]
                if entry.config_operation == _APPEND:
                    known = set(members)
                    members += [part for part in named if part not in known]
                else:
                    gone = set(named)
                    members = [part for part in members if part not in gone]
                after[key] = ",".join(members)
            case _:
                raise api_error(ErrorCode.INVALID_CONFIG, f"{entry.name} is not a list, or the operation is unknown")
    return after
