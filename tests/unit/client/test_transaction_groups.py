"""What the client for groups of transactions asks of a coordinator."""

from __future__ import annotations

import pytest

from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import GroupVersion, TransactionalClient
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse


@pytest.mark.parametrize(("request_timeout_ms", "asked_ms"), [(30_000, 10_000), (6_000, 3_000), (1, 0)])
def test_the_answer_to_a_commit_comes_before_the_request_times_out(
    monkeypatch: pytest.MonkeyPatch, request_timeout_ms: int, asked_ms: int
) -> None:
    """With a shorter request.timeout.ms no answer came while a marker was missing: a batch that was committed failed."""
    asked: list[EndTxnGroupRequest] = []

    def answer(_: object, group: str, message: EndTxnGroupRequest, *__: object) -> EndTxnGroupResponse:
        asked.append(message)
        return EndTxnGroupResponse(0)

    monkeypatch.setattr(TransactionalClient, "_ask_group", answer)
    client = TransactionalClient(BlockingClientConfig("127.0.0.1:1", request_timeout_ms=request_timeout_ms))
    client.commit_group(GroupVersion("g", "q", 0), (), wait_ms=10_000)
    assert [each.wait_ms for each in asked] == [asked_ms]
