"""Members of consumer groups that subscribe by a regular expression (KIP-848)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.coordinators.groups.consumer import assigning
from kafkalite.coordinators.patterns import full_match, matching_texts
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC

from .conftest import Broker
from .consumer_members import Member, described, settled, started
from .coordinator_requests import coordinator, move


async def test_a_regular_expression_follows_the_topics(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", subscribed_topic_regex="[st]{1}")
    member.topics = None
    await settled(member, count=4)
    await broker.create("s", 2)
    await broker.create("not-this", 2)
    member.more = {}
    await settled(member, count=6)
    assert (await described(client)).members[0].subscribed_topic_regex == "[st]{1}"
    await member.beat(subscribed_topic_regex="", subscribed_topic_names=["s"])
    await settled(member, count=2)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    await settled(member, count=2)


async def test_a_regular_expression_is_matched_off_the_loop(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 needs 2 ms for each name with this one: thousands of topics held the loop for seconds."""
    costly, seen = "((((.{0,30}){0,30})?)?)*", []

    def watched(pattern: str) -> Callable[[str], bool]:
        matches = full_match(pattern)

        def match(text: str) -> bool:
            seen.append(threading.current_thread())
            return matches(text)

        return match

    monkeypatch.setattr(assigning, "full_match", watched)
    client = await started(broker)
    member = Member(client, "m", subscribed_topic_regex=costly)
    member.topics = None
    await settled(member, count=4)
    assert seen and threading.main_thread() not in seen


@pytest.mark.parametrize(("regex", "count"), [("[st]{1}", 6), ("t+", 4)])
async def test_a_slow_regular_expression_delays_no_member(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, regex: str, count: int
) -> None:
    """Members get a target without it after a heartbeat interval, and one with it when it is matched."""
    broker = await make_broker(group_consumer_heartbeat_interval_ms=50, group_consumer_min_heartbeat_interval_ms=1)
    are_answered = threading.Event()

    def slow(matches: Callable[[str], bool], texts: list[str]) -> list[str]:
        if "t" in texts:
            assert are_answered.wait(60)
        else:
            time.sleep(0.06)  # longer than the interval, which began before it, however slow the machine is
        return matching_texts(matches, texts)

    monkeypatch.setattr(assigning, "matching_texts", slow)
    monkeypatch.setattr(assigning, "text_pieces", lambda texts: ([text] for text in texts))  # one topic at a time
    client = await started(broker)
    await broker.create("s", 2)
    member, other = Member(client, "m", subscribed_topic_regex=regex), Member(await broker.client(), "o", "t")
    try:
        async with asyncio.timeout(150):
            answers = await asyncio.gather(member.beat(), other.beat())
    finally:
        are_answered.set()
    assert all(not answer.error_code and answer.member_epoch > 0 for answer in answers)
    assert not member.partitions
    member.more = {}
    await settled(member, other, count=count)
    async with asyncio.timeout(150):
        while not member.partitions:
            await settled(member, other, count=count)


async def test_without_re2_a_regular_expression_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "re2", None)
    client = await started(broker)
    answer = await Member(client, "m", subscribed_topic_regex="t.*").beat(subscribed_topic_names=[])
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION and "google-re2" in answer.error_message
    assert not (await Member(client, "m", "t").beat()).error_code
