"""Watches on the data of topics' znodes: a partition that is added by writing one is seen at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalite.controller.decisions.state import Topic
from kafkalite.controller.storage import Storage
from kafkalite.coordination.coordinator import Watch

#: Armed in one turn of the controller.
AT_ONCE = 200


class TopicWatches:
    """One watch for each topic, set when there is nothing more urgent.

    Args:
        wake: called when there is something to arm.
    """

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        self._storage = storage
        self._wake = wake
        #: Topics whose watch is to be armed.
        self._due: dict[str, None] = {}
        #: Topics that have been looked at -> the transaction that made their znodes.
        self._made: dict[str, int] = {}
        #: The same object each time it is armed, so that arming twice does not make it two.
        self._watches: dict[str, Watch] = {}

    @property
    def is_due(self) -> bool:
        return bool(self._due)

    def watches(self) -> Iterable[Watch]:
        """All that may be armed."""
        return self._watches.values()

    def follow(self, topics: Iterable[str]) -> None:
        """All topics as just read: new ones will be watched."""
        self._due.update((name, None) for name in topics if name not in self._made)

    async def arm(self, topics: Mapping[str, Topic]) -> set[str]:
        """Set some watches; returns the topics whose znode differs from `topics`."""
        names = list(self._due)[:AT_ONCE]
        for name in names:
            del self._due[name]
        for name in [name for name in names if name not in topics]:
            self._made.pop(name, None)
            self._watches.pop(name, None)
        found = await self._storage.watch_topics([name for name in names if name in topics], self._watch)
        stale: set[str] = set()
        for name, stat in found.items():
            made = self._made.pop(name, None)
            if stat is not None:  # else the watch on its parent fires
                self._made[name] = stat.czxid
                if stat.version != topics[name].version or made not in (None, stat.czxid):
                    stale.add(name)
        return stale

    def _watch(self, name: str) -> Watch:
        def touched() -> None:
            self._due[name] = None
            self._wake()

        return self._watches.setdefault(name, touched)
