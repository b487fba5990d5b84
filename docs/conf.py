"""Sphinx's configuration of the documents as a site: `make site` (docs/adr/0041)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parent

project = "kafkalite"
author = "the authors of kafkalite"
extensions = ["myst_parser"]
exclude_patterns = ["man", "prometheus", "grafana"]
html_theme = "furo"
html_title = "kafkalite"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
#: Anchors as GitHub makes them, so that one link works in both.
myst_heading_anchors = 4
#: Sessions hold outputs, and examples hold `…`: they are not colored where they are not of one language.
suppress_warnings = ["misc.highlighting_failure"]

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def _leave_the_tree(path: Path, text: str) -> str:
    """The text with links to files outside of docs/ as plain names: the site holds the documents alone."""

    def replaced(link: re.Match[str]) -> str:
        target = (path.parent / link[2]).resolve()
        return link[0] if target.is_relative_to(_DOCS) else link[1]

    return _LINK.sub(replaced, text)


def _source_read(app: Any, name: str, source: list[str]) -> None:
    source[0] = _leave_the_tree(Path(app.env.doc2path(name)), source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _source_read)
