"""The way back: a checkpoint that was continued with `format("kafkalite")` becomes one that Spark's own Kafka source reads.

    python -m pyspark_kafkalite.checkpoint DIRECTORY      the query is stopped

Spark's source refuses the one key that our positions have besides the offsets (see `stream_offsets`). Everything else is equal.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark_kafkalite.stream_offsets import EXTRA


def to_kafka(checkpoint: Path) -> int:
    """Take that key out of a checkpoint on this host; returns how many batches had it.

    The query must be stopped. A batch that was not complete runs again, from the same offsets.

    Raises:
        ValueError: this is no checkpoint, or its first batch is not complete: nobody but our source knows where that began.
        OSError: a file cannot be read or written.
    """
    batches = sorted((path for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()), key=_number)
    if not batches:
        raise ValueError(f"{checkpoint} has no batches in offsets/: it is no checkpoint of a query that has run")
    if not any(path.name.isdigit() for path in (checkpoint / "commits").glob("*")):
        raise ValueError(
            f"the first batch of {checkpoint} is not complete: run the query with kafkalite to its end first"
        )
    changed = 0
    for path in batches:
        text = path.read_text(encoding="utf-8")
        lines = [_without(line) for line in text.split("\n")]
        if (new := "\n".join(lines)) != text:
            _replace(path, new)
            changed += 1
    return changed


def _number(path: Path) -> int:
    return int(path.name)


def _without(line: str) -> str:
    if EXTRA not in line:
        return line
    try:
        position = json.loads(line)
    except ValueError:
        return line
    if not isinstance(position, dict) or EXTRA not in position:
        return line
    del position[EXTRA]
    return json.dumps(position, separators=(",", ":"))


def _replace(path: Path, text: str) -> None:
    """The file and Hadoop's checksum of it, which would not fit any more; Spark reads files without one, too."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        changed = to_kafka(Path(sys.argv[1]))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{changed} batches changed; Spark's Kafka source can continue the query")
    return 0


if __name__ == "__main__":
    sys.exit(main())
