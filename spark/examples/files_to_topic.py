"""Files to a topic: 336,776 flights from a CSV file, keyed by aircraft, as JSON."""

from __future__ import annotations

import sys
import time

from flights import arguments, session, write_flights


def main(argv: list[str] | None = None) -> int:
    given = arguments(__doc__, argv, rows="all")
    spark = session("files to topic")
    began = time.monotonic()
    rows = write_flights(spark, given, given.rows)
    print(f"{rows:,} rows to topic {given.topic} in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
