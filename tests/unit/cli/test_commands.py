"""The command line as a process, against the fake cluster."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.model import Offset
from kafkalite_cli.admin.command import VERBS as ADMIN_VERBS
from kafkalite_cli.admin.command import admin
from kafkalite_cli.main import cli
from tests.fake_cluster import FakeCluster
from tests.support.commands import PROGRAM, Outcome, environment
from tests.support.waiting import until

_WAITS = "note: no broker answers yet"


async def start(*arguments: str, cluster: FakeCluster | None = None) -> asyncio.subprocess.Process:
    environ = environment(() if cluster is None else cluster.bootstrap)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*PROGRAM, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)


async def kafkalite(*arguments: str, cluster: FakeCluster | None = None, stdin: bytes = b"") -> Outcome:
    """Without the note that nobody answers yet: that depends on the machine."""
    process = await start(*arguments, cluster=cluster)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    lines = [each for each in err.decode().splitlines(keepends=True) if not each.startswith(_WAITS)]
    return Outcome(process.returncode, out.decode(), "".join(lines))


async def test_a_topics_life() -> None:
    async with FakeCluster(3) as cluster:
        created = await kafkalite("admin", "create-topic", "t", "--partitions", "2", "--json", cluster=cluster)
        assert (created.code, created.json["topic"], created.json["ready"]) == (0, "t", True)
        again = await kafkalite("admin", "create-topic", "t", cluster=cluster)
        assert (again.code, again.out) == (2, "")
        assert "TOPIC_ALREADY_EXISTS" in again.err
        assert again.err.count("\n") == 1
        listed = await kafkalite("admin", "list-topics", cluster=cluster)
        assert listed.out == "TOPIC  PARTITIONS  REPLICAS\nt      2           3\n"
        described = await kafkalite("admin", "describe", "t", "--json", cluster=cluster)
        assert [p["leader"] for p in described.json["topics"][0]["partitions"]] == [1, 2]
        deleted = await kafkalite("admin", "delete-topic", "t", "--yes", cluster=cluster)
        assert (deleted.code, deleted.out) == (0, "deleted topic t\n")
        gone = await kafkalite("admin", "describe", "t", "--json", cluster=cluster)
        assert (gone.code, gone.json["error"]["code"]) == (2, "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize(
    "verb",
    [
        ("delete-topic", "t", "--dry-run"),
        ("remove-partitions", "t", "--count", "1", "--dry-run"),
        ("describe", "t"),
        ("list-topics",),
    ],
)
async def test_a_node_that_has_just_started_is_no_reason_to_say_that_a_topic_does_not_exist(
    verb: tuple[str, ...],
) -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t", 2)
        cluster.nodes[1].empty_metadata = 2
        found = await kafkalite("admin", *verb, cluster=cluster)
        assert (found.code, found.err) == (0, "")
        assert re.search(r"\bt\b", found.out)


@pytest.mark.checklist(12)
async def test_describe_internal_asks_every_node() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t")
        cluster.log("t").end = 7
        told = (await kafkalite("admin", "describe", "--internal", "--json", cluster=cluster)).json
        assert [(r["broker_id"], r["is_leader"], r["high_watermark"]) for r in told["replicas"]] == [
            (1, True, Offset(7)),
            (2, False, 7),
            (3, False, 7),
        ]
        cluster.nodes[2].hung = True
        partly = await kafkalite("admin", "describe", "--internal", "--timeout", "6", cluster=cluster)
        assert partly.code == 1
        assert "broker 2 did not answer" in partly.err
        assert len(partly.out.splitlines()) == 3


@pytest.mark.parametrize("verb", [["moves"], ["strays", "list"]])
async def test_a_node_that_does_not_answer_is_not_taken_for_one_that_has_nothing(verb: list[str]) -> None:
    async with FakeCluster(2) as cluster:
        assert (await kafkalite("admin", "disk", *verb, cluster=cluster)).code == 0
        cluster.nodes[2].hung = True
        partly = await kafkalite("admin", "disk", *verb, "--timeout", "6", cluster=cluster)
        assert (partly.code, "broker 2 did not answer" in partly.err) == (1, True)
        told = await kafkalite("admin", "disk", *verb, "--timeout", "6", "--json", cluster=cluster)
        assert (told.code, [each["broker_id"] for each in told.json["unreachable"]]) == (1, [2])


async def test_cluster_and_health() -> None:
    async with FakeCluster(2) as cluster:
        described = await kafkalite("admin", "describe-cluster", cluster=cluster)
        assert described.out.startswith("cluster fake-cluster, controller broker 1, controller epoch 4\n")
        assert (await kafkalite("admin", "health", cluster=cluster)).out == "healthy: 2 brokers, no problems\n"
        cluster.problems.append(HealthProblem("partition.offline", 0, "no leader", "t-0"))
        sick = await kafkalite("admin", "health", "--json", cluster=cluster)
        assert sick.code == 1
        assert [p["subject"] for p in sick.json["problems"]] == ["t-0", "t-0"]


async def test_health_lists_the_first_of_many_problems_of_one_kind() -> None:
    """A broker that was gone took 65 lines, one for each partition."""
    async with FakeCluster(1) as cluster:
        under = [HealthProblem("partition.under_replicated", 0, f"t-{n}: not in sync: 4", f"t-{n}") for n in range(30)]
        cluster.problems += [*under, HealthProblem("partition.offline", 0, "u-0 has no leader", "u-0")]
        sick = await kafkalite("admin", "health", cluster=cluster)
        rows = [
            line.split() for line in sick.out.splitlines() if line.startswith("partition.") and ": " not in line[:30]
        ]
        assert rows[0][:2] == ["partition.offline", "u-0"], "the most urgent comes first"
        assert [row[1] for row in rows[1:]] == [*(f"t-{n}" for n in range(10)), "and"] and rows[-1][2:4] == [
            "20",
            "more",
        ]
        whole = await kafkalite("admin", "health", "--json", cluster=cluster)
        assert len(whole.json["problems"]) == 31


async def test_health_names_the_broker_that_is_gone() -> None:
    """Not only the partitions that miss it."""
    async with FakeCluster(3) as cluster:
        cluster.create("t", 2)
        await cluster.kill(2, new_leader=1)
        sick = await kafkalite("admin", "health", cluster=cluster)
        assert sick.code == 1
        (row,) = [line.split() for line in sick.out.splitlines() if line.startswith("broker.unreachable  ")]
        assert row == ["broker.unreachable", "2", *["not", "alive;", "it", "should", "have", "2", "replicas"]]
        assert "start the broker again" in sick.out


async def test_produce_and_consume() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t", 3)
        lines = b"".join(b"k%d:value %d\n" % (n % 7, n) for n in range(500)) + b"last:no newline"
        sent = await kafkalite("produce", "t", "--key-separator", ":", cluster=cluster, stdin=lines)
        assert (sent.code, sent.out, sent.err) == (0, "501 acked\n", "")
        read = await kafkalite("consume", "t", "--from", "beginning", "--exit-at-end", "--json", cluster=cluster)
        records = [json.loads(line) for line in read.out.splitlines()]
        assert len(records) == 501
        of_key = [r["value"] for r in records if r["key"] == "k3"]
        assert of_key == [f"value {n}" for n in range(500) if n % 7 == 3]
        shown = await kafkalite(
            "consume", "t", "--from", "0", "--partition", "1", "--max", "1", "--format", "{partition}/{offset} {key}\\n",
            cluster=cluster,
        )  # fmt: skip
        assert shown.out.startswith("1/0 ")


async def test_consume_ends_at_sigint() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        await kafkalite("produce", "t", cluster=cluster, stdin=b"one\n")
        process = await start("consume", "t", "--from", "beginning", cluster=cluster)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"one\n"
        process.send_signal(2)
        assert (await process.communicate())[1] == b""
        assert process.returncode == 0


async def test_produce_tells_failures() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        cluster.max_message_bytes = 300
        failed = await kafkalite("produce", "t", "--json", cluster=cluster, stdin=b"x" * 1000 + b"\n")
        assert failed.code == 1
        assert (failed.json["failed"], failed.json["refused"], failed.json["never_sent"]) == (1, 1, 0)
        assert "MESSAGE_TOO_LARGE" in failed.err
        keyless = await kafkalite("produce", "t", "--key-separator", ":", cluster=cluster, stdin=b"a:b\nc\n")
        assert (keyless.code, keyless.out) == (2, "1 acked\n")
        assert "line 2 has no key" in keyless.err


async def test_produce_says_exactly_what_became_of_each_line() -> None:
    """A broker stops to answer: what it has acknowledged, what it may have, and what has never left."""
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        process = await start("produce", "t", "--timeout", "3", "--json", cluster=cluster)
        assert process.stdin is not None
        process.stdin.write(b"early\n" * 10)
        await until(lambda: cluster.log("t").end >= 10)
        cluster.nodes[1].hung = True
        out, err = await process.communicate(b"".join(b"%0999d\n" % n for n in range(2_000)))
        told = json.loads(out)
        assert process.returncode == 1
        assert (told["acked"], told["refused"]) == (10, 0)
        assert told["failed"] == told["unknown"] + told["never_sent"] == 2_000
        assert 0 < told["unknown"] <= 5 * 131_072 // 1_000, "five batches are under way at most"
        assert f"2,000 records failed ({told['unknown']} may or may not be in the log, " in err.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["admin", "create-topic", "t", "--partitions", "0"],
        ["admin", "create-topic", "t", "--assignment", "0=1,1"],
        ["admin", "create-topic", "t", "--assignment", "1=1"],
        ["admin", "create-topic", "t", "--assignment", "0=1;0=2"],
        ["admin", "create-topic", "t", "--assignment", "0=x"],
        ["admin", "create-topic", "t", "--assignment", "0=1", "--partitions", "1"],
        ["admin", "create-topic", "t", "--set", "novalue"],
        ["admin", "list-topics", "--bootstrap", "host:port"],
        ["produce", "t", "--acks", "1", "--idempotent"],
        ["produce", "missing"],
        ["consume", "t", "--from", "middle"],
        ["consume", "t", "--from", "5"],
        ["consume", "t", "--partition", "9", "--from", "5"],
        ["consume", "t", "--partition", "0", "--from", "99"],
    ],
    ids=" ".join,
)
async def test_bad_input_is_one_line_and_exit_2(arguments: list[str]) -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        outcome = await kafkalite(*arguments, cluster=cluster)
        assert outcome.code == 2
        assert outcome.out == ""
        assert len(outcome.err.splitlines()) == 1


async def test_nobody_there_exits_1() -> None:
    outcome = await kafkalite("admin", "list-topics", "--bootstrap", "127.0.0.1:1", "--timeout", "0.3", "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "NETWORK_EXCEPTION"


async def test_help_tells_the_commands() -> None:
    outcome = await kafkalite("--help")
    assert outcome.code == 0
    assert {"admin", "produce", "consume", "serve"} <= {
        line.split()[0] for line in outcome.out.splitlines() if line.strip()
    }


#: What scripts may rely on: verbs that people have been given.
VERBS = {
    *("serve", "dev", "zookeeper", "produce", "consume"),
    *(f"admin {verb}" for verb in ("create-topic", "delete-topic", "list-topics", "describe", "describe-cluster")),
    *(f"admin {verb}" for verb in ("add-partitions", "remove-partitions", "elect", "health", "why")),
    *(f"admin reassign {verb}" for verb in ("plan", "execute", "status", "list", "cancel")),
    *(f"admin config {verb}" for verb in ("get", "set", "delete")),
    *("admin disk list", "admin disk online"),
}


def test_the_list_of_verbs_says_what_their_help_says_and_loads_none() -> None:
    context = click.Context(admin)
    commands = {verb: admin.get_command(context, verb) for verb in admin.list_commands(context)}
    said = {verb: command.get_short_help_str(10_000) for verb, command in commands.items() if command is not None}
    assert said == {verb: sentence for verb, (_, sentence) in ADMIN_VERBS.items()}
    program = "import sys; from kafkalite_cli.main import run; run(['admin', '--help']); print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=True)
    assert {"create-topic", "kafkalite_cli.admin.command"} <= set(listed.stdout.split())
    assert {module for module, _ in ADMIN_VERBS.values()} & set(listed.stdout.split()) == set()


@pytest.mark.checklist(94)
def test_the_help_of_every_verb_has_an_example() -> None:
    def verbs(command: click.Command, path: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from verbs(found, f"{path} {name}", context)

    context = click.Context(cli)
    told = dict(verbs(cli, "kafkalite", context))
    assert {f"kafkalite {verb}" for verb in VERBS} <= told.keys()
    for path, command in told.items():
        text = command.get_help(click.Context(command, info_name=path))
        examples = [line.strip() for line in text.splitlines() if line.startswith("    ") and path in line]
        assert examples, f"{path} has no example"
        for example in examples:  # and its options are its own
            for option in re.findall(r"(?<=\s)--[a-z-]+", example.partition("|")[0].partition("#")[0]):
                assert any(option in parameter.opts for parameter in command.params), (path, option)


async def test_to_the_end_of_a_partition_that_cannot_be_read() -> None:
    """It ends, and says where: before, it asked for ever."""
    async with FakeCluster(3) as cluster:
        cluster.create("t", 2)
        await kafkalite("produce", "t", "--partition", "0", cluster=cluster, stdin=b"a\nb\n")
        cluster.log("t", 1).end = 7  # records that no fetch gives
        read = await kafkalite(
            "consume", "t", "--from", "beginning", "--exit-at-end", "--timeout", "5", cluster=cluster
        )
        assert (read.code, read.out) == (1, "a\nb\n")
        assert "REQUEST_TIMED_OUT" in read.err and "t-1 at 0 of 7" in read.err and "t-0" not in read.err


@pytest.mark.parametrize("words", [("comp-0",), ("comp", "0")])
async def test_why_takes_the_partition_as_a_word_too(words: tuple[str, ...]) -> None:
    async with FakeCluster(1) as cluster:
        told = await kafkalite("admin", "why", *words, cluster=cluster)
        assert "comp" in told.err and "not TOPIC-PARTITION" not in told.err and "Usage" not in told.err
        assert "not TOPIC-PARTITION" in (await kafkalite("admin", "why", "comp", "x", cluster=cluster)).err
