"""A silent broker whose registration changes."""

from __future__ import annotations

import dataclasses

from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import Send
from kafkalite.controller.decisions.events import BrokerCleared, BrokersChanged, BrokerSuspected
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerEpoch, BrokerId, BrokerInfo, ControllerEpoch, Endpoint
from kafkalite.rpc.messages.control import UpdateMetadataRequest


def _broker(number: int) -> BrokerInfo:
    return BrokerInfo(BrokerId(number), BrokerEpoch(1), Endpoint("host", 9092), Endpoint("host", 9192))


def test_the_addresses_that_it_has_now_are_announced_when_it_answers_again() -> None:
    """Its registration fired its watch while it was silent, and was not read again later."""
    brokers = {BrokerId(number): _broker(number) for number in (1, 2)}
    state = ControllerState(BrokerId(1), ControllerEpoch(1), brokers=brokers)
    state, _ = decide(state, BrokerSuspected(BrokerId(2), BrokerEpoch(1), "does not answer"))
    moved = dataclasses.replace(brokers[BrokerId(2)], kafka=Endpoint("host", 19092))
    state, _ = decide(state, BrokersChanged({**brokers, BrokerId(2): moved}))
    state, effects = decide(state, BrokerCleared(BrokerId(2), BrokerEpoch(1)))
    assert state.brokers[BrokerId(2)] == moved and not state.suspects
    commands = [each.command for each in effects if isinstance(each, Send)]
    named = [each.brokers for each in commands if isinstance(each, UpdateMetadataRequest)]
    assert named and all(broker.kafka_port == 19092 for brokers in named for broker in brokers if broker.broker_id == 2)
