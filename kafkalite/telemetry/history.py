"""What happened to each partition, as this node saw it: the last few events, in memory, for `admin why`.

What outlives the process is node.history_file's business."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_TOPIC_ID, TopicId

#: Of one partition.
MAX_EVENTS = 24
#: Partitions remembered; those that nothing has happened to for longest are forgotten first.
MAX_SUBJECTS = 20_000


@dataclass(frozen=True, slots=True)
class Event:
    """`at_ms` wall time; `what` a stable noun.verb, as in the logs; `detail` for people; `is_earlier`: before this process.

    `topic_id`: of the topic that the partition was of; NO_TOPIC_ID if that is not known, or the subject is none.
    """

    at_ms: int
    what: str
    detail: str
    is_earlier: bool = False
    topic_id: TopicId = NO_TOPIC_ID


class History:
    """Topic-partition (as text) -> its last events. Two bounds: events of one partition, and partitions.

    Args:
        wall_ms: the time of an event.
    """

    def __init__(
        self, wall_ms: Callable[[], int], *, max_events: int = MAX_EVENTS, max_subjects: int = MAX_SUBJECTS
    ) -> None:
        self._wall_ms = wall_ms
        self._max_events = max_events
        self._max_subjects = max_subjects
        self._events: OrderedDict[str, Event | deque[Event]] = OrderedDict()
        #: The id of the topic that a subject is of now, to be set by the node: a topic that is created again has another one.
        self.topic_id_of: Callable[[str], TopicId] = lambda subject: NO_TOPIC_ID
        #: Called for each event; may be added later.
        self.listeners: list[Callable[[str, Event], None]] = []

    def record(self, subject: str, what: str, detail: str = "", *, topic_id: TopicId = NO_TOPIC_ID) -> None:
        """Remember one event. `topic_id`: of a partition's topic."""
        event = Event(self._wall_ms(), what, detail, topic_id=topic_id)
        self._add(subject, event)
        for listener in self.listeners:
            listener(subject, event)

    def recall(self, events: Iterable[tuple[str, Event]]) -> None:
        """Put what was known before, oldest first, below what has happened since; the bounds hold for both together."""
        present, self._events = self._events, OrderedDict()
        for subject, event in events:
            self._add(subject, event)
        for subject, known in present.items():
            for event in (known,) if isinstance(known, Event) else known:
                self._add(subject, event)

    def _add(self, subject: str, event: Event) -> None:
        known = self._events.get(subject)
        if known is None:
            self._events[subject] = event  # most partitions have one event: it needs no deque
            if len(self._events) > self._max_subjects:
                self._events.popitem(last=False)
            return
        if isinstance(known, Event):
            known = self._events[subject] = deque([known], self._max_events)
        known.append(event)
        self._events.move_to_end(subject)

    def of(self, subject: str) -> tuple[Event, ...]:
        """What is remembered of it, the oldest first; nothing of an earlier topic of the same name."""
        known = self._events.get(subject, ())
        events = (known,) if isinstance(known, Event) else tuple(known)
        present = self.topic_id_of(subject)
        if present == NO_TOPIC_ID:
            return events
        return tuple(event for event in events if event.topic_id in (present, NO_TOPIC_ID))

    def __len__(self) -> int:
        return len(self._events)


def merged(seen: Mapping[int, Iterable[Event]]) -> list[tuple[int, Event]]:
    """(broker, event) of several nodes, by time: their clocks are their own, so close events may stand crossed."""
    rows = [(broker, event) for broker in sorted(seen) for event in seen[broker]]
    return sorted(rows, key=lambda row: row[1].at_ms)
