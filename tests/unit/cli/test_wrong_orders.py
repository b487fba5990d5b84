"""Orders that contradict themselves, or name what is not there: refused before anything is done, with a reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.security.dialling import ClientSecurity
from kafkalite.testing.cluster import cluster
from tests.support.commands import Outcome
from tests.unit.cli.test_commands import kafkalite
from tests.unit.cli.test_odd_input import refusal


@pytest.mark.parametrize("order", ["--preferred --unclean", "--unclean --preferred"])
async def test_a_preferred_election_is_no_unclean_one(order: str) -> None:
    """The last one won: an unclean election loses records."""
    said = refusal(await kafkalite("admin", "elect", *order.split(), "--all"))
    assert said == "kafkalite admin elect: give one of --preferred and --unclean\n"


async def test_offsets_are_reset_to_one_place() -> None:
    said = refusal(await kafkalite("admin", "groups", "reset-offsets", "g", "--to-earliest", "--to-latest"))
    assert "give one of --to-earliest, --to-latest, --to-datetime" in said


async def test_partitions_are_added_in_one_way() -> None:
    said = refusal(await kafkalite("admin", "add-partitions", "t", "--count", "1", "--total", "9"))
    assert said == "kafkalite admin add-partitions: give one of --count, --total and --assignment\n"


async def test_the_last_records_begin_where_they_are() -> None:
    said = refusal(await kafkalite("consume", "t", "--last", "3", "--from", "beginning"))
    assert said == "kafkalite consume: give one of --from and --last\n"


async def test_an_api_that_is_not_there_is_not_watched() -> None:
    said = refusal(await kafkalite("admin", "trace", "--api", "produce"))
    assert said == (
        "kafkalite admin trace: Invalid value for --api: 'produce' is no API of Kafka; did you mean 'Produce'?\n"
    )
    assert "'Nosuch' is no API of Kafka\n" in refusal(await kafkalite("admin", "trace", "--api", "Nosuch"))


async def test_a_broker_that_is_down_is_known_as_long_as_it_has_replicas() -> None:
    """An empty table of settings looked as if the broker ran."""
    async with cluster(2) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", assignment={0: (BrokerId(2),)})])
        await on.stop_node(2)

        async def run(*arguments: str) -> Outcome:
            return await kafkalite("admin", *arguments, "--bootstrap", ",".join(on.bootstrap))

        said = await run("config", "get", "--broker", "2")
        assert (said.code, said.err) == (0, "note: broker 2 is not alive, and nothing is set for it\n")
        assert (await run("broker", "uncordon", "2")).out == "broker 2 takes new replicas\n"
        said = await run("disk", "list", "--broker", "2")
        assert (said.code, said.err) == (1, "kafkalite: broker 2 is not alive (BROKER_NOT_AVAILABLE)\n")


async def test_a_login_where_none_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text(
        '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "SCRAM-SHA-256"\n"sasl.username" = "a"\n"sasl.password" = "b"\n'
    )
    async with cluster(1) as on:
        address = ",".join(on.bootstrap)
        said = await kafkalite("admin", "list-topics", "--client-config", str(file), "--bootstrap", address)
    assert said.code == 1
    reason = "ILLEGAL_SASL_STATE: this listener takes no login: set security.protocol to PLAINTEXT or SSL"
    assert said.err == f"kafkalite: {reason}\n"


@contextlib.asynccontextmanager
async def closing() -> AsyncIterator[int]:
    """A port whose server reads something, and closes: what a listener without TLS does with a handshake."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_tls_with_a_listener_that_has_none(tmp_path: Path) -> None:
    """The error had no words at all."""
    file = tmp_path / "client.toml"
    file.write_text('"security.protocol" = "SSL"\n')
    async with closing() as port:
        arguments = ("--client-config", str(file), "--bootstrap", f"127.0.0.1:{port}", "--timeout", "1")
        said = await kafkalite("admin", "list-topics", *arguments)
    assert said.code == 1
    assert said.err.splitlines()[-1] == (
        f"kafkalite: 127.0.0.1:{port}: the connection was closed during the TLS handshake: a listener without TLS?"
    )


def test_a_missing_truststore_is_named_once(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(ConfigError) as refused:
        ClientSecurity("SSL", truststore=str(missing)).open()
    assert str(refused.value) == f"TLS: {missing}: No such file or directory"


async def test_a_configuration_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("a = = 3")
    said = refusal(await kafkalite("serve", "--config", str(file)))
    assert said == f"kafkalite: configuration file: {file}: Invalid value (at line 1, column 5)\n"


async def test_a_configuration_that_does_not_say_who_may_change_users(tmp_path: Path) -> None:
    """The answer was to name a configuration, which had been named."""
    file = tmp_path / "node.toml"
    file.write_text('"zookeeper.connect" = "zk:2181"')
    said = refusal(
        await kafkalite("admin", "users", "set", "a", "--zookeeper", "zk:2181", "--config", str(file), stdin=b"x")
    )
    assert said.startswith(f"kafkalite: {file} has no zookeeper.set.acl, so it is not known who may change")
