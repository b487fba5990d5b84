"""One user may fill what sessions and members of groups may take: another one still gets in."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import Mock

import pytest

from kafkalite.coordinators.groups import member_memory
from kafkalite.errors import ErrorCode
from kafkalite.kafka import fetch_sessions
from kafkalite.kafka.fetch_sessions import FetchSessions
from kafkalite.kafka.shares import sessions as share_sessions
from kafkalite.kafka.shares.sessions import ShareSessions
from kafkalite.model import TopicId
from kafkalite.protocol import wire
from kafkalite.security.principal import ANONYMOUS, Principal

from .conftest import Broker, FrameClient
from .coordinator_requests import coordinator, join
from .rights import client_of
from .test_fetch_sessions import fetch_of
from .test_share_fetching import Member, start

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


async def test_share_sessions(make_broker: Any) -> None:
    broker = await make_broker(group_share_max_share_sessions=4)
    await start(broker)

    async def opened(user: Principal, name: str) -> int:
        return int((await Member(broker, await client_of(broker, user.name), name).fetch(0)).error_code)

    assert [await opened(ALICE, f"a{number}") for number in range(5)] == [0] * 4 + [
        ErrorCode.SHARE_SESSION_LIMIT_REACHED
    ]
    assert await opened(BOB, "b0") == 0
    assert await opened(ALICE, "a5") == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert await opened(BOB, "b1") == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def connection_of(user: Principal) -> Any:
    return Mock(principal=user, peer_host="h")


def test_partitions_that_share_sessions_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "MAX_PARTITIONS", 8)
    sessions = ShareSessions(lambda: 100, lambda session, listed, *, is_over: None)

    def listed(user: Principal, member: str, count: int) -> int:
        session = sessions.open("g", member, connection_of(user))
        assert session is not None
        for number in range(count):
            sessions.list(session, (TopicId("t"), number))
        return len(session.partitions)

    assert listed(ALICE, "a", 9) == 8
    assert sessions.open("g", "more", connection_of(ALICE)) is None
    assert listed(BOB, "b", 9) == 1
    session = sessions.get("g", "a")
    assert session is not None
    sessions.close(session)
    assert listed(BOB, "b2", 9) == 7


def test_partitions_that_fetch_sessions_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 8)
    sessions = FetchSessions(100, lambda: 0, random.Random(1).randint)

    def opened(user: Principal, host: str, size: int) -> Any:
        return sessions.open(fetch_of(size), (user, host), uses_ids=False, rights_version=0)

    first = opened(ALICE, "h", 8)
    assert first is not None and opened(ALICE, "other", 1) is None
    assert opened(BOB, "h", 1) is not None and opened(BOB, "h", 1) is None
    grown = fetch_of(9)
    first.fetch.entries = grown.entries
    assert not sessions.used(first), "it lists one more"
    sessions.close(first)
    assert sessions.partitions == 1
    # Where nobody logs in, a host counts as a user.
    assert opened(ANONYMOUS, "h", 7) is not None
    assert opened(ANONYMOUS, "h", 1) is None and opened(ANONYMOUS, "other", 1) is not None


async def test_memory_of_members(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_memory, "MAX_BYTES", 25_000)
    monkeypatch.setattr(member_memory, "_GROUP_BYTES", 0)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    alice, bob = await client_of(broker, "alice"), await client_of(broker, "bob")
    await coordinator(alice, "a")

    async def joined(client: FrameClient, group: str, size: int) -> int:
        said = [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", bytes(size))]
        return int((await client.ask(join(group, "", protocols=said), 3)).error_code)

    assert [await joined(alice, name, 12_000) for name in "abc"] == [0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await joined(bob, "d", 2_500) == 0
    assert await joined(bob, "e", 2_500) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await joined(alice, "f", 1_000) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_ids_of_classic_members_take_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of 32 kB were not counted: those of an instance, of its member (which begins with it) and of its client."""
    monkeypatch.setattr(member_memory, "MAX_BYTES", 45_000)
    monkeypatch.setattr(member_memory, "_GROUP_BYTES", 0)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    client = await broker.client()
    await coordinator(client, "g")

    async def joined(number: int) -> int:
        request = join(f"g{number}", "", group_instance_id="x" * 10_000)
        code = (await client.ask(request, 5)).error_code
        return int(code)

    assert [await joined(number) for number in range(3)] == [0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_groups_take_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that joins groups that nobody has heard of, and never comes back, filled the memory: only ids were counted, and
    not any more when their time was up."""
    monkeypatch.setattr(member_memory, "MAX_BYTES", 25_000)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    client = await broker.client()
    await coordinator(client, "g")

    async def joined(number: int) -> int:
        return int((await client.ask(join(f"g{number}"), 5)).error_code)

    codes = [await joined(number) for number in range(20)]
    assert 5 < codes.count(ErrorCode.MEMBER_ID_REQUIRED) < 12
    assert set(codes) == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    for partition in broker.side.groups.log.states():
        for entry in partition.entries.values():
            entry.group.pending_members.clear()  # their time is up
    assert [await joined(number) for number in range(20, 23)][-1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await broker.side.groups.removal.expire()
    assert await joined(99) == ErrorCode.MEMBER_ID_REQUIRED


def subscriber(kind: str, group: str, name: str, topics: list[str]) -> tuple[Any, int]:
    """The first heartbeat of a member, and its version."""
    match kind:
        case "consumer":
            consumer = wire.ConsumerGroupHeartbeatRequest
            return consumer(
                group, name, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=topics, topic_partitions=[]
            ), 1
        case "share":
            return wire.ShareGroupHeartbeatRequest(group, name, 0, subscribed_topic_names=topics), 1
    streams = wire.StreamsGroupHeartbeatRequest
    topology = streams.Topology(1, [streams.Subtopology("0", topics, [], [], [], [], [])])
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return streams(group, name, 0, rebalance_timeout_ms=1_000, process_id=name, topology=topology, **nothing), 0


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
async def test_memory_of_members_of_newer_groups(broker: Broker, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A record bounds each of them, and nothing their number times that: a user that may read one group could fill gigabytes."""
    monkeypatch.setattr(member_memory, "MAX_BYTES", 100_000 if kind == "streams" else 50_000)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    alice, bob = await client_of(broker, "alice"), await client_of(broker, "bob")
    await coordinator(alice, "a")

    async def joined(client: FrameClient, name: str, size: int) -> int:
        topics = [f"t{number:099}" for number in range(size // 100)]
        message, version = subscriber(kind, name, name, topics)
        return int((await client.ask(message, version)).error_code)

    full = ErrorCode.COORDINATOR_NOT_AVAILABLE
    codes = [await joined(alice, name, 10_000) for name in "abcd"]
    assert (codes[0], codes[-1]) == (0, full)
    assert await joined(bob, "e", 1_000) == 0
    assert await joined(alice, "f", 10_000) == full
    if kind == "consumer":
        left = wire.ConsumerGroupHeartbeatRequest("a", "a", -1)
        assert (await alice.ask(left, 1)).error_code == 0
        assert await joined(alice, "g", 1_000) == 0


async def test_a_heartbeat_that_says_nothing_new_takes_no_memory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_memory, "MAX_BYTES", 10_000)
    client = await broker.client()
    await coordinator(client, "a")
    message, version = subscriber("consumer", "a", "m", ["t" * 200] * 10)
    for _ in range(50):
        answer = await client.ask(message, version)
        assert answer.error_code == 0, answer
    for size in (100, 20_000):
        changed = wire.ConsumerGroupHeartbeatRequest("a", "m", answer.member_epoch, subscribed_topic_regex="x" * size)
        code = (await client.ask(changed, version)).error_code
        assert code == (0 if size == 100 else ErrorCode.COORDINATOR_NOT_AVAILABLE)
