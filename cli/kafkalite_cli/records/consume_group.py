"""`kafkalite consume --group`: a member of a consumer group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.membership import Membership
from kafkalite.env.supervisor import Policy
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite_cli.output import on_stop
from kafkalite_cli.records.printer import Printer
from kafkalite_cli.records.shown import Shown
from kafkalite_cli.records.to_the_end import ToTheEnd

#: Interval at which printed records are committed; they are also committed before the partitions move to another member.
COMMIT_S = 1.0


class _ReadRecord(NamedTuple):
    """What is committed when a record is written."""

    key: TopicPartition
    next_offset: int
    is_shown: bool


class _Share:
    """A member's partitions in one generation: which records are read and not printed yet, and what is committed."""

    def __init__(self, member: Membership, consumer: Consumer, committed: Mapping[TopicPartition, int]) -> None:
        self._member = member
        self._consumer = consumer
        self._keys = member.partitions
        self._committed = dict(committed)
        self.unprinted: deque[_ReadRecord] = deque()

    async def commit(self) -> bool:
        """How far each partition is read and printed. Also where nothing was there to read: a group that begins at the end would miss
        what comes before its next start. False: the group has moved on."""
        waiting = {place.key: place.next_offset - 1 for place in reversed(self.unprinted)}
        reached = {key: waiting.get(key, self._consumer.position(key)) for key in self._keys}
        moved = {key: at for key, at in reached.items() if at is not None and at != self._committed.get(key)}
        self._committed.update(moved)
        return not moved or await self._member.commit(moved)


@dataclass(frozen=True, slots=True)
class GroupReading:
    """What `consume --group` reads and prints.

    `start`: where partitions begin for which the group has committed nothing.
    """

    client: AsyncClient
    group: str
    topic: str
    start: str
    read_committed: bool
    shown: Shown

    async def run(self) -> None:
        """Until a signal, `maximum` records, or the ends that stood when a share was given. Raises ApiError, RpcError."""
        member = Membership(self.client, Groups(self.client), self.group, [self.topic])
        printer = Printer()
        left = self.shown.most
        stopped = asyncio.Event()
        joining: asyncio.Task[None] | None = None

        def stop() -> None:
            stopped.set()
            if joining is not None:  # it waits for the other members, which may take minutes
                joining.cancel()

        on_stop(stop)
        try:
            while left > 0 and not stopped.is_set():
                joining = self.client.supervisor.spawn("group.join", member.join(), Policy.ISOLATED)
                try:
                    await joining
                except asyncio.CancelledError:
                    if not stopped.is_set():
                        raise
                    return
                joining = None
                async with Consumer(self.client, read_committed=self.read_committed) as consumer:
                    left, at_end = await self._share(consumer, member, printer, left, stopped)
                if at_end:
                    return
        finally:
            await member.leave()

    async def _share(
        self, consumer: Consumer, member: Membership, printer: Printer, left: int, stopped: asyncio.Event
    ) -> tuple[int, bool]:
        """One generation: (records still wanted, whether the end was reached)."""
        keys, shown = member.partitions, self.shown
        committed = await member.committed()
        consumer.assign({key: committed.get(key, self.start) for key in keys})
        end = await ToTheEnd.of(self.client, consumer, keys) if shown.exit_at_end else None
        share = _Share(member, consumer, committed)
        printer.drop()
        loop = asyncio.get_running_loop()
        due = asyncio.Event()
        loop.call_later(COMMIT_S, due.set)

        def is_over() -> bool:
            return stopped.is_set() or member.is_stale.is_set()

        while left > 0 and not is_over():
            if not share.unprinted:
                share.unprinted.extend(await self._read(consumer, printer, left))
            # The reader may take its time: meanwhile heartbeats go on, and the group can take the partitions.
            for _ in range(await printer.write(lambda: is_over() or due.is_set())):
                left -= share.unprinted.popleft().is_shown
            at_end = end is not None and not share.unprinted and end.is_reached()
            if at_end or due.is_set():
                if not await share.commit():
                    return left, False
                due.clear()
                loop.call_later(COMMIT_S, due.set)
            if at_end:
                return left, True
        await share.commit()
        return left, False

    async def _read(self, consumer: Consumer, printer: Printer, most: int) -> list[_ReadRecord]:
        """The next records, which the printer gets: nothing of those that are not shown."""
        places = []
        for record in await consumer.poll(max_records=min(most, 5000), timeout_s=0.2):
            is_shown = self.shown.has(record)
            printer.add([self.shown.show(record) if is_shown else b""])
            places.append(_ReadRecord(TopicPartition(record.topic, record.partition), record.offset + 1, is_shown))
        return places
