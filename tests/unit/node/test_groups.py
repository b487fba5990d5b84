"""Consumer groups: membership with commits, administration, and the verbs on top."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.membership import Membership, MemberSubscription, range_assignment
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic, RemovePartitionsRequest, RemovePartitionsResponse
from kafkalite.model import TopicPartition
from kafkalite.protocol.consumer_protocol import assigned_partitions, assignment, subscribed, subscription
from kafkalite.testing.cluster import ThreadedCluster, cluster
from kafkalite.testing.consumer_membership import ConsumerMembership
from tests.support.commands import kafkalite
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
_QUICK = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 200,
}


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(3, settings=_QUICK) as cluster:
        yield cluster


def cli(running: ThreadedCluster, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    done = kafkalite(*arguments, bootstrap=running.bootstrap, stdin=stdin)
    return done.code, done.out + (done.err if done.code else "")


def cli_json(running: ThreadedCluster, *arguments: str) -> Any:
    code, out = cli(running, *arguments, "--json")
    assert code == 0, out
    return json.loads(out)


# --- sharing out ------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from(["x", "y", "z"]), min_size=1), min_size=1),
    st.fixed_dictionaries({topic: st.integers(0, 9) for topic in ("x", "y", "z")}),
)
def test_range_gives_every_partition_to_one_subscriber(wanted: dict[str, set[str]], counts: dict[str, int]) -> None:
    members = [MemberSubscription(member, tuple(sorted(topics))) for member, topics in wanted.items()]
    shares = range_assignment(members, counts)
    assert shares.keys() == wanted.keys()
    given_out = [partition for share in shares.values() for partition in share]
    topics = set().union(*wanted.values())
    assert sorted(given_out) == [(topic, n) for topic in sorted(topics) for n in range(counts[topic])]
    for member, share in shares.items():
        assert {topic for topic, _ in share} <= wanted[member]
    for topic in topics:
        sizes = [sum(t == topic for t, _ in shares[member]) for member in wanted if topic in wanted[member]]
        assert max(sizes) - min(sizes) <= 1


def test_the_consumer_protocol_is_kafkas() -> None:
    assert subscription(["orders"]) == b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"
    assert subscribed(subscription(["a", "b"])) == ("a", "b")
    assert subscribed(b"") == () and subscribed(b"\0\0\xff") == ()
    shares = (("a", 0), ("a", 2), ("b", 1))
    assert assigned_partitions(assignment(shares)) == shares
    assert assigned_partitions(b"") == ()


# --- members ----------------------------------------------------------------------------------------------


async def test_members_share_and_take_over(running: ThreadedCluster) -> None:
    async with AsyncClient.connect(running.bootstrap) as client, AsyncClient.connect(running.bootstrap) as other:
        await client.create_topics([NewTopic("shared", 4, 3)])
        groups = Groups(client)
        first = Membership(client, groups, "pair", ["shared"])
        await first.join()
        assert len(first.partitions) == 4
        second = Membership(other, Groups(other), "pair", ["shared"])
        joining = asyncio.create_task(second.join())
        await first.is_stale.wait()  # a heartbeat says so
        await first.join()
        await joining
        assert sorted([*first.partitions, *second.partitions]) == [TopicPartition("shared", n) for n in range(4)]
        assert (len(first.partitions), len(second.partitions)) == (2, 2)

        mine = first.partitions[0]
        assert await first.commit({mine: 7})
        assert (await second.committed())[mine] == 7
        # While it has members nobody else sets its offsets, or deletes it.
        for attempt in (groups.commit("pair", {mine: 0}), groups.delete("pair")):
            with pytest.raises(ApiError) as refused:
                await attempt
            assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP)
        await first.leave()
        await second.is_stale.wait()
        assert await second.commit({mine: 9})  # what it has read counts until it has joined again
        stale = second.generation
        await second.join()
        second.generation, present = stale, second.generation
        assert not await second.commit({mine: 0})
        second.generation = present
        assert (await second.committed())[mine] == 9
        assert len(second.partitions) == 4
        _, told = await groups.describe("pair")
        assert (told.state, told.protocol, len(told.members)) == ("Stable", "range", 1)
        assert set(told.members[0].partitions) == {("shared", n) for n in range(4)}
        await second.leave()


async def test_members_of_the_consumer_protocol_share_and_take_over(running: ThreadedCluster) -> None:
    async with AsyncClient.connect(running.bootstrap) as client, AsyncClient.connect(running.bootstrap) as other:
        await client.create_topics([NewTopic("modern", 4, 3)])
        groups = Groups(client)
        first = ConsumerMembership(client, groups, "modern-pair", ["modern"])
        await first.join()
        assert len(first.partitions) == 4
        second = ConsumerMembership(other, Groups(other), "modern-pair", ["modern"])
        await second.join()
        while len(second.partitions) < 2:
            if first.is_stale.is_set():
                await first.join()
            if second.is_stale.is_set():
                await second.join()
            await asyncio.sleep(0.01)
        assert sorted([*first.partitions, *second.partitions]) == [TopicPartition("modern", n) for n in range(4)]
        mine = first.partitions[0]
        assert await first.commit({mine: 7})
        assert (await second.committed())[mine] == 7
        listed = {group.group: group for _, group in await groups.list()}
        assert (listed["modern-pair"].group_type, listed["modern-pair"].members) == ("consumer", 2)
        _, told = await groups.describe("modern-pair")
        assert (told.group_type, told.protocol, len(told.members)) == ("consumer", "uniform", 2)
        described = cli_json(running, "admin", "groups", "describe", "modern-pair")
        assert (described["type"], described["protocol"], len(described["members"])) == ("consumer", "uniform", 2)
        await first.leave()
        assert not await first.commit({mine: 9})
        while len(second.partitions) < 4:
            await second.is_stale.wait()
            await second.join()
        await second.leave()
    assert cli(running, "admin", "groups", "delete", "modern-pair", "--yes")[0] == 0


# --- verbs ------------------------------------------------------------------------------------------------


def test_consume_in_a_group_goes_on_where_it_was(running: ThreadedCluster) -> None:
    assert cli(running, "admin", "create-topic", "lines", "--partitions", "3", "--replication-factor", "3")[0] == 0
    cli(running, "produce", "lines", stdin=b"".join(b"%d\n" % n for n in range(30)))
    take = ("consume", "lines", "--group", "readers", "--from", "beginning")
    code, first = cli(running, *take, "--max", "10")
    assert (code, len(first.split())) == (0, 10)
    code, rest = cli(running, *take, "--exit-at-end")
    assert code == 0
    assert sorted(map(int, (first + rest).split())) == list(range(30))  # nothing lost, nothing twice

    listed = cli_json(running, "admin", "groups", "list")["groups"]
    assert [(g["group"], g["state"]) for g in listed if g["group"] == "readers"] == [("readers", "Empty")]
    described = cli_json(running, "admin", "groups", "describe", "readers")
    assert sum(row["offset"] for row in described["offsets"]) == 30
    assert {row["lag"] for row in described["offsets"]} == {0}

    shown = cli_json(running, "admin", "groups", "reset-offsets", "readers", "--to-earliest")
    assert not shown["executed"] and {row["after"] for row in shown["offsets"]} == {0}
    same = cli_json(running, "admin", "offsets", "get", "readers")
    assert sum(row["offset"] for row in same["offsets"]) == 30  # only shown
    cli_json(running, "admin", "groups", "reset-offsets", "readers", "--shift-by", "-2", "--execute")
    again = cli(running, *take, "--exit-at-end")[1]
    assert len(again.split()) == sum(min(2, row["offset"]) for row in same["offsets"])
    cli_json(running, "admin", "offsets", "set", "readers", "lines-0=1", "lines-1=")
    kept = cli_json(running, "admin", "offsets", "get", "readers")["offsets"]
    assert {(row["partition"], row["offset"]) for row in kept if row["partition"] < 2} == {(0, 1)}

    assert cli_json(running, "admin", "groups", "delete", "readers", "--yes") == {"deleted": ["readers"]}
    for verb in (("describe", "readers"), ("delete", "readers", "--yes")):
        code, text = cli(running, "admin", "groups", *verb)
        assert (code, text.count("\n")) == (2, 1) and "GROUP_ID_NOT_FOUND" in text


def test_completion_completes() -> None:
    for shell in ("bash", "zsh", "fish"):
        done = kafkalite("completion", shell)
        assert done.code == 0 and "_KAFKALITE_COMPLETE" in done.out
    asked = {"_KAFKALITE_COMPLETE": "bash_complete", "COMP_WORDS": "kafkalite admin gro", "COMP_CWORD": "2"}
    assert kafkalite(environ=asked).out.strip() == "plain,groups"


@pytest.mark.checklist(60)
async def test_groups_forget_what_they_committed_for_a_partition_when_it_is_removed() -> None:
    async with cluster(1, settings=_QUICK) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 2, 1)])
        groups = Groups(client)
        await groups.commit("g", {TopicPartition("t", number): 5 for number in range(2)})
        answer = await client.request(RemovePartitionsRequest("t", 1, timeout_ms=60_000), RemovePartitionsResponse)
        assert (answer.error, answer.partitions, answer.is_done) == (0, (1,), True)

        async def is_forgotten() -> bool:
            _, described = await groups.describe("g")
            return [(each.partition, each.offset) for each in described.offsets] == [(0, 5)]

        await until(is_forgotten)
