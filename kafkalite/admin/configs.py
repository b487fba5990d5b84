"""The dynamic settings of topics, brokers and the cluster: a broker's own are described, and what cannot hold is found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kafkalite.config import (
    BROKER_KEYS,
    TopicConfig,
    check_dynamic,
    is_limit,
    parse_limit,
    topic_config,
    topic_settings,
)
from kafkalite.coordination.broker_states import BROKER_STATE, check_state
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.topic_configs import BROKERS, TOPICS, read_config
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ApiError, ConfigError, ErrorCode
from kafkalite.extension.messages.configs import DescribeBrokerSettingsRequest, DescribeBrokerSettingsResponse


class ConfigAdmin:
    """One per node."""

    def __init__(self, session: Callable[[], Awaitable[Coordinator]]) -> None:
        self._session = session

    async def describe_broker(self, request: DescribeBrokerSettingsRequest) -> DescribeBrokerSettingsResponse:
        """A broker's own settings, as ZooKeeper has them."""
        try:
            settings = await read_config(await self._session(), BROKERS, str(request.broker_id))
        except ApiError as refusal:
            return DescribeBrokerSettingsResponse(refusal.code, str(refusal))
        except (CoordinatorError, ZnodeError) as error:
            return DescribeBrokerSettingsResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return DescribeBrokerSettingsResponse(ErrorCode.NONE, "", settings)


def _check(entity_type: str, key: str, value: str) -> None:
    """Raises ConfigError."""
    if entity_type == TOPICS:
        topic_config(TopicConfig(), {key: value})
    elif key == BROKER_STATE:
        check_state(value)
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
        # Settings that are valid one by one may contradict each other.
        topic_config(TopicConfig(), settings if entity_type == TOPICS else topic_settings(settings))
    except ConfigError as error:
        return str(error)
    return None
