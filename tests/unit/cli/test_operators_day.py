"""What an operator met in a day with three nodes: results that said less than was known, or something else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster import cluster
from tests.support.commands import Outcome
from tests.unit.cli.test_commands import kafkalite, start


async def test_a_broker_that_is_down_has_no_disks_to_list() -> None:
    """The table left the broker out, with exit code 0."""
    async with cluster(2) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", assignment={0: (BrokerId(1), BrokerId(2))})])
        await on.stop_node(2)

        async def run(*arguments: str) -> Outcome:
            return await kafkalite("admin", "disk", *arguments, "--bootstrap", ",".join(on.bootstrap))

        for verb in ("list", "moves", "strays list"):
            said = await run(*verb.split())
            assert (said.code, said.err) == (1, "kafkalite: broker 2 did not answer: it is not alive\n"), verb
        assert (await run("list", "--json")).json["unreachable"] == [{"broker_id": 2, "error": "it is not alive"}]
        assert (await run("list", "--broker", "1")).code == 0


async def test_a_setting_of_a_broker_that_is_down_is_deleted_by_the_name_that_set_it() -> None:
    """`message.max.bytes` was "not set", because the broker's settings are kept under another spelling."""
    async with cluster(2) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", assignment={0: (BrokerId(2),)})])
        await on.stop_node(2)

        async def config(*arguments: str) -> Outcome:
            return await kafkalite("admin", "config", *arguments, "--bootstrap", ",".join(on.bootstrap))

        for spelling in ("message.max.bytes", "max.message.bytes"):
            assert (await config("set", "--broker", "2", "message.max.bytes=2000000")).code == 0
            said = await config("delete", "--broker", "2", spelling)
            assert (said.code, said.out) == (0, "nothing is set\n"), said


async def test_what_is_behind_the_end_is_not_deleted() -> None:
    """`--dry-run` promised to delete what is there; without it, the broker refused."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        for more in ("--dry-run", "--yes"):
            said = await kafkalite(
                *f"admin delete-records t --partition 0 --before 7 {more} --bootstrap {','.join(on.bootstrap)}".split()
            )
            assert (said.code, said.out) == (2, "")
            assert said.err == "kafkalite: t-0 ends at 0, before 7 (OFFSET_OUT_OF_RANGE)\n"


async def test_offsets_of_a_group_with_members_stay() -> None:
    """It said UNKNOWN_MEMBER_ID, twice, to somebody who had named no member."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        address = ("--bootstrap", ",".join(on.bootstrap))
        member = await start("consume", "t", "--group", "g", *address)
        try:
            while (await Groups(client).describe("g"))[1].state != "Stable":
                await asyncio.sleep(0.1)
            for offset in ("1", ""):
                said = await kafkalite("admin", "offsets", "set", "g", f"t-0={offset}", *address)
                assert (said.code, said.out) == (1, "")
                assert said.err == "kafkalite: g has 1 member: stop all of them first (NON_EMPTY_GROUP)\n"
        finally:
            member.terminate()
            await member.communicate()


async def test_a_second_move_says_how_it_takes_the_place_of_the_first(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}')
    async with cluster(2) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", assignment={0: (BrokerId(1),)})])
        address = ("--bootstrap", ",".join(on.bootstrap))
        assert (await kafkalite("produce", "t", *address, stdin=(b"x" * 100_000 + b"\n") * 20)).code == 0

        async def execute(throttle: int) -> Outcome:
            return await kafkalite("admin", "reassign", "execute", str(plan), "--throttle", str(throttle), *address)

        assert (await execute(1)).code == 0
        said = await execute(2)
        assert said.code == 2
        assert "t-0 is being reassigned already; nothing was changed; --replace takes this plan instead" in said.err


@pytest.mark.parametrize("host", ["10.0.0.777", "10.0.0.0/33", "example.org", ""])
async def test_an_entry_is_not_for_what_is_no_address(host: str) -> None:
    """A denial for a mistyped address was there, and denied nothing."""
    said = await kafkalite(
        *("admin", "acls", "add", "--topic", "t", "--deny-principal", "User:bob", "--deny-host", host)
    )
    assert said.code == 2
    assert f"{host!r} is neither an IP address nor a range of them" in said.err
