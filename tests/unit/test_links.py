"""Links in the documents lead somewhere: to a file of the tree, and to a heading of it. (`make site` looks at the made pages.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def _prose(path: Path) -> str:
    return re.sub(r"`[^`\n]+`", "", _FENCED.sub("", path.read_text(encoding="utf-8")))


@cache
def _anchors(path: Path) -> set[str]:
    """As GitHub makes them from headings."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return found


def _broken(path: Path) -> Iterator[str]:
    for name, anchor in _LINK.findall(_prose(path)):
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield f"{name}: no such file"
        elif anchor and anchor not in _anchors(target):
            yield f"{name}#{anchor}: no such heading"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert list(_broken(path)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[good](#a-heading) [bad](#another) [gone](gone.md)\n")
    assert list(_broken(page)) == ["#another: no such heading", "gone.md: no such file"]


def test_every_page_is_in_the_table_of_contents() -> None:
    """A page that is in no table of contents is not found by readers."""
    listed = set(re.findall(r"^([\w-]+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - listed == {"index"}
