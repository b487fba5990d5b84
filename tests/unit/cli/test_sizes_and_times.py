"""Numbers of bytes with units, and times that are given as how long ago, wherever an option takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click
import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import describe_quotas
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.testing.cluster import cluster
from kafkalite_cli.main import cli, run
from kafkalite_cli.parameters import At, Bytes, parse_moment, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500000B", 500_000),
        ("500k", 500_000),
        ("500kB", 500_000),
        ("10MB", 10_000_000),
        ("10 MB", 10_000_000),
        ("10MB/s", 10_000_000),
        ("1.5GB", 1_500_000_000),
        ("2T", 2_000_000_000_000),
        ("16KiB", 16_384),
        ("1MiB/s", 1_048_576),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert Bytes().convert(text, None, None) == size


@pytest.mark.parametrize(
    "text",
    ["", "MB", "-5MB", "0MB", "10Mb", "10mb", "1e6", "1,5MB", "0.0001k", "99999999T", "ten", "\u0661MB", "10MB/h"],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Bytes().convert(text, None, None)


def _options(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Option]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _options(command, f"{path} {name}")
        else:
            for each in command.params:
                if isinstance(each, click.Option):
                    yield f"{path} {name} {each.opts[0]}".strip(), each


def test_every_option_of_bytes_takes_units() -> None:
    """`backup --limit` did, `--throttle` did not."""
    found = {name for name, option in _options(cli) if isinstance(option.type, Bytes)}
    assert found >= {
        "admin backup create --limit",
        "admin backup restore --limit",
        "admin balance run --throttle",
        "admin broker replace --throttle",
        "admin disk move --throttle",
        "admin reassign execute --throttle",
        "perf produce --batch-bytes",
        "perf produce --size",
        "produce --batch-bytes",
    }
    named = {
        name
        for name, _ in _options(cli)
        if name.rpartition(" ")[2] in ("--throttle", "--batch-bytes", "--size")
        or (name.startswith("admin backup") and name.endswith("--limit"))
    }
    assert named <= found


def test_times() -> None:
    assert parse_moment("-90s") == At(90_000, is_ago=True)
    assert parse_moment("-7d").at_ms(700_000_000) == 95_200_000
    assert parse_moment("-7d").at_ms(5) == 0
    assert parse_moment("1970-01-02").at_ms(5) == 86_400_000
    for text in ("7d", "-7w", "-d", "-1.5h", "yesterday", "-" + "9" * 5000 + "d"):
        with pytest.raises(ValueError):
            parse_moment(text)


async def test_a_group_goes_back_by_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """ "'-7d' is not an ISO date and time", though `consume --from -7d` is one."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        async with Producer(client) as producer:
            await producer.send("t", None, b"now")
        await Groups(client).commit("g", {TopicPartition("t", 0): 1})

        async def admin(*words: str) -> str:
            code = await asyncio.to_thread(run, ["admin", *words, "--bootstrap", *on.bootstrap])
            said = capsys.readouterr()
            assert code == 0, said.err
            return said.out

        shown = await admin("groups", "reset-offsets", "g", "--to-datetime", "-7d")
        assert ["t", "0", "1", "0"] in [line.split() for line in shown.splitlines()]  # among the node's log
        await admin("quotas", "set", "producer_byte_rate=10MB", "--user", "shop")
        ((_, limits),) = await describe_quotas(client)
        assert limits == {"producer_byte_rate": 10_000_000}
