"""Groups that are deleted, also by several requests at once, while others commit for the next group of the same name.

What was confirmed stays: readers are shown it, and the log of the group's partition says the same, so that the next coordinator has it,
too. A member of a streams group that comes while its group is deleted is a member of a whole group: its heartbeats are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kafkalite.coordinators.groups.records.common import OffsetRecord, parse
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.plan import LONE
from kafkalite.testing.simulation.workloads.former import has_former_coordinator
from kafkalite.testing.simulation.workloads.kafka import NONE, RETRIABLE, SimKafkaClient, Unanswered, read_offsets
from kafkalite.testing.simulation.workloads.promise import Promise

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_GROUPS = 3
_COMMIT, _DELETE, _DELETE_OFFSETS, _HEARTBEAT = 8, 2, 0, 0
#: How often a request is sent, or an answer looked for, before the client gives up.
_ATTEMPTS = 40
_PAUSE_S = 0.1
_JOIN, _LEAVE = 0, -1
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
#: The group was deleted, if not by this request. Its other errors do not say whether the tombstones are in the log.
_DELETED = frozenset({NONE, ErrorCode.GROUP_ID_NOT_FOUND})

_Key = tuple[str, int]


class _DeletedGroup:
    """One name, and others after it: a request without an answer may arrive later, and then delete what was committed since."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self._simulation = simulation
        self.stopping = asyncio.Event()
        self.done = False
        self._group = name
        self._keys: list[_Key] = [
            (topic, number)
            for topic, count in simulation.plan.topics.items()
            if topic != LONE
            for number in range(count)
        ]
        self._last = 0
        #: What may be committed (-1: nothing), and whether each answer was clear.
        self._may: dict[_Key, set[int]] = {}
        self._is_clear = True
        self.deletions = self.checks = 0

    async def run(self, env: Env) -> None:
        """The program."""
        client = SimKafkaClient(self._simulation.plan, env)
        lives = 0
        self._begin()
        while not self.done:
            try:
                await self._commit(client, self._keys)
                await self._see(client)
                if self.stopping.is_set():
                    self.done = True
                    break
                await self._something(client, env)
                await asyncio.sleep(env.random.choice((0.0, 0.1, 1.0, 3.0)))
                await self._see(client)
            except Unanswered:
                lives += 1
                self._group = f"{self.name}-{lives}"
                self._begin()
                await asyncio.sleep(0.2)
        client.close()

    def _begin(self) -> None:
        self._may = {key: {-1} for key in self._keys}
        self._is_clear = True

    async def _one_coordinator(self) -> None:
        while has_former_coordinator(self._simulation, self._group):  # noqa: ASYNC110 - no event says when it notices
            await asyncio.sleep(_PAUSE_S)

    async def _something(self, client: SimKafkaClient, env: Env) -> None:
        await self._one_coordinator()  # a former one says that a group which has come since is not there
        source = env.random
        some = source.sample(self._keys, source.randint(1, len(self._keys)))
        match source.choice(("delete", "at once", "at once", "at once", "offsets", "alter")):
            case "delete":
                self._deleted(await self._delete(client))
            case "at once":
                await self._at_once(env, some)
            case "offsets":
                await self._delete_offsets(client, some)
            case _:
                await self._commit(client, some, back=source.randint(1, 5))

    # --- what is done ---

    async def _commit(self, client: SimKafkaClient, keys: Collection[_Key], back: int = 0) -> None:
        """Until it is confirmed. Raises Unanswered."""
        self._last += 1
        offset = self._last * 10 - back * 10 - 5 if back else self._last * 10
        offset = max(offset, 0)
        for _ in range(_ATTEMPTS):
            if await self._commit_once(client, keys, offset):
                self._is_clear |= len(keys) == len(self._keys)
                return
            await asyncio.sleep(_PAUSE_S)
        raise Unanswered("OffsetCommit")

    async def _commit_once(
        self, client: SimKafkaClient, keys: Collection[_Key], offset: int, host: str | None = None
    ) -> bool:
        """Whether it is confirmed. Raises Unanswered."""
        request = wire.OffsetCommitRequest
        topics = [
            request.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    request.OffsetCommitRequestPartition(number, offset, -1, -1, "")
                    for name, number in sorted(keys)
                    if name == topic
                ],
            )
            for topic in sorted({topic for topic, _ in keys})
        ]
        for key in keys:
            self._may[key].add(offset)
        message = request(group_id=self._group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        host = host or await client.group_coordinator(self._group)
        answer = await client.ask(host, message, _COMMIT)
        is_confirmed = True
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code == NONE:
                    self._may[topic.name, each.partition_index] = {offset}
                elif each.error_code in RETRIABLE:
                    is_confirmed = False
                else:
                    raise Unanswered(f"OffsetCommit: {each.error_code}")
        return is_confirmed

    async def _delete(self, client: SimKafkaClient) -> int:
        """The error code. Raises Unanswered."""
        self.deletions += 1
        host = await client.group_coordinator(self._group)
        answer = await client.ask(host, wire.DeleteGroupsRequest([self._group]), _DELETE)
        return int(answer.results[0].error_code)

    def _deleted(self, *codes: int) -> None:
        if len(codes) == 1 and codes[0] in _DELETED:
            self._may = {key: {-1} for key in self._keys}
            return
        for values in self._may.values():
            values.add(-1)
        self._is_clear &= all(code in _DELETED for code in codes)

    async def _at_once(self, env: Env, some: Collection[_Key]) -> None:
        """An administrator who does not wait asks again; clients commit meanwhile, or from the first answer on. Raises Unanswered."""
        source = env.random
        may_commit, is_over = asyncio.Event(), asyncio.Event()
        if source.random() < 0.3:
            may_commit.set()

        async def delete(after_s: float) -> int:
            await asyncio.sleep(after_s)
            with closing(SimKafkaClient(self._simulation.plan, env)) as client:
                code = await self._delete(client)
            may_commit.set()
            return code

        async def commit() -> bool:
            clear = True
            with closing(SimKafkaClient(self._simulation.plan, env)) as client:
                host = await client.group_coordinator(self._group)
                await may_commit.wait()
                await asyncio.sleep(source.choice((0.0, 0.0, 0.005, 0.02)))
                # A later commit would hide what has become of one before it.
                left = source.choice((1, 1, 2, 100))
                while left and not is_over.is_set():
                    left -= 1
                    self._last += 1
                    clear &= await self._commit_once(client, some, self._last * 10, host)
                    await asyncio.sleep(source.choice((0.0, 0.0, 0.01, 0.05)))
            return clear

        delays = [0.0, *(source.uniform(0.0, source.choice((0.02, 0.3))) for _ in range(source.choice((1, 1, 2))))]
        before = {key: set(values) for key, values in self._may.items()}
        committing = asyncio.ensure_future(commit())
        try:
            outcomes = await asyncio.gather(*map(delete, delays), return_exceptions=True)
        finally:
            may_commit.set()
            is_over.set()
            [committed] = await asyncio.gather(committing, return_exceptions=True)
        for outcome in (*outcomes, committed):
            if isinstance(outcome, BaseException):
                raise outcome
        self._is_clear &= bool(committed)
        if not committed:
            for key in some:
                self._may[key] |= before[key]
        self._deleted(*(int(code) for code in outcomes if not isinstance(code, BaseException)))
        for key in set(self._keys) - set(some):
            if all(code in _DELETED for code in outcomes):
                self._may[key] = {-1}

    async def _delete_offsets(self, client: SimKafkaClient, keys: Collection[_Key]) -> None:
        request = wire.OffsetDeleteRequest
        topics = [
            request.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    request.OffsetDeleteRequestPartition(number) for name, number in sorted(keys) if name == topic
                ],
            )
            for topic in sorted({topic for topic, _ in keys})
        ]
        host = await client.group_coordinator(self._group)
        answer = await client.ask(host, request(self._group, topics), _DELETE_OFFSETS)
        codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        for key in keys:
            if answer.error_code == NONE and codes.get(key) == NONE:
                self._may[key] = {-1}
            else:
                self._may[key].add(-1)
                self._is_clear = False

    # --- what is seen ---

    async def _see(self, client: SimKafkaClient) -> None:
        """Read all, until no commit is under way. Raises Unanswered, Violation."""
        for _ in range(_ATTEMPTS):
            await self._one_coordinator()
            found = await read_offsets(client, self._group, self._keys, is_stable=True)
            for key, offset in found.items():
                if offset not in self._may[key]:
                    raise Violation(f"committed offsets stay: {self._group} {key} has {offset}, not {self._may[key]}")
            if len(found) == len(self._keys):
                break
            await asyncio.sleep(_PAUSE_S)
        else:
            raise Unanswered("OffsetFetch")
        if self._is_clear:
            self._may = {key: {offset} for key, offset in found.items()}
            self._check_log()

    def _check_log(self) -> None:
        """The log says what readers were shown: the next coordinator knows nothing else."""
        partitions = self._simulation.assignment(GROUP_TOPIC)
        if not partitions:
            return
        records = self._simulation.final.log((GROUP_TOPIC, partition_of(self._group, len(partitions))))
        if records is None:
            return
        self.checks += 1
        last: dict[_Key, int] = dict.fromkeys(self._keys, -1)
        for record in records:
            parsed = parse(record.key, record.value, record.offset)
            if isinstance(parsed, OffsetRecord) and parsed.group_id == self._group:
                key = (parsed.partition.topic, parsed.partition.partition)
                last[key] = -1 if parsed.value is None else parsed.value.offset
        for key, [offset] in self._may.items():
            if last[key] != offset:
                raise Violation(
                    f"the next coordinator knows what this one shows: {self._group} {key} has {offset}, and {last[key]} in the log"
                )


class _DeletedStreamsGroup:
    """A member that leaves, and is back while its group is deleted."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self._simulation = simulation
        self._topic = next(topic for topic in simulation.plan.topics if topic != LONE)
        self.stopping = asyncio.Event()
        self.done = False
        self.lives = 0
        self._member = ""
        self._epoch = _JOIN

    async def run(self, env: Env) -> None:
        """The program."""
        client = SimKafkaClient(self._simulation.plan, env)
        while not self.done:
            try:
                await self._live(client, env)
                self.done = self.stopping.is_set()
            except Unanswered:
                await asyncio.sleep(0.2)
        client.close()

    async def _live(self, client: SimKafkaClient, env: Env) -> None:
        """Raises Unanswered, Violation."""
        self.lives += 1
        self._member, self._epoch = from_wire(env.random.getrandbits(128).to_bytes(16)), _JOIN
        until_s = env.clock.monotonic() + env.random.choice((0.3, 1.0, 6.0))
        beats = 0
        while beats < 3 or (env.clock.monotonic() < until_s and not self.stopping.is_set()):
            beats += await self._beat(client)
            await asyncio.sleep(0.2)
        await self._send(client, _LEAVE)
        host = await client.group_coordinator(self.name)
        deletion = asyncio.ensure_future(client.ask_apart(host, wire.DeleteGroupsRequest([self.name]), _DELETE))
        try:
            await asyncio.sleep(env.random.choice((0.0, 0.0, 0.001, 0.003, 0.02)))
            self._member, self._epoch = from_wire(env.random.getrandbits(128).to_bytes(16)), _JOIN
            until_s = env.clock.monotonic() + env.random.choice((0.3, 1.0, 6.0))
            while env.clock.monotonic() < until_s and not self.stopping.is_set():
                await self._beat(client)
                await asyncio.sleep(0.2)
            await self._send(client, _LEAVE)
        finally:
            await asyncio.gather(deletion, return_exceptions=True)

    async def _beat(self, client: SimKafkaClient) -> bool:
        """Whether the member is one. Raises Unanswered, Violation."""
        epoch = self._epoch
        code = await self._send(client, epoch)
        if code == ErrorCode.INVALID_REQUEST:
            raise Violation(f"a member of a streams group goes on: {self.name} refuses its heartbeat of epoch {epoch}")
        if code in _FORGOTTEN:
            self._epoch = _JOIN
        return code == NONE

    async def _send(self, client: SimKafkaClient, epoch: int) -> int:
        request = wire.StreamsGroupHeartbeatRequest
        message = request(self.name, self._member, epoch)
        if epoch != _LEAVE:
            message.active_tasks = message.standby_tasks = message.warmup_tasks = []
        if epoch == _JOIN:
            message.rebalance_timeout_ms = 5_000
            message.process_id = self._member
            parts: Any = [request.Subtopology("0", [self._topic], [], [], [], [])]
            message.topology = request.Topology(1, parts)
        host = await client.group_coordinator(self.name)
        answer = await client.ask_apart(host, message, _HEARTBEAT)
        if answer.error_code == NONE:
            self._epoch = answer.member_epoch
        return int(answer.error_code)


class DeletedGroups:
    """None where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._groups: list[_DeletedGroup] = []
        self._streams: list[_DeletedStreamsGroup] = []

    def _all(self) -> list[_DeletedGroup | _DeletedStreamsGroup]:
        return [*self._groups, *self._streams]

    def start(self) -> None:
        """Start the programs."""
        simulation = self._simulation
        if not simulation.plan.deletes:
            return
        self._groups = [_DeletedGroup(simulation, f"deleted{number}") for number in range(_GROUPS)]
        self._streams = [_DeletedStreamsGroup(simulation, f"deleted-streams{number}") for number in range(2)]
        for each in self._all():
            simulation.world.start(each.name, each.run, simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: each has its last life."""
        for each in self._all():
            each.stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._groups:
            return {}
        return {
            "group_deletions": sum(each.deletions for each in self._groups),
            "group_checks": sum(each.checks for each in self._groups),
            "streams_lives": sum(each.lives for each in self._streams),
        }

    def promises(self) -> list[Promise]:
        return [Promise("deleted groups can come again when the faults are over", self._missing)]

    def _missing(self) -> str | None:
        waiting = [each.name for each in self._all() if not each.done]
        return f"{waiting[0]} waits for the cluster" if waiting else None
