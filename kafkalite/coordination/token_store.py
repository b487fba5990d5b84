"""The delegation tokens in ZooKeeper: read before the node serves, followed by every node, written by any (Kafka's layout).

A node that changes a token leaves a notification with its identifier under /delegation_token/token_changes. While ZooKeeper
is away the tokens that were read last stand, each until its own end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator, Create, Delete, NoNodeError, Op, SetData
from kafkalite.coordination.notifications import Notifications, children_of, follow, write_and_notify
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.token_znodes import decode_token, encode_token
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.security.tokens import Token
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A token as it is now (None: there is none) -> what it becomes (None: it is deleted). May raise.
Change = Callable[[Token | None], Token | None]


class TokenStore:
    """Reports what ZooKeeper holds.

    `load` in every new session, before the node serves; then `follow` as a task of that session.

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
        self._on_token = on_token
        self._known = known
        self._notifications = Notifications(paths.TOKEN_CHANGES, paths.TOKEN_CHANGE_NAME, monotonic)
        #: One reads at a time: of two that overlap, the later one could report what it has read earlier.
        self._reading = asyncio.Lock()
        #: Path -> what is wrong there. Nobody logs in with a token that cannot be read.
        self.malformed: dict[str, str] = {}

    async def load(self, coordinator: Coordinator) -> None:
        """Read everything. Raises SessionExpiredError."""
        async with self._reading:
            await self._load(coordinator)

    async def _load(self, coordinator: Coordinator) -> None:
        await self._notifications.begin(coordinator)
        found = await children_of(coordinator, paths.TOKENS)
        await self._read(coordinator, sorted({*found, *self._known()}))
        _log.info("tokens.loaded", tokens=len(found), malformed=len(self.malformed))

    async def follow(self, coordinator: Coordinator) -> None:
        """Apply notifications until the session ends."""
        await follow(coordinator, lambda watch: self._apply_changes(coordinator, watch))

    async def catch_up(self, coordinator: Coordinator) -> None:
        """Know every change that was finished before this call, on whatever node. Raises SessionExpiredError."""
        await retrying(lambda: coordinator.sync(paths.TOKENS))
        await self._apply_changes(coordinator, None)

    async def _apply_changes(self, coordinator: Coordinator, watch: Callable[[], None] | None) -> None:
        async with self._reading:
            await self._apply_news(coordinator, watch)

    async def _apply_news(self, coordinator: Coordinator, watch: Callable[[], None] | None) -> None:
        news = await self._notifications.news(coordinator, watch)
        if news.is_incomplete:
            await self._load(coordinator)
        else:
            changed = dict.fromkeys(data.decode(errors="replace") for _, data in news.fresh)
            await self._read(coordinator, [token_id for token_id in changed if token_id and "/" not in token_id])
        await self._notifications.seen(coordinator, news)

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
                    self.malformed[path] = error.reason
                    _log.error("znode.malformed", path=path, reason=error.reason)
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
