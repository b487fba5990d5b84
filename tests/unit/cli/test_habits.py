"""What users of Kafka's tools, rpk and kcat type first, and what it does here."""

from __future__ import annotations

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.watching import StatusRequest
from kafkalite.testing.cluster import Cluster, cluster
from kafkalite_cli.top import turn
from tests.support.commands import Outcome
from tests.unit.cli.test_commands import kafkalite
from tests.unit.cli.test_odd_input import refusal


async def at(on: Cluster, *arguments: str, stdin: bytes = b"") -> Outcome:
    return await kafkalite(*arguments, "--bootstrap", ",".join(on.bootstrap), stdin=stdin)


async def test_scripts_that_are_run_twice() -> None:
    async with cluster(1) as on:
        create = ("admin", "create-topic", "t", "--partitions", "2", "--if-not-exists")
        assert (await at(on, *create)).out == "created topic t: 2 partitions, 1 replica each\n"
        again = await at(on, *create)
        assert (again.code, again.out) == (0, "there is a topic t already: nothing was changed\n")
        assert (await at(on, *create, "--json")).json == {"topic": "t", "existed": True}
        wrong = await at(on, "admin", "create-topic", "no/name", "--if-not-exists")
        assert wrong.code == 2
        delete = ("admin", "delete-topic", "t", "--if-exists", "--yes")
        assert (await at(on, *delete)).out == "deleted topic t\n"
        gone = await at(on, *delete)
        assert (gone.code, gone.out) == (0, "there is no topic t: nothing was deleted\n")
        assert (await at(on, *delete, "--json")).json == {"topic": "t", "deleted": False}
        contradiction = await at(on, *delete, "--vanished")
        assert "do not use it with --vanished" in contradiction.err


async def test_one_key_and_headers_for_all_lines() -> None:
    async with cluster(1) as on:
        sent = await at(
            on, "produce", "t", "--key", "LH1", "--header", "source=ops", "--header", "flag=", stdin=b"a\nb\n"
        )
        assert sent.out == "2 acked\n"
        shown = await at(on, "consume", "t", "--from", "start", "--max", "2", "--format", "{key} {headers} {value}\\n")
        assert shown.out == "LH1 source=ops,flag= a\nLH1 source=ops,flag= b\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            ("consume", "t", "--format", "%k %s\\n"),
            (
                "kafkalite consume: Invalid value for --format: '%k %s\\\\n' has no field: {topic}, {partition}, {offset}, {timestamp}, {key}, {value}"
                " or {headers}\n"
            ),
        ),
        (
            ("consume", "flights.*"),
            "kafkalite consume: 'flights.*' is no topic's name; --pattern 'flights.*' reads the topics that match\n",
        ),
        (
            ("admin", "config", "set", "--topic", "t", "retention.ms", "1000"),
            "kafkalite admin config set: Invalid value for KEY=VALUE: 'retention.ms' is not KEY=VALUE\n",
        ),
        (
            ("admin", "reassign", "plan", "--topic", "t", "--replicas", "1,2,3"),
            (
                "kafkalite admin reassign plan: Invalid value for '--replicas': '1,2,3' is a list: --replicas is how many each partition has, --brokers"
                " names brokers.\n"
            ),
        ),
        (
            ("admin", "why", "orders"),
            "kafkalite admin why: Invalid value: 'orders' is not TOPIC-PARTITION, for example orders-0\n",
        ),
        (
            ("produce", "t", "--key", "a", "--key-separator", ":"),
            "kafkalite produce: give one of --key and --key-separator\n",
        ),
        (
            ("produce", "t", "--input", "json", "--header", "a=b"),
            "kafkalite produce: --key, --key-separator and --header are for text: with --input json a line has its own\n",
        ),
        (
            ("produce", "t", "--header", "a"),
            "kafkalite produce: Invalid value for --header: 'a' is not NAME=VALUE\n",
        ),
    ],
)
async def test_what_is_meant_otherwise_is_said(typed: tuple[str, ...], said: str) -> None:
    assert refusal(await kafkalite(*typed)) == said


async def test_top_begins_with_the_users_topics() -> None:
    """Fifty partitions of __consumer_offsets filled the screen."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await at(on, "produce", "t", stdin=b"a\n")
        await at(on, "consume", "t", "--from", "start", "--group", "g", "--max", "1")
        assert "__consumer_offsets" in {each.topic for each in (await client.metadata()).topics}

        async def shown(*options: str) -> set[str]:
            found = await at(on, "top", "--json", *options)
            return {each["topic"] for each in found.json["partitions"]}

        assert await shown() == {"t"}
        assert await shown("--state", "all") == {"t", "__consumer_offsets"}
        # What is named is shown.
        assert await shown("--topic", "__consumer_offsets") == {"__consumer_offsets"}
        assert await shown("--filter", "_offsets-1") == {"__consumer_offsets"}
        once = await at(on, "top", "--once")
        assert "__consumer_offsets" not in once.out


def test_the_key_s_goes_through_all_states() -> None:
    request = StatusRequest(state="user")
    states = []
    for _ in range(6):
        following = turn(request, "s", None, 10)
        assert following is not None
        request = following
        states.append(request.state)
    assert states == ["", "troubled", "offline", "moving", "internal", "user"]
