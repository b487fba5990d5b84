"""The schema registry's REST API on the HTTP listener of every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.http.page import Page
from kafkalite.http.server import TreeHandler, TreeRequest
from kafkalite.rpc.messages.schemas import SchemaRegistryRequest
from kafkalite.schemas import ROOTS

if TYPE_CHECKING:
    from kafkalite.schemas.coordinator import SchemaRegistry


class SchemaPages:
    """Passes requests to the coordinator of the registry."""

    def __init__(self, registry: Callable[[], SchemaRegistry]) -> None:
        self._registry = registry

    def trees(self) -> Mapping[str, TreeHandler]:
        """By first segment."""
        return dict.fromkeys(ROOTS, self._serve)

    async def _serve(self, request: TreeRequest) -> Page:
        # A page of another site can send text and forms, with any parameters, but no JSON without asking first (CORS).
        asked = request.asked
        if asked.body and not _is_json(asked.headers.get("content-type", "")):
            text = b"the body is JSON, so Content-Type has to be application/vnd.schemaregistry.v1+json\n"
            return Page(text, status=415)
        try:
            body = asked.body.decode()
        except UnicodeDecodeError:
            raise ValueError("the body is not UTF-8") from None
        answer = await self._registry().serve(
            SchemaRegistryRequest(
                request.method,
                request.path,
                dict(asked.query),
                body,
                str(asked.principal),
                asked.client_host,
            )
        )
        return Page(answer.body.encode(), answer.content_type, status=answer.status)


def _is_json(content_type: str) -> bool:
    """application/json, application/vnd.schemaregistry.v1+json, and the like; parameters do not count."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith("application/") and kind.endswith(("/json", "+json"))
