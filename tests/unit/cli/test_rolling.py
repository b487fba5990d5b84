"""`admin rolling-restart` goes on when the broker that it has restarted is registered again, and not before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.results import Metadata
from kafkalite.errors import ApiError
from kafkalite.extension.messages.watching import DescribeClusterResponse
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch
from kafkalite.protocol import wire
from kafkalite.rpc.messages.control import Broker
from kafkalite_cli.admin import rolling
from kafkalite_cli.output import Output


class Client:
    """Broker 2 has these epochs, one look after the other."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = list(epochs)
        self.timeout_s = 1.0
        self._now = 0.0

    def now(self) -> float:
        self._now += 0.1
        return self._now

    async def describe_cluster(self) -> DescribeClusterResponse:
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        broker = Broker(BrokerId(2), BrokerEpoch(epoch), "localhost", 1, "localhost", 2)
        return DescribeClusterResponse("c", BrokerId(1), ControllerEpoch(1), (broker,))

    async def describe_topics(self) -> Metadata:
        return Metadata("c", BrokerId(1), (), ())

    async def call_controller(self, request: Any) -> wire.ElectLeadersResponse:
        return wire.ElectLeadersResponse()


async def test_an_epoch_of_before_the_restart_is_not_taken_for_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's session had ended since the plan was made; a second broker must not go while this one is away."""
    monkeypatch.setattr(rolling, "_LOOK_S", 0)
    client = Client(5, 9, 9, 9, 12)
    (step,) = await rolling._steps(cast(AsyncClient, client), (BrokerId(2),), "true")
    await rolling._restart(cast(AsyncClient, client), step, 60.0, Output(as_json=True))
    assert client.epochs == [12]


async def test_a_wait_that_takes_long_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten minutes of silence, if the command restarts nothing."""
    monkeypatch.setattr(rolling, "_LOOK_S", 0)
    client = Client(5)
    (step,) = await rolling._steps(cast(AsyncClient, client), (BrokerId(2),), "true")
    with pytest.raises(ApiError, match="broker 2 has not registered again within 60 s"):
        await rolling._restart(cast(AsyncClient, client), step, 60.0, Output(as_json=True))
    said = capsys.readouterr().err.splitlines()
    assert said == ["note: broker 2 has not registered again yet; waiting up to 60 s (--step-timeout)"]
