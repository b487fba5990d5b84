"""Who may do what, and how fast: the node's rules and quotas, kept equal to ZooKeeper's, and changed on behalf of admins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.coordination import paths
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError
from kafkalite.coordination.topic_configs import CLIENTS, IPS, USERS, write_config
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.seams import Clock
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.security.access import Access, Subject
from kafkalite.security.acl import AclEntry, Binding, Filter, Pattern
from kafkalite.security.acl_rules import Entries
from kafkalite.security.authorizer import Authorizer, parse_super_users
from kafkalite.security.connection_limits import ConnectionLimits, parse_overrides
from kafkalite.security.principal import Principal
from kafkalite.security.quotas import DEFAULT, Entity, Quotas, limit_text, parse_limit
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Connections that nodes at one address may have to another node.
_LEAST_FOR_NODES = 100

#: Patterns or bindings that are examined in one turn of the loop.
_AT_ONCE = 200


class AclManager:
    """One per node.

    Attributes:
        access: what both listeners ask.
        quotas: likewise.
        malformed: path -> what is wrong with what was read from it; for `admin health`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        session: Callable[[], Awaitable[Coordinator]],
        nodes: Iterable[Principal] = (),
    ) -> None:
        """`nodes`: who the cluster's nodes are, where they prove it. Raises ConfigError."""
        try:
            super_users = parse_super_users(config.super_users)
        except ValueError as error:
            raise ConfigError(f"super.users: {error}") from None
        try:
            self._overrides = parse_overrides(config.max_connections_per_ip_overrides)
        except ValueError as error:
            raise ConfigError(f"max.connections.per.ip.overrides: {error}") from None
        self._config = config
        self._monotonic = clock.monotonic
        self._session = session
        self.store: AclStore | None = None
        authorizer = None
        if config.authorizer_enabled:
            authorizer = Authorizer(
                super_users,
                allow_if_none=config.allow_everyone_if_no_acl_found,
                nodes=frozenset(map(str, nodes)),
            )
            self.store = AclStore(authorizer, clock.monotonic)
        self.access = Access(authorizer, clock.monotonic)
        self.quotas = Quotas(
            config.quota_window_num,
            config.quota_window_size_seconds,
            float(config.controller_quota_window_num * config.controller_quota_window_size_seconds),
        )
        self._bad_quotas: dict[str, str] = {}
        #: Of each listener.
        self._connection_limits: list[ConnectionLimits] = []

    def connection_limits(
        self, rate_of_all: Callable[[], float] = lambda: 0.0, *, is_for_nodes: bool = False
    ) -> ConnectionLimits:
        """For one listener. `is_for_nodes`: no quota of addresses and no low limit counts there, or one for all would part the nodes."""
        made = ConnectionLimits(
            self._config.max_connections_per_ip,
            self._overrides,
            least=_LEAST_FOR_NODES if is_for_nodes else 0,
            rate=self._config.max_connection_creation_rate_per_ip,
            rate_of=(lambda host: None) if is_for_nodes else self.quotas.connection_rate,
            rate_of_all=rate_of_all,
            now=self._monotonic,
        )
        self._connection_limits.append(made)
        return made

    def reconfigured(self, config: BrokerConfig) -> None:
        """The node's settings have changed: its listeners take the numbers of connections that they allow now."""
        for each in self._connection_limits:
            each.change(config.max_connections_per_ip, config.max_connection_creation_rate_per_ip)

    @property
    def malformed(self) -> dict[str, str]:
        acls = self.store.malformed if self.store is not None else {}
        return {**acls, **self._bad_quotas}

    async def load(self, coordinator: Coordinator) -> None:
        """The rules, before the listeners answer and in every new session. Raises SessionExpiredError."""
        if self.store is not None:
            await self.store.load(coordinator)

    async def follow(self, coordinator: Coordinator) -> None:
        """A session's task."""
        if self.store is not None:
            await self.store.follow(coordinator)

    async def catch_up(self, coordinator: Coordinator) -> None:
        """Know every change of ACLs that was finished before this call. Raises SessionExpiredError."""
        if self.store is not None:
            await self.store.catch_up(coordinator)

    # --- ACLs ---

    def describe_acls(self, wanted: Filter) -> Iterator[tuple[Pattern, list[AclEntry]]]:
        """The patterns that the filter means, in order, each with its entries that match, which may be none. There may be a
        hundred thousand: a caller on the loop takes some at a time. Raises ApiError SECURITY_DISABLED.
        """
        return self._authorizer().matching(wanted)

    async def create_acls(self, subject: Subject, bindings: Sequence[Binding]) -> list[ApiError | None]:
        """Add each; what is there already stays. The errors are by position. Raises ApiError SECURITY_DISABLED."""
        self._authorizer()
        results: list[ApiError | None] = []
        wanted: dict[Pattern, dict[AclEntry, None]] = {}
        positions: dict[Pattern, list[int]] = {}
        for position, binding in enumerate(bindings):
            problem = binding.problem()
            results.append(None if problem is None else api_error(ErrorCode.INVALID_REQUEST, problem))
            if problem is None:
                wanted.setdefault(binding.pattern, {})[binding.entry] = None
                positions.setdefault(binding.pattern, []).append(position)
            if position % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        for pattern, entries in wanted.items():

            def add(before: Entries, entries: Iterable[AclEntry] = entries) -> Entries:
                return before.union(entries)

            try:
                before, after = await self._update(pattern, add)
            except ApiError as error:
                for position in positions[pattern]:
                    results[position] = error
                continue
            for entry in sorted(after - before):
                self._log_change(subject, "acl.created", Binding(pattern, entry))
        return results

    async def delete_acls(self, subject: Subject, filters: Sequence[Filter]) -> list[list[Binding] | ApiError]:
        """Remove what each filter matches; returns what was removed, by filter. Raises ApiError.

        What another node has acknowledged before is among it, although its notification may not have come yet: an
        administrator who removes a permission must not get the answer that there was none.
        """
        self._authorizer()
        try:
            await self.catch_up(await self._session())
        except CoordinatorError as error:
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        results: list[list[Binding] | ApiError] = []
        for wanted in filters:
            if wanted.is_unknown():
                results.append(api_error(ErrorCode.INVALID_REQUEST, "a filter of an unknown kind"))
                continue
            removed: list[Binding] = []
            try:
                for pattern in await self._affected(wanted):

                    def keep(before: Entries, wanted: Filter = wanted) -> list[AclEntry]:
                        return [entry for entry in before if not wanted.matches_entry(entry)]

                    before, after = await self._update(pattern, keep)
                    removed += [Binding(pattern, entry) for entry in sorted(before - after)]
            except ApiError as error:
                results.append(error)
            else:
                results.append(removed)
            for binding in removed:
                self._log_change(subject, "acl.deleted", binding)
        return results

    async def _affected(self, wanted: Filter) -> list[Pattern]:
        """Patterns with an entry that the filter matches, and those whose entries cannot be read."""
        authorizer = self._authorizer()
        found = [pattern for pattern in authorizer.patterns(wanted) if not authorizer.is_readable(pattern)]
        for number, (pattern, entries) in enumerate(authorizer.matching(wanted)):
            if entries:
                found.append(pattern)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return found

    def _authorizer(self) -> Authorizer:
        if self.access.authorizer is None:
            raise api_error(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
        return self.access.authorizer

    async def _update(
        self, pattern: Pattern, change: Callable[[Entries], Entries | list[AclEntry]]
    ) -> tuple[Entries, Entries]:
        assert self.store is not None
        try:
            return await self.store.update(await self._session(), pattern, change)
        except (CoordinatorError, ZnodeError) as error:
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None

    def _log_change(self, subject: Subject, what: str, binding: Binding) -> None:
        pattern, entry = binding.pattern, binding.entry
        self.access.changed(
            subject,
            what,
            resource=pattern.resource_type.name,
            name=pattern.name,
            pattern=pattern.pattern_type.name,
            who=entry.principal,
            where=entry.host,
            operation=entry.operation.name,
            permission=entry.permission.name,
        )

    # --- quotas ---

    def config_changed(self, entity_type: str, name: str, settings: Mapping[str, str]) -> None:
        """The settings of a user or client, as read from ZooKeeper; keys that are no quota are somebody else's."""
        path = paths.config_entity(entity_type, name)
        self._bad_quotas.pop(path, None)
        try:
            entity = _entity(entity_type, name)
        except ValueError as error:
            self._report(path, str(error))
            return
        limits: dict[str, float] = {}
        for key, text in settings.items():
            if key in entity.keys:
                try:
                    limits[key] = parse_limit(key, text)
                except ValueError as error:
                    self._report(path, str(error))
        self.quotas.put(entity, limits)

    def _report(self, path: str, reason: str) -> None:
        self._bad_quotas[path] = reason
        _log.error("quota.malformed", path=path, reason=reason)

    async def alter_quotas(
        self, subject: Subject, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set limits, and remove those whose value is None. Raises ApiError."""
        texts: dict[str, str | None] = {}
        for key, value in changes.items():
            if key not in entity.keys:
                if value is None:
                    continue  # as with Kafka: what is not there can be removed
                raise api_error(ErrorCode.INVALID_REQUEST, f"{key!r} is not one of {', '.join(entity.keys)}")
            try:
                texts[key] = None if value is None else limit_text(key, value)
                if value is not None and parse_limit(key, str(value)) != value:
                    raise ValueError(f"{key}: {value!r}")
            except (ValueError, OverflowError) as error:
                raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
        if validate_only:
            return
        entity_type, name = _znode(entity)
        try:
            settings = await write_config(await self._session(), entity_type, name, texts)
        except (CoordinatorError, ZnodeError) as error:
            raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        self.config_changed(entity_type, name, settings)
        self.access.changed(subject, "quota.changed", entity=f"{entity_type}/{name}", **texts)


def _znode(entity: Entity) -> tuple[str, str]:
    """Where an entity's limits are: (type, name)."""
    if entity.ip is not None:
        return IPS, _name(entity.ip)
    user, client = _name(entity.user), _name(entity.client_id)
    if entity.user is None:
        return CLIENTS, client
    return USERS, user if entity.client_id is None else f"{user}/{CLIENTS}/{client}"


def _name(name: str | None) -> str:
    return paths.DEFAULT_ENTITY if name == DEFAULT else paths.sanitize(name or "")


def _entity(entity_type: str, name: str) -> Entity:
    """Raises ValueError."""

    def plain(part: str) -> str:
        return DEFAULT if part == paths.DEFAULT_ENTITY else paths.desanitize(part)

    if entity_type == IPS:
        return Entity(ip=plain(name))
    if entity_type == CLIENTS:
        return Entity(None, plain(name))
    user, nested, client = name.partition(f"/{CLIENTS}/")
    return Entity(plain(user), plain(client) if nested else None)
