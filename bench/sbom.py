"""A software bill of materials (CycloneDX 1.6, JSON) of what a release runs with: from requirements.lock, without the network.

`python -m bench.sbom > dist/kafkalite.cdx.json`; `--age` prints how old the lock file is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_LOCK = _ROOT / "requirements.lock"
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)\s*(?:;\s*([^\\]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> Iterator[dict[str, Any]]:
    """One per pinned package: name, version, purl, and the digests of all its files that the lock admits."""
    found: dict[str, Any] | None = None
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            if found is not None:
                yield found
            name = re.sub(r"[-_.]+", "-", pin[1]).lower()
            found = {
                "type": "library",
                "name": name,
                "version": pin[2],
                "purl": f"pkg:pypi/{name}@{pin[2]}",
                "bom-ref": f"pkg:pypi/{name}@{pin[2]}",
                "hashes": [],
            }
            if pin[3]:
                found["properties"] = [{"name": "marker", "value": pin[3].strip()}]
        elif found is not None:
            found["hashes"] += [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(line)]
    if found is not None:
        yield found


def document(lock: str, version: str) -> dict[str, Any]:
    """The whole: the same for the same lock and version."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "kafkalite",
                "version": version,
                "purl": f"pkg:pypi/kafkalite@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": list(components(lock)),
    }


def age() -> str:
    """Of the lock file's last change, as git knows it."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%cs (%cr)", "--", str(_LOCK)],
        capture_output=True,
        text=True,
        check=True,
        cwd=_ROOT,
    )
    return done.stdout.strip() or "not committed"


def main(arguments: list[str]) -> None:
    """The command."""
    lock = _LOCK.read_text(encoding="utf-8")
    if arguments == ["--age"]:
        print(f"requirements.lock: {sum(1 for _ in components(lock))} packages, last changed {age()}")
        return
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    json.dump(document(lock, version), sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
