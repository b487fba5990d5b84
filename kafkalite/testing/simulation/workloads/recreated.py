"""A topic that is deleted and created again at once, while many groups have offsets of it, and the checks of what they commit then.

What was committed for the topic of before is no group's offset of the next one. What is confirmed stays: this is read from the log of the
partition's present leader, which has all of it; an earlier coordinator may still answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.coordinators.groups.records.common import OffsetRecord, parse
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_TOPIC = "recreated"
_GROUPS = [f"recreated-{number:03}" for number in range(100)]
_TIMEOUT_MS = 5_000
#: Versions of the requests: commits and reads name the topic by its id, so that none is taken for the topic before.
_CREATE, _DELETE, _COMMIT, _FETCH, _FIND = 7, 5, 10, 10, 2
#: Groups that commit together while the topic is there, and how often a commit that is refused is sent.
_TOGETHER, _ATTEMPTS = 5, 20


class RecreatedTopic:
    """Nothing where the plan does not have it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._stopping = asyncio.Event()
        self._rounds = 0
        self._checked = 0
        #: The last offset that was sent: each is sent once.
        self._offset = 0
        #: Group -> what was confirmed since the topic was created.
        self._confirmed: dict[str, int] = {}

    def start(self) -> None:
        """Start the program."""
        if self._simulation.plan.recreates:
            self._simulation.world.start("recreated", self._run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: nothing more is committed."""
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._simulation.plan.recreates:
            return {}
        return {"recreated": self._rounds, "offsets_checked": self._checked}

    async def _run(self, env: Env) -> None:
        client = SimKafkaClient(self._simulation.plan, env)
        while not self._stopping.is_set():
            try:
                await self._round(client, env)
            except Unanswered:
                await asyncio.sleep(0.2)
        client.close()

    async def _round(self, client: SimKafkaClient, env: Env) -> None:
        """A life of the topic. Raises Unanswered, Violation."""
        topic_id = await self._create(client)
        self._rounds += 1
        self._confirmed.clear()
        await self._see_nothing(client, topic_id)
        # The last of those whose offsets are purged commits first.
        await self._commit(client, topic_id, _GROUPS[::-1])
        # Now and then long enough for the deletion before it to be heard of everywhere.
        until = env.clock.monotonic() + env.random.choice((0.1, 0.3, 0.5, 2.5))
        while (left_s := until - env.clock.monotonic()) > 0:
            await asyncio.sleep(min(left_s, env.random.uniform(0.02, 0.2)))
            await self._commit(client, topic_id, env.random.sample(_GROUPS, _TOGETHER))
        self._check()
        await self._delete(client)

    async def _create(self, client: SimKafkaClient) -> bytes:
        create = wire.CreateTopicsRequest
        request = create([create.CreatableTopic(_TOPIC, 1, 3, [], [])], _TIMEOUT_MS, validate_only=False)
        answer = (await client.ask(client.any_host(), request, _CREATE)).topics[0]
        if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._delete(client)
        if answer.error_code != NONE:
            raise Unanswered(f"CreateTopics: {answer.error_code}")
        return bytes(answer.topic_id)

    async def _delete(self, client: SimKafkaClient) -> None:
        request = wire.DeleteTopicsRequest(topic_names=[_TOPIC], timeout_ms=_TIMEOUT_MS)
        answer = (await client.ask(client.any_host(), request, _DELETE)).responses[0]
        if answer.error_code != NONE:
            raise Unanswered(f"DeleteTopics: {answer.error_code}")

    async def _coordinator(self, client: SimKafkaClient) -> str:
        find = wire.FindCoordinatorRequest(key=_GROUPS[0], key_type=0)
        return client.host_of((await client.ask(client.any_host(), find, _FIND)).node_id)

    async def _see_nothing(self, client: SimKafkaClient, topic_id: bytes) -> None:
        """No group has an offset of a topic that is new."""
        fetch = wire.OffsetFetchRequest
        topic = fetch.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        groups = [fetch.OffsetFetchRequestGroup(group_id=group, topics=[topic]) for group in _GROUPS]
        answer = await client.ask(await self._coordinator(client), fetch(groups=groups), _FETCH)
        for group in answer.groups:
            for each in (partition for topic in group.topics for partition in topic.partitions):
                if each.error_code == NONE and each.committed_offset >= 0:
                    raise Violation(
                        f"offsets are of one topic: {group.group_id} has {each.committed_offset} of life {self._rounds}, "
                        "which nobody has committed for"
                    )

    async def _commit(self, client: SimKafkaClient, topic_id: bytes, groups: Sequence[str]) -> None:
        """The next offset, for each of these groups."""
        self._offset += 1
        host = await self._coordinator(client)
        commit = wire.OffsetCommitRequest
        partition = commit.OffsetCommitRequestPartition(0, self._offset, -1, -1, "")
        topic = commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
        for _ in range(_ATTEMPTS):
            requests = [
                commit(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
                for group in groups
            ]
            answers = await client.ask_all(host, requests, _COMMIT)
            errors = [answer.topics[0].partitions[0].error_code for answer in answers]
            self._confirmed |= {g: self._offset for g, error in zip(groups, errors, strict=True) if error == NONE}
            groups = [group for group, error in zip(groups, errors, strict=True) if error != NONE]
            if not groups:
                return
            await asyncio.sleep(0.005)

    def _check(self) -> None:
        records = self._simulation.final.log((GROUP_TOPIC, 0))
        if records is None:
            return
        last: dict[str, int | None] = {}
        for record in records:
            parsed = parse(record.key, record.value, record.offset)
            if isinstance(parsed, OffsetRecord) and parsed.partition.topic == _TOPIC:
                last[parsed.group_id] = None if parsed.value is None else parsed.value.offset
        self._checked += len(self._confirmed)
        for group, confirmed in self._confirmed.items():
            offset = last.get(group)
            # A later one may be there that was not confirmed.
            if offset is None or offset < confirmed:
                raise Violation(
                    f"committed offsets stay: {group} has {offset} in life {self._rounds} of the topic, {confirmed} was confirmed"
                )
