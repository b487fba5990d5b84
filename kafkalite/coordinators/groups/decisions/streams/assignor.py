"""Which member gets which task: Kafka's assignor "sticky" as to its results (KIP-1071). Pure.

Active tasks: each is assigned once. The members' numbers of tasks differ by at most one. Within that limit a member keeps its
tasks. A task that moves goes to a process with a copy of its state, if there is one. Standby tasks: each task with state has as many
as are wanted, on other processes, as far as there are any. A process keeps its standby tasks if the load allows. Otherwise the
process with the least load gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, TypeVar

from kafkalite.coordinators.groups.decisions.streams.members import NOTHING, Task, TaskSets
from kafkalite.coordinators.groups.decisions.streams.topology import ConfiguredSubtopology
from kafkalite.lazy_dataclass import dataclass

#: Tasks between two yields: about a millisecond.
_PIECE = 100
STICKY = "sticky"

#: An entry of a heap: what counts, and at the end the name of a member or process.
_Key = TypeVar("_Key", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class StreamsAssigned:
    """A member with its target until now, and what it has in fact."""

    member_id: str
    process_id: str
    before: TaskSets = NOTHING


@dataclass(slots=True)
class _MemberTasks:
    """A member while tasks are given out."""

    member_id: str
    process_id: str
    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)

    @property
    def load(self) -> int:
        return len(self.active) + len(self.standby)


class _Assignment:
    """Loads and numbers of tasks only grow while tasks are given out. So what a heap has is never more than what holds: when an entry
    comes first, it is compared with what holds now (`_settled`)."""

    def __init__(self, members: Sequence[StreamsAssigned]) -> None:
        ordered = sorted(members, key=lambda each: each.member_id)
        self.places = {each.member_id: _MemberTasks(each.member_id, each.process_id) for each in ordered}
        self.processes: dict[str, list[_MemberTasks]] = {}
        for place in self.places.values():
            self.processes.setdefault(place.process_id, []).append(place)
        #: Process -> the tasks of its members.
        self.tasks = dict.fromkeys(self.processes, 0)
        self.was_active: dict[Task, list[str]] = {}
        self.was_standby: dict[Task, list[str]] = {}
        for each in ordered:
            for task in each.before.active:
                self.was_active.setdefault(task, []).append(each.member_id)
            for task in each.before.standby | each.before.warmup:
                self.was_standby.setdefault(task, []).append(each.member_id)
        #: Task -> the processes that have it.
        self.holders: dict[Task, set[str]] = {}

    def _load_of(self, process_id: str) -> float:
        return self.tasks[process_id] / len(self.processes[process_id])

    def _members_by(self, key: Callable[[str], _Key]) -> dict[str, list[_Key]]:
        """Of each process a heap of its members."""
        heaps = {name: [key(place.member_id) for place in places] for name, places in self.processes.items()}
        for heap in heaps.values():
            heapify(heap)
        return heaps

    # --- active tasks ---

    def give_active(self, tasks: Sequence[Task]) -> Generator[None, None, None]:
        least, more = divmod(len(tasks), len(self.places))
        left = yield from self._keep_active(tasks, least, more)

        def of_member(name: str) -> tuple[int, str]:
            return len(self.places[name].active), name

        members = self._members_by(of_member)

        def of_process(process: str) -> tuple[int, float, str, str]:
            """With the member that comes next in it: the one with the fewest tasks."""
            count, name = _settled(members[process], of_member)
            return count, self._load_of(process), name, process

        processes = [of_process(process) for process in self.processes]
        heapify(processes)
        for count, task in enumerate(left, 1):
            best = _settled(processes, of_process)
            near = {self.places[name].process_id for name in self.was_standby.get(task, ())}
            best = min((each for each in map(of_process, near) if each[0] == best[0]), default=best)
            self._take_active(self.places[best[2]], task)
            if not count % _PIECE:
                yield

    def _keep_active(self, tasks: Sequence[Task], least: int, more: int) -> Generator[None, None, list[Task]]:
        """Members keep their tasks, within their shares. Returns the tasks that are left. `more` members have one more than `least`."""
        had: dict[str, list[Task]] = {}
        taken: set[Task] = set()
        for count, task in enumerate(tasks, 1):
            owners = [name for name in self.was_active.get(task, ()) if name in self.places]
            if owners:
                had.setdefault(owners[0], []).append(task)
            if not count % _PIECE:
                yield
        # Members with the most tasks have the first right to one more.
        for name, mine in sorted(had.items(), key=lambda each: (-len(each[1]), each[0])):
            share = least
            if more and len(mine) > least:
                share, more = least + 1, more - 1
            for count, task in enumerate(_spread(mine)[:share], 1):
                self._take_active(self.places[name], task)
                taken.add(task)
                if not count % _PIECE:
                    yield
        return [task for task in tasks if task not in taken]

    def _take_active(self, place: _MemberTasks, task: Task) -> None:
        place.active.add(task)
        self.tasks[place.process_id] += 1
        self.holders.setdefault(task, set()).add(place.process_id)

    # --- standby tasks ---

    def give_standby(self, tasks: Sequence[Task], replicas: int) -> Generator[None, None, None]:
        wanted = min(replicas, len(self.processes) - 1)
        if wanted <= 0:
            return
        total = sum(len(place.active) for place in self.places.values()) + wanted * len(tasks)
        limit = -(-total // len(self.places))
        missing: list[Task] = []
        for count, task in enumerate(tasks, 1):
            kept = 0
            for name in (*self.was_standby.get(task, ()), *self.was_active.get(task, ())):
                place = self.places.get(name)
                if place is None or kept == wanted or place.load >= limit or place.process_id in self.holders[task]:
                    continue
                self._take_standby(place, task)
                kept += 1
            missing += [task] * (wanted - kept)
            if not count % _PIECE:
                yield

        def of_member(name: str) -> tuple[int, str]:
            return self.places[name].load, name

        def of_process(process: str) -> tuple[float, str]:
            return self._load_of(process), process

        members = self._members_by(of_member)
        processes = [of_process(process) for process in self.processes]
        heapify(processes)
        for count, task in enumerate(missing, 1):
            held: list[tuple[float, str]] = []
            while _settled(processes, of_process)[-1] in self.holders[task]:
                held.append(heappop(processes))
            _, name = _settled(members[processes[0][-1]], of_member)
            self._take_standby(self.places[name], task)
            for each in held:
                heappush(processes, each)
            if not count % _PIECE:
                yield

    def _take_standby(self, place: _MemberTasks, task: Task) -> None:
        place.standby.add(task)
        self.tasks[place.process_id] += 1
        self.holders[task].add(place.process_id)


def _settled(heap: list[_Key], key: Callable[[str], _Key]) -> _Key:
    """The first entry, as it is now. `key`: the entry of what is named in the last place of one."""
    while (now := key(heap[0][-1])) != heap[0]:
        heapreplace(heap, now)
    return now


def tasks_of(subtopologies: Iterable[ConfiguredSubtopology], *, is_stateful: bool) -> list[Task]:
    """Tasks with or without state; neighbours are of different subtopologies."""
    return _spread(
        (each.subtopology_id, number)
        for each in subtopologies
        if each.is_stateful == is_stateful
        for number in range(each.tasks)
    )


def _spread(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (task[1], task[0]))


def assign(
    members: Sequence[StreamsAssigned], subtopologies: Sequence[ConfiguredSubtopology], standby_replicas: int
) -> Generator[None, None, Mapping[str, TaskSets]]:
    """The target of each member, by its id. Yields now and then, so that others can run."""
    if not members:
        return {}
    state = _Assignment(members)
    stateful = tasks_of(subtopologies, is_stateful=True)
    yield from state.give_active([*stateful, *tasks_of(subtopologies, is_stateful=False)])
    yield from state.give_standby(stateful, standby_replicas)
    return {name: TaskSets(frozenset(place.active), frozenset(place.standby)) for name, place in state.places.items()}
