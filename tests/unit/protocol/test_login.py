"""What a client that logs in says of a listener that does not take it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.protocol.login import log_in


@pytest.mark.parametrize(
    ("code", "mechanisms", "says"),
    [
        (ErrorCode.ILLEGAL_SASL_STATE, [], "ILLEGAL_SASL_STATE: this listener takes no login: set security.protocol to PLAINTEXT or SSL"),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256"], "UNSUPPORTED_SASL_MECHANISM: the broker does not take PLAIN, but SCRAM-SHA-256"),
    ],
)  # fmt: skip
def test_a_listener_that_refuses_says_what_it_takes(code: ErrorCode, mechanisms: list[str], says: str) -> None:
    client: Any = None  # the exchange does not come to it
    exchange = log_in("PLAIN", client)
    next(exchange)
    with pytest.raises(ApiError) as raised:
        exchange.send(SimpleNamespace(error_code=code, mechanisms=mechanisms))
    assert says in str(raised.value)
