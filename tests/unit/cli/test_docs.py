"""The pages that come from code are those that are committed."""

from __future__ import annotations

import pytest

from kafkalite.rpc.messages import by_kind
from kafkalite_cli.docs import PAGES, ROOT, rpc_api


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_every_message_is_in_the_table() -> None:
    page = rpc_api()
    assert all(f"## {cls.__name__}\n\nKind {kind}." in page for kind, cls in by_kind.items())
