"""Questions of partition leaders to transaction coordinators on other nodes, and their connections (KIP-890).

The request is AddPartitionsToTxn: `verify_only` for clients that add partitions themselves, else it adds them. Questions
that arrive while a request is under way share the next one. Adding waits for replication, verifying does not: each
has a connection of its own.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from kafkalite.config import inter_broker_listener
from kafkalite.coordinators.node_connection import NodeConnection, node_address
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.rpc.messages.control import Broker

#: Coordinators of the older code answer this version, too.
_VERSION = 5
#: Shorter than the request.timeout.ms of clients: they get an answer that lets them try again.
_TIMEOUT_S = 10.0
#: Transactions in one request.
_MOST_AT_ONCE = 1_000

Answers = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Asker:
    """The transaction. `adds`: partitions that are not part of it are added."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


Question = tuple[Asker, tuple[TopicPartition, ...]]


class CoordinatorChannels:
    """To whichever node coordinates."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listener = inter_broker_listener(services.config).name
        self._channels: dict[tuple[BrokerId, bool], _VerificationChannel] = {}

    async def ask(self, broker: Broker, asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        """Each partition's outcome. Raises OSError when the node could not be asked."""
        key = (broker.broker_id, asker.adds)
        channel = self._channels.get(key)
        address = node_address(broker, self._listener)
        if channel is None or channel.address != address:
            if channel is not None:
                channel.close()
            channel = self._channels[key] = _VerificationChannel(self._services, address)
        return await channel.ask((asker, partitions))

    def close(self) -> None:
        """Give up the connections."""
        for channel in self._channels.values():
            channel.close()


class _VerificationChannel:
    def __init__(self, services: Services, address: tuple[str, int]) -> None:
        self.address = address
        self._services = services
        self._connection = NodeConnection(services, address, wire.AddPartitionsToTxnResponse)
        self._queue: list[tuple[Question, asyncio.Future[Answers]]] = []
        self._is_running = False

    def close(self) -> None:
        self._connection.close()

    async def ask(self, question: Question) -> Answers:
        outcome: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._queue.append((question, outcome))
        if not self._is_running:
            self._is_running = True
            self._services.supervisor.spawn(
                f"transaction_questions.{self.address[0]}:{self.address[1]}", self._run(), Policy.ISOLATED
            )
        return await outcome

    async def _run(self) -> None:
        """Ask until the queue is empty."""
        work: list[tuple[Question, asyncio.Future[Answers]]] = []
        try:
            while self._queue:
                work, self._queue = self._queue[:_MOST_AT_ONCE], self._queue[_MOST_AT_ONCE:]
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        request = request_of([question for question, _ in work])
                        response = await self._connection.ask(request, _VERSION)
                    answers = answers_of(response, [question for question, _ in work])
                except (OSError, TimeoutError, WireError, EOFError, ApiError, struct.error, ValueError) as error:
                    self._connection.close()
                    for _, outcome in work:
                        if not outcome.done():
                            outcome.set_exception(OSError(f"{self.address}: {error!r}"))
                else:
                    for (_, outcome), each in zip(work, answers, strict=True):
                        if not outcome.done():
                            outcome.set_result(each)
        finally:
            self._is_running = False
            for _, outcome in (*work, *self._queue):
                outcome.cancel()
            self._queue = []


def request_of(questions: Sequence[Question]) -> object:
    request = wire.AddPartitionsToTxnRequest
    entries = []
    for asker, partitions in questions:
        topics = numbers_by_topic(partitions)
        entries.append(
            request.AddPartitionsToTxnTransaction(
                asker.transactional_id,
                asker.producer_id,
                asker.producer_epoch,
                not asker.adds,
                [request.AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
            )
        )
    return request(transactions=entries)


def answers_of(response: wire.AddPartitionsToTxnResponse, questions: Sequence[Question]) -> list[Answers]:
    """By question. Raises WireError, ValueError (an error code that is not known here)."""
    if response.error_code:
        refusal = ErrorCode(response.error_code)
        return [dict.fromkeys(partitions, refusal) for _, partitions in questions]
    if [each.transactional_id for each in response.results_by_transaction] != [
        asker.transactional_id for asker, _ in questions
    ]:
        raise WireError("an answer to other questions")
    return [
        {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    ]
