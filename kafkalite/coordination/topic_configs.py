"""The dynamic settings in ZooKeeper: those of topics, brokers, users and clients, read, followed and written (Kafka's layout).

Whoever changes the settings of an entity also leaves a notification under /config/changes; every node watches that
one znode, so that its watches do not grow with the number of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    Create,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    Op,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    SetData,
)
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.znodes import (
    ZnodeError,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

TOPICS = "topics"
BROKERS = "brokers"
#: Their SCRAM credentials and quotas. Names are encoded (paths.sanitize); a user's client is USER/clients/CLIENT.
USERS = "users"
CLIENTS = "clients"
ENTITY_TYPES = (TOPICS, BROKERS, USERS, CLIENTS)

#: A notification that every live node has long seen is removed by whoever finds it (Kafka's 15 minutes).
_NOTIFICATION_LIFE_MS = 15 * 60 * 1000
_CHANGE_NAME = "config_change_"

#: Called with (entity type, entity name, all its settings now).
OnChange = Callable[[str, str, dict[str, str]], None]


class TopicConfigs:
    """The settings of all topics and brokers, as of the last notification.

    `load` in every new session, before the node serves; then `follow` as a task of that session.
    """

    def __init__(self, on_change: OnChange, wall_ms: Callable[[], int]) -> None:
        self._on_change = on_change
        self._wall_ms = wall_ms
        self._settings: dict[str, dict[str, dict[str, str]]] = {each: {} for each in ENTITY_TYPES}
        self._last_change = -1
        #: Path -> what is wrong there; the settings read before stay in force. For `admin health`.
        self.malformed: dict[str, str] = {}

    def topic(self, name: str) -> dict[str, str]:
        """A topic's own settings (empty if it has none)."""
        return dict(self._settings[TOPICS].get(name, {}))

    def topics(self) -> dict[str, dict[str, str]]:
        """The settings of all topics that have any."""
        return {name: dict(settings) for name, settings in self._settings[TOPICS].items() if settings}

    def broker(self, broker_id: int | None) -> dict[str, str]:
        """A broker's own dynamic settings; None asks for those of all brokers."""
        name = paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)
        return dict(self._settings[BROKERS].get(name, {}))

    def user(self, name: str) -> dict[str, str]:
        """A user's own settings; `name` as people write it."""
        return dict(self._settings[USERS].get(paths.sanitize(name), {}))

    async def load(self, coordinator: Coordinator) -> None:
        """Read everything; tells what differs from before. Raises SessionExpiredError."""
        names = await self._children(coordinator, paths.CONFIG_CHANGES, None)
        # What is notified from here on is read again by `follow`.
        self._last_change = max((number for number, _ in _changes(names)), default=-1)
        parents = [f"/config/{entity_type}" for entity_type in ENTITY_TYPES]
        found = await retrying(lambda: coordinator.get_many(parents))
        for entity_type, parent, znode in zip(ENTITY_TYPES, parents, found, strict=True):
            has_any = znode is not None and znode[1].child_count > 0
            entities = await self._children(coordinator, parent, None) if has_any else []
            if entity_type == USERS:
                entities += await self._clients_of(coordinator, sorted(entities))
            known = self._settings[entity_type]
            await self._read(coordinator, entity_type, sorted({*entities, *known}))

    async def _clients_of(self, coordinator: Coordinator, users: Sequence[str]) -> list[str]:
        found: list[str] = []
        for user in users:
            try:
                names, _ = await retrying(
                    lambda user=user: coordinator.children(f"{paths.CONFIG_USERS}/{user}/{CLIENTS}")  # type: ignore[misc]
                )
            except NoNodeError:
                continue
            found += [f"{user}/{CLIENTS}/{name}" for name in names]
        return found

    async def follow(self, coordinator: Coordinator) -> None:
        """Apply notifications until the session ends."""
        woken = asyncio.Event()
        coordinator.on_state(lambda state: woken.set() if state is SessionState.EXPIRED else None)
        try:
            while coordinator.state is not SessionState.EXPIRED:
                woken.clear()
                names = await self._children(coordinator, paths.CONFIG_CHANGES, woken.set)
                await self._apply(coordinator, _changes(names))
                await woken.wait()
        except SessionExpiredError:
            return

    async def fetch_topic(self, coordinator: Coordinator, name: str) -> dict[str, str]:
        """A topic's settings, read now (for a topic just created, before its notification has come)."""
        await self._read(coordinator, TOPICS, [name])
        return self.topic(name)

    async def _apply(self, coordinator: Coordinator, changes: Sequence[tuple[int, str]]) -> None:
        entities: dict[tuple[str, str], None] = {}
        expired: list[str] = []
        found = await retrying(lambda: coordinator.get_many([path for _, path in changes]))
        for (number, path), change in zip(changes, found, strict=True):
            if change is None:
                continue
            data, stat = change
            if stat.ctime_ms < self._wall_ms() - _NOTIFICATION_LIFE_MS:
                expired.append(path)
            if number <= self._last_change:
                continue
            try:
                entities[decode_config_change(data, path)] = None
            except ZnodeError as error:
                self._report(path, error.reason)
        for entity_type, name in entities:
            await self._read(coordinator, entity_type, [name])
        self._last_change = max((number for number, _ in changes), default=self._last_change)
        for path in expired:
            self.malformed.pop(path, None)
            try:
                await coordinator.delete(path)
            except (NoNodeError, NotSentError, OutcomeUnknownError):
                continue  # somebody else's turn

    async def _read(self, coordinator: Coordinator, entity_type: str, names: Sequence[str]) -> None:
        entity_paths = [paths.config_entity(entity_type, name) for name in names]
        found = await retrying(lambda: coordinator.get_many(entity_paths))
        known = self._settings.setdefault(entity_type, {})
        for name, path, znode in zip(names, entity_paths, found, strict=True):
            try:
                settings = {} if znode is None else decode_config(znode[0], path)
            except ZnodeError as error:
                self._report(path, error.reason)
                continue
            self.malformed.pop(path, None)
            if settings != known.get(name, {}):
                known[name] = settings
                self._on_change(entity_type, name, dict(settings))
            if not settings:
                known.pop(name, None)

    def _report(self, path: str, reason: str) -> None:
        if self.malformed.get(path) != reason:
            self.malformed[path] = reason
            _log.error("znode.malformed", path=path, reason=reason)

    async def _children(self, coordinator: Coordinator, path: str, watch: Callable[[], None] | None) -> list[str]:
        while True:
            try:
                names, _ = await retrying(lambda: coordinator.children(path, watch))
                return names
            except NoNodeError:
                await retrying(lambda: coordinator.ensure_path(path))


def _changes(names: Sequence[str]) -> list[tuple[int, str]]:
    """(number, path) of the notifications, oldest first; other names are skipped."""
    changes: list[tuple[int, str]] = []
    for name in names:
        digits = name.removeprefix(_CHANGE_NAME)
        if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 10:
            changes.append((int(digits), f"{paths.CONFIG_CHANGES}/{name}"))
    return sorted(changes)


def notification(entity_type: str, entity_name: str) -> Op:
    """The operation that tells every node to read this entity again: put it into the transaction that writes it."""
    return Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity_type, entity_name), sequential=True)


async def read_config(coordinator: Coordinator, entity_type: str, entity_name: str) -> dict[str, str]:
    """An entity's settings as they are in ZooKeeper now. Raises ZnodeError."""
    path = paths.config_entity(entity_type, entity_name)
    try:
        data, _ = await retrying(lambda: coordinator.get(path))
    except NoNodeError:
        return {}
    return decode_config(data, path)


async def write_config(
    coordinator: Coordinator,
    entity_type: str,
    entity_name: str,
    changes: Mapping[str, str | None],
    *,
    replace: bool = False,
) -> dict[str, str]:
    """Set keys, and delete those whose value is None; with `replace` all other keys go too. Returns the new settings.

    The caller has checked keys and values. Raises ZnodeError if what is there cannot be read (unless `replace`),
    NotSentError when ZooKeeper is away.
    """
    path = paths.config_entity(entity_type, entity_name)
    while True:
        settings: dict[str, str] = {}
        write: Op
        try:
            data, stat = await retrying(lambda: coordinator.get(path))
        except NoNodeError:
            version = None
        else:
            version = stat.version
            if not replace:
                settings = decode_config(data, path)
        for key, value in changes.items():
            settings.pop(key, None)
            if value is not None:
                settings[key] = value
        encoded = encode_config(settings)
        write = Create(path, encoded) if version is None else SetData(path, encoded, version)
        try:
            await coordinator.multi([write, notification(entity_type, entity_name)])
        except OutcomeUnknownError:
            continue  # setting the same again is harmless
        except MultiFailedError as failed:
            if failed.index == 1 or not _is_race(failed.error):
                raise
            if version is None and isinstance(failed.error, NoNodeError):
                await coordinator.ensure_path(paths.parent(path))
            continue
        return settings


def _is_race(error: CoordinatorError) -> bool:
    return isinstance(error, BadVersionError | NodeExistsError | NoNodeError)
