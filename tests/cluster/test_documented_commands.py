"""Two pages whose commands are executed as they stand there; `make docs-commands` executes all pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented.__main__ import run_page
from tests.documented.pages import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


@pytest.mark.parametrize("name", ["README.md", "docs/partitions.md"])
def test_the_page_is_as_it_is_printed(name: str, tmp_path: Path) -> None:
    assert run_page(ROOT / name, tmp_path / "page") > 0
