"""Channels to other nodes' Kafka listeners: one request under way per channel. What is asked meanwhile shares the next one."""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from kafkalite.config import inter_broker_listener
from kafkalite.coordinators.node_connection import NodeConnection, node_address
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError
from kafkalite.model import TopicPartition
from kafkalite.protocol.errors import WireError
from kafkalite.rpc.messages.control import Broker

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Channel = TypeVar("Channel", bound="NodeChannel[Any, Any]")
Address = tuple[str, int]

#: What is not answered within this time (seconds) is asked again, of whichever node it is for then. Shorter than the
#: request.timeout.ms of clients: they get an answer that lets them try again.
_TIMEOUT_S = 10.0
#: Elements of one request, unless a single question has more: a node refuses requests with more than 10,000 (`kafka.pieces`).
MOST_ELEMENTS = 8_000


def elements_of(partitions: Sequence[TopicPartition]) -> int:
    """Of a question about one transaction and these partitions, at most: each may be of a topic of its own."""
    return 1 + 2 * len(partitions)


def pieces(partitions: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, ...]]:
    """So many of them that each piece fits into a request."""
    size = MOST_ELEMENTS // 2 - 1
    for start in range(0, len(partitions), size):
        yield tuple(partitions[start : start + size])


class NodeChannel(ABC, Generic[Question, Answer]):
    """To one node. A subclass says how questions become a request, and what the response answers.

    Args:
        name: of its task, in front of the address.
    """

    #: Questions in one request.
    most_at_once: ClassVar[int]

    def __init__(self, services: Services, name: str, connection: NodeConnection[Any]) -> None:
        self.address = connection.address
        self._services = services
        self._name = f"{name}.{self.address[0]}:{self.address[1]}"
        self._connection = connection
        self._queue: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._is_running = False

    async def ask(self, question: Question) -> Answer:
        """Raises OSError: the node could not be asked, or has not answered."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append((question, outcome))
        if not self._is_running:
            self._is_running = True
            self._services.supervisor.spawn(self._name, self._run(), Policy.ISOLATED)
        return await outcome

    def close(self) -> None:
        """Give the connection up; the next question opens another one."""
        self._connection.close()

    @abstractmethod
    async def _exchange(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """The answers, one for each. Raises what the connection raises; WireError: the response does not fit the request."""

    def _elements(self, question: Question) -> int:
        """How many elements a question is in a request."""
        return 1

    def _is_asked(self) -> bool:
        """Whether somebody waits for an answer. What its asker has given up is not asked: another node may have acted instead."""
        self._queue = [each for each in self._queue if not each[1].done()]
        return bool(self._queue)

    def _take(self) -> list[tuple[Question, asyncio.Future[Answer]]]:
        """Take the questions of the next request off the queue."""
        count = elements = 0
        for question, _ in self._queue[: self.most_at_once]:
            elements += self._elements(question)
            if count and elements > MOST_ELEMENTS:
                break
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    async def _run(self) -> None:
        """Ask until the queue is empty. Every waiter gets an outcome."""
        work: list[tuple[Question, asyncio.Future[Answer]]] = []
        try:
            while self._is_asked():
                work = self._take()
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        answers = await self._exchange([question for question, _ in work])
                except (OSError, TimeoutError, WireError, EOFError, ApiError, struct.error) as error:
                    self._fail(work, error)
                    self.close()
                else:
                    for (_, outcome), answer in zip(work, answers, strict=True):
                        if not outcome.done():
                            outcome.set_result(answer)
        except asyncio.CancelledError:  # the node stops
            for _, outcome in (*work, *self._queue):
                outcome.cancel()
            raise
        except BaseException as error:
            # A bug, which the supervisor reports. The waiters try again, over another connection.
            work, self._queue = work + self._queue, []
            self._fail(work, error)
            self.close()
            raise
        finally:
            self._is_running = False

    def _fail(self, work: Sequence[tuple[Question, asyncio.Future[Answer]]], error: BaseException) -> None:
        for _, outcome in work:
            if not outcome.done():
                outcome.set_exception(OSError(f"{self.address}: {error!r}"))


class NodeChannels(Generic[Channel]):
    """To all nodes. A node that has another address than before gets another channel."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listener = inter_broker_listener(services.config).name
        self._channels: dict[Hashable, Channel] = {}

    def to(self, broker: Broker, make: Callable[[Address], Channel], kind: Hashable = None) -> Channel:
        """The channel to a node, made if need be. `kind`: each has a channel of its own. Raises OSError: it takes no requests."""
        address = node_address(broker, self._listener)
        channel = self._channels.get((broker.broker_id, kind))
        if channel is None or channel.address != address:
            if channel is not None:
                channel.close()
            channel = self._channels[broker.broker_id, kind] = make(address)
        return channel

    def close(self) -> None:
        """Give up the connections."""
        for channel in self._channels.values():
            channel.close()
