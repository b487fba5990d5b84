"""What commands say that watch moves."""

from __future__ import annotations

from typing import cast

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import ListReassignmentsRequest, ListReassignmentsResponse
from kafkalite_cli.admin.move_progress import watch
from kafkalite_cli.output import Output


class _NothingMoves:
    """A cluster in which no reassignment is in progress."""

    async def request(
        self, request: ListReassignmentsRequest, response: type[ListReassignmentsResponse], *, timeout_s: float
    ) -> ListReassignmentsResponse:
        return response(ErrorCode.NONE)

    def now(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("is_requested", "says"), [(True, "all reassignments are done"), (False, "no reassignment is in progress")]
)
async def test_moves_that_were_done_before_the_first_look(
    *, is_requested: bool, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = cast(AsyncClient, _NothingMoves())
    await watch(client, Output(as_json=False), timeout_s=1, is_requested=is_requested)
    assert capsys.readouterr().out == says + "\n"
