"""Consumers that wait for records: how many may, and whom they keep from what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.model import Offset, TopicPartition
from kafkalite.replica import purgatory
from kafkalite.replica.client_fetch import ClientFetch, FetchTerms
from tests.support.fetching import answered

TP = TopicPartition("t", 0)


async def test_long_polls_of_one_user_refuse_nobodys_records_and_no_other_long_poll(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who might read one topic had 100,000 of them under way on 1,600 connections: then acks=all was refused on that node, and the
    coordinators' own records, and the polls of others were answered at once."""
    monkeypatch.setattr(purgatory, "MAX_WAITING", 20)
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    hosted = node.manager.hosted
    answers: list[str] = []

    def poll(user: str, connection: int) -> None:
        fetch = ClientFetch()
        fetch.list(TP, Offset(0), 1 << 20)
        terms = FetchTerms(600_000, 1, 1 << 20, ((user, "10.0.0.1"), connection))
        node.manager.consuming.fetch(fetch, terms, answered(lambda: answers.append(user)))

    for number in range(100):
        poll("hog", number)
    assert len(answers) > 70 and hosted.long_polls.taken <= 25
    answers.clear()
    for user in ("shop", "billing"):
        poll(user, 0)
    assert not answers, "they wait"
    assert (await node.produce(TP, b"a")).error == 0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {"shop", "billing"} <= set(answers)
    assert hosted.long_polls.taken == len(hosted.wheel) == 0


async def test_long_polls_wait_for_a_limited_number_of_partitions(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 of them on each connection, each for all partitions of a node, took some hundred bytes per partition: there was no limit but the
    number of polls."""
    monkeypatch.setattr(purgatory, "MAX_POLLED", 20)
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(8), (1,)))
    keys = [TopicPartition("t", number) for number in range(8)]
    for key in keys:
        await cluster.command_all(cluster.decide(key, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    hosted = node.manager.hosted
    answers: list[str] = []

    def poll(user: str, connection: int, count: int) -> ClientFetch:
        fetch = ClientFetch()
        for key in keys[:count]:
            fetch.list(key, Offset(0), 1 << 20)
        terms = FetchTerms(600_000, 1, 1 << 20, ((user, "10.0.0.1"), connection))
        node.manager.consuming.fetch(fetch, terms, answered(lambda: answers.append(user)))
        return fetch

    polls = [poll("hog", number, 8) for number in range(10)]
    assert len(answers) == 8 and hosted.polled.taken == 16
    answers.clear()
    polls += [poll("shop", 0, 4), poll("billing", 0, 2)]
    assert not answers, "they wait"
    for fetch in polls:
        fetch.expire()
    assert set(answers) == {"hog", "shop", "billing"}
    assert hosted.polled.taken == hosted.long_polls.taken == len(hosted.wheel) == 0
