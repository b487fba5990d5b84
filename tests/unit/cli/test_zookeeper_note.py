"""When descriptions say that they may be out of date."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.watching import HealthProblem, HealthResponse
from kafkalite.model import BrokerId
from kafkalite_cli.output import Output
from kafkalite_cli.zookeeper_note import note_zookeeper


@pytest.mark.parametrize(
    ("what", "as_json", "notes"),
    [("zookeeper.away", False, 1), ("zookeeper.away", True, 0), ("zookeeper.open", False, 0)],
)
async def test_only_where_brokers_do_not_hear_of_changes(
    what: str, notes: int, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """An open tree made every list "the brokers' last known state", while nothing was out of date."""

    async def health(**_: Any) -> dict[BrokerId, HealthResponse]:
        return {BrokerId(1): HealthResponse(BrokerId(1), (HealthProblem(what, 0, "so it is"),))}

    await note_zookeeper(cast(AsyncClient, SimpleNamespace(health=health)), Output(as_json=as_json))
    assert capsys.readouterr().err.count("last known state: so it is") == notes
