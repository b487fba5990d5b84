"""The classic group protocol, event by event, without a clock or a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.coordinators.groups.decisions.classic import rebalance
from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember, GroupState
from kafkalite.coordinators.groups.decisions.classic.rebalance import MAX_PROTOCOLS
from kafkalite.coordinators.groups.decisions.subscription import wants_the_same
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode

SESSION = 10_000
#: What the members of `Bench.stable("a")` subscribe with.
SAME = (("range", b"m-join-a"),)
REBALANCE = 30_000


class Bench:
    """A group and its clock; collects effects by token (a word per request)."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.group = Group("g", initial_rebalance_delay_ms=delay_ms)
        self.now = 1_000
        self.answers: dict[object, Any] = {}
        self.orders: list[StoreGroup] = []

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreGroup):
                self.orders.append(effect)
            else:
                assert effect.token not in self.answers, "answered twice"
                self.answers[effect.token] = effect

    def join(self, token: str, member_id: str = "", **fields: Any) -> JoinAnswer | None:
        values: dict[str, Any] = {
            "new_member_id": f"id-{token}",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": SESSION,
            "rebalance_timeout_ms": REBALANCE,
            "protocol_type": "consumer",
            "protocols": (("range", b"m-" + token.encode()),),
        }
        self.take(self.group.join(JoinRequest(token=token, member_id=member_id, **(values | fields)), self.now))
        return self.answers.get(token)

    def sync(self, token: str, member_id: str, **fields: Any) -> SyncAnswer | None:
        values: dict[str, Any] = {
            "instance_id": None,
            "generation": self.group.generation,
            "protocol_type": "consumer",
            "protocol": "range",
            "assignments": {},
        }
        self.take(self.group.sync(SyncRequest(token=token, member_id=member_id, **(values | fields)), self.now))
        return self.answers.get(token)

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.take(self.group.stored(self.orders.pop(), error, self.now))

    def wait(self, milliseconds: int) -> None:
        """Time passes; `tick` is called only when the group asked for it."""
        until = self.now + milliseconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
        self.now = until

    def stable(self, *names: str, **fields: Any) -> list[str]:
        """Members of a stable group; the first one leads."""
        ids: list[str] = []
        for name in names:
            self.join(f"join-{name}", **fields)
            if ids:  # those that were here rejoin
                for known in ids:
                    self.join(f"rejoin-{known}-for-{name}", known)
                ids.append(f"id-join-{name}")
            else:
                ids.append(f"id-join-{name}")
        leader = self.group.leader
        assert leader is not None
        self.sync("sync-leader", leader, assignments={each: each.encode() for each in ids})
        self.store()
        for each in ids:
            if each != leader:
                self.sync(f"sync-{each}", each)
        assert self.group.state is GroupState.STABLE
        self.answers.clear()
        return ids


def test_one_member_joins_leads_and_gets_its_assignment() -> None:
    bench = Bench()
    answer = bench.join("j")
    assert answer is not None
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, "id-j")
    assert answer.members == (("id-j", None, b"m-j"),)
    assert bench.sync("s", "id-j", assignments={"id-j": b"mine"}) is None  # not before it is stored
    bench.store()
    assert bench.answers["s"].assignment == b"mine"
    assert bench.group.state is GroupState.STABLE


def test_a_second_member_makes_the_first_rejoin() -> None:
    bench = Bench()
    [first] = bench.stable("a")
    assert bench.join("b") is None
    assert bench.group.heartbeat(first, None, 1, bench.now) is ErrorCode.REBALANCE_IN_PROGRESS
    leader = bench.join("a2", first)
    assert leader is not None and leader.generation == 2
    assert {member for member, _, _ in leader.members} == {first, "id-b"}
    follower = bench.answers["b"]
    assert (follower.members, follower.leader, follower.generation) == ((), first, 2)


def test_the_followers_sync_waits_for_the_leaders() -> None:
    bench = Bench()
    bench.stable("a")
    bench.join("b")
    bench.join("a2", "id-join-a")
    assert bench.sync("sb", "id-b") is None
    bench.sync("sa", "id-join-a", assignments={"id-b": b"B"})
    bench.store()
    assert bench.answers["sb"].assignment == b"B"
    assert bench.answers["sa"].assignment == b""


def test_a_failed_store_sends_everybody_back_to_join() -> None:
    bench = Bench()
    bench.join("a")
    bench.sync("s", "id-a", assignments={"id-a": b"x"})
    bench.store(ErrorCode.NOT_COORDINATOR)
    assert bench.answers["s"].error is ErrorCode.NOT_COORDINATOR
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_silent_member_is_dropped_after_its_session_timeout() -> None:
    bench = Bench()
    first, second = bench.stable("a", "b")
    for _ in range(4):
        bench.wait(SESSION // 2)
        assert bench.group.heartbeat(first, None, bench.group.generation, bench.now) in (
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
        )
    assert second not in bench.group.members
    answer = bench.join("again", first)
    assert answer is not None and [member for member, _, _ in answer.members] == [first]


def test_whoever_does_not_rejoin_in_the_rebalance_timeout_is_out() -> None:
    bench = Bench()
    first, second = bench.stable("a", "b")
    assert bench.join("a2", first, protocols=(("range", b"new"),)) is None
    for _ in range(5):  # the second one is alive, but never joins again
        bench.wait(REBALANCE // 5 - 1_000)
        bench.group.heartbeat(second, None, bench.group.generation, bench.now)
    bench.wait(5_001)
    assert bench.answers["a2"].error is ErrorCode.NONE
    assert set(bench.group.members) == {first}


def test_whoever_does_not_sync_in_the_rebalance_timeout_is_out() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.join("a2", "id-a")
    generation = bench.group.generation
    assert bench.sync("sb", "id-b") is None
    for _ in range(8):
        bench.wait(REBALANCE // 8)
        bench.group.heartbeat("id-a", None, generation, bench.now)
    assert bench.answers["sb"].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert "id-a" not in bench.group.members


def test_member_id_required_then_known() -> None:
    bench = Bench()
    answer = bench.join("a", requires_known_member_id=True)
    assert answer is not None
    assert (answer.error, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "id-a")
    again = bench.join("a2", "id-a")
    assert again is not None and again.error is ErrorCode.NONE and again.member_id == "id-a"


def test_a_member_id_that_is_never_used_expires() -> None:
    bench = Bench()
    [first] = bench.stable("a")
    bench.join("b", requires_known_member_id=True)
    bench.wait(SESSION - 1)
    bench.group.heartbeat(first, None, 1, bench.now)
    assert bench.join("a2", first, protocols=(("range", b"new"),)) is None  # the pending one may still come
    bench.wait(2)
    assert bench.answers["a2"].error is ErrorCode.NONE
    late = bench.join("b2", "id-b")
    assert late is not None and late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_delay_gathers_members_before_the_first_generation() -> None:
    bench = Bench(delay_ms=3_000)
    bench.join("a")
    bench.wait(2_900)
    bench.join("b")
    bench.wait(200)
    assert not bench.answers  # extended: somebody came
    bench.wait(3_000)
    assert {bench.answers["a"].generation, bench.answers["b"].generation} == {1}
    assert len(bench.answers["a"].members) == 2


def test_a_member_that_has_got_its_id_may_come_after_the_initial_delay() -> None:
    """Its id holds for a session, as with Kafka: otherwise it asks for another one, and a rebalance follows that one."""
    bench = Bench(delay_ms=1_000)
    bench.join("a")
    bench.join("b", requires_known_member_id=True)
    bench.wait(2_000)
    assert bench.answers["a"].error is ErrorCode.NONE
    assert bench.join("b2", "id-b") is None
    bench.join("a2", "id-a")
    assert {bench.answers[token].generation for token in ("a2", "b2")} == {2}


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    bench = Bench(delay_ms=3_000)
    tokens = []
    for index in range(20):
        tokens.append(f"m{index}")
        bench.join(tokens[-1], rebalance_timeout_ms=10_000)
        bench.wait(1_000)
    assert bench.answers["m0"].error is ErrorCode.NONE
    assert len(bench.answers["m0"].members) == 10


def test_protocols_must_have_one_in_common() -> None:
    bench = Bench()
    bench.stable("a")
    for fields in (
        {"protocols": (("sticky", b""),)},
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocol_type": ""},
    ):
        answer = bench.join(f"x{fields}", **fields)
        assert answer is not None and answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_keeps_one_of_the_common_protocols() -> None:
    bench = Bench()
    [first] = bench.stable("a")
    answer = bench.join("a2", first, protocols=(("sticky", b""),))
    assert answer is not None and answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = bench.join("a3", first, protocols=(("sticky", b""), ("range", b"")))
    assert answer is not None and answer.protocol == "sticky"


def test_whoever_has_only_an_id_leaves_whatever_its_instance_id_is() -> None:
    bench = Bench()
    bench.join("a", requires_known_member_id=True)
    assert bench.group.leave("id-a", "i", bench.now) == (ErrorCode.NONE, [])
    assert not bench.group.pending_members


def test_the_protocol_is_chosen_by_vote_among_common_ones() -> None:
    bench = Bench(delay_ms=100)
    bench.join("a", protocols=(("range", b""), ("sticky", b"")))
    bench.join("b", protocols=(("sticky", b""), ("range", b"")))
    bench.join("c", protocols=(("only-c", b""), ("sticky", b""), ("range", b"")))
    bench.wait(1_000)
    assert {answer.protocol for answer in bench.answers.values()} == {"sticky"}


class _Protocols(tuple[tuple[str, bytes], ...]):
    """Counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        _Protocols.reads += 1
        return super().__iter__()


def test_the_vote_reads_the_protocols_of_each_member_once() -> None:
    """When each member looked at those of all others, a group of 1,000 held the loop for a third of a second."""
    bench = Bench()
    group = bench.group
    for number in range(50):
        protocols = _Protocols((("range", b""), ("sticky", b"")))
        group.members[f"m{number}"] = ClassicGroupMember(f"m{number}", None, "c", "h", 10_000, 10_000, protocols)
    _Protocols.reads = 0
    assert group.select_protocol() == "range"
    assert _Protocols.reads == 50


class _Name(str):
    """Counts how often it is compared with another name."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Name.comparisons += 1
        return str.__eq__(self, other)


def test_a_join_does_not_compare_its_protocols_with_those_of_all_members() -> None:
    """9,999 names beside 9,999 others, and one in common: a JoinGroup of 110 kB held the loop for seconds."""
    bench = Bench(delay_ms=100)
    bench.join("first", protocols=(*((_Name(f"a{number}"), b"") for number in range(99)), ("range", b"")))
    _Name.comparisons = 0
    second = bench.join("second", protocols=(*((_Name(f"b{number}"), b"") for number in range(99)), ("range", b"")))
    assert second is None
    assert _Name.comparisons < 1_000
    bench.wait(1_000)
    assert {answer.protocol for answer in bench.answers.values()} == {"range"}


def test_a_member_with_more_protocols_than_any_client_has_is_refused() -> None:
    bench = Bench()
    answer = bench.join("m", protocols=tuple((f"p{number}", b"") for number in range(MAX_PROTOCOLS + 1)))
    assert answer is not None and answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not bench.group.members


def test_what_all_members_say_of_themselves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader gets all of it in one response: 14 static members with 15 MB each held the loop for a third of a second whenever a leader joined."""
    monkeypatch.setattr(rebalance, "MAX_PROTOCOL_BYTES", 1_000)
    bench = Bench(delay_ms=100)
    for name in "ab":
        assert bench.join(name, protocols=(("range", bytes(450)),), instance_id=name) is None
    refused = bench.join("c", protocols=(("range", bytes(100)),))
    assert refused is not None and refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.wait(1_000)
    known = bench.answers["a"].member_id
    refused = bench.join("a2", known, protocols=(("range", bytes(600)),), instance_id="a")
    assert refused is not None and refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join("a3", known, protocols=(("range", bytes(500)),), instance_id="a") is None, "its own is replaced"
    bench.take(bench.group.leave(bench.answers["b"].member_id, None, bench.now)[1])
    assert bench.group.protocol_bytes == len("range") + 500
    assert bench.join("d", protocols=(("range", bytes(400)),)) is None


def test_protocols_in_common_follow_members_that_change_come_back_and_leave() -> None:
    bench = Bench()
    [first, second] = bench.stable("a", "b")

    def refused(name: str) -> bool:
        token = f"try-{name}-{len(bench.answers)}"
        answer = bench.join(token, protocols=((name, b""),))
        if answer is not None:
            return answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        bench.group.leave(f"id-{token}", None, bench.now)
        return False

    assert refused("sticky") and not refused("range")
    # One that names a protocol twice has it once.
    bench.join("again-a", first, protocols=(("sticky", b""), ("sticky", b""), ("range", b"")))
    assert refused("sticky")
    bench.join("both-b", second, protocols=(("sticky", b""), ("range", b"")))
    bench.join("again-b", second, protocols=(("sticky", b""),))
    assert not refused("sticky")
    assert refused("range")
    bench.take(bench.group.leave(second, None, bench.now)[1])
    assert not refused("range")
    loaded = Group("g")
    loaded.restore("consumer", "range", 1, first, list(bench.group.members.values()), 0, bench.now)
    assert loaded.supporters == bench.group.supporters


def test_a_whole_group_that_is_late_is_removed_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sessions end in one moment. One after the other, each removal looked at all members: with 20,000, the loop was held for seconds."""
    bench = Bench()
    ids = bench.stable(*"abcdefgh")
    generation = bench.group.generation
    removals: list[int] = []
    original = Group._remove

    def counted(self: Group, members: Any, now: int) -> Any:
        removals.append(len(members))
        return original(self, members, now)

    monkeypatch.setattr(Group, "_remove", counted)
    bench.now += SESSION
    bench.take(bench.group.tick(bench.now))
    assert removals == [len(ids)]
    assert not bench.group.members and bench.group.state is GroupState.EMPTY
    assert bench.group.leader is None and not bench.group.supporters
    [order] = bench.orders
    assert (order.generation, order.assignments) == (generation + 1, {})


def test_what_fences_a_member() -> None:
    bench = Bench()
    [first] = bench.stable("a")
    group, now = bench.group, bench.now
    assert group.heartbeat("nobody", None, 1, now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(first, None, 7, now) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat(first, "no-instance", 1, now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(first, None, 1, now) is ErrorCode.NONE
    assert group.commit_error("nobody", None, 1, now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error(first, None, 0, now) is ErrorCode.ILLEGAL_GENERATION
    assert group.commit_error("", None, -1, now) is ErrorCode.UNKNOWN_MEMBER_ID  # it has members
    assert group.commit_error(first, None, 1, now) is ErrorCode.NONE
    wrong = bench.sync("s", first, generation=9)
    assert wrong is not None and wrong.error is ErrorCode.ILLEGAL_GENERATION
    other = bench.sync("s2", first, protocol="sticky")
    assert other is not None and other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_commits_between_join_and_sync_are_told_to_rejoin() -> None:
    bench = Bench()
    bench.join("a")
    assert bench.group.commit_error("id-a", None, 1, bench.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.group.commit_error("id-a", None, 1, bench.now, is_transactional=True) is ErrorCode.NONE
    assert Group("simple").commit_error("", None, -1, 0) is ErrorCode.NONE


def test_leaving_makes_the_others_rebalance_and_the_last_one_empties_the_group() -> None:
    bench = Bench()
    first, second = bench.stable("a", "b")
    error, effects = bench.group.leave(second, None, bench.now)
    bench.take(effects)
    assert (error, bench.group.state) == (ErrorCode.NONE, GroupState.PREPARING_REBALANCE)
    error, effects = bench.group.leave(first, None, bench.now)
    bench.take(effects)
    assert bench.group.state is GroupState.EMPTY
    assert bench.orders[-1].assignments == {}
    assert bench.group.leave(first, None, bench.now)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_returns_under_a_new_id_without_a_rebalance() -> None:
    bench = Bench()
    [first] = bench.stable("a", instance_id="i1")
    assert bench.join("back", instance_id="i1", protocols=SAME, supports_skip_assignment=True) is None
    bench.store()  # a coordinator that comes after this one knows the new id
    answer = bench.answers["back"]
    assert (answer.error, answer.generation, answer.member_id) == (ErrorCode.NONE, 1, "id-back")
    assert answer.skip_assignment and answer.leader == "id-back"
    assert bench.group.state is GroupState.STABLE
    assert bench.group.heartbeat(first, "i1", 1, bench.now) is ErrorCode.FENCED_INSTANCE_ID
    synced = bench.sync("s", "id-back", instance_id="i1")
    assert synced is not None and synced.assignment == first.encode()


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_static_member_is_what_it_was_if_its_new_id_is_not_durable(error: ErrorCode) -> None:
    """A client that had been given that id would be fenced by the next coordinator, which is fatal to it."""
    bench = Bench()
    [first] = bench.stable("a", instance_id="i1")
    assert bench.join("back", instance_id="i1", protocols=SAME, client_id="other", session_timeout_ms=99_000) is None
    bench.store(error)
    assert (bench.answers["back"].error, bench.answers["back"].member_id) == (error, "")
    assert bench.group.heartbeat(first, "i1", 1, bench.now) is ErrorCode.NONE
    member = bench.group.members[first]
    assert (member.client_id, member.session_timeout_ms, bench.group.leader) == ("c", SESSION, first)
    assert bench.join("again", instance_id="i1", protocols=SAME) is None
    bench.store()
    assert bench.answers["again"].member_id == "id-again"
    assert bench.group.heartbeat("id-again", "i1", 1, bench.now) is ErrorCode.NONE


def test_a_static_member_that_is_replaced_twice_before_the_first_is_durable() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i1")
    for token in ("one", "two"):
        assert bench.join(token, instance_id="i1", protocols=SAME) is None
    second, first = bench.orders.pop(), bench.orders.pop()
    bench.take(bench.group.stored(first, ErrorCode.NONE, bench.now))
    assert bench.answers["one"].error is ErrorCode.FENCED_INSTANCE_ID
    bench.take(bench.group.stored(second, ErrorCode.NONE, bench.now))
    assert (bench.answers["two"].error, bench.answers["two"].member_id) == (ErrorCode.NONE, "id-two")


def test_a_static_member_is_removed_while_its_new_id_is_stored() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i1")
    assert bench.join("back", instance_id="i1", protocols=SAME) is None
    error, effects = bench.group.leave("", "i1", bench.now)
    bench.take(effects)
    assert error is ErrorCode.NONE
    bench.take(bench.group.stored(bench.orders.pop(0), ErrorCode.NONE, bench.now))
    assert bench.answers["back"].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_unloaded_while_the_new_id_of_a_static_member_is_stored() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i1")
    assert bench.join("back", instance_id="i1", protocols=SAME) is None
    bench.take(bench.group.close(ErrorCode.NOT_COORDINATOR))
    bench.store()  # durable or not: the next coordinator knows
    assert bench.answers["back"].error is ErrorCode.NOT_COORDINATOR


def test_a_rebalance_that_begins_meanwhile_keeps_the_new_id() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i1")
    assert bench.join("back", instance_id="i1", protocols=SAME) is None
    assert bench.join("b") is None  # waits for the static member
    bench.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert bench.answers["back"].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.join("again", instance_id="i1", protocols=SAME)
    assert (bench.answers["again"].error, bench.answers["again"].generation) == (ErrorCode.NONE, 2)
    assert bench.answers["b"].generation == 2


def test_a_static_member_with_another_subscription_rebalances() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i1")
    answer = bench.join("back", instance_id="i1", protocols=(("range", b"other"),))
    assert answer is not None and answer.generation == 2


@pytest.mark.parametrize(("topics", "generation"), [(["t"], 1), (["t", "u"], 2)])
def test_a_static_member_that_owns_nothing_after_its_restart_takes_nothing_from_the_others(
    topics: list[str], generation: int
) -> None:
    """Its metadata differs at every restart once it has owned something, in what it says of that (KIP-429, KIP-792)."""

    def metadata(topics: list[str], owned: list[int], generation: int) -> bytes:
        owns = [wire.ConsumerProtocolSubscription.TopicPartition("t", owned)] if owned else []
        subscription = wire.ConsumerProtocolSubscription(topics, None, owns, generation, None)
        return (3).to_bytes(2) + encode(subscription, 3)

    bench = Bench()
    bench.stable("a", instance_id="i1", protocols=(("range", metadata(["t"], [0, 1], 7)),))
    bench.join("back", instance_id="i1", protocols=(("range", metadata(topics, [], -1)),))
    if bench.orders:
        bench.store()
    assert bench.answers["back"].generation == generation


def test_static_members_survive_a_rebalance_they_miss_and_admins_remove_them_by_instance() -> None:
    bench = Bench()
    [static] = bench.stable("a", instance_id="i1", session_timeout_ms=200_000)
    bench.join("b", session_timeout_ms=200_000)
    bench.wait(REBALANCE + 1)
    assert bench.answers["b"].error is ErrorCode.NONE
    assert static in bench.group.members
    error, effects = bench.group.leave("", "i1", bench.now)
    bench.take(effects)
    assert error is ErrorCode.NONE and static not in bench.group.members
    assert bench.group.leave("", "i1", bench.now)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_lost_answers_are_given_again() -> None:
    bench = Bench()
    first, second = bench.stable("a", "b")
    again = bench.join("f", second, protocols=(("range", b"m-join-b"),))
    assert again is not None and again.generation == bench.group.generation  # a follower: nothing changes
    stable: object = bench.group.state
    assert stable is GroupState.STABLE
    leader = bench.join("l", first, protocols=bench.group.members[first].protocols)
    assert leader is None and bench.group.state is GroupState.PREPARING_REBALANCE  # a leader: it wants a rebalance


def test_unloading_answers_everybody_who_waits() -> None:
    bench = Bench()
    bench.stable("a")
    bench.join("b")
    bench.take(bench.group.close(ErrorCode.NOT_COORDINATOR))
    assert bench.answers["b"].error is ErrorCode.NOT_COORDINATOR
    assert bench.group.heartbeat("id-join-a", None, 1, bench.now) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    late = bench.join("c")
    assert late is not None and late.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_no_request_waits_for_ever(delay_ms: int) -> None:
    """Whatever the others do not do: each join and sync is answered once, in bounded time."""
    bench = Bench(delay_ms)
    bench.join("a")
    bench.join("b")
    bench.wait(10 * REBALANCE)
    assert {"a", "b"} <= bench.answers.keys()
    bench.wait(10 * REBALANCE)
    assert bench.group.state is GroupState.EMPTY and bench.group.next_deadline() is None


@pytest.mark.parametrize(("count", "is_read"), [(40_000, True), (50_000, False)])
def test_metadata_of_many_topics_is_not_read(count: int, *, is_read: bool) -> None:
    """Of a static member that comes back. A JoinGroup of 600 kB names 200,000 topics, and those of before were read, too."""
    before = bytes(2) + count.to_bytes(4) + b"\0\1a" * count + bytes(4)
    assert wants_the_same("consumer", before, before)
    assert wants_the_same("consumer", before, before + b"\0") == is_read
