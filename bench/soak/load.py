"""All workloads of a soak, in an interpreter that has confluent-kafka. Started by `python -m bench.soak`.

Arguments: bootstrap servers, number of nodes, seed, records a second, "flush" if every topic must be flushed before an
acknowledgement (else "-"), then the command of the Java workload, if there is one.
Lines on stdin: `sync SECONDS` waits until everything is in sync; `stop` ends the load and counts. One line of JSON for each.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from typing import Any

from bench.soak.workloads.pipeline import PipelineWorkload
from bench.soak.workloads.records import Deleted, Keyed, Numbered, Offsets
from bench.soak.workloads.transactions import JavaTransactions, TransactionsWorkload
from bench.soak.workloads.workload import Workload, create_topics, not_in_sync


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def wait_in_sync(bootstrap: str, nodes: int, patience_s: float) -> list[str]:
    """The records that are still missing after `patience_s`."""
    until = time.monotonic() + patience_s
    missing: list[str] = not_in_sync(bootstrap, nodes)
    while missing and time.monotonic() < until:
        time.sleep(0.5)
        missing = not_in_sync(bootstrap, nodes)
    return missing


def acked(workloads: list[Workload]) -> int:
    return sum(len(each.acked) for each in workloads if isinstance(each, Numbered))


def main(bootstrap: str, nodes: int, seed: int, rate: float, java: list[str], *, flush: bool) -> None:
    """Exit code 0 whatever is found: the last line says it."""
    rng = random.Random(seed)

    def own() -> random.Random:
        return random.Random(rng.randrange(2**32))

    numbered = Numbered(bootstrap, own(), rate)
    workloads: list[Workload] = [
        numbered,
        TransactionsWorkload(bootstrap, own(), rate / 4),
        Keyed(bootstrap, own(), rate / 2, flush=flush),
        PipelineWorkload(bootstrap, own(), rate, numbered),
        Offsets(bootstrap, own(), rate),
        Deleted(bootstrap, own(), rate / 4),
    ]
    if java:
        workloads.append(JavaTransactions(bootstrap, own(), rate / 4, java))
    create_topics(bootstrap, {name: config for each in workloads for name, config in each.topics.items()})
    missing = wait_in_sync(bootstrap, nodes, 60)
    for each in workloads:
        each.start()
    say(event="started", missing=missing)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "sync":
            before, began = acked(workloads), time.monotonic()
            missing = wait_in_sync(bootstrap, nodes, float(words[1]))
            # It goes on only if records are acknowledged after the fault.
            until = time.monotonic() + float(words[1])
            while acked(workloads) <= before and time.monotonic() < until:
                time.sleep(0.2)
            moves = acked(workloads) > before
            say(
                event="sync",
                missing=missing,
                goes_on=moves,
                seconds=round(time.monotonic() - began, 1),
                acked=acked(workloads),
            )
        elif words[0] == "stop":
            break
    # In this order: the pipeline copies the records of the others to the end.
    for each in workloads:
        if not isinstance(each, PipelineWorkload):
            each.finish()
    for each in workloads:
        if isinstance(each, PipelineWorkload):
            each.finish()
    for each in workloads:
        each.verify()
    counts: Counter[str] = Counter()
    for each in workloads:
        counts.update(each.counts)
    counts["numbered longest silence, ms"] = int(numbered.longest_silence_s * 1000)
    say(event="verdict", findings=[line for each in workloads for line in each.findings], counts=counts)


if __name__ == "__main__":
    main(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[6:], flush=sys.argv[5] == "flush"
    )
