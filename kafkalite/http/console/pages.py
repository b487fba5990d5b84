"""The console's pages: from an admitted request to its answer. What answers is imported when somebody first looks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.config import for_listener, http_names, kafka_listeners
from kafkalite.errors import ApiError, KafkaliteError
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.page import Page
from kafkalite.http.server import Handler
from kafkalite.security.principal import ANONYMOUS
from kafkalite.security.requirements import CONSOLE

if TYPE_CHECKING:
    from kafkalite.http.console.answers import Answers
    from kafkalite.http.host import ObservedNode

#: The pages that take POST.
POSTS = frozenset({"/api/console/do"})
_PREFIX = "/api/console/"
_OPEN_ONLY_HERE = "the Kafka listeners ask who you are, and this port does not: set http.security.protocol to see more than the first page"


class ConsolePages:
    """One per node."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._answers: Answers | None = None
        self._key = b""

    def pages(self) -> Mapping[str, Handler]:
        """By path."""
        return {path: partial(self._answer, path.removeprefix(_PREFIX)) for path in CONSOLE if path.startswith(_PREFIX)}

    async def close(self) -> None:
        """Close its connections to the cluster."""
        if self._answers is not None:
            await self._answers.cluster.close()

    async def _answer(self, name: str, asked: AuthenticatedRequest) -> Page:
        from kafkalite.http.console import origin

        if self._answers is None:
            # No start waits for what only the console needs, and the loop does not wait while it is imported.
            module = "kafkalite.http.console.answers"
            await self._node.env.disk.run_blocking(lambda: importlib.import_module(module))
            from kafkalite.http.console.answers import Answers

            self._key = self._key or self._node.env.entropy(32)
            self._answers = self._answers or Answers(self._node)
        names = self.own_names()
        if asked.principal == ANONYMOUS:
            if reason := origin.foreign_host(asked.headers, names):
                return _refusal(reason, 403)
            if self._kafka_asks_everybody():
                return _refusal(_OPEN_ONLY_HERE, 403)
        token = origin.token_of(self._key, str(asked.principal))
        if name == "do" and (reason := origin.foreign_change(asked.headers, names, token)):
            return _refusal(reason, 403)
        try:
            value = await self._answers.answer(name, asked)
        except ApiError as error:
            is_denied = error.code.name.endswith("AUTHORIZATION_FAILED")
            return _refusal(str(error), 403 if is_denied else 409, error.code.name)
        except KafkaliteError as error:
            return _refusal(str(error), 503, type(error).__name__)
        if name == "me":
            value["token"] = token
        return Page(json.dumps(value).encode(), "application/json")

    def own_names(self) -> frozenset[str]:
        """The names under which browsers may open the console, in lower case."""
        names = set(http_names(self._node.config))
        broker = self._node.metadata.broker(self._node.local.broker_id)
        if broker is not None:
            names |= {broker.rpc_host, *(each.host for each in broker.listeners)}
        return frozenset(name.lower() for name in names)

    def _kafka_asks_everybody(self) -> bool:
        """Whether every Kafka listener asks for a login. Then this port has to ask for one, too."""
        config = self._node.config
        return (
            all(
                each.protocol.startswith("SASL")
                or (each.protocol == "SSL" and for_listener(config, each.name).ssl_client_auth == "required")
                for each in kafka_listeners(config)
            )
            and not config.security_transition
        )


def _refusal(reason: str, status: int, code: str = "") -> Page:
    return Page(json.dumps({"error": reason, "code": code}).encode(), "application/json", status)
