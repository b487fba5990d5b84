"""Members of a share group (KIP-932) in a simulated cluster, over the Kafka protocol.

A member gets records and accepts, releases, rejects or renews them, or lets their locks end. It leaves now and then, or stops
without a word. What was confirmed must never be undone, and no record may be passed over.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.coordination import paths
from kafkalite.coordination.config_znodes import encode_config
from kafkalite.coordination.coordinator import Create
from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire
from kafkalite.record.reader import read_records
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.shares import ShareHistory, letters_of
from kafkalite.testing.simulation.plan import LETTERS, LONE, Plan
from kafkalite.testing.simulation.workloads.clients import record_name
from kafkalite.testing.simulation.workloads.kafka import NONE, Refused, SimKafkaClient, Unanswered

if TYPE_CHECKING:
    from kafkalite.testing.simulation.checkers.cluster import Partition, RecordHistory
    from kafkalite.testing.simulation.run import Simulation

GROUP = "sharers"
DELIVERIES = 10
_HEARTBEAT_S = 0.4
SETTINGS: dict[str, int | str] = {
    "group.share.session.timeout.ms": 6_000,
    "group.share.heartbeat.interval.ms": round(_HEARTBEAT_S * 1000),
    "group.share.record.lock.duration.ms": 3_000,
    "group.share.delivery.count.limit": DELIVERIES,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "share.coordinator.state.topic.prune.interval.ms": 5_000,
}
_HEARTBEAT, _FETCH, _ACKNOWLEDGE, _METADATA, _FIND = 1, 2, 2, 12, 4
_GAP, ACCEPT, _RELEASE, REJECT, _RENEW = range(5)
_LEAVE_EPOCH = _FINAL_EPOCH = -1
#: The member is not known any more: it joins again.
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
#: Nothing was done: the member does not hold the records any more.
_NOT_HELD = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})

#: Partition -> offset -> what is said of it.
_Said = dict["Partition", dict[int, int]]


class SharingProgram(Protocol):
    """What runs a member, and hears of what that got and acknowledged. Methods raise Violation."""

    group: str
    #: The member accepts all that it gets, and goes on when a request fails.
    is_calm: bool

    @property
    def topics(self) -> list[str]:
        """What a member that joins subscribes to."""

    def label(self, topic_id: bytes, name: str) -> str:
        """How the topic is called in the histories."""

    def stays(self, *, is_due: bool) -> bool:
        """Whether the member goes on; `is_due`: its time is over."""

    def delivered(self, partition: Partition, offset: int, value: bytes, count: int, asked_s: float, host: str) -> None:
        """`host` gave a record out, for the `count`th time."""

    def confirmed(self, partition: Partition, said: dict[int, int]) -> None:
        """What was said of these offsets is done."""

    def unsure(self, partition: Partition, said: dict[int, int]) -> None:
        """It is not known whether it is."""


class ShareMemberWorkload:
    """One member after the other, under one name."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        records: RecordHistory,
        history: ShareHistory,
        led_until: Callable[[Partition, str], float],
    ) -> None:
        self.name = name
        self.group = GROUP
        self._led_until = led_until
        self._plan = plan
        self._records = records
        self._history = history
        self.is_calm = False

    async def run(self, env: Env) -> None:
        """The program; it never ends."""
        while True:
            client = SimKafkaClient(self._plan, env)
            try:
                await RunningMember(self, client, env).run()
            except (Unanswered, Refused):
                pass  # then as a program that ends with an error
            finally:
                client.close()
            await asyncio.sleep(env.random.uniform(0.1, 2.0))

    @property
    def topics(self) -> list[str]:
        return sorted(topic for topic in self._plan.topics if topic != LONE)

    def label(self, topic_id: bytes, name: str) -> str:
        """Its topics are there all the time."""
        return name

    def stays(self, *, is_due: bool) -> bool:
        """In the end it does not leave any more."""
        return self.is_calm or not is_due

    def delivered(self, partition: Partition, offset: int, value: bytes, count: int, asked_s: float, host: str) -> None:
        """`host` gave the record out. Raises Violation.

        A leader that was replaced and does not know it delivers from its memory, as Kafka's does: an acquisition is not stored. What
        is acknowledged to its successors may come again from there. What was acknowledged while it led, or before, it knows.
        """
        self._records.consumed(partition, offset, record_name(value))
        self._history.deliver(partition, offset, count, min(asked_s, self._led_until(partition, host)))

    def confirmed(self, partition: Partition, said: dict[int, int]) -> None:
        for offset, kind in said.items():
            if kind in (ACCEPT, REJECT):
                self._history.confirm(partition, offset, is_rejected=kind == REJECT)

    def unsure(self, partition: Partition, said: dict[int, int]) -> None:
        for offset, kind in said.items():
            if kind in (ACCEPT, REJECT):
                self._history.doubt(partition, offset, is_rejected=kind == REJECT)


class RunningMember:
    """One member, until it ends."""

    def __init__(self, workload: SharingProgram, client: SimKafkaClient, env: Env) -> None:
        self._workload = workload
        self._client = client
        self._source = env.random
        self._now = asyncio.get_running_loop().time
        self._member = from_wire(env.random.getrandbits(128).to_bytes(16))
        self._epoch = 0
        self._beat_s = 0.0
        self._coordinator: str | None = None
        self._assigned: list[tuple[bytes, int]] = []
        #: Topic id -> how it is called; partition by id -> the host of its leader.
        self._names: dict[bytes, str] = {}
        self._leaders: dict[tuple[bytes, int], str] = {}
        #: Host -> the epoch of the next request in the session there, and what the session lists.
        self._sessions: dict[str, tuple[int, list[tuple[bytes, int]]]] = {}

    async def run(self) -> None:
        """Raises Unanswered, Refused."""
        ends_s = self._now() + self._source.expovariate(0.1)
        while self._workload.stays(is_due=self._now() >= ends_s):
            try:
                await self._round()
            except Unanswered:
                # Such as by the end of its login. In the end it goes on, or its partitions wait for the end of its session.
                if not self._workload.is_calm:
                    raise
                self._sessions.clear()
                self._leaders.clear()
                self._coordinator = None
                await asyncio.sleep(0.1)
        if self._source.random() < 0.5:
            await self._leave()

    async def _round(self) -> None:
        await self._heartbeat()
        hosts: dict[str, list[tuple[bytes, int]]] = {}
        for each in self._assigned:
            hosts.setdefault(await self._leader(each), []).append(each)
        if not hosts:
            await asyncio.sleep(0.1)
        for host, partitions in sorted(hosts.items()):
            await self._turn(host, partitions)

    # --- the group ---

    async def _heartbeat(self) -> None:
        if self._epoch > 0 and self._now() < self._beat_s + _HEARTBEAT_S:
            return
        if self._coordinator is None:
            question = wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[self._workload.group])
            answer = await self._client.ask(self._client.any_host(), question, _FIND)
            [found] = answer.coordinators
            if found.error_code != NONE:
                raise Unanswered(f"FindCoordinator: {found.error_code}")
            self._coordinator = self._client.host_of(found.node_id)
        topics = self._workload.topics if self._epoch == 0 else None
        request = wire.ShareGroupHeartbeatRequest(self._workload.group, self._member, self._epoch, None, topics)
        answer = await self._client.ask(self._coordinator, request, _HEARTBEAT)
        if answer.error_code in _FORGOTTEN:
            self._epoch = 0
            return
        if answer.error_code != NONE:
            raise Refused("ShareGroupHeartbeat", answer.error_code)
        self._epoch, self._beat_s = answer.member_epoch, self._now()
        if answer.assignment is not None:
            self._assigned = [
                (bytes(topic.topic_id), number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            ]

    async def _leave(self) -> None:
        for host, (_, partitions) in sorted(self._sessions.items()):
            last = wire.ShareFetchRequest(self._workload.group, self._member, _FINAL_EPOCH, 0, 0, 0, 0, 0, topics=[])
            if partitions:
                await self._client.ask(host, last, _FETCH)
        if self._coordinator is not None:
            request = wire.ShareGroupHeartbeatRequest(self._workload.group, self._member, _LEAVE_EPOCH, None, None)
            await self._client.ask(self._coordinator, request, _HEARTBEAT)

    async def _leader(self, partition: tuple[bytes, int]) -> str:
        if partition not in self._leaders:
            request = wire.MetadataRequest
            wanted = [request.MetadataRequestTopic(name=topic) for topic in self._workload.topics]
            answer = await self._client.ask(self._client.any_host(), request(wanted), _METADATA)
            for topic in answer.topics:
                self._names[bytes(topic.topic_id)] = self._workload.label(bytes(topic.topic_id), topic.name or "")
                for each in topic.partitions:
                    if each.leader_id > 0:
                        host = self._client.host_of(each.leader_id)
                        self._leaders[bytes(topic.topic_id), each.partition_index] = host
        if partition not in self._leaders:
            raise Unanswered("the partition has no leader")
        return self._leaders[partition]

    def _where(self, topic_id: bytes, number: int) -> Partition:
        return self._names[topic_id], number

    # --- records ---

    async def _turn(self, host: str, partitions: list[tuple[bytes, int]]) -> None:
        """Fetch from one node, work, and acknowledge."""
        epoch, listed = self._sessions.get(host, (0, []))
        if listed != partitions:
            epoch = 0  # another session, in place of the one before
        request, asked_s = wire.ShareFetchRequest, self._now()
        topics = [request.FetchTopic(topic_id, [request.FetchPartition(number)]) for topic_id, number in partitions]
        most = self._source.choice((1, 5, 50))
        message = request(
            self._workload.group, self._member, epoch, 200, 1, 2**20, most, most, topics=[] if epoch else topics
        )
        message.share_acquire_mode = self._source.choice((0, 1))
        answer = await self._client.ask(host, message, _FETCH)
        if answer.error_code != NONE:
            self._sessions.pop(host, None)
            self._leaders.clear()
            await asyncio.sleep(0.1)
            return
        self._sessions[host] = (epoch + 1, partitions)
        got: _Said = {}
        for topic in answer.responses:
            for part in topic.partitions:
                if part.error_code != NONE:
                    self._leaders.pop((bytes(topic.topic_id), part.partition_index), None)
                    await asyncio.sleep(0.1)
                elif part.acquired_records:
                    where = self._where(bytes(topic.topic_id), part.partition_index)
                    got[where] = self._take(host, where, part, asked_s)
        if got:
            await self._work(host, got)

    def _take(self, host: str, where: Partition, part: Any, asked_s: float) -> dict[int, int]:
        values = {record.offset: record.value or b"" for record in read_records(bytes(part.records or b""))}
        got: dict[int, int] = {}
        for acquired in part.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                got[offset] = ACCEPT if offset in values else _GAP
                if offset in values:
                    count = acquired.delivery_count
                    self._workload.delivered(where, offset, values[offset], count, asked_s, host)
        return got

    async def _work(self, host: str, got: _Said) -> None:
        source = self._source
        if self._workload.is_calm:
            await self._say(host, got)
            return
        await asyncio.sleep(source.choice((0.0, 0.0, 0.05, 0.3)))
        said: _Said = {}
        later: _Said = {}
        for partition, offsets in got.items():
            for offset, kind in offsets.items():
                fate = source.random()
                if kind == _GAP or fate < 0.7:
                    said.setdefault(partition, {})[offset] = kind
                elif fate < 0.8:
                    said.setdefault(partition, {})[offset] = _RELEASE
                elif fate < 0.85:
                    said.setdefault(partition, {})[offset] = REJECT
                elif fate < 0.97:
                    later.setdefault(partition, {})[offset] = _RENEW
                # the lock of the others ends, or the session before it
        if said:
            await self._say(host, said)
        if later:
            await self._say(host, later)
            # Within the lock, or after its end.
            await asyncio.sleep(source.choice((0.05, 0.05, 0.3, 3.2)))
            await self._say(host, {each: dict.fromkeys(offsets, ACCEPT) for each, offsets in later.items()})

    async def _say(self, host: str, said: _Said) -> None:
        """Acknowledge, and remember what was confirmed. Raises Unanswered."""
        epoch, listed = self._sessions.get(host, (0, []))
        if epoch == 0:
            return  # the session is over, and so is what it held
        ids = {name: topic_id for topic_id, name in self._names.items()}
        request = wire.ShareAcknowledgeRequest
        topics = [
            request.AcknowledgeTopic(ids[topic], [request.AcknowledgePartition(number, _batches(request, offsets))])
            for (topic, number), offsets in said.items()
        ]
        is_renewing = any(kind == _RENEW for offsets in said.values() for kind in offsets.values())
        message = request(self._workload.group, self._member, epoch, is_renewing, topics)
        try:
            answer = await self._client.ask(host, message, _ACKNOWLEDGE)
        except Unanswered:
            for where, offsets in said.items():
                self._workload.unsure(where, offsets)
            raise
        if answer.error_code != NONE:
            self._sessions.pop(host, None)
            return
        self._sessions[host] = (epoch + 1, listed)
        for topic in answer.responses:
            for part in topic.partitions:
                where = self._where(bytes(topic.topic_id), part.partition_index)
                if part.error_code == NONE:
                    self._workload.confirmed(where, said[where])
                elif part.error_code not in _NOT_HELD:
                    self._workload.unsure(where, said[where])
                    self._leaders.pop((bytes(topic.topic_id), part.partition_index), None)


def _batches(request: Any, offsets: dict[int, int]) -> Sequence[Any]:
    return [
        request.AcknowledgementBatch(run[0], run[-1], [offsets[offset] for offset in run])
        for run in _runs(sorted(offsets))
    ]


def _runs(offsets: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][-1] + 1 == offset:
            found[-1].append(offset)
        else:
            found.append([offset])
    return found


def znodes(plan: Plan) -> list[Create]:
    """The group's settings, and the znodes above them."""
    settings = {"share.auto.offset.reset": "earliest"}
    if plan.dead_letters:
        settings["errors.deadletterqueue.topic.name"] = LETTERS
    return [
        Create("/config"),
        Create(paths.CONFIG_GROUPS),
        Create(paths.config_entity(GROUPS, GROUP), encode_config(settings)),
    ]


class LeaderTerms:
    """The leader of each partition, and the time at which each node's last term as its leader ended."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._leaders: dict[Partition, str | None] = {}
        #: In seconds.
        self._ended: dict[tuple[Partition, str], float] = {}

    def changed(self) -> None:
        """Take note of who leads by what is in ZooKeeper now."""
        now = asyncio.get_running_loop().time()
        for partition in {*self._leaders, *self._simulation.zk.states}:
            leader = self._leader(partition)
            before = self._leaders.get(partition)
            if leader != before:
                if before is not None:
                    self._ended[partition, before] = now
                self._leaders[partition] = leader

    def led_until(self, partition: Partition, host: str) -> float:
        """When the node's last term as the partition's leader ended. Raises Violation: it never led it."""
        if self._leaders.get(partition) == host:
            return math.inf
        if (partition, host) not in self._ended:
            raise Violation(f"{host} delivers records of {partition} to a share group, and never led it")
        return self._ended[partition, host]

    def _leader(self, partition: Partition) -> str | None:
        state = self._simulation.zk.states.get(partition)
        return None if state is None or state.leader < 1 else self._simulation.plan.node_names[state.leader - 1]


class ShareMembers:
    """All members of the share group of a simulation; none where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self.history = ShareHistory(DELIVERIES)
        self._members: list[ShareMemberWorkload] = []
        self.terms = LeaderTerms(simulation)

    def start(self) -> None:
        for number in range(1, self._plan.shares + 1):
            records = self._simulation.history
            workload = ShareMemberWorkload(f"sharer{number}", self._plan, records, self.history, self.terms.led_until)
            self._members.append(workload)
            self._simulation.world.start(workload.name, workload.run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: members stay, and accept all."""
        for each in self._members:
            each.is_calm = True

    def logged(self, event: dict[str, Any]) -> None:
        """A node says in its log that dead letters could not be written."""
        if event.get("event") == "share.dead_letters_dropped":
            topic, number = event["partition"]
            self.history.drop((topic, number), event["first"], event["last"])

    def stats(self) -> dict[str, int]:
        if not self._members:
            return {}
        history = self.history
        return {
            "shared": history.delivered,
            "again": history.again,
            "confirmed": history.confirmations,
            "rejected": history.rejections,
        }

    def not_done(self) -> str | None:
        """Which record nobody has acknowledged, or which dead letter is missing. Raises Violation."""
        if not self._members:
            return None
        letters: set[tuple[str, int, int]] = set()
        for partition, records in self._simulation.final.logs({LETTERS, *self._members[0].topics}).items():
            if partition[0] == LETTERS:
                letters |= set(letters_of(records))
            else:
                left = self.history.open_offsets(partition, (record.offset for record in records))
                if left:
                    return f"{partition}: {len(left)} records, from {left[0]} on"
        self.history.check_letters(letters)
        return self.history.missing_letter(letters) if self._plan.dead_letters else None
