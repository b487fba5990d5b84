"""Where `consume` begins: --from, --last; which topics it reads; which records it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.client.consumer import EARLIEST, LATEST
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import INTERNAL_TOPICS, TopicPartition
from kafkalite_cli.parameters import MAX_LONG, MOMENTS, At, is_whole, parse_moment, parse_pattern


def parse_start(text: str, option: str = "--from") -> int | str | At:
    """beginning, end, an offset, a time or how long ago. Raises click.BadParameter."""
    if text in ("beginning", "start", EARLIEST):
        return EARLIEST
    if text in ("end", LATEST):
        return LATEST
    if is_whole(text, MAX_LONG):
        return int(text)
    try:
        return parse_moment(text)
    except ValueError:
        reason = f"{text!r} is not beginning, end, {MOMENTS} or an OFFSET"
        raise click.BadParameter(reason, param_hint=option) from None


async def resolve(
    client: AsyncClient, keys: Sequence[TopicPartition], start: int | str | At
) -> dict[TopicPartition, int | str]:
    """The position in each partition. Of a time: the first record that is not older; else the end."""
    if not isinstance(start, At):
        return dict.fromkeys(keys, start)
    at_ms = start.at_ms(client.clock.wall_ms())
    # First the ends: what comes between the two questions is young enough.
    ends = await client.end_offsets(keys)
    found = await client.list_offsets(dict.fromkeys(keys, at_ms))
    return {key: ends[key] if each.offset < 0 else int(each.offset) for key, each in found.items()}


async def choose_topics(
    client: AsyncClient, named: Sequence[str], pattern: str | None, *, patience_s: float
) -> dict[str, int]:
    """Topic -> number of partitions. A pattern matches whole names, and no internal topic. Raises ApiError, click.BadParameter."""
    found = {} if pattern is None else await existing_topics(client, (), pattern)
    if pattern is not None and not found:
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {pattern!r}")
    for name in named:
        found[name] = await client.known_topic(name, timeout_s=patience_s)
    return dict(sorted(found.items()))


async def existing_topics(
    client: AsyncClient, named: Sequence[str], pattern: str | None, timeout_s: float | None = None
) -> dict[str, int]:
    """The same, of those that there are now."""
    matches = None if pattern is None else parse_pattern(pattern, "--pattern").fullmatch
    answer = await client.metadata(named if matches is None else None, timeout_s=timeout_s)
    return {
        topic.topic: len(topic.partitions)
        for topic in answer.topics
        if topic.partitions
        and (topic.topic in named or (matches and matches(topic.topic) and topic.topic not in INTERNAL_TOPICS))
    }


def record_filter(key: str | None, grep: str | None, headers: Sequence[str]) -> Callable[[ConsumedRecord], bool] | None:
    """Whether a record is shown: it has this key, its value matches, it has these headers. None: all are. Raises click.BadParameter."""
    if key is None and grep is None and not headers:
        return None
    value_matches = None if grep is None else parse_pattern(grep.encode(), "--grep").search
    wanted: Mapping[str, bytes | None] = dict(map(_header, headers))
    wanted_key = None if key is None else key.encode()

    def is_shown(record: ConsumedRecord) -> bool:
        if wanted_key is not None and record.key != wanted_key:
            return False
        if value_matches is not None and (record.value is None or value_matches(record.value) is None):
            return False
        return all(
            any(name == has and (value is None or value == content) for has, content in record.headers)
            for name, value in wanted.items()
        )

    return is_shown


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} is not NAME or NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None
