"""The figures of a bench as a file of JSON, for programs: the option that names it, and its writing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

json_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there, too."
)


def write_json(figures: Any, json_file: Path | None) -> None:
    """To the file, if one was named."""
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")
