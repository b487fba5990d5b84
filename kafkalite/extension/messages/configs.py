"""Settings of brokers."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class DescribeBrokerSettingsRequest(Message):
    """The dynamic settings of one broker, which need not be alive: Kafka's DescribeConfigs can only ask the broker."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class DescribeBrokerSettingsResponse(Message):
    error: int
    message: str = ""
    settings: dict[str, str] | None = None
