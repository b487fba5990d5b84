"""The SCRAM credentials of users in ZooKeeper: /config/users/NAME, as Kafka keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from kafkalite.coordination import paths
from kafkalite.coordination.config_znodes import decode_config
from kafkalite.coordination.coordinator import Coordinator, NoNodeError
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.topic_configs import USERS, write_config
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.security.scram import MECHANISMS, ScramCredential
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Credentials that are kept as they are used; others are parsed again.
_PARSED = 1000


async def list_users(coordinator: Coordinator, names: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """User -> mechanism -> iterations, of these users (None: all) that have credentials. Raises CoordinatorError."""
    if names is None:
        try:
            encoded, _ = await retrying(lambda: coordinator.children(paths.CONFIG_USERS))
        except NoNodeError:
            return {}
    else:
        encoded = [paths.sanitize(name) for name in names]
    where = [paths.config_entity(USERS, name) for name in encoded]
    znodes = await retrying(lambda: coordinator.get_many(where))
    found: dict[str, dict[str, int]] = {}
    async for name, path, znode in with_pauses(zip(encoded, where, znodes, strict=True)):
        try:
            settings = {} if znode is None else decode_config(znode[0], path)
            mechanisms = {
                mechanism: ScramCredential.parse(mechanism, settings[mechanism]).iterations
                for mechanism in MECHANISMS
                if mechanism in settings
            }
            if mechanisms:
                found[paths.desanitize(name)] = mechanisms
        except (ZnodeError, ValueError) as error:
            _log.error("znode.malformed", path=path, reason=str(error))
    return found


async def alter_user(coordinator: Coordinator, name: str, changes: Mapping[str, str | None]) -> None:
    """Set credentials (mechanism -> text), delete where None; every node hears of it. Raises CoordinatorError, ZnodeError."""
    await write_config(coordinator, USERS, paths.sanitize(name), changes)


@lru_cache(maxsize=_PARSED)
def _parsed(mechanism: str, text: str) -> ScramCredential:
    """Raises ValueError. Kept, so that a login of a user that exists takes no longer than one of a user that does not."""
    return ScramCredential.parse(mechanism, text)


def credential(settings: Mapping[str, str], mechanism: str) -> ScramCredential | None:
    """A user's credential for this mechanism; None if there is none that can be used."""
    text = settings.get(mechanism)
    try:
        return _parsed(mechanism, text) if text is not None else None
    except ValueError as error:
        _log.error("users.malformed", mechanism=mechanism, reason=str(error))
        return None
