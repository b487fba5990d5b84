"""Share groups (KIP-932) and an administrator that sets and deletes their offsets, deletes groups and topics, and repeats unanswered requests.

Each group has a topic of its own, some members, and a program that writes. The administrator waits until the members have left, acts, and
lets them in again; most often it then waits until they have got everything. In the end it waits for that, too: no partition stays without a state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.coordination import paths
from kafkalite.coordination.config_znodes import encode_config
from kafkalite.coordination.coordinator import Create
from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.records import parse
from kafkalite.env.seams import Env
from kafkalite.errors import ErrorCode
from kafkalite.model import SHARE_TOPIC
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.simulation.checkers.administered import AdministeredShares
from kafkalite.testing.simulation.plan import Plan
from kafkalite.testing.simulation.workloads.kafka import NONE, RETRIABLE, Refused, SimKafkaClient, Unanswered
from kafkalite.testing.simulation.workloads.promise import Promise
from kafkalite.testing.simulation.workloads.shares import ACCEPT, DELIVERIES, REJECT, RunningMember

if TYPE_CHECKING:
    from kafkalite.testing.simulation.checkers.cluster import Partition
    from kafkalite.testing.simulation.run import Simulation

_PARTITIONS, _MEMBERS = 2, 2
_TIMEOUT_MS = 5_000
_CREATE, _DELETE, _PRODUCE, _ALTER, _DELETE_OFFSETS, _DELETE_GROUPS = 7, 5, 9, 0, 0, 2
#: How often a request is sent before the administrator gives up.
_ATTEMPTS = 60
_PAUSE_S = 0.15
#: What was asked for without an answer is over after this time: coordinators ask for 15 s, and delete a state after what begins it.
_SETTLED_S = 40.0
#: The group has no offsets, or there is no group: so all begins again.
_NOTHING_THERE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
#: A coordinator that has not heard of a deletion finds it out at its second sweep.
_SWEPT_S = 200.0
_LATER = frozenset({*RETRIABLE, ErrorCode.NON_EMPTY_GROUP})


_Act = Callable[[SimKafkaClient], Coroutine[Any, Any, None]]


class _Member:
    """Members of a group, one after the other, while the administrator lets them in."""

    def __init__(self, course: ShareCourse, name: str) -> None:
        self.name = name
        self.group = course.group
        self.is_calm = False
        self._course = course

    async def run(self, env: Env) -> None:
        """The program; it never ends."""
        course = self._course
        while True:
            await course.is_open.wait()
            course.enter()
            try:
                with closing(SimKafkaClient(course.plan, env)) as client:
                    await RunningMember(self, client, env).run()
            except (Unanswered, Refused):
                pass  # then as a program that ends with an error
            finally:
                course.leave()
            await asyncio.sleep(env.random.uniform(0.05, 0.5))

    @property
    def topics(self) -> list[str]:
        return [self._course.topic]

    def label(self, topic_id: bytes, name: str) -> str:
        """A topic of the same name is another one."""
        return topic_id.hex()

    def stays(self, *, is_due: bool) -> bool:
        return self._course.is_open.is_set() and (self.is_calm or not is_due)

    def delivered(self, partition: Partition, offset: int, value: bytes, count: int, asked_s: float, host: str) -> None:
        led_until = self._course.led_until(partition, host)
        self._course.shares.deliver(partition, offset, count, min(asked_s, led_until))

    def confirmed(self, partition: Partition, said: dict[int, int]) -> None:
        for offset, kind in said.items():
            if kind in (ACCEPT, REJECT):
                self._course.shares.confirm(partition, offset, is_rejected=kind == REJECT)

    def unsure(self, partition: Partition, said: dict[int, int]) -> None:
        for offset, kind in said.items():
            if kind in (ACCEPT, REJECT):
                self._course.shares.doubt(partition, offset, is_rejected=kind == REJECT)


class ShareCourse:
    """One group, its topic, and its administrator."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.plan: Plan = simulation.plan
        self.group = group_name(number)
        self.topic = ""
        self.is_open = asyncio.Event()
        #: Members that run.
        self._inside = 0
        self._is_empty = asyncio.Event()
        self.shares = AdministeredShares(DELIVERIES)
        self.members = [_Member(self, f"administered{number}-{each}") for each in range(_MEMBERS)]
        self.stopping = asyncio.Event()
        self.done = False
        self.acts = 0
        self._simulation = simulation
        self._number = number
        self._topics = 0
        self._topic_id = b""
        #: Of all topics by their labels.
        self._names: dict[str, str] = {}
        #: Ids of topics that are gone.
        self._former: list[bytes] = []
        self._writing = asyncio.Lock()
        self._vague_until_s = 0.0
        #: Acts that are under way while the members are there.
        self._acting: list[asyncio.Task[None]] = []

    def led_until(self, partition: Partition, host: str) -> float:
        """`partition` has its topic's label: the answer may be late, of a topic before the present one."""
        topic, number = partition
        return self._simulation.shares.terms.led_until((self._names[topic], number), host)

    def enter(self) -> None:
        """A member begins."""
        self._inside += 1
        self._is_empty.clear()

    def leave(self) -> None:
        """It has ended."""
        self._inside -= 1
        if not self._inside:
            self._is_empty.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- the administrator ---

    async def run(self, env: Env) -> None:
        """The program."""
        source = env.random
        client = SimKafkaClient(self.plan, env)
        await self._another_topic(client)
        self.shares.begin(self._now(), {})
        while True:
            await self._write(client, env)
            self.is_open.set()
            if self.stopping.is_set():
                break
            for member in self.members:
                member.is_calm = source.random() < 0.7
            waits = source.random() < 0.7
            until_s = self._now() + source.choice((0.2, 0.5, 3.0))
            while not self.stopping.is_set() and (self._now() < until_s or (waits and self.shares.missing())):
                await asyncio.sleep(0.1)
                if source.random() < 0.1:
                    await self._write(client, env)
            if self.stopping.is_set():
                continue
            self.is_open.clear()
            if source.random() < 0.25:
                await self._delete_topic(client)  # while the members are there
                await self._another_topic(client)
            await self._finish_acts()
            if self._inside:
                await self._is_empty.wait()
            for _ in range(source.choice((1, 1, 2, 4))):
                await self._act(env)
                if self._acting:
                    break  # members come while it is under way
        for member in self.members:
            member.is_calm = True
        await self._finish_acts()
        client.close()
        self.done = True

    async def _finish_acts(self) -> None:
        await asyncio.gather(*self._acting, return_exceptions=True)
        self._acting = []

    async def _act(self, env: Env) -> None:
        source = env.random
        starts: dict[Partition, int] | None = {}
        self.acts += 1
        try:
            match source.choice(
                ("alter", "alter", "offsets", "offsets", "group", "group", "together", "together", "together", "topic")
            ):
                case "alter":
                    starts = self._starts(env)
                    await self._at_once(env, self._alter(starts))
                case "offsets":
                    await self._at_once(env, self._delete_offsets)
                case "group":
                    await self._at_once(env, self._delete_group)
                case "together":
                    starts = None  # whichever came last
                    acts = (self._alter(self._starts(env)), self._delete_offsets, self._delete_group)
                    await self._together(env, source.choices(acts, k=source.choice((2, 3, 4))))
                case _:
                    with closing(SimKafkaClient(self.plan, env)) as client:
                        await self._delete_topic(client)
                        await self._another_topic(client)
        except Unanswered:
            self._vague_until_s = self._now() + _SETTLED_S
        self.shares.begin(self._now(), None if self._now() < self._vague_until_s else starts)

    def _begun(self, env: Env, acts: Sequence[_Act]) -> list[asyncio.Task[None]]:
        """Several acts, soon after each other, each over a connection of its own."""
        source = env.random

        async def one(act: _Act, after_s: float) -> None:
            await asyncio.sleep(after_s)
            with closing(SimKafkaClient(self.plan, env)) as client:
                await act(client)

        delays = [0.0, *(source.uniform(0.0, source.choice((0.005, 0.1, 1.0))) for _ in acts[1:])]
        return [asyncio.ensure_future(one(act, after_s)) for act, after_s in zip(acts, delays, strict=True)]

    async def _at_once(self, env: Env, act: _Act) -> None:
        """Now and then somebody does not wait for the answer, and asks again. Raises Unanswered."""
        tasks = self._begun(env, [act] * env.random.choice((1, 2)))
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()

    async def _together(self, env: Env, acts: Sequence[_Act]) -> None:
        """Acts that are not the same. It ends with the first answer, or when all are done. Raises Unanswered."""
        tasks = self._begun(env, acts)
        await asyncio.wait(tasks, return_when=env.random.choice((asyncio.FIRST_COMPLETED, asyncio.ALL_COMPLETED)))
        self._acting = [task for task in tasks if not task.done()]
        failures = [task.exception() for task in tasks if task.done()]
        for failure in failures:
            if failure is not None:
                raise failure

    def _starts(self, env: Env) -> dict[Partition, int]:
        """Somewhere within the records of each partition."""
        label = self._topic_id.hex()
        written = self.shares.written
        return {
            (label, number): env.random.randint(0, written.get((label, number), [0])[-1])
            for number in range(_PARTITIONS)
        }

    # --- requests: done, and answered, when these return; they raise Unanswered ---

    async def _until_done(self, ask: Callable[[str], Coroutine[Any, Any, int]], client: SimKafkaClient) -> None:
        """`ask` the group's coordinator until its code says that it is done."""
        code, is_unclear = 0, False
        for _ in range(_ATTEMPTS):
            try:
                code = await ask(await client.group_coordinator(self.group))
            except Unanswered:
                is_unclear = True
            else:
                if code == NONE or code in _NOTHING_THERE:
                    if is_unclear:
                        break
                    return
                if code not in _LATER:
                    break
                # What was begun may go on, but for a group with members, which is left as it is.
                is_unclear |= code != ErrorCode.NON_EMPTY_GROUP
            await asyncio.sleep(_PAUSE_S)
        raise Unanswered(f"an act of an administrator: {code}")

    def _alter(self, starts: dict[Partition, int]) -> _Act:
        request = wire.AlterShareGroupOffsetsRequest
        parts = [
            request.AlterShareGroupOffsetsRequestPartition(number, start)
            for (_, number), start in sorted(starts.items())
        ]
        message = request(group_id=self.group, topics=[request.AlterShareGroupOffsetsRequestTopic(self.topic, parts)])

        async def act(client: SimKafkaClient) -> None:
            async def ask(host: str) -> int:
                answer = await client.ask(host, message, _ALTER)
                codes = [each.error_code for topic in answer.responses for each in topic.partitions]
                found = next((code for code in (answer.error_code, *codes) if code != NONE), NONE)
                # The topic is there: only this node has not heard of it.
                return ErrorCode.NOT_COORDINATOR if found == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else found

            await self._until_done(ask, client)

        return act

    async def _delete_offsets(self, client: SimKafkaClient) -> None:
        request = wire.DeleteShareGroupOffsetsRequest
        message = request(group_id=self.group, topics=[request.DeleteShareGroupOffsetsRequestTopic(self.topic)])

        async def ask(host: str) -> int:
            answer = await client.ask(host, message, _DELETE_OFFSETS)
            return int(answer.error_code or next((each.error_code for each in answer.responses), NONE))

        await self._until_done(ask, client)

    async def _delete_group(self, client: SimKafkaClient) -> None:
        async def ask(host: str) -> int:
            answer = await client.ask(host, wire.DeleteGroupsRequest([self.group]), _DELETE_GROUPS)
            return int(answer.results[0].error_code)

        await self._until_done(ask, client)

    # --- its topic ---

    async def _delete_topic(self, client: SimKafkaClient) -> None:
        """If that is not answered, the next topic has another name."""
        async with self._writing:
            request = wire.DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=_TIMEOUT_MS)
            for _ in range(_ATTEMPTS):
                try:
                    code = (await client.ask(client.any_host(), request, _DELETE)).responses[0].error_code
                except Unanswered:
                    break
                if code == NONE:
                    self._former.append(self._topic_id)
                    return
                await asyncio.sleep(_PAUSE_S)
            self.topic = ""

    async def _another_topic(self, client: SimKafkaClient) -> None:
        async with self._writing:
            create = wire.CreateTopicsRequest
            while True:
                if not self.topic:
                    self._topics += 1
                    self.topic = f"shared{self._number}-{self._topics}"
                settings = [create.CreatableTopicConfig("min.insync.replicas", "2")]
                new = create.CreatableTopic(self.topic, _PARTITIONS, 3, [], settings)
                try:
                    answer = await client.ask(
                        client.any_host(), create([new], _TIMEOUT_MS, validate_only=False), _CREATE
                    )
                except Unanswered:
                    self.topic = ""
                    continue
                [created] = answer.topics
                if created.error_code == NONE:
                    break
                if created.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    self.topic = ""
                await asyncio.sleep(_PAUSE_S)
            self._topic_id = bytes(created.topic_id)
            self._names[self._topic_id.hex()] = self.topic
            self.shares.is_another_topic()
            self.shares.begin(self._now(), {} if self._now() >= self._vague_until_s else None)

    async def _write(self, client: SimKafkaClient, env: Env) -> None:
        """Some records to each partition, confirmed; in the end however long it takes."""
        async with self._writing:
            for number in range(_PARTITIONS):
                for _ in range(_ATTEMPTS):
                    try:
                        if await self._write_to(client, env, number):
                            break
                    except Unanswered:
                        pass
                    client.forget_leader(self.topic, number)
                    if not self.stopping.is_set() and env.random.random() < 0.2:
                        break
                    await asyncio.sleep(0.2)

    async def _write_to(self, client: SimKafkaClient, env: Env, number: int) -> bool:
        builder = RecordBatchBuilder()
        count = env.random.choice((1, 2, 3))
        for _ in range(count):
            builder.append(None, b"shared", (), env.clock.wall_ms())
        request = wire.ProduceRequest
        data = request.PartitionProduceData(number, builder.build())
        message = request(None, -1, 3_000, [request.TopicProduceData(name=self.topic, partition_data=[data])])
        answer = await client.ask(await client.leader(self.topic, number), message, _PRODUCE)
        [part] = answer.responses[0].partition_responses
        if part.error_code != NONE:
            return False
        self.shares.write((self._topic_id.hex(), number), part.base_offset, count)
        return True

    # --- the end ---

    def missing(self) -> str | None:
        """What the group has not got."""
        return self.shares.missing() if self.done else f"the administrator of {self.group} waits for the cluster"

    def left(self) -> str | None:
        """A state of a topic that is gone."""
        former = {topic_id.hex() for topic_id in self._former}
        last: dict[ShareKey, bool] = {}
        for number in self._simulation.assignment(SHARE_TOPIC):
            for record in self._simulation.final.log((SHARE_TOPIC, number)) or ():
                key, stored = parse(record.key, record.value)
                last[key] = stored is not None
        for key, is_there in last.items():
            if is_there and key.group_id == self.group and key.topic_id.hex in former:
                return f"{self.group} still has a state of a topic that was deleted, {key}"
        return None


def group_name(number: int) -> str:
    return f"administered{number}"


def znodes(plan: Plan) -> list[Create]:
    """The settings of the groups, and the znodes above them."""
    settings = encode_config({"share.auto.offset.reset": "earliest"})
    groups = [
        Create(paths.config_entity(GROUPS, group_name(number)), settings) for number in range(1, plan.administered + 1)
    ]
    return [Create("/config"), Create(paths.CONFIG_GROUPS), *groups] if groups else []


class AdministeredShareGroups:
    """None where the plan has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._courses: list[ShareCourse] = []

    def start(self) -> None:
        """Start the administrators and the members."""
        simulation = self._simulation
        for number in range(1, simulation.plan.administered + 1):
            course = ShareCourse(simulation, number)
            self._courses.append(course)
            simulation.world.start(f"administrator{number}", course.run, simulation.client_ended)
            for member in course.members:
                simulation.world.start(member.name, member.run, simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: each administrator ends what he has begun, and the members stay."""
        for course in self._courses:
            course.stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._courses:
            return {}
        return {
            "administered": sum(course.acts for course in self._courses),
            "administered_got": sum(course.shares.delivered for course in self._courses),
            "administered_confirmed": sum(course.shares.confirmed for course in self._courses),
        }

    def promises(self) -> list[Promise]:
        return [
            Promise("share groups get all when the faults are over", partial(self._first, ShareCourse.missing)),
            Promise("nothing is left of deleted topics", partial(self._first, ShareCourse.left), _SWEPT_S),
        ]

    def _first(self, missing: Callable[[ShareCourse], str | None]) -> str | None:
        return next((found for course in self._courses if (found := missing(course)) is not None), None)
