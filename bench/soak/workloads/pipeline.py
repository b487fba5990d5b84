"""Consume, transform, produce: exactly once."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from typing import ClassVar

from bench.soak.checks import copied
from bench.soak.workloads.records import Numbered
from bench.soak.workloads.workload import DELIVERY_MS, DIE_WITH_PARENT, Workload


class PipelineWorkload(Workload):
    """Copies `numbered` to `copied`, exactly once, in a process that is killed now and then."""

    topics: ClassVar[dict[str, dict[str, str]]] = {"copied": {"min.insync.replicas": "2"}}

    def __init__(self, bootstrap: str, rng: random.Random, rate: float, source: Numbered) -> None:
        super().__init__(bootstrap, rng, rate)
        self._source = source

    def run(self) -> None:
        command = [*DIE_WITH_PARENT, sys.executable, "-m", "bench.soak.pipeline", self.bootstrap]
        while not self.stopping.is_set():
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                until = time.monotonic() + self.rng.uniform(20, 90)
                quiet = time.monotonic()
                while not self.stopping.is_set() and time.monotonic() < until:
                    if select.select([child.stdout], [], [], 1.0)[0]:
                        said = os.read(child.stdout.fileno(), 65536)
                        if not said:
                            self.counts["pipeline ended"] += 1
                            break
                        self.counts["pipeline transactions"] += said.count(b"+")
                        quiet = time.monotonic()
                    self.counts["pipeline longest silence, s"] = max(
                        self.counts["pipeline longest silence, s"], int(time.monotonic() - quiet)
                    )
                child.kill()
                self.counts["pipeline killed"] += 1
        # The rest is copied without a disturbance.
        with subprocess.Popen([*command, "--to-the-end"]) as child:
            try:
                child.wait(DELIVERY_MS / 1000)
            except subprocess.TimeoutExpired:
                self.findings.append("pipeline STUCK: it did not come to the end")
                child.kill()

    def verify(self) -> None:
        outputs = [message.value().decode() for messages in self.read_all("copied").values() for message in messages]
        self.counts["pipeline copied"] = len(outputs)
        self.findings += copied({*self._source.acked.values(), *(value for _, value in self._source.implied)}, outputs)
