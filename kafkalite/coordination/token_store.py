"""The delegation tokens in ZooKeeper: read before the node serves, followed by every node, written by any (Kafka's layout).

A node that changes a token leaves a notification with its identifier under /delegation_token/token_changes. While ZooKeeper
is away the tokens that were read last stand, each until its own end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator, Create, Delete, NoNodeError, Op, SetData
from kafkalite.coordination.followed_store import FollowedStore
from kafkalite.coordination.notifications import Notifications, children_of, write_and_notify
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.token_znodes import decode_token, encode_token
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.security.tokens import Token
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A token as it is now (None: there is none) -> what it becomes (None: it is deleted). May raise.
Change = Callable[[Token | None], Token | None]


class TokenStore(FollowedStore[str]):
    """Reports what ZooKeeper holds. Nobody logs in with a token that cannot be read.

    Args:
        on_token: called with an identifier and the token, None when there is none any more.
        known: the identifiers that were reported and not taken back.
    """

    def __init__(
        self,
        on_token: Callable[[str, Token | None], None],
        known: Callable[[], Sequence[str]],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(paths.TOKENS, [Notifications(paths.TOKEN_CHANGES, paths.TOKEN_CHANGE_NAME, monotonic)])
        self._on_token = on_token
        self._known = known

    async def _read_all(self, coordinator: Coordinator) -> None:
        found = await children_of(coordinator, paths.TOKENS)
        await self._read(coordinator, sorted({*found, *self._known()}))
        _log.info("tokens.loaded", tokens=len(found), malformed=len(self.malformed))

    def _keys_in(self, fresh: Sequence[tuple[str, bytes]]) -> Sequence[str]:
        changed = dict.fromkeys(data.decode(errors="replace") for _, data in fresh)
        return [token_id for token_id in changed if token_id and "/" not in token_id]

    async def _read(self, coordinator: Coordinator, token_ids: Sequence[str]) -> None:
        znodes = [paths.token(token_id) for token_id in token_ids]
        found = await retrying(lambda: coordinator.get_many(znodes)) if znodes else []
        for token_id, path, znode in zip(token_ids, znodes, found, strict=True):
            self.malformed.pop(path, None)
            token = None
            if znode is not None:
                try:
                    token = decode_token(znode[0], token_id)
                except ZnodeError as error:
                    self._report(path, error.reason)
            self._on_token(token_id, token)

    async def update(self, coordinator: Coordinator, token_id: str, change: Change) -> Token | None:
        """Change a token by a conditional write, and notify every node; returns what it is now.

        Raises what `change` raises, ZnodeError when what is there cannot be read, NotSentError when ZooKeeper is away.
        """
        path = paths.token(token_id)
        while True:
            before, version = None, None
            try:
                data, stat = await retrying(lambda: coordinator.get(path))
            except NoNodeError:
                pass
            else:
                before, version = decode_token(data, token_id), stat.version
            after = change(before)
            if after != before:
                notification = Create(
                    f"{paths.TOKEN_CHANGES}/{paths.TOKEN_CHANGE_NAME}", token_id.encode(), sequential=True
                )
                if not await write_and_notify(coordinator, _write(path, after, version), notification):
                    continue
            self._on_token(token_id, after)
            return after


def _write(path: str, after: Token | None, version: int | None) -> Op:
    if after is None:
        assert version is not None
        return Delete(path, version)
    return Create(path, encode_token(after)) if version is None else SetData(path, encode_token(after), version)
