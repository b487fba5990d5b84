"""The bill of materials has every package of the lock file, with its digests."""

from __future__ import annotations

import re
from pathlib import Path

from bench.sbom import components, document

_LOCK = (Path(__file__).parents[3] / "requirements.lock").read_text()


def test_every_pinned_package_is_in_it() -> None:
    found = list(components(_LOCK))
    assert len(found) == len(re.findall(r"^[^\s#-][^\n]*==", _LOCK, re.MULTILINE)) > 40
    assert all(each["hashes"] for each in found)
    assert sum(len(each["hashes"]) for each in found) == _LOCK.count("--hash=sha256:")
    by_name = {each["name"]: each for each in found}
    assert by_name["aiozk"]["purl"] == "pkg:pypi/aiozk@0.32.0"
    assert by_name["backports-zstd"]["properties"][0]["value"].startswith("python_full_version")


def test_it_is_the_same_for_the_same_release() -> None:
    assert document(_LOCK, "1.0") == document(_LOCK, "1.0")
    assert document(_LOCK, "1.0")["bomFormat"] == "CycloneDX"
