"""Compares the acknowledged records with those that can be read in the end. Pure; standard library only, since another interpreter runs it.

Every function returns findings: one line each, empty if all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

#: At most this many findings of a kind are listed; the count is always in the line.
LISTED = 5


class SoakVersion(NamedTuple):
    """One write of a key. Versions of a key grow; `at` is the time of its acknowledgement (seconds), 0 if there was none."""

    number: int
    is_tombstone: bool
    at: float = 0.0


def _findings(kind: str, found: Sequence[object]) -> list[str]:
    return [f"{kind}: {len(found)}, first {list(found[:LISTED])}"] if found else []


def numbered(
    topic: str,
    acked: Mapping[tuple[int, int], str],
    log: Mapping[int, Sequence[tuple[int, str]]],
    implied: Iterable[tuple[int, str]] = (),
) -> list[str]:
    """Records `writer:instance:sequence:…` of idempotent producers, each writer's in one order per partition.

    Args:
        acked: (partition, offset) -> value, from the acknowledgements.
        log: partition -> (offset, value) of every record, in the order in which it was read.
        implied: (partition, value) of acknowledgements without an offset. librdkafka takes a batch whose response was lost for
            acknowledged when a later one of the same partition is.
    """
    lost: list[tuple[int, int | None, str]] = []
    moved, doubled, disordered = [], [], []
    without_offset: dict[int, list[str]] = defaultdict(list)
    for partition, value in implied:
        without_offset[partition].append(value)
    for partition in {partition for partition, _ in acked} | log.keys() | without_offset.keys():
        at: dict[str, int] = {}
        last: dict[tuple[str, str], int] = {}
        for offset, value in log.get(partition, ()):
            if value in at:
                doubled.append((partition, at[value], offset, value[:40]))
            at[value] = offset
            writer, instance, sequence = value.split(":", 3)[:3]
            if last.get((writer, instance), -1) >= int(sequence):
                disordered.append((partition, offset, value[:40]))
            last[writer, instance] = int(sequence)
        lost += [(partition, None, value[:40]) for value in without_offset[partition] if value not in at]
        for (of, offset), value in acked.items():
            if of != partition:
                continue
            if value not in at:
                lost.append((partition, offset, value[:40]))
            elif at[value] != offset:
                moved.append((partition, offset, at[value], value[:40]))
    return [
        *_findings(f"{topic} LOST", lost),
        *_findings(f"{topic} DOUBLED", doubled),
        *_findings(f"{topic} DISORDERED", disordered),
        *_findings(f"{topic} MOVED", moved),
    ]


def transactions(topic: str, outcomes: Mapping[tuple[str, int], tuple[str, int]], seen: Iterable[str]) -> list[str]:
    """Records `producer:transaction:record:count` as a read_committed reader saw them.

    Args:
        outcomes: (producer, transaction) -> ("committed", "aborted" or "unknown", how many records it had).
    """
    found: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    count_of: dict[tuple[str, int], int] = {}
    for value in seen:
        producer, number, record, of = value.split(":")[:4]
        found[producer, int(number)][int(record)] += 1
        count_of[producer, int(number)] = int(of)
    lost, visible, torn, doubled = [], [], [], []
    for key in outcomes.keys() | found.keys():
        result, count = outcomes.get(key, ("unknown", count_of.get(key, 0)))
        records = found.get(key, Counter())
        if any(times > 1 for times in records.values()):
            doubled.append(key)
        if result == "aborted" and records:
            visible.append((key, sorted(records)))
        elif result == "committed" and not records:
            lost.append(key)
        elif records and set(records) != set(range(count)):
            torn.append((key, sorted(records), count))
    return [
        *_findings(f"{topic} COMMITTED BUT LOST", sorted(lost)),
        *_findings(f"{topic} ABORTED BUT VISIBLE", sorted(visible)),
        *_findings(f"{topic} TORN", sorted(torn)),
        *_findings(f"{topic} DOUBLED", sorted(doubled)),
    ]


def keyed(
    topic: str,
    sent: Mapping[str, Sequence[SoakVersion]],
    acked: Mapping[str, SoakVersion],
    log: Mapping[str, Sequence[SoakVersion]],
    *,
    expired_before: float = 0.0,
) -> list[str]:
    """The newest value of each key, on a topic that is compacted (each key has one writer, whose versions grow).

    Args:
        sent: every write of a key, acknowledged or not, oldest first.
        acked: the newest acknowledged write of a key.
        log: what is left of a key, in log order.
        expired_before: what was acknowledged before this time may be gone (a topic with retention).
    """
    lost: list[tuple[object, ...]] = []
    undone, disordered, foreign = [], [], []
    for key in sent.keys() | log.keys():
        left = log.get(key, ())
        numbers = [version.number for version in left]
        if numbers != sorted(set(numbers)):
            disordered.append((key, numbers[-4:]))
        known = {version.number: version for version in sent.get(key, ())}
        foreign += [(key, version.number) for version in left if version.number not in known]
        newest_acked = acked.get(key)
        if newest_acked is None:
            continue
        if not left:
            # A tombstone takes its key away in the end; so may one that was appended without an acknowledgement.
            gone = any(each.is_tombstone for each in known.values() if each.number >= newest_acked.number)
            if not gone and newest_acked.at >= expired_before:
                lost.append((key, newest_acked.number))
        elif numbers[-1] < newest_acked.number:
            if newest_acked.is_tombstone:
                undone.append((key, newest_acked.number, numbers[-1]))
            elif newest_acked.at >= expired_before:
                lost.append((key, newest_acked.number, numbers[-1]))
    return [
        *_findings(f"{topic} LOST", lost),
        *_findings(f"{topic} DELETE UNDONE", sorted(undone)),
        *_findings(f"{topic} DISORDERED", sorted(disordered)),
        *_findings(f"{topic} NEVER SENT", sorted(foreign)),
    ]


def copied(inputs: Collection[str], outputs: Iterable[str]) -> list[str]:
    """An exactly-once pipeline: every acknowledged input is among the outputs, none twice."""
    counts = Counter(outputs)
    return [
        *_findings("pipeline LOST", sorted(value for value in inputs if value not in counts)),
        *_findings("pipeline DOUBLED", sorted(value for value, times in counts.items() if times > 1)),
    ]


def steady(name: str, samples: Sequence[float], *, allowance: float) -> list[str]:
    """Whether a figure that is sampled over the run grows without an end: the last quarter's median beside the second's."""
    if len(samples) < 16:
        return []
    quarter = len(samples) // 4
    early = sorted(samples[quarter : 2 * quarter])[quarter // 2]
    late = sorted(samples[-quarter:])[quarter // 2]
    return [f"{name} GROWS: {early:.0f} -> {late:.0f}"] if late > early * 1.5 + allowance else []
