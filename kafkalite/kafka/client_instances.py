"""The instances of clients whose metrics a node keeps, and how the room for them is shared. Pure.

A client chooses the id of its instance and how many series it pushes, and need not have logged in. So users have equal shares of the
room, and within one user its instances have: where the room is full, the user and the instance that have most give. A client can
push out its own metrics and those of clients that have more than itself, and nobody else's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import NamedTuple

from kafkalite.lazy_dataclass import dataclass

#: (metric, its attributes).
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class MetricsClient(NamedTuple):
    """What is known of a client; the fields' names are those of the setting `match`."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class MetricsSubscription(NamedTuple):
    """`metrics`: prefixes of names; one empty prefix: all."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class InstanceKey(NamedTuple):
    """`user`: see `security.fair_room.user_of`. The id alone is not enough: a client could give another client's."""

    user: str
    instance_id: bytes


@dataclass(slots=True, eq=False)
class Instance:
    """One instance of a client. Times are in ms of a monotonic clock; -1: never."""

    client: MetricsClient
    subscription: MetricsSubscription
    asked_ms: int = -1
    pushed_ms: int = -1
    is_over: bool = False
    may_ask: bool = True
    series: dict[SeriesKey, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _User:
    #: By id; the one that was heard of last is at the end.
    instances: OrderedDict[bytes, Instance] = field(default_factory=OrderedDict)
    series: int = 0


class ClientInstances:
    """All instances of a node.

    Args:
        most: instances of all users.
        most_series: of all instances.
    """

    def __init__(self, most: int, most_series: int) -> None:
        self._most = most
        self._most_series = most_series
        #: The one that was heard of last is at the end. None is without instances.
        self._users: OrderedDict[str, _User] = OrderedDict()
        self._count = 0
        self._series = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Instance]:
        for user in list(self._users.values()):
            yield from list(user.instances.values())

    def get(self, key: InstanceKey) -> Instance | None:
        """None: it is not known, or no longer."""
        user = self._users.get(key.user)
        return user.instances.get(key.instance_id) if user is not None else None

    def heard(self, key: InstanceKey, make: Callable[[], Instance]) -> Instance:
        """The instance that has sent something; a new one takes the place of another one if there is no room."""
        known = self.get(key)
        if known is None:
            known = make()
            while self._count >= self._most:
                self._drop_one(key.user)
            self._users.setdefault(key.user, _User()).instances[key.instance_id] = known
            self._count += 1
        self._users.move_to_end(key.user)
        self._users[key.user].instances.move_to_end(key.instance_id)
        return known

    def _drop_one(self, asker: str) -> None:
        """The instance that was silent for the longest time, of the user that has most."""
        own = self._users.get(asker)
        name, user = max(self._users.items(), key=lambda each: len(each[1].instances))
        if own is not None and len(user.instances) <= len(own.instances):
            name, user = asker, own
        _, gone = user.instances.popitem(last=False)
        self._count -= 1
        user.series -= len(gone.series)
        self._series -= len(gone.series)
        gone.series.clear()
        if not user.instances:
            del self._users[name]

    # --- series ---

    @property
    def room(self) -> int:
        """Series for which there is room."""
        return self._most_series - self._series

    def keep(self, key: InstanceKey, is_kept: Callable[[SeriesKey], bool]) -> None:
        """Forget the instance's other series."""
        instance = self.get(key)
        if instance is not None:
            self._keep(self._users[key.user], instance, is_kept)

    def forget_all(self, is_meant: Callable[[Instance], bool]) -> None:
        """Forget the series of these instances."""
        for user in self._users.values():
            for instance in user.instances.values():
                if instance.series and is_meant(instance):
                    self._keep(user, instance, lambda key: False)

    def _keep(self, user: _User, instance: Instance, is_kept: Callable[[SeriesKey], bool]) -> None:
        left = {key: number for key, number in instance.series.items() if is_kept(key)}
        gone = len(instance.series) - len(left)
        user.series -= gone
        self._series -= gone
        instance.series = left

    def make_room(self, key: InstanceKey, wanted: int) -> None:
        """Make room for this number of further series of the instance, as far as others have more than it."""
        user = self._users[key.user]
        instance = user.instances[key.instance_id]
        gained = min(self.room, wanted)
        missing = wanted - gained
        while missing > 0:
            donor = max(self._users.values(), key=lambda each: each.series)
            surplus = donor.series - user.series - gained
            if surplus < 2:  # its user has its share: the instance's share of that counts
                donor = user
            giver = max(donor.instances.values(), key=lambda each: len(each.series))
            if donor is user:
                surplus = len(giver.series) - len(instance.series) - gained
            count = min(missing, surplus // 2, len(giver.series))
            if count <= 0:
                return
            for _ in range(count):
                giver.series.popitem()
            donor.series -= count
            self._series -= count
            gained += count
            missing -= count

    def put(self, key: InstanceKey, series: SeriesKey, value: float) -> bool:
        """Set a number. False: there is no room for another series."""
        user = self._users[key.user]
        instance = user.instances[key.instance_id]
        if series not in instance.series:
            if self._series >= self._most_series:
                return False
            user.series += 1
            self._series += 1
        instance.series[series] = value
        return True
