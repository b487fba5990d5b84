"""What people type, and what stands around the program: one line on stderr, a code that is not 0, no traceback."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalite.client.admin import partitions
from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.offset_reset import TIME, Reset
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.disks import DescribeDisksResponse, DiskMove, DiskMoveResult, MoveReplicasResponse
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.rpc.answers import RpcNotSent, RpcTimeout
from kafkalite.testing.cluster import cluster
from kafkalite_cli.admin import disk
from kafkalite_cli.admin.groups import _moment, _reset
from kafkalite_cli.admin.plan_files import read_plan
from kafkalite_cli.admin.refusals import refuse_forbidden
from kafkalite_cli.main import cli
from kafkalite_cli.main import run as run_command
from tests.fake_cluster import FakeCluster
from tests.support.commands import PROGRAM, ROOT, Outcome, environment
from tests.unit.cli.test_commands import kafkalite

#: More than 64 bits.
HUGE = str(10**30)
PLAN = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    return str(path)


def refusal(outcome: Outcome) -> str:
    """The one line."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1 and outcome.err.startswith("kafkalite"), outcome.err
    return outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["admin", "create-topic", "t", "--partitions", HUGE],
        ["admin", "create-topic", "t", "--replication-factor", HUGE],
        ["admin", "create-topic", "t", "--assignment", f"0={HUGE}"],
        ["admin", "create-topic", "t", "--assignment", "0=-1"],
        ["admin", "add-partitions", "t", "--count", HUGE],
        ["admin", "remove-partitions", "t", "--count", HUGE],
        ["admin", "offsets", "set", "g", f"t-0={HUGE}"],
        ["admin", "offsets", "set", "g", "t-0=" + "9" * 5000],
        ["admin", "config", "get", "--broker", HUGE],
        ["admin", "disk", "list", "--broker", "-1"],
        ["admin", "disk", "move", "t-0", "--broker", "1", "--to", "/d", "--throttle", HUGE],
        ["admin", "reassign", "execute", "PLAN", "--throttle", HUGE],
        ["admin", "reassign", "execute", "PLAN", "--max-replicas", HUGE],
        ["admin", "list-topics", "--timeout", "nan"],
        ["top", "--once", "--interval", "nan"],
        ["produce", "t", "--linger-ms", "nan"],
        ["consume", "t", "--partition", "0", "--from", HUGE],
        ["consume", "t", "--partition", HUGE],
        ["admin", "tokens", "create", "--max-life", HUGE],
        ["admin", "tokens", "renew", "id", "--period", HUGE],
        ["admin", "tokens", "expire", "id", "--after", HUGE],
        ["serve", "--kafka", "localhost:²"],
        ["serve", "--kafka", "localhost:" + "9" * 5000],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
async def test_a_number_that_is_none(arguments: list[str], plan: str) -> None:
    """The wire has 64 bits for it, and asyncio no answer to nan."""
    refusal(await kafkalite(*[plan if each == "PLAN" else each for each in arguments]))


@pytest.mark.parametrize(
    "arguments",
    [["consume", "--pattern", "REGEX"], ["consume", "t", "--grep", "REGEX"], ["admin", "backup", "create", "/x", "--pattern", "REGEX"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("regex", ["(", "a{99999999999}"])
async def test_an_expression_that_is_none(arguments: list[str], regex: str) -> None:
    async with FakeCluster(1) as cluster:
        said = await kafkalite(*[regex if each == "REGEX" else each for each in arguments], cluster=cluster)
    assert f"{regex!r} is not a regular expression: " in refusal(said)


@pytest.mark.parametrize(
    "arguments",
    [
        ["admin", "users", "set", "alice"],
        ["profile", "create", "p", "--bootstrap", "b:1", "--set", "security.protocol=SASL_SSL", "--set", "sasl.username=x"],
    ],
    ids=" ".join,
)  # fmt: skip
async def test_a_password_that_is_no_text(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "the password is not UTF-8" in refusal(await kafkalite(*arguments, stdin=b"a\xff\n"))


async def test_sigterm_leaves_the_terminal_as_it_was() -> None:
    async with cluster(1) as on:
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "top", "--bootstrap", ",".join(on.bootstrap),
            stdin=theirs, stdout=theirs, stderr=theirs,
            env=environment(TERM="xterm"),
        )  # fmt: skip
        said = b""
        while b"controller 1" not in said:
            said += await asyncio.to_thread(os.read, ours, 4096)
        assert termios.tcgetattr(theirs) != before
        process.terminate()
        assert await process.wait() == 143
        assert termios.tcgetattr(theirs) == before
        said = os.read(ours, 100_000)
        assert b"\x1b[?1049l" in said and b"\x1b[?25h" in said
        os.close(ours)
        os.close(theirs)


async def test_partitions_that_came_meanwhile_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody adds two while the question waits: the two that it named are not the last ones any more."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 4, 1)])
        loop = asyncio.get_running_loop()

        def confirm(_question: str, *, yes: bool) -> None:
            adding = partitions.add_partitions(client, "t", 6, (), timeout_s=150)
            asyncio.run_coroutine_threadsafe(adding, loop).result()

        monkeypatch.setattr("kafkalite_cli.admin.partitions.confirm", confirm)
        arguments = ["admin", "remove-partitions", "t", "--count", "2", "--bootstrap", ",".join(on.bootstrap)]
        said = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        assert "nothing was changed" in str(said.exception)
        assert await partitions.partition_count(client, "t", timeout_s=150) == 6


async def test_a_total_number_of_partitions_may_be_asked_for_twice() -> None:
    """A person does so whose first command was lost; with --count it would add or remove once more."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 4, 1)])
        for verb, total, done in (
            (["add-partitions"], "6", "added 2 partitions to t, which has 6 now"),
            (["remove-partitions", "--yes"], "3", "removed t-3, t-4, t-5"),
        ):
            arguments = ["admin", *verb, "t", "--total", total, "--bootstrap", ",".join(on.bootstrap)]
            first, again = await kafkalite(*arguments), await kafkalite(*arguments)
            assert (first.code, first.out.strip()) == (0, done), first.err
            assert (again.code, again.out.strip()) == (0, f"t has {total} partitions already"), again.err
        both = await kafkalite("admin", "remove-partitions", "t", "--total", "2", "--count", "1")
        assert "give one of --count and --total" in refusal(both)
        more = await kafkalite("admin", "remove-partitions", "t", "--total", "9", "--bootstrap", ",".join(on.bootstrap))
        assert more.code == 2


async def test_after_a_lost_answer_the_command_that_may_follow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 4, 1)])

        async def lost(*_: object, **__: object) -> None:
            raise RpcTimeout("no answer in 1 s")

        monkeypatch.setattr(AsyncClient, "request", lost)
        arguments = ["admin", "remove-partitions", "t", "--count", "1", "--yes", "--bootstrap", ",".join(on.bootstrap)]
        said = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        assert "`kafkalite admin remove-partitions t --total 3` repeats it" in str(said.exception)


async def test_a_shift_whose_answer_is_lost_is_not_repeated_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        await Groups(client).commit("g", {TopicPartition("t", 0): 0})

        async def lost(*_: object, **__: object) -> None:
            raise RpcTimeout("no answer in 1 s")

        monkeypatch.setattr(Groups, "commit", lost)
        for how, hint in (
            ("--shift-by=-1", "see `kafkalite admin offsets get g`"),
            ("--to-earliest", "no answer in 1 s"),
        ):
            arguments = ["admin", "groups", "reset-offsets", "g", how, "--execute", "--bootstrap", on.bootstrap[0]]
            said = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
            assert str(said.exception).endswith(hint)


async def test_the_line_that_is_no_record_is_counted_as_editors_do() -> None:
    async with FakeCluster(1) as cluster:
        await kafkalite("admin", "create-topic", "t", cluster=cluster)
        lines = b'\n{"value": 1}\n\n{"value": 2}\nx\n'
        said = await kafkalite("produce", "t", "--input", "json", cluster=cluster, stdin=lines)
    assert (said.code, said.out) == (2, "2 acked\n")
    assert "line 5: not JSON" in said.err


async def test_groups_that_were_deleted_before_an_error_are_named() -> None:
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        await Groups(client).commit("one", {TopicPartition("t", 0): 0})
        arguments = ["admin", "groups", "delete", "one", "two", "--yes", "--bootstrap", ",".join(on.bootstrap)]
        assert "; deleted before it: one" in refusal(await kafkalite(*arguments))


async def test_ctrl_c_at_a_question_ends_the_command() -> None:
    async with FakeCluster(1) as cluster:
        await kafkalite("admin", "create-topic", "t", cluster=cluster)
        arguments = ["admin", "delete-topic", "t", "--bootstrap", cluster.bootstrap[0]]
        assert await asyncio.to_thread(_at_question, arguments, b"\x03") == 130
        assert await asyncio.to_thread(_at_question, arguments, b"n\n") == 130
        assert await asyncio.to_thread(_at_question, arguments, b"what\nyes\n") == 0


def _at_question(arguments: list[str], keys: bytes) -> int:
    """The exit code of a command on a terminal where these keys are pressed at its question."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env=environment(),
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 1000)
    os.write(ours, keys)
    try:
        return process.wait()
    finally:
        process.kill()
        os.close(ours)


async def test_idempotent_alone_does_not_mean_every_entry() -> None:
    said = refusal(await kafkalite("admin", "acls", "remove", "--topic", "t", "--idempotent", "--yes"))
    assert "(--idempotent: a producer)" in said


def test_no_time_is_one_of_the_protocols_special_numbers() -> None:
    """-1 is the end of the log, -2 its beginning."""
    assert _reset("earliest", _moment("1969-12-31T23:59:59.999+00:00").at_ms(0), None, None) == Reset(TIME, 0)


async def test_the_number_of_a_partition_may_begin_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """`disk move t-00 --watch` found no move of that name, and said at once that it was done."""
    move = DiskMove("t", 0, "/a", "/b", "copying", 0, 9, 1)

    async def answer_of(*_: object) -> object:
        return answers.pop(0)

    answers: list[object] = [
        MoveReplicasResponse((DiskMoveResult("t", 0, 0),)),
        DescribeDisksResponse(BrokerId(1), (), (move,)),
    ]
    monkeypatch.setattr(disk, "answer_of", answer_of)
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        arguments = [
            "admin",
            "disk",
            "move",
            "t-00",
            "--broker",
            "1",
            "--to",
            "/b",
            "--bootstrap",
            cluster.bootstrap[0],
        ]
        said = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert (said.exit_code, said.output[:12]) == (0, "t-0 -> /b: 0")


async def test_what_is_too_long_to_be_read_is_cut() -> None:
    said = refusal(await kafkalite("admin", "why", "x" * 20_000))
    assert len(said) < 700 and "… (20" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"partitions": [{"partition": ' + b"9" * 10_000 + b"}]}", "a number is too long"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8"),
        (b'{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "partition is not a number from 0"),
        (b'{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "partition is not a number from 0"),
        (b'{"partitions": [{"topic": "", "partition": 0, "replicas": [1]}]}', "topic is not the name of a topic"),
    ],
)
async def test_a_file_that_is_no_plan(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    assert says in refusal(await kafkalite("admin", "reassign", "execute", str(path)))


async def test_a_file_without_end_is_no_plan() -> None:
    """Whatever is given for a plan, no more of it is read than a plan can be."""
    assert "a plan has at most 64.0 MB" in refusal(await kafkalite("admin", "reassign", "execute", "/dev/zero"))


def test_a_plan_may_have_the_mark_of_windows(plan: str) -> None:
    Path(plan).write_bytes(b"\xef\xbb\xbf" + Path(plan).read_bytes())
    assert read_plan(plan) == {TopicPartition("t", 0): (1,)}


async def test_a_plan_that_is_more_than_a_node_takes_of_a_client(plan: str, tmp_path: Path) -> None:
    """Nodes cut a connection on which this much arrives: that would look like a cluster in trouble."""
    many = [{"topic": "t" * 200, "partition": number, "replicas": [1]} for number in range(50_000)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"version": 1, "partitions": many}))
    async with FakeCluster(1) as cluster:
        said = refusal(await kafkalite("admin", "reassign", "execute", str(path), cluster=cluster))
    assert "nodes accept 8388608 of a client" in said


async def test_what_is_not_there_is_named() -> None:
    async with FakeCluster(1) as cluster:
        for arguments in (["describe", "no"], ["why", "no-0"]):
            assert "there is no topic 'no' (UNKNOWN_TOPIC_OR_PARTITION)" in refusal(
                await kafkalite("admin", *arguments, cluster=cluster)
            )


async def run(command: str, **environ: str) -> tuple[int, str]:
    """A shell's exit code, and all that is said on stderr; {kl} is the program."""
    program = f"{sys.executable} -m kafkalite_cli"
    own = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }  # a container's; shells have none
    process = await asyncio.create_subprocess_shell(
        command.replace("{kl}", program),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**own, "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}", **environ},
    )
    _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "2>&-"])
async def test_standard_files_may_be_closed(closed: str) -> None:
    """Else sockets and uvloop's own files get their numbers, and the process aborts."""
    async with FakeCluster(1) as cluster:
        assert await run(f"{{kl}} admin list-topics {closed}", KAFKALITE_BOOTSTRAP=cluster.bootstrap[0]) == (0, "")


@pytest.mark.parametrize("flag", ["", "--json"])
async def test_a_full_disk_under_the_output(flag: str) -> None:
    async with FakeCluster(1) as cluster:
        code, said = await run(f"{{kl}} admin list-topics {flag} > /dev/full", KAFKALITE_BOOTSTRAP=cluster.bootstrap[0])
        assert (code, said) == (1, "kafkalite: No space left on device\n")


async def test_an_argument_that_the_locale_cannot_read() -> None:
    code, said = await run("{kl} admin describe $(printf '\\303')", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (code, said) == (2, "kafkalite: an argument is not UTF-8\n")


async def test_a_terminal_that_has_no_character_for_an_ellipsis() -> None:
    assert await run("{kl} admin quotas set --help", PYTHONIOENCODING="latin-1") == (0, "")


async def test_a_version_without_an_installation() -> None:
    outcome = await kafkalite("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("kafkalite, version ")


async def test_a_port_where_something_else_listens() -> None:
    """A page's port, or one that asks for TLS: it closes without an answer."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await kafkalite("admin", "list-topics", "--bootstrap", f"127.0.0.1:{port}", "--timeout", "2")
    assert outcome.code == 1
    assert "not a Kafka listener, or one that wants TLS or SASL? See --client-config" in outcome.err
    [line] = outcome.err.splitlines()
    assert line.count(f"127.0.0.1:{port}") <= 2


def test_who_may_not_ask_is_told_so() -> None:
    """`health` called the nodes unreachable, and said to start them again."""
    refuse_forbidden([api_error(ErrorCode.REQUEST_TIMED_OUT, "late"), RpcNotSent("gone"), "an answer"])
    forbidden = api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed: DESCRIBE on kafka-cluster")
    with pytest.raises(ApiError) as raised:
        refuse_forbidden([RpcNotSent("gone"), forbidden])
    assert raised.value is forbidden


@pytest.mark.parametrize(
    ("arguments", "helps"),
    [
        (["help"], "use 'kafkalite --help'"),
        (["--json", "admin", "list-topics"], "--json goes after the command"),
        (["--bootstrap", "x:1", "admin", "health"], "--bootstrap goes after the command"),
        (["tops"], "Did you mean 'top'?"),
        (["profile", "sho"], "Did you mean 'show'?"),
        (["admin", "backup", "restore", "/nonexistent"], "no such directory"),
        (["admin", "backup", "create", "x", "--limit", "fast"], "500k or 20MB"),
    ],
)
def test_a_wrong_command_gets_one_line_that_helps(
    arguments: list[str], helps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    error = capsys.readouterr().err
    assert helps in error and error.count("\n") == 1


async def test_names_numbers_and_places_that_a_cluster_refuses() -> None:
    """One line that says what is wrong with what was typed, and 2, for nothing was changed."""
    async with cluster(1) as on:

        async def run(*arguments: str) -> Outcome:
            return await kafkalite(*arguments, "--bootstrap", ",".join(on.bootstrap))

        many = await run("admin", "create-topic", "t", "--set", "min.insync.replicas=2")
        assert (many.code, many.out) == (0, "created topic t: 1 partition, 1 replica each\n")
        assert "t has 1 replica, so min.insync.replicas=2 counts as 1" in many.err
        for arguments, says in (
            (("create-topic", "two words"), "a topic's name has letters, digits, '.', '_' and '-'"),
            (("describe", ""), "'' is not a topic's name"),
            (("add-partitions", "t", "--count", "2147483647"), "--count: t has 1 partition, and 2,147,483,648 are too"),
            (("delete-records", "t", "--before", "-5x"), "Invalid value for --before: '-5x' is not"),
            (("users", "delete", "nobody", "--yes"), "'nobody' has no SCRAM credentials"),
            (("disk", "online", "/nope", "--broker", "1"), "/nope is not one of log.dirs"),
            (("acls", "list"), "No Authorizer is configured"),
        ):
            assert says in refusal(await run("admin", *arguments)), arguments


async def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    assert f"configuration file: {path}: No such file or directory" in refusal(
        await kafkalite("serve", "--config", str(path))
    )


async def test_top_on_a_terminal_that_cannot_be_redrawn() -> None:
    """It shows what there is, once, instead of nothing until it is stopped."""
    async with cluster(1) as on:
        outside, terminal = os.openpty()
        try:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, "top", "--bootstrap", ",".join(on.bootstrap),
                stdin=terminal, stdout=terminal, stderr=terminal,
                env=environment(TERM="dumb"),
            )  # fmt: skip
            assert await process.wait() == 0
            assert b"1 of 1 brokers answer" in os.read(outside, 65_536)
        finally:
            os.close(outside)
            os.close(terminal)
