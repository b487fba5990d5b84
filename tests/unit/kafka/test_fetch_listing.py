"""What has changed in a Fetch is found in its bytes, or the whole request has to be decoded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkalite.kafka.fetch_listing import FROM, FetchListing, listing
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode

Wanted = dict[tuple[bytes, int], tuple[int, int, int]]


def request(wanted: Wanted, **fields: Any) -> wire.FetchRequest:
    """`wanted`: (topic id, partition) -> leader's epoch, offset, bytes; neighbours of one topic are listed together."""
    topics: list[wire.FetchRequest.FetchTopic] = []
    for (topic_id, number), (epoch, offset, most) in wanted.items():
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(wire.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[]))
        part = wire.FetchRequest.FetchPartition(number, epoch, offset, _last_fetched(epoch), partition_max_bytes=most)
        topics[-1].partitions = [*topics[-1].partitions, part]
    return wire.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=2**26, session_epoch=-1, topics=topics, **fields)


def _last_fetched(epoch: int) -> int:
    return max(epoch - 1, -1)


def listed(message: wire.FetchRequest, version: int) -> FetchListing | None:
    return listing(version, memoryview(encode(message, version)))


def flat(message: wire.FetchRequest) -> Wanted:
    for topic in message.topics:
        for part in topic.partitions:
            assert part.last_fetched_epoch == _last_fetched(part.current_leader_epoch)
    return {
        (topic.topic_id, part.partition): (part.current_leader_epoch, part.fetch_offset, part.partition_max_bytes)
        for topic in message.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(FROM, 19))
def test_exactly_what_has_changed(version: int) -> None:
    source = random.Random(version)
    ids = [bytes([number]) * 16 for number in (1, 2, 3)]
    wanted: Wanted = {
        (topic_id, number): (source.randrange(-1, 5), source.randrange(2**40), 2**20)
        for topic_id in ids
        for number in range(70)
    }
    message = request(wanted, isolation_level=1, rack_id="rack-1")
    before = listed(message, version)
    assert before is not None
    for _ in range(20):
        turn = source.randrange(len(wanted))  # another one comes first, so a topic may stand at both ends
        keys = [*wanted][turn:] + [*wanted][:turn]
        later = {key: wanted[key] for key in keys}
        moved = {key: (9, source.randrange(2**40), 2**19) for key in source.sample(keys, source.randrange(4))}
        later |= moved
        after = listed(request(later, isolation_level=1, rack_id="rack-1"), version)
        assert after is not None
        changed = before.changed(after)
        assert changed is not None
        found = after.request(changed)
        assert flat(found) == moved
        assert (found.max_wait_ms, found.min_bytes, found.max_bytes) == (500, 1, 2**26)
        assert (found.isolation_level, found.rack_id) == (1, "rack-1")
        wanted, before = later, after


@pytest.mark.parametrize("moves", [0, 1, 3, 19, 20, 300])
@pytest.mark.parametrize("order", ["turned", "any"])
def test_in_any_order(moves: int, order: str) -> None:
    """300 partitions: several numbers end with the same byte."""
    source = random.Random(moves)
    wanted: Wanted = {(b"a" * 16, number): (0, number, 100) for number in source.sample(range(100_000), 300)}
    before = listed(request(wanted), 16)
    assert before is not None
    for turn in range(0, 300, 7):
        keys = [*wanted][turn:] + [*wanted][:turn]
        if order == "any":
            source.shuffle(keys)
        moved = {key: (0, wanted[key][1] + 1, 100) for key in source.sample(keys, moves)}
        after = listed(request({key: moved.get(key, wanted[key]) for key in keys}), 16)
        assert after is not None
        changed = before.changed(after)
        assert changed is not None and flat(after.request(changed)) == moved


def test_another_request_is_decoded() -> None:
    wanted: Wanted = {(b"a" * 16, number): (0, number, 100) for number in range(9)}
    before = listed(request(wanted), 16)
    assert before is not None
    less = {key: wanted[key] for key in [*wanted][1:]}
    another = {**less, (b"a" * 16, 99): (0, 0, 100)}
    elsewhere = {**less, (b"b" * 16, 0): (0, 0, 100)}
    for other in (
        request(less),
        request(another),
        request(elsewhere),
        request(wanted, isolation_level=1),
        request(wanted, rack_id="r"),
    ):
        after = listed(other, 16)
        assert after is not None and before.changed(after) is None
    twice = request(wanted)
    twice.topics = [*twice.topics, *twice.topics]
    once_more = request(less)
    once_more.topics[0].partitions = [*once_more.topics[0].partitions, once_more.topics[0].partitions[4]]
    for with_twice in (twice, once_more):
        after = listed(with_twice, 16)
        assert after is not None and before.changed(after) is None
    other_version = listed(request(wanted), 13)
    assert other_version is not None and before.changed(other_version) is None


def test_what_has_another_form_is_decoded() -> None:
    wanted: Wanted = {(b"a" * 16, number): (0, number, 100) for number in range(9)}
    message = request(wanted)
    assert listed(message, 12) is None  # topics by name
    forgotten = [wire.FetchRequest.ForgottenTopic(topic_id=b"a" * 16, partitions=[1])]
    assert listed(request(wanted, forgotten_topics_data=forgotten), 16) is None
    assert listed(request(wanted, cluster_id="c"), 16) is None
    tagged = request(wanted)
    tagged.topics[0].partitions[3].high_watermark = 7
    assert listed(tagged, 18) is None
    whole = encode(message, 16)
    for size in range(len(whole)):
        assert listing(16, memoryview(whole)[:size]) is None
    assert listing(16, memoryview(whole + b"\0")) is None
