"""A topic that is deleted and created again at once, while many groups have offsets of it, and the check of what they commit then.

The check reads the log of the partition's present leader, which has all that was confirmed: an earlier coordinator may still answer.
"""

from __future__ import annotations

import asyncio
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
#: Versions of the requests: commits name the topic by its id, so that none is taken for the topic before.
_CREATE, _DELETE, _COMMIT, _FIND = 7, 5, 10, 2


class RecreatedTopic:
    """Nothing where the plan does not have it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._stopping = asyncio.Event()
        self._rounds = 0
        self._checked = 0

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
        find = wire.FindCoordinatorRequest(key=_GROUPS[0], key_type=0)
        found = await client.ask(client.any_host(), find, _FIND)
        host = client.host_of(found.node_id)
        confirmed = await self._commit(client, host, topic_id)
        # Now and then long enough for the deletion before it to be heard of everywhere.
        await asyncio.sleep(env.random.choice((0.1, 0.3, 0.5, 2.5)))
        self._check(confirmed)
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

    async def _commit(self, client: SimKafkaClient, host: str, topic_id: bytes) -> list[str]:
        """The groups whose commits were confirmed. The last of those whose offsets are purged commits first."""
        commit = wire.OffsetCommitRequest
        confirmed, missing = [], _GROUPS[::-1]
        for _ in range(20):
            requests = []
            for group in missing:
                partition = commit.OffsetCommitRequestPartition(0, self._rounds, -1, -1, "")
                topic = commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
                requests.append(commit(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]))
            answers = await client.ask_all(host, requests, _COMMIT)
            errors = [answer.topics[0].partitions[0].error_code for answer in answers]
            confirmed += [group for group, error in zip(missing, errors, strict=True) if error == NONE]
            missing = [group for group, error in zip(missing, errors, strict=True) if error != NONE]
            if not missing:
                break
            await asyncio.sleep(0.005)
        return confirmed

    def _check(self, groups: list[str]) -> None:
        partition = (GROUP_TOPIC, 0)
        records = self._simulation.final.log(partition)
        if records is None:
            return
        last: dict[str, int | None] = {}
        for record in records:
            parsed = parse(record.key, record.value, record.offset)
            if isinstance(parsed, OffsetRecord) and parsed.partition.topic == _TOPIC:
                last[parsed.group_id] = None if parsed.value is None else parsed.value.offset
        self._checked += len(groups)
        for group in groups:
            if last.get(group) != self._rounds:
                raise Violation(
                    f"committed offsets stay: {group} has {last.get(group)} in life {self._rounds} of the topic"
                )
