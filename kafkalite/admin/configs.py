"""The dynamic settings of topics, brokers and the cluster: read, checked, written (any node)."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping

from kafkalite.config import (
    BROKER_KEYS,
    TopicConfig,
    check_dynamic,
    is_limit,
    parse_limit,
    topic_config,
)
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.topic_configs import BROKERS, TOPICS, read_config, write_config
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.extension.messages.configs import DescribeBrokerSettingsRequest, DescribeBrokerSettingsResponse
from kafkalite.rpc.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)


class ConfigAdmin:
    """One per node."""

    def __init__(
        self,
        session: Callable[[], Awaitable[Coordinator]],
        effective: Callable[[str, Mapping[str, str]], TopicConfig],
    ) -> None:
        """`effective`: a topic's effective configuration, from its own settings."""
        self._session = session
        self._effective = effective

    async def describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """An entity's own settings, and for topics all that holds for them."""
        try:
            zk = await self._session()
            await self._check_entity(zk, request.entity_type, request.entity_name)
            settings = await read_config(zk, request.entity_type, request.entity_name)
            effective = None
            if request.entity_type == TOPICS:
                effective = _as_text(self._effective(request.entity_name, settings))
        except ApiError as refusal:
            return DescribeConfigsResponse(refusal.code, str(refusal))
        except (CoordinatorError, ZnodeError) as error:
            return DescribeConfigsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return DescribeConfigsResponse(ErrorCode.NONE, "", settings, effective)

    async def describe_broker(self, request: DescribeBrokerSettingsRequest) -> DescribeBrokerSettingsResponse:
        """A broker's own settings, as ZooKeeper has them."""
        try:
            settings = await read_config(await self._session(), BROKERS, str(request.broker_id))
        except ApiError as refusal:
            return DescribeBrokerSettingsResponse(refusal.code, str(refusal))
        except (CoordinatorError, ZnodeError) as error:
            return DescribeBrokerSettingsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return DescribeBrokerSettingsResponse(ErrorCode.NONE, "", settings)

    async def alter(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        """Set and delete keys of one entity, all or nothing."""
        try:
            zk = await self._session()
            await self._check_entity(zk, request.entity_type, request.entity_name)
            for key, value in sorted(request.changes.items()):
                _check(request.entity_type, key, value)
            changes: Mapping[str, str | None] = {**request.changes, **dict.fromkeys(request.deletions)}
            settings = await write_config(zk, request.entity_type, request.entity_name, changes)
        except ApiError as refusal:
            return AlterConfigsResponse(refusal.code, str(refusal))
        except ConfigError as error:
            return AlterConfigsResponse(ErrorCode.INVALID_CONFIG, str(error))
        except (CoordinatorError, ZnodeError) as error:
            return AlterConfigsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return AlterConfigsResponse(ErrorCode.NONE, "", settings)

    async def _check_entity(self, zk: Coordinator, entity_type: str, name: str) -> None:
        if entity_type == TOPICS:
            if await zk.exists(paths.topic(name)) is None:
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        elif entity_type != BROKERS or not (name == paths.DEFAULT_ENTITY or name.isdigit()):
            raise api_error(
                ErrorCode.INVALID_REQUEST, f"{entity_type}/{name}: neither a topic, a broker nor the cluster"
            )


def _check(entity_type: str, key: str, value: str) -> None:
    """Raises ConfigError."""
    if entity_type == TOPICS:
        topic_config(TopicConfig(), {key: value})
    elif is_limit(key):
        if parse_limit(value) is None:
            raise ConfigError(f"{key}: {value!r} is not an integer of at least 1")
    elif key in BROKER_KEYS and BROKER_KEYS[key][0].metadata["secret"]:
        raise ConfigError(f"{key}: a secret is not kept in ZooKeeper; configure it on the node")
    else:
        check_dynamic(key, value)


def unusable_setting(entity_type: str, settings: Mapping[str, str]) -> str | None:
    """Why one of these, written by hand, does not hold; None: all do."""
    try:
        for key, value in sorted(settings.items()):
            _check(entity_type, key, value)
        if entity_type == TOPICS:
            topic_config(TopicConfig(), settings)  # each by itself may be sound, and all together not
    except ConfigError as error:
        return str(error)
    return None


def _as_text(config: TopicConfig) -> dict[str, str]:
    values = dataclasses.asdict(config)
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in sorted(values.items())
    }
