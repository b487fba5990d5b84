"""An order whose answer is lost is sent again. What the first one did is no refusal of the second; what may not be done twice is sent once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client import cluster_requests
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.tokens import create_token, expire_token
from kafkalite.client.admin.users import NewCredential, alter_user, describe_users
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.cluster_requests import ClusterRequests
from kafkalite.errors import ApiError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcDisconnected
from tests.support.loopback_cluster import LoopbackCluster


@asynccontextmanager
async def losing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: type[Any]
) -> AsyncIterator[tuple[AsyncClient, list[Any]]]:
    """A client, and its requests of the kind `lost`; the answer to the first of them never arrives."""
    sent: list[Any] = []
    call = ClusterRequests._call

    async def cut(self: ClusterRequests, connection: Any, request: Any, timeout_s: float) -> Any:
        answer = await call(self, connection, request, timeout_s)
        if isinstance(request, lost):
            sent.append(request)
            if len(sent) == 1:
                raise RpcDisconnected("cut")
        return answer

    async with (
        LoopbackCluster(tmp_path) as cluster,
        AsyncClient.connect(cluster.bootstrap) as client,
    ):
        await client.create_topics([NewTopic("t", 1, 1)])
        monkeypatch.setattr(ClusterRequests, "_call", cut)
        yield client, sent


async def test_a_group_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with losing(tmp_path, monkeypatch, wire.DeleteGroupsRequest) as (client, sent):
        groups = Groups(client)
        await groups.commit("g", {TopicPartition("t", 0): 0})
        await groups.delete("g")
        assert len(sent) == 2
        with pytest.raises(ApiError, match="there is no such group"):
            await groups.delete("g")


async def test_a_user_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with losing(tmp_path, monkeypatch, wire.AlterUserScramCredentialsRequest) as (client, sent):
        credential = NewCredential("SCRAM-SHA-256", 4096, b"0123456789abcdef", b"x" * 32)
        await alter_user(client, "alice", credentials=[credential])
        sent.clear()
        await alter_user(client, "alice", deletions=["SCRAM-SHA-256"])
        assert len(sent) == 2
        assert await describe_users(client, ["alice"]) == {}
        with pytest.raises(ApiError):
            await alter_user(client, "alice", deletions=["SCRAM-SHA-256"])


async def test_a_topic_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with losing(tmp_path, monkeypatch, wire.CreateTopicsRequest) as (client, sent):
        (made,) = await client.create_topics([NewTopic("new", 3, 1)])
        assert len(sent) == 2
        assert (made.error, made.partitions, made.replication_factor) == (0, 3, 1)


@pytest.mark.parametrize("work", [create_token, lambda client: expire_token(client, b"x")])
async def test_an_order_about_tokens_goes_to_one_node_at_a_time(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second node that is asked because the first one is slow makes a second token, which nobody knows."""
    monkeypatch.setattr(cluster_requests, "ASK_NEXT_AFTER_S", 0.01)
    under_way: list[Any] = []
    most = 0
    async with LoopbackCluster(tmp_path, nodes=2) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.metadata(())
        call = ClusterRequests._call

        async def slow(self: ClusterRequests, connection: Any, request: Any, timeout_s: float) -> Any:
            nonlocal most
            under_way.append(request)
            most = max(most, len(under_way))
            await asyncio.sleep(0.1)
            try:
                return await call(self, connection, request, timeout_s)
            finally:
                under_way.remove(request)

        monkeypatch.setattr(ClusterRequests, "_call", slow)
        with pytest.raises(ApiError):
            await work(client)
    assert most == 1
