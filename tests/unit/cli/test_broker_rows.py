from __future__ import annotations

import pytest

from kafkalite.extension.messages.balancing import BrokerBalance
from kafkalite.model import BrokerId
from kafkalite_cli.admin.broker import broker_rows


@pytest.mark.parametrize(
    ("replicas", "leaving", "text"),
    [
        (3, 0, "draining"),
        (0, 2, "draining: 2 replicas being moved away"),
        (0, -1, "draining"),
        (0, 0, "drained: may be stopped"),
    ],
)
def test_a_broker_may_be_stopped_when_nothing_is_left_or_leaving(replicas: int, leaving: int, text: str) -> None:
    row = BrokerBalance(BrokerId(1), "draining", "", replicas, 0, 0, 0, 0, leaving=leaving)
    assert broker_rows((row,))[0][1] == text
