"""What one user takes of a node's room does not keep the others out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.fair_room import FairRoom, user_of
from kafkalite.security.principal import ANONYMOUS, Principal


def fill(room: FairRoom, user: str) -> int:
    """How much the user gets, piece by piece."""
    taken = 0
    while room.take(user):
        taken += 1
    return taken


def test_a_lone_user_gets_all_there_is_and_others_still_get_in() -> None:
    room = FairRoom(lambda: 2_000)
    assert [fill(room, user) for user in ("a", "b", "c", "d")] == [2_000, 250, 125, 63]
    assert not room.take("a") and not room.take("b")
    room.give("a", 600)
    assert not room.take("a", 600) and room.take("a", 162), "the others have taken some of it meanwhile"
    assert (room.taken, len(room)) == (2_000, 4)


def test_a_user_with_little_uses_the_reserve_when_others_have_filled_the_room() -> None:
    room = FairRoom(lambda: 100)
    assert room.take("small", 10)
    assert fill(room, "large") == 90
    assert room.take("small", 5) and not room.take("small", 50)
    room.give("small", 15)
    assert len(room) == 1


def test_counted_again() -> None:
    room = FairRoom(lambda: 10)
    assert fill(room, "a") == 10
    room.replace({"a": 3, "gone": 0})
    assert (room.taken, len(room)) == (3, 1)
    assert fill(room, "a") == 7


def test_a_user_is_a_principal_or_where_nobody_logs_in_a_host() -> None:
    assert user_of(Principal("User", "alice"), "10.0.0.1") == user_of(Principal("User", "alice"), "10.0.0.2")
    assert user_of(ANONYMOUS, "10.0.0.1") != user_of(ANONYMOUS, "10.0.0.2")
    assert user_of(ANONYMOUS, "2001:db8::1") == user_of(ANONYMOUS, "2001:db8:0:0:ffff::2"), "one host may have both"
    assert user_of(ANONYMOUS, "2001:db8::1") != user_of(ANONYMOUS, "2001:db8:0:1::1")


@given(st.integers(1, 300), st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-20, 120)), max_size=60))
def test_it_is_bounded_and_a_newcomer_gets_in(limit: int, steps: list[tuple[str, int]]) -> None:
    room = FairRoom(lambda: limit)
    held: dict[str, int] = {}
    for user, size in steps:
        if size > 0 and room.take(user, size):
            held[user] = held.get(user, 0) + size
        elif size < 0 and held.get(user, 0) >= -size:
            room.give(user, -size)
            held[user] += size
        assert room.taken == sum(held.values()) <= limit + max(limit // 4, 1)
        if len([size for size in held.values() if size]) == 1:
            assert room.has_room("newcomer")
