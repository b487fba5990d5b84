"""The demo's pipeline: `kafkalite pipeline run` in a process of its own, and its table, queried while it grows."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TOML = """\
name = "demo"
trigger = "0s"
[kafka]
"bootstrap.servers" = "{bootstrap}"
[source]
topics = ["{topic}"]
max_records = 90000
[decode]
format = "raw"
[[steps]]
sql = '''SELECT CAST(f[0] AS BIGINT) AS number, f[10] AS carrier, f[13] AS origin, TRY_CAST(f[6] AS DOUBLE) AS delay,
                _partition, _offset FROM (SELECT split(CAST(value AS STRING), ',') AS f, * FROM input)'''
[[sinks]]
format = "iceberg"
table = "flights"
partition_by = ["origin"]
[spark]
"spark.local.dir" = "{directory}/spark"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={directory} -XX:-UsePerfData"
"""


class PipelineFailed(Exception):
    """The pipeline's process has ended, with its own last words."""


class TablePipeline:
    """Started at once: Spark's JVM starts while the topic is filled."""

    def __init__(self, directory: Path, bootstrap: list[str], topic: str) -> None:
        self._directory = directory
        self._output = directory / "pipeline.txt"
        self.file = directory / "demo.toml"
        self.file.write_text(_TOML.format(bootstrap=",".join(bootstrap), topic=topic, directory=directory))
        environ = os.environ | {"TMPDIR": str(directory)}
        with self._output.open("w") as output:
            # a session of its own: all of it, the JVM included, is ended by `close`
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite_cli", "pipeline", "run", str(self.file)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environ, start_new_session=True,
            )  # fmt: skip

    def table(self) -> Any | None:
        """The table as it is now; None: the first batch is not in it yet."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        database = self._directory / "tables" / "catalog.db"
        if not database.exists():
            return None
        try:
            found = load_catalog("default", type="sql", uri=f"sqlite:///{database}", init_catalog_tables="false")
            return found.load_table("default.flights")
        except NoSuchTableError:
            return None
        except Exception as error:
            if "no such table" in str(error):  # the catalog itself is being made
                return None
            raise

    def rows(self) -> int:
        """Of the newest snapshot."""
        table = self.table()
        snapshot = table.current_snapshot() if table is not None else None
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"])

    def follow(self, total: int, show: Callable[[int], None], give_up_s: float = 300.0) -> None:
        """Until the table has `total` rows; `show` gets each new number. Raises PipelineFailed."""
        seen, until = 0, time.monotonic() + give_up_s
        while seen < total:
            if self._process.poll() is not None or time.monotonic() > until:
                words = self._output.read_text().strip().splitlines()
                raise PipelineFailed(f"the pipeline stopped at {seen:,} rows: {words[-1] if words else ''}")
            if (now := self.rows()) != seen:
                seen = now
                show(seen)
            time.sleep(0.2)

    def stop(self) -> str:
        """Between two batches, as a person would stop it. What it printed last."""
        subprocess.run(
            [sys.executable, "-m", "kafkalite_cli", "pipeline", "stop", str(self.file)],
            check=False,
            capture_output=True,
        )
        lines = self._output.read_text().strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """Nothing of it is left when this returns."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            while True:  # the JVM is our grandchild
                os.killpg(self._process.pid, 0)
                time.sleep(0.05)
