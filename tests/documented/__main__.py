"""Runs the commands of all pages, or of those that are named; exits with 1 if one is wrong."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.documented.pages import ROOT, executed, pages
from tests.documented.session import Failed, Session


def run_page(path: Path, directory: Path) -> int:
    """How many fences were run, in a directory that is made for them. Raises Failed."""
    found = executed(path)
    if found:
        with Session(directory) as session:
            for fence in found:
                try:
                    session.run(fence)
                except Failed as error:
                    raise Failed(f"{path.relative_to(ROOT)}:{fence.line}: {error}") from None
    return len(found)


def main() -> None:
    """The pages that are named, or all."""
    named = [Path(each).resolve() for each in sys.argv[1:]]
    has_failed = False
    for path in named or pages():
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="documented-") as directory:
                count = run_page(path, Path(directory) / "page")
        except Failed as error:
            has_failed = True
            print(error, flush=True)
            continue
        if count:
            print(f"{path.relative_to(ROOT)}: {count} blocks as shown, {time.monotonic() - began:.1f} s", flush=True)
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
