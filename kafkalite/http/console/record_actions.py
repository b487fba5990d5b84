"""What the console does with records: send one, delete all of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.records import delete_before
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.errors import ErrorCode, api_error
from kafkalite.http.console.body import Values, confirmed, value
from kafkalite.http.console.rights import UserRights
from kafkalite.model import INTERNAL_TOPICS, LATEST_TIMESTAMP, TopicPartition
from kafkalite.security.acl import ResourceType
from kafkalite.wording import number_of

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

Action = Callable[[Values, UserRights, AsyncClient], Awaitable[dict[str, Any]]]

#: Fields that no log may have.
CONTENT = ("key", "record", "headers")
_MAX_HEADERS = 100
_TOPIC = ResourceType.TOPIC


class RecordActions:
    """Of one node. Every action raises ValueError, ApiError, RpcError."""

    def __init__(self, node: ObservedNode, timeout_s: float) -> None:
        self._node = node
        self._timeout_s = timeout_s

    def table(self) -> Mapping[str, Action]:
        """By name."""
        return {"record.send": self._send, "topic.empty": self._empty}

    async def _send(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """`record` null: a tombstone; `key` null: none; `partition` -1: by the key, or any."""
        topic, number = value(values, "topic", str), value(values, "partition", int, -1)
        rights.need("Produce", {_TOPIC: [topic]})
        if topic in INTERNAL_TOPICS:
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: only brokers write to it")
        headers = value(values, "headers", list, [])
        if len(headers) > _MAX_HEADERS:
            raise ValueError(f"headers: more than {_MAX_HEADERS}")
        wait_ms = int(self._timeout_s * 1000)
        producer = Producer(client, linger_ms=0, delivery_timeout_ms=wait_ms, max_block_ms=wait_ms)
        async with producer:
            sent = await producer.send(
                topic,
                _content(values, "key"),
                _content(values, "record"),
                partition=None if number < 0 else number,
                headers=[_header(each) for each in headers],
            )
            await producer.flush()
        where = await sent
        return {
            "text": f"written: {topic}-{where.partition}, offset {where.offset}",
            "partition": where.partition,
            "offset": where.offset,
        }

    async def _empty(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """All records that are committed now."""
        topic = confirmed(values, "topic")
        rights.need("DeleteRecords", {_TOPIC: [topic]})
        states = self._node.metadata.topic(topic) or {}
        if not states:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        leaders = {TopicPartition(topic, number): int(state.leader) for number, state in states.items()}
        ends = await client.list_offsets(dict.fromkeys(leaders, LATEST_TIMESTAMP), timeout_s=self._timeout_s / 2)
        wanted = {key: int(end.offset) for key, end in ends.items()}
        errors = await delete_before(client, wanted, leaders, self._timeout_s / 2)
        if errors:
            key, reason = min(errors.items())
            text = f"{number_of(len(errors), 'partition')} could not be emptied; {key}: {reason}"
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return {"text": f"{topic} is empty"}


def _content(values: Values, name: str) -> bytes | None:
    return None if values.get(name) is None else str(value(values, name, str)).encode()


def _header(pair: Any) -> tuple[str, bytes]:
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
        raise ValueError("a header is not a pair of texts")
    return pair[0], pair[1].encode()
