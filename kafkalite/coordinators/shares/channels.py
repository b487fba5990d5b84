"""Requests to share coordinators on other nodes, through their Kafka listeners (KIP-932).

One channel per node and API. A request is about one group, and has each key once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from kafkalite.coordinators.node_channels import MOST_ELEMENTS, Address, NodeChannel, NodeChannels
from kafkalite.coordinators.node_connection import NodeConnection
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import api_error, error_code
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.rpc.messages.control import Broker

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ShareApi(Generic[_Answer]):
    """How one of the five APIs asks for a partition, and what it answers.

    name: of the API. version: that is asked. topic: of the request, the name of the struct. answer: takes the answer's
    partition.
    """

    name: str
    version: int
    topic: str
    answer: Callable[[Any], _Answer]


#: The key, and the request's fields of the partition after its number.
_Question = tuple[ShareKey, Sequence[Any]]


class ShareChannels(NodeChannels["_ShareChannel"]):
    """To whichever node coordinates."""

    async def ask(self, broker: Broker, api: ShareApi[_Answer], key: ShareKey, *fields: Any) -> _Answer:
        """The answer. Raises ApiError as the coordinator does; OSError when the node could not be asked."""
        channel = self.to(broker, partial(_ShareChannel, self._services, api), api.name)
        partition = await channel.ask((key, fields))
        if partition.error_code:
            raise api_error(error_code(partition.error_code), partition.error_message or "")
        return api.answer(partition)


class _ShareChannel(NodeChannel[_Question, Any]):
    """A request that fails may be too large, or its response: the next one has half as many questions."""

    #: Of one that is small.
    most_at_once = 500

    def __init__(self, services: Services, api: ShareApi[Any], address: Address) -> None:
        response = getattr(wire, f"{api.name}Response")
        super().__init__(services, f"shares.{api.name}", NodeConnection(services, address, response))
        self._api = api
        self._most = self.most_at_once

    async def _exchange(self, questions: Sequence[_Question]) -> list[Any]:
        most, self._most = self._most, max(1, len(questions) // 2)
        response = await self._connection.ask(_request(self._api, questions), self._api.version)
        self._most = min(2 * most, self.most_at_once)
        answers = _answers(questions[0][0].group_id, response)
        if answers.keys() != {key for key, _ in questions}:
            raise WireError("the response has other partitions than the request")
        return [answers[key] for key, _ in questions]

    def _elements(self, question: _Question) -> int:
        """Its topic, its partition, and state batches, if it has any."""
        return 2 + sum(len(field) for field in question[1] if isinstance(field, list))

    def _take(self) -> list[tuple[_Question, asyncio.Future[Any]]]:
        """Those of the group that waits longest, each key once."""
        group_id = self._queue[0][0][0].group_id
        taken: dict[ShareKey, tuple[_Question, asyncio.Future[Any]]] = {}
        left: list[tuple[_Question, asyncio.Future[Any]]] = []
        elements = 0
        for each in self._queue:
            key, size = each[0][0], self._elements(each[0])
            is_room = not taken or (len(taken) < self._most and elements + size <= MOST_ELEMENTS)
            if key.group_id == group_id and is_room and key not in taken:
                taken[key] = each
                elements += size
            else:
                left.append(each)
        self._queue = left
        return list(taken.values())


def _request(api: ShareApi[Any], questions: Sequence[_Question]) -> object:
    request = getattr(wire, f"{api.name}Request")
    topic_of, partition_of = getattr(request, api.topic), request.PartitionData
    topics: dict[bytes, list[Any]] = {}
    for key, fields in questions:
        topics.setdefault(key.topic_id.bytes, []).append(partition_of(key.partition, *fields))
    return request(
        questions[0][0].group_id, [topic_of(topic_id, partitions) for topic_id, partitions in topics.items()]
    )


def _answers(group_id: str, response: Any) -> dict[ShareKey, Any]:
    return {
        ShareKey(group_id, UUID(bytes=bytes(topic.topic_id)), partition.partition): partition
        for topic in response.results
        for partition in topic.partitions
    }
