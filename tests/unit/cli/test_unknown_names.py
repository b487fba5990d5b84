"""Every verb that names a topic, a partition, a broker, a group, a directory or a user that is not there: exit code 2, and one line that names it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.testing.cluster import cluster
from kafkalite_cli.main import run

_NO_TOPIC = "there is no topic 'nope'"
_NO_PARTITION = "there is no partition t-7"
_NO_BROKER = "there is no broker 9: the brokers are 1"

#: Verb of `admin` -> what its error says.
_ORDERS = {
    "add-partitions nope --count 1": _NO_TOPIC,
    "balance why nope-0": _NO_TOPIC,
    "balance why t-7": f"{_NO_PARTITION}: the topic has 1 partition",
    "broker cordon 9": _NO_BROKER,
    "broker uncordon 9": _NO_BROKER,
    "broker uncordon 1 9": _NO_BROKER,
    "broker decommission 9": _NO_BROKER,
    "broker decommission 9 --cancel": _NO_BROKER,
    "broker replace 8 9 --yes": _NO_BROKER,
    "config delete --broker 9 max.connections": "max.connections: it is not set; nothing was changed",
    "config delete --topic nope retention.ms": "The topic 'nope' does not exist",
    "config get --broker 9": _NO_BROKER,
    "config get --broker 9 --all": _NO_BROKER,
    "config get --broker 9 max.connections": _NO_BROKER,
    "config get --topic nope": "The topic 'nope' does not exist",
    "config set --topic nope retention.ms=1": "The topic 'nope' does not exist",
    "create-topic new --assignment 0=9": "brokers that are not alive: [9]",
    "delete-records nope --before end --yes": _NO_TOPIC,
    "delete-records t --before end --partition 7 --yes": _NO_PARTITION,
    "delete-topic nope --yes": _NO_TOPIC,
    "describe nope": _NO_TOPIC,
    "describe nope --internal": _NO_TOPIC,
    "disk list --broker 9": _NO_BROKER,
    "disk move nope-0 --broker 1 --to /nope": _NO_TOPIC,
    "disk move t-7 --broker 1 --to /nope": _NO_PARTITION,
    "disk move t-0 --broker 9 --to /nope": _NO_BROKER,
    "disk move t-0 --broker 1 --to /nope": "/nope is not one of log.dirs, which are {disk}",
    "disk moves --broker 9": _NO_BROKER,
    "disk online /nope --broker 1": "/nope is not one of log.dirs, which are {disk}",
    "disk online /nope --broker 9": _NO_BROKER,
    "disk strays list --broker 9": _NO_BROKER,
    "disk strays remove /nope --broker 1 --yes": "`kafkalite admin disk strays list` shows what was",
    "disk strays remove /nope --broker 9 --yes": _NO_BROKER,
    "disk strays restore /nope --broker 1": "`kafkalite admin disk strays list` shows what was",
    "elect --preferred nope-0": "nope-0",
    "elect --preferred t-7": "t-7",
    "groups delete nope --yes": "group 'nope': there is no such group",
    "groups describe nope": "there is no group 'nope'",
    "groups reset-offsets nope --to-latest": "there is no group 'nope'",
    "groups reset-offsets g --to-latest --topic nope": _NO_TOPIC,
    "groups reset-offsets g --to-latest --topic t-7": "t-7: the topic has 1 partition",
    "offsets get nope": "there is no group 'nope'",
    "offsets get g nope-0": _NO_TOPIC,
    "offsets get g t-7": _NO_PARTITION,
    "offsets set g nope-0=1": _NO_TOPIC,
    "offsets set g nope-0=": _NO_TOPIC,
    "offsets set g t-7=1": _NO_PARTITION,
    "offsets set g t-7=": _NO_PARTITION,
    "quotas delete producer_byte_rate --user nope": "producer_byte_rate: it is not set; nothing was changed",
    "reassign cancel nope-0": "nope-0",
    "reassign cancel t-0": "t-0",
    "reassign execute {plan}": "nope-0",
    "reassign plan --brokers 9": "brokers that are not alive: [9]",
    "reassign plan --brokers 1 --topic nope": _NO_TOPIC,
    "reassign plan --drain-broker 9": "broker 9 is not alive and has no replica: nothing to drain",
    "remove-partitions nope --count 1 --yes": _NO_TOPIC,
    "rolling-restart --brokers 9": _NO_BROKER,
    "tokens create": "tokens need an authenticated listener",
    "tokens create --owner User:nope": "tokens need an authenticated listener",
    "tokens expire nope": "tokens need an authenticated listener",
    "tokens list": "tokens need an authenticated listener",
    "tokens renew nope": "tokens need an authenticated listener",
    "trace nope": _NO_TOPIC,
    "trace t-7": _NO_PARTITION,
    "transactions abort nope-0 --start-offset 0": _NO_TOPIC,
    "transactions abort t-7 --start-offset 0": _NO_PARTITION,
    "transactions describe nope": "there is no transactional id 'nope'",
    "transactions find-hanging --topic nope": _NO_TOPIC,
    "users delete nope --yes": "'nope' has no SCRAM credentials",
    "users list nope": "'nope' has no SCRAM credentials",
    "why nope-0": _NO_TOPIC,
    "why t-7": _NO_PARTITION,
    "backup create {tmp}/backup --topic nope": _NO_TOPIC,
    "backup restore {tmp}/none": "no such directory",
    "backup verify {tmp}/none": "no such directory",
}  # fmt: skip


async def test_what_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`uncordon 9` said "active", `balance why nope-0` that nothing had moved."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "nope", "partition": 0, "replicas": [1]}]}')
    wrong = []
    async with cluster(1) as on:
        async with AsyncClient.connect(on.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await Groups(client).commit("g", {TopicPartition("t", 0): 0})
        (disk,) = on.nodes[1].logs.pool.dirs
        places = {"plan": plan, "tmp": tmp_path, "disk": disk}
        for order, says in _ORDERS.items():
            words = [*order.format(**places).split(), "--timeout", "60", "--bootstrap", ",".join(on.bootstrap)]
            if order.startswith("backup verify"):  # needs no cluster
                words = words[:-4]
            code = await asyncio.to_thread(run, ["admin", *words])
            found = capsys.readouterr()
            if code != 2 or says.format(**places) not in found.out + found.err or found.err.count("\n") != 1:
                wrong.append((order, code, found.err))
    assert not wrong, "\n".join(map(str, wrong))
