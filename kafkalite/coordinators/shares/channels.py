"""Requests to share coordinators on other nodes, through their Kafka listeners (KIP-932).

One channel per node and API, one request under way per channel. Questions that come meanwhile share the next request if
they are of one group; each key is in a request once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from kafkalite.config import inter_broker_listener
from kafkalite.coordinators.node_connection import NodeConnection, node_address
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, api_error, error_code
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.rpc.messages.control import Broker

#: A coordinator appends within 5 s, or says that it could not.
_TIMEOUT_S = 10.0
#: Keys in one request.
_MOST_AT_ONCE = 500

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


@dataclass(frozen=True, slots=True)
class _Question:
    key: ShareKey
    #: The request's fields of the partition, after its number.
    fields: Sequence[Any]
    outcome: asyncio.Future[Any]


class ShareChannels:
    """To whichever node coordinates."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listener = inter_broker_listener(services.config).name
        self._channels: dict[tuple[BrokerId, Hashable], _ShareChannel] = {}

    async def ask(self, broker: Broker, api: ShareApi[_Answer], key: ShareKey, *fields: Any) -> _Answer:
        """The answer. Raises ApiError as the coordinator does; OSError when the node could not be asked."""
        channel = self._channels.get((broker.broker_id, api.name))
        address = node_address(broker, self._listener)
        if channel is None or channel.address != address:
            if channel is not None:
                channel.close()
            channel = self._channels[broker.broker_id, api.name] = _ShareChannel(self._services, address, api)
        partition = await channel.ask(key, fields)
        if partition.error_code:
            raise api_error(error_code(partition.error_code), partition.error_message or "")
        return api.answer(partition)

    def close(self) -> None:
        """Give up the connections."""
        for channel in self._channels.values():
            channel.close()


class _ShareChannel:
    def __init__(self, services: Services, address: tuple[str, int], api: ShareApi[Any]) -> None:
        self.address = address
        self._services = services
        self._api = api
        self._connection: NodeConnection[Any] = NodeConnection(services, address, getattr(wire, f"{api.name}Response"))
        self._queue: list[_Question] = []
        self._is_running = False

    def close(self) -> None:
        self._connection.close()

    async def ask(self, key: ShareKey, fields: Sequence[Any]) -> Any:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Question(key, fields, outcome))
        if not self._is_running:
            self._is_running = True
            name = f"shares.{self._api.name}.{self.address[0]}:{self.address[1]}"
            self._services.supervisor.spawn(name, self._run(), Policy.ISOLATED)
        return await outcome

    async def _run(self) -> None:
        """Ask until the queue is empty."""
        work: dict[ShareKey, _Question] = {}
        try:
            while self._queue:
                work = self._take()
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        response = await self._connection.ask(_request(self._api, work), self._api.version)
                    answers = _answers(next(iter(work)).group_id, response)
                    if answers.keys() != work.keys():
                        raise WireError("an answer to other questions")
                except (OSError, TimeoutError, WireError, EOFError, ApiError, struct.error) as error:
                    self._connection.close()
                    for question in work.values():
                        if not question.outcome.done():
                            question.outcome.set_exception(OSError(f"{self.address}: {error!r}"))
                else:
                    for key, question in work.items():
                        if not question.outcome.done():
                            question.outcome.set_result(answers[key])
        finally:
            self._is_running = False
            for question in (*work.values(), *self._queue):
                question.outcome.cancel()
            self._queue = []

    def _take(self) -> dict[ShareKey, _Question]:
        """The questions of the next request: of the group that waits longest."""
        group_id = self._queue[0].key.group_id
        taken: dict[ShareKey, _Question] = {}
        left: list[_Question] = []
        for question in self._queue:
            is_next = question.key.group_id == group_id and len(taken) < _MOST_AT_ONCE
            if is_next and question.key not in taken:
                taken[question.key] = question
            else:
                left.append(question)
        self._queue = left
        return taken


def _request(api: ShareApi[Any], questions: dict[ShareKey, _Question]) -> object:
    request = getattr(wire, f"{api.name}Request")
    topic_of, partition_of = getattr(request, api.topic), request.PartitionData
    topics: dict[bytes, list[Any]] = {}
    group_id = ""
    for key, question in questions.items():
        group_id = key.group_id
        topics.setdefault(key.topic_id.bytes, []).append(partition_of(key.partition, *question.fields))
    return request(group_id, [topic_of(topic_id, partitions) for topic_id, partitions in topics.items()])


def _answers(group_id: str, response: Any) -> dict[ShareKey, Any]:
    return {
        ShareKey(group_id, UUID(bytes=bytes(topic.topic_id)), partition.partition): partition
        for topic in response.results
        for partition in topic.partitions
    }
