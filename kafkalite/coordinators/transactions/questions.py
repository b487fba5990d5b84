"""Questions of partition leaders to transaction coordinators on other nodes, and their connections (KIP-890).

The request is AddPartitionsToTxn: `verify_only` for clients that add partitions themselves, else it adds them. Adding waits
for replication, verifying does not: each has a channel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kafkalite.coordinators.node_channels import Address, NodeChannel, NodeChannels, elements_of, pieces
from kafkalite.coordinators.node_connection import NodeConnection
from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.rpc.messages.control import Broker

#: Coordinators of the older code answer this version, too.
_VERSION = 5

Answers = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Asker:
    """The transaction. `adds`: partitions that are not part of it are added."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


Question = tuple[Asker, tuple[TopicPartition, ...]]


class CoordinatorChannels(NodeChannels["_VerificationChannel"]):
    """To whichever node coordinates."""

    async def ask(self, broker: Broker, asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        """Each partition's outcome. Raises OSError when the node could not be asked."""
        answers: Answers = {}
        for some in pieces(partitions):
            channel = self.to(broker, partial(_VerificationChannel, self._services), asker.adds)
            answers |= await channel.ask((asker, some))
        return answers


class _VerificationChannel(NodeChannel[Question, Answers]):
    most_at_once = 1_000

    def __init__(self, services: Services, address: Address) -> None:
        connection = NodeConnection(services, address, wire.AddPartitionsToTxnResponse)
        super().__init__(services, "transaction_questions", connection)

    def _elements(self, question: Question) -> int:
        return elements_of(question[1])

    async def _exchange(self, questions: Sequence[Question]) -> list[Answers]:
        return answers_of(await self._connection.ask(request_of(questions), _VERSION), questions)


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
    """By question. Raises WireError."""
    if response.error_code:
        refusal = _code(response.error_code)
        return [dict.fromkeys(partitions, refusal) for _, partitions in questions]
    if [each.transactional_id for each in response.results_by_transaction] != [
        asker.transactional_id for asker, _ in questions
    ]:
        raise WireError("the response has other transactions than the request")
    return [
        {
            TopicPartition(topic.name, partition.partition_index): _code(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    ]


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        raise WireError(f"error code {number} is not known here") from None
