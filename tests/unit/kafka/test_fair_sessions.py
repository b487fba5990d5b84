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
    monkeypatch.setattr(member_memory, "MAX_BYTES", 2500)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    alice, bob = await client_of(broker, "alice"), await client_of(broker, "bob")
    await coordinator(alice, "a")

    async def joined(client: FrameClient, group: str, size: int) -> int:
        said = [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", bytes(size))]
        return int((await client.ask(join(group, "", protocols=said), 3)).error_code)

    assert [await joined(alice, name, 1200) for name in "abc"] == [0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await joined(bob, "d", 300) == 0
    assert await joined(bob, "e", 300) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await joined(alice, "f", 100) == ErrorCode.COORDINATOR_NOT_AVAILABLE
