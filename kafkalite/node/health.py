"""What this node can see to be wrong, and what it remembers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kafkalite.config import BrokerConfig
from kafkalite.env.loop_times import SHOWN_FROM_S, LoopTimes
from kafkalite.extension.messages.watching import HealthProblem, HistoryEvent
from kafkalite.security.posture import posture
from kafkalite.telemetry.history import History

#: What a part of the node can see to be wrong now.
Problems = Callable[[], Iterable[HealthProblem]]


class Malformed(Protocol):
    """What is read from ZooKeeper and may be malformed there: path -> reason."""

    @property
    def malformed(self) -> Mapping[str, str]: ...


class NodeHealth:
    """Asks every part, in this order. `of_subjects`: problems of these, also those that a part would only count. `load`: has what they
    read in memory."""

    def __init__(
        self,
        parts: Sequence[Problems],
        of_subjects: Callable[[Collection[str]], Iterable[HealthProblem]],
        histories: Sequence[History],
        load: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._parts = parts
        self._of_subjects = of_subjects
        self._histories = histories
        self._load = load

    async def load(self) -> None:
        """To be called before `problems`, which may hold the loop without it."""
        if self._load is not None:
            await self._load()

    def problems(self, subjects: Collection[str] = ()) -> tuple[HealthProblem, ...]:
        """What this node can see to be wrong. `subjects`: see HealthRequest."""
        found = [problem for part in self._parts for problem in part()]
        listed = {(each.what, each.subject) for each in found}
        found += [each for each in self._of_subjects(subjects) if (each.what, each.subject) not in listed]
        return tuple(found)

    def history(self, subjects: Sequence[str]) -> list[HistoryEvent]:
        """What this node remembers of these subjects (see HistoryRequest), the oldest first."""
        events = [
            HistoryEvent(subject, event.at_ms, event.what, event.detail, event.is_earlier)
            for subject in subjects
            for history in self._histories
            for event in history.of(subject)
        ]
        return sorted(events, key=lambda event: event.at_ms)


def open_listeners(config: BrokerConfig, started_ms: int) -> Problems:
    """Listeners that ask for nothing. They do not change while the node runs."""
    found = [HealthProblem("listener.open", started_ms, each.detail, each.name) for each in posture(config).exposures]
    return lambda: found


def held(times: LoopTimes) -> Iterable[HealthProblem]:
    """Whether something has held the event loop for long in the last minutes."""
    longest = times.longest()
    if longest is None or longest.seconds < SHOWN_FROM_S:
        return
    who = f" of client.id {longest.client_id!r} ({longest.principal})" if longest.client_id else ""
    detail = f"{longest.cause}{who} held the event loop for {longest.seconds * 1000:.0f} ms; everybody else waited"
    yield HealthProblem("loop.held", longest.at_ms, detail)


def malformed(read: Sequence[Malformed], unusable: Mapping[str, str]) -> Iterable[HealthProblem]:
    """Znodes that cannot be used. `unusable`: path of settings -> which of them."""
    paths = {path: reason for each in read for path, reason in each.malformed.items()}
    for path, reason in sorted({**paths, **unusable}.items()):
        yield HealthProblem("znode.malformed", 0, reason, path)
