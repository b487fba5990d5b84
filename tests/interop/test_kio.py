"""Our codec against kio, another implementation: every message and version that both know."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import python_with, seen_by

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


@pytest.fixture(scope="session")
def kio_python() -> Path:
    return python_with("kio", _HERE / "requirements-kio.txt")


async def test_the_codec_writes_and_reads_what_kio_does(kio_python: Path) -> None:
    script = str(_HERE / "clients" / "kio_oracle.py")
    seen = await seen_by([str(kio_python), script, "1", "5"], PYTHONPATH=str(_ROOT))
    assert seen["differing"] == []
    assert seen["compared"] > 1500
