"""Rights of a node's files."""

from __future__ import annotations

import os
from pathlib import Path

from kafkalite.security.files import open_directories
from kafkalite_cli.new_files import keep_from_others


def test_log_directories_that_every_user_may_read(tmp_path: Path) -> None:
    found = {}
    for name, mode in (("open", 0o755), ("group", 0o750), ("closed", 0o700), ("entered", 0o711)):
        path = tmp_path / name
        path.mkdir()
        path.chmod(mode)
        found[name] = open_directories([str(path)])
    assert [name for name, warnings in found.items() if warnings] == ["open"]
    assert f"chmod -R o-rwx {tmp_path / 'open'}" in found["open"][0]
    assert open_directories([str(tmp_path / "none"), "nul\0"]) == []


def test_new_files_are_not_for_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        keep_from_others()
        (tmp_path / "file").write_text("")
        (tmp_path / "directory").mkdir()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "directory").stat().st_mode & 0o777 == 0o750
