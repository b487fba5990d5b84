"""A client of the Kafka protocol in a simulated cluster, with nothing of its own: it asks one broker, and waits or gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.protocol.authenticate import authenticate
from kafkalite.security.dialling import Dialling
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.simulation import security as sim_security
from kafkalite.testing.simulation.plan import Plan

KAFKA_PORT = 9092
#: A client's patience with one request.
ANSWER_S = 6.0

NONE = ErrorCode.NONE.value
#: Errors after which a client asks again.
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)  # fmt: skip
_FIND, _METADATA, _OFFSET_FETCH = 2, 8, 8
#: Key types of FindCoordinator.
_GROUP, _TRANSACTION = 0, 1


class Refused(Exception):
    """A broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


class Unanswered(Exception):
    """The outcome of the request is unknown."""


class _Connection(FrameClient):
    async def dial(self, env: Env, host: str, security: Dialling | None) -> None:
        self.reader, self.writer = await env.network.dial(host, KAFKA_PORT)
        if security is not None and security.credentials is not None:
            credentials = security.credentials
            await authenticate(self.reader, self.writer, credentials.mechanism, credentials.client(env.entropy))


class SimKafkaClient:
    """One connection per broker; a request that fails closes its connection, and what is under way may arrive later."""

    def __init__(self, plan: Plan, env: Env) -> None:
        self._plan = plan
        self._env = env
        self._open: dict[str, _Connection] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._security = sim_security.dialling() if plan.reauth_ms is not None else None

    async def ask(self, host: str, message: Any, version: int, timeout_s: float = ANSWER_S) -> Any:
        """The answer. Raises Unanswered."""
        (answer,) = await self.ask_all(host, [message], version, timeout_s)
        return answer

    async def ask_all(self, host: str, messages: Sequence[Any], version: int, timeout_s: float = ANSWER_S) -> list[Any]:
        """The answers to requests that are sent at once, in their order. Raises Unanswered."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._open.get(host)
                if connection is None:
                    connection = self._open[host] = _Connection()
                    await connection.dial(self._env, host, self._security)
                sent = [connection.send(message, version) for message in messages]
                answers: dict[int, Any] = {}
                while len(answers) < len(sent):
                    correlation_id, answer = await connection.receive()
                    if correlation_id in sent:
                        answers[correlation_id] = answer
                return [answers[each] for each in sent]
        except (OSError, EOFError, TimeoutError) as error:
            self.leave(host)
            raise Unanswered(f"{type(messages[0]).__name__} to {host}: {error!r}") from None

    async def ask_apart(self, host: str, message: Any, version: int) -> Any:
        """The same on a connection of its own: bytes that another path had held up. Raises Unanswered."""
        connection = _Connection()
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.dial(self._env, host, self._security)
                connection.send(message, version)
                return (await connection.receive())[1]
        except (OSError, EOFError, TimeoutError) as error:
            raise Unanswered(f"{type(message).__name__} to {host}: {error!r}") from None
        finally:
            if hasattr(connection, "writer"):
                connection.close()

    def leave(self, host: str) -> None:
        """Close the connection; the next request opens another."""
        connection = self._open.pop(host, None)
        if connection is not None and hasattr(connection, "writer"):
            connection.close()

    def close(self) -> None:
        for host in list(self._open):
            self.leave(host)

    def any_host(self) -> str:
        """Some node."""
        return self._env.random.choice(self._plan.node_names)

    def host_of(self, node_id: int) -> str:
        """Raises Unanswered for a number that is no node's."""
        if not 1 <= node_id <= self._plan.nodes:
            raise Unanswered(f"no node {node_id}")
        return self._plan.node_names[node_id - 1]

    async def leader(self, topic: str, partition: int) -> str:
        """The host of the partition's leader. Raises Unanswered."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            return known
        request = wire.MetadataRequest
        message = request([request.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.ask(self.any_host(), message, _METADATA)
        for one in answer.topics:
            for each in one.partitions:
                if each.error_code == NONE and each.leader_id > 0:
                    self._leaders[one.name, each.partition_index] = self.host_of(each.leader_id)
        if (topic, partition) not in self._leaders:
            raise Unanswered(f"{topic}-{partition} has no leader")
        return self._leaders[topic, partition]

    def forget_leader(self, topic: str, partition: int) -> None:
        """It was not the leader, or did not answer."""
        self._leaders.pop((topic, partition), None)

    async def ask_transaction_coordinator(
        self, transactional_id: str, request: Any, version: int, attempts: int, pause_s: float
    ) -> Any:
        """The coordinator's answer without an error. Raises Refused, Unanswered (perhaps it was done)."""
        code = 0
        for _ in range(attempts):
            answer = await self.ask(await self._coordinator(transactional_id, _TRANSACTION), request, version)
            code = _error_of(answer)
            if code == NONE:
                return answer
            if code not in RETRIABLE:
                raise Refused(type(request).__name__, code)
            await asyncio.sleep(pause_s)
        raise Unanswered(f"{type(request).__name__}: {code}")

    async def group_coordinator(self, group: str) -> str:
        """The host of the group's coordinator. Raises Unanswered."""
        return await self._coordinator(group, _GROUP)

    async def _coordinator(self, key: str, key_type: int) -> str:
        answer = await self.ask(self.any_host(), wire.FindCoordinatorRequest(key, key_type), _FIND)
        if answer.error_code != NONE:
            raise Unanswered(f"FindCoordinator: {answer.error_code}")
        return self.host_of(answer.node_id)


def _error_of(answer: Any) -> int:
    """The error of an answer to a transaction's request; AddPartitionsToTxn has one for each partition."""
    results = getattr(answer, "results_by_topic_v3_and_below", None)
    if results is None:
        return int(answer.error_code)
    codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    return next((code for code in codes if code != NONE), NONE)


async def read_offsets(
    client: SimKafkaClient, group: str, wanted: Sequence[tuple[str, int]], *, is_stable: bool
) -> dict[tuple[str, int], int]:
    """Topic and partition -> what the group has committed (-1: nothing), where the answer says so. Raises Unanswered."""
    request = wire.OffsetFetchRequest
    topics = [
        request.OffsetFetchRequestTopics(
            name=topic, partition_indexes=[number for name, number in wanted if name == topic]
        )
        for topic in sorted({topic for topic, _ in wanted})
    ]
    message = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=is_stable)
    answer = await client.ask(await client.group_coordinator(group), message, _OFFSET_FETCH)
    [found] = answer.groups
    if found.error_code != NONE:
        raise Unanswered(f"OffsetFetch: {found.error_code}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
        if each.error_code == NONE
    }


def produce_request(
    topic: str, partition: int, records: bytes, transactional_id: str | None = None
) -> wire.ProduceRequest:
    """acks=all."""
    request = wire.ProduceRequest
    data = [request.TopicProduceData(name=topic, partition_data=[request.PartitionProduceData(partition, records)])]
    return request(transactional_id, -1, 3_000, data)
