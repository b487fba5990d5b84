"""The dynamic settings in ZooKeeper: those of topics, brokers, users and clients, read, followed and written (Kafka's layout).

A writer of an entity's settings also leaves a notification under /config/changes; every node watches that
one znode, so that its watches do not grow with the number of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafkalite.config import FLUSH_BEFORE_ACK
from kafkalite.coordination import paths
from kafkalite.coordination.config_znodes import (
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from kafkalite.coordination.coordinator import Coordinator, Create, NoNodeError, Op, SetData
from kafkalite.coordination.followed_store import FollowedStore
from kafkalite.coordination.notifications import Notifications, children_of, write_and_notify
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.model import INTERNAL_TOPICS

TOPICS = "topics"
BROKERS = "brokers"
#: Their SCRAM credentials and quotas. Names are encoded (paths.sanitize); a user's client is USER/clients/CLIENT.
USERS = "users"
CLIENTS = "clients"
#: Limits of the connections of addresses (KIP-612); names are encoded.
IPS = "ips"
#: Kafka's resources of consumer groups and of client metrics (KIP-848, KIP-714); names are encoded, too.
GROUPS = "groups"
CLIENT_METRICS = "client-metrics"
#: Levels of features that UpdateFeatures has chosen (`kafkalite.features`).
FEATURES = "features"
ENTITY_TYPES = (TOPICS, BROKERS, USERS, CLIENTS, IPS, GROUPS, CLIENT_METRICS, FEATURES)

_CHANGE_NAME = "config_change_"

#: Called with (entity type, entity name, all its settings now).
OnChange = Callable[[str, str, dict[str, str]], None]


class TopicConfigs(FollowedStore[tuple[str, str]]):
    """The settings of all topics and brokers, as of the last notification. What was read before a malformed one stays in force."""

    def __init__(self, on_change: OnChange, monotonic: Callable[[], float]) -> None:
        super().__init__(paths.CONFIG_CHANGES, [Notifications(paths.CONFIG_CHANGES, _CHANGE_NAME, monotonic)])
        self._on_change = on_change
        self._settings: dict[str, dict[str, dict[str, str]]] = {each: {} for each in ENTITY_TYPES}
        #: Topics, other than internal ones, that have set log.flush.before.ack.
        self._flushing: set[str] = set()
        #: The zxid of the last write of features that was read; -1: there was none.
        self.features_written_at = -1

    @property
    def any_flushes(self) -> bool:
        """Whether any topic, other than an internal one, has set log.flush.before.ack."""
        return bool(self._flushing)

    def topic(self, name: str) -> dict[str, str]:
        """A topic's own settings (empty if it has none)."""
        return dict(self._settings[TOPICS].get(name, {}))

    def topics(self) -> dict[str, dict[str, str]]:
        """The settings of all topics that have any."""
        return {name: dict(settings) for name, settings in self._settings[TOPICS].items() if settings}

    def broker(self, broker_id: int | None) -> dict[str, str]:
        """A broker's own dynamic settings; None asks for those of all brokers."""
        return dict(self._settings[BROKERS].get(broker_entity(broker_id), {}))

    def brokers(self) -> dict[int, dict[str, str]]:
        """The own dynamic settings of each broker that has any."""
        found = self._settings[BROKERS].items()
        return {number: dict(own) for name, own in found if (number := paths.decimal(name)) is not None}

    def user(self, name: str) -> dict[str, str]:
        """A user's own settings; `name` as people write it."""
        return dict(self._settings[USERS].get(paths.sanitize(name), {}))

    def entity(self, entity_type: str, name: str) -> dict[str, str]:
        """The settings of one group, of one subscription of client metrics, or of the features; the name is not encoded."""
        return dict(self._settings[entity_type].get(_encoded(entity_type, name), {}))

    def entities(self, entity_type: str) -> dict[str, dict[str, str]]:
        """All that have settings, by their names as people write them."""
        found = {}
        for name, held in sorted(self._settings[entity_type].items()):
            try:
                found[paths.desanitize(name)] = dict(held)
            except ValueError:  # written by hand, or the default entity
                continue
        return found

    async def _read_all(self, coordinator: Coordinator) -> None:
        parents = [f"/config/{entity_type}" for entity_type in ENTITY_TYPES]
        found = await retrying(lambda: coordinator.get_many(parents))
        for entity_type, parent, znode in zip(ENTITY_TYPES, parents, found, strict=True):
            has_any = znode is not None and znode[1].child_count > 0
            entities = await children_of(coordinator, parent) if has_any else []
            if entity_type == USERS:
                entities += await self._clients_of(coordinator, sorted(entities))
            known = self._settings[entity_type]
            await self._read_type(coordinator, entity_type, sorted({*entities, *known}))

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

    def _keys_in(self, fresh: Sequence[tuple[str, bytes]]) -> Sequence[tuple[str, str]]:
        entities: dict[tuple[str, str], None] = {}
        for path, data in fresh:
            try:
                entities[decode_config_change(data, path)] = None
            except ZnodeError as error:
                self._report(path, error.reason)
        return list(entities)

    async def _read(self, coordinator: Coordinator, keys: Sequence[tuple[str, str]]) -> None:
        by_type: dict[str, list[str]] = {}
        for entity_type, name in keys:
            by_type.setdefault(entity_type, []).append(name)
        for entity_type, names in by_type.items():
            await self._read_type(coordinator, entity_type, names)

    async def _read_type(self, coordinator: Coordinator, entity_type: str, names: Sequence[str]) -> None:
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
            if entity_type == FEATURES and znode is not None:
                self.features_written_at = max(self.features_written_at, znode[1].mzxid)
            if settings != known.get(name, {}):
                known[name] = settings
                if entity_type == TOPICS:
                    self._record_flushing(name, settings)
                self._on_change(entity_type, name, dict(settings))
            if not settings:
                known.pop(name, None)

    def _record_flushing(self, topic: str, settings: Mapping[str, str]) -> None:
        value = settings.get(FLUSH_BEFORE_ACK, "")
        if topic not in INTERNAL_TOPICS and value.strip().lower() == "true":
            self._flushing.add(topic)
        else:
            self._flushing.discard(topic)


def broker_entity(broker_id: int | None) -> str:
    """The name under which a broker's settings are kept; None: those of all brokers."""
    return paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)


def _encoded(entity_type: str, name: str) -> str:
    """The names of topics and brokers are legal in paths."""
    return name if entity_type in (TOPICS, BROKERS) or name == paths.DEFAULT_ENTITY else paths.sanitize(name)


async def read_entity(coordinator: Coordinator, entity_type: str, name: str) -> dict[str, str]:
    """As `read_config`, of an entity whose name may have to be encoded."""
    return await read_config(coordinator, entity_type, _encoded(entity_type, name))


async def write_entity(
    coordinator: Coordinator, entity_type: str, name: str, changes: Mapping[str, str | None] | Mapping[str, str]
) -> dict[str, str]:
    """As `write_config`, of an entity whose name may have to be encoded."""
    return await write_config(coordinator, entity_type, _encoded(entity_type, name), changes)


async def replace_entity(
    coordinator: Coordinator, entity_type: str, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> bool:
    """As `replace_config`, of an entity whose name may have to be encoded."""
    return await replace_config(coordinator, entity_type, _encoded(entity_type, name), before, after)


def notification(entity_type: str, entity_name: str) -> Create:
    """The operation that makes every node read this entity again: put it into the transaction that writes it."""
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
    changes: Mapping[str, str | None] | Mapping[str, str],
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
        if not await write_and_notify(coordinator, write, notification(entity_type, entity_name)):
            continue  # setting the same again is harmless
        return settings


async def replace_config(
    coordinator: Coordinator, entity_type: str, entity_name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> bool:
    """Replace all settings of an entity if they are still `before`; False: somebody else has changed them.

    The caller has checked keys and values. Raises ZnodeError if what is there cannot be read, NotSentError when ZooKeeper is away.
    """
    path = paths.config_entity(entity_type, entity_name)
    encoded = encode_config(after)
    while True:
        write: Op
        try:
            data, stat = await retrying(lambda: coordinator.get(path))
        except NoNodeError:
            held, write = {}, Create(path, encoded)
        else:
            held, write = decode_config(data, path), SetData(path, encoded, stat.version)
        if held == after:  # also after a write whose outcome was lost
            return True
        if held != before:
            return False
        if await write_and_notify(coordinator, write, notification(entity_type, entity_name)):
            return True
