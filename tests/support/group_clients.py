"""Clients of a `group_world`: what a consumer of each protocol does, what it believes to have, and what it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.classic.events import JoinRequest, SyncRequest
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerHeartbeat
from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat
from kafkalite.coordinators.groups.decisions.streams.members import NOTHING
from kafkalite.coordinators.groups.decisions.streams.topology import Subtopology, Topology
from kafkalite.coordinators.groups.decisions.subscription import assigned_in, assignment_of, topics_in
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import Offset, ProducerId, TopicId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from tests.support.group_world import REBALANCE_MS, SESSION_MS, World

#: A topic as it is now, and a partition of it: a topic that was created again is another one.
Place = tuple[TopicId, int]
_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_JOIN_AGAIN = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class Offsets:
    """What a group's clients have committed, and what they may read."""

    def __init__(self) -> None:
        self.acked: dict[Place, int] = {}
        self.tried: dict[Place, int] = {}
        self.producers = count(1)


class Client:
    """A client with partitions of its own."""

    def __init__(self, world: World, group_id: str, name: str, topics: Sequence[str], book: Offsets) -> None:
        self.world, self.group_id, self.name, self.topics, self.book = world, group_id, name, list(topics), book
        self.owned: set[Place] = set()
        self.positions: dict[Place, int] = {}
        #: When its last heartbeat that was answered was sent.
        self.heard_s = 0.0
        self.is_stopped = False
        self.is_stable = False
        self.instance_id: str | None = None
        self.unexpected: list[ErrorCode] = []

    def now(self) -> float:
        return self.world.clock.monotonic()

    def has(self) -> set[Place]:
        """What it works on: nothing if it must believe that its session is over."""
        return self.owned if self.now() - self.heard_s < SESSION_MS / 1000 else set()

    def drop(self) -> None:
        self.owned, self.positions, self.is_stable = set(), {}, False

    async def step(self) -> None:
        raise NotImplementedError

    def membership(self) -> tuple[str, str | None, int]:
        """Member id, instance id, generation or epoch."""
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        source = self.world.source
        while not self.is_stopped:
            await self.step()
            await self._positions()
            if source.random() < 0.5:
                await self._commit()
            await asyncio.sleep(source.uniform(0.2, 1.2))

    async def _ask_until_answered(self, ask: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(20):
            answer = await ask()
            if answer is not None and not (isinstance(answer, ApiError) and answer.code in _AGAIN):
                break
            await asyncio.sleep(0.3)

    async def crash(self) -> None:
        """It says nothing any more."""
        self.is_stopped = True
        self.drop()

    # --- offsets ---

    def _names(self) -> dict[TopicId, str]:
        return {topic_id: name for name, topic_id in self.world.ids.items()}

    async def _positions(self) -> None:
        """Where to begin on partitions that are new."""
        names = self._names()
        new = [place for place in self.has() if place not in self.positions and place[0] in names]
        if not new:
            return
        before = {place: self.book.acked.get(place, 0) for place in new}

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            known = groups.offsets.offsets_of(self.group_id)
            keys = {place: TopicPartition(names[place[0]], place[1]) for place in new}
            if any(known.is_unstable(key) for key in keys.values()):
                reply(None)
            else:
                found = {place: known.committed.get(key) for place, key in keys.items()}
                reply({p: 0 if o is None or o.is_of_another(p[0]) else int(o.offset) for p, o in found.items()})

        found = await self.world.ask(self.group_id, serve)
        if not isinstance(found, dict):
            return
        for place, offset in found.items():
            if place[0] in self._names():
                assert before[place] <= offset <= self.book.tried.get(place, 0), (self.name, place, before, offset)
                if place in self.owned:
                    self.positions[place] = offset

    async def _commit(self) -> None:
        names = self._names()
        moving = {
            place: self.positions[place] + 1 for place in self.has() if place in self.positions and place[0] in names
        }
        if not moving:
            return
        source = self.world.source
        producer_id = ProducerId(next(self.book.producers)) if source.random() < 0.3 else None
        is_kept = producer_id is None or source.random() < 0.7
        if is_kept:
            for place, offset in moving.items():
                self.positions[place] = offset
                self.book.tried[place] = max(offset, self.book.tried.get(place, 0))
        keys = {place: TopicPartition(names[place[0]], place[1]) for place in moving}
        offsets = {
            keys[place]: CommittedOffset(Offset(offset), -1, "", 0, topic_id=place[0])
            for place, offset in moving.items()
        }

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            if not names.keys() & {place[0] for place in moving} <= self._names().keys():
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # as the API does
            producer = None if producer_id is None else (producer_id, 0)
            committer = Committer(self.group_id, *self.membership(), producer, knows_epochs=True)
            for _ in groups.offsets.committing(committer, offsets, reply):
                pass

        found = await self.world.ask(self.group_id, serve, 6.0)
        is_stored = isinstance(found, dict) and not any(found.values())
        if producer_id is not None:
            await self.world.end_transaction(self.group_id, producer_id, is_commit=is_stored and is_kept)
        if is_stored and is_kept:
            for place, offset in moving.items():
                self.book.acked[place] = max(offset, self.book.acked.get(place, 0))


class Member(Client):
    """Of a protocol of heartbeats alone (KIP-848 and later)."""

    #: Errors after which it joins again. Others are unexpected.
    join_again = _JOIN_AGAIN

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: 0: it has not joined.
        self.epoch = 0

    def membership(self) -> tuple[str, str | None, int]:
        return self.name, self.instance_id, self.epoch

    async def _beat(self, epoch: int) -> Any:
        raise NotImplementedError

    def _take(self, answer: Any) -> None:
        """What the answer to a heartbeat says of its partitions."""
        raise NotImplementedError

    def _is_full(self, epoch: int) -> bool:
        """After a lost answer a client sends everything, and the coordinator answers with everything."""
        return epoch == 0 or (epoch > 0 and not self.is_stable) or self.world.source.random() < 0.1

    async def step(self) -> None:
        sent = self.now()
        answer = await self._beat(self.epoch)
        if self.is_stopped or answer is None:
            self.is_stable = False
        elif isinstance(answer, ApiError):
            self.is_stable = False
            if answer.code not in _AGAIN:
                if answer.code not in self.join_again:
                    self.unexpected.append(answer.code)
                self.drop()
                self.epoch = 0
        else:
            self.heard_s, self.epoch, self.is_stable = sent, answer.epoch, True
            self._take(answer)

    async def leave(self) -> None:
        self.is_stopped = True
        self.drop()
        is_away = self.instance_id is not None and self.world.source.random() < 0.7
        await self._ask_until_answered(lambda: self._beat(-2 if is_away else -1))


class Consumer(Member):
    """Of the consumer protocol (KIP-848)."""

    rebalance_ms = REBALANCE_MS
    join_again = _JOIN_AGAIN | {ErrorCode.UNRELEASED_INSTANCE_ID}

    async def _beat(self, epoch: int) -> Any:
        owned: dict[TopicId, set[int]] = {}
        is_full = self._is_full(epoch)
        said = self._owned_to_say(is_full=is_full) if epoch > 0 else set()
        for topic_id, number in said or ():
            owned.setdefault(topic_id, set()).add(number)
        request = ConsumerHeartbeat(
            self.name, epoch, self.instance_id, None, self.rebalance_ms if is_full else -1,
            topics=tuple(sorted(self.topics)) if is_full else None,
            owned={key: frozenset(each) for key, each in owned.items()} if epoch >= 0 and said is not None else None,
        )  # fmt: skip

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            groups.consumer_heartbeat(
                self.group_id, request, lambda _: True, lambda error, answer: reply(error if answer is None else answer)
            )

        return await self.world.ask(self.group_id, serve)

    def _owned_to_say(self, *, is_full: bool) -> set[Place] | None:
        """What it says that it has; None: nothing about it."""
        return self.owned

    def _take(self, answer: Any) -> None:
        if answer.shows_assignment:
            self.owned = {(topic_id, n) for topic_id, held in answer.member.assigned.items() for n in held}
            self.positions = {place: offset for place, offset in self.positions.items() if place in self.owned}


class SlowConsumer(Consumer):
    """As Java's and librdkafka's clients: it says what it has when that has changed, and takes its time to take in what it gets.

    It never has what was deleted before it had taken it in. Its rebalance timeout is theirs: nothing may have to wait for that.
    """

    rebalance_ms = 300_000

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._assigned: set[Place] = set()
        self._said: set[Place] | None = None

    def drop(self) -> None:
        super().drop()
        self._assigned, self._said = set(), None

    def _owned_to_say(self, *, is_full: bool) -> set[Place] | None:
        return self.owned if is_full or self.owned != self._said else None

    async def step(self) -> None:
        names = self._names()
        if self.world.source.random() < 0.6:
            self.owned |= {place for place in self._assigned if place[0] in names}
        owned = set(self.owned)
        await super().step()
        self._said = owned if self.is_stable else None

    def _take(self, answer: Any) -> None:
        owned = self.owned
        super()._take(answer)
        if answer.shows_assignment:
            self._assigned, self.owned = self.owned, owned & self.owned


class Classic(Client):
    """Of the classic protocol, eager; its leader shares all partitions out in turns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.member_id = ""
        self.generation = -1

    def membership(self) -> tuple[str, str | None, int]:
        return self.member_id, self.instance_id, self.generation

    def drop(self) -> None:
        super().drop()
        self.generation = -1

    def _subscription(self) -> bytes:
        return (1).to_bytes(2) + encode(wire.ConsumerProtocolSubscription(sorted(self.topics)), 1)

    async def _join(self) -> Any:
        member_id = self.member_id

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            groups.join(
                self.group_id,
                JoinRequest(
                    reply, member_id, groups.new_member_id(self.name), self.instance_id, self.name, "/h",
                    SESSION_MS, REBALANCE_MS, "consumer", (("range", self._subscription()),),
                    requires_known_member_id=self.instance_id is None, supports_skip_assignment=True,
                ),
            )  # fmt: skip

        return await self.world.ask(self.group_id, serve, REBALANCE_MS / 1000 + 5)

    async def _sync(self, assignments: Mapping[str, bytes], protocol: str | None) -> Any:
        generation = self.generation

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            request = SyncRequest(
                reply, self.member_id, self.instance_id, generation, "consumer", protocol, assignments
            )
            groups.sync(self.group_id, request)

        return await self.world.ask(self.group_id, serve, REBALANCE_MS / 1000 + 5)

    def _failed(self, answer: Any) -> bool:
        """Whether there is no answer, or an error; then what follows from it is done."""
        if answer is None:
            return True
        code = answer.code if isinstance(answer, ApiError) else getattr(answer, "error", answer)
        if not code:
            return False
        if code not in _AGAIN:
            self.drop()
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
            elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                self.unexpected.append(code)
        return True

    async def step(self) -> None:
        if self.generation < 0:
            await self._rebalance()
            return
        sent = self.now()

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            reply(groups.heartbeat(self.group_id, self.member_id, self.instance_id, self.generation))

        answer = await self.world.ask(self.group_id, serve)
        if not self._failed(answer):
            self.heard_s = sent

    async def _rebalance(self) -> None:
        sent = self.now()
        joined = await self._join()
        if joined is not None and not isinstance(joined, ApiError) and joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if self.is_stopped or self._failed(joined):
            return
        self.member_id, self.generation = joined.member_id, joined.generation
        shares = self._shares(joined.members) if joined.leader == joined.member_id else {}
        synced = await self._sync(shares, joined.protocol)
        if self.is_stopped or self._failed(synced):
            self.generation = -1
            return
        self.heard_s, self.is_stable = sent, True
        ids = self.world.ids
        self.owned = {(ids[topic], number) for topic, number in assigned_in(synced.assignment) if topic in ids}

    def _shares(self, members: Sequence[tuple[str, str | None, bytes]]) -> dict[str, bytes]:
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id, _, _ in members}
        wanted = {member_id: topics_in(metadata) or frozenset() for member_id, _, metadata in members}
        for topic in sorted({topic for topics in wanted.values() for topic in topics}):
            takers = sorted(member_id for member_id, topics in wanted.items() if topic in topics)
            for number in range(self.world.count(topic)):
                given[takers[number % len(takers)]].setdefault(topic, []).append(number)
        return {member_id: assignment_of(list(each.items()), 1) for member_id, each in given.items()}

    async def leave(self) -> None:
        self.is_stopped = True
        member_id, self.owned = self.member_id, set()

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            reply(groups.leave(self.group_id, member_id, self.instance_id))

        await self._ask_until_answered(lambda: self.world.ask(self.group_id, serve))


class Sharer(Member):
    """Of a share group: partitions are not its own."""

    async def _beat(self, epoch: int) -> Any:
        topics = tuple(self.topics) if not epoch else None
        request = ShareHeartbeat(self.name, epoch, None, topics, self.name, "/h")
        return await self.world.ask_task(self.group_id, lambda groups: groups.share_heartbeat(self.group_id, request))

    def _take(self, answer: Any) -> None:
        if answer.assigned is not None:
            self.owned = {(topic_id, n) for topic_id, numbers in answer.assigned.items() for n in numbers}

    async def _positions(self) -> None:
        return

    async def _commit(self) -> None:
        return


class Streamer(Member):
    """Of a streams group (KIP-1071) with one subtopology. Its places are tasks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.topics = ["a"]
        self.tasks = NOTHING

    def drop(self) -> None:
        super().drop()
        self.tasks = NOTHING

    async def _beat(self, epoch: int) -> Any:
        is_full = self._is_full(epoch)
        request = StreamsHeartbeat(
            self.name, epoch, None, None, REBALANCE_MS if is_full else -1,
            topology=Topology(0, (Subtopology("0", ("a",)),)) if not epoch else None,
            owned=self.tasks if epoch else NOTHING,
            process_id=self.name if is_full else None,
        )  # fmt: skip

        def serve(groups: GroupCoordinator, reply: Any) -> None:
            groups.streams_heartbeat(
                self.group_id,
                request,
                0,
                lambda _: ErrorCode.NONE,
                lambda error, answer: reply(error if answer is None else answer),
            )

        return await self.world.ask(self.group_id, serve)

    def _take(self, answer: Any) -> None:
        if answer.shows_assignment:
            self.tasks = answer.member.assigned
            topic_id = self.world.ids["a"]
            self.owned = {(topic_id, number) for _, number in self.tasks.active}
            self.positions = {place: offset for place, offset in self.positions.items() if place in self.owned}
