"""A change that one node has answered holds on the others, although ZooKeeper notifies them late (ADR 63)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths
from kafkalite.coordination.topic_configs import FEATURES, GROUPS
from kafkalite.errors import ApiError
from kafkalite.model import BrokerId
from kafkalite.node import catching_up
from kafkalite.node.node import Node
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import ACLS, TOKENS, CatchUpRequest
from kafkalite.security.acl import Operation, Permission, ResourceType
from kafkalite.security.principal import Principal
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until

SETTINGS = {
    "authorizer.enabled": True,
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a secret of the cluster",
}
#: Seconds that a message between the second node and ZooKeeper takes, one way.
LATE = (0.05, 0.06)
ANN = Principal("User", "ann")
_LITERAL, _SHA_256, _GROUP = 3, 1, 32


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is slow because its machine is would not be waited for: that is another test's."""
    monkeypatch.setattr(catching_up, "_WAIT_S", 150.0)


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[LoopbackCluster, AsyncClient, Node]]:
    """Two nodes; the second one hears late of changes."""
    async with (
        LoopbackCluster(directory, nodes=2, settings=SETTINGS) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
    ):
        for node in cluster.nodes.values():
            while len(node.metadata.brokers()) < 2:
                await node.metadata.changed()
        await client.metadata()
        cluster.zookeeper.slow("node-2", LATE)
        yield cluster, client, cluster.nodes[2]


async def ask(client: AsyncClient, node: int, message: Any) -> Any:
    return await client.call_node(BrokerId(node), message, timeout_s=150)


def acl() -> tuple[int, str, int, str, str, int, int]:
    return ResourceType.TOPIC, "t", _LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW


def may_read(node: Node) -> bool:
    authorizer = node.rights.access.authorizer
    assert authorizer is not None
    return authorizer.authorize(ANN, "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


async def test_acls(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, client, other):
        create, delete = wire.CreateAclsRequest, wire.DeleteAclsRequest
        for _ in range(3):  # the same name comes back
            answer = await ask(client, 1, create([create.AclCreation(*acl())]))
            assert [result.error_code for result in answer.results] == [0]
            assert may_read(other)
            answer = await ask(client, 1, delete([delete.DeleteAclsFilter(*acl())]))
            assert len(answer.filter_results[0].matching_acls) == 1
            assert not may_read(other)


async def test_quotas(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, client, _):
        alter, describe = wire.AlterClientQuotasRequest, wire.DescribeClientQuotasRequest
        for value, is_removed in ((1000.0, False), (2000.0, False), (0.0, True)):
            entry = alter.EntryData(
                [alter.EntityData("user", "ann")], [alter.OpData("producer_byte_rate", value, is_removed)]
            )
            answer = await ask(client, 1, alter([entry], validate_only=False))
            assert [each.error_code for each in answer.entries] == [0]
            listed = await ask(client, 2, describe([], strict=False))
            assert [each.values[0].value for each in listed.entries] == ([] if is_removed else [value])


async def test_users(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, client, other):
        request = wire.AlterUserScramCredentialsRequest
        made = request.ScramCredentialUpsertion("ann", _SHA_256, 4096, bytes(8), bytes(32))
        for message in (
            request([], [made]),
            request([request.ScramCredentialDeletion("ann", _SHA_256)], []),
        ):
            answer = await ask(client, 1, message)
            assert [each.error_code for each in answer.results] == [0]
            assert bool(other.settings.configs.user("ann")) is bool(message.upsertions)


async def test_settings_of_groups(tmp_path: Path) -> None:
    async with pair(tmp_path) as (cluster, client, other):
        request = wire.IncrementalAlterConfigsRequest
        entry = request.AlterableConfig("consumer.session.timeout.ms", 0, "50000")
        message = request([request.AlterConfigsResource(_GROUP, "g", [entry])], validate_only=False)
        answer = await ask(client, 1, message)
        assert [each.error_code for each in answer.responses] == [0]
        for node in (cluster.nodes[1], other):
            assert node.settings.configs.entity(GROUPS, "g") == {"consumer.session.timeout.ms": "50000"}
        listed = await ask(client, 2, wire.ListConfigResourcesRequest([_GROUP]))
        assert [each.resource_name for each in listed.config_resources] == ["g"]


async def test_features(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, client, other):
        request = wire.UpdateFeaturesRequest
        update = request.FeatureUpdateKey("transaction.version", 1, allow_downgrade=True, upgrade_type=2)
        answer = await ask(client, 1, request(30_000, [update], validate_only=False))
        assert answer.error_code == 0, answer.error_message
        assert other.settings.configs.entity(FEATURES, paths.DEFAULT_ENTITY) == {"transaction.version": "1"}


async def test_tokens(tmp_path: Path) -> None:
    async with pair(tmp_path) as (cluster, _, other):
        services = cluster.nodes[1].kafka_services
        made = await services.tokens.create(ANN, ANN, (), 0)
        await services.known_everywhere(TOKENS)
        assert other.tokens.delegated("SCRAM-SHA-256", made.token.token_id) is not None
        await services.tokens.expire(ANN, made.hmac, -1)
        await services.known_everywhere(TOKENS)
        assert other.tokens.delegated("SCRAM-SHA-256", made.token.token_id) is None


async def test_a_node_without_zookeeper_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the change when it can; the client that has asked for the change gets the answer before."""
    monkeypatch.setattr(catching_up, "_WAIT_S", 1.0)
    async with pair(tmp_path) as (cluster, client, other):
        create = wire.CreateAclsRequest
        cluster.zookeeper.block("node-2")
        answer = await ask(client, 1, create([create.AclCreation(*acl())]))
        assert [result.error_code for result in answer.results] == [0]
        assert not may_read(other)
        cluster.zookeeper.unblock("node-2")
        await until(lambda: may_read(other))


async def test_what_a_later_version_asks_for_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (cluster, _, other):
        await cluster.nodes[1].kafka_services.known_everywhere("what a later version knows")
        with pytest.raises(ApiError, match="is not known here"):
            await other.catching_up.answer(CatchUpRequest("what a later version knows"))


async def test_nobody_is_asked_about_a_change_that_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(tmp_path) as (cluster, client, _):
        asked: list[str] = []
        monkeypatch.setattr(cluster.nodes[1].catching_up, "everywhere", asked.append)
        create, delete = wire.CreateAclsRequest, wire.DeleteAclsRequest
        alter, quota = wire.IncrementalAlterConfigsRequest, wire.AlterClientQuotasRequest
        users = wire.AlterUserScramCredentialsRequest
        nobody = create.AclCreation(ResourceType.TOPIC, "t", _LITERAL, "nobody", "*", Operation.READ, Permission.ALLOW)
        entry = quota.EntryData([quota.EntityData("user", "ann")], [quota.OpData("no_such_rate", 1.0)])
        setting = alter.AlterConfigsResource(_GROUP, "g", [alter.AlterableConfig("no.such.setting", 0, "1")])
        for message in (
            create([nobody]),
            delete([delete.DeleteAclsFilter(0, None, _LITERAL, None, None, 0, 0)]),
            quota([entry], validate_only=False),
            alter([setting], validate_only=False),
            users([users.ScramCredentialDeletion("nobody", _SHA_256)], []),
        ):
            await ask(client, 1, message)
        assert asked == []


async def test_changes_at_once_are_asked_about_together() -> None:
    """A round for each of a client's thousands of renewals would keep all nodes and ZooKeeper busy."""
    rounds: list[asyncio.Future[None]] = []

    async def every_node(request: CatchUpRequest, *, timeout_s: float) -> dict[int, object]:
        rounds.append(asyncio.get_running_loop().create_future())
        await rounds[-1]
        return {}

    session: Any = SimpleNamespace()
    followed: Any = {}
    peers: Any = SimpleNamespace(every_node=every_node)
    asking = catching_up.CatchingUp(session, followed, peers)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(asking.everywhere(TOKENS))
        await until(lambda: len(rounds) == 1)
        later = [group.create_task(asking.everywhere(TOKENS)) for _ in range(20)]
        other = group.create_task(asking.everywhere(ACLS))
        await until(lambda: len(rounds) == 2)
        rounds[1].set_result(None)
        await other
        assert not first.done(), "what else has changed does not wait for it"
        rounds[0].set_result(None)
        await until(lambda: len(rounds) == 3)
        assert first.done() and not any(each.done() for each in later), (
            "their changes may be newer than the first round"
        )
        rounds[2].set_result(None)
    assert len(rounds) == 3
