"""The whole of security at once, on real processes: TLS, SCRAM and the authorizer on both listeners, a ZooKeeper with digest
ACLs, nodes whose own principal is in no ACL; users with different rights, and a leader that dies under their load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.messages import produce_request
from kafkalite.client.producer import Producer
from kafkalite.errors import ErrorCode, KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import StatusRequest, StatusResponse
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.partition_values import PartitionMetadata
from kafkalite.record.builder import RecordBatchBuilder
from tests.support.failing import fails_with
from tests.support.secured import PASSWORDS, SecuredCluster

from .conftest import seen_by

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SCRIPT = Path(__file__).parent / "clients" / "confluent_rights.py"
USERS = ("alice", "bob", "mallory")
SETTINGS = {"authorizer.enabled": "true", "super.users": "User:admin", "min.insync.replicas": 2, "quota.window.num": 2}
FOREIGN, NATIVE = 2000, 600
NATIVE_SHARE = 700
REFUSED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path, "SASL_SSL", SETTINGS) as running:
        admin = running.client_config("admin")
        for user in USERS:
            running.command("admin", "users", "set", user, stdin=PASSWORDS[user], client_config=admin)
        running.command("admin", "create-topic", "ledger", client_config=admin)
        for rights in (
            ("--producer", "--topic", "ledger", "--allow-principal", "User:alice"),
            ("--consumer", "--topic", "ledger", "--group", "auditors", "--allow-principal", "User:bob"),
        ):
            running.command("admin", "acls", "add", *rights, client_config=admin)
        yield running


def arguments(python: Path, cluster: SecuredCluster, user: str, *mode: str) -> list[str]:
    given = {
        "bootstrap": ",".join(cluster.bootstrap),
        "authority": cluster.authority.truststore,
        "user": user,
        "password": PASSWORDS[user],
    }
    return [str(python), str(SCRIPT), json.dumps(given), *mode]


def native(cluster: SecuredCluster, user: str) -> AsyncClient:
    return AsyncClient.connect(cluster.bootstrap, security=cluster.security(user))


async def partitions(cluster: SecuredCluster) -> tuple[PartitionMetadata, ...]:
    async with native(cluster, "admin") as client:
        return (await client.metadata(["ledger"])).topics[0].partitions


async def in_sync(cluster: SecuredCluster) -> None:
    """Every replica in every ISR: nobody but the nodes' own principal can bring that about."""
    async with asyncio.timeout(150):
        while not all(part.leader >= 0 and len(part.isr) == 3 for part in await partitions(cluster)):
            await asyncio.sleep(0.1)


async def known_everywhere(cluster: SecuredCluster) -> None:
    """Every node has come to know the users and the last ACL that was written."""
    async with asyncio.timeout(90):
        for each in cluster.bootstrap:
            seen = False
            while not seen:
                with contextlib.suppress(KafkaliteError):
                    async with AsyncClient.connect([each], security=cluster.security("bob")) as client:
                        seen = bool((await client.metadata(timeout_s=5)).topics)


async def lines_of(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


async def write_natively(cluster: SecuredCluster, acked: list[str]) -> None:
    async with native(cluster, "alice") as client, Producer(client, acks="all") as producer:
        for number in range(NATIVE):
            value = f"n-{number}"
            future = await producer.send("ledger", None, value.encode(), partition=number % 3)

            def settled(done: asyncio.Future[Any], value: str = value) -> None:
                if not done.exception():
                    acked.append(value)

            future.add_done_callback(settled)
            await asyncio.sleep(0.005)


async def read_natively(cluster: SecuredCluster, user: str, count: int) -> list[str]:
    values: list[str] = []
    async with native(cluster, user) as client, Consumer(client) as consumer:
        await consumer.assign_topics(["ledger"])
        while len(set(values)) < count:
            values += [(record.value or b"").decode() for record in await consumer.poll(timeout_s=10)]
    return values


async def in_a_group(cluster: SecuredCluster, user: str, code: int = 0) -> str:
    """What the Python client reads as a member of bob's group."""
    options = ("--group", "auditors", "--from", "beginning", "--max", str(NATIVE_SHARE), "--format", "{value}\n")
    config = cluster.client_config(user)
    return await asyncio.to_thread(cluster.command, "consume", "ledger", *options, client_config=config, code=code)


async def test_three_users_and_a_leader_that_dies(python_clients: Path, cluster: SecuredCluster) -> None:
    await in_sync(cluster)
    await known_everywhere(cluster)
    # alice writes through both clients; in the middle of it a leader is killed.
    acked: list[str] = []
    foreign = await asyncio.create_subprocess_exec(
        *arguments(python_clients, cluster, "alice", "write", str(FOREIGN)), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write_natively(cluster, acked))
            told = lines_of(foreign)
            assert await anext(told) == {"begun": True}
            assert not writing.done()
            victim = (await partitions(cluster))[0].leader
            cluster.nodes[victim].signal(signal.SIGKILL)
            last = await anext(told)
    finally:
        if foreign.returncode is None:
            foreign.kill()
        await foreign.wait()
    assert (last["errors"], last["left"], last["waits_ms"]) == ([], 0, [])
    assert last["acked"] == list(range(FOREIGN))
    assert sorted(acked) == sorted(f"n-{number}" for number in range(NATIVE))
    cluster.nodes[victim].kill()
    await asyncio.to_thread(cluster.restart, int(victim))
    await in_sync(cluster)
    # bob reads all of it once: in his group, the first part natively and the rest with librdkafka, and without a group.
    expected = sorted([*acked, *(f"c-{number}" for number in range(FOREIGN))])
    first = (await in_a_group(cluster, "bob")).split()
    assert len(first) == NATIVE_SHARE
    left = str(len(expected) - NATIVE_SHARE)
    seen = await seen_by(arguments(python_clients, cluster, "bob", "read", "auditors", left))
    assert (sorted([*first, *seen["values"]]), seen["errors"]) == (expected, [])
    assert sorted(await read_natively(cluster, "bob", len(expected))) == expected
    # The leader of the last partition asks the groups' coordinators, and it goes, for all of it is read.
    admin = cluster.client_config("admin")
    drain = ("remove-partitions", "ledger", "--count", "1", "--drain")
    await asyncio.to_thread(cluster.command, "admin", *drain, client_config=admin)
    async with asyncio.timeout(150):
        while len(await partitions(cluster)) != 2:
            await asyncio.sleep(0.1)
    # Nobody may do more than that.
    for user, groups in (("bob", ["GROUP_AUTHORIZATION_FAILED"]), ("mallory", ["GROUP_AUTHORIZATION_FAILED"])):
        seen = await seen_by(arguments(python_clients, cluster, user, "refused", "others"))
        assert seen == {"written": [REFUSED], "read": [groups]}
        assert await is_refused(cluster, user)
    seen = await seen_by(arguments(python_clients, cluster, "mallory", "read", "auditors", "1"))
    assert seen == {"values": [], "errors": ["GROUP_AUTHORIZATION_FAILED"]}
    assert "AUTHORIZATION_FAILED" in await in_a_group(cluster, "mallory", code=1)
    # Nodes may look at each other; who may not describe the cluster may not look at them.
    async with native(cluster, "admin") as client:
        status = await client.request(StatusRequest(), StatusResponse)
        assert [(each.broker_id, each.error) for each in status.brokers] == [(1, ""), (2, ""), (3, "")]
    async with native(cluster, "mallory") as client:
        with fails_with(ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            await client.request(StatusRequest(), StatusResponse)
    async with native(cluster, "mallory") as client:
        assert (await client.metadata()).topics == ()
        (created,) = await client.create_topics([NewTopic("mine", 1, 1)])
        assert created.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await throttled(python_clients, cluster)
    denied = [line for line in cluster.logs().splitlines() if "acl.denied" in line]
    assert {
        user for user in ("bob", "mallory", "alice", "node", "admin") if any(f"User:{user}" in x for x in denied)
    } == {
        "bob",
        "mallory",
    }


async def produce_once(client: AsyncClient) -> tuple[int, int]:
    """(error code, throttle time in ms) of one record."""
    builder = RecordBatchBuilder()
    builder.append(None, b"x" * 3000, (), 1)
    records = bytes(builder.build())
    async with asyncio.timeout(60):
        leader = (await client.metadata(["ledger"])).topics
        node = BrokerId(leader[0].partitions[0].leader) if leader and leader[0].partitions else BrokerId(1)
        message = produce_request({TopicPartition("ledger", 0): records}, -1, 20_000)
        answer = await client.call_node(node, message, timeout_s=30)
    (produced,) = answer.responses[0].partition_responses
    return produced.error_code, answer.throttle_time_ms


async def is_refused(cluster: SecuredCluster, user: str) -> bool:
    async with native(cluster, user) as client:
        await client.metadata(())
        error, _ = await produce_once(client)
        return error == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def throttled(python: Path, cluster: SecuredCluster) -> None:
    """A quota on alice's bytes: both her clients are told to wait, and lose nothing."""
    limit = ("producer_byte_rate=4000", "--user", "alice")
    cluster.command("admin", "quotas", "set", *limit, client_config=cluster.client_config("admin"))
    async with native(cluster, "alice") as client:
        waits_ms = 0
        while not waits_ms:  # until the leader knows of it
            error, waits_ms = await produce_once(client)
            assert error == 0
    seen = await seen_by(arguments(python, cluster, "alice", "write", "15", "1000"))
    assert (seen["acked"], seen["errors"]) == (list(range(15)), [])
    assert max(seen["waits_ms"]) > 0
