"""The room for metrics of clients is shared: one client pushes out its own, not those of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.kafka.client_instances import ClientInstances, Instance, InstanceKey, MetricsClient, MetricsSubscription
from kafkalite.kafka.client_metrics import ClientMetrics, subscription_of
from kafkalite.telemetry.otlp import Point

_CLIENT = MetricsClient("id", "orders", "librdkafka", "2.16", "10.0.0.1", "5")
_NOTHING = MetricsSubscription(1, 1000, ("",))


def _key(user: str, number: int) -> InstanceKey:
    return InstanceKey(user, number.to_bytes(16))


def _heard(room: ClientInstances, user: str, number: int) -> Instance:
    return room.heard(_key(user, number), lambda: Instance(_CLIENT, _NOTHING))


def _push(room: ClientInstances, user: str, number: int, names: int) -> int:
    """Series of this name that the instance has afterwards."""
    instance = _heard(room, user, number)
    new = [(f"m{n}", ()) for n in range(names)]
    room.make_room(_key(user, number), len([each for each in new if each not in instance.series]))
    for each in new:
        room.put(_key(user, number), each, 1.0)
    return len(instance.series)


def _of(room: ClientInstances, user: str, count: int) -> list[int]:
    """How many series each of the user's instances has; -1: it is not known."""
    found = [room.get(_key(user, number)) for number in range(count)]
    return [-1 if each is None else len(each.series) for each in found]


def test_a_client_with_ever_new_ids_pushes_out_its_own_instances() -> None:
    room = ClientInstances(10, 1000)
    for number in range(3):
        _heard(room, "honest", number)
    for number in range(1000):
        _heard(room, "hostile", number)
    assert len(room) == 10 and _of(room, "honest", 3) == [0, 0, 0]
    for number in range(5):
        _heard(room, "honest", number)
    assert _of(room, "honest", 5) == [0] * 5, "a user with less than another one gets room"
    for number in range(2000, 3000):
        _heard(room, "hostile", number)
    assert _of(room, "honest", 5) == [0] * 5


def test_of_one_user_the_instance_that_was_silent_longest_goes() -> None:
    room = ClientInstances(3, 1000)
    for number in (0, 1, 2, 0, 3):
        _heard(room, "a", number)
    assert _of(room, "a", 4) == [0, -1, 0, 0]


def test_users_with_one_instance_each_replace_the_one_silent_longest() -> None:
    room = ClientInstances(3, 1000)
    for user in "abcd":
        _heard(room, user, 0)
    assert [_of(room, user, 1) for user in "abcd"] == [[-1], [0], [0], [0]]


def test_a_client_with_many_series_pushes_out_its_own() -> None:
    room = ClientInstances(100, 100)
    assert _push(room, "honest", 0, 20) == 20
    for number in range(30):
        _push(room, "hostile", number, 50)
    assert _of(room, "honest", 1) == [20]
    assert sum(_of(room, "hostile", 30)) == 80
    assert _push(room, "honest", 0, 45) == 45, "the share of a user with less comes from the user with more"
    for number in range(30):
        _push(room, "hostile", number, 50)
    assert _of(room, "honest", 1) == [45]
    assert _push(room, "newcomer", 0, 30) >= 25


def test_within_a_user_instances_share() -> None:
    room = ClientInstances(100, 100)
    assert _push(room, "a", 0, 100) == 100
    assert _push(room, "a", 1, 100) == 50
    assert _push(room, "a", 2, 10) == 10
    assert sum(_of(room, "a", 3)) == 100


def test_shares_come_to_rest() -> None:
    """Two that want more than there is do not push out each other's for ever."""
    room = ClientInstances(100, 101)
    for _ in range(3):
        _push(room, "a", 0, 100)
        _push(room, "b", 0, 100)
    before = [dict(each.series) for each in room]
    for _ in range(3):
        _push(room, "a", 0, 100)
        _push(room, "b", 0, 100)
    assert [dict(each.series) for each in room] == before


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 8), st.integers(0, 30)), max_size=60))
def test_room_is_bounded_and_counted(steps: list[tuple[str, int, int]]) -> None:
    room = ClientInstances(7, 40)
    for user, number, names in steps:
        _push(room, user, number, names)
        held = list(room)
        assert len(room) == len(held) <= 7
        assert 40 - room.room == sum(len(each.series) for each in held) <= 40


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=60), st.integers(1, 20))
def test_a_user_within_its_share_loses_nothing(steps: list[tuple[int, int]], names: int) -> None:
    """Half of the room is the share of one of two users, whatever the other one does."""
    room = ClientInstances(6, 40)
    for number in range(3):
        _heard(room, "honest", number)
    assert _push(room, "honest", 0, names) == names
    for number, hostile in steps:
        _push(room, "hostile", number, hostile)
        assert _of(room, "honest", 3) == [names, 0, 0]


@pytest.mark.parametrize("hostile", ["User:me", "User:mallory"])
def test_another_users_instance_is_another_one(hostile: str) -> None:
    """A client cannot end or change what another user's instance has pushed, if it knows that one's id."""
    settings = {"s": {"metrics": "a.", "interval.ms": "1000"}}
    metrics = ClientMetrics(lambda: settings, lambda: 0)
    wanted = subscription_of(_CLIENT, settings).subscription_id
    metrics.check_push(_key("User:me", 1), _CLIENT, wanted, 1, is_last=False)
    metrics.took(_key("User:me", 1), [Point("a.b", (), 1.0, is_delta=False)])
    metrics.check_push(_key(hostile, 1), _CLIENT, wanted, 1, is_last=True)
    assert [value for *_, value in metrics.shown()] == ([1.0] if hostile != "User:me" else [])


def test_series_of_clients_that_were_killed_go_first() -> None:
    now = 0
    settings = {"s": {"metrics": "a.", "interval.ms": "1000"}}
    metrics = ClientMetrics(lambda: settings, lambda: now)
    wanted = subscription_of(_CLIENT, settings).subscription_id
    points = [Point(f"a.{n}", (), 1.0, is_delta=False) for n in range(200)]

    def push(user: str, number: int) -> None:
        metrics.check_push(_key(user, number), _CLIENT, wanted, 1, is_last=False)
        metrics.took(_key(user, number), points)

    for number in range(24):
        push("killed", number)
    now = 3_000
    push("alive", 0)
    now = 3_500
    push("other", 0)
    assert sum(1 for _ in metrics.shown()) == 400
