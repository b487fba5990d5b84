"""Orders that are wrong: one line that says why, exit code 2, and nothing is changed. And a ZooKeeper that restarts. Against running nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Load, create_topic, eye, wait_until
from tests.support.commands import Outcome, admin, kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

HUGE = 10**30
GOOD = {"topic": "t", "partition": 1, "replicas": [3, 1]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three nodes, and a topic t with two partitions of two replicas."""
    # No session may end here, however long a JVM takes to start, and nothing waits for the end of one.
    settings = QUICK | {"zookeeper.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 90_000}
    with ProcessCluster(tmp_path_factory.mktemp("bad-plans"), settings=settings) as made:
        asyncio.run(create_topic(made, "t", assignment={0: (1, 2), 1: (2, 3)}))
        yield made


def standing(cluster: ProcessCluster) -> list[Any]:
    """What an order could change: the topic, its states, orders, settings; with versions."""
    with eye(cluster.zookeeper_connect) as zk:
        paths = [
            "/brokers/topics/t",
            "/brokers/topics/u",
            *(f"/brokers/topics/t/partitions/{number}/state" for number in (0, 1)),
        ]
        paths += ["/admin/reassign_partitions", "/config/brokers/<default>", "/admin/preferred_replica_election"]
        return [(zk.text(path), stat and stat.version) for path in paths for stat in [zk.stat(path)]]


def refused(cluster: ProcessCluster, *arguments: str) -> str:
    """The one line."""
    before = standing(cluster)
    outcome: Outcome = kafkalite("admin", *arguments, bootstrap=cluster.bootstrap)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("kafkalite")
    assert outcome.err.count("\n") == 1, outcome.err
    assert standing(cluster) == before
    return outcome.err


def move(**wrong: Any) -> str:
    """A plan with a good line and one that is good but for this."""
    bad = {"topic": "t", "partition": 0, "replicas": [2, 3]} | wrong
    return json.dumps({"version": 1, "partitions": [GOOD, bad]})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (move(replicas=[1, 9]), "t-0: brokers that are not alive: [9]; nothing was changed"),
        (move(replicas=[1, 1]), "t-0: the same broker twice in [1, 1]; nothing was changed"),
        (
            move(replicas=[1, 2, 3]),
            "t-0 has 2 replicas, the request has 3; nothing was changed; --allow-rf-change permits it",
        ),
        (move(partition=7), "there is no partition t-7; nothing was changed"),
        (move(topic="no"), "there is no partition no-0; nothing was changed"),
        (move(partition=1), "t-1 occurs twice"),
        (move(replicas=[]), "partitions[1]: replicas is not a list of brokers"),
        (move(replicas=[1, HUGE]), "partitions[1]: replicas is not a list of brokers"),
        (move(replicas=[1, -1]), "partitions[1]: replicas is not a list of brokers"),
        (move(partition=HUGE), "partitions[1]: partition is not a number from 0"),
        (move(partition=True), "partitions[1]: partition is not a number from 0"),
        (move(topic="two\nlines"), "partitions[1]: topic is not the name of a topic"),
        (move(topic="t" * 100_000), "partitions[1]: topic is not the name of a topic"),
        (move(log_dirs=["/disk1", "any"]), 'partitions[1]: log_dirs other than "any" are not accepted'),
        ("", "the file is empty"),
        ("moves: all", "not JSON: "),
        ("[" * 100_000, "not JSON: nested too deep"),
        ("9" * 10_000, "not JSON: a number is too long"),
        ("\udcff", "not JSON: it is not UTF-8"),
        ("[]", "no partitions in it"),
        ('{"version": 1, "partitions": []}', "no partitions in it"),
        (json.dumps({"version": 2, "partitions": [GOOD]}), "version 2 is not 1"),
    ],
    ids=lambda value: value[:30] if "partitions[" in value or " " in value[:12] else None,
)
def test_a_bad_plan(cluster: ProcessCluster, tmp_path: Path, text: str, says: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(text.encode(errors="surrogateescape"))
    # Limits belong to the order: those of a refused one are not written either.
    assert says in refused(cluster, "reassign", "execute", str(plan), "--max-partitions", "1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("reassign", "execute", "no-such-file.json"), "No such file"),
        (("reassign", "plan", "--brokers", "1,9"), "9"),
        (("reassign", "plan", "--brokers", f"1,{HUGE}"), "is not BROKER,…"),
        (("reassign", "plan", "--brokers", "1,1"), "the same broker twice"),
        (("reassign", "plan", "--drain-broker", "1", "--topic", "no"), "there is no topic 'no'"),
        (("reassign", "cancel", "t-9"), "t-9"),
        (("reassign", "cancel", f"t-{HUGE}"), "is not TOPIC-PARTITION"),
        (("elect", "--unclean", f"t-{HUGE}"), "is not TOPIC-PARTITION"),
        (("add-partitions", "t", "--assignment", "1,9"), "9"),
        (("add-partitions", "t", "--assignment", f"1,{HUGE}"), "is not BROKER,…"),
        (("add-partitions", "t", "--assignment", "1"), "the topic has 2 replicas of each partition"),
        (("add-partitions", "t", "--assignment", ""), "is not BROKER,…"),
        (("add-partitions", "t", "--count", str(HUGE)), "is more than 2147483647"),
        (("reassign", "plan", "--drain-broker", "9"), "broker 9 is not alive and has no replica"),
        (("reassign", "execute", ""), "''"),
        (("add-partitions", "no", "--count", "1"), "there is no topic 'no'"),
        (("remove-partitions", "t", "--count", "2", "--yes"), "t"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else "",
)
def test_a_bad_command(cluster: ProcessCluster, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(cluster, *arguments)


async def test_a_restart_of_zookeeper_is_not_noticed_by_producers(cluster: ProcessCluster) -> None:
    await create_topic(cluster, "zk-restart", min_insync_replicas="2")
    with eye(cluster.zookeeper_connect) as before:
        epochs = {n: before.stat(f"/brokers/ids/{n}").czxid for n in cluster.nodes}
        elections = before.text("/controller_epoch")
    async with Load(cluster, "zk-restart") as load:
        await load.more()
        assert cluster.zookeeper is not None
        cluster.zookeeper.kill()
        await load.more()  # nobody needs it to write
        await asyncio.to_thread(cluster.start_zookeeper)
        await load.more()
        await create_topic(cluster, "zk-after")
    await load.check_exactly_once()
    with eye(cluster.zookeeper_connect) as after:
        assert {n: after.stat(f"/brokers/ids/{n}").czxid for n in cluster.nodes} == epochs
        assert after.text("/controller_epoch") == elections


def test_a_second_order(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Refused while the first is under way, which goes on as it was."""
    plan = tmp_path / "plan.json"
    asyncio.run(create_topic(cluster, "u", assignment={0: (1, 2)}))
    records = b"".join(b"%01000d\n" % number for number in range(300))
    assert kafkalite("produce", "u", bootstrap=cluster.bootstrap, stdin=records).code == 0
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "u", "partition": 0, "replicas": [1, 3]}]}))
    run = partial(admin, cluster.bootstrap)
    run("reassign", "execute", str(plan), "--throttle", "500")
    wait_until(lambda: under_way(cluster), "the first order's step")
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "u", "partition": 0, "replicas": [2, 3]}]}))
    line = refused(cluster, "reassign", "execute", str(plan), "--max-replicas", "1")
    assert (
        "u-0 is being reassigned already; nothing was changed; --replace takes this plan instead (REASSIGNMENT_IN_PROGRESS)"
        in line
    )
    [step] = under_way(cluster)
    assert (step["target"], step["throttle"]) == ([1, 3], 500)
    status = run("reassign", "status")
    assert (status["partitions"], status["under_way"], status["done"]) == (1, 1, False)
    assert status["bytes_done"] < status["bytes_total"]
    assert run("reassign", "cancel")["cancelled"] == 1
    assert run("reassign", "status", "--watch")["done"]
    planned = run("reassign", "plan", "--drain-broker", "2", "--topic", "u", "-o", str(plan))
    assert planned["replicas_to_copy"] == 1 and planned["bytes_to_copy"] > 0
    assert run("reassign", "execute", str(plan), "--watch")["done"]
    leader, follower = run("describe", "u")["topics"][0]["partitions"][0]["replicas"]
    swapped = {"topic": "u", "partition": 0, "replicas": [follower, leader]}
    plan.write_text(json.dumps({"version": 1, "partitions": [swapped]}))
    assert run("reassign", "execute", str(plan), "--watch")["done"]
    elected = run("elect", "--preferred", "u-0", "t-1")
    assert [each["result"] for each in elected["elections"]] == ["ELECTION_NOT_NEEDED", "elected"]
    assert run("describe", "u")["topics"][0]["partitions"][0]["leader"] == follower
    assert run("elect", "--unclean", "--all")["elections"] == []
    assert run("elect", "--preferred", "no-0", code=2)["failed"] == 1


def test_partitions_are_added_and_removed(cluster: ProcessCluster) -> None:
    run = partial(admin, cluster.bootstrap)
    run("create-topic", "v", "--assignment", "0=1,2;1=2,3")
    assert run("add-partitions", "v", "--count", "2")["partitions"] == 4
    assert run("add-partitions", "v", "--assignment", "3,1")["partitions"] == 5
    assert [p["replicas"] for p in run("describe", "v")["topics"][0]["partitions"]][4] == [3, 1]
    assert run("remove-partitions", "v", "--count", "2", "--yes") == {"topic": "v", "removed": [3, 4], "done": True}
    draining = run("remove-partitions", "v", "--count", "1", "--drain")
    assert draining["removed"] == [2] and not draining["done"]
    wait_until(lambda: len(run("describe", "v")["topics"][0]["partitions"]) == 2, "partition 2 is removed")


def under_way(cluster: ProcessCluster) -> Any:
    """The current batch."""
    return admin(cluster.bootstrap, "reassign", "list")["current_batch"]
