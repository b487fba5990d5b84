"""The pages that come from code are those that are committed."""

from __future__ import annotations

import re

import pytest

from kafkalite.config import load
from kafkalite.rpc.messages import by_kind
from kafkalite_cli.docs import PAGES, ROOT, rpc_api


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_every_message_is_in_the_table() -> None:
    page = rpc_api()
    assert all(f"## {cls.__name__}\n\nKind {kind}." in page for kind, cls in by_kind.items())


def test_the_example_of_a_configuration_file_is_one() -> None:
    text = (ROOT / "docs" / "examples" / "kafkalite.toml").read_text(encoding="utf-8")
    config, warnings = load(text, {}, {})
    assert (config.broker_id, config.topic.min_insync_replicas, warnings) == (1, 2, [])


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
