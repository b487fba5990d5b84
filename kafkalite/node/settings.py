"""The node's settings: its file, what was changed in ZooKeeper since, and the topics' own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from kafkalite.admin.acls import AclManager
from kafkalite.admin.configs import unusable_setting
from kafkalite.config import BrokerConfig, TopicConfig, internal_topic_config, usable_topic_config, with_dynamic
from kafkalite.coordination import paths
from kafkalite.coordination.broker_states import closed_among
from kafkalite.coordination.topic_configs import BROKERS, CLIENTS, IPS, TOPICS, USERS, TopicConfigs
from kafkalite.env.seams import Clock
from kafkalite.model import INTERNAL_TOPICS, BrokerId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class SettingsEvents(Protocol):
    """Receives changed settings."""

    def topic_changed(self, topic: str) -> None:
        """The topic's configuration is another one now."""

    def user_changed(self, user: str) -> None:
        """A credential of the user may not count any more."""

    def cluster_changed(self) -> None:
        """The settings of all brokers, or of one, are others."""

    def reconfigured(self, before: BrokerConfig) -> None:
        """This node's configuration is another one now."""


class CurrentSettings:
    """What holds now. `static` is without what was changed since the start.

    Attributes:
        configs: settings as ZooKeeper has them.
        unusable: path of settings -> which of them cannot be used.
        events: set before anything is loaded.
    """

    events: SettingsEvents

    def __init__(self, config: BrokerConfig, clock: Clock, rights: AclManager) -> None:
        self.static = self.now = config
        self.configs = TopicConfigs(self._changed, clock.monotonic)
        self.unusable: dict[str, str] = {}
        self._rights = rights
        self._broker_id = BrokerId(config.broker_id)
        #: Whether internal topics flush before they acknowledge because another topic does.
        self._internal_topics_flush = False

    def current(self) -> BrokerConfig:
        """The configuration, with dynamic settings."""
        return self.now

    def cluster(self) -> Mapping[str, str]:
        """The dynamic settings of all brokers."""
        return self.configs.broker(None)

    def topic_config(self, topic: str) -> TopicConfig:
        """A topic's configuration: the broker's defaults with the topic's own settings on top, as far as they can be used."""
        return self.effective_topic_config(topic, self.configs.topic(topic))

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """A topic's effective configuration on this node."""
        if topic in INTERNAL_TOPICS:
            return internal_topic_config(self.now, topic, overrides, others_flush=self.configs.any_flushes)
        return usable_topic_config(self.now.topic, overrides)

    def broker_states(self) -> dict[BrokerId, str]:
        """The brokers that take no new replicas, with their `broker.state`, as this node has heard."""
        return closed_among({BrokerId(number): own for number, own in self.configs.brokers().items()})

    def _changed(self, entity_type: str, name: str, settings: dict[str, str]) -> None:
        if entity_type in (TOPICS, BROKERS):
            path = paths.config_entity(entity_type, name)
            self.unusable.pop(path, None)
            if (reason := unusable_setting(entity_type, settings)) is not None:
                self.unusable[path] = f"{reason}; the other settings hold"
                _log.error("config.unusable", path=path, reason=reason)
        if entity_type == TOPICS:
            self.events.topic_changed(name)
            if self._internal_topics_flush != self.configs.any_flushes:
                self._internal_topics_flush = self.configs.any_flushes
                for internal in sorted(INTERNAL_TOPICS):
                    self.events.topic_changed(internal)
        elif entity_type in (USERS, CLIENTS, IPS):
            self._rights.config_changed(entity_type, name, settings)
            if entity_type == USERS:
                self._user_changed(name)
        else:
            self.events.cluster_changed()
            self._take_dynamic()

    def _user_changed(self, name: str) -> None:
        try:
            user = paths.desanitize(name)
        except ValueError:
            return  # the quotas of one of a user's clients, or written by hand
        self.events.user_changed(user)

    def _take_dynamic(self) -> None:
        """The settings of all brokers, or this one's, have changed in ZooKeeper: apply what differs."""
        before = self.now
        self.now = with_dynamic(self.static, self.configs.broker(None), self.configs.broker(self._broker_id))
        if self.now != before:
            _log.info("node.reconfigured", **_differences(before, self.now))
            self.events.reconfigured(before)


def _differences(before: BrokerConfig, after: BrokerConfig) -> dict[str, str]:
    """Changed keys (with underscores), as "before -> after"."""
    pairs: list[tuple[object, object, str]] = [
        (before.topic, after.topic, field.name) for field in dataclasses.fields(TopicConfig)
    ]
    pairs += [(before, after, field.name) for field in dataclasses.fields(BrokerConfig) if field.metadata]
    return {
        name: f"{getattr(old, name)} -> {getattr(new, name)}"
        for old, new, name in pairs
        if getattr(old, name) != getattr(new, name)
    }
