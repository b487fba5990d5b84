"""Our codec against kio, another implementation: every message and version that both know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import install, scratch, seen_by

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


@pytest.fixture(scope="session")
def kio_python() -> Path:
    requirements = _HERE / "requirements-kio.txt"
    directory = scratch("kio", requirements)
    python = directory / "venv" / "bin" / "python"
    install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)],
    )
    return python


async def test_the_codec_writes_and_reads_what_kio_does(kio_python: Path) -> None:
    script = str(_HERE / "clients" / "kio_oracle.py")
    seen = await seen_by([str(kio_python), script, "1", "5"], PYTHONPATH=str(_ROOT))
    assert seen["differing"] == []
    assert seen["compared"] > 1500
