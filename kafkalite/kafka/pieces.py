"""Large requests, piece by piece: each piece is a request of its own to the handler, and the answers become one.

What may be cut is the list that the request is about (its topics, groups, resources), and within an element of it the list of
partitions. Only APIs whose elements do not depend on each other are cut; the others take no more elements than one turn of
the loop can bear.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalite.lazy_dataclass import dataclass

#: The number of elements that each piece of a request has, partitions included.
PIECE_ELEMENTS = 100
#: Partitions that one CreateTopics or CreatePartitions may make (KRaft's MAX_PARTITIONS_PER_BATCH).
MAX_NEW_PARTITIONS = 10_000
#: Elements of a request that is not cut, and of one whose handler works in steps or takes little time for an element: a consumer says in
#: heartbeats and commits what it has, which may be all partitions of a group; each record of a share group is acknowledged for itself.
MOST_UNCUT = 10_000
MOST_IN_STEPS = 100_000
#: The latter.
IN_STEPS = frozenset(
    {
        "Produce", "OffsetCommit", "TxnOffsetCommit", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge",
        "WriteShareGroupState", "AddPartitionsToTxn", "OffsetDelete", "AlterShareGroupOffsets", "DescribeShareGroupOffsets",
        "DeleteShareGroupOffsets", "DescribeTopicPartitions", "DescribeLogDirs",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cut:
    """How the requests of one API are cut.

    Args:
        lists: each list of the request whose elements are independent, the list of the response about it, and within their
            elements the same for partitions ("": such elements stay whole).
        key: the field of an element that names it; "": the element itself does.
        is_unique: whether an element that is named twice is refused, as in Kafka, rather than answered once.
    """

    lists: tuple[tuple[str, str, str, str], ...]
    key: str = "name"
    is_unique: bool = False


def _one(source: str, target: str, inner: str = "", inner_target: str = "") -> tuple[tuple[str, str, str, str], ...]:
    return ((source, target, inner, inner_target or inner),)


CUTS = {
    # Its pieces have one answer: OfferedApi.many.
    "Fetch": Cut(
        (*_one("topics", "responses", "partitions"), *_one("forgotten_topics_data", "responses", "partitions"))
    ),
    "ListOffsets": Cut(_one("topics", "topics", "partitions"), is_unique=True),
    "Metadata": Cut(_one("topics", "topics"), key=""),
    "OffsetFetch": Cut((*_one("topics", "topics"), *_one("groups", "groups")), key="name"),
    "FindCoordinator": Cut(_one("coordinator_keys", "coordinators"), key=""),
    "DescribeGroups": Cut(_one("groups", "groups"), key=""),
    "ConsumerGroupDescribe": Cut(_one("group_ids", "groups"), key=""),
    "ShareGroupDescribe": Cut(_one("group_ids", "groups"), key=""),
    "StreamsGroupDescribe": Cut(_one("group_ids", "groups"), key=""),
    "CreateTopics": Cut(_one("topics", "topics"), is_unique=True),
    "DeleteTopics": Cut((*_one("topics", "responses"), *_one("topic_names", "responses")), key="", is_unique=True),
    "DeleteRecords": Cut(_one("topics", "topics", "partitions"), is_unique=True),
    "OffsetForLeaderEpoch": Cut(_one("topics", "topics", "partitions"), key="topic"),
    "DescribeConfigs": Cut(_one("resources", "results"), key=""),
    "AlterConfigs": Cut(_one("resources", "responses"), key="resource_name"),
    "IncrementalAlterConfigs": Cut(_one("resources", "responses"), key="resource_name"),
    "CreatePartitions": Cut(_one("topics", "results"), is_unique=True),
    "DeleteGroups": Cut(_one("groups_names", "results"), key=""),
    "DescribeProducers": Cut(_one("topics", "topics", "partition_indexes", "partitions"), is_unique=True),
    "DescribeTransactions": Cut(_one("transactional_ids", "transaction_states"), key=""),
    "CreateAcls": Cut(_one("creations", "results"), key=""),
    "DeleteAcls": Cut(_one("filters", "filter_results"), key=""),
}


def most_uncut(api: str) -> int:
    """How many elements a request may have that is not cut."""
    return MOST_IN_STEPS if api in IN_STEPS else MOST_UNCUT


def pieces_of(api: str, message: Any) -> Generator[Any, None, None]:
    """Requests like `message`, each with at most PIECE_ELEMENTS of its elements; the message is taken apart meanwhile."""
    cut = CUTS[api]
    found = False
    for source, _, inner, _ in cut.lists:
        elements = getattr(message, source) or ()
        for piece in _portions(elements, inner):
            found = True
            part = _like(message)
            for other, *_ in cut.lists:
                if getattr(message, other) is not None:
                    setattr(part, other, [])
            setattr(part, source, piece)
            yield part
    if not found:
        yield message


def _portions(elements: Any, inner: str) -> Generator[list[Any], None, None]:
    piece: list[Any] = []
    size = 0
    for element in elements:
        parts = getattr(element, inner) if inner else ()
        first = 0
        while True:
            room = PIECE_ELEMENTS - size
            if len(parts) - first <= max(room, 1):
                break
            portion = _like(element)
            setattr(portion, inner, parts[first : first + room])
            yield [*piece, portion]
            piece, size = [], 0
            first += room
        if first:
            rest = _like(element)
            setattr(rest, inner, parts[first:])
            piece.append(rest)
        else:
            piece.append(element)
        size += 1 + len(parts) - first
        if size >= PIECE_ELEMENTS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _like(struct: Any) -> Any:
    """A copy of one struct; what it holds is shared."""
    return type(struct)(*(getattr(struct, name) for name in struct._names))


class Joined:
    """One response of those to the pieces. Those about partitions of one topic become one element again."""

    def __init__(self, api: str) -> None:
        self._lists = CUTS[api].lists
        self.response: Any = None

    def add(self, response: Any) -> None:
        if self.response is None:
            self.response = response
            for _, target, _, _ in self._lists:
                setattr(response, target, list(getattr(response, target) or ()))
            return
        seen = set()
        for _, target, _, inner in self._lists:
            if target in seen:
                continue
            seen.add(target)
            mine, more = getattr(self.response, target), list(getattr(response, target) or ())
            if inner and mine and more and _names_same(mine[-1], more[0], inner):
                first = more.pop(0)
                before = getattr(mine[-1], inner)
                if not isinstance(before, list):
                    before = list(before)
                    setattr(mine[-1], inner, before)
                before += getattr(first, inner)
            mine += more


def _names_same(one: Any, other: Any, inner: str) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in one._names if name != inner)


def repeated(api: str, message: Any) -> Generator[None, None, bool]:
    """Whether something that may be named once is named twice. Other APIs' repetitions are removed; a step per some elements."""
    cut = CUTS[api]
    for source, _, inner, _ in cut.lists:
        elements = getattr(message, source)
        if not elements:
            continue
        seen: set[Any] = set()
        kept: list[Any] = []
        is_repeated = yield from _seen_twice(elements, inner, cut, seen, kept)
        while seen:  # to free hundreds of thousands of keys at once takes tens of milliseconds
            for _ in range(min(len(seen), PIECE_ELEMENTS)):
                seen.pop()
            yield
        if is_repeated:
            return True
        if len(kept) < len(elements):
            setattr(message, source, kept)
    return False


def _seen_twice(elements: Any, inner: str, cut: Cut, seen: set[Any], kept: list[Any]) -> Generator[None, None, bool]:
    """Whether something that may be named once is named twice. `seen` and `kept` get the names, and the elements without repetitions."""
    for number, element in enumerate(elements):
        if not number % PIECE_ELEMENTS:
            yield
        if inner:
            for place, part in enumerate(getattr(element, inner)):
                if not place % PIECE_ELEMENTS:
                    yield
                key = (
                    getattr(element, cut.key),
                    getattr(part, part._names[0]) if hasattr(part, "_names") else part,
                )
                if key in seen and cut.is_unique:
                    return True
                seen.add(key)
            kept.append(element)
            continue
        key = getattr(element, cut.key) if cut.is_unique and cut.key else _identity(element)
        if key not in seen:
            seen.add(key)
            kept.append(element)
        elif cut.is_unique:
            return True
    return False


def released(message: Any) -> Generator[None, None, None]:
    """Take a message apart, some elements per step: to free hundreds of thousands of objects at once takes long."""
    for name in message._names:
        elements = getattr(message, name, None)
        if not isinstance(elements, list):
            continue
        while elements:
            last = elements[-1]
            if hasattr(last, "_names") and any(_is_long(getattr(last, inner, None)) for inner in last._names):
                yield from released(last)
                elements.pop()
            else:
                del last
                del elements[-PIECE_ELEMENTS:]
            yield


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > PIECE_ELEMENTS


def wanted_partitions(message: Any, default: int) -> Generator[None, None, int]:
    """How many partitions a CreateTopics asks for."""
    wanted = 0
    for number, topic in enumerate(message.topics):
        if not number % PIECE_ELEMENTS:
            yield
        count = len(topic.assignments) or topic.num_partitions
        wanted += default if count == -1 else max(count, 0)
    return wanted


def _identity(element: Any) -> Any:
    """What makes an element equal to another one."""
    if not hasattr(element, "_names"):
        return element
    values = (getattr(element, name) for name in element._names)
    # A list of hundreds of thousands is only equal to itself: its text alone would hold the loop.
    return tuple(
        (id(value) if _is_long(value) else repr(value)) if isinstance(value, list | tuple) else value
        for value in values
    )
