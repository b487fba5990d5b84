"""Which level of a feature is in force (KIP-584)."""

from __future__ import annotations

import pytest

from kafkalite import features
from kafkalite.features import Finalized, finalized, why_not
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.messages.control import Broker

ELR = {"eligible.leader.replicas.version": 1}


@pytest.fixture(autouse=True)
def _groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "SUPPORTED", {**features.SUPPORTED, "group.version": (0, 1)})


def broker(number: int, transaction_version: int = 2, **known: int) -> Broker:
    levels = tuple((name.replace("_", "."), level) for name, level in known.items())
    return Broker(BrokerId(number), BrokerEpoch(number), "h", 1, "h", 2, None, transaction_version, 1, features=levels)


def test_without_a_choice_the_highest_common_level_holds() -> None:
    assert finalized([broker(1, group_version=1)], {}).levels == {**ELR, "transaction.version": 2, "group.version": 1}
    assert "group.version" not in finalized([broker(1, group_version=1), broker(2)], {}).levels
    assert finalized([broker(1, group_version=9)], {}).levels["group.version"] == 1


def test_a_choice_lowers_the_level_and_never_raises_it_above_the_brokers() -> None:
    both = [broker(1, group_version=1), broker(2, group_version=1)]
    assert "group.version" not in finalized(both, {"group.version": "0"}).levels
    assert finalized(both, {"transaction.version": "1"}).levels["transaction.version"] == 1
    assert "group.version" not in finalized([*both, broker(3)], {"group.version": "1"}).levels


def test_eligible_leader_replicas_are_never_off() -> None:
    assert finalized([broker(1)], {"eligible.leader.replicas.version": "0"}).levels == {**ELR, "transaction.version": 2}


def test_the_epoch_rises_with_registrations_and_with_choices() -> None:
    assert finalized([broker(1), broker(7)], {}).epoch == 7
    assert finalized([broker(1), broker(7)], {}, 9).epoch == 9
    assert finalized([broker(1), broker(12)], {}, 9).epoch == 12
    assert finalized([], {}, 9) == Finalized(-1, {})


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0", "9" * 30, "١"])
def test_levels_written_by_hand_that_are_none_do_not_hold(text: str) -> None:
    assert finalized([broker(1, group_version=1)], {"group.version": text}) == Finalized(
        1, {**ELR, "transaction.version": 2, "group.version": 1}
    )


@pytest.mark.parametrize(
    ("name", "level", "text"),
    [
        ("group.version", 1, ""),
        ("group.version", 0, ""),
        ("group.version", 2, "Local broker only supports versions 0-1"),
        ("group.version", -1, "Local broker only supports versions 0-1"),
        ("eligible.leader.replicas.version", 0, "Local broker only supports versions 1-1"),
        ("metadata.version", 20, "does not know the feature"),
        ("transaction.version", 2, "Broker 2 only supports versions 0-1"),
        ("transaction.version", 1, ""),
    ],
)
def test_why_a_level_cannot_be_chosen(name: str, level: int, text: str) -> None:
    brokers = [broker(1, group_version=1), broker(2, 1, group_version=1)]
    why = why_not(name, level, brokers)
    assert (text in why) if text else not why
