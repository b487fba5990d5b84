"""A node's configuration: a table of settings per area, each in a file of its own, and `BrokerConfig`, which is all of them."""

from kafkalite.config.broker.controller import ControllerSettings
from kafkalite.config.broker.coordinators import CoordinatorSettings
from kafkalite.config.broker.logs import LogSettings
from kafkalite.config.broker.node import NodeSettings
from kafkalite.config.broker.replication import ReplicationSettings
from kafkalite.config.broker.requests import RequestSettings
from kafkalite.config.broker.security import SecuritySettings
from kafkalite.config.broker.topics import TopicCreationSettings
from kafkalite.config.keys import fields_of
from kafkalite.config.topic import TopicConfig
from kafkalite.lazy_dataclass import dataclass
from kafkalite.listener_settings import PerListener


@dataclass(frozen=True, slots=True)
class BrokerConfig(
    SecuritySettings,
    CoordinatorSettings,
    ControllerSettings,
    RequestSettings,
    ReplicationSettings,
    LogSettings,
    TopicCreationSettings,
    NodeSettings,
):
    """One node's configuration, checked as a whole by `load`."""

    #: Of `listener.name.NAME.KEY`.
    per_listener: PerListener = PerListener()
    topic: TopicConfig = TopicConfig()


BROKER_KEYS = fields_of(BrokerConfig)
