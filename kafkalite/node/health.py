"""What this node can see to be wrong, and what it remembers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalite.config import BrokerConfig
from kafkalite.env.loop_times import SHOWN_FROM_S, LoopTimes
from kafkalite.env.shared import Shared
from kafkalite.env.turns import result_of
from kafkalite.extension.messages.watching import HealthProblem, HistoryEvent
from kafkalite.security.posture import posture
from kafkalite.telemetry.history import History

#: What a part of the node can see to be wrong now.
Problems = Callable[[], Iterable[HealthProblem]]


class InSteps(NamedTuple):
    """A part that looks at every partition."""

    problems: Callable[[], Generator[None, None, Iterable[HealthProblem]]]


class Malformed(Protocol):
    """What is read from ZooKeeper and may be malformed there: path -> reason."""

    @property
    def malformed(self) -> Mapping[str, str]: ...


class NodeHealth:
    """Asks every part, in this order. `of_subjects`: problems of these, also those that a part would only count. `load`: has what they
    read in memory, so that they do not hold the loop."""

    def __init__(
        self,
        parts: Sequence[Problems | InSteps],
        of_subjects: Callable[[Collection[str]], Iterable[HealthProblem]],
        histories: Sequence[History],
        load: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._parts = parts
        self._of_subjects = of_subjects
        self._histories = histories
        self._load = load
        #: Anybody may ask, and each look is at all partitions.
        self._looks = Shared(self._look)

    async def ask(self, subjects: Collection[str] = ()) -> tuple[HealthProblem, ...]:
        """What this node can see to be wrong. `subjects`: see HealthRequest."""
        found = await self._looks.result()
        listed = {(each.what, each.subject) for each in found}
        return (*found, *(each for each in self._of_subjects(subjects) if (each.what, each.subject) not in listed))

    async def _look(self) -> tuple[HealthProblem, ...]:
        if self._load is not None:
            await self._load()
        return await result_of(self.problems())

    def problems(self) -> Generator[None, None, tuple[HealthProblem, ...]]:
        """What every part says. In steps."""
        found: list[HealthProblem] = []
        for part in self._parts:
            if isinstance(part, InSteps):
                found += yield from part.problems()
            else:
                found += part()
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
    detail = f"{longest.culprit} held the event loop for {longest.seconds * 1000:.0f} ms; everybody else waited"
    yield HealthProblem("loop.held", longest.at_ms, detail)


def malformed(read: Sequence[Malformed], unusable: Mapping[str, str]) -> Iterable[HealthProblem]:
    """Znodes that cannot be used. `unusable`: path of settings -> which of them."""
    paths = {path: reason for each in read for path, reason in each.malformed.items()}
    for path, reason in sorted({**paths, **unusable}.items()):
        yield HealthProblem("znode.malformed", 0, reason, path)
