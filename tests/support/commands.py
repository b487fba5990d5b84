"""Runs `kafkalite` commands as processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "kafkalite_cli")
#: A guard against hanging.
_PATIENCE_S = 360.0


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(bootstrap: str | Sequence[str] = (), **more: str) -> dict[str, str]:
    """For a process that is to find this tree's packages, wherever it starts."""
    path = os.pathsep.join(str(ROOT / each) for each in (".", "cli", "spark"))
    if bootstrap:
        more["KAFKALITE_BOOTSTRAP"] = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    return {**os.environ, "PYTHONPATH": path, **more}


def kafkalite(
    *arguments: str, bootstrap: str | Sequence[str] = (), stdin: bytes = b"", environ: dict[str, str] | None = None
) -> Outcome:
    """Run one command to its end. `environ`: beside `environment`."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(bootstrap, **(environ or {})),
        timeout=_PATIENCE_S,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def admin(bootstrap: str | Sequence[str], *arguments: str, code: int = 0) -> Any:
    """The JSON of a `kafkalite admin` verb, its last line; None if it prints none. Asserts the exit code."""
    done = kafkalite("admin", *arguments, "--json", bootstrap=bootstrap)
    assert done.code == code, (arguments, done)
    return json.loads(done.out.splitlines()[-1]) if done.out.strip() else None


async def admin_meanwhile(bootstrap: str | Sequence[str], *arguments: str, code: int = 0) -> Any:
    """As `admin`, while the loop goes on."""
    return await asyncio.to_thread(admin, bootstrap, *arguments, code=code)
