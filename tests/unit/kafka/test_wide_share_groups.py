"""Share groups that share thousands of topics: what is written about them is made in steps, and is right if the group changes meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.decisions.share import states as rules
from kafkalite.coordinators.groups.decisions.share.group import PartitionsWithState, SharedTopic, ShareGroup
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.records import share as records
from kafkalite.coordinators.groups.share import states
from kafkalite.env.turns import at_once
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import Offset, TopicId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire

from .conftest import Broker
from .coordinator_requests import coordinator


def _id(number: int) -> TopicId:
    found = from_wire(uuid.UUID(int=number + 1, version=4).bytes)
    assert found is not None
    return found


def _shared(count: int) -> PartitionsWithState:
    topics = {_id(number): SharedTopic(f"t{number}", frozenset({0, 1})) for number in range(count)}
    return PartitionsWithState(topics, topics, {key: each.name for key, each in topics.items()})


def test_a_record_about_12000_topics_is_made_in_steps() -> None:
    """To make and encode it held the loop for 40 to 60 ms, with each start offset that was set or deleted."""
    shared = _shared(12_000)
    steps = records.encoding_record("g", shared)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made = stop.value
            break
        count += 1
    assert made == records.encode_record("g", shared)
    # Three lists that are made, and then encoded.
    assert count >= 3 * 12_000 // records.TOPICS_PER_STEP
    assert at_once(records.encoding_record("g", PartitionsWithState())) == records.encode_record(
        "g", PartitionsWithState()
    )


def test_work_for_share_coordinators_is_made_as_its_turn_comes() -> None:
    """The keys of 12,000 partitions were made at once: 30 to 50 ms, again for each hundred states that a group began."""
    made: list[int] = []

    class Counted(frozenset[int]):
        def __iter__(self) -> Any:
            made.append(1)
            return super().__iter__()

    topics = {_id(number): SharedTopic(f"t{number}", Counted({0})) for number in range(1_000)}
    keys = states._keys_of("g", topics)
    for _ in range(5):
        next(keys)
    assert len(made) == 5


def _topics(first: int, count: int) -> list[str]:
    return [f"t{number:04d}" for number in range(first, first + count)]


async def test_offsets_of_many_topics_that_are_set_and_deleted_at_the_same_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one of them has made is made again, if another one was written first: no topic is lost."""
    deleted, kinds = rules.deleted, set()

    def observed(group: ShareGroup, doomed: Any, kept: Any) -> Any:
        kinds.add(type(kept))
        return deleted(group, doomed, kept)

    monkeypatch.setattr(rules, "deleted", observed)
    create, alter = wire.CreateTopicsRequest, wire.AlterShareGroupOffsetsRequest
    count = 2 * records.TOPICS_PER_STEP
    admin = await broker.client()
    for first in (0, count):
        answer = await admin.ask(
            create([create.CreatableTopic(name, 1, 1) for name in _topics(first, count)], 60_000), 7
        )
        assert {topic.error_code for topic in answer.topics} == {0}
    await coordinator(admin, "s")
    clients = [await broker.client() for _ in range(2)]

    def altering(first: int) -> Any:
        part = [alter.AlterShareGroupOffsetsRequestPartition(0, 7)]
        return alter("s", [alter.AlterShareGroupOffsetsRequestTopic(name, part) for name in _topics(first, count)])

    async def altered(client: Any, first: int) -> None:
        while True:
            answer = await client.ask(altering(first), 0)
            if answer.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                codes = {part.error_code for topic in answer.responses for part in topic.partitions}
                assert (answer.error_code, codes) == (0, {0})
                return

    await asyncio.gather(altered(clients[0], 0), altered(clients[1], count))
    entry = broker.side.groups.find("s")
    assert entry is not None and entry.share is not None
    assert len(entry.share.shared.initialized) == 2 * count
    delete = wire.DeleteShareGroupOffsetsRequest
    asked = [
        delete("s", [delete.DeleteShareGroupOffsetsRequestTopic(name) for name in _topics(first, count)])
        for first in (0, count)
    ]
    answers = await asyncio.gather(*(client.ask(each, 0) for client, each in zip(clients, asked, strict=True)))
    assert {topic.error_code for answer in answers for topic in answer.responses} == {0}
    assert entry.share.shared == PartitionsWithState()
    assert not entry.share_runtime.is_busy
    # If none of 12,000 states could be deleted, a search in a list for each of them held the loop for seconds.
    assert kinds == {set}


@pytest.mark.parametrize("what", ["the expiry", "an offset"])
async def test_a_name_that_has_changed_while_its_first_offsets_were_being_set(broker: Broker, what: str) -> None:
    """The expiry took the name for unused and forgot it: the offsets were set, and nobody found the group until its coordinator moved. With an
    offset that was committed meanwhile it was a share group and a classic one."""
    create, count = wire.CreateTopicsRequest, 2 * records.TOPICS_PER_STEP
    client = await broker.client()
    answer = await client.ask(create([create.CreatableTopic(name, 1, 1) for name in _topics(0, count)], 60_000), 7)
    assert {topic.error_code for topic in answer.topics} == {0}
    await coordinator(client, "s")
    groups = broker.side.groups
    wanted = {groups.topics.topic_id(name): (name, {0: Offset(7)}) for name in _topics(0, count)}
    entry = groups.share_group("s")
    setting = asyncio.create_task(groups.share_states.alter_offsets(entry, wanted))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert entry.share is None
    if what == "the expiry":
        await groups.removal.expire()
        expected = ErrorCode.NOT_COORDINATOR  # the client asks again
    else:
        known = CommittedOffset(Offset(1), 0, "", 0)
        for _ in groups.offsets.committing(Committer("s"), {TopicPartition("t0000", 0): known}, lambda _: None):
            pass
        expected = ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(ApiError) as refused:
        await setting
    assert refused.value.code is expected
    assert entry.share is None
