"""Which brokers take new replicas: `broker.state`, a dynamic setting of one broker (/config/brokers/ID).

    active     (or nothing) the broker takes new replicas
    cordoned   it keeps what it has, and gets nothing new
    draining   it gets nothing new, and the controller moves its replicas to other brokers

It is a setting, so that it survives every crash, holds also for a broker that is not alive, and Kafka's own tools can read and change it.
A broker whose log directories are all cordoned (`cordoned.log.dirs`) says so in its registration, and counts as cordoned, too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.errors import ConfigError
from kafkalite.model import BrokerId, BrokerInfo

BROKER_STATE = "broker.state"
ACTIVE, CORDONED, DRAINING = "active", "cordoned", "draining"
STATES = (ACTIVE, CORDONED, DRAINING)
#: Of a broker whose log directories are all cordoned. Not a value of the setting: `broker.state` does not end it.
DISKS_CORDONED = "cordoned (cordoned.log.dirs)"


def check_state(value: str) -> str:
    """The state. Raises ConfigError."""
    if value not in STATES:
        raise ConfigError(f"{BROKER_STATE}: {value!r} is not one of {', '.join(STATES)}")
    return value


def state_of(settings: Mapping[str, str]) -> str:
    """Of a broker's own settings; what was written by hand and is no state is `active`."""
    value = settings.get(BROKER_STATE, ACTIVE)
    return value if value in STATES else ACTIVE


def changed_text(broker_id: BrokerId, state: str) -> str:
    """What a change to `state` has done. Whether the broker is alive is another matter."""
    return f"broker {broker_id} {'takes new replicas' if state == ACTIVE else f'is {state}'}"


def closed_among(settings: Mapping[BrokerId, Mapping[str, str]]) -> dict[BrokerId, str]:
    """The brokers that take no new replicas, with their states."""
    states = {broker: state_of(each) for broker, each in sorted(settings.items())}
    return {broker: state for broker, state in states.items() if state != ACTIVE}


def closed_brokers(states: Mapping[BrokerId, str], live: Iterable[BrokerInfo]) -> dict[BrokerId, str]:
    """The brokers that take no new replicas, by their states and by what live brokers registered."""
    return {info.broker_id: DISKS_CORDONED for info in live if info.is_cordoned} | dict(states)
