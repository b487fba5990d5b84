"""The registry's pages pass nothing on that another site's page could send without asking first (CORS)."""

from __future__ import annotations

from typing import cast

import pytest

from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.page import Page
from kafkalite.http.schemas import SchemaPages
from kafkalite.http.server import TreeRequest
from kafkalite.rpc.messages.schemas import SchemaRegistryRequest, SchemaRegistryResponse
from kafkalite.schemas.coordinator import SchemaRegistry
from kafkalite.security.principal import Principal


class Registry:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[SchemaRegistryRequest] = []

    async def serve(self, request: SchemaRegistryRequest) -> SchemaRegistryResponse:
        self.asked.append(request)
        return SchemaRegistryResponse(0, 200, "application/json", "{}")


async def ask(headers: dict[str, str], body: bytes = b'{"schema": "\\"int\\""}') -> tuple[Page, Registry]:
    registry = Registry()
    serve = SchemaPages(lambda: cast("SchemaRegistry", registry)).trees()["subjects"]
    asked = AuthenticatedRequest(Principal("User", "ann"), "10.0.0.1", {}, headers=headers, body=body)
    return await serve(TreeRequest(asked, "POST", "/subjects/t/versions")), registry


@pytest.mark.parametrize(
    "content_type",
    [
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json; charset=utf-8",
        "application/json",
        "Application/JSON ; charset=utf-8",
    ],
)
async def test_clients_of_the_registry_are_served(content_type: str) -> None:
    page, registry = await ask({"content-type": content_type})
    assert page.status == 200
    assert len(registry.asked) == 1


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/plain;json",  # a browser sends these three to another site without asking it, whatever the parameters say
        "text/plain; charset=application/json",
        "multipart/form-data; boundary=json",
        "application/x-www-form-urlencoded; json",
    ],
)
async def test_forms_of_other_sites_are_not(content_type: str) -> None:
    page, registry = await ask({"content-type": content_type} if content_type else {})
    assert page.status == 415
    assert registry.asked == []
